//! The judge: runs every check that makes sense for the stream and sums up.

use super::checks::{self, Check, Setup};
use super::picture::PictureStats;
use super::{GuardSpec, Reason, Severity, Side, Trust};
use crate::detections::{Detection, Thresholds};
use crate::engine::{Inference, Layout, OutputStats};
use crate::error::{Error, Result};
use crate::frame::FrameTag;
use std::time::Instant;

/// What kind of stream is judged; decides which checks make sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamTraits {
    /// A camera or a stand-in for one: frames follow each other in time.
    pub live: bool,
    /// Consecutive frames show the same scene, so that checks may compare them.
    pub related_frames: bool,
    /// Frames come when a part triggers, so that two of them may well be the same.
    pub triggered: bool,
}

/// What there is of the picture.
#[derive(Debug, Clone, Copy)]
pub enum Seen<'a> {
    /// Its statistics.
    Picture(&'a PictureStats),
    /// It exists and cannot be read or decoded.
    Unreadable,
    /// The camera gave none.
    Nothing,
}

/// What the engine said of the picture.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// Identity of the frame that was run, from the engine's buffers.
    pub tag: &'a FrameTag,
    /// What the raw output looked like.
    pub stats: &'a OutputStats,
    /// Boxes at the manifest's thresholds, after NMS.
    pub detections: &'a [Detection],
    /// Whether an output of nothing but zeros is a fault ([`Layout::all_zero_is_fault`]).
    pub all_zero_is_fault: bool,
    /// Most boxes an answer may hold ([`Thresholds::boxes`]).
    pub most_boxes: u32,
    /// The frame was run twice and the two answers differ.
    pub echo_differs: bool,
}

impl<'a> Answer<'a> {
    /// The answer in `inference`; `detections` are its boxes at `thresholds`, the manifest's.
    pub fn of(inference: &'a Inference, layout: &Layout, detections: &'a [Detection], thresholds: &Thresholds) -> Self {
        Answer {
            tag: &inference.tag,
            stats: &inference.stats,
            detections,
            all_zero_is_fault: layout.all_zero_is_fault(),
            most_boxes: thresholds.boxes,
            echo_differs: false,
        }
    }
}

/// Everything the guard looks at for one frame.
#[derive(Debug, Clone, Copy)]
pub struct Observation<'a> {
    /// Identity of the frame that was asked about.
    pub tag: &'a FrameTag,
    /// When it arrived.
    pub arrived: Instant,
    /// The picture.
    pub picture: Seen<'a>,
    /// The engine's answer; `None` when it returned an error or was not asked. With a picture that is an `engine_error`.
    pub answer: Option<Answer<'a>>,
}

impl<'a> Observation<'a> {
    /// The statistics of a whole picture.
    pub fn stats(&self) -> Option<&'a PictureStats> {
        match self.picture {
            Seen::Picture(stats) if stats.whole => Some(stats),
            _ => None,
        }
    }
}

/// What the guard says of one frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// `fault` when a hard check fired, else `suspect` when a soft one did, else `trusted`.
    pub trust: Trust,
    /// Why it is not trusted; empty when it is. Hard reasons and soft ones.
    pub reasons: Vec<Reason>,
    /// What soft checks saw while they only observe, because there is no reference.
    pub observed: Vec<Reason>,
}

impl Verdict {
    /// The verdict on a frame for which no check could run, for one hard reason.
    pub fn fault(reason: Reason) -> Self {
        Verdict { trust: Trust::Fault, reasons: vec![reason], observed: Vec::new() }
    }

    /// Whether a reason of this side stands in `reasons`.
    pub fn blames(&self, side: Side) -> bool {
        self.reasons.iter().any(|reason| reason.side() == side)
    }
}

/// A check that is off, and why; the program says it aloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Off {
    /// The check.
    pub reason: Reason,
    /// Why, as in `the pictures do not follow each other`.
    pub why: String,
}

/// The guard of one stream.
#[derive(Debug)]
pub struct Guard {
    checks: Vec<Box<dyn Check>>,
    off: Vec<Off>,
    observing: Option<String>,
}

impl Guard {
    /// A guard for one stream of the kind `traits`; `classes` are the model's names, index = class id.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for a limit that is no number from 0 up, a class in `expect` that the model does not
    /// have, or a check in `off` that cannot be switched off.
    pub fn new(spec: &GuardSpec, classes: &[String], traits: StreamTraits) -> Result<Self> {
        spec.limits.check()?;
        if let Some(reason) = spec.off.iter().find(|reason| !reason.can_be_off()) {
            return Err(Error::usage(format!("found `{}`, expected a check that can be switched off", reason.name()))
                .at("[guard] off")
                .hint("only soft checks and hard ones of the picture can be; see docs/guard.md"));
        }
        let reference = spec.reference.as_ref();
        let observing = match reference {
            None => Some("there is no reference".to_owned()),
            Some(reference) if crate::units::float64(reference.pictures) < spec.limits.reference_pictures => {
                Some(format!("the reference has {} pictures, too few", reference.pictures))
            }
            Some(_) => None,
        };
        let reference = reference.filter(|_| observing.is_none());
        let setup = Setup { reference, expect: &spec.expect, limits: &spec.limits, classes, traits };
        let mut guard = Guard { checks: Vec::new(), off: Vec::new(), observing };
        for (about, set_up) in checks::ALL {
            let built = if spec.off.contains(&about.reason) {
                checks::SetUp::Off("switched off by the recipe".to_owned())
            } else {
                set_up(&setup)?
            };
            match built {
                checks::SetUp::On(check) => guard.checks.push(check),
                checks::SetUp::Off(why) => guard.off.push(Off { reason: about.reason, why }),
            }
        }
        Ok(guard)
    }

