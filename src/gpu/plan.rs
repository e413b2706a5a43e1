//! The memory plan: what an engine will take on the GPU, line by line, against the budget.

use crate::error::{Error, ErrorKind, Result};
use crate::ffi::lane::{LaneLayout, LaneShape};
use crate::units::{Bytes, count, index};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The plan's line for the CUDA context.
const CONTEXT: &str = "CUDA context and libraries";
/// The plan's line for code and granularity.
pub const LIBRARIES: &str = "code of kernels";
/// The plan's line for weights.
pub const WEIGHTS: &str = "weights";
/// The plan's line for pictures on their way to the device.
const STAGING: &str = "staging of pictures";

/// Where the figures come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// From the graph's shapes, before anything is built.
    Estimate,
    /// From the plan and the driver, measured when it was loaded.
    Measured,
}

/// What a plan is made of, for one context unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryInputs {
    /// Where the figures come from.
    pub basis: Basis,
    /// Weights as the engine holds them, once for all contexts.
    pub weights: Bytes,
    /// TensorRT's scratch memory.
    pub activations: Bytes,
    /// Each input and output.
    pub tensors: Vec<Bytes>,
    /// Sizes of the lane.
    pub shape: LaneShape,
    /// CUDA context and, where it was measured, what other programs had; once for the process. In an estimate with what libraries take.
    pub overhead: Bytes,
    /// Code of kernels and libraries and the driver's granularity, measured; 0 in an estimate.
    pub libraries: Bytes,
    /// Contexts: runs that can be in flight at once.
    pub contexts: u32,
    /// What may be taken.
    pub budget: Bytes,
    /// Use above this share of the budget raises the alarm, percent.
    pub alarm_percent: u32,
}

/// One line of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanLine {
    /// What it is for.
    pub what: String,
    /// How often it is needed.
    pub times: u32,
    /// Bytes of one.
    pub each: Bytes,
}

/// Whether a new engine fits beside the old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reload {
    /// It does: the old one runs until the new one has proved itself.
    Beside,
    /// It does not: the old one goes first, and the line waits.
    WithGap,
}

/// What an engine takes on the GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryPlan {
    /// Where the figures come from.
    pub basis: Basis,
    /// The lines.
    pub lines: Vec<PlanLine>,
    /// Their sum.
    pub total: Bytes,
    /// What may be taken.
    pub budget: Bytes,
    /// Use above this raises the alarm.
    pub alarm: Bytes,
    /// With a second engine beside the first.
    pub reload_total: Bytes,
    /// Whether that fits.
    pub reload: Reload,
}

impl MemoryPlan {
    /// The plan of `inputs`.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] for sizes that no memory holds.
    pub fn of(inputs: &MemoryInputs) -> Result<MemoryPlan> {
        let tensors: Vec<usize> =
            inputs.tensors.iter().map(|bytes| usize::try_from(bytes.0).unwrap_or(usize::MAX)).collect();
        let activations = usize::try_from(inputs.activations.0).unwrap_or(usize::MAX);
        let layout = LaneLayout::new(inputs.shape.clone(), &tensors, activations, 0)?;
        let candidates = layout.keys.bytes + layout.class_ids.bytes + layout.partials.bytes;
        let answers = layout.answers.bytes + layout.rest.map_or(0, |rest| rest.bytes);
        let staging: usize = layout.stagings().map(|section| section.bytes).sum();
        let named = tensors.iter().sum::<usize>() + activations + staging + candidates + answers;
        let contexts = inputs.contexts.max(1);
        let line =
            |what: &str, times: u32, each: usize| PlanLine { what: what.into(), times, each: Bytes(count(each)) };
        let mut lines = vec![
            PlanLine { what: CONTEXT.into(), times: 1, each: inputs.overhead },
            PlanLine { what: LIBRARIES.into(), times: 1, each: inputs.libraries },
            PlanLine { what: WEIGHTS.into(), times: 1, each: inputs.weights },
            line("activations", contexts, activations),
            line("inputs and outputs", contexts, tensors.iter().sum()),
            line(STAGING, contexts, staging),
            line("candidates", contexts, candidates),
            line("answers", contexts, answers),
            line("alignment", contexts, layout.end - named),
        ];
        lines.retain(|line| line.what != LIBRARIES || line.each.0 > 0);
        let alarm = Bytes(inputs.budget.0 / 100 * u64::from(inputs.alarm_percent));
        Ok(MemoryPlan::adding_up(inputs.basis, lines, inputs.budget, alarm))
    }

