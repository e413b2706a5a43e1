//! INT8 that fails the gate: which layers do harm, and putting them back into float, the worst first, until it passes.

use super::fp16::Ranges;
use super::{ActivationScale, Built, Observation, Quantised, Task, Verdict, build_int8};
use crate::build::gate::Gate;
use crate::build::watcher::Watcher;
use crate::error::Result;
use crate::onnx::Model;
use crate::onnx::shapes::Shapes;
use crate::units::{count, length};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Calibration pictures on which the harm of a part is measured.
const PICTURES: usize = 8;
/// Most tries of the whole gate.
const MOST_STEPS: usize = 6;
/// Time after which no further step is begun.
const TIME_LIMIT: Duration = Duration::from_secs(900);

/// One try.
#[derive(Debug, Clone, Serialize)]
pub(in crate::build) struct Step {
    /// Parts of the network that were put back into float in this step.
    pub(in crate::build) put_back: Vec<String>,
    /// Share of the convolutions' arithmetic in INT8, 0..1.
    pub(in crate::build) int8_share: f64,
    /// Estimated time of the convolutions against all in float, where INT8 takes half the time of FP16 and a quarter of FP32.
    pub(in crate::build) estimated_time: f64,
    /// Mean average precision at an overlap of 0.5; `None` without labels.
    pub(in crate::build) map50: Option<f64>,
    /// True boxes found.
    pub(in crate::build) found: u64,
    /// False boxes.
    pub(in crate::build) false_boxes: u64,
    /// Whether the gate let it pass.
    pub(in crate::build) passed: bool,
}

/// What does not change from try to try.
pub(super) struct Plan<'a> {
    pub(super) task: Task<'a>,
    pub(super) model: &'a Model,
    pub(super) shapes: &'a Shapes,
    pub(super) ranges: &'a BTreeMap<String, ActivationScale>,
    /// Largest magnitudes of all tensors, where the rest becomes half.
    pub(super) seen: Option<&'a Ranges>,
    pub(super) calibration: &'a super::Usable,
}

/// Builds and judges; while the gate fails, puts the worst parts back into float.
pub(super) fn until_it_passes(
    plan: &Plan<'_>,
    gate: Option<Gate<'_>>,
    watcher: &mut dyn Watcher,
) -> Result<(Built, Option<Verdict>, Vec<Step>)> {
    let start = Instant::now();
    let mut kept: BTreeMap<String, String> = BTreeMap::new();
    let mut built = plan.build(&kept)?;
    let Some(mut gate) = gate else { return Ok((built, None, Vec::new())) };
    let mut steps = Vec::new();
    let mut put_back: Vec<String> = Vec::new();
    let mut ranking: Option<Vec<Part>> = None;
    loop {
        let judged = gate.judge(&built.bytes, built.half.is_some(), watcher)?;
        let passed = judged.result.passed();
        let figures = &judged.result.candidate;
        let share = built.placement.share();
        steps.push(Step {
            put_back: std::mem::take(&mut put_back),
            int8_share: share,
            estimated_time: 1.0 - 0.75 * share,
            map50: figures.map50,
            found: figures.operating.found,
            false_boxes: figures.operating.false_boxes,
            passed,
        });
        say_step(&steps, watcher);
        if passed || steps.len() >= MOST_STEPS || start.elapsed() > TIME_LIMIT {
            return Ok((built, Some(Verdict { judged, ground: gate.into_ground() }), steps));
        }
        let parts = match &mut ranking {
            Some(parts) => parts,
            None => ranking.insert(plan.rank(&built, watcher)?),
        };
        // One part first, then more at a time: every try of the gate costs minutes.
        for part in parts.drain(..parts.len().min(1 << (steps.len() - 1).min(3))) {
            let reason = format!("put back: part `{}` moved answers by {:.4} alone", part.name, part.harm);
            kept.extend(part.layers.into_iter().map(|layer| (layer, reason.clone())));
            put_back.push(part.name);
        }
        if put_back.is_empty() {
            return Ok((built, Some(Verdict { judged, ground: gate.into_ground() }), steps));
        }
        watcher.say(&format!("repair: {} put back into float", put_back.join(", ")));
        built = plan.build(&kept)?;
    }
}

fn say_step(steps: &[Step], watcher: &mut dyn Watcher) {
    if let Some(step) = steps.last() {
        let map50 = step.map50.map_or(String::new(), |map50| format!("mAP50 {map50:.4}, "));
        watcher.say(&format!(
            "gate {}: {map50}{} found, {} false boxes, {:.1} % of the convolutions in INT8",
            if step.passed { "passed" } else { "failed" },
            step.found,
            step.false_boxes,
            100.0 * step.int8_share
        ));
    }
}

