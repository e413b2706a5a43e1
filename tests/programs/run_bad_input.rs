//! edge-run: every bad input gives one error with its place and the way out, its exit code, and leaves nothing behind.

use crate::common::lacks;
use crate::run_sim::rows;
use crate::workbench::{Bench, Ran, SmallDisk, edge_run, names, sample};
use std::io::{Seek, Write};
use std::net::TcpListener;

/// Runs every case with the sample bundle; none may change the folder.
fn all_refused(bench: &Bench, cases: &[(i32, &[&str], &[&str])]) {
    let before = bench.names();
    for (code, arguments, words) in cases {
        let ran = bench.edge_run(&[&["--engine", sample()], *arguments].concat());
        assert_eq!(ran.code, Some(*code), "{arguments:?}: {ran:?}");
        ran.ends_with(*code).explains(words);
        assert_eq!(bench.names(), before, "{arguments:?}");
    }
}

#[test]
fn sources_that_cannot_be_used() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("empty")).unwrap();
    bench.write("text.txt", b"hello");
    bench.write("bad/a.png", b"no picture");
    all_refused(
        &bench,
        &[
            (2, &[], &["found no source", "--source sim:"]),
            (6, &["--source", "missing"], &["no such picture or folder", "missing"]),
            (6, &["--source", "missing.png"], &["no such picture or folder", "missing.png"]),
            (6, &["--source", "no*.png"], &["no picture matches the pattern", "no*.png"]),
            (6, &["--source", "empty"], &["found no picture among 0", "empty", ".png"]),
            (6, &["--source", "/dev/null"], &["expected a video device", "/dev/null"]),
            (6, &["--source", "text.txt"], &["1 of 1 pictures could not be read", "text.txt"]),
            (6, &["--source", "bad"], &["1 of 1 pictures could not be read", "a.png"]),
            (6, &["--source", "replay:missing"], &["missing"]),
            (6, &["--source", "http://127.0.0.1:9/x"], &["cannot be reached", "http://127.0.0.1:9/x"]),
            (2, &["--source", "gopher://x"], &["gopher://", "replay:DIR"]),
            (2, &["--source", "rtsp://host/x"], &["RTSP", "opencv"]),
            (2, &["--source", "film.mp4"], &["video files", "ffmpeg"]),
            (6, &["--camera", "empty"], &["found a folder, expected a video device", "--source"]),
            (6, &["--camera", "text.txt"], &["found a regular file, expected a video device"]),
            (6, &["--camera", "/dev/null"], &["expected a video device", "/dev/null"]),
            (6, &["--camera", "97"], &["no such camera", "/dev/video97"]),
            (2, &["--source", "sim:?colour=red"], &["`colour`", "seed", "docs/simulated-line.md"]),
            (2, &["--source", "sim:?size=1x1"], &["1×1", "160×96"]),
            (2, &["--source", "sim:?script=none.toml"], &["none.toml"]),
            (2, &["--source", "bad", "--gain", "5"], &["not a V4L2 camera"]),
        ],
    );
}

#[test]
fn flags_that_cannot_be_understood() {
    let bench = Bench::new();
    bench.pictures("good", 1);
    all_refused(
        &bench,
        &[
            (2, &["--colour"], &["--colour"]),
            (2, &["--source", "a=good", "--source", "a=good"], &["two streams named `a`"]),
            (2, &["--source", "good", "--conf", "3"], &["--conf 3", "0 to 1"]),
            (2, &["--source", "good", "--iou=-1"], &["--iou"]),
            (2, &["--source", "good", "--threads", "0"], &["0 threads"]),
            (2, &["--source", "good", "--duration", "5x"], &["5x", "ms, s, m, h or d"]),
            (2, &["--source", "good", "--cpu-backend", "abacus"], &["abacus", "onnxruntime"]),
            (2, &["--source", "good", "--delivery", "sometimes"], &["sometimes", "newest"]),
            (2, &["--source", "good", "--listen", "127.0.0.1:0"], &["found files alone", "replay:"]),
            (2, &["--source", "sim:", "--listen", "nonsense"], &["nonsense", "127.0.0.1:8080"]),
            (2, &["--source", "sim:", "--listen", "0.0.0.0:0"], &["no token is set", "--read-only"]),
            (2, &["--source", "sim:", "--token-file", "none"], &["token", "none"]),
            (2, &["--source", "good", "--config", "edge.toml"], &["--config"]),
        ],
    );
}

