//! From histograms to scales: where to cut off the range of a tensor that is stored in 8 bits.

use super::observe::{BINS, Histogram};
use crate::config::precision::Calibrator;
use crate::units::{float64, length, narrow};

/// Smallest scale that is ever written: TensorRT refuses 0, and 2⁻²⁴ is the smallest half.
pub(super) const LEAST_SCALE: f32 = 5.960_464_5e-8;
/// Steps on either side of zero.
pub(super) const STEPS: f32 = 127.0;

/// The magnitude at which the range of `histogram` is cut off; 0 for a tensor of zeros.
pub(super) fn cut(calibrator: Calibrator, histogram: &Histogram) -> f32 {
    if histogram.largest == 0.0 || histogram.total() == 0 {
        return 0.0;
    }
    let cut = match calibrator {
        Calibrator::Max => histogram.largest,
        Calibrator::Entropy => entropy(histogram),
        Calibrator::Percentile => percentile(histogram, 0.9999),
        Calibrator::Mse => mean_squared_error(histogram),
    };
    cut.min(histogram.largest)
}

/// The scale of a range that is cut off at `cut`: a number that half holds as it is, where half reaches.
pub(super) fn scale(cut: f32) -> f32 {
    let exact = (cut / STEPS).max(LEAST_SCALE);
    let half = half::f16::from_f32(exact).to_f32();
    if half.is_finite() { half } else { exact }
}

fn edge(histogram: &Histogram, bins: usize) -> f32 {
    narrow(f64::from(histogram.top) * length(bins) / length(BINS))
}

/// Number of bins up to the last that is not empty.
fn filled(histogram: &Histogram) -> usize {
    histogram.bins.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1)
}

fn percentile(histogram: &Histogram, share: f64) -> f32 {
    let wanted = share * float64(histogram.total());
    let mut sum = 0;
    for (bin, &count) in histogram.bins.iter().enumerate() {
        sum += count;
        if float64(sum) >= wanted {
            return edge(histogram, bin + 1);
        }
    }
    histogram.largest
}

fn mean_squared_error(histogram: &Histogram) -> f32 {
    const CANDIDATES: usize = 128;
    let filled = filled(histogram);
    let width = f64::from(histogram.top) / length(BINS);
    let mut best = (f64::INFINITY, histogram.largest);
    for candidate in CANDIDATES / 8..=CANDIDATES {
        let cut = f64::from(histogram.largest) * length(candidate) / length(CANDIDATES);
        let step = cut / f64::from(STEPS);
        let mut error = 0.0;
        for (bin, &count) in histogram.bins.iter().enumerate().take(filled).filter(|(_, count)| **count > 0) {
            let value = (length(bin) + 0.5) * width;
            let stored = (value / step).round_ties_even().min(f64::from(STEPS)) * step;
            error += float64(count) * (value - stored).powi(2);
        }
        if error < best.0 {
            best = (error, narrow(cut));
        }
    }
    best.1
}

/// The cut with the least relative entropy between the values and their 128-level form.
fn entropy(histogram: &Histogram) -> f32 {
    const LEVELS: usize = 128;
    let filled = filled(histogram);
    // The bin around zero holds what an activation switched off; it would hide all else.
    let mut bins: Vec<f64> = histogram.bins.iter().take(filled).map(|&count| float64(count)).collect();
    if let [first, second, ..] = bins.as_mut_slice() {
        *first = *second;
    }
    let total: f64 = bins.iter().sum();
    let mut best = (f64::INFINITY, filled);
    let mut kept = LEVELS;
    while kept <= filled {
        let outside: f64 = bins.iter().skip(kept).sum();
        let mut divergence = 0.0;
        let inside: f64 = bins.iter().take(kept).sum();
        for level in 0..LEVELS {
            let range = level * kept / LEVELS..(level + 1) * kept / LEVELS;
            let members = bins.get(range.clone()).unwrap_or(&[]);
            let nonzero = members.iter().filter(|&&count| count > 0.0).count();
            let mean = members.iter().sum::<f64>() / length(nonzero.max(1));
            for (at, &count) in members.iter().enumerate().filter(|(_, count)| **count > 0.0) {
                let last = range.start + at + 1 == kept;
                let reference = (if last { count + outside } else { count }) / total;
                divergence += reference * (reference / (mean / inside)).ln();
            }
        }
        if divergence < best.0 {
            best = (divergence, kept);
        }
        kept += LEVELS / 8;
    }
    edge(histogram, best.1.min(filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Magnitudes with a long thin tail: the bulk below 1, one value in 100,000 at 10.
    fn tailed() -> Histogram {
        let mut histogram = Histogram::default();
        let values: Vec<f32> = (0..200_000_u32).map(|at| (at % 1000) as f32 / 1000.0).collect();
        histogram.add(&values);
        histogram.add(&[10.0, 10.0]);
        histogram
    }

    #[test]
    fn only_max_keeps_a_thin_tail() {
        let histogram = tailed();
        assert_eq!(cut(Calibrator::Max, &histogram), 10.0);
        for calibrator in [Calibrator::Percentile, Calibrator::Mse, Calibrator::Entropy] {
            let cut = cut(calibrator, &histogram);
            assert!((0.9..8.0).contains(&cut), "{calibrator:?} cuts at {cut}");
        }
    }

    #[test]
    fn zeros_get_the_least_scale() {
        let mut histogram = Histogram::default();
        histogram.add(&[0.0; 10]);
        for calibrator in [Calibrator::Max, Calibrator::Percentile, Calibrator::Mse, Calibrator::Entropy] {
            assert_eq!(scale(cut(calibrator, &histogram)), LEAST_SCALE);
        }
    }

    #[test]
    fn a_full_range_is_kept() {
        let mut histogram = Histogram::default();
        let values: Vec<f32> = (0..100_000_u32).map(|at| (at % 5000) as f32 / 5000.0).collect();
        histogram.add(&values);
        for calibrator in [Calibrator::Max, Calibrator::Percentile, Calibrator::Mse, Calibrator::Entropy] {
            let cut = cut(calibrator, &histogram);
            assert!(cut > 0.95, "{calibrator:?} cuts at {cut}");
        }
    }
}
