//! Known answers: which one is asked for when, and what a good or a bad one means for the results that went out.

use super::Service;
use crate::bundle::golden::{Agreement, Prover};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::ladder::Cause;
use crate::guard::schedule::{ProofLimits, ProofSchedule};
use crate::run::host::Host;
use crate::run::inspector::{Alarm, Inspector};
use crate::run::ledger::Answered;
use crate::run::ready;
use crate::sinks::http::Phase;
use crate::telemetry::{Labels, Metric};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The known answers of the engine that serves, one after the other.
pub(super) struct KnownAnswers {
    limits: ProofLimits,
    pub(super) prover: Prover,
    /// The device that the prover's own answers come from.
    pub(super) device: usize,
    /// How long a call may take.
    pub(super) call_limit: Duration,
    /// What one golden frame took when the engine was proved.
    pub(super) cost: Duration,
    schedule: ProofSchedule,
    next: usize,
}

impl KnownAnswers {
    pub(super) fn new(
        limits: ProofLimits,
        prover: Prover,
        call_limit: Duration,
        cost: Duration,
        device: usize,
    ) -> KnownAnswers {
        let schedule = ProofSchedule::new(limits, cost, Instant::now());
        KnownAnswers { limits, prover, device, call_limit, cost, schedule, next: 0 }
    }

    /// Another engine serves, whose answers come from the same device; what proved the one before.
    pub(super) fn replace(&mut self, prover: Prover, call_limit: Duration, cost: Duration) -> Prover {
        let new = KnownAnswers::new(self.limits, prover, call_limit, cost, self.device);
        std::mem::replace(self, new).prover
    }

    /// The line for people.
    pub(super) fn line(&self) -> String {
        format!(
            "self-test: one of {} known answers every {:.1} s, all after an alarm; an engine call may take {:.1} s",
            self.prover.len(),
            self.schedule.interval().as_secs_f64(),
            self.call_limit.as_secs_f64(),
        )
    }

    /// Time until the next one is due.
    pub(super) fn due_in(&self, now: Instant) -> Duration {
        self.schedule.due_in(now)
    }

    /// The one whose turn it is.
    fn take_turn(&mut self) -> usize {
        let index = self.next;
        self.next = (index + 1) % self.prover.len().max(1);
        index
    }

    fn ask(&mut self, index: usize, host: &mut Host, tick: &dyn Fn()) -> Result<Agreement> {
        ready::prove_one(host, &mut self.prover, index, self.call_limit, tick, false).map(|(agreement, _)| agreement)
    }

    fn ask_all(&mut self, host: &mut Host, tick: &dyn Fn()) -> Result<()> {
        ready::prove_all(host, &mut self.prover, self.call_limit, tick, false).map(drop)
    }
}

