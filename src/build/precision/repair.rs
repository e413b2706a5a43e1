//! INT8 that fails the gate: which layers do harm, and putting them back into float, the worst first, until it passes.

use super::fp16::Ranges;
use super::placement::Placement;
use super::sensitivity::{Part, Sensitivity};
use super::{ActivationScale, Built, Quantised, Task, Verdict, bias, build_int8};
use crate::build::gate::{Gate, Judged};
use crate::build::watcher::Watcher;
use crate::error::Result;
use crate::onnx::Model;
use crate::onnx::shapes::Shapes;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Most tries of the whole gate.
const MOST_STEPS: usize = 6;
/// Most further tries after one that passed, for parts of the last group that need not stay in float.
const MOST_FINER: usize = 2;
/// Most tries after those, each without one part of any group.
const MOST_SINGLE: usize = 3;
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
    /// The placement with nothing kept in float.
    pub(super) widest: &'a Placement,
    pub(super) ranges: &'a BTreeMap<String, ActivationScale>,
    /// Largest magnitudes of all tensors, where the rest becomes half.
    pub(super) seen: Option<&'a Ranges>,
    pub(super) calibration: &'a super::Usable,
}

/// Layers that stay in float, each with why.
pub(super) type Kept = BTreeMap<String, String>;

/// Builds and judges; while the gate fails, puts the worst parts back into float; of the parts that made it pass, takes back into INT8
/// those that it passes without.
pub(super) fn until_it_passes(
    plan: &Plan<'_>,
    gate: Option<Gate<'_>>,
    watcher: &mut dyn Watcher,
) -> Result<(Built, Option<Verdict>, Vec<Step>)> {
    let mut sensitivity = Sensitivity::of(plan)?;
    let dear = sensitivity.dear_for_little(watcher)?;
    let mut kept = dear.clone();
    let Some(gate) = gate else { return Ok((plan.build(&kept, watcher)?, None, Vec::new())) };
    let mut tries = Tries { plan, gate, steps: Vec::new(), start: Instant::now() };
    let mut before = Kept::new();
    let mut found = tries.judge(&kept, Change::default(), watcher)?;
    let mut ranking: Option<Vec<Part>> = None;
    let (mut group, mut put_back): (Vec<Part>, Vec<Part>) = (Vec::new(), Vec::new());
    while !found.passed() && tries.may_go_on(MOST_STEPS) {
        let parts = match &mut ranking {
            Some(parts) => parts,
            None => ranking.insert(sensitivity.rank(&kept, watcher)?),
        };
        // One part first, then more at a time: every try of the gate costs minutes.
        group = parts.drain(..parts.len().min(1 << (tries.steps.len() - 1).min(3))).collect();
        if group.is_empty() {
            break;
        }
        watcher.say(&format!("repair: {} put back into float", names(&group).join(", ")));
        before.clone_from(&kept);
        kept = with(&before, &group);
        put_back.extend(group.iter().cloned());
        found = tries.judge(&kept, Change { put_back: names(&group), taken_again: Vec::new() }, watcher)?;
    }
    if found.passed() && group.len() > 1 {
        let (fewer, needed) = tries.with_fewest(found, &before, &group, watcher)?;
        found = fewer;
        put_back.truncate(put_back.len() - group.len() + needed);
    }
    if found.passed() {
        found = tries.without_singles(found, &dear, put_back, watcher)?;
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
        let built = self.plan.build(kept, watcher)?;
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
    /// which it passes, and how many those are.
    fn with_fewest(
        &mut self,
        all: Tried,
        before: &Kept,
        group: &[Part],
        watcher: &mut dyn Watcher,
    ) -> Result<(Tried, usize)> {
        let (mut best, most) = (all, self.steps.len() + MOST_FINER);
        let mut last = group.len();
        let needed = fewest(group.len(), |some| {
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
        Ok((best, needed))
    }

    /// `all` passed with `dear` and `put_back` in float: takes single parts back into INT8, that with most arithmetic first, and leaves
    /// those there without which it passes. The last of `put_back` is not tried: without it the gate has failed.
    fn without_singles(
        &mut self,
        all: Tried,
        dear: &Kept,
        mut put_back: Vec<Part>,
        watcher: &mut dyn Watcher,
    ) -> Result<Tried> {
        let (mut best, most) = (all, self.steps.len() + MOST_SINGLE);
        let mut open = put_back.clone();
        open.pop();
        open.sort_by(|one, other| other.share().total_cmp(&one.share()));
        for part in open {
            if !self.may_go_on(most) {
                break;
            }
            watcher.say(&format!("repair: {} taken back into INT8", part.name));
            let fewer: Vec<Part> = put_back.iter().filter(|other| other.name != part.name).cloned().collect();
            let change = Change { put_back: Vec::new(), taken_again: vec![part.name] };
            let tried = self.judge(&with(dear, &fewer), change, watcher)?;
            if tried.passed() {
                (best, put_back) = (tried, fewer);
            }
        }
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
        let reason = format!("put back: part `{}` moved answers by {:.4} alone", part.name, part.harm());
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

impl<'a> Plan<'a> {
    fn build(&self, kept: &Kept, watcher: &mut dyn Watcher) -> Result<Built> {
        let mut quantised = self.quantise(kept)?;
        let pictures = self.calibration.thinned(bias::PICTURES);
        let observation = super::observation(self.task, self.model, self.shapes, &pictures);
        let corrected = bias::correct(&mut quantised.model, &observation, watcher)?;
        Built::of(quantised, corrected, self.task, self.seen)
    }

    pub(super) fn quantise(&self, kept: &Kept) -> Result<Quantised> {
        build_int8(self.model, self.shapes, self.ranges, kept, &self.task.rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
