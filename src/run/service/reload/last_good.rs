//! The last bundle that worked: kept in the state folder, found again at the next start.

use super::loading::check_compatible;
use crate::aside::AsideFile;
use crate::bundle::Bundle;
use crate::error::Result;
use crate::run::service::Service;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The copy of the last bundle that worked, in the state folder; with products, one a bundle file: `last_good.ID.edge`.
const LAST_GOOD: &str = "last_good.edge";

impl Service<'_> {
    fn last_good_file(&self, place: usize) -> Option<PathBuf> {
        let path = &self.shelf.places[place].path;
        let product = self.options.service.products.list.iter().find(|product| product.bundle == *path);
        let name = product.map_or_else(|| LAST_GOOD.to_owned(), |product| format!("last_good.{}.edge", product.id));
        Some(self.options.service.state.as_ref()?.join(name))
    }

    /// The last good bundles of an earlier run, as far as they fit.
    pub(in crate::run::service) fn find_last_good(&mut self) {
        for place in 0..self.shelf.places.len() {
            let Some(path) = self.last_good_file(place).filter(|path| path.is_file()) else { continue };
            let running = Arc::clone(&self.shelf.places[place].bundle);
            match self.source.open(&path) {
                Ok(bundle) if bundle.id() == running.id() => {}
                Ok(bundle) => match check_compatible(running.manifest(), bundle.manifest()) {
                    Ok(()) if place == self.shelf.active => self.set_last_good(Some(Arc::new(bundle))),
                    Ok(()) => self.shelf.places[place].last_good = Some(Arc::new(bundle)),
                    Err(error) => log::info!("the last good bundle does not fit any more: {}", error.message()),
                },
                Err(error) => log::warn!("the last good bundle cannot be used: {error}"),
            }
        }
    }

    pub(in crate::run::service) fn set_last_good(&mut self, bundle: Option<Arc<Bundle>>) {
        self.last_good = bundle;
        self.ladder.resources(self.last_good.is_some(), self.source.devices().saturating_sub(1));
    }

    pub(in crate::run::service) fn keep_copy(&self, bundle: &Arc<Bundle>, place: usize) {
        let Some(path) = self.last_good_file(place) else { return };
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
