//! INT8 that fails the gate: which layers do harm, and putting them back into float, the worst first, until it passes.

use super::fp16::Ranges;
use super::{ActivationScale, Built, Observation, Quantised, Task, Verdict, build_int8};
use crate::build::gate::{Gate, Judged};
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
/// Most further tries after one that passed, for parts that need not stay in float.
const MOST_FINER: usize = 2;
/// Time after which no further step is begun.
const TIME_LIMIT: Duration = Duration::from_secs(900);

/// One try.
#[derive(Debug, Clone, Serialize)]
pub(in crate::build) struct Step {
    /// Parts of the network that were put back into float in this step.
    pub(in crate::build) put_back: Vec<String>,
    /// Parts that were taken back into INT8 in this step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::build) taken_again: Vec<String>,
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

/// Layers that stay in float, each with why.
type Kept = BTreeMap<String, String>;

/// Builds and judges; while the gate fails, puts the worst parts back into float; of the parts that made it pass, takes back into INT8
/// those that it passes without.
pub(super) fn until_it_passes(
    plan: &Plan<'_>,
    gate: Option<Gate<'_>>,
    watcher: &mut dyn Watcher,
) -> Result<(Built, Option<Verdict>, Vec<Step>)> {
    let Some(gate) = gate else { return Ok((plan.build(&Kept::new())?, None, Vec::new())) };
    let mut tries = Tries { plan, gate, steps: Vec::new(), start: Instant::now() };
    let (mut before, mut kept) = (Kept::new(), Kept::new());
    let mut found = tries.judge(&kept, Change::default(), watcher)?;
    let mut ranking: Option<Vec<Part>> = None;
    let mut group: Vec<Part> = Vec::new();
    while !found.passed() && tries.may_go_on(MOST_STEPS) {
        let parts = match &mut ranking {
            Some(parts) => parts,
            None => ranking.insert(plan.rank(&found.built, watcher)?),
        };
        // One part first, then more at a time: every try of the gate costs minutes.
        group = parts.drain(..parts.len().min(1 << (tries.steps.len() - 1).min(3))).collect();
        if group.is_empty() {
            break;
        }
        watcher.say(&format!("repair: {} put back into float", names(&group).join(", ")));
        before.clone_from(&kept);
        kept = with(&before, &group);
        found = tries.judge(&kept, Change { put_back: names(&group), taken_again: Vec::new() }, watcher)?;
    }
    if found.passed() && group.len() > 1 {
        found = tries.with_fewest(found, &before, &group, watcher)?;
    }
    let Tries { gate, steps, .. } = tries;
    Ok((found.built, Some(Verdict { judged: found.judged, ground: gate.into_ground() }), steps))
}

/// What was tried so far.
struct Tries<'a> {
    plan: &'a Plan<'a>,
    gate: Gate<'a>,
    steps: Vec<Step>,
    start: Instant,
}

/// A try.
struct Tried {
    built: Built,
    judged: Judged,
}

impl Tried {
    fn passed(&self) -> bool {
        self.judged.result.passed()
    }
}

/// How a try differs from the one before.
#[derive(Default)]
struct Change {
    put_back: Vec<String>,
    taken_again: Vec<String>,
}

impl Tries<'_> {
    fn may_go_on(&self, most: usize) -> bool {
        self.steps.len() < most && self.start.elapsed() <= TIME_LIMIT
    }

    fn judge(&mut self, kept: &Kept, change: Change, watcher: &mut dyn Watcher) -> Result<Tried> {
        let built = self.plan.build(kept)?;
        let judged = self.gate.judge(&built.bytes, built.half.is_some(), watcher)?;
        let figures = &judged.result.candidate;
        let share = built.placement.share();
        self.steps.push(Step {
            put_back: change.put_back,
            taken_again: change.taken_again,
            int8_share: share,
            estimated_time: 1.0 - 0.75 * share,
            map50: figures.map50,
            found: figures.operating.found,
            false_boxes: figures.operating.false_boxes,
            passed: judged.result.passed(),
        });
        say_step(&self.steps, watcher);
        Ok(Tried { built, judged })
    }

    /// `all` passed with the whole of `group` in float, and failed with `before` alone: looks for the fewest of its worst parts with
    /// which it passes.
    fn with_fewest(&mut self, all: Tried, before: &Kept, group: &[Part], watcher: &mut dyn Watcher) -> Result<Tried> {
        let (mut best, most) = (all, self.steps.len() + MOST_FINER);
        let mut last = group.len();
        fewest(group.len(), |some| {
            if !self.may_go_on(most) {
                return Ok(None);
            }
            let change = Change {
                put_back: names(group.get(last..some).unwrap_or_default()),
                taken_again: names(group.get(some..last).unwrap_or_default()),
            };
            let how = if some < last { "taken back into INT8" } else { "put back into float" };
            let moved = [&change.put_back[..], &change.taken_again[..]].concat();
            watcher.say(&format!("repair: {} {how}", moved.join(", ")));
            last = some;
            let kept = with(before, group.get(..some).unwrap_or_default());
            let tried = self.judge(&kept, change, watcher)?;
            let passed = tried.passed();
            if passed {
                best = tried;
            }
            Ok(Some(passed))
        })?;
        Ok(best)
    }
}

/// The smallest number from 1 to `all` that passes, by halving; 0 is known to fail and `all` to pass. A try that gives `None` ends it.
fn fewest(all: usize, mut passes: impl FnMut(usize) -> Result<Option<bool>>) -> Result<usize> {
    let (mut failing, mut passing) = (0, all);
    while passing - failing > 1 {
        let middle = failing + (passing - failing) / 2;
        match passes(middle)? {
            Some(true) => passing = middle,
            Some(false) => failing = middle,
            None => break,
        }
    }
    Ok(passing)
}

fn names(parts: &[Part]) -> Vec<String> {
    parts.iter().map(|part| part.name.clone()).collect()
}

/// `kept` and the layers of `parts`.
fn with(kept: &Kept, parts: &[Part]) -> Kept {
    let mut kept = kept.clone();
    for part in parts {
        let reason = format!("put back: part `{}` moved answers by {:.4} alone", part.name, part.harm);
        kept.extend(part.layers.iter().map(|layer| (layer.clone(), reason.clone())));
    }
    kept
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
        build_int8(self.model, self.shapes, self.ranges, kept, &self.task.rules)
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
    fn the_fewest_parts_are_found_by_halving() {
        for all in 1..=8 {
            for needed in 1..=all {
                let mut tried = 0;
                let found = fewest(all, |some| {
                    tried += 1;
                    Ok(Some(some >= needed))
                });
                assert_eq!(found.unwrap(), needed, "of {all}");
                assert!(tried <= 3, "{tried} tries for {all}");
            }
        }
        assert_eq!(fewest(4, |_| Ok(None)).unwrap(), 4, "out of time: what passed stays");
    }

    #[test]
    fn errors_are_relative() {
        let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
        close(relative_error(&[vec![3.0, 4.0]], &[vec![3.0, 4.0]]), 0.0);
        close(relative_error(&[vec![3.0, 4.0]], &[vec![3.0, 3.0]]), 0.2);
    }
}
