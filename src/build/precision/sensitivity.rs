//! Which parts of a network do harm in INT8: each is measured alone, on a few calibration pictures.

use super::repair::{Kept, Plan};
use super::{Observation, observation};
use crate::build::watcher::Watcher;
use crate::error::Result;
use crate::onnx::Model;
use crate::onnx::index::GraphIndex;
use crate::onnx::node;
use crate::units::{count, float64, length};
use std::ops::Range;

/// Calibration pictures on which the harm of a part is measured.
const PICTURES: usize = 8;
/// Error of the class scores that is worth a look before the gate has failed.
const LEAST_ERROR: f64 = 0.05;
/// Share of the class scores' squared error from which a part stays out of INT8 at once…
const DEAR: f64 = 0.4;
/// … when it holds at most this share of the convolutions' arithmetic; all such parts together hold no more than that.
const LITTLE: f64 = 0.05;

/// Layers that are put back together: one module of the network.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) layers: Vec<String>,
    /// Share of the convolutions' arithmetic.
    share: f64,
    /// Errors when this part alone is in INT8.
    found: Option<Harm>,
}

/// Relative errors: root of squared difference over squared values, mean over pictures.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Harm {
    /// Of what the last convolutions give: box distributions and class scores before the sigmoid.
    outputs: f64,
    /// Of the class scores, to which what is background adds little.
    scores: f64,
}

impl Part {
    /// Relative error of the outputs when this part alone is in INT8.
    pub(super) fn harm(&self) -> f64 {
        self.found.map_or(0.0, |harm| harm.outputs)
    }

    /// Share of the convolutions' arithmetic, 0..1.
    pub(super) fn share(&self) -> f64 {
        self.share
    }
}

/// The parts of one network, measured when asked for.
pub(super) struct Sensitivity<'a> {
    plan: &'a Plan<'a>,
    parts: Vec<Part>,
    /// Tensors that are compared: outputs of the last convolutions, then class scores.
    names: Vec<String>,
    /// Which of `names` are class scores.
    scores: Range<usize>,
    /// Picture → tensor → values of the export.
    original: Option<Vec<Vec<Vec<f32>>>>,
}

impl<'a> Sensitivity<'a> {
    /// The parts of what `plan` can put into INT8.
    pub(super) fn of(plan: &'a Plan<'a>) -> Result<Self> {
        let placement = plan.widest;
        let all: u64 = placement.layers.iter().map(|layer| layer.operations).sum();
        let mut parts: Vec<Part> = Vec::new();
        for layer in placement.layers.iter().filter(|layer| layer.float.is_none()) {
            let (name, share) = (part_of(&layer.name), float64(layer.operations) / float64(all.max(1)));
            match parts.iter_mut().find(|part| part.name == name) {
                Some(part) => {
                    part.layers.push(layer.name.clone());
                    part.share += share;
                }
                None => parts.push(Part { name, layers: vec![layer.name.clone()], share, found: None }),
            }
        }
        let index = GraphIndex::new(plan.model.graph());
        let tail = super::tail::Tail::of(&index)?;
        let nodes = plan.model.graph().node.iter().enumerate();
        let outputs = |wanted: &dyn Fn(usize, &str) -> bool| -> Vec<String> {
            let wanted = nodes.clone().filter(|(position, node)| wanted(*position, &node.op_type));
            wanted.filter_map(|(_, node)| node.output.first().cloned()).collect()
        };
        let mut names = outputs(&|position, _| tail.last_layers.contains(&position));
        let last = names.len();
        names.extend(outputs(&|position, operator| operator == "Sigmoid" && tail.nodes.contains(&position)));
        Ok(Sensitivity { plan, parts, scores: last..names.len(), names, original: None })
    }

    /// The parts that cost most of the class scores' accuracy and hold little of the arithmetic, the worst first: they stay in float
    /// whatever the gate says, which sees single boxes cross the threshold both ways, but no scores that all sink a little.
    pub(super) fn dear_for_little(&mut self, watcher: &mut dyn Watcher) -> Result<Kept> {
        let mut kept = Kept::new();
        if self.scores.is_empty() {
            return Ok(kept);
        }
        let whole = self.harm_of(&Kept::new())?.scores;
        if whole < LEAST_ERROR {
            return Ok(kept);
        }
        self.measure(|part| part.share <= LITTLE, watcher)?;
        for (part, error) in dear_for_little(&self.parts, whole) {
            let reason = format!(
                "kept: part `{}` alone makes {:.0} % of the class scores' error, for {:.1} % of the arithmetic",
                part.name,
                (100.0 * error).min(100.0),
                100.0 * part.share
            );
            kept.extend(part.layers.iter().map(|layer| (layer.clone(), reason.clone())));
        }
        Ok(kept)
    }

    /// The parts that are not in `kept`, by the harm that each does alone, the worst first.
    pub(super) fn rank(&mut self, kept: &Kept, watcher: &mut dyn Watcher) -> Result<Vec<Part>> {
        self.measure(|_| true, watcher)?;
        let is_open = |part: &&Part| !part.layers.iter().all(|layer| kept.contains_key(layer));
        let mut parts: Vec<Part> = self.parts.iter().filter(is_open).cloned().collect();
        watcher.say(&format!(
            "sensitivity: {} parts measured on {} pictures",
            self.parts.len(),
            self.plan.calibration.thinned(PICTURES).len()
        ));
        parts.sort_by(|one, other| other.harm().total_cmp(&one.harm()));
        Ok(parts)
    }

