//! The checks, one file each. A check that is to be added needs its file, a [`Reason`] and a line in [`ALL`]; the table in
//! `docs/guard.md` is made from what its `ABOUT` says.

use super::gallery::Gallery;
use super::judge::{Observation, StreamTraits};
use super::{Expectation, Limits, Reason, Reference, Severity, Side};
use crate::error::Result;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

mod all_zero;
mod blurred;
mod box_surge;
mod boxes_drift;
mod boxes_outside;
mod boxes_vanished;
mod changeover;
mod class_mix;
mod class_range;
mod confidence_explosion;
mod count_range;
mod dark;
mod echo_differs;
mod engine_error;
mod foreign_boxes;
mod frozen;
mod infinite;
mod late;
mod light_changed;
mod low_contrast;
mod nan;
mod no_picture;
mod over_exposed;
mod score_range;
mod score_shift;
mod shifted;
mod small_objects_vanished;
mod torn;
mod unreadable;
mod wrong_frame;

/// What people need to know of a check.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct About {
    /// What it reports.
    pub reason: Reason,
    /// Fault at once, or suspicion.
    pub severity: Severity,
    /// Whose fault it is.
    pub side: Side,
    /// What it compares with what.
    pub compares: &'static str,
    /// Names of the limits it uses, from [`Limits::TABLE`].
    pub limits: &'static [&'static str],
    /// When it is off.
    pub off_when: &'static str,
    /// What was seen and what to do now, for the operator, in English.
    pub english: Advice,
    /// The same in Chinese.
    pub chinese: Advice,
}

/// A text for the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advice {
    /// What was seen, in a few words.
    pub seen: &'static str,
    /// What to do now, one sentence.
    pub what_to_do: &'static str,
}

/// What a check may look at when it is set up.
pub(super) struct Setup<'a> {
    /// The anchor: the reference, when it may be believed.
    pub(super) reference: Option<&'a Reference>,
    /// The anchor for distributions of scores and classes: the same, or what was learnt where it holds none.
    pub(super) distributions: Option<&'a Reference>,
    /// The last block of good frames on this line.
    pub(super) rolling: Option<&'a Reference>,
    /// The last boxes of all streams.
    pub(super) gallery: &'a Arc<Gallery>,
    /// Which of the streams this is.
    pub(super) lane: usize,
    /// What every good picture shows.
    pub(super) expect: &'a BTreeMap<String, Expectation>,
    /// The limits in force.
    pub(super) limits: &'a Limits,
    /// Class names, index = class id.
    pub(super) classes: &'a [String],
    /// The kind of stream.
    pub(super) traits: StreamTraits,
}

/// A check ready to run, or why it is off.
pub(super) enum SetUp {
    /// Runs on every frame.
    On(Box<dyn Check>),
    /// Cannot run on this stream.
    Off(String),
}

impl SetUp {
    fn on(check: impl Check + 'static) -> Result<Self> {
        Ok(SetUp::On(Box::new(check)))
    }

    fn off(why: &str) -> Result<Self> {
        Ok(SetUp::Off(why.to_owned()))
    }
}

/// One check with its memory of the frames before.
pub(super) trait Check: Send + Debug {
    /// What it reports.
    fn reason(&self) -> Reason;

    /// Whether it fires on this frame. Called once a frame, in order, also for frames without picture or answer.
    fn fires(&mut self, seen: &Observation<'_>) -> bool;

    /// Another block of good frames is whole.
    fn roll(&mut self, _rolling: &Reference) {}

    /// Why it cannot judge the frames it gets, as learnt from the last one.
    fn idle(&self) -> Option<String> {
        None
    }
}

type MakeCheck = fn(&Setup<'_>) -> Result<SetUp>;

/// Every reason that an answer can be distrusted for, in the order in which they are reported.
pub fn reasons() -> impl Iterator<Item = Reason> {
    ALL.iter().map(|(about, _)| about.reason)
}

/// Every check, in the order in which reasons are reported.
pub(super) const ALL: [(About, MakeCheck); 30] = [
    (nan::ABOUT, nan::set_up),
    (infinite::ABOUT, infinite::set_up),
    (score_range::ABOUT, score_range::set_up),
    (class_range::ABOUT, class_range::set_up),
    (count_range::ABOUT, count_range::set_up),
    (all_zero::ABOUT, all_zero::set_up),
    (wrong_frame::ABOUT, wrong_frame::set_up),
    (echo_differs::ABOUT, echo_differs::set_up),
    (engine_error::ABOUT, engine_error::set_up),
    (late::ABOUT, late::set_up),
    (changeover::ABOUT, changeover::set_up),
    (box_surge::ABOUT, box_surge::set_up),
    (confidence_explosion::ABOUT, confidence_explosion::set_up),
    (small_objects_vanished::ABOUT, small_objects_vanished::set_up),
    (boxes_vanished::ABOUT, boxes_vanished::set_up),
    (boxes_outside::ABOUT, boxes_outside::set_up),
    (boxes_drift::ABOUT, boxes_drift::set_up),
    (foreign_boxes::ABOUT, foreign_boxes::set_up),
    (score_shift::ABOUT, score_shift::set_up),
    (class_mix::ABOUT, class_mix::set_up),
    (unreadable::ABOUT, unreadable::set_up),
    (no_picture::ABOUT, no_picture::set_up),
    (dark::ABOUT, dark::set_up),
    (over_exposed::ABOUT, over_exposed::set_up),
    (light_changed::ABOUT, light_changed::set_up),
    (low_contrast::ABOUT, low_contrast::set_up),
    (blurred::ABOUT, blurred::set_up),
    (shifted::ABOUT, shifted::set_up),
    (torn::ABOUT, torn::set_up),
    (frozen::ABOUT, frozen::set_up),
];

impl Reason {
    /// Everything people need to know of it.
    pub const fn about(self) -> &'static About {
        match self {
            Reason::Nan => &nan::ABOUT,
            Reason::Infinite => &infinite::ABOUT,
            Reason::ScoreRange => &score_range::ABOUT,
            Reason::ClassRange => &class_range::ABOUT,
            Reason::CountRange => &count_range::ABOUT,
            Reason::AllZero => &all_zero::ABOUT,
            Reason::WrongFrame => &wrong_frame::ABOUT,
            Reason::EchoDiffers => &echo_differs::ABOUT,
            Reason::EngineError => &engine_error::ABOUT,
            Reason::Late => &late::ABOUT,
            Reason::Changeover => &changeover::ABOUT,
            Reason::BoxSurge => &box_surge::ABOUT,
            Reason::ConfidenceExplosion => &confidence_explosion::ABOUT,
            Reason::SmallObjectsVanished => &small_objects_vanished::ABOUT,
            Reason::BoxesVanished => &boxes_vanished::ABOUT,
            Reason::BoxesOutside => &boxes_outside::ABOUT,
            Reason::BoxesDrift => &boxes_drift::ABOUT,
            Reason::ForeignBoxes => &foreign_boxes::ABOUT,
            Reason::ScoreShift => &score_shift::ABOUT,
            Reason::ClassMix => &class_mix::ABOUT,
            Reason::Dark => &dark::ABOUT,
            Reason::OverExposed => &over_exposed::ABOUT,
            Reason::LightChanged => &light_changed::ABOUT,
            Reason::LowContrast => &low_contrast::ABOUT,
            Reason::Blurred => &blurred::ABOUT,
            Reason::Shifted => &shifted::ABOUT,
            Reason::Torn => &torn::ABOUT,
            Reason::Frozen => &frozen::ABOUT,
            Reason::Unreadable => &unreadable::ABOUT,
            Reason::NoPicture => &no_picture::ABOUT,
        }
    }

    /// Every reason, in the order in which they are reported.
    pub fn all() -> impl Iterator<Item = Reason> {
        ALL.iter().map(|(about, _)| about.reason)
    }

    /// Fault at once, or suspicion.
    pub const fn severity(self) -> Severity {
        self.about().severity
    }

    /// Whose fault it is.
    pub const fn side(self) -> Side {
        self.about().side
    }

    /// The text form in results and metrics, the same as [`Reason::name`].
    pub const fn label(self) -> &'static str {
        self.name()
    }

