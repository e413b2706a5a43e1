//! Changeover: another product's engine comes from the shelf, is put in between two frames with no part pending, and must
//! give its known answers before a frame is inspected again. Frames meanwhile are `not_inspected`.

use super::reload::Settled;
use super::{Service, short};
use crate::error::{Error, ErrorKind, Result};
use crate::frame::PartTag;
use crate::guard::Reason;
use crate::run::depot::{Batch, Sight, Work};
use crate::run::inspector::Inspector;
use crate::run::product::{self, Kept, Shelved};
use crate::run::ready::{Loading, Ready};
use crate::sinks::http::{Changed, Phase, ProductPlace};
use crate::telemetry::{Labels, Metric};
use crate::units::milliseconds;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The state folder is looked at no more often.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// An engine that could not be loaded for the shelf is tried again after this.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Where changing over stands.
pub(super) struct Changeover {
    /// The product that is inspected, or will be; `None` without products.
    pub(super) product: Option<usize>,
    changing: Option<Changing>,
    /// Only waits for the batches in flight.
    pub(super) holds: bool,
    /// Frames that arrived earlier are set aside.
    inspected_from: Option<Instant>,
    looked: Instant,
    /// When an engine is next loaded for the shelf.
    refill_at: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Changing {
    to: usize,
    /// Parts opened before are still the old product's.
    since: Instant,
    /// When the last request came.
    asked: Instant,
}

impl Changeover {
    pub(super) fn new(product: Option<usize>) -> Self {
        let now = Instant::now();
        Changeover { product, changing: None, holds: false, inspected_from: None, looked: now, refill_at: now }
    }
}

impl Service<'_> {
    /// Takes the pictures out of a batch that are not looked at because the line is being changed over.
    pub(in crate::run) fn set_aside(&self, batch: &mut Batch) {
        if self.changeover.changing.is_none() && self.changeover.inspected_from.is_none() {
            return;
        }
        for (_, work) in batch.iter_mut().filter(|(_, work)| self.is_set_aside(work)) {
            work.picture = Sight::SetAside(Reason::Changeover);
        }
    }

    fn is_set_aside(&self, work: &Work) -> bool {
        match &self.changeover.changing {
            Some(changing) => {
                let is_before = |part: &PartTag| self.clerk.was_open_before(&part.id, changing.since);
                !work.part.as_ref().is_some_and(is_before)
            }
            None => self.changeover.inspected_from.is_some_and(|from| work.arrived < from),
        }
    }

    /// One look between two frames. Whether a changeover is under way.
    ///
    /// # Errors
    /// When the new product's engine cannot be had or does not recover.
    pub(super) fn changeover_step(&mut self, inspector: &mut Inspector) -> Result<bool> {
        let products = &self.options.service.products;
        if products.list.is_empty() {
            return Ok(false);
        }
        if let Some((id, asked)) = products.door.take().or_else(|| self.asked_in_state_folder()) {
            match products.place(&id) {
                Ok(to) => self.begin_changeover(to, asked),
                Err(error) => log::error!("changeover refused: {}", error.message()),
            }
        }
        let Some(changing) = self.changeover.changing else { return Ok(false) };
        self.changeover.holds = self.clerk.open_before(changing.since) == 0 && inspector.in_flight() > 0;
        if self.clerk.open_before(changing.since) == 0 && !self.changeover.holds {
            self.change_over(inspector, changing)?;
        }
        Ok(self.changeover.changing.is_some())
    }

    fn asked_in_state_folder(&mut self) -> Option<(Arc<str>, Instant)> {
        let state = self.options.service.state.as_deref()?;
        if self.changeover.looked.elapsed() < LOOK_EVERY {
            return None;
        }
        self.changeover.looked = Instant::now();
        match product::take_request(state) {
            Ok(id) => id.map(|id| (id.into(), Instant::now())),
            Err(error) => {
                log::error!("{error}");
                None
            }
        }
    }

