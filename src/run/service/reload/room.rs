//! Whether there is room for two engines: asked before anything is loaded, and said at the start.

use super::{Found, Refusal};
use crate::bundle::Bundle;
use crate::error::Error;
use crate::run::budget::{self, Books, Claim, Room};
use crate::run::service::Service;
use crate::run::source::EngineSource;
use crate::sinks::http::ReloadRoom;
use crate::telemetry::Metric;
use crate::units::{Bytes, float64};
use std::sync::Arc;

/// What is loaded on the device, as far as it is known beforehand.
pub(super) struct Loaded {
    /// `None` where it is not known.
    running: Option<Claim>,
    /// What this bundle has beside it.
    own: Vec<Claim>,
    engine: usize,
    books: Arc<Books>,
}

impl Loaded {
    fn bytes(&self, device: usize) -> Bytes {
        let others = self.books.others(self.engine, device);
        Bytes(self.running.iter().chain(&self.own).chain(&others).map(|claim| claim.bytes.0).sum())
    }

    /// What speaks against loading `bundle` beside all of this; `None` when nothing does, and the room is taken then.
    pub(super) fn look(
        &self,
        source: &dyn EngineSource,
        bundle: &Arc<Bundle>,
        device: usize,
    ) -> Result<Option<Found>, Refusal> {
        let (Some(running), Some(new)) = (&self.running, claim(source, bundle, device)) else { return Ok(None) };
        let Some(budget) = source.budget_beside(bundle, device, self.bytes(device)) else { return Ok(None) };
        match self.books.reserve((self.engine, device), (running, &self.own), &new, budget) {
            Room::Beside => Ok(None),
            Room::InPlace(error) => Ok(Some(Found::InPlace(Arc::clone(bundle), error))),
            // Not one that has failed: with another budget it may be tried again.
            Room::None(error) => Err(Refusal { id: None, error }),
        }
    }
}

fn claim(source: &dyn EngineSource, bundle: &Bundle, device: usize) -> Option<Claim> {
    Some(Claim { name: bundle.manifest().name.clone(), bytes: source.claim(bundle, device)? })
}

impl Service<'_> {
    /// What this bundle's engines take: those on the shelf and the one on probation too. The running one first.
    fn own_claims(&self) -> Vec<Claim> {
        let shelf = self.shelf.places.iter().enumerate();
        let shelved = shelf.filter(|(place, entry)| *place != self.shelf.active && entry.engine.is_some());
        let before = self.reloader.before.as_ref().map(|before| before.bundle());
        let bundles = [&self.bundle].into_iter().chain(shelved.map(|(_, entry)| &entry.bundle)).chain(before);
        bundles.filter_map(|bundle| claim(&*self.source, bundle, self.device)).collect()
    }

    pub(super) fn loaded(&self) -> Loaded {
        let mut own = self.own_claims().into_iter();
        let running = own.next();
        Loaded { running, own: own.collect(), engine: self.engine, books: Arc::clone(&self.books) }
    }

    /// Writes down what the engines of this bundle take, with `new` when one is loaded beside them.
    pub(in crate::run::service) fn keep_books(&self, new: Option<&Bundle>) {
        let mut claims = self.own_claims();
        claims.extend(new.and_then(|bundle| claim(&*self.source, bundle, self.device)));
        self.books.set(self.engine, self.device, claims);
    }

    /// Whether another bundle of the running one's size would fit beside it, for pages and metrics; and for people, when it
    /// would not.
    pub(in crate::run) fn say_room(&self) -> Option<String> {
        let loaded = self.loaded();
        let running = loaded.running.as_ref()?;
        let taken = loaded.bytes(self.device);
        let budget = self.source.budget_beside(&self.bundle, self.device, taken)?;
        let left = Bytes(budget.0.saturating_sub(taken.0));
        let others = [loaded.own.clone(), self.books.others(self.engine, self.device)].concat();
        self.telemetry.gauge(Metric::ReloadRoom, self.labels()).set(float64(left.0));
        let (room, what) = match budget::beside(running, &others, running, budget) {
            Room::Beside => (ReloadRoom::Beside, None),
            Room::InPlace(_) if self.options.service.reload.gap => {
                let what = "the line stands still while another bundle is loaded in its place";
                (ReloadRoom::Gap, Some(what))
            }
            Room::InPlace(_) | Room::None(_) => {
                let what = "another bundle of this size is refused; `--reload-gap` lets the line stand still for it";
                (ReloadRoom::Refused, Some(what))
            }
        };
        let name = &running.name;
        let said = what.map(|what| {
            format!("reload: `{name}` takes {}, beside it {left} of {budget} are left: {what}", running.bytes)
        });
        self.board.change_reload(|reload| {
            reload.room = Some(room);
            reload.said.clone_from(&said);
        });
        said
    }

    /// Why a bundle is not taken that has room only in place of the running one.
    pub(super) fn no_room(why: &Error) -> Error {
        Error::new(why.kind(), format!("there is no room for both: {}", why.message())).hint(
            "`--reload-gap` lets the line stand still while it is loaded, parts are not_inspected meanwhile; or raise the budget",
        )
    }
}
