//! Statistics of one picture: what the picture-side checks look at instead of the pixels.
//!
//! Measured on a fixed sub-sample, in whole numbers, so that one picture gives the same statistics on every machine:
//!
//! - **Working picture**: at most [`WORKING_WIDTH_PX`] columns; each cell is the mean luma of two diagonal neighbours.
//!   Luma is (77 R + 150 G + 29 B) / 256; that of YUV formats is stretched from 16..235 to 0..255, as the network sees it.
//! - **Hash**: whole rows, sub-sampled so that about 2 MB are read, split into [`BANDS`] horizontal bands. The noise of a
//!   live sensor changes every band of every frame; equal hashes mean a picture that was delivered before.

use crate::frame::{Picture, PixelFormat};
use crate::units::{SizePx, count32, float64, index, round_px};

/// Most columns of the working picture.
pub const WORKING_WIDTH_PX: u32 = 480;
/// Horizontal bands with a hash of their own.
pub const BANDS: usize = 32;
/// Columns of the coarse view.
pub const VIEW_COLUMNS: usize = 32;
/// Rows of the coarse view.
pub const VIEW_ROWS: usize = 24;
/// Cells of the coarse view.
pub const VIEW_CELLS: usize = VIEW_COLUMNS * VIEW_ROWS;
/// Luma from which a pixel counts as saturated.
pub const SATURATED_LUMA: u32 = 250;

const WORKING_CELLS: usize = 480;
const HASHED_BYTES: usize = 2 << 20;

/// Statistics of one picture. Holds no heap memory.
#[derive(Debug, Clone, PartialEq)]
pub struct PictureStats {
    /// Size of the picture.
    pub size: SizePx,
    /// Whether the buffer held all rows; every other figure is zero when it did not.
    pub whole: bool,
    /// Mean luma, 0..255.
    pub brightness: f64,
    /// Standard deviation of luma, 0..255.
    pub contrast: f64,
    /// Variance of the Laplacian (4 neighbours) of the working picture's luma.
    pub sharpness: f64,
    /// Share of saturated pixels ([`SATURATED_LUMA`] or more), 0..1.
    pub saturated_share: f64,
    /// Mean luma on a grid of [`VIEW_COLUMNS`] × [`VIEW_ROWS`], row by row.
    pub view: [u8; VIEW_CELLS],
    /// The same in 64ths of luma, for whether a scene is still; not rounded to whole luma.
    pub view_64ths: [u16; VIEW_CELLS],
    /// Hash over the bytes of all bands.
    pub hash: u64,
    /// Hash over the bytes of each horizontal band, top first; 0 for a band without rows.
    pub band_hashes: [u64; BANDS],
    /// Bit n: every sampled pixel of band n has one and the same luma, and is not saturated.
    pub flat_bands: u32,
}

impl PictureStats {
    /// Measures a picture of any format. A picture whose buffer is too short gives `whole: false`, which the guard
    /// judges as `unreadable`.
    pub fn measure(picture: &Picture) -> Self {
        let mut stats = PictureStats::blank(picture.size);
        if !picture.is_whole() {
            return stats;
        }
        stats.whole = true;
        hash_bands(picture, &mut stats);
        match picture.format {
            PixelFormat::Rgb8 => Scan::run(picture, &mut stats, |row, x| weighted(row, 3 * x, 3 * x + 2)),
            PixelFormat::Bgr8 => Scan::run(picture, &mut stats, |row, x| weighted(row, 3 * x + 2, 3 * x)),
            PixelFormat::Gray8 => Scan::run(picture, &mut stats, |row, x| u32::from(row[x])),
            PixelFormat::Nv12 => Scan::run(picture, &mut stats, |row, x| stretched(row[x])),
            PixelFormat::Yuyv => Scan::run(picture, &mut stats, |row, x| stretched(row[2 * x])),
            PixelFormat::Uyvy => Scan::run(picture, &mut stats, |row, x| stretched(row[2 * x + 1])),
        }
        stats
    }

