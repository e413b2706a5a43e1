//! A simulated day through the real engine, guard and decision: for every event, what trust and decision must be and were.
//!
//! `EDGE_FULL=1` takes the whole script `day` at 30 frames a second and prints the table of
//! docs/measurements/simulated-day.md (with `--nocapture`); without it, a day of the same events in 47 seconds at 5 frames
//! a second. The line's clock runs ahead of this machine's, so that a slow machine is never late.

use edge_trt::bundle::Bundle;
use edge_trt::camera::sim::{FrameTruth, Line, Script, SimOptions};
use edge_trt::decision::{Decision, Rule};
use edge_trt::engine::cpu::{self, CpuBackend, CpuOptions};
use edge_trt::frame::{Frame, Picture};
use edge_trt::guard::picture::PictureStats;
use edge_trt::guard::{Guard, GuardMode, Reason, StreamTraits, Trust};
use edge_trt::run::baselines::Baselines;
use edge_trt::run::clerk::Clerk;
use edge_trt::run::depot::{Sight, Work};
use edge_trt::run::host::Host;
use edge_trt::run::incident::{IncidentOptions, Recorder};
use edge_trt::run::inspector::{Inspector, Parts, StreamPlace};
use edge_trt::run::present::Present;
use edge_trt::run::product::Judging;
use edge_trt::sinks::http::Board;
use edge_trt::sinks::row::{EngineStamp, Row};
use edge_trt::telemetry::Telemetry;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The events of the script `day`, closer together.
const SHORT_DAY: &str = r#"
name = "short day"
event = [
  { kind = "freeze", at_s = 3, for_s = 4 },
  { kind = "black", at_s = 9, for_s = 2 },
  { kind = "blur", at_s = 13, for_s = 3 },
  { kind = "over_exposed", at_s = 18, for_s = 2 },
  { kind = "bumped", at_s = 22, for_s = 3 },
  { kind = "empty_belt", at_s = 27, for_s = 3 },
  { kind = "line_stop", at_s = 31, for_s = 2 },
  { kind = "product_change", product = "plate", at_s = 34, for_s = 4 },
  { kind = "light_down", to = 0.8, at_s = 39, for_s = 3 },
  { kind = "defect_lot", share = 0.5, at_s = 43, for_s = 4 },
]
"#;

/// What an event must lead to: the reason that must be seen, and within how many of its frames.
#[derive(Clone, Copy)]
enum Must {
    /// The picture shows the line: trusted, and decided by what is seen.
    Trusted,
    /// The picture does not show the line.
    Seen { trust: Trust, reason: Reason, within: u64 },
}

fn must(event: &str) -> Must {
    match event {
        "black" => Must::Seen { trust: Trust::Fault, reason: Reason::Dark, within: 1 },
        "over_exposed" => Must::Seen { trust: Trust::Fault, reason: Reason::OverExposed, within: 1 },
        // Identical for 10 frames and 500 ms: the first frame of the event is the last good picture repeated.
        "freeze" => Must::Seen { trust: Trust::Fault, reason: Reason::Frozen, within: 16 },
        "blur" => Must::Seen { trust: Trust::Suspect, reason: Reason::Blurred, within: 1 },
        "bumped" => Must::Seen { trust: Trust::Suspect, reason: Reason::Shifted, within: 12 },
        _ => Must::Trusted,
    }
}

#[derive(Default)]
struct Entry {
    frames: u64,
    trust: BTreeMap<String, u64>,
    /// Frames of the event before its reason was seen for the first time.
    unseen: Option<u64>,
    /// Frames without the reason after it was seen.
    lost: u64,
    /// `good pass` and so on → parts.
    decisions: BTreeMap<String, u64>,
    /// Decisions that must not be.
    wrong: u64,
}

struct Day {
    line: Line,
    options: SimOptions,
    start: Instant,
    clerk: Arc<Clerk>,
    inspector: Inspector,
    parts: u64,
    table: BTreeMap<String, Entry>,
}

