//! The bytes of an engine file that somebody else made: an optional header of Ultralytics, then TensorRT's plan.
//!
//! Nobody vouches for the file: every length is checked against what is there before it is used.

use crate::error::{Error, Result};
use crate::ffi::tensorrt::version::Version;
use crate::onnx::metadata::Metadata;

/// Longest header that is read.
const MOST_HEADER_BYTES: usize = 1 << 20;
/// How every plan begins.
const MAGIC: &[u8] = b"ftrt";
/// Where a plan keeps the version of TensorRT that wrote it: major, minor, patch, build, a byte each (seen in plans of 8.6.1 and
/// TensorRT-RTX 1.7.1; the same bytes that `trtexec --getPlanVersionOnly` prints).
const VERSION_AT: usize = 24;

/// An engine file, taken apart.
#[derive(Debug)]
pub(super) struct EngineFile<'a> {
    /// What the header says; empty for a plain plan.
    pub(super) metadata: Metadata,
    /// Whether there was a header.
    pub(super) has_header: bool,
    /// TensorRT that wrote the plan.
    pub(super) version: Version,
    /// The plan.
    pub(super) plan: &'a [u8],
}

/// Takes a file apart: a plan, or 4 bytes of length (little-endian), that many bytes of JSON, and a plan.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] with what was found in place of either.
pub(super) fn parse(file: &[u8]) -> Result<EngineFile<'_>> {
    if file.starts_with(MAGIC) {
        return Ok(EngineFile {
            metadata: Metadata::default(),
            has_header: false,
            version: version(file)?,
            plan: file,
        });
    }
    let header = header(file)?;
    let (json, plan) = header;
    if !plan.starts_with(MAGIC) {
        return Err(foreign("found a header with metadata and no TensorRT plan behind it"));
    }
    Ok(EngineFile { metadata: metadata(json)?, has_header: true, version: version(plan)?, plan })
}

fn header(file: &[u8]) -> Result<(&[u8], &[u8])> {
    let no_plan = || foreign("found neither a TensorRT plan nor an engine file of Ultralytics");
    let (length, rest) = file.split_first_chunk::<4>().ok_or_else(no_plan)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| no_plan())?;
    if rest.first() != Some(&b'{') {
        return Err(no_plan());
    }
    if length > MOST_HEADER_BYTES || length > rest.len() {
        return Err(foreign(&format!(
            "found a header of {length} bytes, expected at most {} in this file",
            rest.len().min(MOST_HEADER_BYTES)
        )));
    }
    rest.split_at_checked(length).ok_or_else(no_plan)
}

fn foreign(message: &str) -> Error {
    Error::refused(message).hint("give a plan (`*.plan`, `*.engine`) that trtexec or Ultralytics wrote; for an ONNX model: `edge-build MODEL.onnx`")
}

fn version(plan: &[u8]) -> Result<Version> {
    match plan.get(VERSION_AT..VERSION_AT + 3) {
        Some(&[major, minor, patch]) if major > 0 => {
            Ok(Version { major: major.into(), minor: minor.into(), patch: patch.into() })
        }
        Some(&[major, minor, patch]) => {
            Err(foreign(&format!("found a plan of version {major}.{minor}.{patch}, expected one of TensorRT")))
        }
        _ => Err(foreign(&format!("found a plan of {} bytes, which is cut off", plan.len()))),
    }
}

fn metadata(json: &[u8]) -> Result<Metadata> {
    let entries: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(json).map_err(|error| {
        Error::refused("the header of the engine file is no JSON object").because(error).hint("export the engine again")
    })?;
    let texts: Vec<(String, String)> = entries
        .into_iter()
        .map(|(key, value)| match value {
            serde_json::Value::String(text) => (key, text),
            other => (key, other.to_string()),
        })
        .collect();
    Metadata::from_entries(texts.iter().map(|(key, text)| (key.as_str(), text.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::SizePx;
    use proptest::prelude::*;

    const JSON: &str = r#"{"task": "detect", "batch": 2, "imgsz": [640, 320], "stride": 32, "names": {"0": "open", "1": "driver's \"cab\""}, "args": {"nms": false}}"#;

    fn plan() -> Vec<u8> {
        let mut plan = vec![0; 64];
        plan[..4].copy_from_slice(b"ftrt");
        plan[24..28].copy_from_slice(&[8, 6, 1, 6]);
        plan
    }

    fn with_header(json: &str) -> Vec<u8> {
        let length = u32::try_from(json.len()).unwrap().to_le_bytes();
        [&length[..], json.as_bytes(), &plan()].concat()
    }

    #[test]
    fn plain_plans_and_files_of_ultralytics_are_taken_apart() {
        let plain = plan();
        let found = parse(&plain).unwrap();
        assert_eq!((found.has_header, found.version.to_string().as_str(), found.plan.len()), (false, "8.6.1", 64));
        let file = with_header(JSON);
        let found = parse(&file).unwrap();
        assert!(found.has_header && found.plan == plan());
        assert_eq!(found.metadata.names.unwrap(), ["open", "driver's \"cab\""]);
        assert_eq!(found.metadata.input_size, Some(SizePx::new(320, 640)));
        assert_eq!((found.metadata.batch, found.metadata.nms), (Some(2), Some(false)));
    }

    #[test]
    fn everything_else_is_refused_in_words() {
        let long = [&u32::MAX.to_le_bytes()[..], b"{}", &plan()].concat();
        let mut no_version = plan();
        no_version[24] = 0;
        for (file, words) in [
            (vec![], "neither a TensorRT plan"),
            (b"PK\x03\x04zip".to_vec(), "neither a TensorRT plan"),
            (long, "header of 4294967295 bytes"),
            (with_header("{}")[..6].to_vec(), "no TensorRT plan behind"),
            (with_header("{\"names\": "), "no JSON object"),
            (with_header("{\"names\": {\"0\": \"a\", \"2\": \"b\"}}"), "class id 2"),
            (with_header(&format!("{{{}1{}}}", "\"a\":{".repeat(5000), "}".repeat(5000))), "no JSON object"),
            (plan()[..20].to_vec(), "cut off"),
            (no_version, "version 0.6.1"),
        ] {
            let error = parse(&file).unwrap_err();
            assert!(error.to_string().contains(words), "{words}: {error}");
            assert!(error.hint_text().is_some(), "{error}");
        }
    }

    #[test]
    fn every_truncation_is_an_answer() {
        let file = with_header(JSON);
        for length in 0..file.len() {
            let _ = parse(&file[..length]);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_answer(length in any::<u32>(), bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            let _ = parse(&[&length.to_le_bytes()[..], b"{", &bytes].concat());
            let _ = parse(&[b"ftrt", &bytes[..]].concat());
        }
    }
}
