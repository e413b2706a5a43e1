//! `edge-build inspect`.

use super::json_text;
use crate::bundle::gate::GateResult;
use crate::bundle::manifest::{GoldenKind, Source};
use crate::bundle::plan::PlanFacts;
use crate::bundle::{Bundle, Manifest};
use crate::cli::Terminal;
use crate::engine::Layout;
use crate::error::Result;
use crate::ffi::tensorrt::version::Flavour;
use crate::guard::Reference;
use crate::units::{Bytes, count};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// What `--json` prints: the manifest, and what is not in it.
#[derive(Serialize)]
struct Inspection<'a> {
    id: &'a str,
    plans: Vec<&'a str>,
    signed: bool,
    manifest: &'a Manifest,
}

/// Prints what the bundle is; its hashes have been checked then.
pub(super) fn run(path: &Path, json: bool, terminal: &mut Terminal) -> Result<()> {
    let bundle = Bundle::open(path)?;
    let signed = bundle.entry_names().any(|name| name == crate::bundle::SIGNATURE);
    let plans = bundle.plan_names().collect::<Vec<_>>();
    if json {
        let inspection = Inspection { id: bundle.id(), plans, signed, manifest: bundle.manifest() };
        return terminal.data(json_text(&inspection)?);
    }
    terminal.data(describe(&bundle, signed).trim_end())
}

fn describe(bundle: &Bundle, signed: bool) -> String {
    let manifest = bundle.manifest();
    let mut text = String::new();
    let mut row = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _infallible = writeln!(text, "{name:<15}{value}");
    };
    let input = &manifest.input;
    let golden = &manifest.golden;
    let origin = match golden.kind {
        GoldenKind::Given => "given",
        GoldenKind::Calibration => "from the calibration pictures",
        GoldenKind::Synthetic => "drawn by edge-build",
    };
    row("name", &manifest.name);
    row("id", bundle.id());
    row("target", &format!("{} ({})", manifest.target.platform, manifest.target.flavour));
    row("built by", &format!("edge-build {}, schema {}", manifest.edge_build, manifest.schema));
    let source = &manifest.source;
    let by = if source.producer.is_empty() { String::new() } else { format!(", written by {}", source.producer) };
    let kind = match source.opset {
        Source::NO_MODEL => "a plan made elsewhere".to_owned(),
        opset => format!("opset {opset}"),
    };
    row("model", &format!("{}, {kind}{by}", source.file_name));
    row("model sha256", &manifest.source.sha256);
    row(
        "input",
        &format!(
            "`{}`: batch {}, {} channels, {} px, {:?}",
            input.name, input.batch, input.channels, input.size, input.element
        ),
    );
    row("output", &layout_text(&manifest.layout));
    row("classes", &class_text(&manifest.classes));
    row("precision", &precision_text(manifest));
    row("thresholds", &threshold_text(manifest));
    row(
        "reference",
        &manifest.guard.reference.as_ref().map_or_else(|| "none: soft checks only observe".to_owned(), reference_text),
    );
    row("gate", &manifest.gate.as_ref().map_or_else(|| "none: no pictures judged a precision".to_owned(), gate_text));
    row("decision", if manifest.decision.is_some() { "by the recipe's rule" } else { "none" });
    if let Some(rules) = &manifest.reload {
        let what = format!("{} shadow frames, agreement {}", rules.shadow_frames, rules.agreement);
        row("reload", &what);
    }
    row(
        "known answers",
        &format!(
            "{} pictures {origin}, answered by {}, tolerance {:.2} px and {}",
            golden.frames.len(),
            golden.answered_by,
            golden.tolerance_px,
            golden.tolerance_score
        ),
    );
    let plans = bundle.plan_names().collect::<Vec<_>>();
    if plans.is_empty() {
        row(
            "plans",
            if manifest.target.flavour == "cpu" { "none needed" } else { "none yet: `edge-build finish` adds one" },
        );
    }
    for name in plans {
        match bundle.plan(name) {
            Ok((facts, _)) => {
                row("plan", &plan_text(name, &facts));
                if let Some(gate) = &facts.gate {
                    row("plan's gate", &gate_text(gate));
                }
            }
            Err(error) => row("plan", &format!("{name}: not usable: {}", error.message())),
        }
    }
    row("signature", if signed { "present, not checked here" } else { "none" });
    row("cache key", &manifest.cache_key);
    for line in &manifest.decided {
        row("decided", line);
    }
    for (name, entry) in &manifest.files {
        row("file", &format!("{name}, {}", Bytes(entry.bytes)));
    }
    text
}

