//! Wiring: threads, lanes, warmup, proof, the loop over captures, and an orderly end. Nobody imports this module.
//!
//! One thread a camera, one for the engine ([`host`]), the loop over captures on the caller's, one sink thread, one timer for
//! deadlines, one small HTTP runtime. Between them are bounded lanes ([`depot`]) and one bounded channel of rows
//! ([`teller`]). Between frames, the `service` asks for known answers and repairs what is broken.

pub mod baselines;
pub mod bench;
mod bring_up;
mod budget;
mod cameras;
pub mod clerk;
pub mod depot;
mod desk;
pub mod doctor;
pub mod gpu_watch;
pub mod host;
pub mod incident;
pub mod inject;
pub mod inspector;
mod keeper;
mod kept;
mod known;
pub mod ledger;
pub mod machine;
mod memory;
pub mod notify;
mod outlet;
pub mod present;
pub mod product;
mod ready;
mod service;
pub mod source;
mod state;
mod station;
pub mod stop;
mod stream;
mod teller;

use crate::bundle;
use crate::bundle::signature::PublicKey;
use crate::camera::{self, Camera, SourceInfo, SourceKind, SourceSpec};
use crate::decision::Rule;
use crate::engine::cpu::CpuOptions;
use crate::engine::tensorrt::GpuOptions;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::StreamName;
use crate::guard::{Reason, StreamTraits, Trust};
use crate::sinks::http::{Board, Command, Phase, StreamSetup, Trigger};
use crate::sinks::row::Row;
use crate::telemetry::{Labels, Metric, Telemetry};
use crate::units::milliseconds;
use baselines::Baselines;
use bring_up::{Bench, Opened};
use budget::Books;
use cameras::{Beat, Cameras};
use clerk::Clerk;
use depot::{Delivery, Depot, Work};
use desk::Desk;
use incident::Recorder;
use inspector::StreamPlace;
use notify::Supervised;
use present::Present;
use ready::Loading;
use source::{BundleEngines, EngineSource};
use state::StateFolder;
use station::{Quota, Station};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use stop::{StopFlag, StopReason};
use stream::Stream;
use teller::{RowSender, Teller};

pub use outlet::OutputOptions;
pub use service::reload::{ROLLBACK_REQUEST, ReloadDoor, ReloadOptions, Settled};
pub use service::{Incident, ServiceOptions, StandbyLimits};

/// One stream to run.
#[derive(Debug, Clone)]
pub struct StreamOptions {
    /// Unique name.
    pub name: String,
    /// The bundle that answers it; `None`: the run's.
    pub engine: Option<PathBuf>,
    /// Where pictures come from.
    pub spec: SourceSpec,
    /// How frames reach the engine; `None`: newest for live sources, every for files.
    pub delivery: Option<Delivery>,
    /// Whether the start waits for the source or fails at once.
    pub wait: bool,
    /// Whether only frames triggered from outside are parts; otherwise every frame gets a decision.
    pub triggered: bool,
}

/// What to run, checked.
#[derive(Debug, Clone)]
pub struct Options {
    /// The bundle.
    pub bundle: PathBuf,
    /// The streams; at least one, with unique names.
    pub streams: Vec<StreamOptions>,
    /// The key that every bundle must be signed with.
    pub trust: Option<PublicKey>,
    /// The CPU engine.
    pub cpu: CpuOptions,
    /// The GPU engine.
    pub gpu: GpuOptions,
    /// Boxes are reported from this score on; what is judged does not change.
    pub conf: Option<f32>,
    /// Overlap above which boxes of one class are one object, for the report.
    pub iou: Option<f32>,
    /// Where results go.
    pub output: OutputOptions,
    /// How the run looks after itself.
    pub service: ServiceOptions,
    /// Stop after this many results.
    pub frames: Option<u64>,
    /// Stop after this time.
    pub duration: Option<Duration>,
}

/// What a run did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Results by trust.
    pub results: BTreeMap<Trust, u64>,
    /// Pictures that could not be read.
    pub unreadable: u64,
    /// Why the run ended.
    pub interrupted: bool,
    /// Faults of the engine that were repaired.
    pub incidents: Vec<Incident>,
}

/// Tells the caller what happens before the first result: lines for people.
pub type Say<'a> = &'a mut dyn FnMut(&str);