#[test]
fn configurations_that_cannot_be_understood() {
    let bench = Bench::new();
    bench.write("typo.toml", b"[[stream]]\nname = \"a\"\nsource = \"sim:\"\ncolour = 1\n");
    bench.write("nonsense.toml", b"[[[[");
    bench.write("empty.toml", b"");
    let stream = |name: &str, source: &str| format!("[[stream]]\nname = \"{name}\"\nsource = \"{source}\"\n");
    bench.write("twins.toml", (stream("a", "sim:") + &stream("a", "sim:")).as_bytes());
    bench.write("source.toml", stream("a", "gopher://x").as_bytes());
    let before = bench.names();
    for (file, words) in [
        ("missing.toml", vec!["missing.toml", "edge-run config example"]),
        ("typo.toml", vec!["typo.toml", "line 4", "colour"]),
        ("nonsense.toml", vec!["nonsense.toml", "line 1"]),
        ("empty.toml", vec!["empty.toml", "[[stream]]"]),
        ("twins.toml", vec!["twins.toml", "two streams named `a`"]),
        ("source.toml", vec!["source.toml, stream `a`", "gopher://"]),
        (".", vec!["configuration cannot be read"]),
    ] {
        bench.edge_run(&["config", "check", file]).ends_with(2).explains(&words);
        bench.run_sample(&["--config", file]).ends_with(2).explains(&words);
        assert_eq!(bench.names(), before, "{file}");
    }
}

fn run_with(bench: &Bench, bundle: &str) -> Ran {
    bench.edge_run(&["--engine", bundle, "--source", "sim:?frames=1", "--listen", "none", "--output", "x.jsonl"])
}

#[test]
fn bundles_that_are_none() {
    let bench = Bench::new();
    let whole = std::fs::read(sample()).unwrap();
    bench.write("empty.edge", b"");
    bench.write("random.edge", &[7; 4000]);
    bench.write("truncated.edge", &whole[..whole.len() / 2]);
    bench.write("short.edge", &whole[..whole.len() - 1]);
    for (name, at) in [("model.edge", whole.len() / 2), ("early.edge", 5000), ("late.edge", whole.len() - 6)] {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        bench.write(name, &flipped);
    }
    let mut newer = zip::ZipWriter::new(std::fs::File::create(bench.path("newer.edge")).unwrap());
    let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    newer.start_file("manifest.json", stored).unwrap();
    newer.write_all(b"{\"schema\": 900}").unwrap();
    newer.finish().unwrap().rewind().unwrap();
    let before = bench.names();
    for name in ["missing", "empty", "random", "truncated", "short", "model", "early", "late", "newer"] {
        let name = format!("{name}.edge");
        run_with(&bench, &name).ends_with(3).explains(&[&name]);
        assert_eq!(bench.names(), before, "{name}");
    }
    run_with(&bench, "newer.edge").explains(&["schema 900", "at most"]);
    for name in [".", "/dev/null", "model.onnx"] {
        run_with(&bench, name).ends_with(3).explains(&[name]);
    }
    assert_eq!(bench.names(), before);
}

#[test]
fn without_engine_the_only_bundle_is_taken_and_none_or_several_are_listed() {
    let bench = Bench::new();
    bench.pictures("good", 1);
    let run = || bench.edge_run(&["--source", "good", "--output", "-", "--cpu-backend", "rten"]);
    run().ends_with(2).explains(&["found no bundle", "engines", "/etc/edge-trt", "edge-build"]);
    std::fs::create_dir(bench.path("engines")).unwrap();
    std::fs::copy(sample(), bench.path("engines/line1.edge")).unwrap();
    assert_eq!(rows(&run().ends_with(0).data).len(), 1);
    std::fs::copy(sample(), bench.path("other.edge")).unwrap();
    run().ends_with(2).explains(&["found 2 bundles", "line1.edge", "other.edge", "--engine"]);
}

#[test]
fn outputs_that_cannot_be_written() {
    let bench = Bench::new();
    bench.pictures("good", 1);
    std::fs::create_dir(bench.path("folder")).unwrap();
    bench.write("file.txt", b"");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    all_refused(
        &bench,
        &[
            (11, &["--source", "good", "--output", "missing/x.jsonl"], &["missing/x.jsonl"]),
            (11, &["--source", "good", "--output", "folder"], &["folder", "results.jsonl"]),
            (11, &["--source", "sim:", "--listen", "none", "--output", "missing/x.jsonl"], &["missing/x.jsonl"]),
            (11, &["--source", "good", "--save", "file.txt"], &["file.txt"]),
            (11, &["--source", "sim:", "--listen", &address], &["the port is taken", &address, "--listen none"]),
            (11, &["--source", "sim:?frames=1", "--listen", "none", "--truth", "missing/t"], &["missing/t"]),
        ],
    );
}

#[test]
fn a_reader_that_goes_away_is_one_error() {
    let bench = Bench::new();
    let flags = ["--source", "sim:?fast", "--delivery", "every", "--listen", "none", "--output", "-"];
    let mut child = bench.sample_command(&flags).spawn().unwrap();
    drop(child.stdout.take());
    Ran::from(child.wait_with_output().unwrap()).ends_with(11).says_one_error(&["reader of the results has gone away"]);
}

