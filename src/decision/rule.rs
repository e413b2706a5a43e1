//! The recipe's rule, checked against the model's classes and applied to judged answers.

use super::{Decision, DecisionRule, SuspectPass};
use crate::detections::Detection;
use crate::error::{Error, Result};
use crate::guard::Trust;
use crate::units::{count32, index};
use std::time::Duration;

/// Longest deadline, ms: one day.
const LONGEST_DEADLINE_MS: f64 = 86_400_000.0;

/// A checked rule.
///
/// | trust | answer in time | a class rejects, or a count is not as expected | nothing speaks against the part |
/// | --- | --- | --- | --- |
/// | `trusted` | yes | `reject` | `pass` |
/// | `suspect` | yes | `reject` | `not_inspected`, or `pass` with `suspect_pass = "flagged"` |
/// | `fault` | any | `not_inspected` | `not_inspected` |
/// | any | no, or no answer | `not_inspected` | `not_inspected` |
///
/// A suspect answer that speaks against the part still rejects it: suspicion may withhold a `pass`, never a defect.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    reject: Vec<Reject>,
    expect: Vec<Expect>,
    deadline: Option<Duration>,
    suspect_pass: SuspectPass,
}

#[derive(Debug, Clone, PartialEq)]
struct Reject {
    class_id: u32,
    score: f32,
    count: u32,
}

#[derive(Debug, Clone, PartialEq)]
struct Expect {
    class_id: u32,
    count: u32,
}

impl Rule {
    /// Checks `rule` against the class names of the model (index = class id).
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for a class the model does not have, a score outside 0..1, a least count of 0, a
    /// deadline that is not above 0 ms and at most a day, or a rule that can never reject.
    pub fn new(rule: &DecisionRule, classes: &[String]) -> Result<Self> {
        if rule.reject.is_empty() && rule.expect.is_empty() {
            return Err(Error::usage("found neither `reject` nor `expect`, expected a rule that can reject a part")
                .at("[decision]")
                .hint("name the classes that reject, as in `reject = { scratch = {} }`, or leave [decision] out"));
        }
        let mut reject = Vec::with_capacity(rule.reject.len());
        for (name, wanted) in &rule.reject {
            let class_id = class_id(name, classes, "reject")?;
            if !(0.0..=1.0).contains(&wanted.score) {
                return Err(Error::usage(format!("found score {}, expected 0 to 1", wanted.score))
                    .at(format!("[decision] reject.{name}")));
            }
            if wanted.count == 0 {
                return Err(Error::usage("found count 0, which rejects every part, expected at least 1")
                    .at(format!("[decision] reject.{name}")));
            }
            reject.push(Reject { class_id, score: wanted.score, count: wanted.count });
        }
        let mut expect = Vec::with_capacity(rule.expect.len());
        for (name, &count) in &rule.expect {
            expect.push(Expect { class_id: class_id(name, classes, "expect")?, count });
        }
        Ok(Rule { reject, expect, deadline: deadline(rule.deadline_ms)?, suspect_pass: rule.suspect_pass })
    }

    /// Time from the trigger within which the answer must come; `None`: whenever it comes.
    pub fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// The decision for one part. `detections` are the boxes at the manifest's thresholds, `None` without an answer;
    /// `on_time` says whether the answer came before the deadline.
    pub fn decide(&self, trust: Trust, detections: Option<&[Detection]>, on_time: bool) -> Decision {
        let Some(detections) = detections else { return Decision::NotInspected };
        if !on_time || trust == Trust::Fault {
            return Decision::NotInspected;
        }
        if self.rejects(detections) {
            return Decision::Reject;
        }
        match (trust, self.suspect_pass) {
            (Trust::Trusted, _) | (Trust::Suspect, SuspectPass::Flagged) => Decision::Pass,
            (Trust::Suspect, SuspectPass::NotInspected) | (Trust::Fault, _) => Decision::NotInspected,
        }
    }

    fn rejects(&self, detections: &[Detection]) -> bool {
        let boxes = |class_id: u32, score: f32| {
            count32(detections.iter().filter(|found| found.class_id == class_id && found.score >= score).count())
        };
        self.reject.iter().any(|reject| boxes(reject.class_id, reject.score) >= reject.count)
            || self.expect.iter().any(|expect| boxes(expect.class_id, 0.0) != expect.count)
    }
}

fn class_id(name: &str, classes: &[String], field: &str) -> Result<u32> {
    let position = classes.iter().position(|class| class == name).map(count32);
    position.ok_or_else(|| {
        Error::usage(format!("found class `{name}`, expected one of: {}", listed(classes)))
            .at(format!("[decision] {field}"))
            .hint("class names come from the model; `edge-build inspect` lists them")
    })
}

