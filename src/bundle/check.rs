//! What a manifest must fulfil before anything is allocated or compared by it.

use super::archive::Archive;
use super::hash::RunningHash;
use super::manifest::{Manifest, SCHEMA, Source};
use super::write::is_hashed;
use super::{GOLDEN_ANSWERS, MANIFEST, MODEL};
use crate::error::{Error, Result};
use crate::units::count;

/// Reads `manifest.json`; a newer schema is refused before its fields are looked at.
pub(crate) fn parse(bytes: &[u8]) -> Result<Manifest> {
    #[derive(serde::Deserialize)]
    struct Version {
        schema: u64,
    }
    let broken = |error: serde_json::Error| Error::refused("the manifest cannot be understood").because(error);
    let version: Version = serde_json::from_slice(bytes).map_err(broken)?;
    if version.schema > u64::from(SCHEMA) {
        return Err(Error::refused(format!("found manifest schema {}, expected at most {SCHEMA}", version.schema))
            .hint("this bundle was written by a newer edge-build; update this program"));
    }
    let manifest: Manifest = serde_json::from_slice(bytes).map_err(broken)?;
    check_fields(&manifest)?;
    Ok(manifest)
}

fn check_fields(manifest: &Manifest) -> Result<()> {
    let wrong = |field: &str, message: String| Err(Error::refused(message).at(format!("manifest field `{field}`")));
    let unit = |value: f32| (0.0..=1.0).contains(&value);
    let input = &manifest.input;
    let side = 1..=16_384;
    if !side.contains(&input.size.width_px) || !side.contains(&input.size.height_px) {
        return wrong("input.size", format!("found {}, expected 1 to 16384 pixels a side", input.size));
    }
    if !(1..=1024).contains(&input.batch) || !matches!(input.channels, 1 | 3) {
        return wrong(
            "input",
            format!("found batch {} and {} channels, expected 1 to 1024 and 1 or 3", input.batch, input.channels),
        );
    }
    let named = count(manifest.classes.len());
    if named != u64::from(manifest.layout.classes()) {
        return wrong(
            "classes",
            format!("found {named} names, expected {} as the layout says", manifest.layout.classes()),
        );
    }
    if manifest.layout.capacity() > 1 << 24 {
        return wrong("layout", format!("found {} rows, expected at most 16777216", manifest.layout.capacity()));
    }
    let thresholds = &manifest.thresholds;
    let scores = thresholds.score_by_class.values().copied().chain([thresholds.score, thresholds.iou]);
    if let Some(value) = scores.into_iter().find(|&value| !unit(value)) {
        return wrong("thresholds", format!("found {value}, expected 0 to 1"));
    }
    if let Some(class) = thresholds.score_by_class.keys().find(|class| !manifest.classes.contains(class)) {
        return wrong("thresholds.score_by_class", format!("found class `{class}`, which the model does not have"));
    }
    let golden = &manifest.golden;
    if !unit(golden.score_floor) || !unit(golden.tolerance_score) || !(0.0..=1e4).contains(&golden.tolerance_px) {
        return wrong("golden", "found a floor or tolerance out of range, expected 0 to 1 (pixels: 0 to 10000)".into());
    }
    if golden.frames.is_empty() {
        return wrong("golden.frames", "found no known answers, expected at least one frame".into());
    }
    let stray = |name: &&String| !name.starts_with("golden/") || !manifest.files.contains_key(*name);
    if let Some(name) = golden.frames.iter().find(stray) {
        return wrong("golden.frames", format!("found `{name}`, which is not in the bundle"));
    }
    Ok(())
}

/// Compares the entries of the file with the manifest: same names, lengths and hashes.
pub(super) fn check_files(archive: &Archive, manifest: &Manifest) -> Result<()> {
    let wrapped = manifest.source.opset == Source::NO_MODEL;
    for name in [MODEL, GOLDEN_ANSWERS].into_iter().filter(|&name| !(wrapped && name == MODEL)) {
        if !manifest.files.contains_key(name) {
            return Err(Error::refused(format!("found no `{name}`, expected one")).at(archive.place(MANIFEST)));
        }
    }
    for name in archive.entries().keys().filter(|name| is_hashed(name)) {
        if !manifest.files.contains_key(name) {
            return Err(Error::refused("the manifest does not know this entry").at(archive.place(name)));
        }
    }
    for (name, expected) in &manifest.files {
        let Some(&range) = archive.entries().get(name) else {
            return Err(Error::refused("the entry is missing, the manifest names it").at(archive.place(name)));
        };
        if range.length_bytes != expected.bytes {
            return Err(Error::refused(format!("found {} bytes, expected {}", range.length_bytes, expected.bytes))
                .at(archive.place(name)));
        }
        let mut running = RunningHash::default();
        archive.stream(name, range, |part| running.update(part))?;
        compare_hash(&running.finish(), &expected.sha256).map_err(|error| error.at(archive.place(name)))?;
    }
    Ok(())
}

/// An error of kind `Refused` unless both hashes are equal.
pub(super) fn compare_hash(found: &str, expected: &str) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::refused(format!("found SHA-256 {found}, expected {expected}"))
        .hint("the file was damaged or changed; copy it again, or build it again with `edge-build MODEL.onnx`"))
}
