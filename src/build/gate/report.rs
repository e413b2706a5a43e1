//! `report.json` and `report.html`: what the conversion did and what the gate measured, in files that need no others.

use super::plots;
use crate::aside::AsideFile;
use crate::build::precision::{Account, Step, Verdict};
use crate::bundle::gate::{Figures, GateResult};
use crate::detections::Detection;
use crate::error::{Error, Result};
use crate::frame::{Picture, PixelFormat};
use crate::units::{index, length};
use serde::Serialize;
use std::fmt::Write;
use std::io::Write as _;
use std::path::Path;

/// Pictures that are shown side by side.
const WORST: usize = 4;
/// Longest side of a shown picture, px.
const SHOWN_PX: u32 = 480;

#[derive(Serialize)]
struct Report<'a> {
    name: &'a str,
    model: &'a str,
    written: bool,
    conversion: &'a Account,
    gate: Option<&'a GateResult>,
    worst_pictures: Vec<String>,
}

/// What the report is about.
pub(crate) struct Subject<'a> {
    /// Name of the bundle.
    pub(crate) name: &'a str,
    /// File name of the model.
    pub(crate) model: &'a str,
    /// Whether the bundle was written.
    pub(crate) written: bool,
    /// What was done.
    pub(crate) account: &'a Account,
    /// Score from which boxes are reported.
    pub(crate) threshold: f32,
    /// Longer side of the input, px.
    pub(crate) longer_side_px: u32,
    /// What the gate said; `None` without pictures.
    pub(crate) verdict: Option<&'a Verdict>,
}

impl Subject<'_> {
    /// Writes both files; each appears whole or not at all.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Output`] when a file cannot be written.
    pub(crate) fn write(&self, json: &Path, html: &Path) -> Result<()> {
        let report = Report {
            name: self.name,
            model: self.model,
            written: self.written,
            conversion: self.account,
            gate: self.verdict.map(Verdict::result),
            worst_pictures: self.worst().into_iter().map(|(_, name)| name).collect(),
        };
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| Error::unexpected("the report cannot be written").because(error))?;
        put(json, text.as_bytes())?;
        put(html, self.html()?.as_bytes())
    }

    /// Position and file name of the pictures in which the two differ most.
    fn worst(&self) -> Vec<(usize, String)> {
        let Some(verdict) = self.verdict else { return Vec::new() };
        let name = |at: usize| {
            let picture = verdict.ground.pictures().pictures.get(at)?;
            Some((at, crate::build::pictures::short_name(&picture.path)))
        };
        verdict.judged.worst.iter().take(WORST).filter_map(|&at| name(at)).collect()
    }

    fn html(&self) -> Result<String> {
        let mut page = String::new();
        let verdict = match self.verdict.map(|verdict| verdict.result().passed()) {
            Some(true) => "<b class=good>passed</b>",
            Some(false) => "<b class=bad>failed</b>",
            None => "<b class=bad>not measured</b>",
        };
        let _ = write!(
            page,
            "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'><title>{name}</title>\
             <style>{STYLE}</style><main><h1>{name}</h1><p>{precision} from {model}. Accuracy gate: {verdict}.</p><ul>",
            name = escaped(self.name),
            precision = escaped(&self.account.precision.to_uppercase()),
            model = escaped(self.model),
        );
        for line in &self.account.decided {
            let _ = write!(page, "<li>{}</li>", escaped(line));
        }
        page.push_str("</ul>");
        if let Some(verdict) = self.verdict {
            gate_section(&mut page, verdict.result());
            plots::score_shift(&mut page, &verdict.judged.scores, self.threshold);
            self.pictures_section(&mut page, verdict)?;
        }
        plots::memory(&mut page, &self.account.memory, self.longer_side_px);
        conversion_section(&mut page, self.account);
        page.push_str("</main></html>\n");
        Ok(page)
    }

    fn pictures_section(&self, page: &mut String, verdict: &Verdict) -> Result<()> {
        page.push_str("<h2>Pictures that differ most</h2><p>Left the original, right the candidate; boxes above the thresholds.</p>");
        let original = verdict.ground.original_at_thresholds();
        for (at, name) in self.worst() {
            let picture = verdict.ground.pictures().decode(at)?;
            let _ = write!(page, "<h3>{}</h3><div class=pair>", escaped(&name));
            for answers in [&original, &verdict.judged.candidate] {
                picture_with_boxes(page, &picture, answers.get(at).map_or(&[], Vec::as_slice))?;
            }
            page.push_str("</div>");
        }
        Ok(())
    }
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:0;color:#1b1f24;background:#fff}main{max-width:1060px;margin:auto;\
padding:24px}table{border-collapse:collapse;margin:8px 0 20px}td,th{padding:4px 12px;border-bottom:1px solid #d8dee4;\
text-align:right}td:first-child,th:first-child{text-align:left}.good{color:#1a7f37}.bad{color:#b3261e}.pair{display:flex;gap:12px;\
flex-wrap:wrap}svg{max-width:100%}.bar{fill:#2f6fb0}.half{fill:#3f8f5a}.float{fill:#c2691c}text{font-size:12px;fill:#57606a}\
.grid{stroke:#d8dee4;fill:none}.dashes{stroke:#8c959f;stroke-dasharray:4 4;fill:none}.dots{stroke:#2f6fb0;stroke-width:4;\
stroke-linecap:round;stroke-opacity:.45;fill:none}.line{stroke:#2f6fb0;stroke-width:2;fill:none}.line-float{stroke:#c2691c;\
stroke-width:2;fill:none}";

fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = AsideFile::create(path)?;
    file.write_all(bytes)
        .map_err(|error| Error::output("the report cannot be written").because(error).at(path.display()))?;
    file.commit()
}