impl Day {
    fn new(options: SimOptions) -> Day {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("engines/sample/sample.edge");
        let bundle = Bundle::open(&sample).unwrap();
        let manifest = bundle.manifest();
        let (model, spec, layout) = (bundle.model().unwrap(), manifest.input.clone(), manifest.layout.clone());
        let (classes, floor) = (manifest.classes.clone(), manifest.thresholds.lowest_score());
        let load = move || {
            let options = CpuOptions { backend: CpuBackend::Rten, threads: None, ..CpuOptions::default() };
            cpu::load(&model, &spec, &layout, classes.into(), floor, &options)
        };
        let host = Host::start(Box::new(load), Duration::from_secs(60), &|| {}).unwrap();
        let judging = Judging::plain(manifest).unwrap();
        let deadline = judging.rule.as_ref().and_then(Rule::deadline);
        let clerk = Arc::new(Clerk::new(vec!["line".into()], deadline));
        let traits = StreamTraits { live: true, related_frames: true, triggered: false };
        let guard = Guard::new(&manifest.guard, &manifest.classes, traits).unwrap();
        let stamp = EngineStamp {
            bundle: manifest.name.clone(),
            sha256: bundle.id().to_owned(),
            backend: host.info().backend.clone(),
            classes: Arc::clone(&host.info().classes),
            device: None,
            product: None,
            label: None,
        };
        let (board, telemetry) = (Board::new(Vec::new()), Telemetry::new());
        let recorder = Recorder::start(IncidentOptions::default(), None, (&[], &[]), &board, &telemetry).unwrap();
        let inspector = Inspector::new(Parts {
            host,
            call_limit: Duration::from_secs(60),
            echo_every: 0,
            board,
            judging,
            streams: vec![StreamPlace { name: "line".into(), guard, traits, triggered: true }],
            clerk: Arc::clone(&clerk),
            present: Present::new(stamp, Some(SystemTime::now()), true),
            telemetry,
            recorder,
            baselines: Baselines::new(None, GuardMode::Act, 1),
        })
        .unwrap();
        let line = Line::new(&options).unwrap();
        let start = Instant::now() + Duration::from_secs(86_400);
        Day { line, options, start, clerk, inspector, parts: 0, table: BTreeMap::new() }
    }

    fn frame(&mut self) -> (FrameTruth, Row) {
        let truth = self.line.advance();
        let mut pixels = vec![0; self.line.picture_bytes()];
        self.line.picture(&mut pixels);
        let arrived = self.start + Duration::from_secs_f64(truth.time_s);
        let part = truth.part.as_ref().map(|part| self.clerk.open(0, &part.id, arrived).unwrap().tag);
        self.parts += u64::from(part.is_some());
        let frame = Frame {
            stream: "line".into(),
            number: truth.frame,
            captured_at: Some(SystemTime::now()),
            arrived,
            source: None,
            part: part.clone(),
            picture: Picture::rgb(self.options.size, pixels),
        };
        let stats = PictureStats::measure(&frame.picture);
        let work = Work {
            number: frame.number,
            captured_at: frame.captured_at,
            source: None,
            arrived,
            part,
            picture: Sight::Frame(Arc::new(frame), Box::new(stats)),
        };
        let (row, alarm) = self.inspector.inspect(0, work);
        assert!(alarm.is_none(), "the engine is healthy all day: {alarm:?}");
        (truth, row)
    }

    fn run(&mut self, frames: u64) {
        for _ in 0..frames {
            let (truth, row) = self.frame();
            assert_eq!(row.part.as_deref(), truth.part.as_ref().map(|part| &*part.id), "one row a part, at once");
            let event = truth.events.first().map_or("clean", String::as_str);
            let entry = self.table.entry(event.to_owned()).or_default();
            entry.frames += 1;
            let reasons = row.reasons.iter().map(|reason| reason.name()).collect::<Vec<_>>().join("+");
            *entry.trust.entry(format!("{} {reasons}", row.trust.name()).trim_end().to_owned()).or_default() += 1;
            if let Must::Seen { trust, reason, .. } = must(event) {
                if row.trust == trust && row.reasons.contains(&reason) {
                    entry.unseen.get_or_insert(entry.frames - 1);
                } else if entry.unseen.is_some() {
                    entry.lost += 1;
                }
            }
            if let Some(part) = &truth.part {
                entry.decide(event, &row, part.defective);
            } else {
                assert_eq!(row.decision, None, "no part, no decision");
            }
        }
    }
}