/// Layers that are put back together: one module of the network.
struct Part {
    name: String,
    layers: Vec<String>,
    /// Relative error of the outputs when this part alone is in INT8.
    harm: f64,
}

impl Plan<'_> {
    fn build(&self, kept: &BTreeMap<String, String>) -> Result<Built> {
        Built::of(self.quantise(kept)?, self.task, self.seen)
    }

    fn quantise(&self, kept: &BTreeMap<String, String>) -> Result<Quantised> {
        build_int8(self.model, self.shapes, self.ranges, kept)
    }

    /// The parts by the harm that each does alone, the worst first.
    fn rank(&self, built: &Built, watcher: &mut dyn Watcher) -> Result<Vec<Part>> {
        let quantised: Vec<&str> = built
            .placement
            .layers
            .iter()
            .filter(|layer| layer.float.is_none())
            .map(|layer| layer.name.as_str())
            .collect();
        let mut parts: Vec<Part> = Vec::new();
        for layer in &quantised {
            let name = part_of(layer);
            match parts.iter_mut().find(|part| part.name == name) {
                Some(part) => part.layers.push((*layer).to_owned()),
                None => parts.push(Part { name, layers: vec![(*layer).to_owned()], harm: 0.0 }),
            }
        }
        let original = self.outputs(self.model)?;
        let total = count(parts.len());
        for (part, done) in parts.iter_mut().zip(1..) {
            watcher.check_stop()?;
            let others = quantised.iter().filter(|layer| !part.layers.iter().any(|own| own == *layer));
            let kept = others.map(|layer| ((*layer).to_owned(), String::new())).collect();
            let alone = self.quantise(&kept)?;
            part.harm = relative_error(&original, &self.outputs(&alone.model)?);
            log::info!("sensitivity: {done} of {total} parts");
        }
        watcher.say(&format!(
            "sensitivity: {total} parts measured on {} pictures",
            self.calibration.thinned(PICTURES).len()
        ));
        parts.sort_by(|one, other| other.harm.total_cmp(&one.harm));
        Ok(parts)
    }

    /// What the last convolutions give: box distributions and class scores before the sigmoid, picture by picture.
    fn outputs(&self, model: &Model) -> Result<Vec<Vec<f32>>> {
        let index = crate::onnx::index::GraphIndex::new(self.model.graph());
        let tail = super::tail::Tail::of(&index)?;
        let mut positions: Vec<usize> = tail.last_layers.into_iter().collect();
        positions.sort_unstable();
        let names: Vec<String> = positions
            .into_iter()
            .filter_map(|position| self.model.graph().node.get(position)?.output.first().cloned())
            .collect();
        let pictures = self.calibration.thinned(PICTURES);
        let observation =
            Observation { model, pictures: &pictures, ..super::observation(self.task, model, self.shapes, &pictures) };
        observation.values(&names)
    }
}

/// The module a layer belongs to, by its name: `/model.22/cv3.1/cv3.1.0/conv/Conv` → `model.22/cv3.1`, `/model.4/cv1/conv/Conv` →
/// `model.4`; the layer itself where names say nothing.
fn part_of(layer: &str) -> String {
    let mut steps = layer.split('/').filter(|step| !step.is_empty());
    match (steps.next(), steps.next(), steps.next(), steps.next()) {
        (Some(module), Some(branch), Some(_), Some(_)) if branch.contains('.') => format!("{module}/{branch}"),
        (Some(module), Some(_), ..) => module.to_owned(),
        _ => layer.to_owned(),
    }
}

/// Root of squared difference over squared values, mean over pictures.
fn relative_error(original: &[Vec<f32>], other: &[Vec<f32>]) -> f64 {
    let one = |(original, other): (&Vec<f32>, &Vec<f32>)| {
        let mut sums = (0.0_f64, 0.0_f64);
        for (&exact, &found) in original.iter().zip(other) {
            sums.0 += (f64::from(found) - f64::from(exact)).powi(2);
            sums.1 += f64::from(exact).powi(2);
        }
        if sums.1 > 0.0 { (sums.0 / sums.1).sqrt() } else { 0.0 }
    };
    original.iter().zip(other).map(one).sum::<f64>() / length(original.len().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_the_names_of_exports() {
        assert_eq!(part_of("/model.4/cv1/conv/Conv"), "model.4");
        assert_eq!(part_of("/model.22/cv3.1/cv3.1.0/conv/Conv"), "model.22/cv3.1");
        assert_eq!(part_of("Conv_17"), "Conv_17");
    }

    #[test]
    fn errors_are_relative() {
        let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
        close(relative_error(&[vec![3.0, 4.0]], &[vec![3.0, 4.0]]), 0.0);
        close(relative_error(&[vec![3.0, 4.0]], &[vec![3.0, 3.0]]), 0.2);
    }
}