/// The pixels of a decoded picture as RGB without padding.
fn rgb(picture: &Picture) -> Vec<u8> {
    let row_bytes = picture.format.row_bytes(picture.size.width_px);
    let rows = picture.pixels.as_slice().chunks(picture.stride_bytes.max(1)).take(index(picture.size.height_px));
    let rows = rows.map(|row| &row[..row_bytes.min(row.len())]);
    match picture.format {
        PixelFormat::Rgb8 => rows.flatten().copied().collect(),
        _ => rows.flatten().flat_map(|&gray| [gray; 3]).collect(),
    }
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;").replace('"', "&quot;")
}

fn share(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.4}"))
}

/// What answered for both, in words.
fn judged_by(gate: &GateResult) -> String {
    match &gate.plan {
        Some(plan) => {
            format!("the plan {} by {} on {}, the original by {}", plan.name, plan.tensorrt, plan.gpu, gate.backend)
        }
        None => format!("{} in {}", gate.judged, gate.backend),
    }
}

fn gate_section(page: &mut String, gate: &GateResult) {
    let _ = write!(
        page,
        "<h2>Accuracy gate</h2><p>{} pictures, true by {}; {}. Pictures that the model was trained on understate the loss.</p>\
         <table><tr><th>limit<th>worse by<th>allowed<th></tr>",
        gate.pictures,
        escaped(&gate.truth),
        escaped(&judged_by(gate))
    );
    for check in &gate.checks {
        let (class, word) = if check.passed { ("good", "holds") } else { ("bad", "broken") };
        let _ = write!(
            page,
            "<tr><td>{}<td>{:.4}<td>{:.4}<td class={class}>{word}</tr>",
            escaped(&check.name),
            check.worse_by,
            check.allowed
        );
    }
    page.push_str(
        "</table><table><tr><th>class<th>labels<th>mAP50<th>mAP50-95<th>recall<th>false boxes<th>best threshold</tr>",
    );
    rows(page, &gate.original, &gate.candidate);
    page.push_str("</table><p>Figures are original → candidate, at the recipe's thresholds.");
    if let Some(shift) = &gate.shift {
        let _ = write!(
            page,
            " {} boxes in both, {} only in the original, {} only in the candidate. Corners moved by {:.2} px in the median, {:.2} px at \
             the 99th percentile; scores by {:+.4} in the median, {:+.4} and {:+.4} at the 1st and 99th percentile.",
            shift.matched,
            shift.lost,
            shift.new,
            shift.box_median_px,
            shift.box_p99_px,
            shift.score_median,
            shift.score_p1,
            shift.score_p99
        );
    }
    page.push_str("</p>");
    if let Some(graph) = gate.plan.as_ref().and_then(|plan| plan.graph.as_ref()) {
        page.push_str("<p>The graph that the plan was made from, on the CPU: ");
        let _ = write!(
            page,
            "mAP50 {}, {} found, {} false boxes.</p>",
            share(graph.map50),
            graph.operating.found,
            graph.operating.false_boxes
        );
    }
}