    fn adding_up(basis: Basis, lines: Vec<PlanLine>, budget: Bytes, alarm: Bytes) -> MemoryPlan {
        let bytes = |line: &PlanLine| line.each.0.saturating_mul(line.times.into());
        let total = lines.iter().fold(0_u64, |sum, line| sum.saturating_add(bytes(line)));
        let once: u64 = lines.iter().filter(|line| [CONTEXT, LIBRARIES].contains(&line.what.as_str())).map(bytes).sum();
        let reload_total = total.saturating_add(total.saturating_sub(once));
        MemoryPlan {
            basis,
            total: Bytes(total),
            budget,
            alarm,
            reload_total: Bytes(reload_total),
            reload: if reload_total <= budget.0 { Reload::Beside } else { Reload::WithGap },
            lines,
        }
    }

    /// The same with `lanes` runs in flight in place of one; with `ahead` each of them holds a second staging memory, for the
    /// pictures of the next batch.
    #[must_use]
    pub fn with_lanes(&self, lanes: u32, ahead: bool) -> MemoryPlan {
        let mut lines = self.lines.clone();
        for line in lines.iter_mut().filter(|line| ![CONTEXT, LIBRARIES, WEIGHTS].contains(&line.what.as_str())) {
            line.times = lanes.max(1) * if ahead && line.what == STAGING { 2 } else { 1 };
        }
        MemoryPlan::adding_up(self.basis, lines, self.budget, self.alarm)
    }

    /// Bytes of one line, all times together; 0 when it has none.
    pub fn line(&self, what: &str) -> Bytes {
        let found = self.lines.iter().filter(|line| line.what == what);
        Bytes(found.map(|line| line.each.0.saturating_mul(line.times.into())).sum())
    }

    /// The plan without what other processes had on the device when it was measured.
    #[must_use]
    pub fn without(mut self, others: Bytes) -> MemoryPlan {
        if let Some(context) = self.lines.iter_mut().find(|line| line.what == CONTEXT) {
            let less = context.each.0.min(others.0);
            context.each.0 -= less;
            self.total.0 = self.total.0.saturating_sub(less);
            self.reload_total.0 = self.reload_total.0.saturating_sub(less);
            self.reload = if self.reload_total <= self.budget { Reload::Beside } else { Reload::WithGap };
        }
        self
    }

    /// The CUDA context with TensorRT's libraries, once for the process.
    pub fn context(&self) -> Bytes {
        self.line(CONTEXT)
    }

    /// What appears on the device while the engine is loaded: all but the CUDA context.
    pub fn appearing(&self) -> Bytes {
        Bytes(self.total.0.saturating_sub(self.context().0))
    }

    /// Whether it fits the budget.
    pub fn fits(&self) -> bool {
        self.total <= self.budget
    }

    /// The plan as a table for people.
    pub fn to_table(&self) -> String {
        let basis = match self.basis {
            Basis::Estimate => "estimated from the graph",
            Basis::Measured => "measured",
        };
        let mut text = format!("GPU memory, {basis}:\n");
        let mut row = |what: &str, times: u32, each: Option<Bytes>, all: Bytes| {
            let times = if times > 1 { format!("{times} ×") } else { String::new() };
            let each = each.filter(|_| !times.is_empty()).map(|each| each.to_string()).unwrap_or_default();
            let _infallible = writeln!(text, "  {what:<28} {times:>4} {each:>11} {:>11}", all.to_string());
        };
        for line in &self.lines {
            let all = Bytes(line.each.0.saturating_mul(line.times.into()));
            row(&line.what, line.times, Some(line.each), all);
        }
        row("total", 1, None, self.total);
        row("budget", 1, None, self.budget);
        row("alarm above", 1, None, self.alarm);
        row("while reloading", 1, None, self.reload_total);
        let verdict = match (self.fits(), self.reload) {
            (false, _) => "does not fit the budget",
            (true, Reload::Beside) => "fits; a new engine fits beside the old one",
            (true, Reload::WithGap) => "fits; a reload needs a gap: two engines do not fit",
        };
        let _infallible = writeln!(text, "  {verdict}");
        text
    }
}

