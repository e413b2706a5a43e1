//! edge-build: what it makes, and what it says of it.

use crate::workbench::{Bench, edge_build, model};
use edge_trt::bundle::Bundle;
use edge_trt::bundle::manifest::GoldenKind;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Hashes and the version of the CPU backend differ without meaning anything.
fn without_hashes(text: &str) -> String {
    let is_hash = |word: &str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let words = text.split_inclusive(|c: char| c.is_whitespace() || c == '"');
    let words = words.map(|word| {
        let bare = word.trim_end_matches(|c: char| c.is_whitespace() || c == '"');
        if is_hash(bare) { word.replace(bare, "[sha256]") } else { word.to_owned() }
    });
    words.collect::<String>().replace("rten 0.27.0", "[backend]")
}

#[test]
fn without_flags_the_bundle_lands_beside_the_model_and_everything_decided_is_said() {
    let bench = Bench::new();
    let ran = bench.edge_build(&["model.onnx", "--names", "names.txt"]).ends_with(0);
    assert_eq!(bench.names(), ["model.edge", "model.onnx", "names.txt"]);
    for said in [
        "target: cpu (",
        "precision: as exported",
        "decided: layout `raw`",
        "known answers: 4 pictures, drawn",
        "proved: 4",
        "wrote model.edge",
    ] {
        assert!(ran.people.contains(said), "no `{said}` in:\n{}", ran.people);
    }
    assert_eq!(ran.data, "", "nothing is data");
    let bundle = Bundle::open(&bench.path("model.edge")).unwrap();
    let manifest = bundle.manifest();
    assert_eq!(manifest.golden.kind, GoldenKind::Synthetic);
    assert_eq!(manifest.golden.score_floor, 0.01);
    assert!(manifest.guard.reference.is_none());
    assert_eq!((manifest.name.as_str(), manifest.classes.len()), ("model", 2));
}

#[test]
fn calibration_gives_reference_and_known_answers_and_unreadable_pictures_are_listed() {
    let bench = Bench::new();
    bench.pictures("good", 12);
    bench.write("good/broken.jpg", b"\xff\xd8\xffno picture");
    bench.write("good/empty.png", b"");
    bench.write("good/notes.txt", b"not a picture");
    let ran = bench.build(&["--calibration", "good"]).ends_with(0);
    for said in [
        "left out `broken.jpg`",
        "left out `empty.png`",
        "2 of 14 calibration pictures were left out",
        "4 pictures, chosen",
    ] {
        assert!(ran.people.contains(said), "no `{said}` in:\n{}", ran.people);
    }
    let bundle = Bundle::open(&bench.path("model.edge")).unwrap();
    assert_eq!(bundle.manifest().golden.kind, GoldenKind::Calibration);
    assert_eq!(bundle.manifest().guard.reference.as_ref().unwrap().pictures, 12);
    assert_eq!(bundle.golden().unwrap().frames[0].answer.detections.len(), 2);
}

#[test]
fn given_pictures_become_the_known_answers() {
    let bench = Bench::new();
    bench.pictures("known", 2);
    bench.pictures("good", 3);
    bench.build(&["--golden", "known", "--calibration", "good", "-q"]).ends_with(0);
    let bundle = Bundle::open(&bench.path("model.edge")).unwrap();
    assert_eq!(bundle.manifest().golden.kind, GoldenKind::Given);
    assert_eq!(bundle.golden().unwrap().frames.len(), 2);
}

#[test]
fn equal_inputs_give_equal_bytes_whatever_the_files_are_called() {
    let build = |rename: bool| {
        let bench = Bench::new();
        bench.pictures("good", 6);
        if rename {
            for (number, name) in crate::workbench::names(&bench.path("good")).iter().enumerate() {
                let new = bench.path("good").join(format!("z{:03}.png", 900 - number));
                std::fs::rename(bench.path("good").join(name), new).unwrap();
            }
        }
        bench.build(&["--calibration", "good"]).ends_with(0);
        bench.read("model.edge")
    };
    let first = build(false);
    assert!(first == build(false), "two builds differ");
    assert!(first == build(true), "the names of calibration pictures are in the bundle");
}

