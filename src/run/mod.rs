//! Wiring: threads, lanes, warmup, proof, the loop over captures, and an orderly end. Nobody imports this module.
//!
//! One thread a camera, one for the engine ([`host`]), the loop over captures on the caller's, one sink thread, one timer for
//! deadlines, one small HTTP runtime. Between them are bounded lanes ([`depot`]) and one bounded channel of rows
//! ([`teller`]). Between frames, the `service` asks for known answers and repairs what is broken.

pub mod baselines;
pub mod bench;
mod blank;
mod bring_up;
mod budget;
mod cameras;
pub mod clerk;
pub mod depot;
mod desk;
pub mod doctor;
mod errands;
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
mod options;
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

use crate::camera::{self, Camera, SourceInfo, SourceKind};
use crate::decision::Rule;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::StreamName;
use crate::guard::Reason;
use crate::sinks::http::{Board, Phase, StreamSetup};
use crate::telemetry::Telemetry;
use baselines::Baselines;
use blank::Blank;
use bring_up::{Bench, Opened};
use budget::Books;
use cameras::{Beat, Cameras};
use clerk::Clerk;
use depot::{Delivery, Depot, Work};
use desk::Desk;
use incident::Recorder;
use notify::Supervised;
use present::Present;
use source::{BundleEngines, EngineSource};
use state::StateFolder;
use station::{Quota, Station};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use stop::{StopFlag, StopReason};
use stream::Stream;
use teller::{RowSender, Teller};

pub use options::{Options, Outcome, StreamOptions};
pub use outlet::OutputOptions;
pub use service::reload::{ROLLBACK_REQUEST, ReloadDoor, ReloadOptions, Settled};
pub use service::{Incident, ServiceOptions, StandbyLimits};

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
        let deliveries: Vec<Delivery> = options.streams.iter().map(StreamOptions::delivery).collect();
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
                scope.spawn(move || self.shared.watch_deadlines(&rows, &blank))
            };
            scope.spawn(|| self.shared.keep_baselines());
            if let Some(commands) = outlet.commands {
                scope.spawn(move || self.shared.take_commands(&commands));
            }
            if let Some(triggers) = outlet.triggers {
                scope.spawn(move || self.shared.take_triggers(&triggers));
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
