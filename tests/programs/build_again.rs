//! What CI relies on: an unchanged recipe is left alone, one JSON line at the end, JUnit XML.

use crate::common::graphs;
use crate::workbench::{Bench, model};
use serde_json::Value;

const RECIPE: &str = r#"
model = "pcb.onnx"
target = "cpu"
names = ["hole", "short"]
calibration = "good"
"#;

/// A bench with the recipe `line1`.
fn bench(recipe: &str) -> Bench {
    let bench = Bench::new();
    bench.pictures("line1/good", 4);
    bench.write("line1/pcb.onnx", &graphs::with_convolutions(&model(0.9)));
    bench.write("line1/recipe.toml", recipe.as_bytes());
    bench
}

/// The JSON line of a build that ends with `code`, and what people were told.
fn line(bench: &Bench, more: &[&str], code: i32) -> (Value, String) {
    let mut arguments = vec!["line1", "--cpu-backend", "rten", "--json"];
    arguments.extend(more);
    let ran = bench.edge_build(&arguments).ends_with(code);
    assert_eq!(ran.data.lines().count(), 1, "{}", ran.data);
    (serde_json::from_str(&ran.data).unwrap(), ran.people)
}

#[test]
fn p08_an_unchanged_recipe_is_left_alone() {
    let bench = bench(RECIPE);
    let (first, _) = line(&bench, &[], 0);
    assert_eq!(first["rebuilt"], true);
    assert_eq!(first["bundle"], "line1/line1.edge");
    assert_eq!(first["error"], Value::Null);
    let bytes = bench.read("line1/line1.edge");
    assert_eq!(first["sizes"]["bundle"], bytes.len());
    assert!(first["sizes"]["model"].as_u64().unwrap() > 1000 && first["sizes"]["plans"] == 0);
    let written = std::fs::metadata(bench.path("line1/line1.edge")).unwrap().modified().unwrap();

    std::fs::rename(bench.path("line1/good/000.png"), bench.path("line1/good/renamed.png")).unwrap();
    let (again, people) = line(&bench, &[], 0);
    assert_eq!(again["rebuilt"], false);
    for name in ["id", "cache_key", "bytes", "sizes", "precision"] {
        assert_eq!(again[name], first[name], "{name}");
    }
    assert!(people.contains("unchanged: line1/line1.edge") && !people.contains("engine:"), "{people}");
    assert_eq!(std::fs::metadata(bench.path("line1/line1.edge")).unwrap().modified().unwrap(), written);

    let (forced, people) = line(&bench, &["--rebuild"], 0);
    assert_eq!((&forced["rebuilt"], &forced["id"]), (&Value::Bool(true), &first["id"]));
    assert!(people.contains("building again: `--rebuild` asks for it"), "{people}");
}

#[test]
fn p08_whatever_changes_is_built_again_and_named() {
    let bench = bench(RECIPE);
    line(&bench, &[], 0);
    let expect = |more: &[&str], word: &str| {
        let (json, people) = line(&bench, more, 0);
        assert_eq!(json["rebuilt"], true, "{word}: {people}");
        assert!(people.contains("building again: ") && people.contains(word), "no {word} in:\n{people}");
        assert_eq!(line(&bench, more, 0).0["rebuilt"], false, "{word}");
    };
    expect(&["--conf", "0.3"], "recipe.thresholds");
    bench.write("line1/pcb.onnx", &graphs::with_convolutions(&model(0.8)));
    expect(&[], "source_sha256");
    bench.pictures("line1/good", 5);
    expect(&[], "calibration_sha256");
    bench.write("line1/recipe.toml", format!("{RECIPE}[guard]\noff = ['blurred']\n").as_bytes());
    expect(&[], "recipe.guard");
    let mut damaged = bench.read("line1/line1.edge");
    let model =
        edge_trt::bundle::Bundle::open(&bench.path("line1/line1.edge")).unwrap().entry_range("model.onnx").unwrap();
    damaged[usize::try_from(model.offset_bytes).unwrap() + 50] ^= 1;
    bench.write("line1/line1.edge", &damaged);
    expect(&[], "SHA-256");
}