    /// Sharpness in proportion to the structure there is: variance of the Laplacian over variance of luma. An empty belt
    /// has little sharpness but noise keeps its crispness up; a blurred picture loses both.
    pub fn crispness(&self) -> f64 {
        self.sharpness / (self.contrast * self.contrast + 1.0)
    }

    fn blank(size: SizePx) -> Self {
        PictureStats {
            size,
            whole: false,
            brightness: 0.0,
            contrast: 0.0,
            sharpness: 0.0,
            saturated_share: 0.0,
            view: [0; VIEW_CELLS],
            view_64ths: [0; VIEW_CELLS],
            hash: 0,
            band_hashes: [0; BANDS],
            flat_bands: 0,
        }
    }
}

fn weighted(row: &[u8], red: usize, blue: usize) -> u32 {
    let green = red.midpoint(blue);
    (77 * u32::from(row[red]) + 150 * u32::from(row[green]) + 29 * u32::from(row[blue])) >> 8
}

fn stretched(luma: u8) -> u32 {
    ((u32::from(luma.saturating_sub(16)) * 298 + 128) >> 8).min(255)
}

fn band_of(y: usize, height: usize) -> usize {
    y * BANDS / height
}

fn hash_bands(picture: &Picture, stats: &mut PictureStats) {
    let height = index(picture.size.height_px);
    let row_bytes = picture.format.row_bytes(picture.size.width_px);
    let row_step = (row_bytes * height).div_ceil(HASHED_BYTES).clamp(1, (height / BANDS).max(1));
    let rows = picture.pixels.as_slice().chunks(picture.stride_bytes).take(height);
    for (y, row) in rows.enumerate().step_by(row_step) {
        let band = &mut stats.band_hashes[band_of(y, height)];
        *band = mix(*band, hash_row(&row[..row_bytes]));
    }
    let seed = mix(u64::from(picture.size.width_px), u64::from(picture.size.height_px));
    stats.hash = stats.band_hashes.iter().fold(seed, |hash, &band| mix(hash, band));
}

