//! The CPU engine: letterbox, network, candidates. The network runs in rten (built in) or in ONNX Runtime (found at run
//! time).

mod declared;
mod onnxruntime;
pub mod probe;
mod rten;
mod threads;

use super::candidates::{self, RawTensor, Scratch, Wanted, extract};
use super::letterbox::{Filler, PADDING, Sample};
use super::{
    Candidates, ElementType, Engine, EngineInfo, EngineTimings, Inference, InputSpec, Layout, Letterbox, MemoryFigures,
};
use crate::error::{Error, Result};
use crate::frame::{Frame, Picture};
use crate::onnx::Model;
use crate::onnx::twin::{self, Rounding};
use crate::units::{Bytes, count, count32, index, milliseconds};
use declared::Declared;
use half::f16;
use std::sync::Arc;
use std::time::Instant;

/// Which library runs the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CpuBackend {
    /// ONNX Runtime where `EDGE_ORT_LIB` or the loader's paths have one that can be used, else rten.
    #[default]
    Auto,
    /// The built-in one.
    Rten,
    /// ONNX Runtime, or an error when it is not found.
    OnnxRuntime,
}

impl std::str::FromStr for CpuBackend {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(CpuBackend::Auto),
            "rten" => Ok(CpuBackend::Rten),
            "onnxruntime" => Ok(CpuBackend::OnnxRuntime),
            _ => Err(Error::usage(format!("found CPU backend `{text}`, expected `auto`, `rten` or `onnxruntime`"))),
        }
    }
}

/// How the CPU engine runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuOptions {
    /// Which library runs the network.
    pub backend: CpuBackend,
    /// Threads of the network; `None` takes one a physical core that this process may use.
    pub threads: Option<u32>,
    /// Whether halves are computed as halves, by the float twin of the graph ([`crate::onnx::twin`]): slower, and what a
    /// GPU would give.
    pub emulate_half: bool,
}

/// Loads `model` (the bytes of an ONNX file), compares it with what the bundle says of it and runs it once on an empty
/// picture, so that a network which loads but cannot run never gets into service.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] when the model cannot be read, cannot run or differs from `input`, `layout` or `classes`,
/// [`crate::ErrorKind::MachineLacks`] when ONNX Runtime was asked for and is not found or cannot be used.
pub fn load(
    model: &[u8],
    input: &InputSpec,
    layout: &Layout,
    classes: Arc<[String]>,
    score_floor: f32,
    options: &CpuOptions,
) -> Result<Box<dyn Engine>> {
    if input.batch == 0 {
        return Err(Error::refused("found batch 0, expected at least 1"));
    }
    let declared = Declared::read(model)?;
    declared.check(input, layout)?;
    if classes.len() != index(layout.classes()) {
        return Err(Error::refused(format!(
            "found {} class names, expected {} as the output has",
            classes.len(),
            layout.classes()
        )));
    }
    let threads = options.threads.unwrap_or_else(threads::physical_cores).max(1);
    let outputs = declared::named_outputs(layout, input.batch).into_iter().map(|(name, _)| name.to_owned()).collect();
    let order = Order { model, input, layout, outputs, threads };
    let (network, buffer) = open(order, options)?;
    let output_bytes = 4 * declared::output_elements(layout, input.batch);
    let known = Bytes(declared.weight_bytes + buffer.bytes() + output_bytes);
    let info = EngineInfo {
        backend: network.backend().to_owned(),
        input: input.clone(),
        layout: layout.clone(),
        classes,
        score_floor,
        threads,
    };
    log::info!("network runs in {} with {threads} threads", info.backend);
    Ok(Box::new(CpuEngine {
        info,
        network,
        buffer,
        filler: Filler::new(),
        letterboxes: Vec::new(),
        filled: 0,
        scratch: Scratch::default(),
        spare: Vec::new(),
        known,
    }))
}

/// Name and version of the library that `options` choose on this machine, without loading a model.
pub fn backend(options: &CpuOptions) -> String {
    let half = if options.emulate_half { ", halves as halves" } else { "" };
    let onnxruntime = match options.backend {
        CpuBackend::Rten => None,
        CpuBackend::Auto | CpuBackend::OnnxRuntime => onnxruntime::runtime().ok(),
    };
    let name = match (onnxruntime, options.backend) {
        (Some(runtime), _) => runtime.name(),
        (None, CpuBackend::OnnxRuntime) => "no onnxruntime".to_owned(),
        (None, _) => rten::BACKEND.to_owned(),
    };
    name + half
}

