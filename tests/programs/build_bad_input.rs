//! edge-build: every bad input gives one error line, its exit code, and leaves nothing behind.

use crate::workbench::{Bench, SmallDisk, edge_build, model, names};
use std::path::Path;

#[test]
fn models_that_are_none() {
    let bench = Bench::new();
    let whole = model(0.9);
    let random: Vec<u8> = (0..5000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0]).collect();
    bench.write("empty.onnx", b"");
    bench.write("truncated.onnx", &whole[..whole.len() - 100]);
    bench.write("random.onnx", &random);
    bench.write("lfs.onnx", b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12\n");
    bench.write("zipped.onnx", b"PK\x03\x04rest of a zip");
    std::fs::create_dir(bench.path("folder")).unwrap();
    let before = bench.names();
    for (name, code) in [
        ("missing.onnx", 2),
        ("folder", 2),
        ("/dev/null", 2),
        ("empty.onnx", 3),
        ("truncated.onnx", 3),
        ("random.onnx", 3),
        ("lfs.onnx", 3),
        ("zipped.onnx", 3),
    ] {
        let ran = bench.edge_build(&[name, "-o", "x.edge", "--target", "cpu", "--names", "names.txt"]);
        assert!(ran.code == Some(code) || (name == "/dev/null" && ran.code == Some(3)), "{name}: {ran:?}");
        ran.says_one_error(&[name]);
        assert_eq!(bench.names(), before, "{name}");
    }
}

#[test]
fn bundles_that_are_none() {
    let bench = Bench::new();
    bench.write("empty.edge", b"");
    bench.write("random.edge", &[7; 4000]);
    for name in ["missing.edge", "empty.edge", "random.edge", ".", "/dev/null", "model.onnx"] {
        bench.edge_build(&["inspect", name]).ends_with(3).says_one_error(&[name]);
        bench.edge_build(&["verify", name]).ends_with(3).says_one_error(&[name]);
    }
}

#[test]
fn flags_and_recipes_that_cannot_be_understood() {
    let bench = Bench::new();
    bench.write("typo.toml", b"model = \"model.onnx\"\n[thresholds]\nconfidence = 0.4\n");
    bench.write("nonsense.toml", b"[[[[");
    bench.write("gone.toml", b"model = \"gone.onnx\"\nnames = [\"a\", \"b\"]\ntarget = \"cpu\"\n");
    bench.write(
        "class.toml",
        b"model = \"model.onnx\"\nnames = [\"hole\", \"short\"]\ntarget = \"cpu\"\n[decision]\nreject = { cat = {} }\n",
    );
    bench.write("hollow.txt", b"hole\n\nshort\n");
    let cases: [(&[&str], &[&str]); 12] = [
        (&["model.onnx", "--colour"], &["--colour"]),
        (&["model.onnx", "--conf", "1.5"], &["--conf", "0 to 1"]),
        (&["model.onnx", "--cpu-backend", "abacus"], &["abacus", "onnxruntime"]),
        (&["model.onnx", "--target", "t5"], &["t5", "edge-build targets"]),
        (&["model.onnx", "--imgsz", "640by480"], &["640by480", "WIDTHxHEIGHT"]),
        (&["model.onnx", "--layout", "sideways"], &["sideways", "end-to-end"]),
        (&["model.onnx", "--names", "gone.txt"], &["gone.txt"]),
        (&["model.onnx", "--names", "hollow.txt"], &["line 2", "hollow.txt"]),
        (&["typo.toml"], &["typo.toml", "line 3", "confidence"]),
        (&["nonsense.toml"], &["nonsense.toml", "line 1"]),
        (&["gone.toml"], &["gone.onnx"]),
        (&["class.toml"], &["`cat`", "`hole`, `short`"]),
    ];
    let before = bench.names();
    for (arguments, words) in cases {
        bench.edge_build(arguments).ends_with(2).says_one_error(words);
        assert_eq!(bench.names(), before, "{arguments:?}");
    }
}

#[test]
fn a_gpu_target_is_refused_before_any_work() {
    let bench = Bench::new();
    let ran = bench.edge_build(&["no-such.onnx", "--target", "xavier-nx"]).ends_with(10);
    let ran = ran.says_one_error(&["no plan for target `xavier-nx` can be made here", "hint: either `--portable`"]);
    assert!(!ran.people.contains("no-such.onnx"), "the model is not even looked at");
}

