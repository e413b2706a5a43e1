//! Every injected fault in one table: seen after, steps, recovered after. `EDGE_WRITE_DOCS=1 cargo test --test regressions
//! fault_table` writes it to `docs/measurements/recovery.md`.

use crate::line::{CannedSource, Line, fault};
use edge_trt::camera::SourceSpec;
use edge_trt::guard::ladder::Step;
use edge_trt::run::Outcome;
use edge_trt::run::inject::{Fault, FaultKind, Injected, Injector, Plan, Until};
use edge_trt::run::source::BundleEngines;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

struct Seen {
    what: String,
    seen_as: String,
    after: Option<Duration>,
    steps: String,
    recovered_after: Option<Duration>,
}

impl Seen {
    fn line(&self) -> String {
        let ms = |time: Option<Duration>| {
            time.map_or("–".to_owned(), |time| format!("{:.0} ms", time.as_secs_f64() * 1e3))
        };
        format!(
            "| {} | {} | {} | {} | {} |",
            self.what,
            self.seen_as,
            ms(self.after),
            self.steps,
            ms(self.recovered_after)
        )
    }
}

fn names(steps: &[Step]) -> String {
    steps.iter().map(|step| format!("`{}`", step.name())).collect::<Vec<_>>().join(", ")
}

/// What the message of an incident begins with, without the place and the figures.
fn cause(what: &str) -> String {
    let what =
        what.split_once(": ").map_or(what, |(place, rest)| if place.starts_with("stream") { rest } else { what });
    let what = if what.contains("known answer of") { "self-test" } else { what };
    what.split(" (").next().unwrap_or(what).replace('|', "/")
}

fn of_engine(what: &str, outcome: &Outcome, injector: &Injector) -> Seen {
    let incident = outcome.incidents.first().unwrap_or_else(|| panic!("{what}: nothing was seen"));
    let begun = injector.begun(0).unwrap();
    Seen {
        what: what.to_owned(),
        seen_as: cause(&incident.what),
        after: Some(incident.seen_at.saturating_duration_since(begun)),
        steps: names(&incident.steps),
        recovered_after: Some(incident.recovered_after),
    }
}

fn canned() -> Vec<Seen> {
    use FaultKind::{
        CameraStuck, DeviceLost, Error, Freeze, HighScores, Nan, OutOfMemory, Shift, Slow, Stuck, Swapped, Tear, Vanish,
    };
    let mut table = Vec::new();
    for (what, kind, amount, until) in [
        ("not a number, one frame", Nan, 1.0, Until::Frames),
        ("not a number, until a new context", Nan, 1.0, Until::Load),
        ("an error, until a new context", Error, 1.0, Until::Load),
        ("out of memory, until the bundle is read again", OutOfMemory, 1.0, Until::Open),
        ("the answer of the frame before", Swapped, 1.0, Until::Load),
        ("boxes 1 px beside their place", Shift, 1.0, Until::Load),
        ("boxes 3 px beside their place", Shift, 3.0, Until::Load),
        ("boxes 10 px beside their place", Shift, 10.0, Until::Load),
        ("all scores at 0.995", HighScores, 1.0, Until::Load),
        ("every call 0.5 s longer (limit 0.3 s)", Slow, 0.5, Until::Load),
        ("one call of 0.8 s (limit 0.3 s)", Stuck, 0.8, Until::Never),
        ("a call that never comes back, standby there", Stuck, 30.0, Until::Device),
        ("device lost, standby there", DeviceLost, 1.0, Until::Device),
    ] {
        let mut line = Line::new();
        line.options.frames = Some(600);
        let source = CannedSource { devices: if until == Until::Device { 2 } else { 1 }, ..CannedSource::new() };
        let (outcome, injector) = line.run_with(source, fault(kind, amount, until));
        let seen = of_engine(what, &outcome.unwrap_or_else(|error| panic!("{what}: {error}")), &injector);
        // The interval of 2 s, a quarter of it while frames wait, and a busy machine.
        assert!(seen.after.unwrap() < Duration::from_millis(3500), "{}", seen.line());
        table.push(seen);
    }
    for (what, kind, until) in
        [("device lost, no standby", DeviceLost, Until::Never), ("not a number for ever", Nan, Until::Never)]
    {
        let mut line = Line::new();
        line.options.service.ladder.pause = Duration::from_millis(100);
        let (outcome, _) = line.run_with(CannedSource::new(), fault(kind, 1.0, until));
        let error = outcome.unwrap_err();
        let seen_as = cause(error.message());
        let steps = format!("exit {}", error.kind().exit_code());
        table.push(Seen { what: what.to_owned(), seen_as, after: None, steps, recovered_after: None });
    }
    for (what, kind, amount, until, reason) in [
        ("the camera repeats a picture", Freeze, 1.0, Until::Reopen, "frozen"),
        ("half of every picture is an old one", Tear, 1.0, Until::Reopen, "torn"),
        ("the camera is gone", Vanish, 1.0, Until::Reopen, ""),
        ("a read of 8 s (limit 1 s)", CameraStuck, 8.0, Until::Never, ""),
    ] {
        let mut line = Line::new();
        line.options.frames = Some(1500);
        let (outcome, _) = line.run_with(CannedSource::new(), Fault { at: 200, ..fault(kind, amount, until) });
        let outcome = outcome.unwrap();
        assert!(outcome.incidents.is_empty(), "{what}: the engine is not to blame: {:?}", outcome.incidents);
        let rows = line.rows();
        let faults = rows.iter().filter(|row| row["trust"] == "fault").count();
        assert_eq!(rows.last().unwrap()["trust"], "trusted", "{what}");
        assert!(reason.is_empty() || rows.iter().any(|row| row["reasons"][0] == reason), "{what}: no {reason}");
        let seen_as =
            if reason.is_empty() { "source lost".to_owned() } else { format!("`{reason}`, {faults} rows are `fault`") };
        table.push(Seen {
            what: what.to_owned(),
            seen_as,
            after: None,
            steps: "camera opened again".to_owned(),
            recovered_after: None,
        });
    }
    let mut line = Line::new();
    line.options.output.file = Some("/dev/full".into());
    let error = line.run(Arc::new(CannedSource::new())).unwrap_err();
    let steps = format!("exit {}", error.kind().exit_code());
    let (what, seen_as) = ("the disk for results is full".to_owned(), error.message().to_owned());
    table.push(Seen { what, seen_as, after: None, steps, recovered_after: None });
    table
}

