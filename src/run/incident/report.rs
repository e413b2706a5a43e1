//! What an incident's files hold: `incident.json`, one object, and `frames.jsonl`, one object a frame.

use crate::bundle::golden::{Answer, KnownBox};
use crate::decision::Decision;
use crate::engine::{EngineTimings, MemoryFigures, OutputStats};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Trust;
use crate::sinks::row::write_time;
use crate::units::{BoxPx, SizePx};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::SystemTime;

/// Version of both files; a reader refuses a newer one and names both.
pub const SCHEMA: u32 = 1;
/// Entry with the [`Report`].
pub const REPORT: &str = "incident.json";
/// Entry with one [`FrameLine`] a line.
pub const FRAMES: &str = "frames.jsonl";
/// Entry with the manifest of the bundle that answered.
pub const MANIFEST: &str = "manifest.json";
/// Entry with the bundle itself, where it was asked for.
pub const BUNDLE: &str = "bundle.edge";

/// `incident.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// Name of the incident and of its folder.
    pub id: String,
    /// When it was seen, RFC 3339.
    pub seen_at: String,
    /// What was seen first: a check of the guard, `self_test`, `slow`, `device_lost`, or `asked`.
    pub reason: String,
    /// The same for people.
    pub what: String,
    /// The streams that are recorded.
    pub streams: Vec<String>,
    /// Steps of the recovery ladder, in their order; the last one worked when `recovered_after_ms` is there.
    pub steps: Vec<String>,
    /// From the fault to the proof that it is over, or, for a picture, to the first good one.
    pub recovered_after_ms: Option<f64>,
    /// How the run ended, when it ended before that.
    pub ended: Option<String>,
    /// Whether all frames that were to be recorded are there.
    pub complete: bool,
    /// Frames recorded.
    pub frames: u64,
    /// Frames or pictures left out, because the disk or the writer could not take them.
    pub left_out: u64,
    /// Version of the program that recorded it.
    pub edge_run: String,
    /// The engine.
    pub engine: EngineFacts,
    /// Self-tests, alarms and steps around it, oldest first.
    pub events: Vec<EventLine>,
}

/// The engine that answered when the incident began.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineFacts {
    /// Name of the bundle.
    pub bundle: String,
    /// Bundle id.
    pub sha256: String,
    /// Where the bundle lay.
    pub path: String,
    /// Backend with version.
    pub backend: String,
    /// Device, counted from the first one the run may use.
    pub device: u64,
    /// Candidates below this score were not asked for.
    pub score_floor: f32,
}

/// Something that happened between frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventLine {
    /// When, RFC 3339.
    pub at: String,
    /// `self_test_passed`, `self_test_failed`, `alarm`, `step`, `step_failed`, `recovered`, `gave_up`, `engine`.
    pub kind: String,
    /// For people.
    pub text: String,
}

/// One frame of `frames.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrameLine {
    /// The stream.
    pub stream: String,
    /// Capture number; `None` for a capture that has none.
    pub frame: Option<u64>,
    /// When its row was made, RFC 3339.
    pub at: String,
    /// When it was captured, RFC 3339; `None` for files.
    pub captured_at: Option<String>,
    /// File name or address of the picture.
    pub source: Option<String>,
    /// The part's id.
    pub part: Option<String>,
    /// The picture; `None` when there was none or it was left out.
    pub picture: Option<PictureEntry>,
    /// What the guard measured on the picture.
    pub measured: Option<Measured>,
    /// What the guard said.
    pub trust: Trust,
    /// Why.
    pub reasons: Vec<String>,
    /// What soft checks saw while they only observe.
    pub observed: Vec<String>,
    /// What the line did with the part.
    pub decision: Option<Decision>,
    /// When the known answers had last come out right, RFC 3339.
    pub proved_at: Option<String>,
    /// Why there is no answer.
    pub error: Option<String>,
    /// The frame that the answer was for, when it was for another one.
    pub answered_for: Option<String>,
    /// What the raw output looked like; `None` without an answer.
    pub output: Option<OutputLine>,
    /// Before NMS, highest score first, in px of the source picture.
    pub candidates: Vec<BoxLine>,
    /// Candidates above the floor, also those left out above.
    pub candidates_in_all: u64,
    /// After NMS at the manifest's thresholds, also those that a fault withholds from results.
    pub detections: Vec<BoxLine>,
    /// Where the engine's time went.
    pub timings_ms: EngineTimings,
    /// From arrival of the frame to its row, ms.
    pub age_ms: f64,
    /// The engine's memory counters.
    pub memory_bytes: MemoryFigures,
    /// Bundle id of the engine that answered.
    pub sha256: String,
    /// Its device.
    pub device: u64,
}

/// A picture of an incident.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PictureEntry {
    /// Entry name, as in `pictures/000025.png`.
    pub entry: String,
    /// Pixel format of the frame: `rgb8`, `bgr8`, `gray8`, `nv12`, `yuyv`, `uyvy`.
    pub format: String,
    /// Size of the frame.
    pub size: SizePx,
}

/// Figures of a picture, see [`crate::guard::picture::PictureStats`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Mean luma, 0..255.
    pub brightness: f64,
    /// Standard deviation of luma, 0..255.
    pub contrast: f64,
    /// Variance of the Laplacian.
    pub sharpness: f64,
    /// Share of saturated pixels, 0..1.
    pub saturated_share: f64,
}

/// A number that may be none: JSON has no word for it, so `"NaN"`, `"inf"` and `"-inf"` stand for themselves.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Figure(pub f32);

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() { serializer.serialize_f32(self.0) } else { serializer.collect_str(&self.0) }
    }
}

