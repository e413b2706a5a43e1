//! Several streams on one bundle of a rewritten batch: each answer reaches the frame that it belongs to, in order, as if the
//! stream were alone; slots without a frame say nothing.

use crate::build_plan::{MODEL, Machine};
use crate::common::graphs;
use crate::run_sim::rows;
use crate::workbench::{Bench, Ran, edge_run};
use edge_trt::bundle::golden::{EXACT_PX, EXACT_SCORE};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Streams and their pictures, 21 together: no multiple of a batch, and the longest stream is alone at the end.
const STREAMS: [(&str, u64); 5] = [("cam1", 7), ("cam2", 4), ("cam3", 3), ("cam4", 1), ("cam5", 6)];
const PICTURES: usize = 21;

/// The sample network rewritten to `batch`, run over the pictures of all streams; its rows as they came out.
fn run(bench: &Bench, batch: u32) -> Vec<Value> {
    let (bundle, results) = (format!("batch{batch}.edge"), format!("batch{batch}.jsonl"));
    let recipe = concat!(env!("CARGO_MANIFEST_DIR"), "/engines/sample");
    let batch = batch.to_string();
    bench.edge_build(&[recipe, "--batch", &batch, "--cpu-backend", "rten", "-o", &bundle]).ends_with(0);
    let sources: Vec<String> = STREAMS.iter().map(|(name, _)| format!("{name}={name}/images")).collect();
    // A machine that is busy with other things is no fault of the engine.
    let mut arguments = vec!["--engine", &bundle, "--cpu-backend", "rten", "--threads", "1", "--call-limit", "60s"];
    arguments.extend(["--output", &results]);
    sources.iter().for_each(|source| arguments.extend(["--source", source]));
    let ran = bench.edge_run(&arguments).ends_with(0);
    let rows = rows(&String::from_utf8(bench.read(&results)).unwrap());
    for row in &rows {
        assert_eq!(row["trust"], "trusted", "batch {batch}: {row}\n{}", ran.people);
    }
    rows
}

fn name(row: &Value) -> (&str, u64) {
    (row["stream"].as_str().unwrap(), row["frame"].as_u64().unwrap())
}

/// Captures that went through the network together: they share its time, to the last digit.
fn batches(rows: &[Value]) -> Vec<Vec<(&str, u64)>> {
    let time = |row: &Value| (row["timings_ms"]["preprocess"].clone(), row["timings_ms"]["inference"].clone());
    rows.chunk_by(|one, next| time(one) == time(next)).map(|batch| batch.iter().map(name).collect()).collect()
}

/// Class, score and edges of each box.
fn boxes(row: &Value) -> Vec<(u64, f64, Vec<f64>)> {
    let edges = |found: &Value| found["box"].as_array().unwrap().iter().map(|edge| edge.as_f64().unwrap()).collect();
    let found = row["detections"].as_array().unwrap().iter();
    found.map(|found| (found["class_id"].as_u64().unwrap(), found["score"].as_f64().unwrap(), edges(found))).collect()
}

/// One row a picture, and none for an empty slot.
fn each_picture_once_and_in_order(rows: &[Value]) {
    assert_eq!(rows.len(), PICTURES);
    for (stream, pictures) in STREAMS {
        let numbers = rows.iter().map(name).filter(|(of, _)| *of == stream).map(|(_, number)| number);
        assert_eq!(numbers.collect::<Vec<_>>(), (0..pictures).collect::<Vec<_>>(), "{stream}");
    }
}

fn furthest_px(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| (one - other).abs()).fold(0.0, f64::max)
}

fn agree(one: &Value, other: &Value) -> bool {
    let (one, other) = (boxes(one), boxes(other));
    one.len() == other.len()
        && one.iter().zip(&other).all(|(one, other)| {
            one.0 == other.0
                && (one.1 - other.1).abs() <= f64::from(EXACT_SCORE)
                && furthest_px(&one.2, &other.2) <= f64::from(EXACT_PX)
        })
}