    /// From now on frames are set aside, but for parts that were triggered before.
    fn begin_changeover(&mut self, to: usize, asked: Instant) {
        let id = self.product_id(to);
        let since = self.changeover.changing.map_or_else(Instant::now, |changing| changing.since);
        log::warn!("changeover to product `{id}` was asked for");
        self.changeover.changing = Some(Changing { to, since, asked });
        self.keep_selected(to);
        self.board.change_products(|products| products.wanted = Some(Arc::clone(&id)));
        if Some(to) != self.changeover.product {
            self.board.set_phase(Phase::ChangingOver);
            self.stop_reload();
            self.drop_before();
        }
    }

    fn product_id(&self, place: usize) -> Arc<str> {
        self.options.service.products.list[place].id.as_str().into()
    }

    /// The selection is on the disk before the engine changes: a restart in between inspects the new product.
    pub(super) fn keep_selected(&self, place: usize) {
        let (Some(state), products) = (&self.options.service.state, &self.options.service.products.list) else {
            return;
        };
        let known = products.iter().map(|product| product.id.clone()).collect();
        if let Err(error) = product::write(state, &Kept { product: products[place].id.clone(), known }) {
            log::error!("the selected product cannot be kept, a restart may inspect another one: {error}");
        }
    }

    fn change_over(&mut self, inspector: &mut Inspector, changing: Changing) -> Result<()> {
        let mut trouble = None;
        if Some(changing.to) != self.changeover.product {
            let stands = self.prove_before_parting(inspector);
            if !stands {
                trouble = Some("the old product's engine failed its last self-test".to_owned());
            }
            self.board.set_phase(Phase::ChangingOver);
            self.put_in(inspector, changing.to, stands)?;
            match self.prove_all(inspector) {
                Ok(()) => self.board.set_phase(Phase::Ready),
                Err(error) => {
                    trouble = Some(error.message().to_owned());
                    let alarm = self.alarm_of(&error);
                    self.failed(error.message());
                    self.heal(inspector, alarm)?;
                }
            }
            self.changeover.inspected_from = Some(Instant::now());
        }
        self.changeover.changing = None;
        self.say_changed(changing, trouble);
        Ok(())
    }

    fn say_changed(&mut self, changing: Changing, trouble: Option<String>) {
        let id = self.product_id(changing.to);
        let took_ms = milliseconds(changing.asked.elapsed());
        log::warn!(
            "product `{id}` is inspected now, {took_ms:.0} ms after the request; bundle {}",
            short(self.bundle.id())
        );
        let outcome = if trouble.is_some() { "with_trouble" } else { "changed" };
        self.telemetry.count(Metric::Changeovers, Labels::reason(outcome));
        self.show_products();
        self.board.change_products(|products| {
            products.wanted = None;
            products.changes += 1;
            products.last = Some(Changed { product: id, took_ms, trouble });
        });
    }

    /// Tells the pages what there is.
    pub(super) fn show_products(&self) {
        let known = self.options.service.products.list.iter().filter_map(|product| {
            let place = self.shelf.place_of(&product.bundle)?;
            let bundle = if place == self.shelf.active { &self.bundle } else { &self.shelf.places[place].bundle };
            Some(ProductPlace {
                id: product.id.as_str().into(),
                bundle: bundle.manifest().name.clone(),
                sha256: bundle.id().to_owned(),
            })
        });
        let (known, active) = (known.collect(), self.changeover.product.map(|place| self.product_id(place)));
        self.board.change_products(|products| {
            products.known = known;
            products.active = active;
        });
    }