impl Service<'_> {
    /// Asks for the next known answer when it is due. With a frame waiting, only when it is late.
    pub(super) fn prove_when_due(&mut self, inspector: &mut Inspector, frame_waits: bool) -> Result<()> {
        let now = Instant::now();
        if !self.known.schedule.due_in(now).is_zero() || (frame_waits && !self.known.schedule.is_overdue(now)) {
            return Ok(());
        }
        if frame_waits {
            self.telemetry.count(Metric::ProofsBeforeFrame, self.labels());
        }
        let index = self.known.take_turn();
        let board = Arc::clone(&self.board);
        let proved = self.known.ask(index, inspector.host(), &|| board.heartbeat());
        let ended = Instant::now();
        self.known.schedule.done(ended - now, ended);
        self.telemetry.gauge(Metric::ProofInterval, self.labels()).set(self.known.schedule.interval().as_secs_f64());
        match proved {
            Ok(agreement) => {
                self.proved();
                let text = format!("frame {index}: {:.2} px, {:.4} apart", agreement.corner_px, agreement.score);
                self.recorder.event("self_test_passed", &text);
                Ok(())
            }
            Err(error) => {
                let alarm = self.alarm_of(&error);
                self.failed(error.message());
                self.heal(inspector, alarm)
            }
        }
    }

    /// One known answer, so that what the engine has answered so far stands or is marked. Whether it stands.
    pub(super) fn prove_before_parting(&mut self, inspector: &mut Inspector) -> bool {
        let board = Arc::clone(&self.board);
        match self.known.ask(self.known.next, inspector.host(), &|| board.heartbeat()) {
            Ok(_) => {
                self.proved();
                true
            }
            Err(error) => {
                self.failed(error.message());
                false
            }
        }
    }

    pub(super) fn prove_after_alarm(&mut self, inspector: &mut Inspector, what: &str) -> Result<()> {
        match self.prove_all(inspector) {
            Ok(()) => Ok(()),
            Err(error) => {
                let found = self.alarm_of(&error);
                self.failed(error.message());
                self.heal(inspector, Alarm { what: format!("{what}; {}", error.message()), ..found })
            }
        }
    }

    /// The run ends in order: one known answer more, so that the last results stand or are marked.
    ///
    /// # Errors
    /// [`ErrorKind::GuardGaveUp`] when the answer is wrong.
    pub(in crate::run) fn prove_at_the_end(&mut self, inspector: &mut Inspector) -> Result<()> {
        if self.ledger.is_settled() || self.prove_before_parting(inspector) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::GuardGaveUp, "the self-test at the end failed: the last results are unproven")
            .at(self.bundle.path().display())
            .hint("`edge-run unproven list --state DIR` says which; without `--state` all since the last `proved_at` of the results"))
    }

    pub(super) fn proved(&mut self) {
        self.present.proved(SystemTime::now());
        self.ledger.proved();
        self.telemetry.count(Metric::ProofsPassed, self.labels());
    }

    /// A proof failed: READY is red, and what stood on the last good one is marked.
    pub(super) fn failed(&mut self, why: &str) {
        self.board.set_phase(Phase::Fault);
        self.recorder.event("self_test_failed", why);
        self.telemetry.count(Metric::ProofsFailed, self.labels());
        self.mark(&format!("self-test failed: {why}"), why);
    }

    /// The engine goes without another self-test: nothing will ever say that what it answered since the last one is right.
    pub(in crate::run) fn parts_unproved(&mut self, why: &str) {
        if !self.ledger.is_settled() {
            self.mark(&format!("the engine ends before its next self-test: {why}"), why);
        }
    }

    fn mark(&mut self, what: &str, why: &str) {
        let stamp = self.present.stamp();
        let answered = Answered { bundle: &stamp.bundle, sha256: &stamp.sha256, proved_at: self.present.proved_at() };
        let waiting = self.ledger.waiting();
        match self.ledger.failed(why, answered) {
            Ok(()) if waiting == 0 => {}
            Ok(()) => log::error!("{what}; {waiting} results since the last good one are unproven"),
            Err(error) => log::error!("{what}; {waiting} results since the last good one are unproven, and {error}"),
        }
        self.telemetry.counter(Metric::ResultsUnproven, Labels::NONE).add(waiting);
    }

    pub(super) fn alarm_of(&self, error: &Error) -> Alarm {
        let (cause, stuck) = match error.kind() {
            ErrorKind::Device => (Cause::DeviceLost, false),
            ErrorKind::TimeLimit => (Cause::Slow, true),
            _ => (Cause::Proof, false),
        };
        Alarm { cause: Some(cause), what: error.message().to_owned(), frame: None, stuck }
    }

    pub(super) fn prove_all(&mut self, inspector: &mut Inspector) -> Result<()> {
        let board = Arc::clone(&self.board);
        self.known.ask_all(inspector.host(), &|| board.heartbeat())?;
        self.proved();
        self.recorder.event("self_test_passed", "all known answers");
        Ok(())
    }
}