#[test]
fn every_slot_of_a_batch_answers_its_own_stream_and_as_it_would_alone() {
    let bench = Bench::new();
    for (number, (name, pictures)) in (0..).zip(STREAMS) {
        let (pictures, seed) = (pictures.to_string(), (700 + number).to_string());
        bench.edge_run(&["sim", "render", name, "--frames", &pictures, "--seed", &seed]).ends_with(0);
    }
    let alone = run(&bench, 1);
    assert!(batches(&alone).iter().all(|batch| batch.len() == 1), "a batch of one holds one");
    let alone: BTreeMap<(&str, u64), &Value> = alone.iter().map(|row| (name(row), row)).collect();
    assert_eq!(alone.len(), PICTURES);
    for (one, row) in &alone {
        for (other, _) in alone.iter().filter(|(other, _)| *other != one) {
            assert!(!agree(row, alone[other]), "{one:?} and {other:?} look alike: a mix-up would not be seen");
        }
    }
    for batch in [4, 8] {
        let rows = run(&bench, batch);
        each_picture_once_and_in_order(&rows);
        for row in &rows {
            assert!(agree(row, alone[&name(row)]), "batch {batch}: {row}\nalone: {}", alone[&name(row)]);
        }
        let batches = batches(&rows);
        let streams = |batch: &Vec<(&str, u64)>| batch.iter().map(|(stream, _)| *stream).collect::<BTreeSet<_>>().len();
        let full = usize::try_from(batch).unwrap();
        assert!(batches.iter().all(|captures| captures.len() <= full), "batch {batch}: {batches:?}");
        assert!(batches.iter().any(|captures| captures.len() < full), "no slot was empty: {batches:?}");
        assert!(batches.iter().any(|captures| captures.len() == full), "no batch was full: {batches:?}");
        assert!(batches.iter().any(|captures| streams(captures) > 1), "no streams met in a batch: {batches:?}");
    }
}

/// The same way through a TensorRT plan on a GPU, both doubles that compute nothing: no box is found, and every picture has its
/// row. A run takes 1.5 ms on that GPU, of which each picture in it gets its share.
#[test]
fn every_picture_of_every_stream_has_its_row_from_a_plan_of_a_batch() {
    const RUN_MS: f64 = 1.5;
    for batch in [4_u32, 8] {
        let define = format!("BATCH={batch}");
        let machine = Machine::trt10_with_driver(&[&define], &["MEMORY_BYTES=(512u<<20)"]);
        let bench = &machine.bench;
        // Not all zero, which would be a fault of the export, and below every floor.
        let mut head = graphs::raw_head(2, 84, &[[32.0, 32.0, 20.0, 12.0, 0.001, 0.0]]);
        head.shape[0] = i64::from(batch);
        head.values = head.values.repeat(usize::try_from(batch).unwrap());
        bench.write("model.onnx", &graphs::constant(graphs::Type::F32, [i64::from(batch), 3, 64, 64], vec![head]));
        let target = ["--target", "orin-nano-8gb", "--flavour", "trt10", "--gpu-budget", "512MiB", "-o", "o.edge"];
        let built = machine.run(&[&MODEL[..], &target, &["--keep-unproved"]].concat()).ends_with(0);
        assert!(built.people.contains("proof on the GPU: 4 known answers came out right"), "{}", built.people);
        for (name, pictures) in STREAMS {
            bench.pictures(name, u32::try_from(pictures).unwrap());
        }
        let sources: Vec<String> = STREAMS.iter().map(|(name, _)| format!("{name}={name}")).collect();
        let mut arguments = vec!["--engine", "o.edge", "--call-limit", "60s", "--output", "rows.jsonl"];
        sources.iter().for_each(|source| arguments.extend(["--source", source]));
        let ran: Ran = machine.command_of(edge_run(), &arguments).output().unwrap().into();
        let ran = ran.ends_with(0);
        let off = "streams cam1, cam2, cam3, cam4, cam5: soft checks only observe";
        assert!(ran.people.contains(off), "said once, not five times:\n{}", ran.people);
        let rows = rows(&String::from_utf8(bench.read("rows.jsonl")).unwrap());
        each_picture_once_and_in_order(&rows);
        let mut runs = 0.0;
        for row in &rows {
            assert_eq!((&row["trust"], &row["detections"]), (&"trusted".into(), &serde_json::json!([])), "{row}");
            assert_eq!(row["engine"]["backend"], "TensorRT 10 10.3.0 on Double 0");
            let together = RUN_MS / row["timings_ms"]["inference"].as_f64().unwrap();
            assert!(together.round() <= f64::from(batch), "{row}");
            runs += 1.0 / together.round();
        }
        assert!((runs - f64::round(runs)).abs() < 1e-6, "every picture of a run has its row: {runs}");
        assert!(runs < 0.9 * PICTURES as f64, "hardly two pictures met in a run: {runs}");
    }
}
