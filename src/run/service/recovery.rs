//! The way back after a fault: climbs the ladder, one step after the other, until all known answers come out right.

use super::{Service, short};
use crate::bundle::golden::hard_fault;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::ladder::{Action, Cause, Step};
use crate::run::inspector::{Alarm, Inspector};
use crate::run::ready;
use crate::sinks::http::Phase;
use crate::telemetry::Metric;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One fault of the engine and the way back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// What was seen.
    pub what: String,
    /// When it was seen.
    pub seen_at: Instant,
    /// The steps taken; the last one worked.
    pub steps: Vec<Step>,
    /// From seeing it to the good proof.
    pub recovered_after: Duration,
}

/// Incidents remembered for the outcome of a run; the first ones are kept.
const MOST_INCIDENTS: usize = 100;

impl Service<'_> {
    /// Climbs the ladder until the known answers come out right.
    pub(super) fn heal(&mut self, inspector: &mut Inspector, mut alarm: Alarm) -> Result<()> {
        let since = Instant::now();
        let mut steps = Vec::new();
        self.board.set_phase(Phase::Fault);
        log::error!("fault: {}", alarm.what);
        self.recorder.alarm(alarm.cause, &alarm.what);
        if alarm.frame.is_none() {
            // A known answer came out wrong or not at all: what the engine has in flight is not to be believed either.
            inspector.give_up_flights();
        }
        if !alarm.stuck && self.roll_back_on_fault(inspector, &alarm.what)? {
            self.remember(alarm.what, since, vec![Step::LastGoodBundle]);
            return Ok(());
        }
        loop {
            if alarm.stuck {
                self.wait_for_stuck_call(inspector, &mut alarm);
            }
            let cause = alarm.cause.unwrap_or(Cause::Proof);
            let Action::Take { step, pause } = self.ladder.fault(cause, Instant::now()) else {
                self.parts_unproved(&alarm.what);
                return Err(self.given_up(cause, &alarm.what));
            };
            if self.pause(pause) {
                return Ok(());
            }
            steps.push(step);
            self.recorder.step(step);
            log::warn!("recovery: {}", step.name());
            self.telemetry.count(Metric::RecoverySteps, self.labels().because(step.name()));
            if step.replaces_the_engine() {
                self.parts_unproved(&alarm.what);
            }
            let tried = self.take(step, inspector, &alarm).and_then(|()| self.prove_all(inspector));
            match tried {
                Ok(()) => {
                    self.ladder.worked(Instant::now());
                    inspector.repaired();
                    self.board.set_phase(Phase::Ready);
                    let took = since.elapsed();
                    log::warn!("recovered by {} after {:.2} s: {}", step.name(), took.as_secs_f64(), alarm.what);
                    self.remember(std::mem::take(&mut alarm.what), since, steps);
                    self.telemetry
                        .histogram(Metric::Recovery, self.labels())
                        .observe_ms(crate::units::milliseconds(took));
                    return Ok(());
                }
                Err(error) => {
                    log::warn!("recovery: {} did not help: {}", step.name(), error.message());
                    inspector.give_up_flights();
                    let found = self.alarm_of(&error);
                    self.failed(error.message());
                    alarm.cause = found.cause;
                    alarm.stuck = found.stuck;
                }
            }
        }
    }

    fn remember(&mut self, what: String, seen_at: Instant, steps: Vec<Step>) {
        self.recorder.recovered(&steps, seen_at.elapsed());
        if self.incidents.len() < MOST_INCIDENTS {
            self.incidents.push(Incident { what, seen_at, steps, recovered_after: seen_at.elapsed() });
        }
    }

    fn wait_for_stuck_call(&self, inspector: &mut Inspector, alarm: &mut Alarm) {
        let board = &self.board;
        alarm.stuck = false;
        if inspector.host().comes_back(self.patience(), &|| board.heartbeat()) {
            alarm.cause = Some(Cause::Slow);
        } else {
            alarm.cause = Some(Cause::DeviceLost);
            alarm.what = format!("{}; the call has not come back", alarm.what);
        }
    }

    /// Waits, with a beating heart; whether the run ends meanwhile.
    fn pause(&self, pause: Duration) -> bool {
        const BEAT: Duration = Duration::from_millis(200);
        let until = Instant::now() + pause;
        loop {
            self.board.heartbeat();
            let left = until.saturating_duration_since(Instant::now());
            if self.stop.is_raised() || left.is_zero() {
                return self.stop.is_raised();
            }
            self.stop.sleep(left.min(BEAT));
        }
    }

    fn given_up(&self, cause: Cause, what: &str) -> Error {
        let (kind, message) = match cause {
            Cause::DeviceLost => (ErrorKind::Device, format!("the device is lost and no other one stands by: {what}")),
            _ => (ErrorKind::GuardGaveUp, format!("recovery has tried everything this process can do: {what}")),
        };
        Error::new(kind, message)
            .at(self.bundle.path().display())
            .hint("restart the program (`deploy/edge-run.service` does so by itself); docs/recovery.md says what each step means")
    }

    /// Carries one step out.
    fn take(&mut self, step: Step, inspector: &mut Inspector, alarm: &Alarm) -> Result<()> {
        match step {
            Step::RetryFrame => self.retry(inspector, alarm),
            Step::Rewarm => {
                let board = Arc::clone(&self.board);
                let size = self.bundle.manifest().input.size;
                ready::warm_up(inspector.host(), size, self.known.call_limit, &|| board.heartbeat())
            }
            Step::NewContext => self.rebuild(inspector, Arc::clone(&self.bundle)),
            Step::ReloadBundle => {
                let bundle = self.source.open(self.bundle.path())?;
                if bundle.id() != self.bundle.id() {
                    return Err(Error::refused(format!(
                        "found bundle {} under the path, expected {}",
                        short(bundle.id()),
                        short(self.bundle.id())
                    )));
                }
                self.rebuild(inspector, Arc::new(bundle))
            }
            Step::LastGoodBundle => match self.last_good.clone() {
                Some(bundle) => {
                    self.set_last_good(None);
                    self.rebuild(inspector, bundle)
                }
                None => Err(Error::unexpected("there is no other bundle that worked")),
            },
            Step::StandbyDevice => self.go_to_standby(inspector),
        }
    }

    /// Runs the frame of the alarm again. Its row is a fault already; what counts is whether the fault stays.
    fn retry(&self, inspector: &mut Inspector, alarm: &Alarm) -> Result<()> {
        let Some(frame) = &alarm.frame else { return Ok(()) };
        let inference = inspector.call(frame, None).map_err(ready::error_of)?;
        let layout = inspector.host().info().layout.clone();
        let fault = if inference.tag == frame.tag() {
            hard_fault(&inference.stats, &layout)
        } else {
            Some(format!("the answer of frame {}", inference.tag.number))
        };
        inspector.host().recycle(inference);
        fault.map_or(Ok(()), |fault| Err(Error::refused(format!("the same frame again: {fault}"))))
    }
}
