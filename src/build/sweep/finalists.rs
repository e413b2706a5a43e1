//! The few combinations that are worth a build: nothing else is better in one way without being worse in the other.

use super::lines::Line;
use crate::config::precision::Precision;
use std::cmp::Ordering;

/// Positions of the lines that stand for the finalists, the most accurate first: one a size and precision that fits the target
/// (`None`: the CPU, which everything fits) and passed the gate where it judged.
pub(super) fn choose(lines: &[Line], target: Option<&str>, most: usize) -> Vec<usize> {
    let can = |line: &Line| {
        let fits = target.is_none_or(|target| line.fits.iter().any(|fit| fit.target == target && fit.fits));
        let passed = line.accuracy.as_ref().and_then(|accuracy| accuracy.passed) != Some(false);
        // CPUs gain nothing from the other graphs.
        let useful = target.is_some() || line.precision == Precision::AsExported;
        line.refused.is_none() && line.memory.is_some() && fits && passed && useful
    };
    let firsts: Vec<usize> = (0..lines.len())
        .filter(|&at| can(&lines[at]) && !lines[..at].iter().any(|other| can(other) && other.same_group(&lines[at])))
        .collect();
    let mut best: Vec<usize> = firsts
        .iter()
        .copied()
        .filter(|&at| !firsts.iter().any(|&other| other != at && is_better(&lines[other], &lines[at], other < at)))
        .collect();
    best.sort_by(|&one, &other| worth(&lines[other], &lines[one]));
    best.truncate(most);
    best
}

/// Whether `one` leaves no reason to take `other`; of two equals the first is better.
fn is_better(one: &Line, other: &Line, first: bool) -> bool {
    let need = |line: &Line| line.memory.map_or(u64::MAX, |memory| memory.total.0);
    let (worth, need) = (worth(one, other), need(one).cmp(&need(other)));
    match (worth, need) {
        (Ordering::Less, _) | (_, Ordering::Greater) => false,
        (Ordering::Equal, Ordering::Equal) => first,
        _ => true,
    }
}

/// By accuracy where both were judged alike, else by the size of the input.
fn worth(one: &Line, other: &Line) -> Ordering {
    let known = |line: &Line| line.accuracy.as_ref().and_then(|accuracy| accuracy.map50);
    match (known(one), known(other)) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        _ => one.size.pixels().cmp(&other.size.pixels()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::sweep::{Accuracy, Fit, MemoryNeed};
    use crate::gpu::plan::Reload;
    use crate::units::{Bytes, SizePx};

    fn line(side: u32, precision: Precision, mib: u64, map50: Option<f64>) -> Line {
        let total = Bytes::mib(mib);
        Line {
            model: "m.onnx".into(),
            path: "m.onnx".into(),
            size: SizePx::new(side, side),
            precision,
            batch: 1,
            refused: None,
            memory: Some(MemoryNeed { weights: Bytes(0), activations: total, total, scaled: false }),
            fits: vec![Fit {
                target: "t4".into(),
                total,
                budget: Bytes::mib(100),
                fits: mib <= 100,
                reload: Reload::Beside,
            }],
            accuracy: map50.map(|map50| Accuracy {
                truth: "labels".into(),
                pictures: 9,
                map50: Some(map50),
                map50_95: None,
                recall: 1.0,
                false_boxes: 0,
                passed: Some(map50 > 0.5),
                failed: vec![],
            }),
            accuracy_missing: None,
            time: None,
            batch_search: None,
        }
    }

    #[test]
    fn what_is_worse_in_both_what_fails_and_what_does_not_fit_is_left_out() {
        let lines = [
            line(640, Precision::AsExported, 60, Some(0.95)),
            line(640, Precision::Fp16, 30, Some(0.95)),
            line(640, Precision::Int8, 29, Some(0.94)),
            line(320, Precision::AsExported, 40, Some(0.90)),
            line(320, Precision::Int8, 10, Some(0.40)),
            line(960, Precision::Fp16, 130, Some(0.97)),
        ];
        assert_eq!(choose(&lines, Some("t4"), 9), [1, 2]);
        assert_eq!(choose(&lines, Some("t4"), 1), [1]);
        assert_eq!(choose(&lines, None, 9), [0, 3], "the CPU has room for all and runs exports");
        assert_eq!(choose(&lines, Some("other"), 9), [0; 0]);
    }

    #[test]
    fn without_labels_the_larger_input_is_worth_more() {
        let lines = [
            line(640, Precision::AsExported, 60, None),
            line(640, Precision::Fp16, 30, None),
            line(320, Precision::Fp16, 9, None),
        ];
        assert_eq!(choose(&lines, Some("t4"), 9), [1, 2]);
    }
}
