//! The coarse view of a fixed camera and how far another view has moved against it.
//!
//! Cells that change from picture to picture (the parts' path) weigh little, the fixed scene around them weighs most. A
//! change of light is taken out first. The shift that fits best is searched in whole cells, then refined below one cell
//! by least squares on the gradients.

use super::picture::{VIEW_CELLS, VIEW_COLUMNS, VIEW_ROWS};
use crate::units::length;

/// Least pictures for a view.
pub(super) const LEAST_PICTURES: u64 = 10;
/// Farthest shift that is looked for, cells.
const FARTHEST_CELLS: isize = 6;
/// Root mean square difference below which two views are the same, luma.
const SAME_LUMA: f64 = 4.0;
/// Root mean square difference that a shift by one cell must make, or shifts cannot be seen in this scene.
const VISIBLE_LUMA: f64 = 6.0;
/// Cells whose luma is spread less than this are fixed.
const FIXED_SPREAD_LUMA: u8 = 10;
/// Least share of fixed cells.
const FIXED_SHARE: f64 = 0.25;
/// A shift explains the difference when it leaves less than this share of the squared difference.
const EXPLAINED: f64 = 0.5;

/// A picture that would need more gain than this to look like the view shows noise, not the scene.
const MOST_GAIN: f64 = 5.0;

/// Mean luma and its spread per cell.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct View {
    mean: Vec<u8>,
    spread: Vec<u8>,
    weights: Vec<f64>,
}

/// A shift as shares of the picture's width and height.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shift {
    /// Share of the width; the larger side counts.
    pub(super) across: f64,
    /// Share of the height.
    pub(super) down: f64,
}

struct Fit {
    mean_square: f64,
    columns: f64,
    rows: f64,
}

impl View {
    /// A view from mean luma and standard deviation of each cell; `None` when the grid has another size.
    pub(super) fn new(mean: Vec<u8>, spread: Vec<u8>) -> Option<Self> {
        if mean.len() != VIEW_CELLS || spread.len() != VIEW_CELLS {
            return None;
        }
        let weights = spread.iter().map(|&spread| 1.0 / (1.0 + (f64::from(spread) / 4.0).powi(2))).collect();
        Some(View { mean, spread, weights })
    }

    /// Mean and spread, as the reference stores them.
    pub(super) fn into_parts(self) -> (Vec<u8>, Vec<u8>) {
        (self.mean, self.spread)
    }

    /// Whether enough of the scene is fixed, and structured enough for a shift to show.
    pub(super) fn is_steady(&self) -> bool {
        let fixed = self.spread.iter().filter(|&&spread| spread < FIXED_SPREAD_LUMA).count();
        let own: Vec<f64> = self.mean.iter().map(|&luma| f64::from(luma)).collect();
        let visible = self.mean_square(&own, 1, 0).max(self.mean_square(&own, 0, 1));
        length(fixed) >= FIXED_SHARE * length(VIEW_CELLS) && visible.sqrt() >= VISIBLE_LUMA
    }

    /// How far `other` has moved; `None` when it has not, or when no shift explains the difference.
    pub(super) fn shift_of(&self, other: &[u8; VIEW_CELLS]) -> Option<Shift> {
        let other = self.in_our_light(other)?;
        let unmoved = self.mean_square(&other, 0, 0);
        if unmoved.sqrt() <= SAME_LUMA {
            return None;
        }
        let mut best = (unmoved, 0, 0);
        for rows in -FARTHEST_CELLS..=FARTHEST_CELLS {
            for columns in -FARTHEST_CELLS..=FARTHEST_CELLS {
                let mean_square = self.mean_square(&other, columns, rows);
                if mean_square < best.0 {
                    best = (mean_square, columns, rows);
                }
            }
        }
        let fit = self.refine(&other, best.1, best.2);
        (fit.mean_square < EXPLAINED * unmoved)
            .then(|| Shift { across: fit.columns / length(VIEW_COLUMNS), down: fit.rows / length(VIEW_ROWS) })
    }

    /// `other` with the weighted mean and standard deviation of this view; `None` when it shows next to nothing.
    fn in_our_light(&self, other: &[u8; VIEW_CELLS]) -> Option<Vec<f64>> {
        let moments = |luma: &dyn Fn(usize) -> f64| {
            let (mut weight, mut sum, mut squares) = (0.0, 0.0, 0.0);
            for (cell, &cell_weight) in self.weights.iter().enumerate() {
                weight += cell_weight;
                sum += cell_weight * luma(cell);
                squares += cell_weight * luma(cell).powi(2);
            }
            let mean = sum / weight;
            (mean, (squares / weight - mean * mean).max(0.0).sqrt())
        };
        let (own_mean, own_deviation) = moments(&|cell| f64::from(self.mean[cell]));
        let (mean, deviation) = moments(&|cell| f64::from(other[cell]));
        let gain = own_deviation / deviation;
        (gain < MOST_GAIN).then(|| other.iter().map(|&luma| (f64::from(luma) - mean) * gain + own_mean).collect())
    }

    fn mean_square(&self, other: &[f64], columns: isize, rows: isize) -> f64 {
        let (mut weight, mut sum) = (0.0, 0.0);
        overlap(columns, rows, |here, there| {
            weight += self.weights[there];
            sum += self.weights[there] * (other[here] - f64::from(self.mean[there])).powi(2);
        });
        if weight > 0.0 { sum / weight } else { f64::INFINITY }
    }

