//! Which calibration pictures become golden frames: few, different from each other, the same on every machine.

use crate::units::{count, float64};
use std::collections::BTreeSet;

/// Golden frames that are chosen at least, where there are so many different pictures.
const LEAST: usize = 4;
/// Golden frames that are chosen at most: more only while each shows a class that no other shows.
const MOST: usize = 8;

/// What is known of one calibration picture.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// Position in the folder's list.
    pub(super) file: usize,
    /// SHA-256 over the pixels.
    pub(super) hash: String,
    /// Class ids found in it.
    pub(super) classes: BTreeSet<u32>,
    /// Boxes found in it.
    pub(super) boxes: u64,
    /// Mean luma, 0..255.
    pub(super) brightness: f64,
}

/// Positions of the chosen pictures (their `file`). Depends on content alone, not on names or order.
pub(super) fn choose(seen: &[Seen]) -> Vec<usize> {
    let mut left: Vec<&Seen> = seen.iter().collect();
    left.sort_by(|one, other| one.hash.cmp(&other.hash));
    left.dedup_by(|one, other| one.hash == other.hash);
    let most_boxes = float64(left.iter().map(|seen| seen.boxes).max().unwrap_or(0).max(1));
    let mut chosen: Vec<&Seen> = Vec::new();
    let mut shown = BTreeSet::new();
    while !left.is_empty() && chosen.len() < MOST {
        let new_classes = |seen: &Seen| seen.classes.difference(&shown).count();
        let distance = |seen: &Seen| {
            let to = |other: &&Seen| {
                (seen.brightness - other.brightness).abs() / 64.0
                    + float64(seen.boxes.abs_diff(other.boxes)) / most_boxes
            };
            chosen.iter().map(to).fold(f64::from(u16::MAX), f64::min)
        };
        // The first of equals wins, so the order by hash decides.
        let best = (0..left.len()).reduce(|best, next| {
            let (one, other) = (left[best], left[next]);
            let better =
                new_classes(other).cmp(&new_classes(one)).then(distance(other).total_cmp(&distance(one))).is_gt();
            if better { next } else { best }
        });
        let Some(best) = best else { break };
        if chosen.len() >= LEAST && new_classes(left[best]) == 0 {
            break;
        }
        let next = left.remove(best);
        shown.extend(next.classes.iter().copied());
        chosen.push(next);
    }
    debug_assert!(count(chosen.len()) <= count(MOST));
    chosen.into_iter().map(|seen| seen.file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(file: usize, hash: &str, classes: &[u32], boxes: u64, brightness: f64) -> Seen {
        Seen { file, hash: hash.into(), classes: classes.iter().copied().collect(), boxes, brightness }
    }

    #[test]
    fn every_class_is_shown_then_the_rest_differs() {
        let mut pictures = vec![
            seen(0, "a", &[0], 1, 100.0),
            seen(1, "b", &[0, 1, 2], 5, 100.0),
            seen(2, "c", &[3], 1, 100.0),
            seen(3, "d", &[], 0, 10.0),
            seen(4, "e", &[0], 1, 101.0),
            seen(5, "f", &[0], 1, 250.0),
        ];
        let chosen = choose(&pictures);
        assert_eq!(chosen[..2], [1, 2]);
        assert_eq!(chosen.len(), 4);
        assert!(chosen.contains(&3) && chosen.contains(&5), "{chosen:?}");
        pictures.reverse();
        assert_eq!(choose(&pictures), chosen, "the order of the files does not matter");
    }

    #[test]
    fn equal_pictures_count_once_and_the_number_is_bounded() {
        assert_eq!(choose(&[seen(0, "a", &[], 0, 1.0), seen(1, "a", &[], 0, 1.0)]).len(), 1);
        let many: Vec<_> = (0..20u32).map(|id| seen(id as usize, &format!("{id:02}"), &[id], 1, 0.0)).collect();
        assert_eq!(choose(&many).len(), MOST);
        assert!(choose(&[]).is_empty());
    }
}
