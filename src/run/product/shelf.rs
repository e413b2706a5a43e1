//! The shelf: engines of products that are not inspected now, proved and ready to be put in.

use crate::bundle::Bundle;
use crate::bundle::golden::Prover;
use crate::detections::Detector;
use crate::error::Result;
use crate::run::budget::{self, Claim};
use crate::run::host::Host;
use crate::run::product::Judging;
use crate::run::ready::{Loading, Ready};
use crate::run::source::EngineSource;
use crate::run::{Options, Say};
use crate::units::Bytes;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an engine that goes away is waited for.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// An engine beside the one that answers.
pub(in crate::run) struct Shelved {
    pub(in crate::run) host: Host,
    pub(in crate::run) prover: Prover,
    pub(in crate::run) call_limit: Duration,
    /// What one golden frame takes.
    pub(in crate::run) proof_cost: Duration,
    /// The device it lives on.
    pub(in crate::run) device: usize,
}

/// One bundle file of the run.
pub(in crate::run) struct Place {
    pub(in crate::run) path: PathBuf,
    /// What was proved last; of the place that is inspected, the service knows.
    pub(in crate::run) bundle: Arc<Bundle>,
    pub(in crate::run) last_good: Option<Arc<Bundle>>,
    /// `None` for the place that is inspected, and for one whose engine has to be loaded again.
    pub(in crate::run) engine: Option<Shelved>,
}

/// Every bundle file of the run; without products there is one place, and it is inspected.
pub(in crate::run) struct Shelf {
    pub(in crate::run) places: Vec<Place>,
    /// The place that is inspected.
    pub(in crate::run) active: usize,
    /// What all engines may take together on any device, where that is known.
    limit: Option<Bytes>,
}

impl Shelf {
    /// Opens every bundle and checks that all fit together. `active` is open already.
    ///
    /// # Errors
    /// Of opening, and [`crate::ErrorKind::Budget`] when they do not fit.
    pub(in crate::run) fn open(options: &Options, source: &dyn EngineSource, active: &Arc<Bundle>) -> Result<Self> {
        let mut places = Vec::new();
        let mut inspected = 0;
        for (index, path) in options.bundle_files().into_iter().enumerate() {
            let bundle = if path == *active.path() {
                inspected = index;
                Arc::clone(active)
            } else {
                Arc::new(source.open(&path)?)
            };
            places.push(Place { path, bundle, last_good: None, engine: None });
        }
        let mut shelf = Shelf { places, active: inspected, limit: None };
        if shelf.places.len() > 1 {
            shelf.limit = budget::smallest(shelf.places.iter().map(|place| &*place.bundle), source);
        }
        shelf.check(source)?;
        for (index, place) in shelf.places.iter().enumerate() {
            shelf.check_products(options, index, &place.bundle)?;
        }
        Ok(shelf)
    }

    /// Whether every product of the place can be judged with `bundle`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for thresholds or a rule that do not fit its classes.
    pub(in crate::run) fn check_products(&self, options: &Options, place: usize, bundle: &Bundle) -> Result<()> {
        let (path, manifest) = (&self.places[place].path, bundle.manifest());
        for (index, product) in options.service.products.list.iter().enumerate() {
            if product.bundle == *path {
                let judging = Judging::of(options, Some(index), manifest)?;
                Detector::new(&judging.thresholds, &manifest.classes)
                    .map_err(|error| error.at(format!("product `{}`", product.id)))?;
            }
        }
        Ok(())
    }

    /// Whether all engines fit together on every device: after a change of device they all stand there.
    fn check(&self, source: &dyn EngineSource) -> Result<()> {
        let Some(limit) = self.limit else { return Ok(()) };
        let claims = self.places.iter().filter_map(|place| {
            let bytes = source.claim(&place.bundle, 0)?;
            Some(Claim { name: place.bundle.manifest().name.clone(), bytes })
        });
        budget::together(&claims.collect::<Vec<_>>(), limit)
    }

    /// Loads and proves every engine but the inspected one, and checks what they really take.
    ///
    /// # Errors
    /// As at the start of any bundle, and [`crate::ErrorKind::Budget`].
    pub(in crate::run) fn fill(
        &mut self,
        options: &Options,
        source: &Arc<dyn EngineSource>,
        device: usize,
        taken: Bytes,
        tick: &dyn Fn(),
        say: Say<'_>,
    ) -> Result<()> {
        let limit = self.limit;
        let mut claims = vec![Claim { name: self.places[self.active].bundle.manifest().name.clone(), bytes: taken }];
        for (index, place) in self.places.iter_mut().enumerate() {
            if index == self.active {
                continue;
            }
            let since = Instant::now();
            let loading = Loading { source, options, tick, device, before: None, show: None };
            let ready = loading.ready(Arc::clone(&place.bundle))?;
            say(&ready.line(since));
            claims.push(Claim { name: place.bundle.manifest().name.clone(), bytes: ready.host.memory().reserved });
            place.engine = Some(Shelved::of(ready, device));
            if let Some(limit) = limit {
                budget::together(&claims, limit)?;
            }
        }
        Ok(())
    }

    /// The place of a bundle file.
    pub(in crate::run) fn place_of(&self, path: &std::path::Path) -> Option<usize> {
        self.places.iter().position(|place| place.path == path)
    }
}

impl Shelved {
    pub(in crate::run) fn of(ready: Ready, device: usize) -> Self {
        let Ready { host, prover, call_limit, proof_cost, .. } = ready;
        Shelved { host, prover, call_limit, proof_cost, device }
    }

    /// To be put in.
    pub(in crate::run) fn ready(self, bundle: Arc<Bundle>) -> Ready {
        let mut ready = Ready::again(bundle, self.host, self.prover, self.call_limit);
        ready.proof_cost = self.proof_cost;
        ready
    }

    /// Frees its memory on a thread of its own: a device that is lost may hold it up.
    pub(in crate::run) fn close_aside(self) {
        let close = move || {
            self.host.close(CLOSE_LIMIT);
        };
        if let Err(error) = std::thread::Builder::new().name("close engine".into()).spawn(close) {
            log::warn!("an engine is left behind: {error}");
        }
    }
}
