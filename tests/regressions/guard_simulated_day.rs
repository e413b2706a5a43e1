//! The guard on a simulated day, with the truth's boxes as the engine's answers: what must be a fault, what suspect, and
//! what must stay trusted. C01 (frozen and black pictures pass as live) is part of it.

use edge_trt::camera::sim::{FrameTruth, Line, SimOptions};
use edge_trt::detections::Detection;
use edge_trt::engine::OutputStats;
use edge_trt::frame::{FrameTag, Picture};
use edge_trt::guard::picture::PictureStats;
use edge_trt::guard::reference::ReferenceBuilder;
use edge_trt::guard::{Answer, Guard, GuardSpec, Observation, Reason, Reference, Seen, StreamTraits, Trust, Verdict};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

struct Day {
    line: Line,
    size: edge_trt::units::SizePx,
    start: Instant,
}

struct Shot {
    truth: FrameTruth,
    stats: PictureStats,
    boxes: Vec<Detection>,
    arrived: Instant,
}

impl Day {
    fn new(source: &str) -> Self {
        let options = SimOptions::parse(source).unwrap();
        Day { line: Line::new(&options).unwrap(), size: options.size, start: Instant::now() }
    }

    fn shoot(&mut self) -> Shot {
        let truth = self.line.advance();
        let mut pixels = vec![0; self.line.picture_bytes()];
        self.line.picture(&mut pixels);
        let boxes = truth.boxes.iter().filter(|object| object.counts()).enumerate().map(|(number, object)| Detection {
            class_id: object.class_id,
            score: 0.7 + 0.02 * (number % 10) as f32,
            edges: object.edges,
            unclipped: object.edges,
        });
        let boxes = boxes.collect();
        let arrived = self.start + Duration::from_secs_f64(truth.time_s);
        Shot { stats: PictureStats::measure(&Picture::rgb(self.size, pixels)), truth, boxes, arrived }
    }
}

fn reference(source: &str, frames: usize, apart: usize) -> Reference {
    let mut day = Day::new(source);
    let mut builder = ReferenceBuilder::new();
    for _ in 0..frames {
        for _ in 1..apart {
            day.line.advance();
        }
        let shot = day.shoot();
        builder.add(&shot.stats, &shot.boxes, day.size);
    }
    builder.finish()
}

fn judge(guard: &mut Guard, shot: &Shot) -> Verdict {
    let tag = FrameTag { stream: "line1".into(), number: shot.truth.frame };
    let stats = OutputStats { values: 1, ..OutputStats::default() };
    let answer = Answer {
        tag: &tag,
        stats: &stats,
        detections: &shot.boxes,
        all_zero_is_fault: true,
        most_boxes: 300,
        echo_differs: false,
    };
    let picture = Seen::Picture(&shot.stats);
    guard.judge(&Observation { tag: &tag, arrived: shot.arrived, picture, answer: Some(answer) })
}

fn guard(reference: Option<Reference>) -> Guard {
    let spec = GuardSpec { reference, ..GuardSpec::default() };
    let traits = StreamTraits { live: true, related_frames: true, triggered: false };
    Guard::new(
        &spec,
        &["gasket", "bracket", "plate", "scratch", "crack", "stain", "missing_screw"].map(String::from),
        traits,
    )
    .unwrap()
}

/// Event in force (or `clean`) → verdict → frames.
type Table = BTreeMap<String, BTreeMap<String, u64>>;

fn run(source: &str, mut guard: Guard, frames: u64) -> Table {
    let mut day = Day::new(source);
    let mut table = Table::new();
    for _ in 0..frames {
        let shot = day.shoot();
        let verdict = judge(&mut guard, &shot);
        let event = shot.truth.events.first().cloned().unwrap_or_else(|| "clean".into());
        let reasons = verdict.reasons.iter().map(|reason| reason.label()).collect::<Vec<_>>().join("+");
        let entry = format!("{} {reasons}", verdict.trust.name());
        *table.entry(event).or_default().entry(entry.trim_end().to_owned()).or_default() += 1;
    }
    table
}

fn frames_with(table: &Table, event: &str, pick: impl Fn(&str) -> bool) -> u64 {
    table.get(event).into_iter().flatten().filter(|(entry, _)| pick(entry)).map(|(_, frames)| frames).sum()
}

/// The table of the guard on the simulated day: what every event must be, and how many frames may pass before it is.
#[test]
fn every_event_gets_its_verdict_and_clean_frames_stay_trusted() {
    let small = "size=320x192&fps=5";
    let reference = reference(&format!("sim:?seed=1&script=training&{small}"), 60, 5);
    assert!(reference.view_is_steady);
    let table = run(&format!("sim:?seed=1&script=day&{small}"), guard(Some(reference)), 1150);
    for event in ["clean", "empty_belt", "line_stop", "product_change", "light_down", "defect_lot"] {
        let entries = table.get(event).unwrap();
        assert!(entries.keys().all(|entry| entry == "trusted"), "{event}: {entries:?}");
    }
    for (event, reason, trust, unseen) in [
        ("black", Reason::Dark, Trust::Fault, 0),
        ("over_exposed", Reason::OverExposed, Trust::Fault, 0),
        ("freeze", Reason::Frozen, Trust::Fault, 9),
        ("blur", Reason::Blurred, Trust::Suspect, 0),
        ("bumped", Reason::Shifted, Trust::Suspect, 4),
    ] {
        let seen = |entry: &str| entry.starts_with(trust.name()) && entry.contains(reason.label());
        let missed = frames_with(&table, event, |entry| !seen(entry));
        assert!(frames_with(&table, event, seen) > 10 && missed <= unseen, "{event}: {:?}", table.get(event));
    }
}

/// Without a reference black and frozen pictures are faults all the same, and soft checks only observe.
#[test]
fn c01_without_a_reference_black_and_frozen_are_faults() {
    let table = run("sim:?seed=3&script=day&size=320x192&fps=5", guard(None), 260);
    assert_eq!(frames_with(&table, "black", |entry| entry != "fault dark"), 0, "{table:?}");
    assert_eq!(frames_with(&table, "freeze", |entry| entry != "fault frozen"), 9, "{table:?}");
    assert_eq!(frames_with(&table, "clean", |entry| entry != "trusted"), 0, "{table:?}");
}