fn mix(hash: u64, value: u64) -> u64 {
    let mixed = (hash.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// Four lanes at a time; each step is a bijection of the lane, so one changed byte always changes the result's lane.
fn hash_row(row: &[u8]) -> u64 {
    let mut lanes = [1_u64, 2, 3, 4];
    let (blocks, rest) = row.as_chunks::<32>();
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = (lane.rotate_left(23) ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
    let tail = rest.iter().fold(5, |hash, &byte| mix(hash, u64::from(byte)));
    lanes.iter().fold(tail, |hash, &lane| mix(hash, lane))
}

/// One pass over the working picture. Luma of a cell is the sum of two pixels, 0..510.
struct Scan {
    cells: u64,
    sum: u64,
    squares: u64,
    saturated: u64,
    laplacians: u64,
    laplacian_sum: i64,
    laplacian_squares: u64,
    view_sums: [u32; VIEW_CELLS],
    view_counts: [u32; VIEW_CELLS],
    band_lowest: [u32; BANDS],
    band_highest: [u32; BANDS],
}

impl Scan {
    fn run(picture: &Picture, stats: &mut PictureStats, luma: impl Fn(&[u8], usize) -> u32) {
        let (width, height) = (index(picture.size.width_px), index(picture.size.height_px));
        let step = width.div_ceil(WORKING_CELLS);
        let (columns, rows) = ((width / step).max(1), (height / step).max(1));
        let mut scan = Scan::new();
        let mut kept = [[0_u32; WORKING_CELLS]; 3];
        for row in 0..rows {
            let y = row * step;
            let upper = row_bytes_at(picture, y);
            let lower = row_bytes_at(picture, (y + step.min(2) - 1).min(height - 1));
            let current = &mut kept[row % 3];
            for (column, cell) in current[..columns].iter_mut().enumerate() {
                let x = column * step;
                *cell = luma(upper, x) + luma(lower, (x + step.min(2) - 1).min(width - 1));
            }
            scan.take_row(&kept[row % 3][..columns], row * VIEW_ROWS / rows, band_of(y, height));
            if row >= 2 {
                let [above, middle, below] = [row - 2, row - 1, row].map(|row| &kept[row % 3][..columns]);
                scan.take_laplacians(above, middle, below);
            }
        }
        scan.finish(stats);
    }

    fn new() -> Self {
        Scan {
            cells: 0,
            sum: 0,
            squares: 0,
            saturated: 0,
            laplacians: 0,
            laplacian_sum: 0,
            laplacian_squares: 0,
            view_sums: [0; VIEW_CELLS],
            view_counts: [0; VIEW_CELLS],
            band_lowest: [u32::MAX; BANDS],
            band_highest: [0; BANDS],
        }
    }

    fn take_row(&mut self, cells: &[u32], view_row: usize, band: usize) {
        let (mut sum, mut squares, mut saturated) = (0_u64, 0_u64, 0_u64);
        let (mut lowest, mut highest) = (self.band_lowest[band], self.band_highest[band]);
        for &cell in cells {
            sum += u64::from(cell);
            squares += u64::from(cell * cell);
            saturated += u64::from(cell >= 2 * SATURATED_LUMA);
            lowest = lowest.min(cell);
            highest = highest.max(cell);
        }
        (self.band_lowest[band], self.band_highest[band]) = (lowest, highest);
        self.cells += u64::from(count32(cells.len()));
        self.sum += sum;
        self.squares += squares;
        self.saturated += saturated;
        let first = view_row * VIEW_COLUMNS;
        for view_column in 0..VIEW_COLUMNS {
            let from = view_column * cells.len() / VIEW_COLUMNS;
            let to = (view_column + 1) * cells.len() / VIEW_COLUMNS;
            self.view_sums[first + view_column] += cells[from..to].iter().sum::<u32>();
            self.view_counts[first + view_column] += count32(to - from);
        }
    }

    fn take_laplacians(&mut self, above: &[u32], middle: &[u32], below: &[u32]) {
        let (mut sum, mut squares) = (0_i64, 0_u64);
        for (x, triple) in middle.windows(3).enumerate() {
            let neighbours = above[x + 1] + below[x + 1] + triple[0] + triple[2];
            let value = i64::from(neighbours) - 4 * i64::from(triple[1]);
            sum += value;
            squares += (value * value).unsigned_abs();
        }
        self.laplacians += u64::from(count32(middle.len().saturating_sub(2)));
        self.laplacian_sum += sum;
        self.laplacian_squares += squares;
    }

    fn finish(&self, stats: &mut PictureStats) {
        let cells = float64(self.cells.max(1));
        let mean = float64(self.sum) / cells;
        stats.brightness = mean / 2.0;
        stats.contrast = (float64(self.squares) / cells - mean * mean).max(0.0).sqrt() / 2.0;
        stats.saturated_share = float64(self.saturated) / cells;
        if self.laplacians > 0 {
            let laplacians = float64(self.laplacians);
            let magnitude = float64(self.laplacian_sum.unsigned_abs()) / laplacians;
            stats.sharpness = (float64(self.laplacian_squares) / laplacians - magnitude * magnitude).max(0.0) / 4.0;
        }
        let overall = round_px(stats.brightness);
        for (cell, view) in stats.view.iter_mut().enumerate() {
            let mean = match self.view_counts[cell] {
                0 => overall,
                count => (self.view_sums[cell] + count) / (2 * count),
            };
            *view = u8::try_from(mean).unwrap_or(u8::MAX);
            let fine = match self.view_counts[cell] {
                0 => overall * 64,
                count => (self.view_sums[cell] * 32 + count / 2) / count,
            };
            stats.view_64ths[cell] = u16::try_from(fine).unwrap_or(u16::MAX);
        }
        for band in 0..BANDS {
            let flat = self.band_lowest[band] == self.band_highest[band];
            if flat && self.band_highest[band] < 2 * SATURATED_LUMA {
                stats.flat_bands |= 1 << band;
            }
        }
    }
}

fn row_bytes_at(picture: &Picture, y: usize) -> &[u8] {
    let start = y * picture.stride_bytes;
    &picture.pixels.as_slice()[start..start + picture.format.row_bytes(picture.size.width_px)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::fixture::{gray, noisy_scene};
    use crate::units::length;

    const FORMATS: [PixelFormat; 6] = [
        PixelFormat::Rgb8,
        PixelFormat::Bgr8,
        PixelFormat::Gray8,
        PixelFormat::Nv12,
        PixelFormat::Yuyv,
        PixelFormat::Uyvy,
    ];

    /// A gray scene in any format, with padded rows; padding bytes are `padding`.
    fn in_format(format: PixelFormat, size: SizePx, padding: u8, luma: impl Fn(usize, usize) -> u8) -> Picture {
        let stride_bytes = format.row_bytes(size.width_px) + 5;
        let mut bytes = vec![padding; format.picture_bytes(size, stride_bytes)];
        for y in 0..index(size.height_px) {
            let row = &mut bytes[y * stride_bytes..];
            for x in 0..index(size.width_px) {
                let value = luma(x, y);
                let video = u8::try_from(16 + u32::from(value) * 219 / 255).unwrap();
                match format {
                    PixelFormat::Rgb8 | PixelFormat::Bgr8 => row[3 * x..3 * x + 3].fill(value),
                    PixelFormat::Gray8 => row[x] = value,
                    PixelFormat::Nv12 => row[x] = video,
                    PixelFormat::Yuyv => row[2 * x] = video,
                    PixelFormat::Uyvy => row[2 * x + 1] = video,
                }
            }
        }
        Picture { size, stride_bytes, format, pixels: bytes.into() }
    }

    fn checkers(x: usize, y: usize) -> u8 {
        if (x / 8 + y / 8).is_multiple_of(2) { 40 } else { 200 }
    }

    #[test]
    fn all_formats_agree_on_a_gray_scene() {
        for size in [SizePx::new(640, 480), SizePx::new(1921, 1081)] {
            let expected = PictureStats::measure(&in_format(PixelFormat::Gray8, size, 0, checkers));
            assert!((expected.brightness - 120.0).abs() < 1.0, "{expected:?}");
            assert!((65.0..=80.5).contains(&expected.contrast), "{expected:?}");
            for format in FORMATS {
                let stats = PictureStats::measure(&in_format(format, size, 0, checkers));
                assert!(stats.whole);
                assert!((stats.brightness - expected.brightness).abs() < 1.5, "{format:?}");
                assert!((stats.contrast - expected.contrast).abs() < 1.5, "{format:?}");
                assert!((stats.sharpness / expected.sharpness - 1.0).abs() < 0.05, "{format:?}");
            }
        }
    }

    #[test]
    fn colours_weigh_as_luma_does_in_both_orders() {
        for (format, red) in [(PixelFormat::Rgb8, [200, 0, 0]), (PixelFormat::Bgr8, [0, 0, 200])] {
            let size = SizePx::new(64, 64);
            let picture = Picture {
                size,
                stride_bytes: 192,
                format,
                pixels: red.iter().copied().cycle().take(192 * 64).collect::<Vec<u8>>().into(),
            };
            assert!((PictureStats::measure(&picture).brightness - 60.0).abs() < 1.0, "{format:?}");
        }
    }

    #[test]
    fn the_working_picture_agrees_with_a_plain_computation() {
        let size = SizePx::new(64, 48);
        let stats = PictureStats::measure(&gray(size, |x, y| u8::try_from((x * 3 + y * y) % 251).unwrap()));
        let luma = |x: usize, y: usize| f64::from(u8::try_from((x * 3 + y * y) % 251).unwrap());
        let (mut values, mut laplacians) = (Vec::new(), Vec::new());
        for y in 0..48 {
            for x in 0..64 {
                values.push(luma(x, y));
                if (1..63).contains(&x) && (1..47).contains(&y) {
                    let around = luma(x - 1, y) + luma(x + 1, y) + luma(x, y - 1) + luma(x, y + 1);
                    laplacians.push(around - 4.0 * luma(x, y));
                }
            }
        }
        let variance = |values: &[f64]| {
            let mean = values.iter().sum::<f64>() / length(values.len());
            (mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / length(values.len()))
        };
        assert!((stats.brightness - variance(&values).0).abs() < 1e-9);
        assert!((stats.contrast - variance(&values).1.sqrt()).abs() < 1e-9);
        assert!((stats.sharpness / variance(&laplacians).1 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn padding_and_repetition_change_nothing() {
        for format in FORMATS {
            let size = SizePx::new(322, 241);
            let measured = |padding| PictureStats::measure(&in_format(format, size, padding, checkers));
            if !matches!(format, PixelFormat::Nv12 | PixelFormat::Yuyv | PixelFormat::Uyvy) {
                assert_eq!(measured(0), measured(7), "{format:?}");
            }
            assert_eq!(measured(0), measured(0), "{format:?}");
        }
    }

    #[test]
    fn noise_in_any_area_of_16_by_16_changes_the_hash() {
        let size = SizePx::new(1920, 1080);
        let plain = PictureStats::measure(&noisy_scene(size, 0, 0));
        for (left, top) in [(0, 0), (1904, 0), (0, 1064), (1904, 1064), (960, 540), (333, 777)] {
            let mut changed = noisy_scene(size, 0, 0);
            let stride = changed.stride_bytes;
            for (y, x) in (0..16).flat_map(|y| (0..16).map(move |x| (top + y, left + x))) {
                changed.pixels.as_mut_slice()[y * stride + 3 * x] ^= u8::from((x * 7 + y * 3) % 5 < 2);
            }
            assert_ne!(PictureStats::measure(&changed).hash, plain.hash, "{left},{top}");
        }
    }

    #[test]
    fn flat_bands_are_marked_unless_saturated() {
        let size = SizePx::new(640, 480);
        let half = |fill: u8| gray(size, move |x, y| if y < 240 { checkers(x, y) } else { fill });
        assert_eq!(PictureStats::measure(&half(128)).flat_bands, 0xffff_0000);
        assert_eq!(PictureStats::measure(&half(255)).flat_bands, 0);
    }

    #[test]
    fn a_short_buffer_is_not_whole_and_nothing_panics_on_odd_sizes() {
        let short = Picture::rgb(SizePx::new(10, 10), vec![0; 299]);
        assert!(!PictureStats::measure(&short).whole);
        for format in FORMATS {
            for size in [(1, 1), (2, 1), (1, 2), (3, 3), (31, 23), (481, 2), (5000, 1)] {
                let size = SizePx::new(size.0, size.1);
                assert!(PictureStats::measure(&in_format(format, size, 0, checkers)).whole, "{format:?} {size}");
            }
        }
        assert!(!PictureStats::measure(&Picture::rgb(SizePx::new(0, 5), Vec::new())).whole);
    }

    #[test]
    fn blur_lowers_crispness_and_an_empty_noisy_picture_does_not() {
        let size = SizePx::new(640, 480);
        let scene = |soft: usize| {
            gray(size, move |x, y| {
                let (mut sum, mut count) = (0, 0);
                for dx in 0..=soft {
                    sum += u32::from(checkers(x + dx, y));
                    count += 1;
                }
                u8::try_from(sum / count).unwrap()
            })
        };
        let sharp = PictureStats::measure(&scene(0));
        let soft = PictureStats::measure(&scene(7));
        let empty = PictureStats::measure(&noisy_scene(size, 1, 3));
        assert!(soft.sharpness < 0.6 * sharp.sharpness, "{} {}", soft.sharpness, sharp.sharpness);
        assert!(empty.crispness() > 0.0);
    }
}