impl Entry {
    fn decide(&mut self, event: &str, row: &Row, defective: bool) {
        let decision = row.decision.unwrap();
        let part = if defective { "bad" } else { "good" };
        *self.decisions.entry(format!("{part}: {}", decision.name())).or_default() += 1;
        let allowed: &[Decision] = match must(event) {
            Must::Trusted if defective => &[Decision::Reject],
            Must::Trusted => &[Decision::Pass],
            Must::Seen { .. } if row.trust == Trust::Fault => &[Decision::NotInspected],
            // Suspicion withholds a pass, never a defect.
            Must::Seen { .. } if row.trust == Trust::Suspect => &[Decision::NotInspected, Decision::Reject],
            // Before the reason is seen the answer is an ordinary one.
            Must::Seen { .. } => &[Decision::Pass, Decision::Reject, Decision::NotInspected],
        };
        self.wrong += u64::from(!allowed.contains(&decision));
    }
}

fn listed(counts: &BTreeMap<String, u64>) -> String {
    counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join("; ")
}

fn printed(table: &BTreeMap<String, Entry>) -> String {
    let mut text = String::from(
        "| event | frames | trust must be | and was | frames before it was seen | decisions (part: decision, count) | must not be |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for (event, entry) in table {
        let (wanted, unseen) = match must(event) {
            Must::Trusted => ("trusted".to_owned(), String::new()),
            Must::Seen { trust, reason, within } => (
                format!("{} {} within {within}", trust.name(), reason.name()),
                entry.unseen.map_or("never".to_owned(), |unseen| unseen.to_string()),
            ),
        };
        writeln!(
            text,
            "| {event} | {} | {wanted} | {} | {unseen} | {} | {} |",
            entry.frames,
            listed(&entry.trust),
            listed(&entry.decisions),
            entry.wrong
        )
        .unwrap();
    }
    text
}

#[test]
fn every_event_gets_its_trust_and_its_decision() {
    let full = std::env::var_os("EDGE_FULL").is_some();
    let (options, frames) = if full {
        (SimOptions::parse("sim:?script=day&triggers&seed=11").unwrap(), 240 * 30)
    } else {
        let short = SimOptions::parse("sim:?fps=5&triggers&seed=11").unwrap();
        (SimOptions { script: Script::from_toml(SHORT_DAY).unwrap(), ..short }, 47 * 5)
    };
    let mut day = Day::new(options);
    day.run(frames);
    let text = printed(&day.table);
    println!("{text}");
    let counts = day.clerk.counts();
    assert_eq!((counts.opened, counts.passed + counts.rejected + counts.not_inspected), (day.parts, day.parts));
    let mut wrong = 0;
    for event in Script::day().events.iter().map(|event| event.happening.name()).chain(["clean"]) {
        let entry = day.table.get(event).unwrap_or_else(|| panic!("no frame of `{event}`\n{text}"));
        wrong += entry.wrong;
        match must(event) {
            Must::Trusted => {
                assert!(entry.trust.keys().all(|trust| trust == "trusted"), "{event}\n{text}");
            }
            Must::Seen { within, .. } => {
                assert!(entry.unseen.is_some_and(|unseen| unseen <= within), "{event}\n{text}");
                assert_eq!(entry.lost, 0, "{event}\n{text}");
            }
        }
    }
    assert!(wrong <= if full { 2 } else { 1 }, "{wrong} decisions must not be\n{text}");
}
