//! The page of a sweep: size against memory, accuracy against memory, and the table, in one file that needs no other.

use super::lines::Line;
use super::{Ended, Sweep};
use crate::units::{Bytes, float64, length};
use std::fmt::Write;

/// Size of a plot and room for its axes, px.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 40.0;
const MIB: f64 = 1_048_576.0;
/// Colours of curves, told apart by people who see few colours as well.
const COLOURS: [&str; 8] = ["#2f6fb0", "#c2691c", "#1a7f37", "#8250df", "#b3261e", "#0a7d8c", "#7d5a00", "#57606a"];

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:0;color:#1b1f24;background:#fff}main{max-width:1060px;\
margin:auto;padding:24px}table{border-collapse:collapse;margin:8px 0 20px;font-size:13px}td,th{padding:3px 10px;border-bottom:1px solid \
#d8dee4;text-align:right}td:first-child,th:first-child,td.text{text-align:left}td,th{white-space:nowrap}td.text{white-space:normal;min-width:320px}.wide{overflow-x:auto}.good{color:#1a7f37}.bad{color:#b3261e}svg{max-width:100%}\
text{font-size:12px;fill:#1b1f24}.axis{stroke:#57606a}.grid{stroke:#d8dee4}.budget{stroke:#b3261e;stroke-dasharray:6 4}";

/// One curve.
struct Curve {
    name: String,
    /// x, y, what a pointer over it shows, whether it is scaled and not from a graph of that size.
    points: Vec<(f64, f64, String, bool)>,
}

/// The whole page.
pub(super) fn html(sweep: &Sweep) -> String {
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'><title>Sweep</title>\
         <style>{STYLE}</style><main><h1>Sweep</h1>"
    );
    page.push_str("<h2>Input size against memory</h2><p>Peak of one context, estimated from the graph, without the CUDA context. \
                   Hollow points: this export cannot be built at that size; scaled by area. Dashed: what a target may use.</p>");
    plot(&mut page, "longest side of the input, px", "memory, MiB", &memory_curves(sweep), &budgets(sweep));
    let accuracy = accuracy_curves(sweep);
    if !accuracy.is_empty() {
        page.push_str("<h2>Memory against accuracy</h2><p>mAP50 against the labels, at batch 1; above and to the left is better.</p>");
        plot(&mut page, "memory at the smallest batch, MiB", "mAP50", &accuracy, &[]);
    }
    table(&mut page, sweep);
    searches(&mut page, sweep);
    if !sweep.remarks.is_empty() {
        page.push_str("<h2>Remarks</h2><ul>");
        sweep.remarks.iter().for_each(|remark| _ = write!(page, "<li>{}</li>", escaped(remark)));
        page.push_str("</ul>");
    }
    page.push_str("</main></html>\n");
    page
}

fn longest(line: &Line) -> f64 {
    f64::from(line.size.width_px.max(line.size.height_px))
}

fn mib(bytes: Bytes) -> f64 {
    float64(bytes.0) / MIB
}

/// One curve a model, precision and batch.
fn memory_curves(sweep: &Sweep) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for line in &sweep.lines {
        let Some(memory) = line.memory else { continue };
        let name = format!("{}, {}, batch {}", line.model, line.precision.name(), line.batch);
        let label = format!("{name}, {}: {}", line.size, memory.total);
        add(&mut curves, name, (longest(line), mib(memory.total), label, memory.scaled));
    }
    curves
}

/// One curve a model and precision, over its sizes.
fn accuracy_curves(sweep: &Sweep) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for (at, line) in sweep.lines.iter().enumerate() {
        let known = line.accuracy.as_ref().and_then(|accuracy| accuracy.map50).zip(line.memory);
        let Some((map50, memory)) = known else { continue };
        if sweep.lines[..at].iter().any(|other| other.same_group(line) && other.accuracy.is_some()) {
            continue;
        }
        let name = format!("{}, {}", line.model, line.precision.name());
        let label = format!("{name}, {}: mAP50 {map50:.4}, {}", line.size, memory.total);
        add(&mut curves, name, (mib(memory.total), map50, label, false));
    }
    curves
}

fn add(curves: &mut Vec<Curve>, name: String, point: (f64, f64, String, bool)) {
    match curves.iter_mut().find(|curve| curve.name == name) {
        Some(curve) => curve.points.push(point),
        None => curves.push(Curve { name, points: vec![point] }),
    }
}

/// What each GPU target may use, for the dashed lines.
fn budgets(sweep: &Sweep) -> Vec<(String, f64)> {
    sweep.targets.iter().filter_map(|target| Some((target.name.clone(), mib(target.budget?)))).collect()
}

