//! The guard: compares and decides, changes nothing. Pure functions from observations to trust.
//!
//! Every check lives in its own file and is marked hard (fault at once) or soft (suspect), engine side or picture side;
//! `docs/guard.md` lists them all with their limits.
//!
//! One [`Guard`] judges one stream. Its only state is what checks remember of the frames before (how long a surge has
//! lasted, which pictures came lately), so equal observations give equal verdicts. Nothing is allocated for a trusted
//! frame.

use crate::units::SizePx;
use serde::{Deserialize, Serialize};

pub mod baseline;
mod checks;
pub mod gallery;
mod judge;
pub mod ladder;
mod limits;
pub mod memory;
pub mod picture;
pub mod reference;
pub mod schedule;
mod view;

pub use baseline::{Anchor, AnchorFrom, Baseline, GuardMode, Record, Standing};
pub use checks::{About, reasons};
pub use gallery::Gallery;
pub use judge::{Answer, Guard, Home, Observation, Off, Seen, StreamTraits, Verdict};
pub use limits::{LimitInfo, Limits};

/// What the guard says of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trust {
    /// Nothing speaks against it.
    Trusted,
    /// A soft check speaks against it.
    Suspect,
    /// A hard check fired, or there is no answer. Never `pass` or `reject`.
    Fault,
}

impl Trust {
    /// The text form in results.
    pub const fn name(self) -> &'static str {
        match self {
            Trust::Trusted => "trusted",
            Trust::Suspect => "suspect",
            Trust::Fault => "fault",
        }
    }
}

/// Whether a check ends in a fault at once or in suspicion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Fault at once.
    Hard,
    /// Suspect.
    Soft,
}

/// Whose fault a reason is: only engine-side reasons climb the recovery ladder, picture-side ones re-open the camera.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The engine's answer.
    Engine,
    /// The picture.
    Picture,
}

/// Why an answer is not trusted. The text form is the label in results and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// The output holds values that are not a number.
    Nan,
    /// The output holds infinite values.
    Infinite,
    /// A score lies outside 0..1.
    ScoreRange,
    /// A class id is no integer in range.
    ClassRange,
    /// A row count is more than the output can hold.
    CountRange,
    /// Every output value is zero.
    AllZero,
    /// The answer carries another frame's identity.
    WrongFrame,
    /// Two runs over one frame gave two answers.
    EchoDiffers,
    /// The engine returned an error.
    EngineError,
    /// A part got no answer in time.
    Late,
    /// The line was being changed over to another product.
    Changeover,
    /// Far more boxes than on good pictures.
    BoxSurge,
    /// Scores far above those of good pictures.
    ConfidenceExplosion,
    /// Expected small objects are gone.
    SmallObjectsVanished,
    /// Expected objects are gone.
    BoxesVanished,
    /// Boxes lie outside the picture.
    BoxesOutside,
    /// Boxes move although the scene is still.
    BoxesDrift,
    /// The boxes are those of another stream.
    ForeignBoxes,
    /// Scores are distributed otherwise than usual.
    ScoreShift,
    /// The mix of classes is another than usual.
    ClassMix,
    /// The picture is black or nearly so.
    Dark,
    /// The picture is over-exposed.
    OverExposed,
    /// Mean brightness is far from that of good pictures.
    LightChanged,
    /// The picture has no contrast.
    LowContrast,
    /// The picture is blurred.
    Blurred,
    /// The camera's view has moved against the reference.
    Shifted,
    /// The picture consists of parts of different frames.
    Torn,
    /// The camera repeats one picture.
    Frozen,
    /// The picture could not be read or decoded.
    Unreadable,
    /// The camera gave no picture.
    NoPicture,
}