/// Runs until the sources end, the count or time is reached, or `stop` is raised.
///
/// # Errors
/// Everything that keeps the run from starting, and at the end: [`ErrorKind::Source`] when a picture could not be read or
/// a source of files failed, [`ErrorKind::Output`] when results could not be written, [`ErrorKind::Device`] when the
/// device failed and no other one stands by, [`ErrorKind::GuardGaveUp`] when recovery has tried everything,
/// [`ErrorKind::Interrupted`] after Ctrl-C or SIGTERM. Results so far are written and flushed first.
pub fn start(options: &Options, stop: &StopFlag, say: Say<'_>) -> Result<Outcome> {
    start_with(options, Arc::new(BundleEngines::of(options)), stop, say)
}

/// [`start`] with engines from elsewhere than this machine's bundles: canned ones, faulty ones.
///
/// # Errors
/// As [`start`].
pub fn start_with(options: &Options, source: Arc<dyn EngineSource>, stop: &StopFlag, say: Say<'_>) -> Result<Outcome> {
    let since = Instant::now();
    let telemetry = Telemetry::new();
    let names: Vec<StreamName> = options.streams.iter().map(|stream| stream.name.as_str().into()).collect();
    let state = options.service.state.as_deref().map(StateFolder::take).transpose()?;
    let opened = open_sources(options, &names, &*source, say)?;
    let infos: Vec<Option<SourceInfo>> =
        opened.iter().map(|opened| opened.as_ref().map(|camera| camera.info())).collect();
    let triggered = options.streams.iter().any(|stream| stream.triggered);
    let live = options.streams.iter().any(|stream| stream.spec.kind() == SourceKind::Live);

    let stations = Station::all(options)?;
    station::make_folders(&stations, options.service.state.as_ref())?;
    let product = options.service.products.begin_with(options.service.state.as_deref())?;
    let opened_bundles =
        stations.iter().map(|station| Opened::of(station, product, &*source)).collect::<Result<Vec<_>>>()?;
    bring_up::fit_together(&opened_bundles, &*source)?;
    let station_of = Station::of_lanes(&stations, options.streams.len());
    let rule_of = |station: usize| opened_bundles[station].judging.rule.as_ref();
    let setups = options.streams.iter().zip(&names).zip(&station_of).map(|((stream, name), &station)| StreamSetup {
        name: Arc::clone(name),
        continuous: !stream.triggered,
        has_rule: rule_of(station).is_some(),
    });
    let board = Board::of_several(setups.collect(), &station_of);
    let _supervised = Supervised::start(&board, live);
    let deadlines = station_of.iter().map(|&station| rule_of(station).and_then(Rule::deadline));
    let clerk = Arc::new(Clerk::with_deadlines(names.clone(), deadlines.collect()));
    let outlet = outlet::Outlet::open(&options.output, live, triggered, &board, &telemetry, say)?;
    let (incidents, state_folder) = (options.service.incidents.clone(), options.service.state.as_deref());
    let incident_folder = incidents.folder.as_deref().map(StateFolder::take_for_incidents).transpose()?;
    let recorder = Recorder::start(incidents, state_folder, (&names, &station_of), &board, &telemetry)?;
    let present = Present::unknown();
    let baselines = Baselines::new(options.service.state.as_deref(), options.service.guard, options.streams.len());
    let stop = stop.clone();
    let (lanes, books) = ((0..names.len()).collect(), Arc::default());
    let shared = Shared {
        options,
        source,
        telemetry,
        board,
        stop,
        present,
        clerk,
        lanes,
        recorder,
        baselines,
        label: None,
        engine: 0,
        books,
    };
    let streams = bring_up::Streams { names: &names, infos: &infos };
    let common = bring_up::Common { shared: shared.clone(), streams, since, several: stations.len() > 1 };
    let mut benches = Vec::new();
    for (index, (station, opened)) in stations.iter().zip(opened_bundles).enumerate() {
        let bench = bring_up::bring_up(&common, station, opened, index, say);
        benches.push(bench.map_err(|error| error.at(station.options.bundle.display()))?);
    }
    if live {
        for bench in &benches {
            say(&bench.service.line());
            bench.service.say_room().iter().for_each(|line| say(line));
        }
        say(&shared.recorder.line());
    }
    let presents = station_of.iter().map(|&station| Arc::clone(&benches[station].shared.present)).collect();
    let run = Run { shared, names: names.clone(), presents, station_of, source_failed: Arc::default() };
    let outcome = run.until_the_end(benches, opened, outlet);
    drop((state, incident_folder));
    outcome
}