/// A round step that gives at most eight lines up to `most`.
fn step(most: f64) -> f64 {
    let mut unit = 10_f64.powf((most / 8.0).max(1e-9).log10().floor());
    for factor in [1.0, 2.0, 5.0, 10.0] {
        if most / (unit * factor) <= 8.0 {
            unit *= factor;
            break;
        }
    }
    unit
}

fn plot(page: &mut String, across: &str, up: &str, curves: &[Curve], limits: &[(String, f64)]) {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let most = |value: fn(&(f64, f64, String, bool)) -> f64| points().map(value).fold(0.0, f64::max) * 1.05;
    let (most_x, most_y) = (most(|point| point.0).max(1e-9), most(|point| point.1).max(1e-9));
    let x = |value: f64| LEFT + value / most_x * (WIDTH - LEFT - 10.0);
    let y = |value: f64| HEIGHT - BOTTOM - value / most_y * (HEIGHT - BOTTOM - 10.0);
    let legend = 18.0 * length(curves.len());
    let _ = write!(
        page,
        "<svg viewBox='0 0 {WIDTH} {:.0}' width='{WIDTH}' role='img' aria-label='{}'>",
        HEIGHT + legend,
        escaped(up)
    );
    for (most, is_x) in [(most_x, true), (most_y, false)] {
        let step = step(most);
        let digits = if step < 1.0 { 2 } else { 0 };
        let mut at = 0.0;
        while at <= most {
            let (here_x, here_y) = (x(at), y(at));
            let _ = if is_x {
                write!(
                    page,
                    "<text x='{here_x:.1}' y='{:.1}' text-anchor='middle'>{at:.digits$}</text>",
                    HEIGHT - BOTTOM + 16.0
                )
            } else {
                write!(
                    page,
                    "<line class=grid x1='{LEFT}' x2='{WIDTH}' y1='{here_y:.1}' y2='{here_y:.1}'/>\
                     <text x='{:.1}' y='{:.1}' text-anchor='end'>{at:.digits$}</text>",
                    LEFT - 6.0,
                    here_y + 4.0
                )
            };
            at += step;
        }
    }
    let _ = write!(
        page,
        "<line class=axis x1='{LEFT}' x2='{WIDTH}' y1='{0:.1}' y2='{0:.1}'/><line class=axis x1='{LEFT}' x2='{LEFT}' y1='10' y2='{0:.1}'/>\
         <text x='{1:.1}' y='{2:.1}' text-anchor='middle'>{3}</text><text x='14' y='{4:.1}' text-anchor='middle' \
         transform='rotate(-90 14 {4:.1})'>{5}</text>",
        HEIGHT - BOTTOM,
        (LEFT + WIDTH) / 2.0,
        HEIGHT - 6.0,
        escaped(across),
        HEIGHT / 2.0,
        escaped(up)
    );
    for (name, limit) in limits.iter().filter(|(_, limit)| *limit <= most_y) {
        let at = y(*limit);
        let _ = write!(
            page,
            "<line class=budget x1='{LEFT}' x2='{WIDTH}' y1='{at:.1}' y2='{at:.1}'/><text x='{:.1}' y='{:.1}'>{}</text>",
            LEFT + 6.0,
            at - 4.0,
            escaped(name)
        );
    }
    for ((curve, colour), row) in curves.iter().zip(COLOURS.iter().cycle()).zip(0_u32..) {
        let path: Vec<String> =
            curve.points.iter().map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1))).collect();
        let _ =
            write!(page, "<polyline fill='none' stroke='{colour}' stroke-width='1.5' points='{}'/>", path.join(" "));
        for (at_x, at_y, label, scaled) in &curve.points {
            let fill = if *scaled { "#fff" } else { colour };
            let _ = write!(
                page,
                "<circle cx='{:.1}' cy='{:.1}' r='4' stroke='{colour}' fill='{fill}'><title>{}</title></circle>",
                x(*at_x),
                y(*at_y),
                escaped(label)
            );
        }
        let below = HEIGHT + 18.0 * f64::from(row);
        let _ = write!(
            page,
            "<rect x='{LEFT}' y='{:.1}' width='14' height='10' fill='{colour}'/><text x='{:.1}' y='{:.1}'>{}</text>",
            below + 4.0,
            LEFT + 20.0,
            below + 13.0,
            escaped(&curve.name)
        );
    }
    page.push_str("</svg>");
}

