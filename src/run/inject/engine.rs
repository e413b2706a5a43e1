//! An engine that goes wrong by the plan, with as many runs in flight as it has otherwise.

use super::{Fault, FaultKind, Injector, Until};
use crate::engine::{Engine, EngineInfo, Inference, MemoryFigures};
use crate::error::{Error, ErrorKind, Result};
use crate::frame::{Frame, FrameTag};
use crate::units::{count, narrow};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(super) struct FaultyEngine {
    inner: Box<dyn Engine>,
    injector: Arc<Injector>,
    last: Option<Inference>,
    device: usize,
    /// What spoils the run in each lane.
    flying: Vec<Vec<Fault>>,
}

impl FaultyEngine {
    pub(super) fn over(inner: Box<dyn Engine>, injector: &Arc<Injector>, device: usize) -> Self {
        let flying = vec![Vec::new(); inner.lanes()];
        FaultyEngine { inner, injector: Arc::clone(injector), last: None, device, flying }
    }

    /// The faults that spoil a run of these frames.
    fn faults_of(&self, frames: &[&Frame]) -> Vec<Fault> {
        let is_live = |frame: &&&Frame| !matches!(&*frame.stream, "golden" | "warmup");
        let live = count(frames.iter().filter(is_live).count());
        let at = self.injector.live_frames.fetch_add(live, Ordering::Relaxed);
        if live > 0 {
            self.injector.ends_where(Until::Device, |begun| begun != self.device);
        }
        self.injector.active(false, at, live, Some(self.device))
    }

    /// What a device says when a run is handed to it.
    fn at_begin(fault: &Fault) -> Result<()> {
        match fault.kind {
            FaultKind::OutOfMemory => Err(failed(ErrorKind::Budget, "the device's memory is used up")),
            _ => Ok(()),
        }
    }

    /// What it says when the answer is waited for.
    fn at_end(fault: &Fault) -> Result<()> {
        match fault.kind {
            FaultKind::Slow | FaultKind::Stuck => {
                std::thread::sleep(Duration::from_secs_f64(fault.amount));
                Ok(())
            }
            FaultKind::Error => Err(failed(ErrorKind::Unexpected, "the run failed")),
            FaultKind::DeviceLost => Err(failed(ErrorKind::Device, "the device is lost")),
            FaultKind::Trap => {
                let ordinal = fault.device.and_then(|device| u32::try_from(device).ok()).unwrap_or(0);
                if let Err(error) = crate::ffi::cuda::trap(ordinal) {
                    log::warn!("trapped on purpose: {error}");
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Spoils the answers of one run.
    fn spoil(&mut self, active: &[Fault], answers: &mut [Inference]) {
        for answer in answers {
            let honest = answer.clone();
            active.iter().for_each(|fault| self.after(fault, answer));
            self.last = Some(honest);
        }
    }

    fn after(&self, fault: &Fault, answer: &mut Inference) {
        match fault.kind {
            FaultKind::Nan => answer.stats.nan = 7,
            FaultKind::Shift => {
                let by_px = narrow(fault.amount);
                for candidate in &mut answer.candidates.boxes {
                    candidate.edges.left_px += by_px;
                    candidate.edges.right_px += by_px;
                }
            }
            FaultKind::HighScores => {
                for candidate in &mut answer.candidates.boxes {
                    candidate.score = 0.995;
                }
                answer.stats.maximum_score = 0.995;
            }
            FaultKind::Swapped => {
                let tag = FrameTag { number: answer.tag.number.wrapping_sub(1), ..answer.tag.clone() };
                match &self.last {
                    Some(last) => answer.clone_from(last),
                    None => answer.tag = tag,
                }
            }
            _ => {}
        }
    }
}

fn failed(kind: ErrorKind, message: &str) -> Error {
    Error::new(kind, format!("{message} (injected)"))
}

impl Engine for FaultyEngine {
    fn info(&self) -> &EngineInfo {
        self.inner.info()
    }

    fn infer(&mut self, frames: &[&Frame], answers: &mut Vec<Inference>) -> Result<()> {
        let active = self.faults_of(frames);
        active.iter().try_for_each(Self::at_begin)?;
        active.iter().try_for_each(Self::at_end)?;
        let before = answers.len();
        self.inner.infer(frames, answers)?;
        self.spoil(&active, &mut answers[before..]);
        Ok(())
    }

    fn lanes(&self) -> usize {
        self.inner.lanes()
    }

    fn begin(&mut self, lane: usize, frames: &[&Frame]) -> Result<()> {
        let active = self.faults_of(frames);
        active.iter().try_for_each(Self::at_begin)?;
        self.inner.begin(lane, frames)?;
        if let Some(flying) = self.flying.get_mut(lane) {
            *flying = active;
        }
        Ok(())
    }

    fn finish(&mut self, lane: usize, answers: &mut Vec<Inference>) -> Result<()> {
        let active = self.flying.get_mut(lane).map(std::mem::take).unwrap_or_default();
        let before = answers.len();
        let said = active.iter().try_for_each(Self::at_end);
        // The lane is free afterwards, whatever was said of it.
        self.inner.finish(lane, answers)?;
        if said.is_err() {
            answers.truncate(before);
            return said;
        }
        self.spoil(&active, &mut answers[before..]);
        Ok(())
    }

    fn memory(&self) -> MemoryFigures {
        self.inner.memory()
    }

    fn recycle(&mut self, spent: Inference) {
        self.inner.recycle(spent);
    }

    fn reset_peak(&mut self) {
        self.inner.reset_peak();
    }

    fn set_score_floor(&mut self, score_floor: f32) {
        self.inner.set_score_floor(score_floor);
    }
}
