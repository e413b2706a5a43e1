//! An engine that stands by on another device: loaded, warmed up, proved, and proved again while it waits. One thread each.
//!
//! The thread owns everything slow: it closes the engine that failed there, loads again with pauses that double, and asks
//! for known answers in turn. The run takes the engine when it needs it; after that the thread ends.

use crate::bundle::Bundle;
use crate::bundle::golden::Prover;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::schedule::ProofSchedule;
use crate::run::Options;
use crate::run::host::Host;
use crate::run::ready::{self, LOAD_LIMIT, Loading, Ready};
use crate::run::source::EngineSource;
use crate::telemetry::{Labels, Metric, Telemetry};
use crate::units::Bytes;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// How long the memory of a failed engine is waited for.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);
/// Free beyond the plan before an engine is loaded beside others, percent of the plan.
const MARGIN_PERCENT: u64 = 20;

/// How a device stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// An engine is being brought up.
    Loading,
    /// It stands by.
    Warm,
    /// It stands by and is answering a known picture.
    Proving,
    /// There is none: why. It is tried again.
    Down(String),
    /// The run has taken it.
    Taken,
}

/// What brings an engine up.
pub(super) struct Job {
    pub(super) source: Arc<dyn EngineSource>,
    pub(super) options: Options,
    pub(super) bundle: Arc<Bundle>,
    pub(super) device: usize,
    pub(super) telemetry: Arc<Telemetry>,
    /// The engine that failed there, closed first, with what proved it: its own answers bind the new one, which comes after
    /// a pause.
    pub(super) failed: Option<(Host, Prover)>,
    /// The thread that looked after this device before: its engine must be gone first.
    pub(super) before: Option<JoinHandle<()>>,
}

struct Place {
    ready: Option<Box<Ready>>,
    standing: Standing,
    /// Somebody waits: no pause before the next attempt.
    wanted: bool,
    closing: bool,
    /// Somebody knows better than the self-test that runs just now.
    doubt: Option<String>,
    attempts: u64,
    proved_at: Option<SystemTime>,
    line: String,
}

