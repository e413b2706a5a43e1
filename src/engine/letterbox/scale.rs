//! Bilinear scaling of 8-bit rows as OpenCV does it: 11-bit weights, 16-bit rows between the two passes.

use crate::units::index;

/// Fixed-point one of a weight.
const ONE: i16 = 1 << 11;

/// Where one target column or row comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weight {
    /// Columns: byte offset of the left pixel. Rows: index of the upper row.
    pub(super) first: usize,
    /// Rows: index of the lower row. Columns: unused, the right pixel follows the left one.
    pub(super) second: usize,
    /// Weight of the first.
    pub(super) first_share: i16,
    /// Weight of the second.
    pub(super) second_share: i16,
}

/// The weights of one axis.
#[derive(Debug)]
pub(super) struct Axis {
    pub(super) weights: Vec<Weight>,
}

impl Axis {
    /// Weights of `scaled_px` columns over `source_px` columns of `planes` interleaved bytes each.
    ///
    /// Offsets never pass the second-last pixel, so that a pair of pixels can always be read.
    pub(super) fn columns(source_px: u32, scaled_px: u32, planes: usize) -> Axis {
        let last = index(source_px).saturating_sub(1);
        let weights = positions(source_px, scaled_px).map(|(whole, fraction)| {
            if whole < 0 || last == 0 {
                return Weight { first: 0, second: 0, first_share: ONE, second_share: 0 };
            }
            let pixel = usize::try_from(whole).unwrap_or(0);
            if pixel >= last {
                return Weight { first: (last - 1) * planes, second: 0, first_share: 0, second_share: ONE };
            }
            let (first_share, second_share) = shares(fraction);
            Weight { first: pixel * planes, second: 0, first_share, second_share }
        });
        Axis { weights: weights.collect() }
    }

    /// Weights of `scaled_px` rows over `source_px` rows.
    pub(super) fn rows(source_px: u32, scaled_px: u32) -> Axis {
        let last = index(source_px).saturating_sub(1);
        let weights = positions(source_px, scaled_px).map(|(whole, fraction)| {
            let (first_share, second_share) = shares(fraction);
            let row = |whole: i64| usize::try_from(whole).unwrap_or(0).min(last);
            Weight { first: row(whole), second: row(whole + 1), first_share, second_share }
        });
        Axis { weights: weights.collect() }
    }
}

/// Whole part and fraction of the source position of each target pixel, in OpenCV's mix of `double` and `float`.
fn positions(source_px: u32, scaled_px: u32) -> impl Iterator<Item = (i64, f32)> {
    let step = 1.0 / (f64::from(scaled_px) / f64::from(source_px));
    (0..scaled_px).map(move |target| {
        let position = crate::units::narrow((f64::from(target) + 0.5) * step - 0.5);
        let whole = position.floor();
        (whole as i64, position - whole)
    })
}

fn shares(fraction: f32) -> (i16, i16) {
    let fixed = |share: f32| (share * f32::from(ONE)).round_ties_even() as i16;
    (fixed(1.0 - fraction), fixed(fraction))
}

/// A source row after the horizontal pass: `planes` runs of scaled columns.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// The source row it was made from.
    pub(super) source_row: Option<usize>,
    values: Vec<i16>,
}

impl Row {
    pub(super) fn resize(&mut self, length: usize) {
        self.values.resize(length, 0);
    }

    pub(super) fn forget(&mut self) {
        self.source_row = None;
    }

    /// The horizontal pass; keeps 15 of the 19 bits, as the vertical pass wants them.
    pub(super) fn scale_columns(&mut self, pixels: &[u8], planes: usize, columns: &Axis) {
        match planes {
            1 => self.scale_planes::<1>(pixels, columns),
            _ => self.scale_planes::<3>(pixels, columns),
        }
    }

    fn scale_planes<const PLANES: usize>(&mut self, pixels: &[u8], columns: &Axis) {
        let width = columns.weights.len();
        let mut planes = self.values.chunks_exact_mut(width);
        let mut planes: [&mut [i16]; PLANES] = std::array::from_fn(|_| planes.next().unwrap_or_default());
        for (column, weight) in columns.weights.iter().enumerate() {
            let pair = &pixels[weight.first..weight.first + 2 * PLANES];
            let (first, second) = (i32::from(weight.first_share), i32::from(weight.second_share));
            for (plane, values) in planes.iter_mut().enumerate() {
                let sum = i32::from(pair[plane]) * first + i32::from(pair[plane + PLANES]) * second;
                values[column] = (sum >> 4) as i16;
            }
        }
    }

    /// The sums of neighbouring pixels, for exact halving.
    pub(super) fn sum_pairs(&mut self, pixels: &[u8], planes: usize) {
        let width = self.values.len() / planes;
        for (plane, values) in self.values.chunks_exact_mut(width).enumerate() {
            for (value, pair) in values.iter_mut().zip(pixels.chunks_exact(2 * planes)) {
                *value = i16::from(pair[plane]) + i16::from(pair[plane + planes]);
            }
        }
    }
}

/// The vertical pass.
pub(super) fn blend_rows(rows: &[Row; 2], weight: Weight, grey: &mut [u8]) {
    let high = |share: i16, value: i16| ((i32::from(share) * i32::from(value)) >> 16) as i16;
    for ((grey, &upper), &lower) in grey.iter_mut().zip(&rows[0].values).zip(&rows[1].values) {
        *grey = ((high(weight.first_share, upper) + high(weight.second_share, lower) + 2) >> 2) as u8;
    }
}

/// The mean of two rows of pair sums, rounded half up.
pub(super) fn mean_of_four(rows: &[Row; 2], grey: &mut [u8]) {
    for ((grey, &upper), &lower) in grey.iter_mut().zip(&rows[0].values).zip(&rows[1].values) {
        *grey = ((upper + lower + 2) >> 2) as u8;
    }
}

/// Interleaved pixels → one run a plane.
pub(super) fn deinterleave(pixels: &[u8], planes: usize, width: usize, grey: &mut [u8]) {
    for (plane, run) in grey.chunks_exact_mut(width).enumerate() {
        for (grey, pixel) in run.iter_mut().zip(pixels.chunks_exact(planes)) {
            *grey = pixel[plane];
        }
    }
}
