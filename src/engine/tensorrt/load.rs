//! From a plan to an engine in service.

use super::{LaneState, Places, Staged, Stager, TensorRtEngine};
use crate::engine::candidates::CAP;
use crate::engine::{ElementType, EngineInfo, InputSpec, Layout};
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::cuda::{Budget, Context, Driver, Wait};
use crate::ffi::lane::{Decode, DecodeKind, Kernels, Lane, LaneLayout, LaneShape};
use crate::ffi::tensorrt::probe::Search;
use crate::ffi::tensorrt::version::Flavour;
use crate::ffi::tensorrt::{DataType, Engine as Deserialized, Library, Runtime, TensorFacts};
use crate::units::{Bytes, count, count32, index};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Room for one picture of 3840×2160 with 3 bytes a pixel; larger ones are letterboxed on the CPU.
const LARGEST_PICTURE: Bytes = Bytes(3840 * 2160 * 3 + 4096);
/// Share of the device's memory that an engine without a budget may take, percent.
pub const USUAL_SHARE_PERCENT: u64 = 80;

/// How the GPU engine runs.
#[derive(Debug, Clone)]
pub struct GpuOptions {
    /// Ordinal of the GPU.
    pub device: u32,
    /// How a thread waits for the GPU.
    pub wait: Wait,
    /// Where TensorRT's libraries are looked for.
    pub search: Search,
    /// Room for the pixels of one source picture.
    pub largest_picture: Bytes,
    /// Runs that can be in flight at once; [`GpuOptions::AS_FITS`] leaves it to whoever runs the engine and loads 1.
    pub lanes: u32,
    /// Whether the next pictures may be copied while a run is in flight: a second staging memory a lane. Not on a GPU that shares
    /// the host's memory, which has no bus to wait for.
    pub ahead: bool,
    /// GPU memory that the engine may take; `None`: 80 percent of the device's.
    pub budget: Option<Bytes>,
}

impl GpuOptions {
    /// The number of lanes is for the run to choose.
    pub const AS_FITS: u32 = 0;
}

impl Default for GpuOptions {
    fn default() -> Self {
        GpuOptions {
            device: 0,
            wait: Wait::Block,
            search: Search::new(None),
            largest_picture: LARGEST_PICTURE,
            lanes: 1,
            ahead: false,
            budget: None,
        }
    }
}

/// A plan with what the bundle says of it.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Its TensorRT family.
    pub flavour: Flavour,
    /// Input of the network.
    pub input: &'a InputSpec,
    /// Layout of the outputs.
    pub layout: &'a Layout,
}

/// What loading took.
#[derive(Debug, Clone)]
pub struct LoadFigures {
    /// Reading the plan.
    pub deserialize: Duration,
    /// Contexts, memory, first run and recording.
    pub prepare: Duration,
    /// Device memory in use when the CUDA context stood, other processes included.
    pub device_before: Bytes,
    /// Device memory that loading took, as the driver reports it.
    pub device_taken: Bytes,
    /// Of it what TensorRT asked our allocator for: weights and contexts.
    pub tensorrt: Bytes,
    /// Of it our one allocation.
    pub arena: Bytes,
    /// Of the arena TensorRT's activations, all lanes.
    pub activations: Bytes,
    /// Page-locked host memory.
    pub pinned: Bytes,
    /// Device allocations made: TensorRT's and our one.
    pub allocations: u64,
    /// Most that the engine may take.
    pub limit: Bytes,
    /// Lanes.
    pub lanes: u32,
    /// Sizes of a lane.
    pub shape: LaneShape,
    /// Inputs and outputs of a lane.
    pub tensors: Vec<Bytes>,
    /// TensorRT's activations of a lane.
    pub activations_each: Bytes,
}

impl LoadFigures {
    /// Device memory that is neither TensorRT's by our allocator nor our arena: code of kernels and libraries, granularity.
    pub fn overhead(&self) -> Bytes {
        Bytes(self.device_taken.0.saturating_sub(self.tensorrt.0 + self.arena.0))
    }
}