impl MemoryInputs {
    /// The plan, when it fits.
    ///
    /// # Errors
    /// [`ErrorKind::Budget`] with what would fit: the largest batch, input size and precision.
    pub fn checked(&self) -> Result<MemoryPlan> {
        let plan = MemoryPlan::of(self)?;
        if plan.fits() {
            return Ok(plan);
        }
        let fitting = self.what_fits();
        let hint = if fitting.is_empty() {
            "nothing smaller fits either: raise `--gpu-budget` or take a larger GPU".to_owned()
        } else {
            format!("what would fit: {}", fitting.join("; "))
        };
        Err(Error::new(
            ErrorKind::Budget,
            format!("found a need of {} GPU memory, expected at most the budget of {}", plan.total, plan.budget),
        )
        .hint(hint))
    }

    /// Smaller builds that fit, in words, one for each thing that can be made smaller.
    fn what_fits(&self) -> Vec<String> {
        let mut found = vec![];
        let fits = |inputs: &MemoryInputs| MemoryPlan::of(inputs).is_ok_and(|plan| plan.fits());
        if let Some(batch) = (1..self.shape.batch).rev().find(|&batch| fits(&self.with_batch(batch))) {
            found.push(format!("batch {batch}"));
        }
        let size = (1..self.shape.width.max(self.shape.height) / 32).rev().map(|steps| steps * 32);
        if let Some(smaller) = size.map(|longer| self.with_longer_side(longer)).find(|smaller| fits(smaller)) {
            found.push(format!("input {}×{}", smaller.shape.width, smaller.shape.height));
        }
        if fits(&self.with_half_precision()) {
            found.push("FP16 instead of FP32".to_owned());
        }
        if self.contexts > 1 && fits(&MemoryInputs { contexts: 1, ..self.clone() }) {
            found.push("one context".to_owned());
        }
        found
    }

    fn scaled(&self, part: u64, of: u64) -> MemoryInputs {
        let scale = |bytes: Bytes| {
            Bytes(u64::try_from(u128::from(bytes.0) * u128::from(part) / u128::from(of.max(1))).unwrap_or(u64::MAX))
        };
        MemoryInputs {
            activations: scale(self.activations),
            tensors: self.tensors.iter().copied().map(scale).collect(),
            ..self.clone()
        }
    }

    /// The same at another batch, scaled.
    pub(crate) fn with_batch(&self, batch: u32) -> MemoryInputs {
        let mut inputs = self.scaled(batch.into(), self.shape.batch.into());
        inputs.shape.batch = batch;
        inputs
    }

    /// The same with another longer side of the input, scaled by area.
    pub(crate) fn with_longer_side(&self, longer: u32) -> MemoryInputs {
        let now = self.shape.width.max(self.shape.height);
        let side = |length: u32| (length * longer / now.max(1)).next_multiple_of(32);
        let (width, height) = (side(self.shape.width), side(self.shape.height));
        let area = |width: u32, height: u32| u64::from(width) * u64::from(height);
        let (part, of) = (area(width, height), area(self.shape.width, self.shape.height));
        let mut inputs = self.scaled(part, of);
        inputs.shape.width = width;
        inputs.shape.height = height;
        let anchors = u64::from(self.shape.anchors) * part / of.max(1);
        inputs.shape.anchors = u32::try_from(anchors).unwrap_or(u32::MAX).max(1);
        inputs.shape.cap = self.shape.cap.min(inputs.shape.anchors);
        inputs
    }

    fn with_half_precision(&self) -> MemoryInputs {
        MemoryInputs { weights: Bytes(self.weights.0 / 2), activations: Bytes(self.activations.0 / 2), ..self.clone() }
    }

