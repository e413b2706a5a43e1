//! Several streams on one bundle of a rewritten batch: each answer reaches the frame that it belongs to, in order, as if the
//! stream were alone; slots without a frame say nothing.

use crate::run_sim::rows;
use crate::workbench::Bench;
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
        assert_eq!(rows.len(), PICTURES, "one row a picture, none for an empty slot");
        for (stream, pictures) in STREAMS {
            let numbers = rows.iter().map(name).filter(|(of, _)| *of == stream).map(|(_, number)| number);
            assert_eq!(numbers.collect::<Vec<_>>(), (0..pictures).collect::<Vec<_>>(), "{stream} of batch {batch}");
        }
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
