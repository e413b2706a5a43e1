//! Another engine, or another way to judge, while streams, parts and counters stay.

use super::judge::Judge;
use super::{Inspector, StreamPlace};
use crate::bundle::Bundle;
use crate::error::Result;
use crate::guard::Guard;
use crate::run::host::Host;
use crate::run::product::Judging;
use std::sync::Arc;
use std::time::Duration;

/// What changes with another engine.
pub(in crate::run) struct Installed {
    /// The engine, warm and proved.
    pub(in crate::run) host: Host,
    /// How long a call may take.
    pub(in crate::run) call_limit: Duration,
    /// Thresholds and rule.
    pub(in crate::run) judging: Judging,
    /// One guard a stream; empty keeps those that are there.
    pub(in crate::run) guards: Vec<Guard>,
}

impl Inspector {
    /// Puts another engine in place of the old one, which is given back. Streams, parts and counters stay.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for thresholds that do not fit the model; then nothing has changed.
    pub(in crate::run) fn install(&mut self, parts: Installed) -> Result<Host> {
        let judge = Judge::new(parts.judging, &parts.host.info().classes)?;
        self.take_judge(judge, parts.guards);
        self.call_limit = parts.call_limit;
        let mut before = std::mem::replace(&mut self.host, parts.host);
        self.flights.outlive(&mut before);
        if let Some(ringer) = &self.ringer {
            self.host.rings(Arc::clone(ringer));
        }
        Ok(before)
    }

    /// Judges the same engine's answers in another way.
    ///
    /// # Errors
    /// As [`Inspector::install`].
    pub(in crate::run) fn judge_as(&mut self, judging: Judging, guards: Vec<Guard>) -> Result<()> {
        let judge = Judge::new(judging, &self.host.info().classes)?;
        self.take_judge(judge, guards);
        Ok(())
    }

    fn take_judge(&mut self, judge: Judge, guards: Vec<Guard>) {
        self.judge = judge;
        for (place, guard) in self.streams.iter_mut().zip(guards) {
            place.guard = guard;
        }
        self.stamp = self.present.stamp();
    }

    /// A fresh guard for every stream, for another bundle or product, with what is usual for it.
    ///
    /// # Errors
    /// As [`Guard::new`].
    pub(in crate::run) fn guards_for(&self, judging: &Judging, bundle: &Bundle) -> Result<Vec<Guard>> {
        let guard = |(lane, place): (usize, &StreamPlace)| {
            let home = self.baselines.home(lane, &place.name, &judging.baseline, bundle.id());
            Guard::at(&judging.guard, &bundle.manifest().classes, place.traits, home)
        };
        self.streams.iter().enumerate().map(guard).collect()
    }
}
