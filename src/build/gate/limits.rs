//! How much worse a candidate may be.

use crate::bundle::gate::{Check, Figures, Operating};
use crate::config::precision::GateLimits;
use crate::units::float64;

/// Holds `candidate` against `original`.
pub(super) fn judge(original: &Figures, candidate: &Figures, limits: &GateLimits) -> Vec<Check> {
    let mut checks = Vec::new();
    if let (Some(before), Some(after)) = (original.map50, candidate.map50) {
        checks.push(check("mAP50".to_owned(), before - after, limits.map50));
    }
    let labelled = original.map50.is_some();
    counts("", &original.operating, &candidate.operating, labelled, limits, &mut checks);
    for (before, after) in original.classes.iter().zip(&candidate.classes) {
        if labelled && before.operating.labels >= limits.labels_for_class {
            let of = format!(" of {}", before.class);
            counts(&of, &before.operating, &after.operating, labelled, limits, &mut checks);
        }
    }
    checks
}

fn counts(
    of: &str,
    before: &Operating,
    after: &Operating,
    labelled: bool,
    limits: &GateLimits,
    checks: &mut Vec<Check>,
) {
    let labels = float64(before.labels);
    let lost = float64(before.found) - float64(after.found);
    let more = float64(after.false_boxes) - float64(before.false_boxes);
    if labelled {
        checks.push(check(format!("found boxes{of}"), lost, (limits.recall * labels).max(2.0)));
        let known = float64(before.false_boxes);
        checks.push(check(
            format!("false boxes{of}"),
            more,
            (limits.false_boxes * known).max(2.0 * known.max(1.0).sqrt()),
        ));
    } else {
        // Boxes near the threshold come and go: without labels nobody knows which of them are right.
        let allowed = (limits.false_boxes * labels).max(2.0 * labels.max(1.0).sqrt());
        checks.push(check("boxes that only the original has".to_owned(), lost, allowed));
        checks.push(check("boxes that only the candidate has".to_owned(), more, allowed));
    }
}

fn check(name: String, worse_by: f64, allowed: f64) -> Check {
    Check { name, worse_by, allowed, passed: worse_by <= allowed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(map50: f64, found: u64, false_boxes: u64) -> Figures {
        let operating = Operating { labels: 3140, found, false_boxes };
        Figures { map50: Some(map50), map50_95: None, operating, classes: Vec::new() }
    }

    #[test]
    fn the_limits_of_the_gate() {
        let original = figures(0.9555, 2900, 413);
        let failed = |candidate: Figures| -> Vec<String> {
            let checks = judge(&original, &candidate, &GateLimits::default());
            checks.into_iter().filter(|check| !check.passed).map(|check| check.name).collect()
        };
        assert!(failed(figures(0.9555, 2900, 413)).is_empty());
        assert!(failed(figures(0.9600, 2950, 300)).is_empty(), "better is no fault");
        assert_eq!(failed(figures(0.9504, 2900, 413)), ["mAP50"]);
        assert_eq!(failed(figures(0.9555, 2884, 413)), ["found boxes"]);
        assert!(failed(figures(0.9555, 2885, 453)).is_empty(), "2√413 is 40.6 boxes");
        // The case of the field: mAP50 falls by 0.0024 and false boxes rise by 20 %.
        assert_eq!(failed(figures(0.9531, 2900, 496)), ["false boxes"]);
    }

    #[test]
    fn small_sets_are_not_judged_to_the_box() {
        let mut original = figures(0.9, 10, 0);
        original.operating.labels = 12;
        let mut candidate = original.clone();
        candidate.operating.found = 8;
        candidate.operating.false_boxes = 2;
        assert!(judge(&original, &candidate, &GateLimits::default()).iter().all(|check| check.passed));
        candidate.operating.found = 7;
        assert!(!judge(&original, &candidate, &GateLimits::default()).iter().all(|check| check.passed));
    }
}
