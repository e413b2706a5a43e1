//! What an export says about itself in `metadata_props`: names, input size, stride, batch, task.
//!
//! Ultralytics writes every value as Python's `repr`; other tools write JSON. Both are read.

use super::Model;
use super::literal::Literal;
use crate::error::{Error, Result};
use crate::units::{self, SizePx};
use std::collections::BTreeMap;

/// Most class names a model may have.
const MAX_CLASSES: usize = 10_000;

/// The metadata that was understood; `None` where the export is silent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metadata {
    /// Class names, index = class id.
    pub names: Option<Vec<String>>,
    /// `imgsz`: input size in pixels.
    pub input_size: Option<SizePx>,
    /// Largest stride of the network, px.
    pub stride_px: Option<u32>,
    /// Pictures a run.
    pub batch: Option<u32>,
    /// `detect`, `segment`, `pose`, `obb`, `classify`.
    pub task: Option<String>,
    /// Whether the network gives final boxes.
    pub end2end: Option<bool>,
    /// Whether NMS was exported into the graph (`nms` in `args`).
    pub nms: Option<bool>,
    /// Colour channels of the input.
    pub channels: Option<u32>,
    /// Key points of a pose model.
    pub keypoints: Option<KeypointShape>,
    /// The entries above as the file writes them, key → text.
    pub understood: BTreeMap<String, String>,
}

/// Key points of a pose model (`kpt_shape`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeypointShape {
    /// Points an object.
    pub points: u32,
    /// Values a point: 2 for x and y, 3 with visibility.
    pub values: u32,
}

impl Metadata {
    /// Reads the metadata of `model`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] naming the key whose value cannot be read.
    pub fn of(model: &Model) -> Result<Metadata> {
        let entries = model.proto().metadata_props.iter().map(|entry| (entry.key.as_str(), entry.value.as_str()));
        Metadata::from_entries(entries)
    }

    /// Reads metadata from keys and texts.
    ///
    /// # Errors
    /// As [`Metadata::of`].
    pub fn from_entries<'a>(entries: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Metadata> {
        let mut metadata = Metadata::default();
        for (key, text) in entries {
            metadata.entry(key, text).map_err(|error| {
                let shown: String = text.chars().take(80).collect();
                error.at(format!("metadata `{key}` = `{}`", shown.escape_debug())).hint("export the model again")
            })?;
        }
        Ok(metadata)
    }

    fn entry(&mut self, key: &str, text: &str) -> Result<()> {
        match key {
            "names" => self.names = Some(names(&Literal::parse(text)?)?),
            "imgsz" => self.input_size = Some(size(&Literal::parse(text)?)?),
            "stride" => self.stride_px = Some(stride(&Literal::parse(text)?)?),
            "batch" => self.batch = Some(positive(&Literal::parse(text)?)?),
            "channels" => self.channels = Some(positive(&Literal::parse(text)?)?),
            "task" => self.task = Some(text.trim().trim_matches(['\'', '"']).to_owned()),
            "end2end" => self.end2end = flag(&Literal::parse(text)?)?,
            "kpt_shape" => self.keypoints = Some(keypoints(&Literal::parse(text)?)?),
            "args" => {
                // Free text of the exporter: only `nms` is looked for, and a text in another form is no fault.
                if let Ok(Literal::Map(entries)) = Literal::parse(text) {
                    let nms = entries.iter().find(|(key, _)| *key == Literal::Text("nms".to_owned()));
                    self.nms = nms.and_then(|(_, value)| flag(value).ok().flatten());
                }
                return Ok(());
            }
            _ => return Ok(()),
        }
        match self.understood.insert(key.to_owned(), text.to_owned()) {
            Some(earlier) if earlier != text => {
                Err(Error::refused(format!("found two values, `{earlier}` and `{text}`, expected one")))
            }
            _ => Ok(()),
        }
    }
}

/// Class names from a dictionary with the keys 0, 1, 2 … (numbers or texts) or from a list.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] for a missing or repeated id, and for names that are no text.
pub fn names(literal: &Literal) -> Result<Vec<String>> {
    let pairs: Vec<(i64, &Literal)> = match literal {
        Literal::List(values) => (0..).zip(values).collect(),
        Literal::Map(entries) => entries.iter().map(|(key, value)| Ok((id(key)?, value))).collect::<Result<_>>()?,
        _ => return Err(Error::refused("found a single value, expected class names by id")),
    };
    if pairs.is_empty() || pairs.len() > MAX_CLASSES {
        return Err(Error::refused(format!("found {} class names, expected 1 to {MAX_CLASSES}", pairs.len())));
    }
    let by_id: BTreeMap<i64, &Literal> = pairs.iter().copied().collect();
    if by_id.len() != pairs.len() {
        return Err(Error::refused("found a class id twice, expected each once"));
    }
    (0..)
        .zip(by_id)
        .map(|(wanted, (found, name))| {
            if found != wanted {
                return Err(Error::refused(format!(
                    "found class id {found}, expected {wanted}: ids must run from 0 without gaps"
                )));
            }
            match name {
                Literal::Text(name) => Ok(name.clone()),
                Literal::Int(number) => Ok(number.to_string()),
                _ => Err(Error::refused(format!("found no text as name of class {found}"))),
            }
        })
        .collect()
}

