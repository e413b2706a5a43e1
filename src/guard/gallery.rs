//! The last boxes of every stream, side by side: an answer that fits another stream better than its own is a mixed-up one.

use crate::detections::Detection;
use crate::units::length;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Boxes compared of one answer; those with the highest scores.
const MOST_BOXES: usize = 64;

/// One place a stream; shared by the guards of all streams.
#[derive(Debug, Default)]
pub struct Gallery {
    places: Vec<Mutex<Vec<Detection>>>,
}

impl Gallery {
    /// A gallery for so many streams.
    pub fn new(streams: usize) -> Arc<Self> {
        let place = |_| Mutex::new(Vec::with_capacity(MOST_BOXES));
        Arc::new(Gallery { places: (0..streams).map(place).collect() })
    }

    /// Number of streams.
    pub fn streams(&self) -> usize {
        self.places.len()
    }

    fn place(&self, lane: usize) -> Option<MutexGuard<'_, Vec<Detection>>> {
        self.places.get(lane).map(|place| place.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The boxes of the stream's newest answer.
    pub(super) fn show(&self, lane: usize, boxes: &[Detection]) {
        if let Some(mut place) = self.place(lane) {
            keep(&mut place, boxes);
        }
    }

    /// The best agreement of `boxes` with the newest answer of another stream than `lane`.
    pub(super) fn best_elsewhere(&self, lane: usize, boxes: &[Detection]) -> f64 {
        let others = (0..self.places.len()).filter(|&other| other != lane);
        let agreements = others.filter_map(|other| self.place(other).map(|place| agreement(boxes, &place)));
        agreements.fold(0.0, f64::max)
    }
}

/// Keeps the first boxes without giving up the room for them.
pub(super) fn keep(place: &mut Vec<Detection>, boxes: &[Detection]) {
    place.clear();
    place.extend_from_slice(&boxes[..boxes.len().min(MOST_BOXES)]);
}

/// Share of boxes that have a partner of the same class in the other answer, overlapping by half: 2 × pairs ÷ boxes in
/// both, of the first 64; 1 when both are empty.
pub(super) fn agreement(these: &[Detection], those: &[Detection]) -> f64 {
    let (these, those) = (&these[..these.len().min(MOST_BOXES)], &those[..those.len().min(MOST_BOXES)]);
    if these.is_empty() && those.is_empty() {
        return 1.0;
    }
    let (mut taken, mut pairs) = (0_u64, 0_u32);
    for this in these {
        let free = |at: &usize| taken & (1 << at) == 0 && those[*at].class_id == this.class_id;
        let partners = (0..those.len()).filter(free).map(|at| (at, those[at].edges.iou(&this.edges)));
        let best = partners.filter(|(_, iou)| *iou >= 0.5).max_by(|left, right| left.1.total_cmp(&right.1));
        if let Some((at, _)) = best {
            taken |= 1 << at;
            pairs += 1;
        }
    }
    2.0 * f64::from(pairs) / length(these.len() + those.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::fixture::boxes;

    #[test]
    fn agreement_counts_pairs_of_one_class() {
        assert_eq!(agreement(&[], &[]), 1.0);
        assert_eq!(agreement(&boxes(3, 0.9), &[]), 0.0);
        assert_eq!(agreement(&boxes(3, 0.9), &boxes(3, 0.5)), 1.0);
        assert!((agreement(&boxes(4, 0.9), &boxes(2, 0.9)) - 4.0 / 6.0).abs() < 1e-9);
        let mut other = boxes(3, 0.9);
        other[0].class_id = 1;
        assert!((agreement(&boxes(3, 0.9), &other) - 4.0 / 6.0).abs() < 1e-9);
        assert_eq!(agreement(&boxes(300, 0.9), &boxes(300, 0.9)), 1.0);
    }

    #[test]
    fn a_gallery_compares_with_others_alone() {
        let gallery = Gallery::new(2);
        gallery.show(0, &boxes(3, 0.9));
        assert_eq!(gallery.best_elsewhere(0, &boxes(3, 0.9)), 0.0);
        assert_eq!(gallery.best_elsewhere(1, &boxes(3, 0.9)), 1.0);
        gallery.show(7, &boxes(3, 0.9));
        assert_eq!(Gallery::new(1).best_elsewhere(0, &boxes(1, 0.9)), 0.0);
    }
}
