use super::*;
use crate::sinks::row::tests::row;
use crate::units::Bytes;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn lines(path: &Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn small(files: u32, file_bytes: u64) -> Keeping {
    Keeping::Appended(Rotation { files, file_bytes: Bytes(file_bytes) })
}

#[test]
fn a_whole_file_appears_at_the_end_and_replaces_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    fs::write(&path, "old\n").unwrap();
    let telemetry = Telemetry::default();
    let mut sink = JsonLines::open(&path, Keeping::Whole, &telemetry).unwrap();
    for _ in 0..300 {
        sink.put(&row()).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "old\n");
    sink.finish().unwrap();
    sink.finish().unwrap();
    assert_eq!(lines(&path).len(), 300);
    assert_eq!(names(folder.path()), ["out.jsonl"]);
    assert_eq!(telemetry.total(Metric::OutputRowsWritten, Labels::NONE), 300);
}

#[test]
fn a_whole_file_that_is_not_finished_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let mut sink = JsonLines::open(&path, Keeping::Whole, &Telemetry::default()).unwrap();
    sink.put(&row()).unwrap();
    sink.flush().unwrap();
    drop(sink);
    assert!(names(folder.path()).is_empty());
}

#[test]
fn a_link_stays_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().join("real.jsonl");
    let link = folder.path().join("link.jsonl");
    fs::write(&real, "").unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let mut sink = JsonLines::open(&link, Keeping::Whole, &Telemetry::default()).unwrap();
    sink.put(&row()).unwrap();
    sink.finish().unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(lines(&real).len(), 1);
}

#[test]
fn a_device_is_written_to_and_never_replaced() {
    use std::os::unix::fs::FileTypeExt;
    for keeping in [Keeping::Whole, Keeping::Appended(Rotation::default())] {
        let mut sink = JsonLines::open(Path::new("/dev/null"), keeping, &Telemetry::default()).unwrap();
        sink.put(&row()).unwrap();
        sink.finish().unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    }
}

#[test]
fn a_folder_and_a_missing_folder_are_output_errors() {
    let folder = tempfile::tempdir().unwrap();
    for target in [folder.path().to_path_buf(), folder.path().join("none/out.jsonl")] {
        for keeping in [Keeping::Whole, Keeping::Appended(Rotation::default())] {
            let error = JsonLines::open(&target, keeping, &Telemetry::default()).err().unwrap();
            assert_eq!(error.kind(), crate::ErrorKind::Output, "{error}");
            assert!(error.hint_text().is_some() && error.place().is_some(), "{error}");
        }
    }
    assert!(names(folder.path()).is_empty());
}

#[test]
fn rotation_keeps_the_newest_lines_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("live.jsonl");
    let mut sink = JsonLines::open(&path, small(3, 2000), &Telemetry::default()).unwrap();
    for number in 0..20 {
        sink.put(&Row { number: Some(number), ..row() }).unwrap();
    }
    drop(sink);
    assert_eq!(names(folder.path()), ["live.jsonl", "live.jsonl.1", "live.jsonl.2"]);
    let mut numbers = Vec::new();
    for name in ["live.jsonl.2", "live.jsonl.1", "live.jsonl"] {
        let file = folder.path().join(name);
        assert!(fs::metadata(&file).unwrap().len() <= 2000);
        numbers.extend(lines(&file).iter().map(|line| line["frame"].as_u64().unwrap()));
    }
    let expected: Vec<u64> = (20 - numbers.len() as u64..20).collect();
    assert_eq!(numbers, expected);
    assert!(numbers.len() >= 6);
}

#[test]
fn rotation_with_one_file_starts_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("live.jsonl");
    let mut sink = JsonLines::open(&path, small(1, 2000), &Telemetry::default()).unwrap();
    for number in 0..20 {
        sink.put(&Row { number: Some(number), ..row() }).unwrap();
    }
    assert_eq!(names(folder.path()), ["live.jsonl"]);
    assert_eq!(lines(&path).last().unwrap()["frame"], 19);
}

