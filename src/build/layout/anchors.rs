//! How many boxes a network of given strides gives for an input size.

use crate::units::SizePx;

/// Strides that detectors use, px: usual, with a fine level, with a coarse level, both, and two-level ones.
const STRIDE_SETS_PX: [&[u32]; 6] =
    [&[8, 16, 32], &[4, 8, 16, 32], &[8, 16, 32, 64], &[4, 8, 16, 32, 64], &[16, 32], &[4, 8, 16]];

/// Number of grid cells over all levels, for each stride set that the export allows.
pub(super) struct AnchorCounts {
    cells: Vec<(i64, &'static [u32])>,
}

impl AnchorCounts {
    /// The counts for `size`; a known largest stride excludes the sets of another one.
    pub(super) fn of(size: SizePx, largest_stride_px: Option<u32>) -> Self {
        let known = |set: &&&[u32]| largest_stride_px.is_none_or(|largest| set.last() == Some(&largest));
        let mut sets: Vec<&'static [u32]> = STRIDE_SETS_PX.iter().filter(known).copied().collect();
        if sets.is_empty() {
            sets = STRIDE_SETS_PX.to_vec();
        }
        let cells =
            |stride: &u32| i64::from(size.width_px.div_ceil(*stride)) * i64::from(size.height_px.div_ceil(*stride));
        AnchorCounts { cells: sets.into_iter().map(|set| (set.iter().map(cells).sum(), set)).collect() }
    }

    /// The strides whose levels give `count` boxes with `a_cell` boxes a cell.
    pub(super) fn strides(&self, count: i64, a_cell: i64) -> Option<&'static [u32]> {
        self.cells.iter().find(|(cells, _)| cells * a_cell == count).map(|(_, set)| *set)
    }

    /// The counts for people: `8400`, or `8400 or 34000`.
    pub(super) fn text(&self, a_cell: i64) -> String {
        self.cells.iter().take(4).map(|(cells, _)| (cells * a_cell).to_string()).collect::<Vec<_>>().join(" or ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_known_exports() {
        let square = AnchorCounts::of(SizePx::new(640, 640), Some(32));
        assert_eq!(square.strides(8400, 1), Some(&[8, 16, 32][..]));
        assert_eq!(square.strides(25200, 3), Some(&[8, 16, 32][..]));
        assert_eq!(square.strides(34000, 1), Some(&[4, 8, 16, 32][..]));
        assert_eq!(square.strides(300, 1), None);
        assert_eq!(AnchorCounts::of(SizePx::new(640, 384), None).strides(5040, 1), Some(&[8, 16, 32][..]));
        assert_eq!(AnchorCounts::of(SizePx::new(1280, 1280), Some(64)).strides(34000, 1), Some(&[8, 16, 32, 64][..]));
        assert_eq!(AnchorCounts::of(SizePx::new(1280, 1280), Some(32)).strides(34000, 1), None);
        assert_eq!(AnchorCounts::of(SizePx::new(64, 64), None).strides(84, 1), Some(&[8, 16, 32][..]));
    }
}