    /// Measures the parts that are `wanted` and not known yet.
    fn measure(&mut self, wanted: impl Fn(&Part) -> bool, watcher: &mut dyn Watcher) -> Result<()> {
        let open = |part: &Part| part.found.is_none() && wanted(part);
        let open: Vec<usize> = self.parts.iter().enumerate().filter(|(_, part)| open(part)).map(|(at, _)| at).collect();
        let pictures = count(self.plan.calibration.thinned(PICTURES).len());
        let (what, total) = (format!("sensitivity of {} parts", open.len()), count(open.len()) * pictures);
        for (at, done) in open.into_iter().zip(1..) {
            watcher.check_stop()?;
            let others =
                self.parts.iter().enumerate().filter(|(other, _)| *other != at).flat_map(|(_, part)| &part.layers);
            let kept = others.map(|layer| (layer.clone(), String::new())).collect();
            let found = self.harm_of(&kept)?;
            if let Some(part) = self.parts.get_mut(at) {
                part.found = Some(found);
            }
            watcher.step(&what, done * pictures, total);
        }
        Ok(())
    }

    /// Errors of the network with the layers of `kept` in float.
    fn harm_of(&mut self, kept: &Kept) -> Result<Harm> {
        let original = match self.original.take() {
            Some(original) => original,
            None => self.values(self.plan.model)?,
        };
        let found = self.values(&self.plan.quantise(kept)?.model)?;
        let harm = Harm {
            outputs: relative_error(&original, &found, 0..self.scores.start),
            scores: relative_error(&original, &found, self.scores.clone()),
        };
        self.original = Some(original);
        Ok(harm)
    }

    fn values(&self, model: &Model) -> Result<Vec<Vec<Vec<f32>>>> {
        let Plan { task, shapes, calibration, .. } = self.plan;
        let pictures = calibration.thinned(PICTURES);
        Observation { model, pictures: &pictures, ..observation(*task, model, shapes, &pictures) }.values(&self.names)
    }
}

/// The parts that stay out at once, each with its share of the class scores' squared error; `whole` is the error of all together.
fn dear_for_little(parts: &[Part], whole: f64) -> Vec<(&Part, f64)> {
    let share_of_error = |part: &Part| part.found.map_or(0.0, |harm| (harm.scores / whole).powi(2));
    let mut dear: Vec<(&Part, f64)> = parts.iter().map(|part| (part, share_of_error(part))).collect();
    dear.retain(|(_, error)| *error >= DEAR);
    dear.sort_by(|one, other| other.1.total_cmp(&one.1));
    let mut left = LITTLE;
    dear.retain(|(part, _)| {
        let fits = part.share <= left;
        left -= if fits { part.share } else { 0.0 };
        fits
    });
    dear
}

/// The module a layer belongs to, by its name: `/model.22/cv3.1/cv3.1.0/conv/Conv` → `model.22/cv3.1`, `/model.4/cv1/conv/Conv` →
/// `model.4`; the layer itself where names say nothing.
fn part_of(layer: &str) -> String {
    let mut steps = node::steps(layer);
    match (steps.next(), steps.next(), steps.next(), steps.next()) {
        (Some(module), Some(branch), Some(_), Some(_)) if branch.contains('.') => format!("{module}/{branch}"),
        (Some(module), Some(_), ..) => module.to_owned(),
        _ => layer.to_owned(),
    }
}

/// Root of squared difference over squared values of the tensors `which`, mean over pictures.
fn relative_error(original: &[Vec<Vec<f32>>], other: &[Vec<Vec<f32>>], which: Range<usize>) -> f64 {
    let of = |tensors: &[Vec<f32>]| tensors.get(which.clone()).unwrap_or_default().concat();
    let one = |(original, other): (&Vec<Vec<f32>>, &Vec<Vec<f32>>)| {
        let mut sums = (0.0_f64, 0.0_f64);
        for (exact, found) in of(original).into_iter().zip(of(other)) {
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
    fn parts_stay_out_at_once_when_they_are_dear_and_little() {
        let part = |name: &str, share: f64, scores: f64| Part {
            name: name.to_owned(),
            layers: vec![name.to_owned()],
            share,
            found: Some(Harm { outputs: 0.0, scores }),
        };
        let chosen = |parts: &[Part]| -> Vec<String> {
            dear_for_little(parts, 0.2).into_iter().map(|(part, _)| part.name.clone()).collect()
        };
        assert_eq!(chosen(&[part("harmless", 0.01, 0.12), part("head", 0.03, 0.19)]), ["head"]);
        assert_eq!(chosen(&[part("large", 0.06, 0.19)]), [""; 0], "too much of the arithmetic");
        let three = [part("second", 0.02, 0.17), part("first", 0.025, 0.18), part("third", 0.01, 0.15)];
        assert_eq!(chosen(&three), ["first", "second"], "together no more than one may hold");
        let unknown = Part { found: None, ..part("unknown", 0.01, 0.0) };
        assert_eq!(chosen(&[unknown]), [""; 0]);
    }

    #[test]
    fn errors_are_relative() {
        let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
        let picture = |values: &[f32]| vec![vec![vec![9.0], values.to_vec()]];
        close(relative_error(&picture(&[3.0, 4.0]), &picture(&[3.0, 4.0]), 1..2), 0.0);
        close(relative_error(&picture(&[3.0, 4.0]), &picture(&[3.0, 3.0]), 1..2), 0.2);
        close(relative_error(&picture(&[3.0, 4.0]), &picture(&[3.0, 3.0]), 0..1), 0.0);
    }
}
