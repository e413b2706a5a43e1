//! ONNX bytes → plan, on a thread of its own so that progress can be told and the build can be given up.

use super::asked::Held;
use super::faults::{self, GraphFacts};
use super::{PlanOrder, dotted, timings};
use crate::build::watcher::Watcher;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::cuda::{self, Driver};
use crate::ffi::process;
use crate::ffi::tensorrt::callbacks::{self, FoldedLine, Phase, ProgressMonitor, ReportedError};
use crate::ffi::tensorrt::version::{Flavour, Version};
use crate::ffi::tensorrt::{
    BuildSettings, Builder, Config, DataType, Library, Network, ProfilingVerbosity, TensorFacts,
};
use crate::units::{Bytes, count};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the watcher is asked and told.
const TICK: Duration = Duration::from_millis(100);
/// A line this often when nothing else shows that the build goes on.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// One build.
#[derive(Debug, Clone)]
pub struct Request {
    /// The graph as it runs: static shapes, weights inside.
    pub model: Vec<u8>,
    /// Family, target and limits.
    pub order: PlanOrder,
    /// What the graph holds that some TensorRT cannot do.
    pub graph: GraphFacts,
    /// Precisions below FP32 in the graph: TensorRT 8 must be allowed them, all others take them from the graph.
    pub precisions: Vec<DataType>,
    /// What TensorRT 8 is held to; all others take the types from the graph.
    pub held: Held,
    /// How much the plan remembers of itself.
    pub verbosity: ProfilingVerbosity,
    /// Folder with the timings of earlier builds; `None` starts afresh and keeps none.
    pub timings: Option<PathBuf>,
}

/// A plan and how it came about.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The plan.
    pub plan: Vec<u8>,
    /// Version of TensorRT.
    pub version: Version,
    /// Layers that the parser made, before fusion.
    pub parsed_layers: u32,
    /// Inputs, then outputs.
    pub tensors: Vec<TensorFacts>,
    /// TensorRT's warnings, those that differ in numbers alone counted.
    pub warnings: Vec<FoldedLine>,
    /// The timing cache, when it was kept.
    pub timings: Option<PathBuf>,
    /// Name of the GPU it was made on; `None` when it was made without one.
    pub made_on: Option<String>,
    /// How long it took.
    pub took: Duration,
}

/// Builds a plan.
///
/// # Errors
/// [`ErrorKind::MachineLacks`]: library, parser or driver missing or of the wrong version; [`ErrorKind::Refused`]: TensorRT does
/// not take the graph, or a known fault makes the build pointless; [`ErrorKind::TimeLimit`]; [`ErrorKind::Interrupted`].
pub fn compile(request: Request, watcher: &mut dyn Watcher) -> Result<Compiled> {
    let library = Library::open(request.order.flavour, &request.order.search)?;
    let (flavour, version, capability) = (library.flavour(), library.version(), request.order.compute_capability);
    watcher.say(&format!(
        "compiling: {} {version} from {}, compute capability {}, workspace {}",
        flavour.product(),
        library.path().display(),
        dotted(capability),
        request.order.workspace
    ));
    let known = faults::known(flavour, version, capability, &request.graph);
    faults::refuse_fatal(&known)?;
    for fault in &known {
        watcher.warn(&format!("{}; way out: {}", fault.what, fault.way_out));
    }
    let facts = request.graph.clone();
    let (control, time_limit) = (Arc::new(Control::default()), request.order.time_limit);
    let (sender, receiver) = channel();
    let for_builder = Arc::clone(&control);
    let builder = std::thread::Builder::new().name("tensorrt-build".to_owned()).spawn(move || {
        let built = build(&library, &request, &for_builder);
        // Nobody waits any more when the build was given up.
        let _given_up = sender.send(built);
    });
    builder.map_err(|error| Error::unexpected("no thread for the build").because(error))?;
    let mut clock = Clock::new(time_limit);
    let built = loop {
        match receiver.recv_timeout(TICK) {
            Ok(built) => break built,
            Err(RecvTimeoutError::Disconnected) => {
                break Err(Error::unexpected("the build's thread ended without an answer"));
            }
            Err(RecvTimeoutError::Timeout) => clock.tick(&control, watcher),
        }
        // TensorRT 8 never asks whether to go on: the build is left behind and ends with the process.
        if flavour == Flavour::Trt8 && control.given_up().is_some() {
            process::left_behind();
            break Err(control.reason(time_limit));
        }
    };
    watcher.phase_done();
    let compiled = built.map_err(|failure| {
        if control.given_up().is_some() {
            return control.reason(time_limit);
        }
        match faults::way_out_of(failure.message(), &known, &facts, capability) {
            Some(way_out) => failure.hint(way_out),
            None => failure,
        }
    })?;
    watcher.say(&format!(
        "compiled: {} in {:.1} s from {} layers",
        Bytes(count(compiled.plan.len())),
        compiled.took.as_secs_f64(),
        compiled.parsed_layers
    ));
    for line in &compiled.warnings {
        watcher.warn(&format!("TensorRT: {line}"));
    }
    Ok(compiled)
}