impl<'de> Deserialize<'de> for Figure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(f32),
            Word(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Number(number) => Ok(Figure(number)),
            Either::Word(word) => match word.as_str() {
                "NaN" => Ok(Figure(f32::NAN)),
                "inf" => Ok(Figure(f32::INFINITY)),
                "-inf" => Ok(Figure(f32::NEG_INFINITY)),
                _ => Err(serde::de::Error::custom(format!("found `{word}`, expected a number"))),
            },
        }
    }
}

/// One box.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoxLine {
    /// Row of the network's output, of candidates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<u32>,
    /// Class.
    pub class_id: u32,
    /// Score.
    pub score: Figure,
    /// Left, top, right and bottom edge, px of the source picture, not clipped.
    #[serde(rename = "box")]
    pub edges: [Figure; 4],
}

impl BoxLine {
    /// The edges, px.
    pub fn edges_px(&self) -> BoxPx {
        self.edges.map(|edge| edge.0).into()
    }
}

impl From<&KnownBox> for BoxLine {
    fn from(known: &KnownBox) -> Self {
        BoxLine {
            anchor: known.anchor,
            class_id: known.class_id,
            score: Figure(known.score),
            edges: <[f32; 4]>::from(known.edges).map(Figure),
        }
    }
}

/// [`OutputStats`] as written down.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputLine {
    /// Elements looked at.
    pub values: u64,
    /// Elements that are not a number.
    pub nan: u64,
    /// Elements that are infinite.
    pub infinite: u64,
    /// Whether every element is exactly zero.
    pub all_zero: bool,
    /// Scores below 0 or above 1.
    pub scores_out_of_range: u64,
    /// Class ids that the model does not have.
    pub class_ids_out_of_range: u64,
    /// Row counts that the output cannot hold.
    pub counts_out_of_range: u64,
    /// Lowest best-class score.
    pub minimum_score: Figure,
    /// Highest best-class score.
    pub maximum_score: Figure,
    /// Mean best-class score.
    pub mean_score: Figure,
    /// Candidates at or above the floor, before the cap.
    pub boxes_before_nms: u64,
}

impl From<&OutputStats> for OutputLine {
    fn from(stats: &OutputStats) -> Self {
        OutputLine {
            values: stats.values,
            nan: stats.nan,
            infinite: stats.infinite,
            all_zero: stats.all_zero,
            scores_out_of_range: stats.scores_out_of_range,
            class_ids_out_of_range: stats.class_ids_out_of_range,
            counts_out_of_range: stats.counts_out_of_range,
            minimum_score: Figure(stats.minimum_score),
            maximum_score: Figure(stats.maximum_score),
            mean_score: Figure(stats.mean_score),
            boxes_before_nms: stats.boxes_before_nms,
        }
    }
}

/// The boxes of an answer as they are written down.
pub(super) fn boxes(known: &[KnownBox]) -> Vec<BoxLine> {
    known.iter().map(BoxLine::from).collect()
}

/// Most candidates of one frame.
pub const MOST_CANDIDATES: usize = Answer::MOST_CANDIDATES;

impl Report {
    /// Reads `incident.json`; a newer schema is refused before its fields are looked at.
    ///
    /// # Errors
    /// [`ErrorKind::Source`] with what was found and what was expected.
    pub fn parse(bytes: &[u8]) -> Result<Report> {
        #[derive(Deserialize)]
        struct Version {
            schema: u64,
        }
        let broken = |error: serde_json::Error| {
            Error::source_failed("the incident's report cannot be understood").because(error)
        };
        let version: Version = serde_json::from_slice(bytes).map_err(broken)?;
        if version.schema > u64::from(SCHEMA) {
            let found = version.schema;
            return Err(Error::source_failed(format!("found incident schema {found}, expected at most {SCHEMA}"))
                .hint("this incident was recorded by a newer edge-run; update this program"));
        }
        let report: Report = serde_json::from_slice(bytes).map_err(broken)?;
        if !super::is_id(&report.id) {
            return Err(Error::source_failed(format!(
                "found incident id {:?}, expected letters and digits",
                report.id
            )));
        }
        Ok(report)
    }

    /// `incident.json`.
    ///
    /// # Errors
    /// [`ErrorKind::Unexpected`] when it cannot be written as JSON.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| {
            Error::new(ErrorKind::Unexpected, "the report cannot be written as JSON").because(error)
        })?;
        text.push(b'\n');
        Ok(text)
    }
}

/// `2026-01-01T00:00:00.000Z`.
pub(super) fn time_text(at: SystemTime) -> String {
    let mut text = Vec::new();
    write_time(at, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_are_no_numbers_come_back() {
        let written = serde_json::to_string(&[1.5, f32::NAN, f32::INFINITY, f32::NEG_INFINITY].map(Figure)).unwrap();
        assert_eq!(written, r#"[1.5,"NaN","inf","-inf"]"#);
        let read: [Figure; 4] = serde_json::from_str(&written).unwrap();
        assert!(read[1].0.is_nan() && read[0].0 == 1.5 && read[2].0 == f32::INFINITY && read[3].0 < 0.0);
        assert!(serde_json::from_str::<Figure>("\"many\"").is_err());
    }

    #[test]
    fn a_newer_schema_is_refused_by_name() {
        let error = Report::parse(br#"{"schema":2,"new":true}"#).unwrap_err();
        assert_eq!(error.kind().exit_code(), 6);
        assert!(error.message().contains("found incident schema 2, expected at most 1"), "{error}");
    }
}