    /// The engine of product `to` answers from now on; the one before goes on the shelf while it stands.
    fn put_in(&mut self, inspector: &mut Inspector, to: usize, stands: bool) -> Result<()> {
        let path = self.options.service.products.list[to].bundle.clone();
        let place = self.shelf.place_of(&path).ok_or_else(|| Error::unexpected("a product has no place"))?;
        let from = std::mem::replace(&mut self.shelf.active, place);
        self.changeover.product = Some(to);
        if place == from {
            return self.judge_anew(inspector);
        }
        let ready = self.take_from_shelf(place)?;
        let last_good = self.shelf.places[place].last_good.take();
        let (bundle, device) = (Arc::clone(&self.bundle), self.device);
        let (call_limit, proof_cost) = (self.known.call_limit, self.known.cost);
        let (host, prover) = self.install(inspector, ready)?;
        let old = &mut self.shelf.places[from];
        old.bundle = bundle;
        old.last_good = std::mem::replace(&mut self.last_good, last_good);
        let engine = Shelved { host, prover, call_limit, device, proof_cost };
        if stands {
            old.engine = Some(engine);
        } else {
            engine.close_aside();
        }
        self.known.device = self.device;
        if old.bundle.id() == self.bundle.id() {
            // The same bundle under another name: what is usual is this product's all the same.
            self.judge_anew(inspector)?;
        }
        self.set_last_good(self.last_good.clone());
        Ok(())
    }

    /// A proved engine from the shelf; loaded now when it is not there.
    fn take_from_shelf(&mut self, place: usize) -> Result<Ready> {
        let bundle = Arc::clone(&self.shelf.places[place].bundle);
        match self.shelf.places[place].engine.take() {
            Some(engine) if engine.device == self.device => Ok(engine.ready(bundle)),
            other => {
                other.into_iter().for_each(Shelved::close_aside);
                log::warn!("the engine of bundle {} is not at hand and is loaded now", short(bundle.id()));
                let board = Arc::clone(&self.board);
                let tick = || board.heartbeat();
                let (source, options, device) = (Arc::clone(&self.source), self.options, self.device);
                let loading = Loading { source: &source, options, tick: &tick, device, before: None, show: None };
                loading.ready(bundle).map_err(|error| {
                    Error::new(ErrorKind::GuardGaveUp, "the engine of the product asked for cannot be loaded")
                        .because(error)
                        .hint("the selection is kept: a restart begins with that product")
                })
            }
        }
    }

    /// Loads one engine that is missing on the shelf, beside the running one.
    pub(super) fn refill_shelf(&mut self) {
        if self.shelf.places.len() < 2 || Instant::now() < self.changeover.refill_at || !self.reload_is_idle() {
            return;
        }
        let (active, device) = (self.shelf.active, self.device);
        for (index, place) in self.shelf.places.iter_mut().enumerate().filter(|(index, _)| *index != active) {
            if place.engine.as_ref().is_some_and(|engine| engine.device == device) {
                continue;
            }
            place.engine.take().into_iter().for_each(Shelved::close_aside);
            if self.memory.alarm().is_none() {
                let bundle = Arc::clone(&place.bundle);
                self.changeover.refill_at = Instant::now() + RETRY_AFTER;
                self.load_for_shelf(index, bundle);
            }
            return;
        }
        self.changeover.refill_at = Instant::now() + LOOK_EVERY;
    }

    /// An engine was loaded for a place that is not inspected.
    pub(super) fn shelve(&mut self, place: usize, device: usize, ready: Ready) {
        if let Err(error) = self.shelf.check_products(self.options, place, &ready.bundle) {
            return self.refuse(Some(ready.bundle.id().to_owned()), &error);
        }
        let bundle = Arc::clone(&ready.bundle);
        let entry = &mut self.shelf.places[place];
        entry.engine.replace(Shelved::of(ready, device)).into_iter().for_each(Shelved::close_aside);
        let before = std::mem::replace(&mut entry.bundle, Arc::clone(&bundle));
        self.keep_books(None);
        if before.id() == bundle.id() {
            return;
        }
        self.shelf.places[place].last_good = Some(Arc::clone(&before));
        self.keep_copy(&before, place);
        self.show_products();
        self.settle(Settled::Swapped(bundle.id().to_owned()));
    }
}
