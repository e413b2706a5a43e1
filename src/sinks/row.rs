//! One result: what every sink gets, and the JSON line that outsiders read.

use crate::decision::Decision;
use crate::detections::Detection;
use crate::engine::{EngineTimings, MemoryFigures};
use crate::frame::{Frame, StreamName};
use crate::guard::{Reason, Standing, Trust};
use crate::units::{Bytes, index};
use serde::Serialize;
use std::io::Write as _;
use std::sync::Arc;
use std::time::SystemTime;
use time::OffsetDateTime;
use time::macros::format_description;

/// The answer for one frame or part, as judged and decided.
#[derive(Debug, Clone)]
pub struct Row {
    /// The stream.
    pub stream: StreamName,
    /// The capture number within the stream; gaps are drops. `None` for a part that got no frame.
    pub number: Option<u64>,
    /// Wall-clock capture time; `None` for files.
    pub captured_at: Option<SystemTime>,
    /// File name or address of the picture.
    pub source: Option<Arc<str>>,
    /// What the guard says.
    pub trust: Trust,
    /// Why it is not trusted; empty when it is.
    pub reasons: Vec<Reason>,
    /// What soft checks saw while they only observe (no reference yet).
    pub observed: Vec<Reason>,
    /// Whether soft checks act on this stream.
    pub standing: Standing,
    /// What the line does with the part; `None` without a rule.
    pub decision: Option<Decision>,
    /// The part's id.
    pub part: Option<Arc<str>>,
    /// When the known answers last came out right on this machine.
    pub proved_at: Option<SystemTime>,
    /// Boxes in pixels of the source picture; `None` when trust is `fault`, empty only when the engine answered none.
    pub detections: Option<Vec<Detection>>,
    /// Candidates above the floor before NMS.
    pub boxes_before_nms: u64,
    /// Where the engine's time went.
    pub timings: EngineTimings,
    /// From arrival of the frame to this row, ms.
    pub age_ms: f64,
    /// The engine's memory counters.
    pub memory: MemoryFigures,
    /// The engine that answered.
    pub engine: Arc<EngineStamp>,
    /// The picture, for sinks that draw; `None` when there is none (unreadable, lost camera).
    pub frame: Option<Arc<Frame>>,
}

/// Which engine answered; part of every result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineStamp {
    /// Name of the bundle.
    pub bundle: String,
    /// Bundle id: SHA-256 of the manifest, lower-case hex.
    pub sha256: String,
    /// Backend with version.
    pub backend: String,
    /// Class names, index = class id.
    pub classes: Arc<[String]>,
    /// The device that answered, where there are several.
    pub device: Option<String>,
    /// The product that is inspected, where the configuration has several.
    pub product: Option<Arc<str>>,
    /// What pages and metrics call the engine, where a run has several bundles; not part of the JSON line.
    pub label: Option<Arc<str>>,
}

impl Row {
    /// Whether the boxes may be used: never when trust is `fault`.
    pub fn usable_detections(&self) -> Option<&[Detection]> {
        if self.trust == Trust::Fault { None } else { self.detections.as_deref() }
    }

    /// Appends the JSON object that outsiders read, without a line end. `line` is reused from row to row: once it has
    /// grown to the longest line, nothing is allocated.
    pub fn write_json(&self, line: &mut Vec<u8>) {
        let mut out = Json { line };
        out.text("{\"stream\":").value(&*self.stream);
        out.text(",\"frame\":").value(&self.number);
        out.text(",\"captured_at\":").time(self.captured_at);
        out.text(",\"source\":").value(&self.source.as_deref());
        out.text(",\"trust\":").value(self.trust.name());
        out.text(",\"reasons\":").names(self.reasons.iter().map(|reason| reason.name()));
        if !self.observed.is_empty() {
            out.text(",\"observed\":").names(self.observed.iter().map(|reason| reason.name()));
        }
        out.text(",\"decision\":").value(&self.decision.map(Decision::name));
        out.text(",\"part\":").value(&self.part.as_deref());
        if let Some(product) = &self.engine.product {
            out.text(",\"product\":").value(&**product);
        }
        out.text(",\"proved_at\":").time(self.proved_at);
        out.text(",\"detections\":").detections(self.usable_detections(), &self.engine.classes);
        out.text(",\"boxes_before_nms\":").value(&self.boxes_before_nms);
        out.text(",\"timings_ms\":{\"preprocess\":").ms(self.timings.preprocess_ms);
        out.text(",\"transfer\":").ms(self.timings.transfer_ms);
        out.text(",\"inference\":").ms(self.timings.inference_ms);
        out.text(",\"postprocess\":").ms(self.timings.postprocess_ms);
        out.text(",\"age\":").ms(self.age_ms);
        let MemoryFigures { allocated: Bytes(allocated), peak: Bytes(peak), reserved: Bytes(reserved) } = self.memory;
        out.text("},\"memory_bytes\":{\"allocated\":").value(&allocated);
        out.text(",\"peak\":").value(&peak);
        out.text(",\"reserved\":").value(&reserved);
        out.text("},\"engine\":{\"bundle\":").value(&*self.engine.bundle);
        out.text(",\"sha256\":").value(&*self.engine.sha256);
        out.text(",\"backend\":").value(&*self.engine.backend);
        if let Some(device) = &self.engine.device {
            out.text(",\"device\":").value(&**device);
        }
        out.text("}}");
    }
}

