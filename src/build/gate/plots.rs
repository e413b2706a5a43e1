//! The drawings of the report, as SVG in the page itself.

use crate::build::precision::{LayerAccount, MemoryPoint};
use crate::units::{float64, length};
use std::fmt::Write;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;
/// Room for the axes: left, bottom.
const MARGINS: (f64, f64) = (64.0, 40.0);
/// Most boxes that are drawn.
const MOST_DOTS: usize = 2000;

/// Axes of a drawing, from 0 at the lower left.
struct Axes {
    right: f64,
    top: f64,
}

impl Axes {
    fn x(&self, value: f64) -> f64 {
        MARGINS.0 + (WIDTH - MARGINS.0 - 24.0) * value / self.right
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - MARGINS.1 - (HEIGHT - MARGINS.1 - 12.0) * value / self.top
    }

    /// Opens the drawing: lines with numbers at `marks`, and what the axes show.
    fn open(&self, page: &mut String, (across, up): (&[f64], &[f64]), (x_name, y_name): (&str, &str)) {
        let _ = write!(page, "<svg width={WIDTH} height={HEIGHT} viewBox='0 0 {WIDTH} {HEIGHT}' role=img>");
        let number = |value: f64| if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value}") };
        let (left, bottom) = (self.x(0.0), self.y(0.0));
        for &mark in up {
            let y = self.y(mark);
            let _ = write!(
                page,
                "<path class=grid d='M{left:.1} {y:.1}H{:.1}'/><text x={:.1} y={:.1} text-anchor=end>{}</text>",
                self.x(self.right),
                left - 6.0,
                y + 4.0,
                number(mark)
            );
        }
        for &mark in across {
            let x = self.x(mark);
            let _ = write!(
                page,
                "<path class=grid d='M{x:.1} {bottom:.1}v4'/><text x={x:.1} y={:.1} text-anchor=middle>{}</text>",
                bottom + 16.0,
                number(mark)
            );
        }
        let _ = write!(
            page,
            "<text x={:.1} y={:.1} text-anchor=middle>{x_name}</text><text transform='translate(14 {:.1}) rotate(-90)' \
             text-anchor=middle>{y_name}</text>",
            f64::midpoint(left, self.x(self.right)),
            HEIGHT - 6.0,
            f64::midpoint(bottom, self.y(self.top))
        );
    }
}

/// Score of each box that both have: across the original's, up the candidate's.
pub(super) fn score_shift(page: &mut String, scores: &[[f32; 2]], threshold: f32) {
    if scores.is_empty() {
        return;
    }
    page.push_str(
        "<h2>Score shift</h2><p>One dot a box that both have. On the line nothing changed; left of and below the dashes a box is not \
         reported.</p>",
    );
    let axes = Axes { right: 1.0, top: 1.0 };
    let marks = [0.0, 0.25, 0.5, 0.75, 1.0];
    axes.open(page, (&marks, &marks), ("score of the original", "score of the candidate"));
    let threshold = f64::from(threshold);
    let _ = write!(
        page,
        "<path class=grid d='M{:.1} {:.1}L{:.1} {:.1}'/><path class=dashes d='M{:.1} {:.1}V{:.1}M{:.1} {:.1}H{:.1}'/><path class=dots d='",
        axes.x(0.0),
        axes.y(0.0),
        axes.x(1.0),
        axes.y(1.0),
        axes.x(threshold),
        axes.y(0.0),
        axes.y(1.0),
        axes.x(0.0),
        axes.y(threshold),
        axes.x(1.0)
    );
    let step = scores.len().div_ceil(MOST_DOTS).max(1);
    for [before, after] in scores.iter().step_by(step) {
        let _ = write!(page, "M{:.1} {:.1}h0", axes.x(f64::from(*before)), axes.y(f64::from(*after)));
    }
    page.push_str("'/></svg>");
    if step > 1 {
        let _ = write!(page, "<p>Every {step}th of {} boxes.</p>", scores.len());
    }
}