/// The same on a real network: the sample bundle on the built-in CPU engine and the simulated line.
fn sample_model() -> Vec<Seen> {
    let bundle = Path::new(env!("CARGO_MANIFEST_DIR")).join("engines/sample/sample.edge");
    let mut table = Vec::new();
    for (what, kind, amount, until) in [
        ("sample model: not a number, until a new context", FaultKind::Nan, 1.0, Until::Load),
        ("sample model: boxes 1 px beside their place", FaultKind::Shift, 1.0, Until::Load),
        ("sample model: all scores at 0.995", FaultKind::HighScores, 1.0, Until::Load),
    ] {
        let mut line = Line::new();
        line.options.bundle = bundle.clone();
        line.options.cpu.backend = edge_trt::engine::cpu::CpuBackend::Rten;
        line.options.cpu.threads = Some(1);
        line.options.streams[0].spec = SourceSpec::parse("sim:?fps=20&size=320x192").unwrap();
        line.options.service.call_limit = None;
        line.options.service.proofs.share = 1.0;
        line.options.frames = None;
        line.options.duration = Some(Duration::from_secs(8));
        let injector = Injector::new(Plan { faults: vec![Fault { at: 10, ..fault(kind, amount, until) }] });
        let engines = Arc::new(BundleEngines::of(&line.options));
        let outcome = line.run(Injected::over(engines, Arc::clone(&injector))).unwrap();
        table.push(of_engine(what, &outcome, &injector));
    }
    table
}

#[test]
fn every_fault_is_seen_and_named_and_repaired() {
    let mut table = canned();
    table.extend(sample_model());
    let mut text =
        String::from("| fault | seen as | seen after | steps | recovered after |\n| --- | --- | --- | --- | --- |\n");
    table.iter().for_each(|seen| writeln!(text, "{}", seen.line()).unwrap());
    println!("{text}");
    if std::env::var_os("EDGE_WRITE_DOCS").is_some() {
        let page = format!(
            "# Faults on purpose\n\nEvery fault of the harness (`run::inject`), on canned engines at 200 frames a second with self-tests every 2 s, and the\n\
             last three on the sample model (rten, one thread, debug build) on the simulated line. Written by\n\n    \
             EDGE_WRITE_DOCS=1 cargo test --test regressions fault_table\n\non two shared cores; an ordinary `cargo test` \
             runs the same and checks the bounds. `seen after` counts from the first\nspoiled call, `recovered after` from seeing \
             it to the good self-test of all golden frames.\n\n{text}"
        );
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/measurements/recovery.md");
        // What was measured on a GPU is not measured here.
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        let kept = before.find("\n## On a GPU").map_or("", |at| &before[at..]);
        std::fs::write(path, page + kept).unwrap();
    }
}