/// Loads a plan: checks it against the bundle, lays its memory out, runs it once and records it.
///
/// # Errors
/// [`ErrorKind::MachineLacks`]: driver or TensorRT missing; [`ErrorKind::Refused`]: TensorRT does not take the plan, or it
/// differs from the bundle; [`ErrorKind::Budget`]: it does not fit; [`ErrorKind::Device`].
pub fn load(
    plan: &Plan<'_>,
    classes: &Arc<[String]>,
    score_floor: f32,
    options: &GpuOptions,
) -> Result<TensorRtEngine> {
    let context = Context::new(Driver::load()?, options.device, options.wait)?;
    let library = Library::open(plan.flavour, &options.search)?;
    let before = context.memory()?;
    let limit = options.budget.unwrap_or(Bytes(before.total.0 / 100 * USUAL_SHARE_PERCENT));
    let budget = Budget::new(&context, limit);
    let explained = |error: Error| match budget.take_refusal() {
        Some(reason) => Error::new(ErrorKind::Budget, reason)
            .because(error)
            .hint("a smaller batch, input or model needs less; `--gpu-budget` raises the limit"),
        None => error,
    };
    let since = Instant::now();
    let runtime = Runtime::new(&library, Some(Arc::<Budget>::clone(&budget)))?;
    let engine = runtime.deserialize(plan.bytes).map_err(explained)?;
    let deserialize = since.elapsed();
    let since = Instant::now();
    let input_tensor = check_input(plan.input, engine.tensors())?;
    let ahead = options.ahead && !context.device().integrated;
    let layouts = lay_out(plan, &engine, &GpuOptions { ahead, ..options.clone() })?;
    let end = layouts.last().map_or(0, |layout| layout.end);
    let arena = budget.reserve(end).map_err(|error| error.at("memory plan"))?;
    let kernels = Kernels::load(&context, input_tensor, element(&engine.tensors()[input_tensor])?)?;
    let mut lanes = vec![];
    for layout in &layouts {
        let decode = decode(plan.layout);
        let mut lane = Lane::new(&engine, &kernels, &arena, layout.clone(), decode, options.wait).map_err(explained)?;
        if let Some(reason) = lane.graph_refused() {
            log::warn!("the network cannot be recorded as a CUDA graph, its steps are launched one by one: {reason}");
        }
        lane.set_floor(score_floor)?;
        let staged = layout.stagings().map(|_| Staged::default()).collect();
        lanes.push(LaneState { lane, staged });
    }
    let after = context.memory()?;
    let figures = LoadFigures {
        deserialize,
        prepare: since.elapsed(),
        device_before: Bytes(before.total.0 - before.free.0),
        device_taken: Bytes(before.free.0.saturating_sub(after.free.0)),
        tensorrt: budget.taken_by_tensorrt(),
        arena: Bytes(count(end)),
        activations: Bytes(layouts.iter().map(|layout| count(layout.activations.bytes)).sum()),
        allocations: budget.allocations(),
        limit,
        lanes: count32(lanes.len()),
        shape: layouts.first().map(|layout| layout.shape.clone()).ok_or_else(|| Error::unexpected("found no lane"))?,
        tensors: engine.tensors().iter().map(|tensor| Bytes(tensor.bytes().unwrap_or(0))).collect(),
        activations_each: engine.context_memory()?,
        pinned: Bytes(lanes.iter().map(|state| state.lane.pinned_bytes()).sum()),
    };
    let info = EngineInfo {
        backend: format!("{} {} on {}", library.flavour().product(), library.version(), context.device().name),
        input: plan.input.clone(),
        layout: plan.layout.clone(),
        classes: Arc::clone(classes),
        score_floor,
        threads: 0,
    };
    Ok(TensorRtEngine {
        places: Places::new(lanes.len(), layouts.iter().all(|layout| layout.shape.ahead)),
        lanes,
        info,
        stager: Stager::new(),
        spare: vec![],
        reserved: budget.allocated(),
        figures,
        deserialized: engine,
        budget,
        context,
    })
}