impl EngineStamp {
    /// What pages and metrics call the engine: the bundle's name, and with several bundles what tells them apart.
    pub fn label(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.bundle)
    }

    /// The name of a class; empty for an id that the model does not have.
    pub fn class_name(&self, class_id: u32) -> &str {
        self.classes.get(index(class_id)).map_or("", String::as_str)
    }
}

/// Writes `2026-01-01T00:00:00.000Z`; `false` (and nothing written) for a time that no calendar holds.
pub fn write_time(time: SystemTime, out: &mut Vec<u8>) -> bool {
    let nanoseconds = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i128::try_from(after.as_nanos()),
        Err(before) => i128::try_from(before.duration().as_nanos()).map(|nanoseconds| -nanoseconds),
    };
    let Some(time) = nanoseconds.ok().and_then(|ns| OffsetDateTime::from_unix_timestamp_nanos(ns).ok()) else {
        return false;
    };
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    let before = out.len();
    if time.format_into(out, &format).is_err() {
        out.truncate(before);
        return false;
    }
    true
}

/// The pieces of a JSON line.
struct Json<'a> {
    line: &'a mut Vec<u8>,
}

impl Json<'_> {
    fn text(&mut self, text: &str) -> &mut Self {
        self.line.extend_from_slice(text.as_bytes());
        self
    }

    /// A string, an integer, a float or null; floats that JSON cannot hold become null.
    fn value<T: Serialize + ?Sized>(&mut self, value: &T) {
        let before = self.line.len();
        if serde_json::to_writer(&mut *self.line, value).is_err() {
            self.line.truncate(before);
            self.text("null");
        }
    }

    /// Whole microseconds are enough.
    fn ms(&mut self, value_ms: f64) {
        if value_ms.is_finite() {
            self.value(&((value_ms * 1e3).round() / 1e3));
        } else {
            self.text("null");
        }
    }

    fn time(&mut self, time: Option<SystemTime>) {
        self.text("\"");
        if time.is_some_and(|time| write_time(time, self.line)) {
            self.text("\"");
        } else {
            self.line.pop();
            self.text("null");
        }
    }

    fn names(&mut self, names: impl Iterator<Item = &'static str>) {
        self.text("[");
        for (index, name) in names.enumerate() {
            let separator = if index == 0 { "" } else { "," };
            let _ = write!(self.line, "{separator}\"{name}\"");
        }
        self.text("]");
    }

    fn detections(&mut self, detections: Option<&[Detection]>, classes: &[String]) {
        let Some(detections) = detections else {
            self.text("null");
            return;
        };
        self.text("[");
        for (position, detection) in detections.iter().enumerate() {
            self.text(if position == 0 { "{\"class_id\":" } else { ",{\"class_id\":" });
            self.value(&detection.class_id);
            self.text(",\"class\":").value(&classes.get(index(detection.class_id)));
            self.text(",\"score\":").value(&detection.score);
            self.text(",\"box\":").value(&detection.edges);
            self.text("}");
        }
        self.text("]");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::units::BoxPx;
    use std::time::Duration;

    pub(crate) fn row() -> Row {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_767_225_600_005);
        Row {
            stream: "cam0".into(),
            number: Some(123),
            captured_at: Some(at),
            source: None,
            trust: Trust::Trusted,
            reasons: vec![],
            observed: vec![],
            standing: Standing::Act,
            decision: Some(Decision::Reject),
            part: Some("A-17".into()),
            proved_at: Some(at - Duration::from_millis(5)),
            detections: Some(vec![Detection {
                class_id: 1,
                score: 0.93,
                edges: BoxPx::new(1.5, 2.0, 30.25, 40.0),
                unclipped: BoxPx::new(1.5, 2.0, 30.25, 40.0),
            }]),
            boxes_before_nms: 41,
            timings: EngineTimings {
                preprocess_ms: 1.2344,
                transfer_ms: 0.0,
                inference_ms: 98.76543,
                postprocess_ms: 0.5,
            },
            age_ms: 101.0,
            memory: MemoryFigures { allocated: Bytes(10), peak: Bytes(20), reserved: Bytes(30) },
            engine: Arc::new(EngineStamp {
                bundle: "line1".into(),
                sha256: "ab".repeat(32),
                backend: "rten 0.27.0".into(),
                classes: vec!["open".to_owned(), "short \"x\"".to_owned()].into(),
                device: None,
                product: None,
                label: None,
            }),
            frame: None,
        }
    }

    fn json(row: &Row) -> String {
        let mut line = Vec::new();
        row.write_json(&mut line);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn golden_line() {
        assert_eq!(
            json(&row()),
            concat!(
                r#"{"stream":"cam0","frame":123,"captured_at":"2026-01-01T00:00:00.005Z","source":null,"trust":"trusted","#,
                r#""reasons":[],"decision":"reject","part":"A-17","proved_at":"2026-01-01T00:00:00.000Z","#,
                r#""detections":[{"class_id":1,"class":"short \"x\"","score":0.93,"box":[1.5,2.0,30.25,40.0]}],"#,
                r#""boxes_before_nms":41,"timings_ms":{"preprocess":1.234,"transfer":0.0,"inference":98.765,"postprocess":0.5,"#,
                r#""age":101.0},"memory_bytes":{"allocated":10,"peak":20,"reserved":30},"engine":{"bundle":"line1","#,
                r#""sha256":"abababababababababababababababababababababababababababababababab","backend":"rten 0.27.0"}}"#,
            )
        );
    }

    #[test]
    fn a_fault_has_null_detections_even_when_boxes_are_there() {
        let mut row = row();
        row.trust = Trust::Fault;
        row.reasons = vec![Reason::Nan, Reason::BoxSurge];
        row.decision = Some(Decision::NotInspected);
        let text = json(&row);
        assert!(text.contains(r#""trust":"fault","reasons":["nan","box_surge"],"decision":"not_inspected""#), "{text}");
        assert!(text.contains(r#""detections":null"#), "{text}");
    }

    #[test]
    fn a_file_has_no_time_and_no_rule_gives_null() {
        let mut row = row();
        row.captured_at = None;
        row.proved_at = None;
        row.source = Some("a\"\\\n\u{1}图.jpg".into());
        row.decision = None;
        row.part = None;
        row.detections = Some(vec![]);
        row.observed = vec![Reason::Blurred];
        row.timings.inference_ms = f64::NAN;
        let value: serde_json::Value = serde_json::from_str(&json(&row)).unwrap();
        assert_eq!(value["source"], "a\"\\\n\u{1}图.jpg");
        assert_eq!(value["observed"], serde_json::json!(["blurred"]));
        assert_eq!(value["detections"], serde_json::json!([]));
        for key in ["captured_at", "proved_at", "decision", "part"] {
            assert!(value[key].is_null(), "{key}");
        }
        assert!(value["timings_ms"]["inference"].is_null());
    }

    #[test]
    fn times_that_no_calendar_holds_are_null() {
        let mut out = Vec::new();
        assert!(write_time(SystemTime::UNIX_EPOCH - Duration::from_millis(1), &mut out));
        assert_eq!(out, b"1969-12-31T23:59:59.999Z");
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 45);
        assert!(!write_time(far, &mut out));
    }

    #[test]
    fn the_buffer_stops_growing() {
        let row = row();
        let mut line = Vec::new();
        row.write_json(&mut line);
        let capacity = line.capacity();
        for _ in 0..100 {
            line.clear();
            row.write_json(&mut line);
        }
        assert_eq!(line.capacity(), capacity);
    }
}