fn listed(classes: &[String]) -> String {
    const SHOWN: u32 = 12;
    let shown = classes.iter().take(index(SHOWN)).map(|class| format!("`{class}`")).collect::<Vec<_>>().join(", ");
    match classes.len().saturating_sub(index(SHOWN)) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn deadline(deadline_ms: Option<f64>) -> Result<Option<Duration>> {
    match deadline_ms {
        None => Ok(None),
        Some(ms) if ms > 0.0 && ms <= LONGEST_DEADLINE_MS => Ok(Some(Duration::from_secs_f64(ms / 1e3))),
        Some(ms) => Err(Error::usage(format!("found {ms} ms, expected above 0 and at most {LONGEST_DEADLINE_MS}"))
            .at("[decision] deadline_ms")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::BoxPx;

    fn classes() -> Vec<String> {
        ["part", "scratch", "screw"].map(String::from).to_vec()
    }

    fn found(class_id: u32, score: f32) -> Detection {
        Detection { class_id, score, edges: BoxPx::default(), unclipped: BoxPx::default() }
    }

    fn rule(text: &str) -> Result<Rule> {
        Rule::new(&toml::from_str::<DecisionRule>(text).unwrap(), &classes())
    }

    #[test]
    fn least_score_and_least_count_reject() {
        let rule = rule("reject = { scratch = { score = 0.5, count = 2 } }").unwrap();
        let decide = |boxes: &[Detection]| rule.decide(Trust::Trusted, Some(boxes), true);
        assert_eq!(decide(&[]), Decision::Pass);
        assert_eq!(decide(&[found(1, 0.9), found(1, 0.4), found(0, 0.9)]), Decision::Pass);
        assert_eq!(decide(&[found(1, 0.9), found(1, 0.5)]), Decision::Reject);
    }

    #[test]
    fn expect_is_an_exact_count() {
        let rule = rule("expect = { screw = 4 }").unwrap();
        for (count, decision) in [(3, Decision::Reject), (4, Decision::Pass), (5, Decision::Reject)] {
            assert_eq!(rule.decide(Trust::Trusted, Some(&vec![found(2, 0.9); count]), true), decision, "{count}");
        }
    }

    #[test]
    fn expect_zero_rejects_what_is_there() {
        let rule = rule("expect = { scratch = 0 }").unwrap();
        assert_eq!(rule.decide(Trust::Trusted, Some(&[]), true), Decision::Pass);
        assert_eq!(rule.decide(Trust::Trusted, Some(&[found(1, 0.3)]), true), Decision::Reject);
    }

    #[test]
    fn every_row_of_the_table() {
        let plain = rule("reject = { scratch = {} }").unwrap();
        let flagged = rule("reject = { scratch = {} }\nsuspect_pass = \"flagged\"").unwrap();
        let good: &[Detection] = &[found(0, 0.9)];
        let bad: &[Detection] = &[found(1, 0.9)];
        use Decision::{NotInspected, Pass, Reject};
        let rows = [
            (&plain, Trust::Trusted, Some(good), true, Pass),
            (&plain, Trust::Trusted, Some(bad), true, Reject),
            (&plain, Trust::Suspect, Some(good), true, NotInspected),
            (&plain, Trust::Suspect, Some(bad), true, Reject),
            (&flagged, Trust::Suspect, Some(good), true, Pass),
            (&flagged, Trust::Suspect, Some(bad), true, Reject),
            (&flagged, Trust::Fault, Some(good), true, NotInspected),
            (&flagged, Trust::Fault, Some(bad), true, NotInspected),
            (&flagged, Trust::Fault, None, true, NotInspected),
            (&flagged, Trust::Trusted, None, true, NotInspected),
            (&flagged, Trust::Trusted, Some(good), false, NotInspected),
            (&flagged, Trust::Trusted, Some(bad), false, NotInspected),
        ];
        for (number, (rule, trust, boxes, on_time, decision)) in rows.into_iter().enumerate() {
            assert_eq!(rule.decide(trust, boxes, on_time), decision, "row {number}");
        }
    }

    #[test]
    fn a_bad_rule_is_one_clear_error() {
        for (text, part) in [
            ("reject = { scrach = {} }", "found class `scrach`, expected one of: `part`, `scratch`, `screw`"),
            ("expect = { nut = 1 }", "found class `nut`"),
            ("reject = { scratch = { score = 1.5 } }", "found score 1.5"),
            ("reject = { scratch = { score = nan } }", "found score NaN"),
            ("reject = { scratch = { count = 0 } }", "found count 0"),
            ("expect = { screw = 4 }\ndeadline_ms = 0", "found 0 ms"),
            ("expect = { screw = 4 }\ndeadline_ms = inf", "found inf ms"),
            ("deadline_ms = 50", "neither `reject` nor `expect`"),
        ] {
            let error = rule(text).unwrap_err();
            assert!(error.message().contains(part), "{text}: {error}");
            assert!(error.place().is_some_and(|place| place.starts_with("[decision]")), "{text}: {error}");
        }
    }

    #[test]
    fn the_deadline_is_kept() {
        let rule = rule("expect = { screw = 4 }\ndeadline_ms = 80.5").unwrap();
        assert_eq!(rule.deadline(), Some(Duration::from_micros(80_500)));
    }
}