fn rows(page: &mut String, before: &Figures, after: &Figures) {
    let mut row = |name: &str, labels: u64, cells: [String; 4], best: String| {
        let _ = write!(page, "<tr><td>{}<td>{labels}", escaped(name));
        cells.iter().for_each(|cell| {
            let _ = write!(page, "<td>{cell}");
        });
        let _ = write!(page, "<td>{best}</tr>");
    };
    let arrow = |before: String, after: String| format!("{before} → {after}");
    row(
        "all",
        before.operating.labels,
        [
            arrow(share(before.map50), share(after.map50)),
            arrow(share(before.map50_95), share(after.map50_95)),
            arrow(share(Some(before.operating.recall())), share(Some(after.operating.recall()))),
            arrow(before.operating.false_boxes.to_string(), after.operating.false_boxes.to_string()),
        ],
        String::new(),
    );
    for (before, after) in before.classes.iter().zip(&after.classes) {
        row(
            &before.class,
            before.operating.labels,
            [
                arrow(share(before.ap50), share(after.ap50)),
                arrow(share(before.ap50_95), share(after.ap50_95)),
                arrow(share(Some(before.operating.recall())), share(Some(after.operating.recall()))),
                arrow(before.operating.false_boxes.to_string(), after.operating.false_boxes.to_string()),
            ],
            after.best_score.map_or_else(|| "–".to_owned(), |score| format!("{score:.2}")),
        );
    }
}

/// How a try of the repair differs from the one before, in words.
fn changed(step: &Step) -> String {
    match (step.put_back.as_slice(), step.taken_again.as_slice()) {
        ([], []) => "–".to_owned(),
        (put_back, []) => put_back.join(", "),
        (_, taken_again) => format!("taken back into INT8: {}", taken_again.join(", ")),
    }
}

fn conversion_section(page: &mut String, account: &Account) {
    if !account.repair.is_empty() {
        page.push_str(
            "<h2>Accuracy against speed</h2><table><tr><th>put back into float<th>INT8 share<th>estimated time<th>mAP50<th>found<th>false \
             boxes<th>gate</tr>",
        );
        for step in &account.repair {
            let _ = write!(
                page,
                "<tr><td>{}<td>{:.1} %<td>{:.2}<td>{}<td>{}<td>{}<td>{}</tr>",
                escaped(&changed(step)),
                100.0 * step.int8_share,
                step.estimated_time,
                share(step.map50),
                step.found,
                step.false_boxes,
                if step.passed { "passed" } else { "failed" }
            );
        }
        page.push_str("</table><p>Estimated time: convolutions alone, all in FP32 being 1; no measurement.</p>");
    }
    plots::layers(page, &account.layers);
    if !account.ranges.is_empty() {
        page.push_str("<h2>Activation ranges</h2><table><tr><th>tensor<th>largest seen<th>kept up to</tr>");
        for range in &account.ranges {
            let _ = write!(page, "<tr><td>{}<td>{:.3}<td>{:.3}</tr>", escaped(&range.tensor), range.largest, range.cut);
        }
        page.push_str("</table>");
    }
}

fn picture_with_boxes(page: &mut String, picture: &Picture, boxes: &[Detection]) -> Result<()> {
    let (width, height) = (picture.size.width_px, picture.size.height_px);
    let rgb = rgb(picture);
    let image = image::RgbImage::from_raw(width, height, rgb)
        .ok_or_else(|| Error::unexpected("found a picture that does not match its size"))?;
    let scale = (f64::from(SHOWN_PX) / f64::from(width.max(height))).min(1.0);
    let shown = |length: u32| crate::units::round_px(f64::from(length) * scale).max(1);
    let small = image::imageops::thumbnail(&image, shown(width), shown(height));
    let mut jpeg = Vec::new();
    image::codecs::jpeg::JpegEncoder::new_with_quality(&mut jpeg, 80)
        .encode_image(&small)
        .map_err(|error| Error::unexpected("a picture of the report cannot be written").because(error))?;
    let _ = write!(
        page,
        "<svg width={} height={} viewBox='0 0 {width} {height}'><image width={width} height={height} \
         href='data:image/jpeg;base64,{}'/>",
        small.width(),
        small.height(),
        base64(&jpeg)
    );
    for found in boxes {
        let edges = found.edges;
        let _ = write!(
            page,
            "<rect x={:.1} y={:.1} width={:.1} height={:.1} fill=none stroke='hsl({} 90% 45%)' stroke-width={:.1}><title>class {} {:.2}\
             </title></rect>",
            edges.left_px,
            edges.top_px,
            edges.width_px(),
            edges.height_px(),
            found.class_id * 67 % 360,
            2.0 / scale,
            found.class_id,
            found.score
        );
    }
    page.push_str("</svg>");
    Ok(())
}

/// Bytes as text that fits into an address.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let word = part.iter().enumerate().fold(0_u32, |word, (at, &byte)| word | u32::from(byte) << (16 - 8 * at));
        for digit in 0..4 {
            let used = digit <= part.len();
            text.push(if used { char::from(DIGITS[index(word >> (18 - 6 * digit) & 63)]) } else { '=' });
        }
    }
    debug_assert!(length(text.len()) >= length(bytes.len()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_the_standard() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn names_cannot_break_the_page() {
        assert_eq!(escaped("<a href='x'>&"), "&lt;a href=&#39;x&#39;&gt;&amp;");
    }
}
