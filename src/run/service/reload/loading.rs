//! A bundle is opened, checked against the running one and loaded on a thread of its own.

use super::{Found, Load, Refusal, Stage};
use crate::bundle::Bundle;
use crate::bundle::manifest::Manifest;
use crate::error::{Error, ErrorKind, Result};
use crate::run::Options;
use crate::run::ready::{Loading, Ready};
use crate::run::service::{Service, short};
use crate::run::source::EngineSource;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

impl Service<'_> {
    pub(super) fn begin_reload(&mut self, place: usize) {
        if let Some(kind) = self.memory.alarm() {
            return self.refuse(None, &Error::usage(format!("the {kind}'s memory is short")));
        }
        let path = self.shelf.places[place].path.clone();
        let running = if place == self.shelf.active { &self.bundle } else { &self.shelf.places[place].bundle };
        let (running, failed) = (Arc::clone(running), self.reloader.failed.clone());
        let open = move |source: &dyn EngineSource| {
            let bundle = source.open(&path).map_err(|error| Refusal { id: None, error })?;
            let id = bundle.id().to_owned();
            if id == running.id() {
                return Ok(None);
            }
            let refusal = |error: Error| Refusal { id: Some(id.clone()), error: error.at(path.display()) };
            if failed.contains(&id) {
                return Err(refusal(Error::refused(format!("bundle {} has failed before", short(&id)))));
            }
            check_compatible(running.manifest(), bundle.manifest()).map_err(refusal)?;
            Ok(Some(Arc::new(bundle)))
        };
        self.load_beside(place, open);
    }

    /// Loads a bundle that is open already, for a place on the shelf.
    pub(in crate::run::service) fn load_for_shelf(&mut self, place: usize, bundle: Arc<Bundle>) {
        self.load_beside(place, move |_| Ok(Some(bundle)));
    }

    /// Loads on a thread of its own while the running engine answers; where both do not fit, leaves it at that.
    pub(super) fn load_beside(
        &mut self,
        place: usize,
        open: impl FnOnce(&dyn EngineSource) -> Result<Option<Arc<Bundle>>, Refusal> + Send + 'static,
    ) {
        let (send, receive) = sync_channel(1);
        let (source, options, device) = (Arc::clone(&self.source), self.options.clone(), self.device);
        let loaded = self.loaded();
        let work = move || {
            let look = || {
                let Some(bundle) = open(&*source)? else { return Ok(Found::Same) };
                if let Some(found) = loaded.look(&*source, &bundle, device)? {
                    return Ok(found);
                }
                match load(&source, &options, device, Arc::clone(&bundle)) {
                    Ok(ready) => Ok(Found::Ready(Box::new(ready))),
                    // The plan was for less than the device had left.
                    Err(error) if error.kind() == ErrorKind::Budget => Ok(Found::InPlace(bundle, error)),
                    Err(error) => Err(Refusal { id: Some(bundle.id().to_owned()), error }),
                }
            };
            // The run has ended when nobody takes it.
            drop(send.send(look()));
        };
        match std::thread::Builder::new().name("reload".into()).spawn(work) {
            Ok(_detached) => self.reloader.stage = Stage::Loading(Load { outcome: receive, place, device }),
            Err(error) => self.refuse(None, &Error::unexpected("the loading thread cannot be started").because(error)),
        }
    }
}

fn load(source: &Arc<dyn EngineSource>, options: &Options, device: usize, bundle: Arc<Bundle>) -> Result<Ready> {
    Loading { source, options, tick: &|| {}, device, before: None, show: None }.ready(bundle)
}

/// Whether a line that runs `running` may go on with `other`: same classes, same input, no older schema.
pub(super) fn check_compatible(running: &Manifest, other: &Manifest) -> Result<()> {
    let refused = |what: &str, found: String, expected: String| {
        Err(Error::refused(format!("{what}: found {found}, expected {expected} as in the running bundle"))
            .hint("stop the line and start it with the other bundle when that is what you want"))
    };
    if running.classes != other.classes {
        return refused(
            "classes",
            format!("[{}]", other.classes.join(", ")),
            format!("[{}]", running.classes.join(", ")),
        );
    }
    if running.input.size != other.input.size || running.input.channels != other.input.channels {
        let text = |manifest: &Manifest| format!("{} with {} channels", manifest.input.size, manifest.input.channels);
        return refused("input", text(other), text(running));
    }
    if other.schema < running.schema {
        return refused("schema", other.schema.to_string(), format!("{} or newer", running.schema));
    }
    Ok(())
}
