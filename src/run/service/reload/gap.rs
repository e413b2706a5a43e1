//! Where two engines do not fit: the line stands still while the new bundle is loaded in place of the running one. The
//! bundle before is kept, and comes back when the new one does not prove itself or faults soon afterwards.

use super::{Settled, Stage};
use crate::bundle::Bundle;
use crate::error::{Error, Result};
use crate::guard::ladder::Step;
use crate::run::inspector::Inspector;
use crate::run::service::{Service, short};
use crate::sinks::http::Phase;
use crate::telemetry::Metric;
use crate::units::milliseconds;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A bundle that waits for a moment without parts.
pub(super) struct Gap {
    bundle: Arc<Bundle>,
    /// Only waits for the batches in flight.
    pub(super) holds: bool,
}

impl Service<'_> {
    /// There is room for `bundle` only in place of the running one.
    pub(super) fn begin_gap(&mut self, place: usize, bundle: Arc<Bundle>, why: &Error) {
        if let Some(until) = self.reloader.probation_until() {
            // The engine that takes the room goes by itself.
            log::info!("reload: bundle {} waits for the end of the probation", short(bundle.id()));
            self.reloader.waiting.push_front(place);
            self.reloader.paused_until = Some(until);
            return;
        }
        // A person who asks for the bundle before takes the gap along.
        let may_stand_still = self.options.service.reload.gap || self.rolling_back;
        if place != self.shelf.active || !may_stand_still {
            let error = Self::no_room(why);
            return self.refuse(None, &error);
        }
        log::warn!(
            "reload: the line will stand still while bundle {} is loaded, without a shadow: {}",
            short(bundle.id()),
            why.message()
        );
        self.reloader.stage = Stage::Gap(Box::new(Gap { bundle, holds: false }));
    }

    pub(super) fn look_at_gap(&mut self, inspector: &mut Inspector, mut gap: Box<Gap>) -> Result<()> {
        // A part is answered by the engine that was there when it came.
        let may_begin = self.clerk.open_parts() == 0;
        gap.holds = may_begin && inspector.in_flight() > 0;
        if may_begin && !gap.holds {
            return self.reload_with_gap(inspector, gap.bundle);
        }
        self.reloader.stage = Stage::Gap(gap);
        Ok(())
    }

    fn reload_with_gap(&mut self, inspector: &mut Inspector, bundle: Arc<Bundle>) -> Result<()> {
        let (old, id) = (Arc::clone(&self.bundle), bundle.id().to_owned());
        let rolling_back = std::mem::take(&mut self.rolling_back);
        let stands = self.prove_before_parting(inspector);
        self.board.set_phase(Phase::Reloading);
        self.board.change_reload(|reload| reload.state = crate::sinks::http::ReloadState::Gap);
        let since = Instant::now();
        self.recorder.event("reload", &format!("the line stands still while bundle {} is loaded", short(&id)));
        // Before anything is given up: whatever happens to this process, the next one finds what worked.
        if stands && !rolling_back {
            self.keep_copy(&old, self.shelf.active);
        }
        match self.rebuild(inspector, bundle) {
            Ok(()) => {
                self.board.set_phase(Phase::Ready);
                let gap = self.note_gap(since);
                if rolling_back {
                    self.reloader.remember_failed(Some(old.id().to_owned()));
                    self.set_last_good(None);
                    self.settle(Settled::RolledBack("asked for by hand".into()));
                } else {
                    let until = Instant::now() + self.options.service.reload.probation;
                    self.reloader.way_back = stands.then(|| (Arc::clone(&old), until));
                    self.set_last_good(stands.then_some(old));
                    self.settle(Settled::SwappedWithGap { id, gap });
                }
                Ok(())
            }
            Err(error) => self.take_back(inspector, old, &id, (&error, since)),
        }
    }

    /// The new bundle does not work: the one before is loaded again, and must give the same known answers as before.
    fn take_back(
        &mut self,
        inspector: &mut Inspector,
        old: Arc<Bundle>,
        id: &str,
        (error, since): (&Error, Instant),
    ) -> Result<()> {
        log::error!("bundle {} does not work, the one before is loaded again: {}", short(id), error.message());
        self.reloader.remember_failed(Some(id.to_owned()));
        let again = self.rebuild(inspector, old);
        let gap = self.note_gap(since);
        let why = error.to_string().replace('\n', " ");
        self.settle(Settled::Refused(format!("{why}; nobody answered for {:.1} s", gap.as_secs_f64())));
        match again {
            Ok(()) => {
                self.proved();
                self.board.set_phase(Phase::Ready);
                Ok(())
            }
            Err(error) => {
                let alarm = self.alarm_of(&error);
                self.failed(error.message());
                self.heal(inspector, alarm)
            }
        }
    }

    fn note_gap(&self, since: Instant) -> Duration {
        let gap = since.elapsed();
        self.telemetry.histogram(Metric::ReloadGap, self.labels()).observe_ms(milliseconds(gap));
        gap
    }

    /// A fault soon after a swap with a gap: the bundle before is loaded again. Whether it answers.
    pub(super) fn load_the_one_before(&mut self, inspector: &mut Inspector, why: &str) -> bool {
        let Some((bundle, _)) = self.reloader.way_back.take() else { return false };
        let bad = self.bundle.id().to_owned();
        log::error!("bundle {} has a fault during its probation: the one before is loaded again", short(&bad));
        self.parts_unproved(why);
        let since = Instant::now();
        self.reloader.remember_failed(Some(bad));
        self.set_last_good(None);
        if let Err(error) = self.rebuild(inspector, bundle) {
            log::error!("the bundle before does not work any more: {}", error.message());
            return false;
        }
        self.note_gap(since);
        self.proved();
        self.board.set_phase(Phase::Ready);
        self.telemetry.count(Metric::RecoverySteps, self.labels().because(Step::LastGoodBundle.name()));
        self.settle(Settled::RolledBack(why.to_owned()));
        true
    }
}
