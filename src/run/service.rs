//! In service: proofs between frames, and the way back after a fault. The guard decides, this carries out.

mod changeover;
pub(super) mod reload;
pub(super) mod standby;

use crate::bundle::Bundle;
use crate::bundle::golden::{Prover, hard_fault};
use crate::decision::Rule;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::GuardMode;
use crate::guard::ladder::{Action, Cause, Ladder, LadderLimits, Step};
use crate::guard::memory::MemoryLimits;
use crate::guard::schedule::{ProofLimits, ProofSchedule};
use crate::run::clerk::Clerk;
use crate::run::host::Host;
use crate::run::incident::{IncidentOptions, Recorder};
use crate::run::inspector::{Alarm, Inspector, Installed};
use crate::run::ledger::Ledger;
use crate::run::memory::{MemoryWatch, News};
use crate::run::present::Present;
use crate::run::product::{self, Judging, ProductOptions, Shelf};
use crate::run::ready::{self, Loading, Ready};
use crate::run::source::EngineSource;
use crate::run::stop::StopFlag;
use crate::run::{Options, Shared};
use crate::sinks::http::{Board, Phase};
use crate::sinks::row::{EngineStamp, Row};
use crate::telemetry::{Labels, Metric, Telemetry};
use changeover::Changeover;
use reload::{ReloadOptions, Reloader};
pub use standby::StandbyLimits;
use standby::Standbys;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// How a run looks after itself.
#[derive(Debug, Clone)]
pub struct ServiceOptions {
    /// Folder for what outlives the process: unproven results, the last good bundle. `None` keeps nothing.
    pub state: Option<PathBuf>,
    /// What soft checks may do.
    pub guard: GuardMode,
    /// How often known answers are asked for.
    pub proofs: ProofLimits,
    /// Every how many frames one is run twice; 0: never.
    pub echo_every: u64,
    /// How long a call of the engine may take; `None`: ten times the slowest at the start, at least 2 s.
    pub call_limit: Option<Duration>,
    /// How long a capture waits for others to make a batch with; `None`: half of what the engine takes, at most 10 ms and at
    /// most a tenth of the decision's deadline.
    pub batch_wait: Option<Duration>,
    /// How long a call beyond its limit is waited for before the process has to end.
    pub patience: Duration,
    /// A camera thread that has not moved for longer than this is stuck in a read.
    pub camera_stuck_after: Duration,
    /// The recovery ladder.
    pub ladder: LadderLimits,
    /// The memory watch.
    pub memory: MemoryLimits,
    /// How bundles are replaced while the line runs.
    pub reload: ReloadOptions,
    /// Ordinals of the GPUs in the order in which they are used: the first serves, the others stand by. Empty: the one GPU
    /// of the engine's options.
    pub devices: Vec<u32>,
    /// How engines that stand by are looked after.
    pub standby: StandbyLimits,
    /// The deep log.
    pub incidents: IncidentOptions,
    /// What the line can be changed over to.
    pub products: ProductOptions,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        ServiceOptions {
            state: None,
            guard: GuardMode::default(),
            proofs: ProofLimits::default(),
            echo_every: 500,
            call_limit: None,
            batch_wait: None,
            patience: Duration::from_secs(20),
            camera_stuck_after: Duration::from_secs(20),
            ladder: LadderLimits::default(),
            memory: MemoryLimits::default(),
            reload: ReloadOptions::default(),
            devices: Vec::new(),
            standby: StandbyLimits::default(),
            incidents: IncidentOptions::default(),
            products: ProductOptions::default(),
        }
    }
}

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

/// How long a step waits for the old engine's memory.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// What looks after the engine between frames.
pub(super) struct Service<'a> {
    options: &'a Options,
    source: Arc<dyn EngineSource>,
    board: Arc<Board>,
    telemetry: Arc<Telemetry>,
    stop: StopFlag,
    present: Arc<Present>,
    bundle: Arc<Bundle>,
    last_good: Option<Arc<Bundle>>,
    prover: Prover,
    device: usize,
    /// The device that the prover's own answers come from.
    proved_device: usize,
    /// What one golden frame took when the engine was proved.
    proof_cost: Duration,
    ladder: Ladder,
    schedule: ProofSchedule,
    ledger: Ledger,
    call_limit: Duration,
    next_golden: usize,
    suspicious: bool,
    incidents: Vec<Incident>,
    clerk: Arc<Clerk>,
    /// The streams that this engine answers.
    lanes: Arc<[usize]>,
    recorder: Arc<Recorder>,
    memory: MemoryWatch,
    reloader: Reloader,
    standbys: Standbys,
    looked_at_devices: Option<Instant>,
    /// The engine being loaded is the one before, asked for by hand.
    rolling_back: bool,
    looked_for_rollback: Instant,
    shelf: Shelf,
    changeover: Changeover,
}