struct Shared {
    place: Mutex<Place>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, place: MutexGuard<'a, Place>, limit: Duration) -> MutexGuard<'a, Place> {
        self.changed.wait_timeout(place, limit).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Looks after one device that does not serve.
pub(super) struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Begins to bring an engine up.
    ///
    /// # Errors
    /// [`ErrorKind::Unexpected`] when there is no thread to be had.
    pub(super) fn start(job: Job) -> Result<Keeper> {
        let place = Place {
            ready: None,
            standing: Standing::Loading,
            wanted: false,
            closing: false,
            doubt: None,
            attempts: 0,
            proved_at: None,
            line: String::new(),
        };
        let shared = Arc::new(Shared { place: Mutex::new(place), changed: Condvar::new() });
        let label = job.source.device_label(job.device);
        let worker = Worker { label, job, known: None, shared: Arc::clone(&shared) };
        let thread = std::thread::Builder::new()
            .name("standby".into())
            .spawn(move || worker.run())
            .map_err(|error| Error::unexpected("the thread of the standby device cannot be started").because(error))?;
        Ok(Keeper { shared, thread: Some(thread) })
    }

    /// How it stands, when it was last proved, and the line for people about its last start.
    pub(super) fn look(&self) -> (Standing, Option<SystemTime>, String) {
        let place = self.shared.lock();
        (place.standing.clone(), place.proved_at, place.line.clone())
    }

    /// Waits until the first attempt has ended, with or without an engine.
    pub(super) fn settle(&self, tick: &dyn Fn()) {
        let mut place = self.shared.lock();
        while place.standing == Standing::Loading {
            place = self.shared.wait(place, LOOK_UP);
            tick();
        }
    }

    /// Takes the engine: at once when it is warm, else after one more attempt.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] when that attempt fails or takes too long.
    pub(super) fn take(&self, tick: &dyn Fn()) -> Result<Ready> {
        let since = Instant::now();
        let mut place = self.shared.lock();
        let before = place.attempts;
        place.wanted = true;
        self.shared.changed.notify_all();
        loop {
            if let Some(ready) = place.ready.take() {
                place.standing = Standing::Taken;
                self.shared.changed.notify_all();
                return Ok(*ready);
            }
            if let Standing::Down(why) = &place.standing
                && place.attempts > before
            {
                return Err(Error::new(ErrorKind::Device, why.clone()));
            }
            if since.elapsed() > LOAD_LIMIT {
                return Err(Error::new(ErrorKind::Device, "the engine is still not loaded"));
            }
            place = self.shared.wait(place, LOOK_UP);
            tick();
        }
    }

    /// The engine is not to be believed: it is dropped, and brought up again after a pause.
    pub(super) fn distrust(&self, why: &str) {
        let mut place = self.shared.lock();
        if let Some(ready) = place.ready.take() {
            place.standing = Standing::Down(why.to_owned());
            self.shared.changed.notify_all();
            drop(place);
            drop(ready);
        } else if place.standing == Standing::Proving {
            place.doubt = Some(why.to_owned());
        }
    }

    /// Gives everything up; the thread ends by itself, when it is done with what it does.
    pub(super) fn close(mut self) -> Option<JoinHandle<()>> {
        self.end();
        self.thread.take()
    }

    fn end(&self) {
        self.shared.lock().closing = true;
        self.shared.changed.notify_all();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
    }
}

const LOOK_UP: Duration = Duration::from_millis(100);

struct Worker {
    job: Job,
    /// What proved an earlier engine of the same bundle on this device.
    known: Option<Prover>,
    label: String,
    shared: Arc<Shared>,
}

/// Why an engine does not stand by any more.
enum Left {
    Taken,
    Closing,
    Lies(String),
}

impl Worker {
    fn run(mut self) {
        let limits = self.job.options.service.standby;
        let mut pause = limits.retry_after;
        if let Some(before) = self.job.before.take() {
            let _ended = before.join();
        }
        if let Some((failed, prover)) = self.job.failed.take() {
            failed.close(CLOSE_LIMIT);
            self.known = Some(prover);
            if !self.rest(pause) {
                return;
            }
        }
        loop {
            self.shared.lock().standing = Standing::Loading;
            match self.bring_up() {
                Ok((ready, line)) => {
                    log::info!("{line}");
                    pause = limits.retry_after;
                    match self.stand_by(ready, line) {
                        Left::Taken | Left::Closing => return,
                        Left::Lies(why) => self.down(why, pause),
                    }
                }
                Err(error) => self.down(error.to_string().replace('\n', " "), pause),
            }
            if !self.rest(pause) {
                return;
            }
            pause = (pause * 2).min(limits.retry_at_most);
        }
    }

    fn down(&self, why: String, pause: Duration) {
        log::error!("device {} does not stand by: {why}; next attempt in {:.1} s", self.label, pause.as_secs_f64());
        let mut place = self.shared.lock();
        place.ready = None;
        place.attempts += 1;
        place.standing = Standing::Down(why);
        self.shared.changed.notify_all();
    }

    /// Waits; `false` when the thread is to end. Somebody who wants the engine ends the pause.
    fn rest(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut place = self.shared.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if place.closing {
                return false;
            }
            if left.is_zero() || std::mem::take(&mut place.wanted) {
                return true;
            }
            place = self.shared.wait(place, left);
        }
    }