fn id(key: &Literal) -> Result<i64> {
    match key {
        Literal::Int(id) => Some(*id),
        Literal::Text(id) => id.trim().parse().ok(),
        _ => None,
    }
    .ok_or_else(|| Error::refused(format!("found class id {key:?}, expected a whole number")))
}

fn positive(literal: &Literal) -> Result<u32> {
    let value = match literal {
        Literal::Int(value) => u32::try_from(*value).ok(),
        Literal::Float(value) if value.fract() == 0.0 && (1.0..65536.0).contains(value) => {
            Some(units::round_px(*value))
        }
        Literal::Text(text) => text.trim().parse().ok(),
        _ => None,
    };
    value.filter(|&value| value > 0).ok_or_else(|| Error::refused("found no positive whole number, expected one"))
}

fn size(literal: &Literal) -> Result<SizePx> {
    match literal {
        Literal::List(values) => match values.as_slice() {
            [side] => positive(side).map(|side| SizePx::new(side, side)),
            [height, width] => Ok(SizePx::new(positive(width)?, positive(height)?)),
            _ => Err(Error::refused(format!("found {} numbers, expected height and width", values.len()))),
        },
        side => positive(side).map(|side| SizePx::new(side, side)),
    }
}

fn stride(literal: &Literal) -> Result<u32> {
    match literal {
        Literal::List(values) => {
            let strides: Vec<u32> = values.iter().map(positive).collect::<Result<_>>()?;
            strides.into_iter().max().ok_or_else(|| Error::refused("found an empty list, expected strides"))
        }
        single => positive(single),
    }
}

fn flag(literal: &Literal) -> Result<Option<bool>> {
    match literal {
        Literal::Bool(value) => Ok(Some(*value)),
        Literal::Int(0) => Ok(Some(false)),
        Literal::Int(1) => Ok(Some(true)),
        Literal::None => Ok(None),
        _ => Err(Error::refused("found neither true nor false")),
    }
}

fn keypoints(literal: &Literal) -> Result<KeypointShape> {
    match literal {
        Literal::List(values) => match values.as_slice() {
            [points, values] => Ok(KeypointShape { points: positive(points)?, values: positive(values)? }),
            _ => Err(Error::refused("found no pair of numbers, expected points and values a point")),
        },
        _ => Err(Error::refused("found no list, expected points and values a point")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &[(&str, &str)]) -> Result<Metadata> {
        Metadata::from_entries(entries.iter().copied())
    }

    #[test]
    fn an_export_of_today_is_understood() {
        let metadata = read(&[
            ("names", "{0: 'open', 1: 'pin-hole'}"),
            ("imgsz", "[384, 640]"),
            ("stride", "32"),
            ("batch", "1"),
            ("task", "detect"),
            ("end2end", "False"),
            ("channels", "3"),
            ("args", "{'data': None, 'nms': True, 'opset': 17}"),
            ("kpt_shape", "[17, 3]"),
            ("date", "2026-01-01"),
        ])
        .unwrap();
        assert_eq!(metadata.names.unwrap(), ["open", "pin-hole"]);
        assert_eq!(metadata.input_size, Some(SizePx::new(640, 384)));
        assert_eq!((metadata.stride_px, metadata.batch, metadata.channels), (Some(32), Some(1), Some(3)));
        assert_eq!((metadata.end2end, metadata.nms), (Some(false), Some(true)));
        assert_eq!(metadata.keypoints, Some(KeypointShape { points: 17, values: 3 }));
        assert!(metadata.understood.contains_key("imgsz") && !metadata.understood.contains_key("date"));
    }

    #[test]
    fn names_as_json_list_and_dictionary_with_quotes() {
        let quoted = read(&[("names", r#"{0: "driver's cab", 1: 'a"b: {1}'}"#)]).unwrap();
        assert_eq!(quoted.names.unwrap(), ["driver's cab", "a\"b: {1}"]);
        assert_eq!(read(&[("names", r#"{"1": "b", "0": "a"}"#)]).unwrap().names.unwrap(), ["a", "b"]);
        assert_eq!(read(&[("names", r#"["a", "b"]"#)]).unwrap().names.unwrap(), ["a", "b"]);
    }

    #[test]
    fn gaps_repeats_and_contradictions_are_refused() {
        for (key, text) in [
            ("names", "{0: 'a', 2: 'c'}"),
            ("names", "{0: 'a', 0: 'b'}"),
            ("names", "{1: 'a'}"),
            ("names", "{}"),
            ("names", "open"),
            ("imgsz", "[0, 640]"),
            ("imgsz", "[1, 2, 3]"),
            ("stride", "[]"),
            ("batch", "-1"),
            ("end2end", "'maybe'"),
        ] {
            let error = read(&[(key, text)]).unwrap_err();
            assert!(error.place().unwrap().contains(key), "{error}");
        }
        assert!(read(&[("batch", "1"), ("batch", "2")]).is_err());
        assert!(read(&[("batch", "1"), ("batch", "1")]).is_ok());
    }
}
