//! The judge: runs every check that makes sense for the stream and sums up.

use super::baseline::Learner;
use super::checks::{self, Check, Setup};
use super::picture::PictureStats;
use super::{
    AnchorFrom, Baseline, Gallery, GuardMode, GuardSpec, Reason, Record, Reference, Severity, Side, Standing, Trust,
};
use crate::detections::{Detection, Thresholds};
use crate::engine::{Inference, Layout, OutputStats};
use crate::error::{Error, Result};
use crate::frame::FrameTag;
use crate::units::float64;
use std::sync::Arc;
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
    /// What soft checks saw while they only observe.
    pub observed: Vec<Reason>,
    /// Whether soft checks act.
    pub standing: Standing,
}

impl Verdict {
    /// The verdict on a frame for which no check could run, for one hard reason.
    pub fn fault(reason: Reason) -> Self {
        Verdict { trust: Trust::Fault, reasons: vec![reason], observed: Vec::new(), standing: Standing::Act }
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

/// What the guard of a stream shares with others.
#[derive(Debug, Clone)]
pub struct Home {
    /// Which of the streams it judges.
    pub lane: usize,
    /// The last boxes of all streams.
    pub gallery: Arc<Gallery>,
    /// The baseline of this stream, product and bundle.
    pub record: Arc<Record>,
    /// What soft checks may do.
    pub mode: GuardMode,
}

impl Home {
    /// Of a stream that shares nothing and keeps nothing.
    pub fn alone() -> Self {
        Home { lane: 0, gallery: Gallery::new(1), record: Record::of(Baseline::default()), mode: GuardMode::default() }
    }
}

/// The guard of one stream.
#[derive(Debug)]
pub struct Guard {
    spec: GuardSpec,
    classes: Vec<String>,
    traits: StreamTraits,
    home: Home,
    checks: Vec<Box<dyn Check>>,
    off: Vec<Off>,
    observing: Option<String>,
    learner: Option<Learner>,
    has_distributions: bool,
    changes_seen: u64,
}

impl Guard {
    /// A guard for one stream of the kind `traits`, alone; `classes` are the model's names, index = class id.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for a limit that is no number from 0 up, a class in `expect` that the model does not
    /// have, or a check in `off` that cannot be switched off.
    pub fn new(spec: &GuardSpec, classes: &[String], traits: StreamTraits) -> Result<Self> {
        Self::at(spec, classes, traits, Home::alone())
    }

    /// A guard for one stream among others, with its baseline.
    ///
    /// # Errors
    /// As [`Guard::new`].
    pub fn at(spec: &GuardSpec, classes: &[String], traits: StreamTraits, home: Home) -> Result<Self> {
        spec.limits.check()?;
        if let Some(reason) = spec.off.iter().find(|reason| !reason.can_be_off()) {
            return Err(Error::usage(format!("found `{}`, expected a check that can be switched off", reason.name()))
                .at("[guard] off")
                .hint("only soft checks and hard ones of the picture can be; see docs/guard.md"));
        }
        let learner = if traits.live { Learner::new(spec.limits.learn_frames, classes.len()) } else { None };
        let mut guard = Guard {
            spec: spec.clone(),
            classes: classes.to_vec(),
            traits,
            home,
            checks: Vec::new(),
            off: Vec::new(),
            observing: None,
            learner,
            has_distributions: false,
            changes_seen: 0,
        };
        guard.set_up()?;
        Ok(guard)
    }

    /// Makes the checks anew, by the baseline as it is now.
    fn set_up(&mut self) -> Result<()> {
        self.changes_seen = self.home.record.changes();
        let baseline = self.home.record.baseline();
        let (reference, why_none) = self.anchor(&baseline);
        let observing = match self.home.mode {
            GuardMode::Observe => Some("so it was asked for (`--guard observe`)".to_owned()),
            GuardMode::Act => why_none,
        };
        // References of older builds hold none: they are learnt on the line.
        let learnt = baseline.anchor.as_ref().map(|anchor| &anchor.reference);
        let distributions = reference.filter(|reference| !reference.score_bins.is_empty()).or(learnt);
        let has_distributions = distributions.is_some();
        let setup = Setup {
            reference,
            distributions,
            rolling: baseline.rolling.as_ref().map(|block| &block.reference),
            gallery: &self.home.gallery,
            lane: self.home.lane,
            expect: &self.spec.expect,
            limits: &self.spec.limits,
            classes: &self.classes,
            traits: self.traits,
        };
        let (mut checks, mut off) = (Vec::new(), Vec::new());
        for (about, set_up) in checks::ALL {
            let built = if self.spec.off.contains(&about.reason) {
                checks::SetUp::Off("switched off by the recipe".to_owned())
            } else {
                set_up(&setup)?
            };
            match built {
                checks::SetUp::On(check) => checks.push(check),
                checks::SetUp::Off(why) => off.push(Off { reason: about.reason, why }),
            }
        }
        // These compare no reference, and a frozen or torn picture must not be believed for as long as they arm again.
        for mut before in std::mem::take(&mut self.checks) {
            let remembers = matches!(before.reason(), Reason::Torn | Reason::Frozen | Reason::BoxesDrift);
            if let Some(check) = checks.iter_mut().find(|check| remembers && check.reason() == before.reason()) {
                std::mem::swap(check, &mut before);
            }
        }
        (self.checks, self.off, self.observing, self.has_distributions) = (checks, off, observing, has_distributions);
        Ok(())
    }

    /// What frames are compared with: what a person accepted, else the bundle's reference, else what was learnt. Why there
    /// is none.
    fn anchor<'a>(&'a self, baseline: &'a Baseline) -> (Option<&'a Reference>, Option<String>) {
        let kept = |from| baseline.anchor.as_ref().filter(|anchor| anchor.from == from).map(|anchor| &anchor.reference);
        if let Some(accepted) = kept(AnchorFrom::Accepted) {
            return (Some(accepted), None);
        }
        let why = match &self.spec.reference {
            Some(reference) if float64(reference.pictures) >= self.spec.limits.reference_pictures => {
                return (Some(reference), None);
            }
            Some(reference) => format!("the reference has {} pictures, too few", reference.pictures),
            None => "there is no reference".to_owned(),
        };
        match (kept(AnchorFrom::Learnt), &self.learner) {
            (Some(learnt), _) => (Some(learnt), None),
            (None, Some(learner)) => {
                (None, Some(format!("{why} yet; one is learnt from {} good frames", learner.progress().1)))
            }
            (None, None) => (None, Some(why)),
        }
    }

    /// Judges one frame. Frames of the stream come in order; checks that count frames in a row count these.
    pub fn judge(&mut self, seen: &Observation<'_>) -> Verdict {
        if self.home.record.changes() != self.changes_seen {
            self.follow();
        }
        let mut verdict =
            Verdict { trust: Trust::Trusted, reasons: Vec::new(), observed: Vec::new(), standing: self.standing() };
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
        if verdict.trust == Trust::Trusted && verdict.observed.is_empty() {
            self.learn(seen);
        }
        verdict
    }

    /// A good frame: it belongs to the baseline.
    fn learn(&mut self, seen: &Observation<'_>) {
        let (Some(learner), Some(stats), Some(answer)) = (&mut self.learner, seen.stats(), seen.answer) else { return };
        if let Some(block) = learner.take(stats, answer.detections) {
            self.home.record.block_done(block, !self.has_distributions);
        }
    }

    /// The baseline has changed: by this guard, by another one of the stream, or by a person.
    fn follow(&mut self) {
        let baseline = self.home.record.baseline();
        let accepted = baseline.anchor.as_ref().is_some_and(|anchor| anchor.from == AnchorFrom::Accepted);
        if !self.has_distributions || accepted {
            // The specification was checked when this guard was made.
            if let Err(error) = self.set_up() {
                log::error!("the guard's checks cannot be made anew: {error}");
            }
        }
        self.changes_seen = self.home.record.changes();
        if let Some(rolling) = &baseline.rolling {
            self.checks.iter_mut().for_each(|check| check.roll(&rolling.reference));
        }
    }

    /// Whether soft checks act.
    pub fn standing(&self) -> Standing {
        match (&self.observing, &self.learner) {
            (None, _) => Standing::Act,
            (Some(_), Some(learner)) if self.home.mode == GuardMode::Act => {
                let (good, wanted) = learner.progress();
                Standing::Learn { good, wanted }
            }
            (Some(_), _) => Standing::Observe,
        }
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
        let alone = [&expected[..], &[Reason::ForeignBoxes]].concat();
        assert_eq!(off(live()), alone);
        let of_files = [Reason::BoxesDrift, Reason::ForeignBoxes, Reason::ScoreShift, Reason::ClassMix];
        let unrelated_off = [Reason::Shifted, Reason::Torn, Reason::Frozen];
        assert_eq!(off(unrelated()), [&expected[..], &of_files, &unrelated_off].concat());
        assert_eq!(off(StreamTraits { triggered: true, ..live() }), [&alone[..], &[Reason::Frozen]].concat());
    }

    #[test]
    fn without_a_reference_one_is_learnt_from_good_frames_and_soft_checks_act_from_then_on() {
        let mut scene = Scene::without_reference();
        scene.spec.limits.learn_frames = 50.0;
        let home = Home { record: Record::of(Baseline::default()), ..Home::alone() };
        let mut stream = scene.stream_of(live(), home.clone());
        let good = crate::guard::fixture::boxes(4, 0.8);
        assert_eq!(stream.see_boxes(&good).standing, Standing::Learn { good: 0, wanted: 50 });
        // Bad frames are not learnt.
        stream.see(|frame| frame.output.nan = 1);
        for _ in 0..48 {
            stream.see_boxes(&good);
        }
        assert_eq!(stream.see_boxes(&good).standing, Standing::Learn { good: 49, wanted: 50 });
        assert_eq!(stream.see_boxes(&good).standing, Standing::Act);
        assert_eq!(home.record.baseline().anchor.unwrap().reference.pictures, 50);
        let flood = crate::guard::fixture::boxes(250, 0.8);
        let last = (0..3).map(|_| stream.see_boxes(&flood)).last().unwrap();
        assert_eq!((last.trust, &last.reasons[..]), (Trust::Suspect, &[Reason::BoxSurge][..]));
        // A later guard of the same stream has it from the start, one that only observes does not act on it.
        let later = scene.stream_of(live(), home.clone());
        assert_eq!((later.guard.observing(), later.guard.standing()), (None, Standing::Act));
        let observer = scene.stream_of(live(), Home { mode: GuardMode::Observe, ..home.clone() });
        assert_eq!(observer.guard.standing(), Standing::Observe);
        assert!(observer.guard.observing().unwrap().contains("--guard observe"));
        assert!(scene.stream_of(unrelated(), Home::alone()).guard.observing().unwrap().contains("no reference"));
    }

    #[test]
    fn distributions_that_an_older_reference_lacks_are_learnt_beside_it() {
        let mut scene = Scene::with_reference();
        scene.spec.limits.learn_frames = 60.0;
        scene.spec.limits.score_shift_frames = 50.0;
        let reference = scene.spec.reference.as_mut().unwrap();
        (reference.score_bins, reference.class_boxes) = (vec![], vec![]);
        let mut stream = scene.stream(live());
        assert_eq!(stream.guard.standing(), Standing::Act);
        let is_off = |stream: &crate::guard::fixture::Stream| {
            stream.guard.off_aloud().iter().any(|off| off.reason == Reason::ScoreShift)
        };
        assert!(is_off(&stream));
        for _ in 0..61 {
            stream.see_boxes(&crate::guard::fixture::boxes(4, 0.8));
        }
        assert!(!is_off(&stream));
        let low = crate::guard::fixture::boxes(4, 0.4);
        assert!((0..200).any(|_| stream.see_boxes(&low).reasons == [Reason::ScoreShift]));
    }

    #[test]
    fn a_slow_drift_teaches_the_rolling_baseline_and_never_the_anchor() {
        let mut scene = Scene::without_reference();
        scene.spec.limits.learn_frames = 300.0;
        scene.spec.limits.score_shift_frames = 100.0;
        let home = Home { record: Record::of(Baseline::default()), ..Home::alone() };
        let mut stream = scene.stream_of(live(), home.clone());
        let mut score = 0.90;
        let seen = (0..5000).find(|_| {
            score -= 0.0001;
            stream.see_boxes(&crate::guard::fixture::boxes(4, score)).reasons.contains(&Reason::ScoreShift)
        });
        assert!((1500..2300).contains(&seen.unwrap()), "{seen:?}");
        // A person accepts what is usual now: the same guard follows at once.
        home.record.accept().unwrap();
        assert_eq!(stream.see_boxes(&crate::guard::fixture::boxes(4, score)).trust, Trust::Trusted);
        assert!(home.record.baseline().anchor.unwrap().reference.scores.median < 0.8);
    }

    #[test]
    fn a_sudden_change_within_a_wide_anchor_is_seen_by_the_rolling_baseline() {
        let mut scene = Scene::with_reference();
        scene.spec.limits.learn_frames = 300.0;
        scene.spec.limits.score_shift_frames = 100.0;
        let mut stream = scene.stream(live());
        // The anchor's scores lie around 0.73; 0.84 and 0.62 are both near enough to it, but not to each other.
        let usual = crate::guard::fixture::boxes(4, 0.84);
        for number in 0..400 {
            assert_eq!(stream.see_boxes(&usual).trust, Trust::Trusted, "{number}");
        }
        let other = crate::guard::fixture::boxes(4, 0.62);
        let seen = (0..400).find(|_| stream.see_boxes(&other).reasons.contains(&Reason::ScoreShift));
        assert!(seen.is_some_and(|frames| frames > 50), "{seen:?}");
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