    fn bring_up(&self) -> Result<(Ready, String)> {
        let Job { source, options, bundle, device, .. } = &self.job;
        let planned = source.planned(bundle, *device);
        let before = source.device_memory(*device);
        if let (Some(plan), Some((used, total))) = (planned, before) {
            let (free, wanted) = (Bytes(total.0.saturating_sub(used.0)), Bytes(plan.0 / 100 * (100 + MARGIN_PERCENT)));
            if free < wanted {
                return Err(Error::new(
                    ErrorKind::Budget,
                    format!(
                        "found {free} free, expected {wanted}: the plan of {plan} and {MARGIN_PERCENT} % beyond it"
                    ),
                ));
            }
        }
        let since = Instant::now();
        let loading =
            Loading { source, options, tick: &|| {}, device: *device, before: self.known.as_ref(), show: None };
        let ready = loading.ready(Arc::clone(bundle))?;
        let took = since.elapsed();
        let mut line = format!(
            "device {} stands by: {}, loaded and proved on {} frames in {:.0} ms",
            self.label,
            ready.host.info().backend,
            ready.prover.len(),
            crate::units::milliseconds(took),
        );
        line += &memory_cost(before, source.device_memory(*device), planned, ready.host.memory().allocated);
        Ok((ready, line))
    }

    /// Drops an engine and keeps what is known of the device's answers.
    fn give_up(&mut self, ready: Ready) {
        ready.host.close(CLOSE_LIMIT);
        self.known = Some(ready.prover);
    }

    /// Holds the engine ready and asks for known answers in turn.
    fn stand_by(&mut self, ready: Ready, line: String) -> Left {
        let proofs = self.job.options.service.proofs;
        let mut schedule = ProofSchedule::new(proofs, ready.proof_cost, Instant::now());
        let mut index = 0;
        let shared = Arc::clone(&self.shared);
        let mut place = shared.lock();
        place.proved_at = Some(ready.proved_at);
        place.line = line;
        place.attempts += 1;
        place.ready = Some(Box::new(ready));
        loop {
            place.standing = Standing::Warm;
            shared.changed.notify_all();
            let mut due_in = schedule.due_in(Instant::now());
            while place.ready.is_some() && !place.closing && !due_in.is_zero() {
                place = shared.wait(place, due_in);
                due_in = schedule.due_in(Instant::now());
            }
            let ready = place.ready.take();
            if place.closing {
                drop(place);
                drop(ready);
                return Left::Closing;
            }
            let Some(mut ready) = ready else {
                return match &place.standing {
                    Standing::Down(why) => Left::Lies(why.clone()),
                    _ => Left::Taken,
                };
            };
            place.standing = Standing::Proving;
            drop(place);
            let since = Instant::now();
            let limit = ready.call_limit;
            let proved = ready::prove_one(&mut ready.host, &mut ready.prover, index, limit, &|| {}, false);
            schedule.done(since.elapsed(), Instant::now());
            index = (index + 1) % ready.prover.len().max(1);
            let word = if proved.is_ok() { "passed" } else { "failed" };
            self.job.telemetry.count(Metric::StandbyProofs, Labels::reason(word));
            if let Err(error) = proved {
                self.give_up(*ready);
                return Left::Lies(format!("its self-test failed: {}", error.message()));
            }
            ready.proved_at = SystemTime::now();
            place = shared.lock();
            if let Some(why) = place.doubt.take() {
                drop(place);
                self.give_up(*ready);
                return Left::Lies(why);
            }
            place.proved_at = Some(ready.proved_at);
            place.ready = Some(ready);
        }
    }
}

/// What loading took on the device, beside the plan.
pub(super) fn memory_cost(
    before: Option<(Bytes, Bytes)>,
    after: Option<(Bytes, Bytes)>,
    planned: Option<Bytes>,
    engine: Bytes,
) -> String {
    let (Some((before, _)), Some((after, total))) = (before, after) else { return String::new() };
    let plan = planned.map_or_else(|| "no plan in the bundle".to_owned(), |plan| format!("planned {plan}"));
    format!(
        "; took {} of the device's memory ({plan}, {engine} of it the engine's own), {} of {total} free",
        Bytes(after.0.saturating_sub(before.0)),
        Bytes(total.0.saturating_sub(after.0)),
    )
}
