//! Every flag of a run is a key of `edge.toml`, or says why not.

use super::Typed;
use crate::config::RunConfig;
use clap::CommandFactory;
use std::collections::BTreeSet;

/// Flag, and a line of `edge.toml` that says the same. Flags of `[service]` and of the camera are compared where they are
/// defined: there, one struct is both.
const KEYS: &[(&str, &str)] = &[
    ("engine", "engine = 'x.edge'"),
    ("camera", "stream.source = '/dev/video1'"),
    ("source", "stream.source = 'sim:'"),
    ("wait", "stream.wait = false"),
    ("delivery", "stream.delivery = 'every'"),
    ("trigger", "stream.triggered = true"),
    ("output", "output.file = 'x.jsonl'"),
    ("save", "output.save = 'x'"),
    ("listen", "http.listen = 'none'"),
    ("token_file", "http.token_file = 'x'"),
    ("read_only", "http.read_only = true"),
    ("conf", "report.conf = 0.5"),
    ("iou", "report.iou = 0.5"),
    ("threads", "cpu.threads = 3"),
    ("cpu_backend", "cpu.backend = 'rten'"),
    ("batch_wait", "batch.wait_ms = 3.0"),
    ("gpu", "gpu.devices = [2]"),
    ("devices", "gpu.devices = [0, 1]"),
    ("gpu_wait", "gpu.wait = 'spin'"),
    ("gpu_budget", "gpu.budget = '1GiB'"),
    ("gpu_picture", "gpu.picture = '1MiB'"),
    ("gpu_lanes", "gpu.lanes = 2"),
    ("tensorrt_dir", "gpu.tensorrt_dir = '/x'"),
];

/// For one run and not for a line: what to stop at, what to look at, what to try.
const TYPED_ALONE: &[&str] =
    &["config", "frames", "duration", "emulate_half", "quiet", "truth", "inject", "product", "help", "version"];

fn with(line: &str) -> RunConfig {
    let (stream, top) = match line.strip_prefix("stream.") {
        Some(key) => (key, ""),
        None => ("", line),
    };
    let source = if stream.starts_with("source") { "" } else { "source = 'x'\n" };
    let text = format!("{top}\n[[stream]]\nname = 'a'\n{source}{stream}\n");
    RunConfig::parse(&text).unwrap_or_else(|error| panic!("{line}: {error}"))
}

#[test]
fn every_flag_is_a_key_or_for_one_run_alone() {
    let fields = |args: fn(clap::Command) -> clap::Command| -> BTreeSet<String> {
        args(clap::Command::new("fields")).get_arguments().map(|flag| flag.get_id().to_string()).collect()
    };
    let shared: BTreeSet<String> = fields(<crate::config::ServiceSettings as clap::Args>::augment_args)
        .union(&fields(<crate::camera::CameraRequest as clap::Args>::augment_args))
        .chain(&fields(<crate::config::IncidentSettings as clap::Args>::augment_args))
        .cloned()
        .collect();
    for flag in Typed::command().get_arguments().map(|flag| flag.get_id().to_string()) {
        let known = KEYS.iter().any(|(name, _)| *name == flag) || TYPED_ALONE.contains(&&*flag);
        assert!(known || shared.contains(&flag), "--{flag} has no key in edge.toml: give it one, or list it here");
    }
    for (flag, line) in KEYS {
        assert_ne!(with(line), with(""), "--{flag}: `{line}` changes nothing");
    }
}
