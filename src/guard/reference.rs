//! The reference: how boxes and pictures are spread on good pictures, computed when a bundle is built.
//!
//! **Quantiles** are linear interpolations between order statistics: quantile q of n sorted values lies at position
//! q × (n − 1) (the default of NumPy, "type 7"). Without values all five are 0.

use super::picture::{PictureStats, VIEW_CELLS, VIEW_COLUMNS};
use super::view::{self, View};
use super::{Quantiles, Reference, SCORE_BINS};
use crate::detections::Detection;
use crate::units::{SizePx, count, count32, float64, index, length, round_px};

impl Quantiles {
    /// The quantiles of `values`, in any order; not-a-number is left out.
    pub fn of(values: &[f64]) -> Self {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        let quantile = |share: f64| {
            let position = share * (length(sorted.len()) - 1.0).max(0.0);
            let below = position.floor();
            let at = |position: f64| sorted.get(crate::units::index(round_px(position))).copied().unwrap_or_default();
            let (low, high) = (at(below), at(position.ceil()));
            low + (high - low) * (position - below)
        };
        Quantiles {
            minimum: quantile(0.0),
            p005: quantile(0.005),
            median: quantile(0.5),
            p995: quantile(0.995),
            maximum: quantile(1.0),
        }
    }
}

/// Class ids beyond this are counted as this one.
const MOST_CLASSES: usize = 9999;

/// The bin of a score; scores out of range fall into the first or last one.
pub(super) fn score_bin(score: f32) -> usize {
    let scaled = f64::from(score.clamp(0.0, 1.0)) * length(SCORE_BINS);
    index(round_px(scaled.floor().max(0.0))).min(SCORE_BINS - 1)
}

/// Collects good pictures and the boxes found on them, at the manifest's thresholds.
#[derive(Debug, Clone)]
pub struct ReferenceBuilder {
    most_boxes: usize,
    score_bins: [u64; SCORE_BINS],
    class_boxes: Vec<u64>,
    boxes: Vec<f64>,
    scores: Vec<f64>,
    box_edges_px: Vec<f64>,
    brightness: Vec<f64>,
    contrast: Vec<f64>,
    sharpness: Vec<f64>,
    crispness: Vec<f64>,
    saturated_share: Vec<f64>,
    sizes: Vec<SizePx>,
    view_sums: Vec<u64>,
    view_squares: Vec<u64>,
}

impl Default for ReferenceBuilder {
    fn default() -> Self {
        Self::with_room(0, usize::MAX, 0)
    }
}

impl ReferenceBuilder {
    /// A builder without pictures.
    pub fn new() -> Self {
        Self::default()
    }

    /// A builder that allocates nothing for the first `pictures` pictures with boxes of `classes` classes. Single scores
    /// and edges are kept for the first `boxes` boxes only; counts cover all.
    pub fn bounded(pictures: usize, boxes: usize, classes: usize) -> Self {
        let mut builder = Self::with_room(pictures, boxes, classes);
        builder.scores.reserve(boxes);
        builder.box_edges_px.reserve(boxes);
        builder.view_sums.reserve(VIEW_CELLS);
        builder.view_squares.reserve(VIEW_CELLS);
        builder.sizes.reserve(4);
        builder
    }

    fn with_room(pictures: usize, most_boxes: usize, classes: usize) -> Self {
        let figures = || Vec::with_capacity(pictures);
        ReferenceBuilder {
            most_boxes,
            score_bins: [0; SCORE_BINS],
            class_boxes: vec![0; classes],
            boxes: figures(),
            scores: Vec::new(),
            box_edges_px: Vec::new(),
            brightness: figures(),
            contrast: figures(),
            sharpness: figures(),
            crispness: figures(),
            saturated_share: figures(),
            sizes: Vec::new(),
            view_sums: Vec::new(),
            view_squares: Vec::new(),
        }
    }

    /// Forgets every picture and keeps the room.
    pub fn clear(&mut self) {
        self.score_bins = [0; SCORE_BINS];
        self.class_boxes.fill(0);
        let figures = [&mut self.boxes, &mut self.scores, &mut self.box_edges_px, &mut self.brightness];
        figures.into_iter().for_each(Vec::clear);
        let figures = [&mut self.contrast, &mut self.sharpness, &mut self.crispness, &mut self.saturated_share];
        figures.into_iter().for_each(Vec::clear);
        self.sizes.clear();
        self.view_sums.clear();
        self.view_squares.clear();
    }

    /// Adds one good picture. `source` is the size of the picture in pixels. A picture that is not whole is left out.
    pub fn add(&mut self, stats: &PictureStats, detections: &[Detection], source: SizePx) {
        if !stats.whole {
            return;
        }
        self.boxes.push(length(detections.len()));
        for found in detections {
            self.score_bins[score_bin(found.score)] += 1;
            let class = index(found.class_id);
            if class >= self.class_boxes.len() {
                self.class_boxes.resize(class.min(MOST_CLASSES) + 1, 0);
            }
            self.class_boxes[class.min(MOST_CLASSES)] += 1;
            if self.scores.len() < self.most_boxes {
                self.scores.push(f64::from(found.score));
                self.box_edges_px.push(f64::from(found.edges.area_px2()).sqrt());
            }
        }
        self.brightness.push(stats.brightness);
        self.contrast.push(stats.contrast);
        self.sharpness.push(stats.sharpness);
        self.crispness.push(stats.crispness());
        self.saturated_share.push(stats.saturated_share);
        // Two sizes are as good as many: then there is no one size.
        if self.sizes.len() < 2 && !self.sizes.contains(&source) {
            self.sizes.push(source);
        }
        self.view_sums.resize(VIEW_CELLS, 0);
        self.view_squares.resize(VIEW_CELLS, 0);
        for (cell, &luma) in stats.view.iter().enumerate() {
            self.view_sums[cell] += u64::from(luma);
            self.view_squares[cell] += u64::from(luma) * u64::from(luma);
        }
    }

