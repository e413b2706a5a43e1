use super::golden::{Answer, GoldenFrame, GoldenSet, KnownBox, entry_name, synthetic_pictures};
use super::manifest::{Golden, GoldenKind, Precision, Source, Target};
use super::*;
use crate::engine::{ElementType, InputSpec, Layout};
use crate::error::ErrorKind;
use crate::units::{BoxPx, SizePx};

fn golden_set() -> GoldenSet {
    let pictures = synthetic_pictures(SizePx::new(32, 32));
    let frames = pictures.into_iter().take(2).enumerate().map(|(number, picture)| GoldenFrame {
        name: entry_name(number),
        picture,
        answer: Answer {
            candidates: vec![KnownBox {
                anchor: Some(3),
                class_id: 0,
                score: 0.5,
                edges: BoxPx::new(1.5, 2.0, 3.25, 4.0),
            }],
            candidates_in_all: 1,
            ..Answer::default()
        },
    });
    GoldenSet { frames: frames.collect() }
}

pub(super) fn sample() -> (Manifest, Files) {
    let (frames, mut files) = golden_set().to_files().unwrap();
    files.insert(MODEL.to_owned(), (0..9000u16).map(|value| value.to_le_bytes()[0]).collect());
    let manifest = Manifest {
        schema: manifest::SCHEMA,
        name: "line1".into(),
        edge_build: "0.1.0".into(),
        source: Source {
            file_name: "m.onnx".into(),
            sha256: "0".into(),
            side_files: vec![],
            producer: "test".into(),
            opset: 17,
        },
        input: InputSpec {
            name: "images".into(),
            batch: 1,
            channels: 3,
            size: SizePx::new(32, 32),
            element: ElementType::F32,
        },
        layout: Layout::Raw { output: "output0".into(), classes: 1, anchors: 21 },
        classes: vec!["hole".into()],
        metadata: Default::default(),
        decided: vec![],
        target: Target { platform: "cpu".into(), flavour: "cpu".into(), compute_capability: None, budget: None },
        precision: Precision { asked: "as exported".into(), found: Default::default() },
        thresholds: Default::default(),
        guard: Default::default(),
        decision: None,
        golden: Golden {
            kind: GoldenKind::Synthetic,
            frames,
            answered_by: "test".into(),
            tolerance_px: 1.0,
            tolerance_score: 0.01,
            tolerated_share: 0.0,
            score_floor: 0.01,
        },
        gate: None,
        reload: None,
        cache_key: "k".into(),
        cache_key_fields: Default::default(),
        files: Default::default(),
    };
    (manifest, files)
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn with(&self, bytes: &[u8]) -> Result<Bundle> {
        let path = self.path("x.edge");
        std::fs::write(&path, bytes).unwrap();
        Bundle::open(&path)
    }
}

fn written() -> (Folder, Vec<u8>, String) {
    let folder = Folder::new();
    let (manifest, files) = sample();
    let id = write(&folder.path("a.edge"), &manifest, &files).unwrap();
    let bytes = std::fs::read(folder.path("a.edge")).unwrap();
    (folder, bytes, id)
}