#[test]
fn a_half_written_last_line_is_cut_off_and_foreign_text_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let whole = "{\"stream\":\"cam0\",\"frame\":1}\n";
    let cases: [(&str, String, usize, &str); 5] = [
        ("ours", format!("{whole}{{\"stream\":\"cam0\",\"fra"), 1, whole),
        ("beginning", format!("{whole}{{\"str"), 1, whole),
        ("zeros", format!("{whole}\0\0\0\0\0"), 1, whole),
        ("only_half", "{\"stream\":\"cam0\"".to_owned(), 0, ""),
        ("whole", whole.to_owned(), 1, whole),
    ];
    for (name, before, lines_before, kept) in cases {
        let path = folder.path().join(name);
        fs::write(&path, &before).unwrap();
        let mut sink = JsonLines::open(&path, Keeping::Appended(Rotation::default()), &Telemetry::default()).unwrap();
        sink.put(&row()).unwrap();
        assert_eq!(lines(&path).len(), lines_before + 1, "{name}");
        assert!(fs::read_to_string(&path).unwrap().starts_with(kept), "{name}");
    }
    let foreign = folder.path().join("foreign");
    fs::write(&foreign, "a list of mine").unwrap();
    let mut sink = JsonLines::open(&foreign, Keeping::Appended(Rotation::default()), &Telemetry::default()).unwrap();
    sink.put(&row()).unwrap();
    assert!(fs::read_to_string(&foreign).unwrap().starts_with("a list of mine\n{\"stream\""));
}

/// A tmpfs of 1 MiB; `None` (said aloud) where this user may not mount one.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap().keep();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&folder).status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(SmallDisk(folder));
        }
        eprintln!("SKIPPED: this user may not mount a tmpfs; the full disk is not tested here");
        assert!(std::env::var("EDGE_REQUIRE").unwrap_or_default().split(',').all(|need| need != "mount"));
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_full_disk_is_an_error_for_a_whole_file_and_leaves_nothing() {
    let Some(disk) = SmallDisk::mount() else { return };
    let path = disk.0.join("out.jsonl");
    let mut sink = JsonLines::open(&path, Keeping::Whole, &Telemetry::default()).unwrap();
    let error = (0..10_000).find_map(|_| sink.put(&row()).err()).expect("10,000 lines do not fit into 1 MiB");
    assert_eq!(error.kind().exit_code(), 11, "{error}");
    assert!(error.to_string().contains("out.jsonl"), "{error}");
    assert!(names(&disk.0).is_empty());
    assert!(sink.finish().is_err(), "a file that was given up is never called done");
    assert!(names(&disk.0).is_empty());
}

#[test]
fn a_full_disk_drops_and_counts_live_lines_and_resumes() {
    let Some(disk) = SmallDisk::mount() else { return };
    let path = disk.0.join("live.jsonl");
    let telemetry = Telemetry::default();
    let mut sink = JsonLines::open(&path, Keeping::Appended(Rotation::default()), &telemetry).unwrap();
    fs::write(disk.0.join("ballast"), vec![1; 500_000]).unwrap();
    for _ in 0..2000 {
        sink.put(&row()).unwrap();
    }
    let dropped = telemetry.total(Metric::OutputRowsDropped, Labels::reason("low_space"));
    let written = telemetry.total(Metric::OutputRowsWritten, Labels::NONE);
    assert!(dropped > 500 && written > 100, "{dropped} dropped, {written} written");
    assert_eq!(dropped + written, 2000);
    assert_eq!(lines(&path).len(), usize::try_from(written).unwrap());
    fs::remove_file(disk.0.join("ballast")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(600));
    sink.put(&row()).unwrap();
    assert_eq!(telemetry.total(Metric::OutputRowsWritten, Labels::NONE), written + 1);
    assert_eq!(lines(&path).len(), usize::try_from(written).unwrap() + 1);
}