#[test]
fn folders_of_pictures_without_pictures() {
    let bench = Bench::new();
    bench.write("none/readme.txt", b"");
    bench.write("broken/a.png", b"no picture");
    let before = bench.names();
    for flag in ["--calibration", "--golden"] {
        for (folder, word) in [
            ("none", "found no picture"),
            ("missing", "cannot be read"),
            ("broken", "usable picture"),
            ("model.onnx", "cannot be read"),
        ] {
            bench.build(&[flag, folder]).ends_with(6).says_one_error(&[folder, word]);
            assert_eq!(bench.names(), before);
        }
    }
}

#[test]
fn outputs_that_cannot_be_written() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("folder")).unwrap();
    let before = bench.names();
    for output in ["missing/x.edge", "folder", "/dev/null", "model.onnx", "names.txt"] {
        bench.build(&["-o", output]).ends_with(11).says_one_error(&[output]);
        assert_eq!(bench.names(), before);
    }
    // What is written about the build is asked for before it, not found out after.
    for (flag, output) in [("--report", "missing"), ("--report", "names.txt"), ("--junit", "missing/x.xml")] {
        let ran = bench.build(&["-o", "x.edge", flag, output]);
        ran.ends_with(11).says_one_error(&[output]);
        assert_eq!(bench.names(), before, "{flag} {output}");
    }
    assert_eq!(bench.read("model.onnx"), model(0.9), "the model is as it was");
    assert!(Path::new("/dev/null").metadata().is_ok_and(|about| !about.is_file()));
}

/// `edge-build` as an ordinary user.
fn as_ordinary_user(bench: &Bench, arguments: &[&str]) -> Option<crate::workbench::Ran> {
    bench.as_ordinary_user(edge_build(), arguments)
}

#[test]
fn files_and_folders_without_permission() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    let mode = |name: &str, mode| std::fs::set_permissions(bench.path(name), PermissionsExt::from_mode(mode)).unwrap();
    bench.write("secret.onnx", &model(0.9));
    bench.write("secret.edge", b"PK");
    std::fs::create_dir(bench.path("locked")).unwrap();
    std::fs::create_dir(bench.path("open")).unwrap();
    let before = bench.names();
    mode("secret.onnx", 0o000);
    mode("secret.edge", 0o000);
    mode("locked", 0o555);
    mode("open", 0o777);
    let flags = ["--names", "names.txt", "--target", "cpu", "-o"];
    let Some(ran) = as_ordinary_user(&bench, &[&["secret.onnx"], &flags[..], &["open/x.edge"]].concat()) else {
        return;
    };
    ran.ends_with(10).says_one_error(&["secret.onnx"]);
    as_ordinary_user(&bench, &["inspect", "secret.edge"])
        .unwrap()
        .ends_with(3)
        .says_one_error(&["secret.edge", "chmod"]);
    let ran = as_ordinary_user(&bench, &[&["model.onnx"], &flags[..], &["locked/x.edge"]].concat()).unwrap();
    ran.ends_with(11).says_one_error(&["locked/x.edge"]);
    as_ordinary_user(&bench, &[&["model.onnx"], &flags[..], &["open/x.edge"]].concat()).unwrap().ends_with(0);
    assert_eq!(bench.names(), before);
    assert!(names(&bench.path("locked")).is_empty());
    assert_eq!(names(&bench.path("open")), ["x.edge"]);
}

#[test]
fn a_full_disk_leaves_the_old_bundle_and_nothing_else() {
    let bench = Bench::new();
    let Some(_disk) = SmallDisk::mount(&bench.path("disk"), "size=40k") else { return };
    bench.build(&["-o", "disk/x.edge"]).ends_with(11).says_one_error(&["disk/x.edge", "hint: free space"]);
    assert!(names(&bench.path("disk")).is_empty());
    std::fs::write(bench.path("disk/x.edge"), "old").unwrap();
    bench.build(&["-o", "disk/x.edge"]).ends_with(11);
    assert_eq!(names(&bench.path("disk")), ["x.edge"]);
    assert_eq!(std::fs::read(bench.path("disk/x.edge")).unwrap(), b"old");
}
