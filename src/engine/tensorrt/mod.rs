//! The GPU engine: a TensorRT plan with the project's kernels around it.
//!
//! Everything is laid out before the first frame: one device allocation of ours ([`crate::ffi::lane::LaneLayout`], once a lane) and what
//! TensorRT takes for weights and contexts, both under one [`Budget`]. A run copies the pictures to the device and launches one
//! graph: letterbox, network, candidates, answers back.

mod answers;
mod check;
mod load;
mod places;
mod stage;

pub use check::{CheckLine, check_kernels};
pub use load::{GpuOptions, LoadFigures, Plan, USUAL_SHARE_PERCENT, load};

use super::{Engine, EngineInfo, EngineTimings, Inference, Letterbox, MemoryFigures, SPARE_ANSWERS, check_batch};
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::cuda::{Budget, Context, DeviceFacts, MemoryInfo};
use crate::ffi::lane::{DeviceTimes, Lane, LaneLayout};
use crate::frame::{Frame, FrameTag};
use crate::units::{Bytes, count32, milliseconds};
use places::{Begins, Places};
use stage::Stager;
use std::sync::Arc;
use std::time::Duration;

/// A plan in service. One thread owns it.
pub struct TensorRtEngine {
    lanes: Vec<LaneState>,
    places: Places,
    info: EngineInfo,
    stager: Stager,
    spare: Vec<Inference>,
    figures: LoadFigures,
    deserialized: Arc<crate::ffi::tensorrt::Engine>,
    budget: Arc<Budget>,
    context: Arc<Context>,
    reserved: Bytes,
}

impl Drop for TensorRtEngine {
    /// A context that is lost gives nothing back, and TensorRT asks for each of its thousand events and streams one by one (7 s on
    /// an H200) while the line waits for a restart: what such an engine held is left to the end of the process.
    fn drop(&mut self) {
        let Err(error) = self.context.synchronize() else { return };
        if error.kind() != ErrorKind::Device {
            return;
        }
        log::warn!("an engine's GPU memory is left to the end of the process: {}", error.message());
        std::mem::forget(std::mem::take(&mut self.lanes));
        std::mem::forget(Arc::clone(&self.deserialized));
        std::mem::forget(Arc::clone(&self.budget));
        std::mem::forget(Arc::clone(&self.context));
    }
}

/// A lane and what lies in it.
struct LaneState {
    lane: Lane,
    /// What lies in each of its staging memories.
    staged: Vec<Staged>,
}

/// What lies in one staging memory.
#[derive(Default)]
struct Staged {
    /// Frames in the slots, in order; the slots behind them are unused.
    frames: Vec<(FrameTag, Letterbox)>,
    /// Slots that hold a picture.
    filled: u32,
}

impl TensorRtEngine {
    /// Number of lanes: runs that the GPU can have at once.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// What loading cost.
    pub fn figures(&self) -> &LoadFigures {
        &self.figures
    }

    /// The layers as TensorRT's inspector describes them.
    ///
    /// # Errors
    /// TensorRT gives none.
    pub fn layer_information(&self) -> Result<String> {
        self.context.make_current()?;
        self.deserialized.layer_information()
    }

    /// The GPU.
    pub fn device(&self) -> &DeviceFacts {
        self.context.device()
    }

    /// The sizes of a lane.
    ///
    /// # Errors
    /// There is no such lane.
    pub fn layout(&mut self, lane: usize) -> Result<&LaneLayout> {
        Ok(self.lane(lane)?.lane.layout())
    }