    /// Pictures added so far.
    pub fn pictures(&self) -> u64 {
        count(self.boxes.len())
    }

    /// The reference of all pictures added.
    pub fn finish(&self) -> Reference {
        let view = self.view();
        let steady = view.as_ref().is_some_and(View::is_steady);
        let (view, view_spread) = view.filter(|_| steady).map_or_else(Default::default, View::into_parts);
        Reference {
            pictures: self.pictures(),
            boxes: Quantiles::of(&self.boxes),
            scores: Quantiles::of(&self.scores),
            score_bins: self.score_bins.to_vec(),
            class_boxes: self.class_boxes.clone(),
            box_edge_px: Quantiles::of(&self.box_edges_px),
            brightness: Quantiles::of(&self.brightness),
            contrast: Quantiles::of(&self.contrast),
            sharpness: Quantiles::of(&self.sharpness),
            crispness: Quantiles::of(&self.crispness),
            saturated_share: Quantiles::of(&self.saturated_share),
            picture_size: self.one_size(),
            view,
            view_spread,
            view_columns: if steady { count32(VIEW_COLUMNS) } else { 0 },
            view_is_steady: steady,
        }
    }

    fn one_size(&self) -> Option<SizePx> {
        match self.sizes[..] {
            [size] => Some(size),
            _ => None,
        }
    }

    fn view(&self) -> Option<View> {
        if self.pictures() < view::LEAST_PICTURES || self.one_size().is_none() {
            return None;
        }
        let pictures = float64(self.pictures());
        let mut mean = Vec::with_capacity(VIEW_CELLS);
        let mut spread = Vec::with_capacity(VIEW_CELLS);
        for (&sum, &squares) in self.view_sums.iter().zip(&self.view_squares) {
            let average = float64(sum) / pictures;
            let variance = (float64(squares) / pictures - average * average).max(0.0);
            mean.push(u8::try_from(round_px(average)).unwrap_or(u8::MAX));
            spread.push(u8::try_from(round_px(variance.sqrt())).unwrap_or(u8::MAX));
        }
        View::new(mean, spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::fixture::{boxes, gray, noisy_scene};

    #[test]
    fn quantiles_interpolate_as_documented() {
        let hundred: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        let expected = Quantiles { minimum: 0.0, p005: 0.5, median: 50.0, p995: 99.5, maximum: 100.0 };
        assert_eq!(Quantiles::of(&hundred), expected);
        assert_eq!(Quantiles::of(&[]), Quantiles::default());
        let one = Quantiles { minimum: 7.0, p005: 7.0, median: 7.0, p995: 7.0, maximum: 7.0 };
        assert_eq!(Quantiles::of(&[7.0, f64::NAN]), one);
    }

    #[test]
    fn counts_scores_and_edges_are_collected() {
        let size = SizePx::new(640, 480);
        let stats = PictureStats::measure(&noisy_scene(size, 0, 2));
        let mut builder = ReferenceBuilder::new();
        builder.add(&stats, &[], size);
        builder.add(&stats, &boxes(4, 0.75), size);
        let reference = builder.finish();
        assert_eq!(reference.pictures, 2);
        assert_eq!((reference.boxes.minimum, reference.boxes.maximum), (0.0, 4.0));
        assert_eq!((reference.scores.minimum, reference.scores.maximum), (0.75, 0.75));
        assert!((reference.box_edge_px.median - 30.0).abs() < 1e-3);
        assert_eq!((reference.class_boxes, reference.score_bins[15], reference.score_bins.len()), (vec![4], 4, 20));
        assert_eq!(reference.brightness.median, stats.brightness);
        assert_eq!(reference.picture_size, Some(size));
        assert!(!reference.view_is_steady && reference.view.is_empty());
    }

    #[test]
    fn one_scene_with_noise_is_steady_and_unrelated_pictures_are_not() {
        let size = SizePx::new(640, 480);
        let mut one_scene = ReferenceBuilder::new();
        let mut unrelated = ReferenceBuilder::new();
        let mut empty_wall = ReferenceBuilder::new();
        for number in 0..20 {
            one_scene.add(&PictureStats::measure(&noisy_scene(size, number, 3)), &[], size);
            let phase = usize::try_from(number).unwrap() * 37;
            let other = gray(size, move |x, y| u8::try_from((x * (3 + phase % 5) + y * phase) / 7 % 256).unwrap());
            unrelated.add(&PictureStats::measure(&other), &[], size);
            empty_wall.add(&PictureStats::measure(&gray(size, |_, _| 90)), &[], size);
        }
        assert!(one_scene.finish().view_is_steady);
        assert_eq!(one_scene.finish().view.len(), VIEW_CELLS);
        assert!(!unrelated.finish().view_is_steady);
        assert!(!empty_wall.finish().view_is_steady);
    }

    #[test]
    fn mixed_sizes_have_no_view_and_a_broken_picture_is_left_out() {
        let mut builder = ReferenceBuilder::new();
        for size in [SizePx::new(640, 480), SizePx::new(320, 240)] {
            for number in 0..20 {
                builder.add(&PictureStats::measure(&noisy_scene(size, number, 3)), &[], size);
            }
        }
        let broken = crate::frame::Picture::rgb(SizePx::new(9, 9), vec![0; 3]);
        builder.add(&PictureStats::measure(&broken), &[], broken.size);
        let reference = builder.finish();
        assert_eq!((reference.pictures, reference.picture_size, reference.view_is_steady), (40, None, false));
    }
}