const RUNNING: u8 = 0;
const STOPPED: u8 = 1;
const OUT_OF_TIME: u8 = 2;

/// What the building thread and the waiting one share.
#[derive(Default)]
struct Control {
    given_up: AtomicU8,
    phases: Mutex<Vec<Phase>>,
}

impl Control {
    fn give_up(&self, why: u8) {
        let _first_reason_stays = self.given_up.compare_exchange(RUNNING, why, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn given_up(&self) -> Option<u8> {
        Some(self.given_up.load(Ordering::Relaxed)).filter(|&why| why != RUNNING)
    }

    fn reason(&self, limit: Option<Duration>) -> Error {
        if self.given_up() == Some(OUT_OF_TIME) {
            let seconds = limit.unwrap_or_default().as_secs_f64();
            Error::new(ErrorKind::TimeLimit, format!("found no plan within the time limit of {seconds} s"))
                .hint("timings measured so far are kept where TensorRT gives them: the next build is faster; or raise `--time-limit`")
        } else {
            Error::new(ErrorKind::Interrupted, "interrupted; no plan was written")
        }
    }
}

impl ProgressMonitor for Control {
    fn progress(&self, phases: &[Phase]) -> bool {
        *self.phases.lock().unwrap_or_else(PoisonError::into_inner) = phases.to_vec();
        self.given_up().is_none()
    }
}

/// What happens at each tick while the build runs.
struct Clock {
    started: Instant,
    limit: Option<Duration>,
    last_line: Instant,
}

impl Clock {
    fn new(limit: Option<Duration>) -> Clock {
        Clock { started: Instant::now(), limit, last_line: Instant::now() }
    }

    fn tick(&mut self, control: &Control, watcher: &mut dyn Watcher) {
        if watcher.check_stop().is_err() {
            control.give_up(STOPPED);
        }
        if self.limit.is_some_and(|limit| self.started.elapsed() >= limit) {
            control.give_up(OUT_OF_TIME);
        }
        let phases = control.phases.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let innermost = phases.last().map_or("", |phase| phase.name.as_str());
        if let Some(outermost) = phases.first() {
            watcher.phase(innermost, u64::from(outermost.done), u64::from(outermost.steps));
        }
        if self.last_line.elapsed() >= HEARTBEAT {
            self.last_line = Instant::now();
            let at = if innermost.is_empty() { String::new() } else { format!(", at `{innermost}`") };
            watcher.say(&format!("still compiling after {} s{at}", self.started.elapsed().as_secs()));
        }
    }
}

/// TensorRT has one logger a process: one build at a time, so that lines belong to their build.
static ONE_BUILD_AT_A_TIME: Mutex<()> = Mutex::new(());

fn build(library: &Arc<Library>, request: &Request, control: &Arc<Control>) -> Result<Compiled> {
    let _turn = ONE_BUILD_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let started = Instant::now();
    let once = |held: &Held| build_held(library, request, held, control, started);
    let mut built = once(&request.held);
    let stumbles = |error: &Error| faults::lacks_implementation(error.message()) && control.given_up().is_none();
    if !request.held.half.is_empty() && built.as_ref().is_err_and(stumbles) {
        log::warn!("TensorRT has no kernel for a layer that the graph asks in half; such layers may compute in float");
        let freed = Held { half: vec![], ..request.held.clone() };
        built = once(&freed);
    }
    built
}

/// One build, of a network whose layers TensorRT 8 is `held` to a precision; what it took counts from `started`.
fn build_held(
    library: &Arc<Library>,
    request: &Request,
    held: &Held,
    control: &Arc<Control>,
    started: Instant,
) -> Result<Compiled> {
    let order = &request.order;
    let device = device(order)?;
    let builder = Builder::new(library)?;
    let log = callbacks::collect_log();
    let network = Network::from_onnx(&builder, &request.model)?;
    let tensors = network.tensors()?;
    if let Some(open) = tensors.iter().find(|tensor| tensor.bytes().is_none()) {
        return Err(Error::refused(format!("found sizes {:?} in the parsed network, expected fixed ones", open.sizes))
            .at(format!("tensor `{}`", open.name)));
    }
    let on_8 = order.flavour == Flavour::Trt8 && !request.precisions.is_empty();
    if on_8 {
        network.hold(&held.float, DataType::Float)?;
        network.hold(&held.half, DataType::Half)?;
    }
    let target =
        device.as_ref().map_or_else(|| format!("cc{}", dotted(order.compute_capability)), |d| d.device().name.clone());
    let settings = (&request.precisions, held, order.workspace, order.optimization_level, request.verbosity);
    let file = request.timings.as_ref().map(|folder| {
        let structure = timings::structure(&request.model, &settings);
        timings::file(folder, order.flavour, library.version(), &target, &structure)
    });
    let configured = |timing_cache: Vec<u8>| {
        Config::new(
            &builder,
            &BuildSettings {
                workspace: order.workspace,
                verbosity: request.verbosity,
                optimization_level: order.optimization_level,
                compute_capabilities: if order.flavour.builds_without_gpu() {
                    vec![order.compute_capability]
                } else {
                    vec![]
                },
                watcher: Some(Arc::clone(control) as Arc<dyn ProgressMonitor>),
                timing_cache,
                precisions: if on_8 { request.precisions.clone() } else { vec![] },
            },
        )
    };
    let mut config = configured(file.as_deref().map(timings::read).unwrap_or_default())?;
    if config.cache_was_refused() {
        log::warn!("TensorRT does not take the timings of earlier builds; it starts afresh");
    }
    let mut plan = builder.build(&network, &config);
    if matches!(plan, Ok(None)) && control.given_up().is_none() {
        let errors = builder.take_errors();
        if !errors.iter().any(timings::is_to_blame) {
            return Err(failed(library, &errors));
        }
        log::warn!("TensorRT stumbles over the timings of an earlier build; it starts afresh");
        config = configured(vec![])?;
        plan = builder.build(&network, &config);
    }
    // What a failed build leaves makes TensorRT 8.6 fail again; a build that was given up leaves what it measured.
    let worth_keeping = control.given_up().is_some() || matches!(plan, Ok(Some(_)));
    let kept = if worth_keeping { keep_timings(&config, file) } else { None };
    let plan = plan?.ok_or_else(|| failed(library, &builder.take_errors()))?;
    Ok(Compiled {
        plan,
        version: library.version(),
        parsed_layers: network.layers()?,
        tensors,
        warnings: log.lines(),
        timings: kept,
        made_on: device.map(|device| device.device().name.clone()),
        took: started.elapsed(),
    })
}

/// The context of the GPU to build on; none where the family builds without.
fn device(order: &PlanOrder) -> Result<Option<Arc<cuda::Context>>> {
    if order.flavour.builds_without_gpu() {
        return Ok(None);
    }
    let driver = Driver::load()?;
    let wanted = order.compute_capability;
    let found = cuda::devices(driver)?.into_iter().find(|device| device.compute_capability == wanted);
    let found = found.ok_or_else(|| {
        Error::machine_lacks(format!("found no GPU of compute capability {}, expected one to build on", dotted(wanted)))
    })?;
    cuda::Context::new(driver, found.ordinal, cuda::Wait::Block).map(Some)
}

/// Keeps the timings, also of a build that was cancelled. A cache that cannot be kept costs only time.
fn keep_timings(config: &Config, file: Option<PathBuf>) -> Option<PathBuf> {
    let file = file?;
    let kept = match config.timings() {
        Ok(Some(timings)) => timings::keep(&file, &timings),
        Ok(None) => return None,
        Err(error) => Err(error),
    };
    match kept {
        Ok(()) => Some(file),
        Err(error) => {
            log::warn!("the timings of this build are not kept: {}", error.message());
            None
        }
    }
}

fn failed(library: &Library, errors: &[ReportedError]) -> Error {
    let (product, version) = (library.flavour().product(), library.version());
    let reason =
        errors.iter().find(|error| !error.text.is_empty()).map_or("it gave no reason", |error| error.text.as_str());
    let more = if errors.len() > 1 { format!(" (and {} more errors)", errors.len() - 1) } else { String::new() };
    let message = format!("{product} {version} made no plan: {reason}{more}");
    if errors.iter().any(|error| error.text.contains("OutOfMemory") || error.text.contains("out of memory")) {
        return Error::new(ErrorKind::Budget, message).hint("free GPU memory, or lower `--workspace`");
    }
    Error::refused(message)
}