    /// Judges one frame. Frames of the stream come in order; checks that count frames in a row count these.
    pub fn judge(&mut self, seen: &Observation<'_>) -> Verdict {
        let mut verdict = Verdict { trust: Trust::Trusted, reasons: Vec::new(), observed: Vec::new() };
        for check in &mut self.checks {
            if !check.fires(seen) {
                continue;
            }
            let reason = check.reason();
            match reason.severity() {
                Severity::Hard => {
                    verdict.trust = Trust::Fault;
                    verdict.reasons.push(reason);
                }
                Severity::Soft if self.observing.is_some() => verdict.observed.push(reason),
                Severity::Soft => {
                    verdict.trust = verdict.trust.max(Trust::Suspect);
                    verdict.reasons.push(reason);
                }
            }
        }
        verdict
    }

    /// Why soft checks only observe; `None` when they act.
    pub fn observing(&self) -> Option<&str> {
        self.observing.as_deref()
    }

    /// Every check that is off, and why. Grows by what the first frames show (a picture size that the reference does not
    /// have), so ask again after the first frame.
    pub fn off_aloud(&self) -> Vec<Off> {
        let idle = self.checks.iter().filter_map(|check| Some(Off { reason: check.reason(), why: check.idle()? }));
        self.off.iter().cloned().chain(idle).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::fixture::{Scene, live, unrelated};
    use crate::guard::{Expectation, Limits};

    #[test]
    fn a_clean_stream_is_trusted_with_and_without_a_reference() {
        for scene in [Scene::with_reference(), Scene::without_reference()] {
            for traits in [live(), unrelated()] {
                let mut stream = scene.stream(traits);
                for _ in 0..50 {
                    let verdict = stream.clean();
                    assert_eq!((verdict.trust, verdict.reasons, verdict.observed), (Trust::Trusted, vec![], vec![]));
                }
            }
        }
    }

    #[test]
    fn a_hard_reason_outweighs_a_soft_one_and_both_are_named() {
        let mut stream = Scene::with_reference().stream(live());
        stream.clean();
        let mut verdict = stream.clean();
        for _ in 0..3 {
            verdict = stream.see(|frame| {
                frame.boxes = crate::guard::fixture::boxes(250, 0.9);
                frame.output.nan = 1;
            });
        }
        assert_eq!(verdict.trust, Trust::Fault);
        assert_eq!(verdict.reasons, [Reason::Nan, Reason::BoxSurge]);
        assert!(verdict.blames(Side::Engine) && !verdict.blames(Side::Picture));
    }

    #[test]
    fn soft_reasons_are_only_observed_without_a_reference_and_with_too_few_pictures() {
        let mut few = Scene::with_reference();
        few.spec.reference.as_mut().unwrap().pictures = 9;
        for scene in [Scene::without_reference(), few] {
            let mut stream = scene.stream(live());
            let mut verdict = stream.clean();
            for _ in 0..3 {
                verdict = stream.see(|frame| frame.boxes = crate::guard::fixture::boxes(300, 0.9));
            }
            assert_eq!((verdict.trust, &verdict.reasons[..]), (Trust::Trusted, &[][..]));
            assert_eq!(verdict.observed, [Reason::BoxSurge]);
            assert!(stream.guard.observing().is_some());
        }
    }

    #[test]
    fn checks_that_compare_frames_are_off_for_unrelated_pictures_and_said_aloud() {
        let off = |traits| {
            let stream = Scene::with_reference().stream(traits);
            stream.guard.off_aloud().into_iter().map(|off| off.reason).collect::<Vec<_>>()
        };
        let expected = [Reason::SmallObjectsVanished, Reason::BoxesVanished];
        assert_eq!(off(live()), expected);
        assert_eq!(off(unrelated()), [&expected[..], &[Reason::Shifted, Reason::Torn, Reason::Frozen]].concat());
        assert_eq!(off(StreamTraits { triggered: true, ..live() }), [&expected[..], &[Reason::Frozen]].concat());
    }

    #[test]
    fn a_bad_specification_is_one_clear_error() {
        let classes = ["part".to_owned()];
        let spec = |change: &dyn Fn(&mut GuardSpec)| {
            let mut spec = GuardSpec::default();
            change(&mut spec);
            Guard::new(&spec, &classes, live()).map(drop)
        };
        let expect = Expectation { at_least: 1, small_up_to_px: None };
        assert!(spec(&|_| {}).is_ok());
        assert!(spec(&|spec| spec.off = vec![Reason::Frozen, Reason::BoxSurge]).is_ok());
        for reason in [Reason::Nan, Reason::WrongFrame, Reason::EngineError, Reason::NoPicture, Reason::Unreadable] {
            assert!(spec(&|spec| spec.off = vec![reason]).is_err(), "{reason:?}");
        }
        assert!(spec(&|spec| spec.limits = Limits { torn_share: f64::NAN, ..Limits::default() }).is_err());
        assert!(spec(&|spec| spec.expect = [("part".to_owned(), expect)].into()).is_ok());
        let error = spec(&|spec| spec.expect = [("nut".to_owned(), expect)].into()).unwrap_err();
        assert!(error.message().contains("found class `nut`, expected one of: `part`"), "{error}");
    }
}