/// What was judged, by what, with what result.
fn gate_text(gate: &GateResult) -> String {
    let by = match &gate.plan {
        Some(plan) => format!("plan `{}` by {} on {}", plan.name, plan.tensorrt, plan.gpu),
        None => format!("{} by {}", gate.judged, gate.backend),
    };
    let map50 = match (gate.original.map50, gate.candidate.map50) {
        (Some(before), Some(after)) => format!("mAP50 {before:.4} → {after:.4}, "),
        _ => String::new(),
    };
    let (before, after) = (&gate.original.operating, &gate.candidate.operating);
    format!(
        "{}: {by}; {} pictures, true by {}: {map50}found {} → {} of {}, false boxes {} → {}",
        if gate.passed() { "passed" } else { "failed" },
        gate.pictures,
        gate.truth,
        before.found,
        after.found,
        before.labels,
        before.false_boxes,
        after.false_boxes
    )
}

fn plan_text(name: &str, facts: &PlanFacts) -> String {
    let on = facts
        .made_on
        .as_deref()
        .map_or_else(|| "made without a GPU, or elsewhere".to_owned(), |gpu| format!("made on {gpu}"));
    let product = facts.flavour.parse::<Flavour>().map_or("TensorRT", Flavour::product);
    format!(
        "`{name}`: {}, {product} {}, compute capability {}, workspace {}, {on}",
        Bytes(facts.bytes),
        facts.tensorrt,
        facts.compute_capability,
        facts.workspace
    )
}

fn layout_text(layout: &Layout) -> String {
    let kind = match layout {
        Layout::Raw { .. } => "raw boxes and class scores, NMS by this program",
        Layout::Objectness { .. } => "boxes with objectness, NMS by this program",
        Layout::EndToEnd { .. } => "end-to-end rows, no NMS",
        Layout::NmsPlugin { .. } => "four outputs of the NMS plugin",
    };
    format!("{kind}; {} classes, {} rows a picture", layout.classes(), layout.capacity())
}

fn class_text(classes: &[String]) -> String {
    const SHOWN: usize = 12;
    let shown = classes.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if classes.len() > SHOWN { format!("{shown}, … {} in all", classes.len()) } else { shown }
}

fn precision_text(manifest: &Manifest) -> String {
    let found: Vec<_> =
        manifest.precision.found.iter().map(|(name, layers)| format!("{name}: {layers} layers")).collect();
    if found.is_empty() {
        manifest.precision.asked.clone()
    } else {
        format!("{} ({})", manifest.precision.asked, found.join(", "))
    }
}

fn threshold_text(manifest: &Manifest) -> String {
    let thresholds = &manifest.thresholds;
    let own: Vec<_> = thresholds.score_by_class.iter().map(|(class, score)| format!("{class} {score}")).collect();
    let own = if own.is_empty() { String::new() } else { format!(" ({})", own.join(", ")) };
    format!("score {}{own}, IoU {}, at most {} boxes", thresholds.score, thresholds.iou, thresholds.boxes)
}

fn reference_text(reference: &Reference) -> String {
    let few = if reference.pictures < count(10) { " (few)" } else { "" };
    format!(
        "{} pictures{few}; boxes {:.0} to {:.0}, median {:.0}; brightness {:.0} to {:.0}",
        reference.pictures,
        reference.boxes.minimum,
        reference.boxes.maximum,
        reference.boxes.median,
        reference.brightness.minimum,
        reference.brightness.maximum
    )
}