#[test]
fn files_and_folders_without_permission() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    let mode = |name: &str, mode| std::fs::set_permissions(bench.path(name), PermissionsExt::from_mode(mode)).unwrap();
    bench.pictures("good", 1);
    bench.write("secret/a.png", b"");
    std::fs::copy(sample(), bench.path("secret.edge")).unwrap();
    std::fs::copy(sample(), bench.path("open.edge")).unwrap();
    for (folder, bits) in [("locked", 0o555), ("open", 0o777)] {
        std::fs::create_dir(bench.path(folder)).unwrap();
        mode(folder, bits);
    }
    mode("open.edge", 0o644);
    mode("secret.edge", 0o000);
    mode("secret", 0o000);
    let before = bench.names();
    let run = |engine: &str, source: &str, output: &str| {
        let flags = ["--engine", engine, "--source", source, "--output", output, "--cpu-backend", "rten"];
        bench.as_ordinary_user(edge_run(), &flags)
    };
    let Some(ran) = run("secret.edge", "good", "open/x.jsonl") else { return };
    assert!(matches!(ran.code, Some(3 | 10)), "{ran:?}");
    ran.explains(&["secret.edge"]);
    run("open.edge", "secret", "open/x.jsonl").unwrap().ends_with(6).explains(&["secret"]);
    run("open.edge", "good", "locked/x.jsonl").unwrap().ends_with(11).explains(&["locked/x.jsonl"]);
    let flags = ["--engine", "open.edge", "--source", "good", "--save", "locked/drawn"];
    bench.as_ordinary_user(edge_run(), &flags).unwrap().ends_with(11).explains(&["locked/drawn"]);
    assert!(names(&bench.path("open")).is_empty() && names(&bench.path("locked")).is_empty());
    run("open.edge", "good", "open/x.jsonl").unwrap().ends_with(0);
    assert_eq!(names(&bench.path("open")), ["x.jsonl"]);
    assert_eq!(bench.names(), before);
    mode("secret", 0o755);
}

#[test]
fn a_full_disk_is_an_error_for_files_and_leaves_nothing() {
    let bench = Bench::new();
    bench.pictures("good", 12);
    let Some(_disk) = SmallDisk::mount(&bench.path("disk"), "size=4k") else { return };
    bench
        .run_sample(&["--source", "good", "--output", "disk/x.jsonl"])
        .ends_with(11)
        .explains(&["disk/x.jsonl", "space"]);
    assert!(names(&bench.path("disk")).is_empty());
    bench.run_sample(&["--source", "good", "--save", "disk/drawn"]).ends_with(11).says_one_error(&["disk/drawn"]);
}

#[test]
fn a_full_disk_does_not_stop_a_live_line() {
    let bench = Bench::new();
    let Some(_disk) = SmallDisk::mount(&bench.path("disk"), "size=4k") else { return };
    let flags = ["--source", "sim:?fast&frames=12", "--delivery", "every", "--listen", "none"];
    let ran = bench.run_sample(&[&flags[..], &["--output", "disk/x.jsonl"]].concat()).ends_with(0);
    assert!(ran.people.contains("12 results"), "{}", ran.people);
    let text = String::from_utf8(bench.read("disk/x.jsonl")).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "no half line");
}

#[test]
fn a_read_only_disk_is_said() {
    let bench = Bench::new();
    bench.pictures("good", 1);
    let Some(_disk) = SmallDisk::mount(&bench.path("disk"), "ro,size=64k") else { return };
    let ran = bench.run_sample(&["--source", "good", "--output", "disk/x.jsonl"]).ends_with(11);
    ran.explains(&["disk/x.jsonl", "read-only"]);
}

/// No network but what a source or a sink names: in an empty network namespace the simulated line runs as anywhere.
#[test]
fn an_empty_network_namespace_is_enough() {
    let bench = Bench::new();
    let engine = ["--engine", sample(), "--cpu-backend", "rten"];
    let flags = ["--source", "sim:?fast&frames=3", "--delivery", "every", "--listen", "none", "--output", "-"];
    let unshare = std::path::Path::new("unshare");
    let user = if crate::workbench::is_root() { vec!["-n"] } else { vec!["-r", "-n"] };
    let probe = bench.command(unshare, &user).arg("true").output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return lacks("unshare", "unshare, or the right to make a network namespace");
    }
    let mut command = bench.command(unshare, &user);
    let ran: Ran = command.arg(edge_run()).args(engine).args(flags).output().unwrap().into();
    assert_eq!(rows(&ran.ends_with(0).data).len(), 3);
}