    /// The fraction of a cell around a shift in whole cells.
    fn refine(&self, other: &[f64], columns: isize, rows: isize) -> Fit {
        let (mut xx, mut xy, mut yy, mut xe, mut ye, mut ee, mut weights) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
        overlap(columns, rows, |here, there| {
            let (x, y) = (there % VIEW_COLUMNS, there / VIEW_COLUMNS);
            if x == 0 || y == 0 || x + 1 == VIEW_COLUMNS || y + 1 == VIEW_ROWS {
                return;
            }
            let luma = |cell: usize| f64::from(self.mean[cell]);
            let gradient_x = (luma(there + 1) - luma(there - 1)) / 2.0;
            let gradient_y = (luma(there + VIEW_COLUMNS) - luma(there - VIEW_COLUMNS)) / 2.0;
            let error = other[here] - luma(there);
            let weight = self.weights[there];
            weights += weight;
            xx += weight * gradient_x * gradient_x;
            xy += weight * gradient_x * gradient_y;
            yy += weight * gradient_y * gradient_y;
            xe += weight * gradient_x * error;
            ye += weight * gradient_y * error;
            ee += weight * error * error;
        });
        // A direction without structure has no gradient: the added unit keeps the fraction there at 0.
        let (a, b) = (xx + weights, yy + weights);
        let determinant = a * b - xy * xy;
        let across = ((xe * b - ye * xy) / determinant).clamp(-1.0, 1.0);
        let down = ((ye * a - xe * xy) / determinant).clamp(-1.0, 1.0);
        let left =
            ee - 2.0 * (across * xe + down * ye) + across * across * xx + 2.0 * across * down * xy + down * down * yy;
        let mean_square = if weights > 0.0 { (left / weights).max(0.0) } else { f64::INFINITY };
        Fit { mean_square, columns: as_float(columns) + across, rows: as_float(rows) + down }
    }
}

/// Calls `visit` with every cell and the cell that lies `columns` and `rows` away from it, where both exist.
fn overlap(columns: isize, rows: isize, mut visit: impl FnMut(usize, usize)) {
    for row in 0..VIEW_ROWS {
        let Some(there_row) = row.checked_add_signed(rows).filter(|&row| row < VIEW_ROWS) else { continue };
        for column in 0..VIEW_COLUMNS {
            let Some(there) = column.checked_add_signed(columns).filter(|&column| column < VIEW_COLUMNS) else {
                continue;
            };
            visit(row * VIEW_COLUMNS + column, there_row * VIEW_COLUMNS + there);
        }
    }
}

fn as_float(cells: isize) -> f64 {
    let magnitude = length(cells.unsigned_abs());
    if cells < 0 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A smooth scene, sampled with an offset in cells, with other light.
    fn scene(across: f64, down: f64, gain: f64) -> [u8; VIEW_CELLS] {
        std::array::from_fn(|cell| {
            let x = length(cell % VIEW_COLUMNS) + across;
            let y = length(cell / VIEW_COLUMNS) + down;
            let luma = 100.0 + 40.0 * (x * 0.5).sin() + 30.0 * (y * 0.6 + x * 0.1).cos();
            (luma * gain).round().clamp(0.0, 255.0) as u8
        })
    }

    fn view() -> View {
        View::new(scene(0.0, 0.0, 1.0).to_vec(), vec![1; VIEW_CELLS]).unwrap()
    }

    #[test]
    fn shifts_are_found_below_and_above_a_cell_and_in_other_light() {
        for (across, down, gain) in [(0.7, 0.0, 1.0), (0.0, -0.8, 1.0), (3.0, 2.0, 1.0), (-4.4, 1.3, 0.8)] {
            let shift = view().shift_of(&scene(across, down, gain)).unwrap();
            assert!((shift.across * 32.0 - across).abs() < 0.25, "{shift:?} for {across}");
            assert!((shift.down * 24.0 - down).abs() < 0.25, "{shift:?} for {down}");
        }
    }

    #[test]
    fn the_same_view_in_other_light_has_not_moved_and_another_scene_is_not_explained() {
        for gain in [1.0, 0.8, 0.6, 1.2] {
            assert_eq!(view().shift_of(&scene(0.0, 0.0, gain)), None, "{gain}");
        }
        let other = std::array::from_fn(|cell| u8::try_from(cell * 7919 % 251).unwrap());
        assert_eq!(view().shift_of(&other), None);
        for black in [0, 1] {
            assert_eq!(view().shift_of(&std::array::from_fn(|cell| u8::from(cell % 32 < 9) * black)), None);
        }
    }

    #[test]
    fn a_moving_part_in_its_own_path_is_not_a_shift() {
        let path = |cell: usize| (8..14).contains(&(cell / VIEW_COLUMNS));
        let spread = (0..VIEW_CELLS).map(|cell| if path(cell) { 60 } else { 1 }).collect();
        let view = View::new(scene(0.0, 0.0, 1.0).to_vec(), spread).unwrap();
        for offset in 0..10 {
            let mut with_part = scene(0.0, 0.0, 1.0);
            for (cell, luma) in with_part.iter_mut().enumerate() {
                if path(cell) && (offset..offset + 6).contains(&(cell % VIEW_COLUMNS)) {
                    *luma = 230;
                }
            }
            assert_eq!(view.shift_of(&with_part), None, "{offset}");
        }
    }

    #[test]
    fn steady_needs_structure() {
        assert!(view().is_steady());
        assert!(!View::new(vec![90; VIEW_CELLS], vec![1; VIEW_CELLS]).unwrap().is_steady());
        assert!(!View::new(scene(0.0, 0.0, 1.0).to_vec(), vec![60; VIEW_CELLS]).unwrap().is_steady());
        assert_eq!(View::new(vec![0; 3], vec![0; 3]), None);
    }
}