fn table(page: &mut String, sweep: &Sweep) {
    page.push_str(
        "<h2>Every combination</h2><div class=wide><table><tr><th>model<th>input<th>precision<th>batch<th>activations<th>memory",
    );
    let gpus: Vec<&str> =
        sweep.targets.iter().filter(|target| target.budget.is_some()).map(|target| target.name.as_str()).collect();
    gpus.iter().for_each(|name| _ = write!(page, "<th>{}", escaped(name)));
    page.push_str("<th>mAP50<th>recall<th>false boxes<th>gate<th>ms a picture<th>remark</tr>");
    for line in &sweep.lines {
        let _ = write!(
            page,
            "<tr><td>{}<td>{}<td>{}<td>{}",
            escaped(&line.model),
            line.size,
            line.precision.name(),
            line.batch
        );
        let memory = line.memory.map(|memory| (memory.activations.to_string(), memory.total.to_string()));
        let (activations, total) = memory.unwrap_or_default();
        let _ = write!(page, "<td>{activations}<td>{total}");
        for name in &gpus {
            let fit = line.fits.iter().find(|fit| fit.target == *name).filter(|_| line.refused.is_none());
            let _ = match fit {
                Some(fit) if fit.fits => write!(page, "<td class=good>{:.0} %", share(fit.total, fit.budget)),
                Some(fit) => write!(page, "<td class=bad>{:.0} %", share(fit.total, fit.budget)),
                None => write!(page, "<td>"),
            };
        }
        let _ = match &line.accuracy {
            Some(found) => write!(
                page,
                "<td>{}<td>{:.4}<td>{}<td>{}",
                found.map50.map_or_else(String::new, |map50| format!("{map50:.4}")),
                found.recall,
                found.false_boxes,
                match found.passed {
                    Some(true) => "<span class=good>passed</span>",
                    Some(false) => "<span class=bad>failed</span>",
                    None => "",
                }
            ),
            None => write!(page, "<td><td><td><td>"),
        };
        let time = line.time.as_ref().map(|time| format!("{:.3}", time.ms_a_picture)).unwrap_or_default();
        let remark = line.refused.as_ref().map(|refused| refused.reason.as_str());
        let failed = line.accuracy.as_ref().map(|found| found.failed.join(", ")).filter(|failed| !failed.is_empty());
        let remark = remark.map(str::to_owned).or(failed).unwrap_or_default();
        let _ = write!(page, "<td>{time}<td class=text>{}</tr>", escaped(&remark));
    }
    page.push_str("</table></div>");
}

fn searches(page: &mut String, sweep: &Sweep) {
    let found: Vec<&Line> = sweep.lines.iter().filter(|line| line.batch_search.is_some()).collect();
    if found.is_empty() {
        return;
    }
    page.push_str("<h2>Best batch</h2><p>Doubled until a picture takes longer or the memory leaves the line, then one step back.</p><ul>");
    for line in found {
        let Some(search) = &line.batch_search else { continue };
        let steps: Vec<String> = search
            .steps
            .iter()
            .map(|step| format!("{}: {:.3} ms, {}", step.batch, step.ms_a_picture, step.memory))
            .collect();
        let best = search.best.map_or_else(|| "none".to_owned(), |best| best.to_string());
        let engine = line.time.as_ref().map_or("", |time| time.engine.as_str());
        let _ = write!(
            page,
            "<li>{} {} {} on {}: batch {best} ({}); {}</li>",
            escaped(&line.model),
            line.size,
            line.precision.name(),
            escaped(engine),
            escaped(&ended(&search.ended)),
            escaped(&steps.join("; "))
        );
    }
    page.push_str("</ul>");
}

/// Why a search ended, in words.
fn ended(why: &Ended) -> String {
    match why {
        Ended::Largest => "the largest asked for".to_owned(),
        Ended::LatencyRises => "a picture takes longer with more".to_owned(),
        Ended::GrowthLeftTheLine => "the memory grows faster with more".to_owned(),
        Ended::CannotRun { batch, reason } => format!("batch {batch} cannot run: {reason}"),
    }
}

/// `part` of `of` in percent.
pub fn share(part: Bytes, of: Bytes) -> f64 {
    100.0 * float64(part.0) / float64(of.0.max(1))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    #[test]
    fn steps_are_round() {
        for (most, expected) in [(8.0, 1.0), (9.0, 2.0), (700.0, 100.0), (1.0, 0.2), (4096.0, 1000.0)] {
            let found: f64 = super::step(most);
            assert!((found - expected).abs() < 1e-9, "{most}: {found}");
        }
    }
}