/// The engine on the first device that can serve. With several devices, one that fails is passed over and said aloud.
fn first_ready(loading: Loading<'_>, bundle: &Arc<bundle::Bundle>, say: Say<'_>) -> Result<(usize, ready::Ready)> {
    let devices = loading.source.devices();
    for device in 0..devices {
        let label = loading.source.device_label(device);
        let memory = loading.source.device_memory(device);
        match (Loading { device, ..loading }).ready(Arc::clone(bundle)) {
            Ok(ready) => {
                if devices > 1 {
                    let now = loading.source.device_memory(device);
                    let own = ready.host.memory().allocated;
                    let cost = keeper::memory_cost(memory, now, keeper::planned(bundle), own);
                    say(&format!("device {label} serves{cost}"));
                }
                return Ok((device, ready));
            }
            Err(error) if device + 1 < devices => {
                let why = error.to_string().replace('\n', " ");
                log::error!("device {label} cannot serve: {why}");
                say(&format!("device {label} cannot serve, the next one is tried: {why}"));
            }
            Err(error) => return Err(error),
        }
    }
    Err(Error::unexpected("there is no device"))
}

/// The sources of the command line fail at once; those that may be waited for are opened by their threads.
fn open_sources(
    options: &Options,
    names: &[StreamName],
    source: &dyn EngineSource,
    say: Say<'_>,
) -> Result<Vec<Option<Box<dyn Camera>>>> {
    options
        .streams
        .iter()
        .zip(names)
        .map(|(stream, name)| match camera::open(&stream.spec, Arc::clone(name)) {
            Ok(camera) => {
                let camera = source.fit_camera(name, camera);
                say(&format!("stream {name}: {}", camera.info().description));
                Ok(Some(camera))
            }
            Err(error) if stream.wait && error.kind() == ErrorKind::Source => {
                say(&format!("stream {name}: {}; waiting for it", error.message()));
                Ok(None)
            }
            Err(error) => Err(error.hint("add `--wait` to wait for a source that is not there yet")),
        })
        .collect()
}

/// Says which checks do not run on this stream and why, one line a cause.
fn say_what_is_off(place: &StreamPlace, say: Say<'_>) {
    let mut by_cause: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for off in place.guard.off_aloud() {
        by_cause.entry(off.why).or_default().push(off.reason.name());
    }
    for (why, checks) in by_cause {
        say(&format!("stream {}: not checked, because {why}: {}", place.name, checks.join(", ")));
    }
    if let Some(why) = place.guard.observing() {
        say(&format!("stream {}: soft checks only observe: {why}", place.name));
    }
}

fn is_triggered(stream: &StreamOptions, info: Option<&SourceInfo>) -> bool {
    stream.triggered || info.is_some_and(|info| info.triggers)
}

fn traits(stream: &StreamOptions, info: Option<&SourceInfo>) -> StreamTraits {
    let live = stream.spec.kind() == SourceKind::Live;
    StreamTraits { live, related_frames: info.map_or(live, |info| info.related_frames), triggered: stream.triggered }
}

/// What the parts of a run share.
#[derive(Clone)]
struct Shared<'a> {
    options: &'a Options,
    source: Arc<dyn EngineSource>,
    telemetry: Arc<Telemetry>,
    board: Arc<Board>,
    stop: StopFlag,
    present: Arc<Present>,
    clerk: Arc<Clerk>,
    /// The streams that are answered; of one bundle its own.
    lanes: Arc<[usize]>,
    /// What pages and metrics call the engine, where there are several.
    label: Option<Arc<str>>,
    /// Its number in the run.
    engine: usize,
    /// What all engines take.
    books: Arc<Books>,
    recorder: Arc<Recorder>,
    baselines: Arc<Baselines>,
}

struct Run<'a> {
    shared: Shared<'a>,
    names: Vec<StreamName>,
    /// Which engine answers, one a stream.
    presents: Vec<Arc<Present>>,
    /// The bundle of each stream.
    station_of: Vec<usize>,
    source_failed: Arc<AtomicBool>,
}