/// One layout a lane, one behind the other.
fn lay_out(plan: &Plan<'_>, engine: &Arc<Deserialized>, options: &GpuOptions) -> Result<Vec<LaneLayout>> {
    let input = plan.input;
    let shape = LaneShape {
        batch: input.batch,
        channels: input.channels,
        width: input.size.width_px,
        height: input.size.height_px,
        picture_bytes: usize::try_from(options.largest_picture.0)
            .unwrap_or(usize::MAX)
            .max(index(input.channels).saturating_mul(input.size.pixels())),
        anchors: plan.layout.capacity(),
        cap: plan.layout.capacity().min(count32(CAP)),
        ahead: options.ahead,
    };
    let tensors = engine.tensors().iter().map(tensor_bytes).collect::<Result<Vec<_>>>()?;
    let activations = usize::try_from(engine.context_memory()?.0).unwrap_or(usize::MAX).max(256);
    let mut layouts = vec![];
    let mut start = 0;
    for _ in 0..options.lanes.max(1) {
        let layout = LaneLayout::new(shape.clone(), &tensors, activations, start)?;
        start = layout.end;
        layouts.push(layout);
    }
    Ok(layouts)
}

fn tensor_bytes(facts: &TensorFacts) -> Result<usize> {
    facts.bytes().and_then(|bytes| usize::try_from(bytes).ok()).ok_or_else(|| {
        Error::refused(format!("found sizes {:?}, expected fixed ones", facts.sizes))
            .at(format!("tensor `{}`", facts.name))
    })
}

/// The place of the network's input, after it was compared with the bundle's.
fn check_input(spec: &InputSpec, tensors: &[TensorFacts]) -> Result<usize> {
    let inputs: Vec<usize> = (0..tensors.len()).filter(|&place| tensors[place].input).collect();
    let &[place] = inputs.as_slice() else {
        return Err(Error::refused(format!("found a plan with {} inputs, expected 1", inputs.len())));
    };
    let found = &tensors[place];
    let expected = [spec.batch, spec.channels, spec.size.height_px, spec.size.width_px].map(i64::from);
    let type_fits = match spec.element {
        ElementType::U8 => found.data_type == DataType::Uint8,
        ElementType::F32 | ElementType::F16 => matches!(found.data_type, DataType::Float | DataType::Half),
        _ => false,
    };
    if found.name != spec.name || found.sizes != expected || !type_fits {
        return Err(Error::refused(format!(
            "found a plan with input `{}` {:?} {:?}, expected `{}` {expected:?} {:?}",
            found.name, found.sizes, found.data_type, spec.name, spec.element
        )));
    }
    Ok(place)
}

/// The kernels' number of the input's type.
fn element(facts: &TensorFacts) -> Result<u32> {
    match facts.data_type {
        DataType::Float => Ok(0),
        DataType::Half => Ok(1),
        DataType::Uint8 => Ok(2),
        other => Err(Error::refused(format!("found an input of {other:?}, expected floats or bytes"))),
    }
}

pub(super) fn decode(layout: &Layout) -> Decode {
    let (kind, tensors) = match layout {
        Layout::Raw { output, .. } => (DecodeKind::Raw, vec![output]),
        Layout::Objectness { output, .. } => (DecodeKind::Objectness, vec![output]),
        Layout::EndToEnd { output, .. } => (DecodeKind::EndToEnd, vec![output]),
        Layout::NmsPlugin { count, boxes, scores, class_ids, .. } => {
            (DecodeKind::Plugin, vec![count, boxes, scores, class_ids])
        }
    };
    Decode::new(kind, layout.classes(), tensors.into_iter().cloned().collect())
}