impl Reason {
    /// The text form in results and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Nan => "nan",
            Reason::Infinite => "infinite",
            Reason::ScoreRange => "score_range",
            Reason::ClassRange => "class_range",
            Reason::CountRange => "count_range",
            Reason::AllZero => "all_zero",
            Reason::WrongFrame => "wrong_frame",
            Reason::EchoDiffers => "echo_differs",
            Reason::EngineError => "engine_error",
            Reason::Late => "late",
            Reason::Changeover => "changeover",
            Reason::BoxSurge => "box_surge",
            Reason::ConfidenceExplosion => "confidence_explosion",
            Reason::SmallObjectsVanished => "small_objects_vanished",
            Reason::BoxesVanished => "boxes_vanished",
            Reason::BoxesOutside => "boxes_outside",
            Reason::BoxesDrift => "boxes_drift",
            Reason::ForeignBoxes => "foreign_boxes",
            Reason::ScoreShift => "score_shift",
            Reason::ClassMix => "class_mix",
            Reason::Dark => "dark",
            Reason::OverExposed => "over_exposed",
            Reason::LightChanged => "light_changed",
            Reason::LowContrast => "low_contrast",
            Reason::Blurred => "blurred",
            Reason::Shifted => "shifted",
            Reason::Torn => "torn",
            Reason::Frozen => "frozen",
            Reason::Unreadable => "unreadable",
            Reason::NoPicture => "no_picture",
        }
    }
}

/// What the guard compares with; part of the manifest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuardSpec {
    /// Distributions on good pictures; `None` is written as `reference: none`: soft checks only observe until edge-run has
    /// learnt one.
    pub reference: Option<Reference>,
    /// What every good picture shows: class name → what to expect.
    pub expect: std::collections::BTreeMap<String, Expectation>,
    /// Reasons that are switched off by the recipe. Hard engine-side checks, `unreadable` and `no_picture` cannot be.
    pub off: Vec<Reason>,
    /// Limits that the recipe sets.
    pub limits: Limits,
}

/// What every good picture shows of one class (`guard.expect` in the recipe).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Least number of boxes.
    pub at_least: u32,
    /// Boxes up to this edge length count as small, px of the source picture; `None`: any size.
    #[serde(default)]
    pub small_up_to_px: Option<f32>,
}

/// Bins of [`Reference::score_bins`].
pub const SCORE_BINS: usize = 20;

/// Distributions on good pictures, computed by the guard's own code when the bundle is built.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reference {
    /// Pictures looked at.
    pub pictures: u64,
    /// Boxes a picture after NMS at the manifest's thresholds.
    pub boxes: Quantiles,
    /// Scores of those boxes.
    pub scores: Quantiles,
    /// Those scores counted in [`SCORE_BINS`] equal bins from 0 to 1; empty in references of older builds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub score_bins: Vec<u64>,
    /// Those boxes counted by class, index = class id; shorter than the classes when the last ones were not seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub class_boxes: Vec<u64>,
    /// Square root of the area of those boxes, px of the source picture.
    pub box_edge_px: Quantiles,
    /// Mean luma, 0..255.
    pub brightness: Quantiles,
    /// Standard deviation of luma, 0..255.
    pub contrast: Quantiles,
    /// Variance of the Laplacian of the luma at working size.
    pub sharpness: Quantiles,
    /// Sharpness over variance of luma, see [`picture::PictureStats::crispness`].
    pub crispness: Quantiles,
    /// Share of saturated pixels, 0..1.
    pub saturated_share: Quantiles,
    /// Size of the pictures; `None` when they differ. Sharpness and view are compared only with pictures of this size.
    pub picture_size: Option<SizePx>,
    /// Mean luma of all good pictures on a coarse grid, row by row, for the check of a moved camera; empty when the
    /// pictures differ too much from each other for that.
    pub view: Vec<u8>,
    /// Standard deviation of luma in each cell of `view`: the parts' path varies, the scene around it does not.
    pub view_spread: Vec<u8>,
    /// Columns of `view`; 0 when it is empty.
    pub view_columns: u32,
    /// Pictures share one size and enough of the scene is fixed, so that live streams may be compared with `view`.
    pub view_is_steady: bool,
}

/// Quantiles of one quantity.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantiles {
    /// Lowest.
    pub minimum: f64,
    /// 0.5 %.
    pub p005: f64,
    /// 50 %.
    pub median: f64,
    /// 99.5 %.
    pub p995: f64,
    /// Highest.
    pub maximum: f64,
}

#[cfg(test)]
mod fixture;