fn open(order: Order<'_>, options: &CpuOptions) -> Result<(Box<dyn Network>, InputBuffer)> {
    let twins = if options.emulate_half { Some(Twins::of(order.model)?) } else { None };
    let order = |backend: CpuBackend| match &twins {
        Some(twins) if backend == CpuBackend::Rten => Order { model: &twins.arithmetic, ..order.clone() },
        Some(twins) => Order { model: &twins.casts, ..order.clone() },
        None => order.clone(),
    };
    let rten = || tried(rten::open(order(CpuBackend::Rten))?, &order(CpuBackend::Rten));
    let onnxruntime = || tried(onnxruntime::open(order(CpuBackend::OnnxRuntime))?, &order(CpuBackend::OnnxRuntime));
    choose(options.backend, onnxruntime, rten)
}

/// Opens a network without running it.
fn open_network(order: Order<'_>, backend: CpuBackend) -> Result<Box<dyn Network>> {
    choose(backend, || onnxruntime::open(order.clone()), || rten::open(order.clone()))
}

/// Takes the backend that is asked for, or the first that works.
fn choose<T>(backend: CpuBackend, onnxruntime: impl Fn() -> Result<T>, rten: impl Fn() -> Result<T>) -> Result<T> {
    match backend {
        CpuBackend::Rten => rten(),
        CpuBackend::OnnxRuntime => onnxruntime(),
        CpuBackend::Auto => match onnxruntime::runtime() {
            Ok(_) => onnxruntime().or_else(|error| {
                log::warn!("onnxruntime refused the model, rten runs it: {error}");
                rten()
            }),
            Err(error) => {
                onnxruntime::say_once(&error);
                rten()
            }
        },
    }
}

/// The float twins of a graph with halves, one for each backend.
struct Twins {
    casts: Vec<u8>,
    arithmetic: Vec<u8>,
}

impl Twins {
    fn of(model: &[u8]) -> Result<Twins> {
        let twin = |rounding| {
            let mut model = Model::from_bytes(model)?;
            twin::make_twin(&mut model, rounding)?;
            model.to_bytes()
        };
        Ok(Twins { casts: twin(Rounding::Casts)?, arithmetic: twin(Rounding::Arithmetic)? })
    }
}

/// Runs the network once and reads its outputs.
fn tried(mut network: Box<dyn Network>, order: &Order<'_>) -> Result<(Box<dyn Network>, InputBuffer)> {
    let buffer = InputBuffer::new(network.input_element(), declared::input_elements(order.input));
    let (mut scratch, mut candidates) = (Scratch::default(), Candidates::default());
    let mut visit = |outputs: &[RawTensor<'_>]| {
        let wanted = Wanted { picture: index(order.input.batch) - 1, floor: 1.0, cap: candidates::CAP };
        extract(outputs, order.layout, wanted, &mut scratch, &mut candidates).map(|_| ())
    };
    network
        .run(&buffer, &mut visit)
        .map_err(|error| Error::refused("found a model that loads and cannot run").because(error))?;
    Ok((network, buffer))
}

/// What a backend is asked to run.
#[derive(Clone)]
struct Order<'a> {
    model: &'a [u8],
    input: &'a InputSpec,
    layout: &'a Layout,
    outputs: Vec<String>,
    threads: u32,
}

/// A loaded network.
trait Network: Send {
    /// Name with version.
    fn backend(&self) -> &str;

    /// The element type in which this backend wants the input.
    fn input_element(&self) -> ElementType;

    /// Runs the network and shows its outputs to `visit`.
    fn run(&mut self, input: &InputBuffer, visit: &mut Visit<'_>) -> Result<()>;
}

/// What is done with the outputs while they live.
type Visit<'a> = dyn FnMut(&[RawTensor<'_>]) -> Result<()> + 'a;

/// The input of one run, `[batch, channels, height, width]`.
enum InputBuffer {
    F32(Vec<f32>),
    F16(Vec<f16>),
    U8(Vec<u8>),
}

impl InputBuffer {
    fn new(element: ElementType, elements: usize) -> InputBuffer {
        match element {
            ElementType::F16 => InputBuffer::F16(vec![Sample::from_grey(PADDING); elements]),
            ElementType::U8 => InputBuffer::U8(vec![PADDING; elements]),
            _ => InputBuffer::F32(vec![Sample::from_grey(PADDING); elements]),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            InputBuffer::F32(values) => 4 * count(values.len()),
            InputBuffer::F16(values) => 2 * count(values.len()),
            InputBuffer::U8(values) => count(values.len()),
        }
    }

