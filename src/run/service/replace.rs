//! Another engine, or another way to judge, in place of the one before: between two frames, with all that goes by it.

use super::Service;
use crate::bundle::Bundle;
use crate::bundle::golden::Prover;
use crate::decision::Rule;
use crate::error::Result;
use crate::run::host::Host;
use crate::run::inspector::{Inspector, Installed};
use crate::run::product::Judging;
use crate::run::ready::{Loading, Ready};
use crate::run::source::EngineSource;
use crate::sinks::row::EngineStamp;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How long a step waits for the old engine's memory.
pub(super) const CLOSE_LIMIT: Duration = Duration::from_secs(10);

impl Service<'_> {
    /// Gives the engine up, frees its memory, and brings up one from `bundle`. Frames wait meanwhile; parts are answered by
    /// their deadlines.
    pub(super) fn rebuild(&mut self, inspector: &mut Inspector, bundle: Arc<Bundle>) -> Result<()> {
        inspector.give_up_engine(CLOSE_LIMIT);
        let board = Arc::clone(&self.board);
        let (options, source, device) = (self.options, Arc::clone(&self.source), self.device);
        let same = bundle.id() == self.bundle.id() && device == self.known.device;
        let before = same.then_some(&self.known.prover);
        let tick = || board.heartbeat();
        let loading = Loading { source: &source, options, tick: &tick, device, before, show: None };
        let ready = loading.ready(bundle)?;
        self.known.device = device;
        self.install(inspector, ready).map(drop)
    }

    /// Puts a proved engine in place; the one before with what proves it.
    pub(super) fn install(&mut self, inspector: &mut Inspector, ready: Ready) -> Result<(Host, Prover)> {
        let bundle = Arc::clone(&ready.bundle);
        let manifest = bundle.manifest();
        self.parts_unproved("it is replaced");
        let mut stamp = ready.stamp();
        stamp.device = device_stamp(&*self.source, self.device);
        stamp.label = self.label.clone();
        let judging = Judging::of(self.options, self.changeover.product, manifest)?;
        let changed = bundle.id() != self.bundle.id();
        let guards = if changed { inspector.guards_for(&judging, &bundle)? } else { Vec::new() };
        self.say_what_answers(stamp, Some(ready.proved_at), &judging);
        let installed = Installed { host: ready.host, call_limit: ready.call_limit, judging, guards };
        let host = inspector.install(installed)?;
        self.bundle = ready.bundle;
        self.tell_recorder();
        self.keep_books(None);
        let prover = self.known.replace(ready.prover, ready.call_limit, ready.proof_cost);
        if changed {
            self.standbys_follow();
        }
        Ok((host, prover))
    }

    /// The same engine for another product.
    pub(super) fn judge_anew(&mut self, inspector: &mut Inspector) -> Result<()> {
        let bundle = Arc::clone(&self.bundle);
        let judging = Judging::of(self.options, self.changeover.product, bundle.manifest())?;
        let guards = inspector.guards_for(&judging, &bundle)?;
        let stamp = (*self.present.stamp()).clone();
        self.say_what_answers(stamp, self.present.proved_at(), &judging);
        inspector.judge_as(judging, guards)
    }

    /// Rows, parts and pages go by what is put in from now on.
    fn say_what_answers(&self, stamp: EngineStamp, proved_at: Option<SystemTime>, judging: &Judging) {
        self.clerk.set_deadline(&self.lanes, judging.rule.as_ref().and_then(Rule::deadline));
        self.board.set_has_rule(judging.rule.is_some());
        let stamp = EngineStamp { product: judging.product.clone(), ..stamp };
        self.present.change(stamp, proved_at, judging.rule.is_some());
    }
}

/// What results say of the device, where there are several.
pub(in crate::run) fn device_stamp(source: &dyn EngineSource, device: usize) -> Option<String> {
    (source.devices() > 1).then(|| source.device_label(device))
}