    /// Device memory at this moment, all processes together; asks the driver.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn device_memory(&self) -> Result<MemoryInfo> {
        self.context.memory()
    }

    /// Device allocations so far; must not grow after loading.
    pub fn device_allocations(&self) -> u64 {
        self.budget.allocations()
    }

    fn lane(&mut self, lane: usize) -> Result<&mut LaneState> {
        let known = self.lanes.len();
        self.lanes.get_mut(lane).ok_or_else(|| Error::unexpected(format!("found lane {lane}, expected below {known}")))
    }

    /// Puts frames into a lane for its next run, in order; slots without a frame answer nothing. With [`GpuOptions::ahead`] also
    /// while a run is in flight.
    ///
    /// # Errors
    /// As [`Engine::infer`]; the lane is in flight, or its next pictures were sent ahead already.
    pub fn stage(&mut self, lane: usize, frames: &[&Frame]) -> Result<()> {
        check_batch(&self.info, frames)?;
        let known = self.lanes.len();
        let state = self
            .lanes
            .get_mut(lane)
            .ok_or_else(|| Error::unexpected(format!("found lane {lane}, expected below {known}")))?;
        let next = state.lane.next_set();
        let Some(staged) = state.staged.get_mut(next) else {
            return Err(Error::unexpected(format!("found no staging memory {next}")));
        };
        staged.frames.clear();
        for (slot, frame) in (0..).zip(frames) {
            let letterbox = self.stager.stage(&mut state.lane, slot, &frame.picture)?;
            staged.frames.push((frame.tag(), letterbox));
        }
        let used = count32(frames.len());
        for slot in used..staged.filled {
            state.lane.stage(slot, None)?;
        }
        staged.filled = used;
        Ok(())
    }

    /// Lets the next run of a lane copy its pictures again.
    ///
    /// # Errors
    /// There is no such lane.
    pub fn stage_again(&mut self, lane: usize) -> Result<()> {
        self.lane(lane)?.lane.stage_again();
        Ok(())
    }

    /// Starts to copy what was staged for a lane's next run, also while one is in flight; nothing without [`GpuOptions::ahead`].
    ///
    /// # Errors
    /// As [`Engine::infer`].
    pub fn send_ahead(&mut self, lane: usize) -> Result<()> {
        self.lane(lane)?.lane.send_ahead()
    }

    /// Starts a run of what was staged.
    ///
    /// # Errors
    /// As [`Engine::infer`]; the lane is in flight.
    pub fn submit(&mut self, lane: usize) -> Result<()> {
        self.lane(lane)?.lane.submit()
    }

    /// Waits for a run and appends its answers, one a frame that was staged, in order.
    ///
    /// # Errors
    /// As [`Engine::infer`]; nothing is appended then.
    pub fn collect(&mut self, lane: usize, answers: &mut Vec<Inference>) -> Result<()> {
        let mut spare = std::mem::take(&mut self.spare);
        let before = answers.len();
        let collected = self.lane(lane).and_then(|state| state.collect(&mut spare, answers));
        self.spare = spare;
        if collected.is_err() {
            answers.truncate(before);
        }
        collected
    }

    /// Time of the network alone, as a graph, on whatever lies in its input: what a bare benchmark measures.
    ///
    /// # Errors
    /// As [`Engine::infer`].
    pub fn run_bare(&mut self, lane: usize) -> Result<Duration> {
        let lane = &mut self.lane(lane)?.lane;
        lane.submit_bare()?;
        lane.wait()?;
        lane.bare_time()
    }

    /// Starts the network alone.
    ///
    /// # Errors
    /// As [`Engine::infer`].
    pub fn submit_bare(&mut self, lane: usize) -> Result<()> {
        self.lane(lane)?.lane.submit_bare()
    }

    /// Waits for whatever runs in a lane.
    ///
    /// # Errors
    /// As [`Engine::infer`].
    pub fn wait(&mut self, lane: usize) -> Result<()> {
        self.lane(lane)?.lane.wait()
    }

    /// Time of the copies of a lane's pictures to the device.
    ///
    /// # Errors
    /// As [`Engine::infer`].
    pub fn run_copies(&mut self, lane: usize) -> Result<Duration> {
        let lane = &mut self.lane(lane)?.lane;
        lane.submit_copies()?;
        lane.wait()?;
        lane.bare_time()
    }

    /// Device times of the last run of a lane.
    ///
    /// # Errors
    /// The lane is in flight.
    pub fn times(&mut self, lane: usize) -> Result<DeviceTimes> {
        self.lane(lane)?.lane.times()
    }

    /// Time of every layer of the network, ms a run; see [`Lane::layer_times`].
    ///
    /// # Errors
    /// As [`Engine::infer`].
    pub fn layer_times(&mut self, runs: u32) -> Result<Vec<(String, f64)>> {
        self.lane(0)?.lane.layer_times(runs)
    }

    /// Why the steps are launched one by one instead of as a graph.
    pub fn graph_refused(&self) -> Option<&str> {
        self.lanes.iter().find_map(|state| state.lane.graph_refused())
    }
}

