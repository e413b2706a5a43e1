//! In service: what is done for the engine between frames, in which order. The guard decides, this carries out.
//!
//! [`proofs`] asks for known answers, [`recovery`] is the way back after a fault, [`replace`] puts another engine in place;
//! [`reload`], [`changeover`] and [`standby`] say when and which one.

mod changeover;
mod options;
mod proofs;
mod recovery;
pub(super) mod reload;
mod replace;
pub(super) mod standby;

use crate::bundle::Bundle;
use crate::bundle::golden::Prover;
use crate::error::Result;
use crate::guard::ladder::{Cause, Ladder, Step};
use crate::run::budget::Books;
use crate::run::clerk::Clerk;
use crate::run::incident::Recorder;
use crate::run::inspector::{Alarm, Inspector};
use crate::run::ledger::{Answered, Ledger, Unfinished};
use crate::run::memory::{MemoryWatch, News};
use crate::run::present::Present;
use crate::run::product::{self, Shelf};
use crate::run::source::EngineSource;
use crate::run::stop::StopFlag;
use crate::run::{Options, Shared};
use crate::sinks::http::Board;
use crate::sinks::row::Row;
use crate::telemetry::{Labels, Metric, Telemetry};
use changeover::Changeover;
pub use options::ServiceOptions;
use proofs::KnownAnswers;
pub use recovery::Incident;
use reload::Reloader;
use replace::CLOSE_LIMIT;
pub(super) use replace::device_stamp;
pub use standby::StandbyLimits;
use standby::Standbys;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    known: KnownAnswers,
    device: usize,
    ladder: Ladder,
    ledger: Ledger,
    /// Lies in the state folder until the run ends in order.
    unfinished: Option<Unfinished>,
    suspicious: bool,
    incidents: Vec<Incident>,
    clerk: Arc<Clerk>,
    /// The streams that this engine answers.
    lanes: Arc<[usize]>,
    /// What pages and metrics call it, where a run has several bundles.
    label: Option<Arc<str>>,
    /// Its number in the run.
    engine: usize,
    /// What all engines of the run take.
    books: Arc<Books>,
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
        // All engines of a run look at the same memory; the first one counts what they see.
        let told_once = if shared.engine == 0 { Arc::clone(&shared.telemetry) } else { Telemetry::new() };
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
            known: KnownAnswers::new(
                options.service.proofs,
                ready.prover,
                ready.call_limit,
                ready.proof_cost,
                ready.device,
            ),
            device: ready.device,
            ladder,
            ledger: Ledger::new(options.service.state.as_deref()),
            unfinished: None,
            suspicious: false,
            incidents: Vec::new(),
            clerk: Arc::clone(&shared.clerk),
            lanes: Arc::clone(&shared.lanes),
            label: shared.label.clone(),
            engine: shared.engine,
            books: Arc::clone(&shared.books),
            memory: MemoryWatch::new(options.service.memory, told_once, kinds),
            recorder: Arc::clone(&shared.recorder),
            reloader: Reloader::new(&ready.shelf),
            standbys: ready.standbys,
            looked_at_devices: None,
            rolling_back: false,
            looked_for_rollback: Instant::now(),
            shelf: ready.shelf,
            changeover: Changeover::new(ready.product),
        };
        service.begin_unfinished();
        service.find_last_good();
        service.tell_recorder();
        service.count_from_zero();
        service.keep_books(None);
        if let Some(product) = ready.product {
            service.keep_selected(product);
            service.show_products();
        }
        service
    }

    /// Says in the state folder that a run begins; what the run before left there is written down.
    fn begin_unfinished(&mut self) {
        let Some(folder) = &self.options.service.state else { return };
        let stamp = self.present.stamp();
        let answered = Answered { bundle: &stamp.bundle, sha256: &stamp.sha256, proved_at: self.present.proved_at() };
        match Unfinished::begin(folder, answered, &mut self.ledger) {
            Ok((unfinished, word)) => {
                if let Some(word) = word {
                    log::error!("{word}");
                    self.recorder.event("unfinished_before", &word);
                }
                self.unfinished = Some(unfinished);
            }
            Err(error) => log::error!("a crash of this run will leave no word: {error}"),
        }
    }

    /// The run is over: its last results are proved or marked.
    ///
    /// # Errors
    /// What the run ended with; after an orderly end [`crate::ErrorKind::GuardGaveUp`] when the last known answer is wrong.
    pub(super) fn end(&mut self, inspector: &mut Inspector, ended: Result<()>) -> Result<()> {
        let ended = ended.and_then(|()| self.prove_at_the_end(inspector));
        if let Err(error) = &ended {
            self.parts_unproved(error.message());
        }
        if let Some(unfinished) = self.unfinished.take() {
            unfinished.finished();
        }
        ended
    }

    /// The line for people about proofs.
    pub(super) fn line(&self) -> String {
        self.known.line()
    }

    /// Time until the next proof is due.
    pub(super) fn due_in(&self) -> Duration {
        self.known.due_in(Instant::now())
    }

    /// A result went out. `told`: what its engine did to it is known, see [`Answer::told`](crate::run::inspector::Answer).
    pub(super) fn note(&mut self, row: &Row, told: bool) {
        self.ledger.note(row);
        self.recorder.row(row, told);
    }

    /// A counter that appears with its first event is seen by no `increase()`.
    fn count_from_zero(&self) {
        for step in Step::ALL {
            self.telemetry.counter(Metric::RecoverySteps, self.labels().because(step.name()));
        }
        self.telemetry.counter(Metric::ProofsFailed, self.labels());
        self.telemetry.counter(Metric::ProofsPassed, self.labels());
        self.telemetry.counter(Metric::ResultsUnproven, Labels::NONE);
        self.telemetry.histogram(Metric::Recovery, self.labels());
        self.telemetry.histogram(Metric::ReloadGap, self.labels());
        for how in ["swapped", "unchanged", "refused", "does_not_fit", "rolled_back"] {
            self.telemetry.counter(Metric::Reloads, self.labels().because(how));
        }
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
        self.prove_when_due(inspector, frame_waits)
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
    /// [`crate::ErrorKind::GuardGaveUp`] or [`crate::ErrorKind::Device`] when nothing more can be done in this process.
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

    /// What has gone wrong so far and was repaired.
    pub(super) fn incidents(self) -> Vec<Incident> {
        self.incidents
    }

    fn labels(&self) -> Labels<'_> {
        Labels::engine(self.label.as_deref().unwrap_or(&self.bundle.manifest().name))
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

/// The first characters of a bundle id.
pub(super) fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}
