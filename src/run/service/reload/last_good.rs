//! The last bundle that worked: kept in the state folder, found again at the next start.

use super::loading::check_compatible;
use crate::aside::AsideFile;
use crate::bundle::Bundle;
use crate::error::Result;
use crate::run::service::Service;
use std::path::Path;
use std::sync::Arc;

/// The copy of the last bundle that worked, in the state folder.
const LAST_GOOD: &str = "last_good.edge";

impl Service<'_> {
    /// The last good bundle of an earlier run, when there is one that fits.
    pub(in crate::run::service) fn find_last_good(&mut self) {
        let Some(path) = self.options.service.state.as_ref().map(|state| state.join(LAST_GOOD)) else { return };
        if !path.is_file() {
            return;
        }
        match self.source.open(&path) {
            Ok(bundle) if bundle.id() == self.bundle.id() => {}
            Ok(bundle) => match check_compatible(self.bundle.manifest(), bundle.manifest()) {
                Ok(()) => self.set_last_good(Some(Arc::new(bundle))),
                Err(error) => log::info!("the last good bundle does not fit any more: {}", error.message()),
            },
            Err(error) => log::warn!("the last good bundle cannot be used: {error}"),
        }
    }

    pub(in crate::run::service) fn set_last_good(&mut self, bundle: Option<Arc<Bundle>>) {
        self.last_good = bundle;
        self.ladder.resources(self.last_good.is_some(), self.source.devices().saturating_sub(1));
    }

    pub(super) fn keep_copy(&self, bundle: &Arc<Bundle>) {
        let Some(path) = self.options.service.state.as_ref().map(|state| state.join(LAST_GOOD)) else { return };
        let bundle = Arc::clone(bundle);
        let copy = move || {
            if let Err(error) = copy_to(&bundle, &path) {
                log::warn!("the last good bundle cannot be kept: {error}");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("keep bundle".into()).spawn(copy) {
            log::warn!("the last good bundle cannot be kept: {error}");
        }
    }
}

fn copy_to(bundle: &Bundle, path: &Path) -> Result<()> {
    let mut copy = AsideFile::create(path)?;
    let failed = |error| crate::aside::cannot_write(path, error);
    // The open file is the one that was hashed; the path may hold another one by now.
    let length = bundle.file().metadata().map_err(failed)?.len();
    let mut reader = PositionedReader { file: bundle.file(), at: 0, end: length };
    std::io::copy(&mut reader, &mut copy).map_err(failed)?;
    copy.commit()
}

/// Reads without moving the position that others share.
struct PositionedReader<'a> {
    file: &'a std::fs::File,
    at: u64,
    end: u64,
}

impl std::io::Read for PositionedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        use std::os::unix::fs::FileExt;
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.file.read_at(&mut buffer[..left], self.at)?;
        self.at += crate::units::count(read);
        Ok(read)
    }
}
