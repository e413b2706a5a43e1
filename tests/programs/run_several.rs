//! Several bundles in one run: the flags and keys that name them, what tells them apart, and the budget that they share.

use crate::run_sim::rows;
use crate::run_triggers::{address, ask};
use crate::workbench::Bench;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const LEFT: &str = "left=sim:?fps=10&size=160x96";
const RIGHT: &str = "right=sim:?fps=10&size=160x96&seed=2";

/// Two bundles that call themselves the same and find other boxes: `a.edge` and `b.edge`.
fn bench() -> Bench {
    let bench = Bench::new();
    bench.build(&["-o", "a.edge", "--name", "line1"]).ends_with(0);
    bench.write("model.onnx", &crate::workbench::model(0.7));
    bench.build(&["-o", "b.edge", "--name", "line1"]).ends_with(0);
    bench
}

/// The highest score of each stream.
fn scores(text: &str) -> BTreeMap<String, String> {
    let best = |row: &serde_json::Value| format!("{:.1}", row["detections"][0]["score"].as_f64().unwrap());
    rows(text).iter().map(|row| (row["stream"].as_str().unwrap().to_owned(), best(row))).collect()
}

#[test]
fn flags_name_the_bundle_of_a_stream() {
    let bench = bench();
    let run = |engines: &[&str]| {
        let sources = ["--source", LEFT, "--source", RIGHT, "--listen", "none", "--output", "-", "--duration", "3s"];
        bench.edge_run(&[&sources[..], engines].concat())
    };
    let expected: BTreeMap<String, String> =
        [("left".to_owned(), "0.9".to_owned()), ("right".to_owned(), "0.7".to_owned())].into();
    for engines in
        [["--engine", "left=a.edge", "--engine", "right=b.edge"], ["--engine", "right=b.edge", "--engine", "a.edge"]]
    {
        let ran = run(&engines).ends_with(0);
        assert_eq!(scores(&ran.data), expected, "{engines:?}");
        assert!(ran.people.contains("bundle b answers: right"), "{}", ran.people);
    }
    let ran = run(&["--engine", "middle=a.edge"]).ends_with(2);
    ran.says_one_error(&[
        "found a bundle for stream `middle`, expected one of: left, right",
        "drop it: `--engine a.edge`",
    ]);
    run(&["--engine", "a.edge", "--engine", "b.edge"]).ends_with(2).says_one_error(&["two bundles for the whole run"]);
    run(&["--engine", "left=a.edge", "--engine", "right=c.edge"]).ends_with(3).says_one_error(&["c.edge"]);
}

#[test]
fn keys_name_the_bundle_of_a_stream_and_pages_and_metrics_tell_the_engines_apart() {
    let bench = bench();
    let text = "engine = 'a.edge'\n[http]\nlisten = '127.0.0.1:0'\n\
                [[stream]]\nname = 'left'\nsource = 'sim:?fps=10&size=160x96'\n\
                [[stream]]\nname = 'right'\nsource = 'sim:?fps=10&size=160x96&seed=2'\nengine = 'b.edge'\n";
    bench.write("edge.toml", text.as_bytes());
    let mut running = bench.start(&["--config", "edge.toml", "--devices", "0,1", "--state", "state"]);
    let address = address(&running.wait_for("page: http://127.0.0.1:"));
    running.wait_for("bundle b answers: right");
    let until = Instant::now() + Duration::from_secs(30);
    let health = loop {
        let (_, body) = ask(&address, "GET", "/healthz", "");
        let health: serde_json::Value = serde_json::from_str(&body).unwrap();
        let told = health["engines"].as_array().is_some_and(|engines| {
            engines.iter().all(|engine| !engine["bundle"].is_null() && engine["devices"][1]["role"] == "standby")
        });
        if told && health["ready"] == true {
            break health;
        }
        assert!(Instant::now() < until, "{health}");
        std::thread::sleep(Duration::from_millis(100));
    };
    for (engine, label, stream) in [(0, "a", "left"), (1, "b", "right")] {
        let view = &health["engines"][engine];
        assert_eq!((&view["label"], &view["bundle"]), (&label.into(), &"line1".into()), "{view}");
        assert_eq!(view["streams"], serde_json::json!([stream]), "{view}");
        assert_eq!(view["devices"].as_array().unwrap().len(), 2, "{view}");
    }
    let metrics = ask(&address, "GET", "/metrics", "").1;
    for name in [
        "edge_engine_ready",
        "edge_proofs_passed_total",
        "edge_batches_total",
        "edge_memory_allocated_bytes",
        "edge_standbys_ready",
    ] {
        for label in ["a", "b"] {
            let series = format!("{name}{{engine=\"{label}\"");
            assert!(metrics.lines().any(|line| line.starts_with(&series)), "{series} in\n{metrics}");
        }
        assert!(!metrics.contains(&format!("{name}{{engine=\"line1\"")), "{name}: one series for both");
    }
    running.signal("TERM");
    running.end().ends_with(130);
    assert!(bench.path("state/a").is_dir() && bench.path("state/b").is_dir());
}

#[test]
fn what_does_not_fit_together_is_refused_before_anything_is_loaded() {
    let bench = bench();
    let size = |name: &str| {
        let file = zip::ZipArchive::new(std::fs::File::open(bench.path(name)).unwrap());
        file.unwrap().by_name("model.onnx").unwrap().size()
    };
    let (a, b) = (size("a.edge"), size("b.edge"));
    let run = |budget: u64| {
        let budget = budget.to_string();
        let both = ["--engine", "left=a.edge", "--engine", "right=b.edge", "--source", LEFT, "--source", RIGHT];
        bench.edge_run(&[&both[..], &["--listen", "none", "--frames", "4", "--memory-budget", &budget]].concat())
    };
    let ran =
        run(a + b - 1).ends_with(4).explains(&["2 bundles take", "together, the budget is", "what fits: `line1`"]);
    assert!(!ran.people.contains("loaded in"), "{}", ran.people);
    let ran = run(a + b).ends_with(0);
    assert!(ran.people.contains("is refused; `--reload-gap`"), "no room for another bundle: {}", ran.people);
    let ran = run(10 * (a + b)).ends_with(0);
    assert!(!ran.people.contains("reload: "), "{}", ran.people);
}