impl<'a> Service<'a> {
    /// Looks after the engine that `ready` has brought up; the engine itself goes to the inspector.
    pub(super) fn new(shared: &Shared<'a>, ready: ReadyParts) -> Self {
        let options = shared.options;
        let mut ladder = Ladder::new(options.service.ladder);
        ladder.resources(false, shared.source.devices().saturating_sub(1));
        let kinds = (0..shared.source.devices()).map(|device| shared.source.device_label(device)).collect();
        let mut service = Service {
            options,
            source: Arc::clone(&shared.source),
            board: Arc::clone(&shared.board),
            telemetry: Arc::clone(&shared.telemetry),
            stop: shared.stop.clone(),
            present: Arc::clone(&shared.present),
            bundle: ready.bundle,
            last_good: None,
            prover: ready.prover,
            device: ready.device,
            proved_device: ready.device,
            ladder,
            schedule: ProofSchedule::new(options.service.proofs, ready.proof_cost, Instant::now()),
            ledger: Ledger::new(options.service.state.as_deref()),
            call_limit: ready.call_limit,
            next_golden: 0,
            suspicious: false,
            incidents: Vec::new(),
            clerk: Arc::clone(&shared.clerk),
            lanes: Arc::clone(&shared.lanes),
            memory: MemoryWatch::new(options.service.memory, Arc::clone(&shared.telemetry), kinds),
            recorder: Arc::clone(&shared.recorder),
            reloader: Reloader::new(&ready.shelf),
            standbys: ready.standbys,
            looked_at_devices: None,
            rolling_back: false,
            looked_for_rollback: Instant::now(),
            proof_cost: ready.proof_cost,
            shelf: ready.shelf,
            changeover: Changeover::new(ready.product),
        };
        service.find_last_good();
        service.tell_recorder();
        service.count_from_zero();
        if let Some(product) = ready.product {
            service.keep_selected(product);
            service.show_products();
        }
        service
    }

    /// The line for people about proofs.
    pub(super) fn line(&self) -> String {
        format!(
            "self-test: one of {} known answers every {:.1} s, all after an alarm; an engine call may take {:.1} s",
            self.prover.len(),
            self.schedule.interval().as_secs_f64(),
            self.call_limit.as_secs_f64(),
        )
    }

    /// Time until the next proof is due.
    pub(super) fn due_in(&self) -> Duration {
        self.schedule.due_in(Instant::now())
    }

    /// A result went out.
    pub(super) fn note(&mut self, row: &Row) {
        self.ledger.note(row);
        self.recorder.row(row);
    }

    /// A counter that appears with its first event is seen by no `increase()`.
    fn count_from_zero(&self) {
        for step in Step::ALL {
            self.telemetry.counter(Metric::RecoverySteps, self.labels().because(step.name()));
        }
        self.telemetry.counter(Metric::ProofsFailed, self.labels());
        self.telemetry.counter(Metric::ResultsUnproven, Labels::NONE);
        self.telemetry.histogram(Metric::Recovery, self.labels());
    }

    fn tell_recorder(&self) {
        let floor = product::lowest_score(self.options, self.bundle.path(), self.bundle.manifest());
        self.recorder.engine_is(&self.bundle, &self.present.stamp(), floor, self.device);
    }