/// Peak memory of the activations against the size of the input.
pub(super) fn memory(page: &mut String, points: &[MemoryPoint], used_px: u32) {
    let (Some(last), Some(most)) =
        (points.last(), points.iter().map(|point| point.export_mib.max(point.converted_mib)).reduce(f64::max))
    else {
        return;
    };
    page.push_str(
        "<h2>Input size against peak memory</h2><p>Most activations alive at once, by the graph (MiB); orange as exported, blue \
         converted. An engine adds weights, scratch memory and the CUDA context: see `edge-build inspect`.</p>",
    );
    let unit = 10_f64.powf(most.max(1.0).log10().floor());
    let step = if most / unit > 5.0 { 2.0 * unit } else { unit };
    let up: Vec<f64> = (0..=10_u32).map(|at| f64::from(at) * step).filter(|mark| *mark <= most * 1.05).collect();
    let axes = Axes { right: f64::from(last.size_px), top: most * 1.05 };
    let across: Vec<f64> = points.iter().map(|point| f64::from(point.size_px)).collect();
    axes.open(page, (&across, &up), ("longer side of the input, px", "MiB"));
    for (class, value) in [
        ("line-float", (|point: &MemoryPoint| point.export_mib) as fn(&MemoryPoint) -> f64),
        ("line", |point| point.converted_mib),
    ] {
        let _ = write!(page, "<path class={class} d='");
        for (at, point) in points.iter().enumerate() {
            let letter = if at == 0 { 'M' } else { 'L' };
            let _ = write!(page, "{letter}{:.1} {:.1}", axes.x(f64::from(point.size_px)), axes.y(value(point)));
        }
        page.push_str("'/>");
    }
    if let Some(here) = points.iter().find(|point| point.size_px == used_px) {
        let _ = write!(
            page,
            "<circle class=bar r=4 cx={:.1} cy={:.1}><title>this bundle: {:.1} MiB</title></circle>",
            axes.x(f64::from(here.size_px)),
            axes.y(here.converted_mib),
            here.converted_mib
        );
    }
    page.push_str("</svg>");
}

/// One bar a layer, as long as its arithmetic, coloured by precision.
pub(super) fn layers(page: &mut String, layers: &[LayerAccount]) {
    if layers.is_empty() {
        return;
    }
    page.push_str(
        "<h2>Precision by layer</h2><p>Length: arithmetic of the layer. Blue: INT8, green: half, orange: float; the reason stands in \
         the bar's title.</p>",
    );
    let most = layers.iter().map(|layer| layer.operations).max().unwrap_or(1).max(1);
    let _ = write!(page, "<svg width=1000 height={} role=img>", 16 * layers.len() + 8);
    for (at, layer) in layers.iter().enumerate() {
        let class = match layer.precision.as_str() {
            "int8" => "bar",
            "f16" => "half",
            _ => "float",
        };
        let title = layer
            .because
            .as_deref()
            .map_or_else(|| layer.precision.clone(), |reason| format!("{}: {reason}", layer.precision));
        let _ = write!(
            page,
            "<rect class={class} x=420 y={} width={:.1} height=12><title>{}</title></rect><text x=412 y={} \
             text-anchor=end>{}</text>",
            16 * at + 2,
            1.0 + 560.0 * float64(layer.operations) / float64(most),
            super::report::escaped(&title),
            16 * at + 13,
            super::report::escaped(&layer.name)
        );
    }
    page.push_str("</svg>");
    debug_assert!(length(layers.len()) > 0.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_for_each_box_up_to_a_limit() {
        let mut page = String::new();
        score_shift(&mut page, &[], 0.25);
        assert!(page.is_empty());
        score_shift(&mut page, &vec![[0.5, 0.5]; 2 * MOST_DOTS], 0.25);
        assert_eq!(page.matches("h0").count(), MOST_DOTS);
        assert!(page.contains("Every 2th") && !page.contains("NaN"));
    }

    #[test]
    fn the_curve_passes_through_the_bundle_itself() {
        let mut page = String::new();
        memory(&mut page, &[], 640);
        assert!(page.is_empty());
        let points: Vec<MemoryPoint> = [320, 640, 1280]
            .map(|size_px| {
                let area = f64::from(size_px * size_px) / 409_600.0;
                MemoryPoint { size_px, export_mib: 12.5 * area, converted_mib: 6.3 * area }
            })
            .into();
        memory(&mut page, &points, 640);
        assert!(page.contains("this bundle: 6.3 MiB"), "{page}");
        assert_eq!(page.matches("<text").count(), 3 + 6 + 2, "three sizes, 0 to 50 by 10, two names");
    }
}