/// Without GPU and TensorRT.
#[test]
fn a_portable_bundle_is_left_alone_as_well() {
    let bench = bench(&RECIPE.replace("\"cpu\"", "\"orin-nano-8gb\""));
    let more = ["--portable", "--flavour", "trt10"];
    assert_eq!(line(&bench, &more, 0).0["rebuilt"], true);
    let (again, people) = line(&bench, &more, 0);
    assert_eq!(again["rebuilt"], false, "{people}");
    assert!(
        people.contains("next, on the device (Jetson Orin Nano 8 GB): edge-build finish line1/line1.edge"),
        "{people}"
    );
    assert_eq!(line(&bench, &["--portable", "--flavour", "trt8"], 0).0["rebuilt"], true);
}

#[test]
fn the_gate_is_in_the_json_line_and_in_the_junit_file() {
    let bench = bench(&format!("{RECIPE}precision = 'int8'\n"));
    let (json, _) = line(&bench, &["--junit", "gate.xml"], 0);
    assert_eq!((&json["gate_passed"], &json["gate"]["truth"]), (&true.into(), &"answers of the original".into()));
    let junit = Junit::of(&bench.read("gate.xml"));
    assert_eq!(junit.verdicts[0], ("build".to_owned(), "passed".to_owned()));
    assert!(junit.verdicts.len() > 1 && junit.verdicts.iter().all(|(_, verdict)| verdict == "passed"));
    std::fs::remove_file(bench.path("gate.xml")).unwrap();
    let (json, _) = line(&bench, &["--junit", "gate.xml"], 0);
    assert_eq!((&json["rebuilt"], &json["gate_passed"]), (&false.into(), &true.into()), "a no-op tells the gate too");
    assert_eq!(Junit::of(&bench.read("gate.xml")), junit);
    let (json, people) = line(&bench, &["--report", "line1"], 0);
    assert_eq!(json["rebuilt"], false, "the report is there: {people}");
    std::fs::remove_file(bench.path("line1/line1.report.html")).unwrap();
    assert_eq!(line(&bench, &["--report", "line1"], 0).0["rebuilt"], true);
}

#[test]
fn a_failed_gate_is_a_failure_in_both() {
    let recipe = "precision = 'fp16'\n[gate]\npictures = 'val'\nlabels = 'labels'\nlimits = { map50 = -1.5 }\n";
    let bench = bench(&format!("{RECIPE}{recipe}"));
    // Other pictures than those of the calibration.
    bench.pictures("line1/val", 9);
    for number in 0..9 {
        bench.write(&format!("line1/labels/{number:03}.txt"), b"0 .5 .5 .3 .2");
    }
    let (json, _) = line(&bench, &["--junit", "gate.xml"], 5);
    assert_eq!((&json["bundle"], &json["rebuilt"], &json["gate_passed"]), (&Value::Null, &false.into(), &false.into()));
    assert_eq!(json["error"]["exit_code"], 5);
    let junit = Junit::of(&bench.read("gate.xml"));
    let verdict = |name: &str| junit.verdicts.iter().find(|(case, _)| case == name).unwrap().1.clone();
    assert_eq!(verdict("accuracy gate: mAP50"), "failure");
    assert_eq!(verdict("accuracy gate: found boxes"), "passed");
    assert!(!bench.path("line1/line1.edge").exists());
}

