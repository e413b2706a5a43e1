//! `edge-build sweep`.

use crate::workbench::Bench;
use serde_json::Value;

const DYNAMIC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/dynamic_opset17.onnx");
const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/engines/sample/sample.onnx");

#[test]
fn the_table_is_as_it_was() {
    let bench = Bench::new();
    let sweep = ["sweep", DYNAMIC, "--imgsz", "640,960,641", "--batch", "64,1", "--target", "t4,orin-nano-4gb"];
    insta::assert_snapshot!("sweep", bench.edge_build(&sweep).ends_with(0).data);
    let one = ["sweep", SAMPLE, "--precision", "fp16", "--batch", "1,64", "--target", "orin-nano-8gb", "-q"];
    insta::assert_snapshot!("sweep_one", bench.edge_build(&one).ends_with(0).data);
    assert_eq!(bench.names(), ["model.onnx", "names.txt"], "nothing is written unasked");
}

#[test]
fn programs_get_json_and_people_a_page() {
    let bench = Bench::new();
    let sweep = ["sweep", DYNAMIC, SAMPLE, "--imgsz", "640", "--batch", "1", "--json", "--html", "sweep.html"];
    let ran = bench.edge_build(&sweep).ends_with(0);
    let json: Value = serde_json::from_str(&ran.data).unwrap();
    let lines = json["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 6, "two models, three precisions");
    assert_eq!((&lines[0]["model"], &lines[3]["model"]), (&"dynamic_opset17.onnx".into(), &"sample.onnx".into()));
    assert_eq!(lines[0]["refused"], Value::Null);
    assert!(lines[3]["refused"]["reason"].as_str().unwrap().contains("an export fixed at 384×224"));
    assert_eq!(json["targets"].as_array().unwrap().len(), 10, "every GPU target");
    assert!(String::from_utf8(bench.read("sweep.html")).unwrap().contains("<svg"));
    assert_eq!(ran.people.matches("not timed, this machine is none of them: t4").count(), 1, "{}", ran.people);
}

#[test]
fn what_cannot_be_swept_is_refused() {
    let bench = Bench::new();
    let refused = bench.edge_build(&["sweep", SAMPLE, "--imgsz", "640", "--target", "t4"]).ends_with(3);
    assert!(refused.people.contains("none of 18 combinations can be built"), "{}", refused.people);
    assert!(refused.data.contains("refused: found an export fixed at 384×224"), "the lines are printed all the same");
    bench.edge_build(&["sweep", "nothing.onnx"]).ends_with(2).says_one_error(&["nothing.onnx"]);
    bench.edge_build(&["sweep", SAMPLE, "--target", "t5"]).ends_with(2).says_one_error(&["`t5`"]);
    bench.edge_build(&["sweep", SAMPLE, "--precision", "fp4"]).ends_with(2).explains(&["as-exported, fp16 or int8"]);
    bench.edge_build(&["sweep", SAMPLE, "--labels", "x"]).ends_with(2).says_one_error(&["labels without pictures"]);
    bench.edge_build(&["sweep"]).ends_with(2);
    let nowhere = bench.edge_build(&["sweep", SAMPLE, "--target", "cpu", "--html", "no/such/folder/sweep.html"]);
    let nowhere = nowhere.ends_with(11).says_one_error(&["no/such/folder/sweep.html"]);
    assert_eq!(nowhere.data, "", "found out before anything was swept");
}

#[test]
fn the_time_limit_keeps_what_was_measured() {
    let bench = Bench::new();
    bench.pictures("val", 2);
    let sweep = ["sweep", SAMPLE, "--target", "cpu", "--batch", "1", "--gate", "val", "--time-limit", "0.000001s"];
    let ran = bench.edge_build(&sweep).ends_with(9);
    assert!(ran.data.contains("384×224  as exported  1"), "{}", ran.data);
    assert!(ran.people.contains("error: the time limit was reached"), "{}", ran.people);
}