    /// Room for the pixels of one picture, bytes.
    pub fn picture_bytes(&self) -> u64 {
        count(index(self.shape.batch) * self.shape.picture_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs() -> MemoryInputs {
        MemoryInputs {
            basis: Basis::Estimate,
            weights: Bytes(12_800_000),
            activations: Bytes(13_107_200 * 4),
            tensors: vec![Bytes(4 * 4 * 3 * 640 * 640), Bytes(4 * 4 * 10 * 8400)],
            shape: LaneShape {
                batch: 4,
                channels: 3,
                width: 640,
                height: 640,
                picture_bytes: 1920 * 1080 * 3,
                anchors: 8400,
                cap: 8400,
                ahead: false,
            },
            overhead: Bytes::mib(400),
            libraries: Bytes(0),
            contexts: 2,
            budget: Bytes::gib(2),
            alarm_percent: 85,
        }
    }

    #[test]
    fn the_table_is_as_it_was() {
        insta::assert_snapshot!(inputs().checked().unwrap().to_table());
    }

    #[test]
    fn lines_add_up_and_a_reload_counts_the_libraries_once() {
        let plan = MemoryPlan::of(&inputs()).unwrap();
        let sum: u64 = plan.lines.iter().map(|line| line.each.0 * u64::from(line.times)).sum();
        assert_eq!(plan.total.0, sum);
        assert_eq!(plan.reload_total.0, 2 * sum - Bytes::mib(400).0);
        assert_eq!(plan.reload, Reload::Beside);
        let tight = MemoryInputs { budget: Bytes(plan.total.0), ..inputs() };
        assert_eq!(MemoryPlan::of(&tight).unwrap().reload, Reload::WithGap);
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<MemoryPlan>(&json).unwrap(), plan);
    }

    /// What is kept is the plan of one lane; what is loaded may be more, and the books must know.
    #[test]
    fn a_plan_of_one_lane_tells_that_of_several() {
        let of = |contexts, ahead| {
            let shape = LaneShape { ahead, ..inputs().shape };
            MemoryPlan::of(&MemoryInputs { contexts, shape, libraries: Bytes::mib(12), ..inputs() }).unwrap()
        };
        let one = of(1, false);
        for (lanes, ahead) in [(1, false), (2, false), (2, true), (3, true)] {
            let (told, laid_out) = (one.with_lanes(lanes, ahead), of(lanes, ahead));
            let apart = told.total.0.abs_diff(laid_out.total.0);
            assert!(apart < 4096, "{lanes} lanes, ahead {ahead}: {} and {}", told.total, laid_out.total);
            assert!(told.reload_total.0.abs_diff(laid_out.reload_total.0) < 8192);
            assert_eq!(told.reload, laid_out.reload);
        }
        assert_eq!(one.with_lanes(1, false), one);
        assert!(one.with_lanes(2, true).total.0 > one.with_lanes(2, false).total.0 + 2 * 1920 * 1080 * 3);
    }

    #[test]
    fn what_appears_while_loading_is_all_but_the_context() {
        let inputs = MemoryInputs { libraries: Bytes::mib(12), basis: Basis::Measured, ..inputs() };
        let plan = MemoryPlan::of(&inputs).unwrap();
        assert_eq!(plan.appearing().0, plan.total.0 - Bytes::mib(400).0);
        assert_eq!((plan.line(LIBRARIES), plan.line(WEIGHTS)), (Bytes::mib(12), Bytes(12_800_000)));
        assert_eq!(plan.reload_total.0, 2 * plan.total.0 - Bytes::mib(412).0);
        assert!(plan.to_table().contains("code of kernels"));
        let alone = plan.clone().without(Bytes::mib(150));
        assert_eq!(
            (alone.total.0, alone.reload_total.0),
            (plan.total.0 - (150 << 20), plan.reload_total.0 - (150 << 20))
        );
        assert_eq!((alone.line(CONTEXT), alone.appearing()), (Bytes::mib(250), plan.appearing()));
        assert_eq!(plan.without(Bytes::gib(9)).line(CONTEXT), Bytes(0));
    }

    #[test]
    fn a_refusal_lists_what_would_fit_and_that_is_true() {
        let total = MemoryPlan::of(&inputs()).unwrap().total;
        let small = MemoryInputs { budget: Bytes(total.0 - Bytes::mib(40).0), ..inputs() };
        let error = small.checked().unwrap_err();
        assert_eq!(error.kind().exit_code(), 4);
        let hint = error.hint_text().unwrap();
        for word in ["batch 3", "input ", "FP16", "one context"] {
            assert!(hint.contains(word), "{hint}");
        }
        assert!(small.with_batch(3).checked().is_ok() && small.with_batch(4).checked().is_err());
        let none = MemoryInputs { budget: Bytes::mib(1), ..inputs() };
        assert!(none.checked().unwrap_err().hint_text().unwrap().contains("nothing smaller fits"));
    }
}