/// A zip as `options` say, from parts that need not be a bundle.
fn packed(parts: &[(&str, &[u8])], method: zip::CompressionMethod) -> Vec<u8> {
    use std::io::Write;
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in parts {
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        zip.start_file(*name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn refusal(result: Result<Bundle>) -> String {
    let error = result.expect_err("this must be refused");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    error.to_string()
}

#[test]
fn what_is_written_is_read_back() {
    let (folder, bytes, id) = written();
    let bundle = Bundle::open(&folder.path("a.edge")).unwrap();
    assert_eq!(bundle.id(), id);
    assert_eq!(bundle.manifest().name, "line1");
    assert_eq!(bundle.model().unwrap(), sample().1[MODEL]);
    let golden = bundle.golden().unwrap();
    let expected = golden_set();
    assert_eq!(golden.frames.len(), expected.frames.len());
    for (found, expected) in golden.frames.iter().zip(&expected.frames) {
        assert_eq!(found.answer, expected.answer);
        assert_eq!(found.picture.pixels.as_slice(), expected.picture.pixels.as_slice());
    }
    for name in bundle.entry_names() {
        assert_eq!(bundle.entry_range(name).unwrap().offset_bytes % u64::from(ALIGNMENT_BYTES), 0, "{name}");
    }
    let again = written();
    assert_eq!((bytes, id), (again.1, again.2), "equal inputs give equal bytes");
}

#[test]
fn any_unzip_tool_reads_it() {
    let (_folder, bytes, _) = written();
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(bytes)).unwrap();
    assert_eq!(archive.by_index(0).unwrap().name().unwrap(), MANIFEST);
    let mut model = Vec::new();
    std::io::Read::read_to_end(&mut archive.by_name(MODEL).unwrap(), &mut model).unwrap();
    assert_eq!(model, sample().1[MODEL]);
}

#[test]
fn plans_and_signature_are_added_without_a_new_id() {
    let (folder, _, id) = written();
    let bundle = Bundle::open(&folder.path("a.edge")).unwrap();
    let mut additions = Files::from([("plans/t4.plan".to_owned(), vec![7; 5000])]);
    additions.insert("plans/t4.json".to_owned(), b"{}".to_vec());
    additions.insert(SIGNATURE.to_owned(), vec![1; 64]);
    write_with_additions(&folder.path("b.edge"), &bundle, &additions).unwrap();
    let finished = Bundle::open(&folder.path("b.edge")).unwrap();
    assert_eq!(finished.id(), id);
    assert_eq!(finished.plan_names().collect::<Vec<_>>(), ["t4"]);
    assert_eq!(finished.read("plans/t4.plan").unwrap(), vec![7; 5000]);
    assert_eq!(finished.entry_range("plans/t4.plan").unwrap().offset_bytes % 4096, 0);
    let changed = Files::from([(MODEL.to_owned(), vec![])]);
    write_with_additions(&folder.path("c.edge"), &bundle, &changed).unwrap_err();
}

#[test]
fn every_cut_is_refused_and_every_flipped_byte_that_matters() {
    let (folder, bytes, _) = written();
    let cuts = (0..bytes.len()).step_by(997).chain([1, 4, 21, 22, bytes.len() - 1]);
    for length in cuts {
        refusal(folder.with(&bytes[..length]));
    }
    let original = Bundle::open(&folder.path("a.edge")).unwrap();
    for (name, range) in original.entry_names().map(|name| (name, original.entry_range(name).unwrap())) {
        let mut damaged = bytes.clone();
        damaged[usize::try_from(range.offset_bytes + range.length_bytes / 2).unwrap()] ^= 0x20;
        let text = refusal(folder.with(&damaged));
        assert!(text.contains(name), "{name}: {text}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    refusal(folder.with(&longer));
    refusal(folder.with(&bytes.repeat(2)));
}

#[test]
fn flipped_bytes_never_panic() {
    let (folder, bytes, id) = written();
    let directory_at = bytes.len() - 700;
    for at in (0..64).chain(directory_at..bytes.len()) {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            if let Ok(bundle) = folder.with(&damaged) {
                assert_eq!(bundle.id(), id, "byte {at}");
            }
        }
    }
}

#[test]
fn what_edge_build_does_not_write_is_refused_by_name() {
    let folder = Folder::new();
    let stored = zip::CompressionMethod::Stored;
    for name in
        ["../evil", "/etc/passwd", "golden/../../x.png", "plans/.plan", "golden/a/b.png", "extra.txt", "golden\\x.png"]
    {
        let text = refusal(folder.with(&packed(&[(MANIFEST, b"{}"), (name, b"x")], stored)));
        assert!(text.contains("expected only manifest.json"), "{name}: {text}");
    }
    let (manifest, mut files) = sample();
    files.insert("golden/extra.png".to_owned(), vec![1]);
    write(&folder.path("a.edge"), &manifest, &files).unwrap();
    let bundle = Bundle::open(&folder.path("a.edge")).unwrap();
    let text = serde_json::to_vec(&Manifest {
        files: sample_files_without(&bundle, "golden/extra.png"),
        ..bundle.manifest().clone()
    })
    .unwrap();
    let mut parts: Vec<(String, Vec<u8>)> = vec![(MANIFEST.to_owned(), text)];
    parts.extend(files.clone());
    let borrowed: Vec<(&str, &[u8])> = parts.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
    let text = refusal(folder.with(&packed(&borrowed, stored)));
    assert!(text.contains("does not know this entry") && text.contains("golden/extra.png"), "{text}");
}

fn sample_files_without(bundle: &Bundle, name: &str) -> std::collections::BTreeMap<String, manifest::FileEntry> {
    let mut files = bundle.manifest().files.clone();
    files.remove(name);
    files
}

#[test]
fn duplicate_names_and_overlaps_are_refused() {
    let (folder, bytes, _) = written();
    // Rename `golden/001.png` to `golden/000.png` in header and directory: same length, so only the name changes.
    let mut twins = bytes.clone();
    let from = b"golden/001.png";
    for at in 0..twins.len() - from.len() {
        if twins[at..].starts_with(from)
            && twins[..at].windows(4).rev().take(60).any(|w| w == b"PK\x03\x04" || w == b"PK\x01\x02")
        {
            twins[at + 9] = b'0';
        }
    }
    let text = refusal(folder.with(&twins));
    assert!(text.contains("`golden/000.png` twice"), "{text}");
}

#[test]
fn lies_about_lengths_and_zip64_are_refused() {
    let (folder, bytes, _) = written();
    let directory = bytes.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    let end = bytes.len() - 22;
    let lies: [(&str, usize, [u8; 4]); 6] = [
        ("packed length", directory + 20, [0xff; 4]),
        ("length", directory + 24, [0xff, 0xff, 0xff, 0x7f]),
        ("header offset", directory + 42, [0xff; 4]),
        ("number of entries", end + 8, [0xff; 4]),
        ("directory length", end + 12, [0xff; 4]),
        ("directory offset", end + 16, [0xff, 0xff, 0xff, 0x00]),
    ];
    for (what, at, value) in lies {
        let mut lying = bytes.clone();
        lying[at..at + 4].copy_from_slice(&value);
        let text = refusal(folder.with(&lying));
        assert!(!text.is_empty(), "{what}");
    }
}

#[test]
fn a_newer_schema_is_refused_with_both_versions() {
    let folder = Folder::new();
    let newer = br#"{"schema": 7, "a field of the future": {}}"#;
    let text = refusal(folder.with(&packed(&[(MANIFEST, newer)], zip::CompressionMethod::Stored)));
    assert!(text.contains("schema 7") && text.contains("at most 1") && text.contains("newer edge-build"), "{text}");
    assert!(text.contains("x.edge"), "{text}");
}

#[test]
fn fields_out_of_range_are_refused_with_the_field() {
    type Change = fn(&mut Manifest);
    let cases: [(&str, Change); 8] = [
        ("input.size", |m| m.input.size.width_px = 1 << 30),
        ("input", |m| m.input.batch = 0),
        ("classes", |m| m.classes.push("more".into())),
        ("layout", |m| m.layout = Layout::EndToEnd { output: "o".into(), classes: 1, rows: u32::MAX }),
        ("thresholds", |m| m.thresholds.iou = 1.5),
        ("thresholds.score_by_class", |m| {
            m.thresholds.score_by_class.insert("cat".into(), 0.5);
        }),
        ("golden", |m| m.golden.tolerance_px = -1.0),
        ("golden.frames", |m| m.golden.frames.push("model.onnx".into())),
    ];
    for (field, change) in cases {
        let folder = Folder::new();
        let (mut manifest, files) = sample();
        change(&mut manifest);
        write(&folder.path("a.edge"), &manifest, &files).unwrap();
        let text = refusal(Bundle::open(&folder.path("a.edge")));
        assert!(text.contains(&format!("a.edge, manifest field `{field}`")), "{text}");
    }
}

#[test]
fn folders_and_missing_files_are_refused() {
    let folder = Folder::new();
    assert!(refusal(Bundle::open(folder.0.path())).contains("found a folder"));
    assert!(refusal(Bundle::open(&folder.path("missing.edge"))).contains("cannot be read"));
    assert!(refusal(Bundle::open(Path::new("/dev/null"))).contains("device"));
    assert!(refusal(folder.with(b"")).contains("0 bytes"));
    assert!(refusal(folder.with(&[0x08; 4096])).contains("no bundle"));
}

#[test]
fn a_golden_picture_of_another_kind_is_refused() {
    let folder = Folder::new();
    let (manifest, mut files) = sample();
    files.insert("golden/001.png".to_owned(), b"no picture".to_vec());
    write(&folder.path("a.edge"), &manifest, &files).unwrap();
    let bundle = Bundle::open(&folder.path("a.edge")).unwrap();
    let error = bundle.golden().unwrap_err().to_string();
    assert!(error.contains("golden/001.png"), "{error}");
}

#[test]
fn other_files_under_the_output_name_are_left_alone() {
    let folder = Folder::new();
    let (manifest, files) = sample();
    std::fs::write(folder.path("model.onnx"), "precious").unwrap();
    let error = write(&folder.path("model.onnx"), &manifest, &files).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Output);
    assert_eq!(std::fs::read(folder.path("model.onnx")).unwrap(), b"precious");
    assert_eq!(std::fs::read_dir(folder.0.path()).unwrap().count(), 1);
}