impl LaneState {
    fn collect(&mut self, spare: &mut Vec<Inference>, answers: &mut Vec<Inference>) -> Result<()> {
        self.lane.wait()?;
        let frames = self.staged.get(self.lane.running_set()).map_or(&[][..], |staged| &staged.frames);
        let timings = timings(&self.lane.times()?, count32(frames.len()));
        let mut rest_fetched = false;
        for (slot, (tag, letterbox)) in (0..).zip(frames) {
            let mut candidates = spare.pop().map(|answer| answer.candidates).unwrap_or_default();
            let stats = answers::read(&mut self.lane, slot, &mut rest_fetched, &mut candidates)?;
            answers.push(Inference { tag: tag.clone(), letterbox: *letterbox, candidates, stats, timings });
        }
        Ok(())
    }
}

/// Each frame's share of a run.
fn timings(times: &DeviceTimes, frames: u32) -> EngineTimings {
    let share = |time| milliseconds(time) / f64::from(frames.max(1));
    EngineTimings {
        preprocess_ms: share(times.prepare),
        transfer_ms: share(times.copy),
        inference_ms: share(times.network),
        postprocess_ms: share(times.decode),
    }
}

impl Engine for TensorRtEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn infer(&mut self, frames: &[&Frame], answers: &mut Vec<Inference>) -> Result<()> {
        if frames.is_empty() {
            return Ok(());
        }
        self.stage(0, frames)?;
        self.submit(0)?;
        self.collect(0, answers)
    }

    /// One more than lanes with [`GpuOptions::ahead`]: the batch whose pictures are copied while the lanes run.
    fn lanes(&self) -> usize {
        self.places.count()
    }

    fn begin(&mut self, place: usize, frames: &[&Frame]) -> Result<()> {
        let begins = self.places.begins(place)?;
        match begins {
            Begins::Run(lane) => {
                self.stage(lane, frames)?;
                self.submit(lane)?;
            }
            Begins::Ahead(lane) => {
                self.stage(lane, frames)?;
                self.send_ahead(lane)?;
            }
        }
        self.places.began(place, begins);
        Ok(())
    }

    fn finish(&mut self, place: usize, answers: &mut Vec<Inference>) -> Result<()> {
        let lane = self.places.finishes(place)?;
        let collected = self.collect(lane, answers);
        let lanes = &mut self.lanes;
        self.places.goes_on(lane, || match lanes.get_mut(lane) {
            Some(state) => state.lane.submit(),
            None => Err(Error::unexpected(format!("found no lane {lane}"))),
        });
        collected
    }

    fn memory(&self) -> MemoryFigures {
        MemoryFigures { allocated: self.budget.allocated(), peak: self.budget.peak(), reserved: self.reserved }
    }

    fn recycle(&mut self, spent: Inference) {
        if self.spare.len() < SPARE_ANSWERS {
            self.spare.push(spent);
        }
    }

    fn reset_peak(&mut self) {
        self.budget.reset_peak();
    }

    fn set_score_floor(&mut self, score_floor: f32) {
        self.info.score_floor = score_floor;
        for state in &mut self.lanes {
            // A lane is idle between calls of this trait; one in flight is waited for.
            if let Err(error) = state.lane.wait().and_then(|()| state.lane.set_floor(score_floor)) {
                log::warn!("the score floor stays as it was: {}", error.message());
            }
        }
    }
}