#[test]
fn what_ends_a_build_is_an_error_in_both() {
    let bench = bench(RECIPE);
    bench.write("line1/recipe.toml", b"model = 'a&b<c>.onnx'\nname = '\"line\" & <1>'\ntarget = 'cpu'\n");
    let (json, _) = line(&bench, &["--junit", "gate.xml"], 2);
    assert_eq!(json["error"]["exit_code"], 2);
    assert!(json["error"]["place"].as_str().unwrap().contains("a&b<c>.onnx"), "{json}");
    let junit = Junit::of(&bench.read("gate.xml"));
    assert_eq!(junit.verdicts, [("build".to_owned(), "error".to_owned())]);
    // A JUnit file that cannot be written is found out before the work, and told like all else that ends a build.
    let (json, people) = line(&bench, &["--junit", "no/such/folder.xml"], 11);
    assert!(json["error"]["place"].as_str().unwrap().contains("no/such/folder.xml"), "{json}");
    assert_eq!(people.matches("no/such/folder.xml").count(), 1, "{people}");
    bench.write("line1/recipe.toml", RECIPE.as_bytes());
    line(&bench, &["--junit", "no/such/folder.xml"], 11);
}

/// A JUnit file, as a strict reader sees it.
#[derive(Debug, PartialEq)]
struct Junit {
    /// Test case → `passed`, `failure`, `error` or `skipped`.
    verdicts: Vec<(String, String)>,
}

impl Junit {
    /// Reads tags one after the other: each is closed, attributes are quoted and free of bare `<` and `&`, and the counts are
    /// those of the cases.
    fn of(bytes: &[u8]) -> Junit {
        let text = std::str::from_utf8(bytes).unwrap();
        let text = text.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n").expect("a declaration");
        let (mut open, mut counts, mut verdicts) = (Vec::new(), Vec::new(), Vec::new());
        for piece in text.split('<').skip(1) {
            let (tag, after) = piece.split_once('>').expect("a closed tag");
            assert!(after.trim().is_empty(), "text between tags: {after}");
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop().as_deref(), Some(name));
                continue;
            }
            let (tag, alone) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
            let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
            let attributes = Junit::attributes(attributes);
            let value =
                |wanted: &str| attributes.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
            match (name, open.last().map(String::as_str)) {
                ("testsuites", None) | ("testsuite", Some("testsuites")) => {
                    counts.push(["tests", "failures", "errors", "skipped"].map(|name| value(name).unwrap()));
                    value("time").unwrap().parse::<f64>().unwrap();
                }
                ("testcase", Some("testsuite")) => {
                    assert!(value("classname").unwrap().starts_with("edge-build."));
                    verdicts.push((value("name").unwrap(), "passed".to_owned()));
                }
                (verdict @ ("failure" | "error" | "skipped"), Some("testcase")) => {
                    assert!(!value("message").unwrap().is_empty());
                    verdicts.last_mut().unwrap().1 = verdict.to_owned();
                }
                other => panic!("{other:?} is no JUnit"),
            }
            if !alone {
                open.push(name.to_owned());
            }
        }
        assert!(open.is_empty(), "never closed: {open:?}");
        let of = |wanted: &str| verdicts.iter().filter(|(_, verdict)| verdict == wanted).count().to_string();
        let expected = [verdicts.len().to_string(), of("failure"), of("error"), of("skipped")];
        assert_eq!(counts, [expected.clone(), expected]);
        Junit { verdicts }
    }

    fn attributes(text: &str) -> Vec<(String, String)> {
        let mut rest = text.trim();
        let mut found = Vec::new();
        while !rest.is_empty() {
            let (name, value) = rest.split_once("=\"").expect("a quoted attribute");
            let (value, after) = value.split_once('"').expect("a closing quote");
            let bare = value.split('&').skip(1).find(|piece| {
                let entity = piece.split(';').next().unwrap();
                !(["amp", "lt", "gt", "quot"].contains(&entity) || entity.starts_with('#')) || !piece.contains(';')
            });
            assert!(bare.is_none() && !value.contains(|c: char| c < ' '), "{value}");
            found.push((name.trim().to_owned(), value.to_owned()));
            rest = after.trim();
        }
        found
    }
}
