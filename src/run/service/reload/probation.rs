//! Swap, probation and rollback: the old engine stays ready for a while and comes back when the new one faults.

use super::{ROLLBACK_REQUEST, Reloader, Settled, Stage};
use crate::bundle::Bundle;
use crate::bundle::golden::Prover;
use crate::error::{Error, Result};
use crate::guard::ladder::Step;
use crate::run::host::Host;
use crate::run::inspector::Inspector;
use crate::run::ready::Ready;
use crate::run::service::{CLOSE_LIMIT, Service, short};
use crate::sinks::http::Phase;
use crate::telemetry::Metric;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The old engine, ready to come back.
pub(super) struct Before {
    bundle: Arc<Bundle>,
    host: Host,
    prover: Prover,
    call_limit: Duration,
    until: Instant,
}

impl Before {
    pub(super) fn bundle(&self) -> &Arc<Bundle> {
        &self.bundle
    }
}

impl Reloader {
    /// While the engine before stands ready: until when.
    pub(super) fn probation_until(&self) -> Option<Instant> {
        self.before.as_ref().map(|before| before.until)
    }
}

impl Service<'_> {
    /// Between two frames: the new engine answers from now on, the old one stays ready for the time of probation.
    pub(super) fn swap(&mut self, inspector: &mut Inspector, ready: Ready) -> Result<()> {
        let old_bundle = Arc::clone(&self.bundle);
        let rolled_back = std::mem::take(&mut self.rolling_back);
        let id = ready.bundle.id().to_owned();
        self.drop_before();
        let stands = self.prove_before_parting(inspector);
        let old_limit = self.known.call_limit;
        let (host, old_prover) = match self.install(inspector, ready) {
            Ok(before) => before,
            Err(error) => {
                self.refuse(Some(id), &error);
                return Ok(());
            }
        };
        if rolled_back {
            drop(host);
            self.reloader.remember_failed(Some(old_bundle.id().to_owned()));
            self.set_last_good(None);
            self.settle(Settled::RolledBack("asked for by hand".into()));
            return Ok(());
        }
        if stands {
            self.keep_before(Arc::clone(&old_bundle), host, old_prover, old_limit);
        } else {
            // The new engine is proved; the old one is no way back.
            self.board.set_phase(Phase::Ready);
            host.close(CLOSE_LIMIT);
        }
        self.keep_copy(&old_bundle, self.shelf.active);
        self.set_last_good(Some(old_bundle));
        self.settle(Settled::Swapped(id));
        Ok(())
    }

    /// The device has changed: an engine on the old one is no help any more.
    pub(in crate::run::service) fn abandon_reload(&mut self, why: &str) {
        if !matches!(std::mem::replace(&mut self.reloader.stage, Stage::Idle), Stage::Idle) {
            self.refuse(None, &Error::refused(why));
        }
        self.reloader.before = None;
        self.reloader.way_back = None;
    }

    fn keep_before(&mut self, bundle: Arc<Bundle>, host: Host, prover: Prover, call_limit: Duration) {
        let until = Instant::now() + self.options.service.reload.probation;
        self.reloader.before = Some(Before { bundle, host, prover, call_limit, until });
    }

    pub(in crate::run::service) fn drop_before(&mut self) {
        self.reloader.way_back = None;
        if let Some(before) = self.reloader.before.take() {
            before.host.close(CLOSE_LIMIT);
        }
    }

    pub(super) fn end_probation(&mut self) {
        if self.reloader.before.as_ref().is_some_and(|before| Instant::now() >= before.until) {
            log::info!("reload: bundle {} has stood its probation", short(self.bundle.id()));
            self.drop_before();
            self.keep_books(None);
        }
        self.reloader.way_back.take_if(|(_, until)| Instant::now() >= *until);
    }

    /// A fault during probation: the old engine comes back at once, when it still gives the known answers. Whether it did.
    pub(in crate::run::service) fn roll_back_on_fault(&mut self, inspector: &mut Inspector, why: &str) -> Result<bool> {
        if !matches!(std::mem::replace(&mut self.reloader.stage, Stage::Idle), Stage::Idle) {
            self.refuse(None, &Error::refused(format!("the running engine has a fault itself: {why}")));
        }
        let Some(before) = self.reloader.before.take() else { return Ok(self.load_the_one_before(inspector, why)) };
        let bad = self.bundle.id().to_owned();
        log::error!("bundle {} has a fault during its probation: the one before comes back", short(&bad));
        self.parts_unproved(why);
        let ready = Ready::again(before.bundle, before.host, before.prover, before.call_limit);
        let (faulty, _) = self.install(inspector, ready)?;
        faulty.close(CLOSE_LIMIT);
        self.reloader.remember_failed(Some(bad));
        self.set_last_good(None);
        if let Err(error) = self.prove_all(inspector) {
            log::error!("the bundle before does not give its known answers any more: {}", error.message());
            return Ok(false);
        }
        self.board.set_phase(Phase::Ready);
        self.telemetry.count(Metric::RecoverySteps, self.labels().because(Step::LastGoodBundle.name()));
        self.settle(Settled::RolledBack(why.to_owned()));
        Ok(true)
    }

    pub(super) fn rollback_file(&mut self) -> bool {
        let Some(state) = &self.options.service.state else { return false };
        if self.looked_for_rollback.elapsed() < Duration::from_secs(1) {
            return false;
        }
        self.looked_for_rollback = Instant::now();
        std::fs::remove_file(state.join(ROLLBACK_REQUEST)).is_ok()
    }

    pub(super) fn roll_back_by_hand(&mut self, inspector: &mut Inspector) {
        if !matches!(self.reloader.stage, Stage::Idle) {
            self.reloader.stage = Stage::Idle;
        }
        if self.reloader.before.is_some() || self.reloader.way_back.is_some() {
            self.prove_before_parting(inspector);
            match self.roll_back_on_fault(inspector, "asked for by hand") {
                Ok(_) => {}
                Err(error) => self.refuse(None, &error),
            }
            return;
        }
        let Some(bundle) = self.last_good.clone() else {
            return self.refuse(None, &Error::usage("there is no bundle to go back to"));
        };
        self.rolling_back = true;
        self.load_beside(self.shelf.active, move |_| Ok(Some(bundle)));
    }
}
