//! `incident.zip`: one file with everything that is needed to run an incident again on any machine.

use super::recording::Recording;
use super::report::{BUNDLE, FRAMES, MANIFEST, REPORT};
use crate::aside::{AsideFile, cannot_write};
use crate::bundle::{Bundle, Packer};
use crate::error::{Error, Result};
use std::io::BufWriter;
use std::path::Path;

/// Packs `recording` into `target`, aside and then renamed, with the bundle at `bundle` when one is given. Entries are
/// stored: pictures are packed already, and a reader needs no limit against bombs.
///
/// # Errors
/// [`crate::ErrorKind::Output`] when it cannot be written; [`crate::ErrorKind::Refused`] when the bundle is not the one that
/// answered; [`crate::ErrorKind::Source`] when the incident cannot be read.
pub fn export(recording: &Recording, target: &Path, bundle: Option<&Path>) -> Result<()> {
    let bundle = bundle.map(|path| the_bundle(recording, path)).transpose()?;
    let fail = |error| cannot_write(target, error);
    let mut packer = Packer::new(BufWriter::with_capacity(1 << 20, AsideFile::create(target)?), 1);
    packer.add(REPORT, &recording.report().to_json()?).map_err(fail)?;
    packer.add(MANIFEST, recording.manifest_bytes()).map_err(fail)?;
    let mut lines = Vec::new();
    for frame in recording.frames() {
        serde_json::to_writer(&mut lines, frame)
            .map_err(|error| Error::unexpected("a frame cannot be written as JSON").because(error))?;
        lines.push(b'\n');
    }
    packer.add(FRAMES, &lines).map_err(fail)?;
    if let Some(bytes) = bundle {
        packer.add(BUNDLE, &bytes).map_err(fail)?;
    }
    for picture in recording.frames().iter().filter_map(|frame| frame.picture.as_ref()) {
        packer.add(&picture.entry, &recording.picture_bytes(&picture.entry)?).map_err(fail)?;
    }
    let buffered = packer.finish().map_err(fail)?;
    buffered.into_inner().map_err(|error| fail(error.into_error()))?.commit()
}

fn the_bundle(recording: &Recording, path: &Path) -> Result<Vec<u8>> {
    let bundle = Bundle::open(path)?;
    let wanted = &recording.report().engine.sha256;
    if bundle.id() != wanted {
        return Err(Error::refused(format!(
            "found bundle {}, expected {} that answered in this incident",
            super::replay::short(bundle.id()),
            super::replay::short(wanted)
        ))
        .at(path.display())
        .hint("name the file that holds that bundle: `--bundle FILE`"));
    }
    std::fs::read(path).map_err(|error| Error::refused("the bundle cannot be read").because(error).at(path.display()))
}
