//! Counts over every element of an output.

use super::OutputStats;
use crate::units::{count, narrow};

/// Running counts; [`Tally::finish`] makes the statistics of them.
#[derive(Debug, Default)]
pub(super) struct Tally {
    stats: OutputStats,
    any_bit: u32,
    best_scores: u64,
    sum: f64,
    lowest: Option<f32>,
    highest: Option<f32>,
}

/// Everything but the sign: zero for 0.0 and -0.0.
const MAGNITUDE: u32 = 0x7fff_ffff;
/// Bits of infinity; larger magnitudes are NaN.
const INFINITE: u32 = 0x7f80_0000;
/// Bits of 1.0; a non-negative float is above 1 exactly when its bits are above these.
const ONE: u32 = 0x3f80_0000;

impl Tally {
    /// Counts values that may be any finite number.
    pub(super) fn numbers(&mut self, values: &[f32]) {
        let mut any_bit = 0;
        let mut odd = 0_u32;
        for value in values {
            let magnitude = value.to_bits() & MAGNITUDE;
            any_bit |= magnitude;
            odd += u32::from(magnitude >= INFINITE);
        }
        self.stats.values += count(values.len());
        self.any_bit |= any_bit;
        if odd > 0 {
            self.not_finite(values);
        }
    }

    /// Counts values that are scores, 0..1.
    pub(super) fn scores(&mut self, values: &[f32]) {
        let mut any_bit = 0;
        let mut odd = 0_u32;
        for value in values {
            any_bit |= value.to_bits() & MAGNITUDE;
            odd += u32::from(is_odd_score(*value));
        }
        self.add_scores(values, any_bit, odd);
    }

    /// As [`Tally::scores`], when the caller has looked at the values already: `any_bit` is the union of their magnitude
    /// bits, `odd` the number for which [`is_odd_score`] holds.
    pub(super) fn add_scores(&mut self, values: &[f32], any_bit: u32, odd: u32) {
        self.stats.values += count(values.len());
        self.any_bit |= any_bit;
        if odd > 0 {
            self.not_finite(values);
            let outside = |value: &&f32| **value > 1.0 || **value < 0.0;
            self.stats.scores_out_of_range += count(values.iter().filter(outside).count());
        }
    }

    fn not_finite(&mut self, values: &[f32]) {
        self.stats.nan += count(values.iter().filter(|value| value.is_nan()).count());
        self.stats.infinite += count(values.iter().filter(|value| value.is_infinite()).count());
    }

    /// Adds the best scores of a run of anchors; those that are not finite stay out of minimum, maximum and mean.
    pub(super) fn best_scores(&mut self, scores: &[f32]) {
        for &score in scores.iter().filter(|score| score.is_finite()) {
            self.best_scores += 1;
            self.sum += f64::from(score);
            self.lowest = Some(self.lowest.map_or(score, |lowest| lowest.min(score)));
            self.highest = Some(self.highest.map_or(score, |highest| highest.max(score)));
        }
    }

    /// Counts one candidate that reached the floor.
    pub(super) fn candidate(&mut self) {
        self.stats.boxes_before_nms += 1;
    }

    /// Counts a class id outside `0..classes`.
    pub(super) fn bad_class_id(&mut self) {
        self.stats.class_ids_out_of_range += 1;
    }

    /// Counts a number of rows outside what the output holds.
    pub(super) fn bad_count(&mut self) {
        self.stats.counts_out_of_range += 1;
    }

    pub(super) fn finish(self) -> OutputStats {
        let mean = if self.best_scores > 0 { self.sum / crate::units::float64(self.best_scores) } else { 0.0 };
        OutputStats {
            all_zero: self.any_bit == 0 && self.stats.values > 0,
            minimum_score: self.lowest.unwrap_or(0.0),
            maximum_score: self.highest.unwrap_or(0.0),
            mean_score: narrow(mean),
            ..self.stats
        }
    }
}

/// Whether `value` is no score: not a number, below 0 or above 1. True for -0.0 too, which the slow count forgives.
#[inline(always)]
pub(super) fn is_odd_score(value: f32) -> bool {
    value.to_bits() > ONE
}

/// Magnitude bits, for [`Tally::add_scores`].
#[inline(always)]
pub(super) fn magnitude_bits(value: f32) -> u32 {
    value.to_bits() & MAGNITUDE
}
