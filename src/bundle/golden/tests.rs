use super::*;
use crate::bundle::tests::sample;
use crate::bundle::{Bundle, MODEL, write};
use crate::engine::canned::{CannedAnswer, CannedEngine};
use crate::engine::{Candidate, Engine, Layout, OutputStats};
use crate::error::ErrorKind;
use crate::frame::FrameTag;

const INPUT: SizePx = SizePx::new(32, 32);

fn candidate(anchor: u32, score: f32, left: f32) -> Candidate {
    Candidate { anchor, class_id: 0, score, edges: BoxPx::new(left, 4.0, left + 8.0, 12.0) }
}

fn engine_with(change: impl Fn(u64, &mut CannedAnswer) + Send + 'static) -> CannedEngine {
    let script = move |_: u64, frame: &crate::frame::Frame, answer: &mut CannedAnswer| {
        answer.candidates = vec![candidate(3, 0.9, 4.0), candidate(9, 0.5, 20.0)];
        answer.stats = Some(OutputStats { maximum_score: 0.9, mean_score: 0.1, ..OutputStats::default() });
        change(frame.number, answer);
    };
    CannedEngine::scripted(&["hole"], INPUT, Box::new(script))
}

fn bundle_of(engine: &mut dyn Engine) -> (tempfile::TempDir, Bundle) {
    let folder = tempfile::tempdir().unwrap();
    let (mut manifest, mut files) = sample();
    let pictures = synthetic_pictures(INPUT);
    let frames: Vec<_> = pictures.into_iter().zip(0..).map(|(picture, number)| frame(number, picture)).collect();
    let options = RecordOptions { thresholds: &manifest.thresholds, classes: &manifest.classes, score_floor: 0.01 };
    let answers = record(engine, &frames, &options).unwrap();
    let golden = frames.into_iter().zip(answers).enumerate().map(|(number, (frame, answer))| GoldenFrame {
        name: entry_name(number),
        picture: frame.picture,
        answer,
    });
    let (names, golden_files) = GoldenSet { frames: golden.collect() }.to_files().unwrap();
    files.retain(|name, _| name == MODEL);
    files.extend(golden_files);
    manifest.golden.frames = names;
    let path = folder.path().join("x.edge");
    write(&path, &manifest, &files).unwrap();
    (folder, Bundle::open(&path).unwrap())
}

#[test]
fn an_engine_that_answers_alike_is_proved() {
    let (_folder, bundle) = bundle_of(&mut engine_with(|_, _| {}));
    let golden = bundle.golden().unwrap();
    assert_eq!(golden.frames[0].answer.detections.len(), 2);
    assert_eq!(golden.frames[0].answer.candidates[1].anchor, Some(9));
    let mut engine = engine_with(|_, answer| answer.candidates[0].score = 0.897);
    let proof = prove(&mut engine, &bundle).unwrap();
    assert_eq!(proof.frames, 4);
    assert!((proof.worst_score - 0.003).abs() < 1e-4 && proof.worst_px < 1e-3, "{proof:?}");
    let usual = engine_with(|_, _| {}).info().score_floor;
    assert_eq!(engine.info().score_floor, usual, "the floor is set back");
}

#[test]
fn every_batch_slot_is_proved() {
    let (_folder, bundle) = bundle_of(&mut engine_with(|_, _| {}));
    let proof = prove(&mut engine_with(|_, _| {}).with_batch(3), &bundle).unwrap();
    assert_eq!(proof.frames, 4);
}

#[test]
fn drift_and_faults_are_refused_with_the_frame() {
    type Change = fn(&mut CannedAnswer);
    let cases: [(&str, Change, &str); 8] = [
        (
            "moved",
            |a| a.candidates[1].edges = BoxPx::new(24.0, 4.0, 32.0, 12.0),
            "known answer of `golden/002.png`: found",
        ),
        ("gone", |a| a.candidates.truncate(1), "found no box there, expected `hole` 0.5000"),
        ("extra", |a| a.candidates.push(candidate(1, 0.8, 12.0)), "expected no box there"),
        ("nan", |a| a.stats = Some(OutputStats { nan: 7, ..OutputStats::default() }), "7 values that are not a number"),
        ("inf", |a| a.stats = Some(OutputStats { infinite: 1, ..OutputStats::default() }), "1 infinite"),
        ("zero", |a| a.stats = Some(OutputStats { all_zero: true, ..OutputStats::default() }), "every value is zero"),
        (
            "score",
            |a| a.stats = Some(OutputStats { scores_out_of_range: 1, ..OutputStats::default() }),
            "expected 0 to 1",
        ),
        ("tag", |a| a.claimed_tag = Some(FrameTag { stream: "other".into(), number: 5 }), "answer of frame 5"),
    ];
    let (_folder, bundle) = bundle_of(&mut engine_with(|_, _| {}));
    for (name, change, text) in cases {
        let mut engine = engine_with(move |number, answer| {
            if number == 2 {
                change(answer);
            }
        });
        let error = prove(&mut engine, &bundle).expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Refused, "{name}");
        let error = error.to_string();
        assert!(error.contains(text) && error.contains("x.edge"), "{name}: {error}");
        assert!(error.contains("golden") && error.contains('2'), "{name}: {error}");
    }
}

#[test]
fn zeros_are_normal_where_rows_are_padded() {
    let layout = Layout::EndToEnd { output: "o".into(), classes: 1, rows: 300 };
    let stats = OutputStats { all_zero: true, ..OutputStats::default() };
    assert_eq!(hard_fault(&stats, &layout), None);
    let ids = OutputStats { class_ids_out_of_range: 1, ..OutputStats::default() };
    assert!(hard_fault(&ids, &layout).unwrap().contains("below 1"));
}

#[test]
fn pictures_survive_packing() {
    let padded = Picture { stride_bytes: 16, ..Picture::rgb(SizePx::new(3, 2), (0..32).collect()) };
    let packed = decode_png(&encode_png(&padded).unwrap()).unwrap();
    assert_eq!(packed.pixels.as_slice(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 18, 19, 20, 21, 22, 23, 24]);
}