    /// What was seen and what to do now, for the operator, in English.
    pub const fn english(self) -> Advice {
        self.about().english
    }

    /// What was seen and what to do now, for the operator, in Chinese.
    pub const fn chinese(self) -> Advice {
        self.about().chinese
    }

    /// Whether it is a fault of the engine itself. A part without an answer in time and a changeover speak against nobody.
    pub fn is_engine_fault(self) -> bool {
        let of_the_run = matches!(self, Reason::Late | Reason::Changeover);
        self.side() == Side::Engine && self.severity() == Severity::Hard && !of_the_run
    }

    /// Whether a recipe may switch it off: soft checks, and hard ones that look into a picture.
    pub fn can_be_off(self) -> bool {
        match (self.severity(), self.side()) {
            (Severity::Soft, _) => true,
            (Severity::Hard, Side::Engine) => false,
            (Severity::Hard, Side::Picture) => !matches!(self, Reason::Unreadable | Reason::NoPicture),
        }
    }
}

/// Counts frames in a row.
#[derive(Debug)]
struct Streak {
    needed: f64,
    frames: u64,
}

impl Streak {
    fn of(needed: f64) -> Self {
        Streak { needed, frames: 0 }
    }

    /// Whether this frame and enough before it were hits; a frame that is none ends the row.
    fn count(&mut self, hit: bool) -> bool {
        self.frames = if hit { self.frames.saturating_add(1) } else { 0 };
        hit && crate::units::float64(self.frames) >= self.needed
    }
}

const NEVER_OFF: &str = "never";
const NO_REFERENCE: &str = "there is no reference to compare with";
const NOT_LEARNT: &str = "what is usual is not learnt yet";
const UNRELATED: &str = "the pictures do not follow each other, so they cannot be compared";
const NOT_LIVE: &str = "the source is not live";

#[cfg(test)]
mod documentation;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_holds_every_reason_once_and_agrees_with_itself() {
        for (position, (about, _)) in ALL.iter().enumerate() {
            assert_eq!(about.reason.about(), about);
            assert_eq!(ALL.iter().position(|(other, _)| other.reason == about.reason), Some(position));
            assert_eq!(serde_json::to_value(about.reason).unwrap(), about.reason.label());
        }
    }

    #[test]
    fn every_limit_belongs_to_a_check_and_exists() {
        let known: Vec<_> = Limits::TABLE.iter().map(|limit| limit.name).collect();
        let used: Vec<_> = ALL.iter().flat_map(|(about, _)| about.limits.iter().copied()).collect();
        for name in &used {
            assert!(known.contains(name), "{name} is no limit");
        }
        for name in known {
            assert!(
                used.contains(&name) || ["reference_pictures", "learn_frames"].contains(&name),
                "{name} is used by no check"
            );
        }
    }

    #[test]
    fn texts_are_short_and_complete() {
        for (about, _) in ALL {
            for advice in [about.english, about.chinese] {
                assert!((3..60).contains(&advice.seen.chars().count()), "{:?}", about.reason);
                assert!((5..160).contains(&advice.what_to_do.chars().count()), "{:?}", about.reason);
            }
            assert!(about.english.what_to_do.is_ascii() && !about.chinese.what_to_do.is_ascii());
        }
    }
}