    /// Grey again in the slots from `used` to `filled`, which held pictures before and hold none now.
    fn clear(&mut self, slot_length: usize, used: usize, filled: usize) {
        let stale = used.min(filled) * slot_length..filled * slot_length;
        match self {
            InputBuffer::F32(values) => values[stale].fill(Sample::from_grey(PADDING)),
            InputBuffer::F16(values) => values[stale].fill(Sample::from_grey(PADDING)),
            InputBuffer::U8(values) => values[stale].fill(PADDING),
        }
    }

    /// Fills the place of picture `slot`.
    fn fill(
        &mut self,
        filler: &mut Filler,
        picture: &Picture,
        letterbox: &Letterbox,
        channels: u32,
        slot: usize,
    ) -> Result<()> {
        let length = index(channels) * letterbox.input.pixels();
        let place = slot * length..(slot + 1) * length;
        match self {
            InputBuffer::F32(values) => filler.fill(picture, letterbox, channels, &mut values[place]),
            InputBuffer::F16(values) => filler.fill(picture, letterbox, channels, &mut values[place]),
            InputBuffer::U8(values) => filler.fill(picture, letterbox, channels, &mut values[place]),
        }
    }
}

struct CpuEngine {
    info: EngineInfo,
    network: Box<dyn Network>,
    buffer: InputBuffer,
    filler: Filler,
    letterboxes: Vec<Letterbox>,
    /// Slots of the buffer that hold pictures.
    filled: usize,
    scratch: Scratch,
    spare: Vec<Candidates>,
    /// Weights, input and outputs; what the backend takes for itself is not known.
    known: Bytes,
}

impl CpuEngine {
    fn preprocess(&mut self, frames: &[&Frame]) -> Result<()> {
        let InputSpec { channels, size, .. } = self.info.input;
        self.letterboxes.clear();
        self.buffer.clear(index(channels) * size.pixels(), frames.len(), self.filled);
        self.filled = frames.len();
        for (slot, frame) in frames.iter().enumerate() {
            let letterbox = Letterbox::fit(frame.picture.size, size);
            self.buffer
                .fill(&mut self.filler, &frame.picture, &letterbox, channels, slot)
                .map_err(|error| error.at(format_args!("stream `{}`, frame {}", frame.stream, frame.number)))?;
            self.letterboxes.push(letterbox);
        }
        Ok(())
    }
}

impl Engine for CpuEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn infer(&mut self, frames: &[&Frame], answers: &mut Vec<Inference>) -> Result<()> {
        super::check_batch(&self.info, frames)?;
        if frames.is_empty() {
            return Ok(());
        }
        let start = Instant::now();
        self.preprocess(frames)?;
        let shares = f64::from(count32(frames.len()));
        let preprocess_ms = milliseconds(start.elapsed()) / shares;
        let before = answers.len();
        let CpuEngine { info, network, buffer, letterboxes, scratch, spare, .. } = self;
        let start = Instant::now();
        let mut visit = |outputs: &[RawTensor<'_>]| {
            let inference_ms = milliseconds(start.elapsed()) / shares;
            for (picture, (frame, letterbox)) in frames.iter().zip(letterboxes.iter()).enumerate() {
                let start = Instant::now();
                let mut candidates = spare.pop().unwrap_or_default();
                let wanted = Wanted { picture, floor: info.score_floor, cap: candidates::CAP };
                let stats = extract(outputs, &info.layout, wanted, scratch, &mut candidates)?;
                let postprocess_ms = milliseconds(start.elapsed());
                let timings = EngineTimings { preprocess_ms, transfer_ms: 0.0, inference_ms, postprocess_ms };
                answers.push(Inference { tag: frame.tag(), letterbox: *letterbox, candidates, stats, timings });
            }
            Ok(())
        };
        let ran = network.run(buffer, &mut visit);
        if ran.is_err() {
            answers.truncate(before);
        }
        ran
    }

    /// Weights as in the file, input and outputs. What the backend allocates for itself between layers is not known to
    /// this program; the process's resident size tells.
    fn memory(&self) -> MemoryFigures {
        MemoryFigures { allocated: self.known, peak: self.known, reserved: self.known }
    }

    fn recycle(&mut self, spent: Inference) {
        if self.spare.len() < super::SPARE_ANSWERS {
            self.spare.push(spent.candidates);
        }
    }

    fn set_score_floor(&mut self, score_floor: f32) {
        self.info.score_floor = score_floor;
    }
}
