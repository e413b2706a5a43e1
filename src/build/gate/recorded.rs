//! A bundle that is finished on the device holds no export to compare with. What the export reached was recorded when the bundle was
//! built: on the same pictures with the same labels the plan is held against those figures and the limits that held then.

use super::plan::{AskBy, PlanAnswers, PlanToAsk};
use super::{Ground, limits};
use crate::build::precision::usable::Usable;
use crate::build::watcher::Watcher;
use crate::bundle::Manifest;
use crate::bundle::gate::{Check, Figures, GateResult, JudgedPlan};
use crate::config::precision::GateLimits;
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// Pictures and labels that judge a plan on the device.
#[derive(Debug, Clone)]
pub struct DeviceGate {
    /// Folder with the pictures.
    pub pictures: PathBuf,
    /// Folder with their YOLO labels.
    pub labels: PathBuf,
    /// How the plan is asked; `None`: in this process.
    pub ask_by: Option<AskBy>,
}

/// The recorded figures of the original, with the pictures and labels that gave them.
pub(in crate::build) struct Recorded<'a> {
    ground: Ground,
    recorded: &'a GateResult,
    ask_by: Option<AskBy>,
}

impl<'a> Recorded<'a> {
    /// Takes `gate` when it is what judged the bundle's graph.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`]: the bundle was not judged by labels, or by other pictures or labels; those of reading.
    pub(in crate::build) fn open(
        manifest: &'a Manifest,
        gate: &DeviceGate,
        watcher: &mut dyn Watcher,
    ) -> Result<Recorded<'a>> {
        let build = "build the bundle with `--gate DIR --labels DIR`, or build it on this machine without `--portable`";
        let Some(recorded) = &manifest.gate else {
            return Err(Error::usage(
                "found a bundle that no gate judged, expected the figures of the export to compare with",
            )
            .hint(build));
        };
        if recorded.original.map50.is_none() {
            return Err(Error::usage(
                "found a bundle that was judged without labels, expected figures by labels: the export's own answers are not kept",
            )
            .hint(build));
        }
        let pictures = same_pictures(&gate.pictures, recorded, watcher)?;
        let (classes, thresholds) = (&manifest.classes, &manifest.thresholds);
        let ground = Ground::new(classes, thresholds, GateLimits::default(), pictures, Some(&gate.labels))?;
        let before: Vec<u64> = recorded.original.classes.iter().map(|class| class.operating.labels).collect();
        let now = ground.labels_by_class();
        if before != now {
            return Err(Error::usage(format!("found {now:?} true boxes by class, expected {before:?}"))
                .at(gate.labels.display())
                .hint("give the labels that judged the bundle when it was built"));
        }
        Ok(Recorded { ground, recorded, ask_by: gate.ask_by })
    }

    /// Lets the plan answer and holds it against what was recorded.
    ///
    /// # Errors
    /// Those of asking. A plan that fails is no error here.
    pub(in crate::build) fn judge(&self, plan: PlanToAsk<'_>, watcher: &mut dyn Watcher) -> Result<GateResult> {
        let PlanAnswers { tensorrt, gpu, answers } = self.ground.ask(plan, self.ask_by, watcher)?;
        let candidate =
            self.ground.by_labels(&answers).ok_or_else(|| Error::unexpected("found no labels to judge by"))?;
        let graph = Some(self.recorded.candidate.clone());
        Ok(GateResult {
            judged: "plan".to_owned(),
            plan: Some(JudgedPlan { name: plan.name.to_owned(), tensorrt, gpu, graph }),
            checks: checks(self.recorded, &candidate),
            candidate,
            shift: None,
            ..self.recorded.clone()
        })
    }
}

/// The recorded limits for another candidate: what is allowed depends on the original alone.
fn checks(recorded: &GateResult, candidate: &Figures) -> Vec<Check> {
    let all =
        limits::judge(&recorded.original, candidate, &GateLimits { labels_for_class: 0, ..GateLimits::default() });
    let again = |before: &Check| {
        let worse_by = all.iter().find(|check| check.name == before.name).map_or(f64::INFINITY, |check| check.worse_by);
        Check { worse_by, passed: worse_by <= before.allowed, ..before.clone() }
    };
    recorded.checks.iter().map(again).collect()
}

/// The pictures of `folder` that judged the bundle: all of them, or one half by content.
fn same_pictures(folder: &Path, recorded: &GateResult, watcher: &mut dyn Watcher) -> Result<Usable> {
    let all = Usable::of(folder, watcher)?;
    if all.set_hash() == recorded.pictures_sha256 {
        return Ok(all);
    }
    let found = all.len();
    // Without `--gate` the second half of the calibration pictures judged.
    let half = if found > 1 { all.halves().1 } else { Usable::default() };
    if half.set_hash() == recorded.pictures_sha256 {
        return Ok(half);
    }
    Err(Error::usage(format!(
        "found {found} pictures that are not those that judged the bundle, expected the same {}",
        recorded.pictures
    ))
    .at(folder.display())
    .hint("the export is not in the bundle: its figures hold for its own pictures alone; copy those to the device"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::gate::Operating;
    use crate::units::count;

    fn figures(map50: f64, found: u64, false_boxes: u64) -> Figures {
        let operating = Operating { labels: 1000, found, false_boxes };
        Figures { map50: Some(map50), map50_95: None, operating, classes: Vec::new() }
    }

    #[test]
    fn a_plan_is_held_to_the_limits_that_were_recorded() {
        let original = figures(0.95, 900, 100);
        // A recipe with limits of its own: no box may be lost.
        let limits = GateLimits { map50: 0.001, recall: 0.0, ..GateLimits::default() };
        let recorded = GateResult {
            judged: "graph".to_owned(),
            backend: String::new(),
            plan: None,
            pictures: 3,
            pictures_sha256: String::new(),
            truth: "labels".to_owned(),
            checks: limits::judge(&original, &original, &limits),
            candidate: original.clone(),
            original,
            shift: None,
        };
        let failed = |candidate: Figures| -> Vec<String> {
            let checks = checks(&recorded, &candidate);
            assert_eq!(count(checks.len()), 3);
            checks.into_iter().filter(|check| !check.passed).map(|check| check.name).collect()
        };
        assert!(failed(figures(0.95, 900, 100)).is_empty());
        assert!(failed(figures(0.9491, 898, 120)).is_empty(), "two boxes are always allowed");
        assert_eq!(failed(figures(0.9489, 897, 121)), ["mAP50", "found boxes", "false boxes"]);
    }
}
