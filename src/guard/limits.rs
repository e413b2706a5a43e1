//! The guard's limits: name, unit, default and meaning of every number that a recipe may set (`[guard.limits]`).

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

macro_rules! limits {
    ($($name:ident = $default:expr, $unit:literal, $meaning:literal;)+) => {
        /// Every limit of the guard, with its default; `[guard.limits]` in the recipe. Whole numbers of frames, boxes and
        /// pictures are given as such.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Limits {
            $(#[doc = $meaning] #[doc = concat!("Unit: ", $unit, ".")] pub $name: f64,)+
        }

        impl Default for Limits {
            fn default() -> Self {
                Limits { $($name: $default,)+ }
            }
        }

        impl Limits {
            /// Every limit with its unit, default and meaning, in the order of the documentation.
            pub const TABLE: &[LimitInfo] = &[
                $(LimitInfo { name: stringify!($name), unit: $unit, default: $default, meaning: $meaning },)+
            ];

            fn values(&self) -> Vec<(&'static str, f64)> {
                vec![$((stringify!($name), self.$name),)+]
            }
        }
    };
}

/// What is known of one limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LimitInfo {
    /// Name of the key in `[guard.limits]`.
    pub name: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// Value when the recipe does not set it.
    pub default: f64,
    /// What it means, in one sentence.
    pub meaning: &'static str,
}

limits! {
    reference_pictures = 10.0, "pictures", "Least pictures in the reference; with fewer, soft checks only observe.";
    box_surge_factor = 3.0, "times", "Surge above this many times the reference's 99.5 % quantile of boxes a picture.";
    box_surge_extra = 20.0, "boxes", "Surge above the reference's maximum plus this many boxes, if that is more.";
    box_surge_frames = 3.0, "frames", "Frames in a row above the limit before the surge is called.";
    confidence_score = 0.99, "score", "Least score that can count as too confident; the reference's maximum if that is higher.";
    confidence_share = 0.5, "share 0..1", "Share of boxes in the window that must be too confident.";
    confidence_boxes = 10.0, "boxes", "Least boxes in the window before the share means anything.";
    confidence_frames = 30.0, "frames", "Length of the window.";
    vanished_frames = 5.0, "frames", "Frames in a row without what the recipe says to expect.";
    boxes_outside_share = 0.5, "share 0..1", "A box counts as outside when more than this share of its area lies outside the picture.";
    boxes_outside_frames = 3.0, "frames", "Frames in a row with a box outside.";
    drift_px = 1.0, "px", "Boxes have drifted from this on, in px of the source picture, for each 640 px of its longer side.";
    drift_frames = 10.0, "frames", "Frames over which boxes and scene are averaged; the first ones of a still scene are the measure.";
    still_luma = 0.5, "luma 0..255", "A scene is still while no cell of the view differs by more than this, averaged.";
    foreign_boxes = 2.0, "boxes", "Least boxes of an answer that may belong to another stream.";
    foreign_share = 0.75, "share 0..1", "Share of boxes that must fit the other stream's last answer.";
    foreign_own_share = 0.25, "share 0..1", "And at most this share may fit this stream's own last answer, over an unchanged picture.";
    score_shift = 0.15, "score", "Scores have shifted when their distribution has moved by this much on average (earth mover's distance).";
    score_shift_frames = 500.0, "frames", "Frames that the present distribution covers, with fading weight; the check waits for so many.";
    score_shift_boxes = 100.0, "boxes", "Least boxes among them.";
    class_mix_share = 0.6, "share 0..1", "The mix of classes has changed when this share of the boxes would have to be of another class.";
    class_mix_frames = 2000.0, "frames", "Frames that the present mix covers, with fading weight; the check waits for so many.";
    class_mix_boxes = 100.0, "boxes", "Least boxes among them.";
    learn_frames = 2000.0, "frames", "Good frames of a live stream that make a reference where the bundle has none, and a block of the rolling baseline.";
    dark_luma = 12.0, "luma 0..255", "A picture is black below this mean luma; half of the reference's minimum if that is lower.";
    dark_contrast = 10.0, "luma 0..255", "And below this standard deviation of luma: a dark field with bright parts is not black.";
    over_exposed_extra = 0.25, "share 0..1", "Over-exposed when this much more of the picture is saturated than the reference's maximum.";
    over_exposed_share = 0.5, "share 0..1", "Without a reference: over-exposed when more than this share of the picture is saturated ...";
    over_exposed_contrast = 40.0, "luma 0..255", "... and the contrast is below this, so that a dark part before a white light is not over-exposed.";
    light_low_share = 0.5, "times", "The light has changed below this many times the reference's minimum of mean luma.";
    light_high_share = 1.8, "times", "The light has changed above this many times the reference's maximum of mean luma.";
    low_contrast_luma = 3.0, "luma 0..255", "Low contrast below this standard deviation of luma ...";
    low_contrast_share = 0.15, "times", "... or below this many times the reference's minimum.";
    blurred_share = 0.25, "times", "Blurred when sharpness and crispness are both below this many times the reference's 0.5 % quantile.";
    shifted_share = 0.02, "share 0..1", "The view has moved by at least this share of the picture's width or height.";
    shifted_frames = 3.0, "frames", "Frames in a row with a moved view.";
    torn_share = 0.125, "share 0..1", "Least share of the picture's height that is stale or blank.";
    torn_arming_frames = 100.0, "frames", "Frames in a row with noise all over the picture before the check may speak.";
    frozen_frames = 10.0, "frames", "Frames in a row that were all delivered before.";
    frozen_ms = 500.0, "ms", "Least time over which they came.";
    frozen_cycle_frames = 8.0, "frames", "Pictures remembered, so that a camera repeating a few of them is frozen too.";
}

impl Limits {
    /// Refuses values that mean nothing.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for a value that is negative, infinite or not a number.
    pub fn check(&self) -> Result<()> {
        match self.values().into_iter().find(|(_, value)| !(0.0..1e12).contains(value)) {
            None => Ok(()),
            Some((name, value)) => Err(Error::usage(format!("found {value}, expected a number from 0 up"))
                .at(format!("[guard.limits] {name}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_every_field_with_its_default() {
        let fields = serde_json::to_value(Limits::default()).unwrap();
        let fields = fields.as_object().unwrap();
        assert_eq!(fields.len(), Limits::TABLE.len());
        for limit in Limits::TABLE {
            assert_eq!(fields[limit.name].as_f64(), Some(limit.default), "{}", limit.name);
            assert!(!limit.unit.is_empty() && limit.meaning.ends_with(['.', ' ', '…']), "{}", limit.name);
        }
    }

    #[test]
    fn a_recipe_sets_single_limits_and_unknown_ones_are_errors() {
        let limits: Limits = toml::from_str("frozen_frames = 20").unwrap();
        assert_eq!(limits, Limits { frozen_frames: 20.0, ..Limits::default() });
        assert!(toml::from_str::<Limits>("frozen_frame = 20").is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Limits::default().check().is_ok());
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            let error = Limits { dark_luma: bad, ..Limits::default() }.check().unwrap_err();
            assert_eq!(error.place(), Some("[guard.limits] dark_luma"));
        }
    }
}