    /// Between two frames: asks for the next known answer when it is due. With a frame waiting, only when it is late.
    ///
    /// # Errors
    /// When recovery gives up.
    pub(super) fn between_frames(&mut self, inspector: &mut Inspector, frame_waits: bool) -> Result<()> {
        self.look_at_memory(inspector)?;
        self.show_devices();
        if self.changeover_step(inspector)? {
            return Ok(());
        }
        self.reload_step(inspector)?;
        self.refill_shelf();
        let now = Instant::now();
        if !self.schedule.due_in(now).is_zero() || (frame_waits && !self.schedule.is_overdue(now)) {
            return Ok(());
        }
        if frame_waits {
            self.telemetry.count(Metric::ProofsBeforeFrame, self.labels());
        }
        let index = self.next_golden;
        self.next_golden = (index + 1) % self.prover.len().max(1);
        let board = Arc::clone(&self.board);
        let tick = || board.heartbeat();
        let proved = ready::prove_one(inspector.host(), &mut self.prover, index, self.call_limit, &tick, false);
        let ended = Instant::now();
        self.schedule.done(ended - now, ended);
        self.telemetry.gauge(Metric::ProofInterval, self.labels()).set(self.schedule.interval().as_secs_f64());
        match proved {
            Ok((agreement, _)) => {
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

    fn look_at_memory(&mut self, inspector: &mut Inspector) -> Result<()> {
        for news in self.memory.look(&*self.source, self.device) {
            match news {
                News::Short => self.prove_after_alarm(inspector, "memory is short")?,
                News::Doubt(what) => self.prove_after_alarm(inspector, &what)?,
                News::Broken { device, what } if device == self.device => {
                    self.failed(&what);
                    self.heal(inspector, Alarm { cause: Some(Cause::DeviceLost), what, frame: None, stuck: false })?;
                }
                News::Broken { device, what } => self.distrust_standby(device, &what),
            }
        }
        Ok(())
    }

    /// Acts on what the inspector has seen. READY is red by then when it is a fault.
    ///
    /// # Errors
    /// [`ErrorKind::GuardGaveUp`] or [`ErrorKind::Device`] when nothing more can be done in this process.
    pub(super) fn act_on(&mut self, inspector: &mut Inspector, alarm: Option<Alarm>) -> Result<()> {
        let Some(alarm) = alarm else {
            self.suspicious = false;
            return Ok(());
        };
        if alarm.cause.is_some() {
            return self.heal(inspector, alarm);
        }
        // A suspicion asks for all known answers once; while they come out right it never climbs.
        if std::mem::replace(&mut self.suspicious, true) {
            return Ok(());
        }
        self.prove_after_alarm(inspector, &alarm.what)
    }

    /// Whether the engine gets no further batch until those in flight are answered: it is about to be replaced.
    pub(super) fn holds(&self) -> bool {
        self.reloader.holds() || self.changeover.holds
    }

    /// Whether a second engine wants to see the frames too.
    pub(super) fn shadows(&self) -> bool {
        self.reloader.shadows()
    }

    fn prove_after_alarm(&mut self, inspector: &mut Inspector, what: &str) -> Result<()> {
        match self.prove_all(inspector) {
            Ok(()) => Ok(()),
            Err(error) => {
                let found = self.alarm_of(&error);
                self.failed(error.message());
                self.heal(inspector, Alarm { what: format!("{what}; {}", error.message()), ..found })
            }
        }
    }

    /// What has gone wrong so far and was repaired.
    pub(super) fn incidents(self) -> Vec<Incident> {
        self.incidents
    }

    fn labels(&self) -> Labels<'_> {
        Labels::engine(&self.bundle.manifest().name)
    }

    fn proved(&mut self) {
        self.present.proved(SystemTime::now());
        self.ledger.proved();
        self.telemetry.count(Metric::ProofsPassed, self.labels());
    }

    /// A proof failed: READY is red, and what stood on the last good one is marked.
    fn failed(&mut self, why: &str) {
        self.board.set_phase(Phase::Fault);
        self.recorder.event("self_test_failed", why);
        self.telemetry.count(Metric::ProofsFailed, self.labels());
        let stamp = self.present.stamp();
        match self.ledger.failed(why, (&stamp.bundle, &stamp.sha256), self.present.proved_at()) {
            Ok(0) => {}
            Ok(results) => {
                self.telemetry.counter(Metric::ResultsUnproven, Labels::NONE).add(results);
                log::error!("self-test failed: {why}; {results} results since the last good one are unproven");
            }
            Err(error) => {
                log::error!("self-test failed: {why}; the results since the last good one are unproven, and {error}")
            }
        }
    }

    fn alarm_of(&self, error: &Error) -> Alarm {
        let (cause, stuck) = match error.kind() {
            ErrorKind::Device => (Cause::DeviceLost, false),
            ErrorKind::TimeLimit => (Cause::Slow, true),
            _ => (Cause::Proof, false),
        };
        Alarm { cause: Some(cause), what: error.message().to_owned(), frame: None, stuck }
    }

    fn prove_all(&mut self, inspector: &mut Inspector) -> Result<()> {
        let board = Arc::clone(&self.board);
        let tick = || board.heartbeat();
        ready::prove_all(inspector.host(), &mut self.prover, self.call_limit, &tick, false)?;
        self.proved();
        self.recorder.event("self_test_passed", "all known answers");
        Ok(())
    }

    /// Climbs the ladder until the known answers come out right.
    fn heal(&mut self, inspector: &mut Inspector, mut alarm: Alarm) -> Result<()> {
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
                return Err(self.given_up(cause, &alarm.what));
            };
            if self.pause(pause) {
                return Ok(());
            }
            steps.push(step);
            self.recorder.step(step);
            log::warn!("recovery: {}", step.name());
            self.telemetry.count(Metric::RecoverySteps, self.labels().because(step.name()));
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
                ready::warm_up(inspector.host(), size, self.call_limit, &|| board.heartbeat())
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

    /// Gives the engine up, frees its memory, and brings up one from `bundle`. Frames wait meanwhile; parts are answered by
    /// their deadlines.
    fn rebuild(&mut self, inspector: &mut Inspector, bundle: Arc<Bundle>) -> Result<()> {
        inspector.give_up_engine(CLOSE_LIMIT);
        let board = Arc::clone(&self.board);
        let (options, source, device) = (self.options, Arc::clone(&self.source), self.device);
        let same = bundle.id() == self.bundle.id() && device == self.proved_device;
        let before = same.then_some(&self.prover);
        let tick = || board.heartbeat();
        let loading = Loading { source: &source, options, tick: &tick, device, before, show: None };
        let ready = loading.ready(bundle)?;
        self.proved_device = device;
        self.install(inspector, ready).map(drop)
    }

    /// Puts a proved engine in place; the one before with what proves it.
    fn install(&mut self, inspector: &mut Inspector, ready: Ready) -> Result<(Host, Prover)> {
        let bundle = Arc::clone(&ready.bundle);
        let manifest = bundle.manifest();
        let mut stamp = ready.stamp();
        stamp.device = device_stamp(&*self.source, self.device);
        let judging = Judging::of(self.options, self.changeover.product, manifest)?;
        let changed = bundle.id() != self.bundle.id();
        let guards = if changed { inspector.guards_for(&judging, &bundle)? } else { Vec::new() };
        self.say_what_answers(stamp, Some(ready.proved_at), &judging);
        let installed = Installed { host: ready.host, call_limit: ready.call_limit, judging, guards };
        let host = inspector.install(installed)?;
        self.bundle = ready.bundle;
        self.tell_recorder();
        let prover = std::mem::replace(&mut self.prover, ready.prover);
        self.call_limit = ready.call_limit;
        self.next_golden = 0;
        self.proof_cost = ready.proof_cost;
        self.schedule = ProofSchedule::new(self.options.service.proofs, ready.proof_cost, Instant::now());
        if changed {
            self.standbys_follow();
        }
        Ok((host, prover))
    }

    /// The same engine for another product.
    fn judge_anew(&mut self, inspector: &mut Inspector) -> Result<()> {
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

/// What the service keeps of a ready engine.
pub(super) struct ReadyParts {
    pub(super) bundle: Arc<Bundle>,
    pub(super) prover: Prover,
    pub(super) call_limit: Duration,
    pub(super) proof_cost: Duration,
    /// The device it runs on.
    pub(super) device: usize,
    /// The other devices.
    pub(super) standbys: Standbys,
    /// Every bundle of the run.
    pub(super) shelf: Shelf,
    /// The product to begin with.
    pub(super) product: Option<usize>,
}

/// What results say of the device, where there are several.
pub(super) fn device_stamp(source: &dyn EngineSource, device: usize) -> Option<String> {
    (source.devices() > 1).then(|| source.device_label(device))
}

/// The first characters of a bundle id.
pub(super) fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}