#[test]
fn a_recipe_builds_beside_itself_and_flags_go_before_it() {
    let bench = Bench::new();
    bench.pictures("lines/line1/good", 3);
    bench.write("lines/line1/pcb.onnx", &model(0.9));
    let recipe = r#"
model = "pcb.onnx"
target = "cpu"
names = ["hole", "short"]
calibration = "good"
[thresholds]
score = 0.4
score_by_class = { short = 0.7 }
[guard]
expect = { hole = { at_least = 1 } }
[decision]
reject = { short = { count = 1 } }
"#;
    bench.write("lines/line1/recipe.toml", recipe.as_bytes());
    bench.edge_build(&["lines/line1", "--cpu-backend", "rten"]).ends_with(0);
    let bundle = Bundle::open(&bench.path("lines/line1/line1.edge")).unwrap();
    let manifest = bundle.manifest();
    assert_eq!((manifest.name.as_str(), manifest.thresholds.score), ("line1", 0.4));
    assert_eq!(manifest.thresholds.score_by_class["short"], 0.7);
    assert!(manifest.decision.is_some() && manifest.guard.expect.contains_key("hole"));
    assert_eq!(bundle.golden().unwrap().frames[0].answer.detections.len(), 1, "`short` 0.6 is below its own threshold");
    bench.edge_build(&["lines/line1/recipe.toml", "--conf", "0.3", "--name", "other", "-o", "x.edge"]).ends_with(0);
    let other = Bundle::open(&bench.path("x.edge")).unwrap();
    assert_eq!((other.manifest().name.as_str(), other.manifest().thresholds.score), ("other", 0.3));
}

#[test]
fn inspect_verify_and_targets_print_what_is_there() {
    let bench = Bench::new();
    bench.build(&[]).ends_with(0);
    let people = bench.edge_build(&["inspect", "model.edge"]).ends_with(0);
    insta::assert_snapshot!("inspect", without_hashes(&people.data));
    let json = bench.edge_build(&["inspect", "model.edge", "--json"]).ends_with(0);
    let json: serde_json::Value = serde_json::from_str(&json.data).unwrap();
    assert_eq!(json["id"], Bundle::open(&bench.path("model.edge")).unwrap().id());
    assert_eq!(json["manifest"]["guard"]["reference"], serde_json::Value::Null);
    let verified = bench.edge_build(&["verify", "model.edge", "--cpu-backend", "rten"]).ends_with(0);
    assert!(verified.data.contains("4 known answers came out right on rten"), "{}", verified.data);

    insta::assert_snapshot!("targets", bench.edge_build(&["targets"]).ends_with(0).data);
    let json = bench.edge_build(&["targets", "--json"]).ends_with(0);
    let json: serde_json::Value = serde_json::from_str(&json.data).unwrap();
    assert_eq!(json[1]["compute_capability"]["value"], "7.5");
}

#[test]
fn help_is_stable() {
    let bench = Bench::new();
    insta::assert_snapshot!("help", bench.edge_build(&["--help"]).ends_with(0).data);
    assert_eq!(
        bench.edge_build(&["--version"]).ends_with(0).data,
        format!("edge-build {}\n", env!("CARGO_PKG_VERSION"))
    );
    bench.edge_build(&[]).ends_with(2);
}

#[test]
fn a_model_whose_answers_are_faulty_is_refused() {
    let bench = Bench::new();
    bench.write("model.onnx", &model(7.28));
    bench.build(&[]).ends_with(3).says_one_error(&["scores out of range", "expected 0 to 1"]);
    assert_eq!(bench.names(), ["model.onnx", "names.txt"]);
}

#[test]
fn a_damaged_bundle_is_not_verified() {
    let bench = Bench::new();
    bench.build(&[]).ends_with(0);
    let mut bytes = bench.read("model.edge");
    let range = Bundle::open(&bench.path("model.edge")).unwrap().entry_range("model.onnx").unwrap();
    bytes[usize::try_from(range.offset_bytes).unwrap() + 50] ^= 1;
    bench.write("model.edge", &bytes);
    for command in ["verify", "inspect"] {
        bench
            .edge_build(&[command, "model.edge"])
            .ends_with(3)
            .says_one_error(&["model.edge, entry `model.onnx`", "SHA-256"]);
    }
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let bench = Bench::new();
    image::RgbImage::from_fn(1600, 1200, |x, y| {
        let byte = |value: u32| u8::try_from(value % 251).unwrap();
        image::Rgb([byte(x * y), byte(x + 3 * y), byte(x ^ y)])
    })
    .save(bench.path("one.png"))
    .unwrap();
    std::fs::create_dir(bench.path("good")).unwrap();
    for number in 0..600 {
        std::fs::hard_link(bench.path("one.png"), bench.path("good").join(format!("{number:03}.png"))).unwrap();
    }
    let arguments = ["model.onnx", "--names", "names.txt", "--target", "cpu", "--calibration", "good"];
    let mut child = bench.command(Path::new(edge_build()), &arguments).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("engine:") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "ended before the calibration");
    }
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
    assert!(rest.contains("error: interrupted"), "{rest}");
    assert_eq!(bench.names(), ["good", "model.onnx", "names.txt", "one.png"]);
}