impl Run<'_> {
    fn until_the_end(
        &self,
        benches: Vec<Bench<'_>>,
        opened: Vec<Option<Box<dyn Camera>>>,
        outlet: outlet::Outlet,
    ) -> Result<Outcome> {
        let Shared { options, telemetry, board, stop, .. } = &self.shared;
        let deliveries: Vec<Delivery> = options.streams.iter().map(delivery).collect();
        let lanes: Vec<_> = deliveries.iter().copied().zip(self.station_of.iter().copied()).collect();
        let depot = Arc::new(Depot::grouped(&lanes));
        let (rows, teller) = Teller::start(outlet.sinks, Arc::clone(telemetry), stop.clone())?;
        let blank = Arc::new(Blank { names: self.names.clone(), presents: self.presents.clone() });
        let make = |index: usize, beat| self.stream(index, beat, &depot, &rows, &blank);
        let cameras = Mutex::new(Cameras::start(opened, &make, options)?);
        let quota = Quota::new(options.frames);
        board.set_phase(Phase::Ready);
        let mut loop_result = Ok(Outcome::default());
        let mut source_errors = Vec::new();
        std::thread::scope(|scope| {
            let timer = {
                let (rows, blank) = (rows.clone(), Arc::clone(&blank));
                scope.spawn(move || self.watch_deadlines(&rows, &blank))
            };
            scope.spawn(|| self.keep_baselines());
            if let Some(commands) = outlet.commands {
                scope.spawn(move || self.take_commands(&commands));
            }
            if let Some(triggers) = outlet.triggers {
                scope.spawn(move || self.take_triggers(&triggers));
            }
            let (depot, rows, deliveries, cameras, quota) = (&depot, &rows, &deliveries[..], &cameras, &quota);
            let desks = benches.into_iter().enumerate().map(|(group, bench)| Desk {
                shared: bench.shared,
                group,
                inspector: bench.inspector,
                service: bench.service,
                cameras,
                depot,
                rows,
                deliveries,
                quota,
                outcome: Outcome::default(),
            });
            loop_result = desk::run_all(desks.collect(), scope);
            self.shared.recorder.finish(loop_result.as_ref().err());
            // Whatever waited is over; open parts are answered before the timer goes.
            board.set_phase(Phase::Stopping);
            let failed = loop_result.is_err() || self.source_failed.load(Ordering::Acquire);
            stop.raise(if failed { StopReason::Failed } else { StopReason::Done });
            drop(depot.close());
            source_errors.extend(cameras.lock().unwrap_or_else(PoisonError::into_inner).finish());
            for unanswered in self.shared.clerk.drain() {
                rows.put(blank.row(unanswered.stream, Some(unanswered.decided), Reason::Late), true);
            }
            let _ended = timer.join();
        });
        drop(rows);
        let mut errors = teller.finish();
        drop(outlet.server);
        let outcome = loop_result?;
        if let Some(error) = errors.drain(..).next() {
            return Err(error);
        }
        if let Some(error) = source_errors.drain(..).next() {
            return Err(error);
        }
        let live = options.streams.iter().any(|stream| stream.spec.kind() == SourceKind::Live);
        finish(outcome, stop, live)
    }

    fn stream(
        &self,
        index: usize,
        beat: Arc<Beat>,
        depot: &Arc<Depot>,
        rows: &RowSender,
        blank: &Arc<Blank>,
    ) -> Stream {
        let (rows, clerk, blank) = (rows.clone(), Arc::clone(&self.shared.clerk), Arc::clone(blank));
        let refused = move |work: Box<Work>| {
            let Some(tag) = &work.part else { return };
            if let Some(decided) = clerk.answer(&tag.id, crate::decision::Decision::NotInspected, Instant::now()) {
                rows.put(blank.row(index, Some(decided), Reason::Late), true);
            }
        };
        Stream {
            index,
            beat,
            source: Arc::clone(&self.shared.source),
            name: Arc::clone(&self.names[index]),
            spec: self.shared.options.streams[index].spec.clone(),
            depot: Arc::clone(depot),
            clerk: Arc::clone(&self.shared.clerk),
            board: Arc::clone(&self.shared.board),
            telemetry: Arc::clone(&self.shared.telemetry),
            stop: self.shared.stop.clone(),
            failed: Arc::clone(&self.source_failed),
            refused: Box::new(refused),
        }
    }

    /// Saves baselines beside the frame path, and answers who accepts one.
    fn keep_baselines(&self) {
        const EVERY: Duration = Duration::from_millis(500);
        loop {
            let ended = self.shared.stop.sleep(EVERY);
            self.shared.baselines.answer_request();
            self.shared.baselines.save();
            if ended {
                break;
            }
        }
    }

    /// Opens a part for each trigger that came over HTTP.
    fn take_triggers(&self, triggers: &Receiver<Trigger>) {
        const PATIENCE: Duration = Duration::from_millis(100);
        while !self.shared.stop.is_raised() {
            let Ok(trigger) = triggers.recv_timeout(PATIENCE) else { continue };
            let opened = self.shared.clerk.trigger(Some(&trigger.stream), Some(&trigger.part), trigger.received);
            if let Err(error) = opened {
                log::warn!("trigger of stream {}, part `{}` refused: {error}", trigger.stream, trigger.part);
                self.shared.telemetry.count(Metric::TriggersRefused, Labels::reason("part_id"));
            }
        }
    }

    /// Hands commands that came over HTTP to the service.
    fn take_commands(&self, commands: &Receiver<Command>) {
        const PATIENCE: Duration = Duration::from_millis(100);
        let door = &self.shared.options.service.reload.door;
        let products = &self.shared.options.service.products.door;
        while !self.shared.stop.is_raised() {
            match commands.recv_timeout(PATIENCE) {
                Ok(Command::Reload) => door.ask(),
                Ok(Command::Rollback) => door.ask_rollback(),
                Ok(Command::DeepLog(frames)) => {
                    if !self.shared.recorder.ask(frames) {
                        log::warn!("a deep log was asked for, and none can be kept now");
                    }
                }
                Ok(Command::Product { product, asked }) => products.ask(product, asked),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    }

    fn watch_deadlines(&self, rows: &RowSender, blank: &Blank) {
        const EVERY: Duration = Duration::from_millis(10);
        while !self.shared.stop.sleep(EVERY) {
            for unanswered in self.shared.clerk.expire(Instant::now()) {
                rows.put(blank.row(unanswered.stream, Some(unanswered.decided), Reason::Late), true);
            }
        }
    }
}

fn delivery(stream: &StreamOptions) -> Delivery {
    stream.delivery.unwrap_or(match stream.spec.kind() {
        SourceKind::Live => Delivery::Newest,
        SourceKind::Files => Delivery::Every,
    })
}

fn finish(mut outcome: Outcome, stop: &StopFlag, live: bool) -> Result<Outcome> {
    outcome.interrupted = stop.reason() == Some(StopReason::Interrupted);
    if outcome.interrupted {
        let message = if live {
            "interrupted; results so far are written"
        } else {
            "interrupted; the file of results is written only when every picture is answered"
        };
        return Err(Error::new(ErrorKind::Interrupted, message));
    }
    if outcome.unreadable > 0 {
        return Err(Error::source_failed(format!(
            "{} of {} pictures could not be read; their rows say `fault`, reason `unreadable`",
            outcome.unreadable,
            outcome.results.values().sum::<u64>()
        ))
        .hint("the warnings above name them; all other pictures are answered"));
    }
    Ok(outcome)
}

/// Makes rows for parts that nobody answered.
struct Blank {
    names: Vec<StreamName>,
    presents: Vec<Arc<Present>>,
}

impl Blank {
    fn row(&self, stream: usize, decided: Option<crate::decision::parts::Decided>, reason: Reason) -> Row {
        let present = &self.presents[stream];
        Row {
            stream: Arc::clone(&self.names[stream]),
            number: None,
            captured_at: None,
            source: None,
            trust: Trust::Fault,
            reasons: vec![reason],
            observed: Vec::new(),
            standing: Default::default(),
            decision: decided.as_ref().filter(|_| present.has_rule()).map(|decided| decided.decision),
            age_ms: decided.as_ref().map_or(0.0, |decided| milliseconds(decided.triggered.elapsed())),
            part: decided.map(|decided| decided.part),
            proved_at: present.proved_at(),
            detections: None,
            boxes_before_nms: 0,
            timings: Default::default(),
            memory: Default::default(),
            engine: present.stamp(),
            frame: None,
        }
    }
}
