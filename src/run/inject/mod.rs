//! Faults on purpose, for acceptance tests: wraps where engines and cameras come from, by a plan in TOML.
//!
//! ```toml
//! [[fault]]
//! kind = "shift"      # nan, shift, high_scores, swapped, slow, stuck, out_of_memory, error, device_lost, trap,
//!                     # freeze, tear, vanish, camera_stuck, memory_hog
//! at = 100            # engine: live frames answered so far; camera: frames captured so far
//! amount = 1.0        # shift: px; slow, stuck, camera_stuck: seconds; memory_hog: share of the memory in use
//! until = "load"      # engine: what ends it, see below; camera: "reopen" or a number of frames in `frames`
//! device = 0          # engine: only on this one, counted from 0 in the order of `--devices`; without it on all
//! ```
//!
//! `until` of an engine's fault: `frames` (with `frames = N`, the default with N = 1), `load` (a new execution context on
//! the same device), `open` (the bundle read again), `device` (another device answers) or `never`. One that ends with another
//! device spoils the device on which it began alone.
//!
//! An engine that is spoiled has as many runs in flight as it has otherwise. A fault spoils whole runs: every frame of the batch
//! in which it begins.

mod camera;
mod engine;

use crate::bundle::Bundle;
use crate::camera::Camera;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::run::gpu_watch::DeviceFigures;
use crate::run::source::EngineSource;
use crate::units::{Bytes, count, float64};
use camera::FaultyCamera;
use engine::FaultyEngine;
use serde::Deserialize;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A plan of faults.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Plan {
    /// The faults; several may be active at a time.
    #[serde(rename = "fault")]
    pub faults: Vec<Fault>,
}

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// After how many live frames of the engine, or captures of the camera.
    pub at: u64,
    /// px, seconds or share, by kind.
    #[serde(default = "one")]
    pub amount: f64,
    /// What ends it.
    #[serde(default)]
    pub until: Until,
    /// For how many frames, with [`Until::Frames`].
    #[serde(default = "once")]
    pub frames: u64,
    /// The device whose engines it spoils, from 0 in the order of use; `None`: all.
    #[serde(default)]
    pub device: Option<usize>,
}

fn one() -> f64 {
    1.0
}

fn once() -> u64 {
    1
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The output holds values that are not a number.
    Nan,
    /// Every box is `amount` px beside its place (network input).
    Shift,
    /// Every score is 0.995.
    HighScores,
    /// The answer is that of the frame before.
    Swapped,
    /// A call takes `amount` seconds longer, and every call does.
    Slow,
    /// One call takes `amount` seconds.
    Stuck,
    /// The engine says that memory ran out.
    OutOfMemory,
    /// The engine says that something went wrong.
    Error,
    /// The device is lost.
    DeviceLost,
    /// A kernel traps on the GPU with the ordinal `device` (0): the driver's own sticky error follows.
    Trap,
    /// The camera repeats its last picture.
    Freeze,
    /// The lower half of a picture is that of an old one.
    Tear,
    /// The camera is gone.
    Vanish,
    /// A read takes `amount` seconds.
    CameraStuck,
    /// Somebody takes `amount` of the device's memory.
    MemoryHog,
}

impl FaultKind {
    /// The word in the plan.
    pub const fn name(self) -> &'static str {
        match self {
            FaultKind::Nan => "nan",
            FaultKind::Shift => "shift",
            FaultKind::HighScores => "high_scores",
            FaultKind::Swapped => "swapped",
            FaultKind::Slow => "slow",
            FaultKind::Stuck => "stuck",
            FaultKind::OutOfMemory => "out_of_memory",
            FaultKind::Error => "error",
            FaultKind::DeviceLost => "device_lost",
            FaultKind::Trap => "trap",
            FaultKind::Freeze => "freeze",
            FaultKind::Tear => "tear",
            FaultKind::Vanish => "vanish",
            FaultKind::CameraStuck => "camera_stuck",
            FaultKind::MemoryHog => "memory_hog",
        }
    }

    fn is_of_camera(self) -> bool {
        matches!(self, FaultKind::Freeze | FaultKind::Tear | FaultKind::Vanish | FaultKind::CameraStuck)
    }
}

/// What ends a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// A number of frames.
    #[default]
    Frames,
    /// A new execution context.
    Load,
    /// The bundle read again.
    Open,
    /// Another device.
    Device,
    /// The camera opened again.
    Reopen,
    /// Nothing.
    Never,
}

impl Plan {
    /// Reads and checks a plan.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] with the line of what cannot be understood.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::usage("the plan of faults cannot be read").because(error).at(path.display()))?;
        let plan: Plan = toml::from_str(&text).map_err(|error| Error::of_toml(&text, &error).at(path.display()))?;
        match plan.faults.iter().find(|fault| !(0.0..1e6).contains(&fault.amount)) {
            Some(fault) => {
                Err(Error::usage(format!("found amount {}, expected 0 to 1000000", fault.amount)).at(path.display()))
            }
            None => Ok(plan),
        }
    }
}

/// A plan being carried out; shared by all that it spoils.
#[derive(Debug)]
pub struct Injector {
    plan: Plan,
    state: Mutex<Vec<Progress>>,
    live_frames: AtomicU64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    begun: Option<Instant>,
    frames: u64,
    over: bool,
    stuck: bool,
    /// The device on which it first spoiled something.
    device: Option<usize>,
}

impl Injector {
    /// Carries out `plan`.
    pub fn new(plan: Plan) -> Arc<Self> {
        let state = Mutex::new(vec![Progress::default(); plan.faults.len()]);
        Arc::new(Injector { plan, state, live_frames: AtomicU64::new(0) })
    }

    /// When fault `index` of the plan first spoiled something.
    pub fn begun(&self, index: usize) -> Option<Instant> {
        self.lock().get(index).and_then(|progress| progress.begun)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Progress>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the faults that `what` ends.
    fn ends(&self, what: Until) {
        self.ends_where(what, |_| true);
    }

    /// The same, of those that `of` says yes to, by the device on which they began.
    fn ends_where(&self, what: Until, of: impl Fn(usize) -> bool) {
        for (fault, progress) in self.plan.faults.iter().zip(self.lock().iter_mut()) {
            let begun = progress.begun.is_some() && progress.device.is_none_or(&of);
            progress.over |= fault.until == what && begun;
        }
    }

    /// The faults that spoil the next `frames` live frames of an engine or a camera, from number `at` on. Known answers and warm-up are spoiled too while
    /// a fault lasts, but do not count as frames; they begin a fault of a named device alone, which may only stand by.
    fn active(&self, of_camera: bool, at: u64, frames: u64, device: Option<usize>) -> Vec<Fault> {
        let mut active = Vec::new();
        for (fault, progress) in self.plan.faults.iter().zip(self.lock().iter_mut()) {
            let due = fault.kind.is_of_camera() == of_camera
                && fault.kind != FaultKind::MemoryHog
                && !progress.over
                && (fault.device.is_none() || fault.device == device)
                && (fault.until != Until::Device || progress.device.is_none() || progress.device == device)
                && (progress.begun.is_some()
                    || ((frames > 0 || fault.device.is_some()) && at + frames.max(1) > fault.at));
            if !due {
                continue;
            }
            progress.begun.get_or_insert_with(Instant::now);
            progress.device = progress.device.or(device);
            progress.frames += frames;
            // Known answers see the fault as long as live frames do: one that lasts one frame is over when it is asked.
            if fault.until == Until::Frames && progress.frames >= fault.frames {
                progress.over = true;
            }
            if matches!(fault.kind, FaultKind::Stuck | FaultKind::CameraStuck)
                && std::mem::replace(&mut progress.stuck, true)
            {
                continue;
            }
            active.push(*fault);
        }
        active
    }

    fn hog(&self, device: usize) -> Option<f64> {
        let at = self.live_frames.load(Ordering::Relaxed);
        let of_device = |fault: &&Fault| fault.device.is_none_or(|of| of == device);
        let hogs = self.plan.faults.iter().filter(|fault| fault.kind == FaultKind::MemoryHog).filter(of_device);
        hogs.filter(|fault| at >= fault.at && (fault.until == Until::Never || at < fault.at + fault.frames))
            .map(|fault| fault.amount)
            .reduce(f64::max)
    }
}

/// A source of engines and cameras that go wrong by a plan.
pub struct Injected {
    inner: Arc<dyn EngineSource>,
    injector: Arc<Injector>,
}

impl Injected {
    /// Spoils what `inner` gives.
    pub fn over(inner: Arc<dyn EngineSource>, injector: Arc<Injector>) -> Arc<dyn EngineSource> {
        Arc::new(Injected { inner, injector })
    }
}

impl EngineSource for Injected {
    fn open(&self, path: &Path) -> Result<Bundle> {
        let bundle = self.inner.open(path)?;
        self.injector.ends(Until::Open);
        Ok(bundle)
    }

    fn load(&self, bundle: &Bundle, score_floor: f32, device: usize) -> Result<Box<dyn Engine>> {
        let inner = self.inner.load(bundle, score_floor, device)?;
        self.injector.ends_where(Until::Load, |begun| begun == device);
        Ok(Box::new(FaultyEngine::over(inner, &self.injector, device)))
    }

    fn claim(&self, bundle: &Bundle, device: usize) -> Option<Bytes> {
        self.inner.claim(bundle, device)
    }

    fn planned(&self, bundle: &Bundle, device: usize) -> Option<Bytes> {
        self.inner.planned(bundle, device)
    }

    fn budget(&self, bundle: &Bundle, device: usize) -> Option<Bytes> {
        self.inner.budget(bundle, device)
    }

    fn budget_beside(&self, bundle: &Bundle, device: usize, loaded: Bytes) -> Option<Bytes> {
        self.inner.budget_beside(bundle, device, loaded)
    }

    fn devices(&self) -> usize {
        self.inner.devices()
    }

    fn device_label(&self, device: usize) -> String {
        self.inner.device_label(device)
    }

    fn device_memory(&self, device: usize) -> Option<(Bytes, Bytes)> {
        let (used, total) = self.inner.device_memory(device).unwrap_or((Bytes::mib(256), Bytes::gib(8)));
        match self.injector.hog(device) {
            Some(share) => Some((Bytes((float64(total.0) * share.min(1.0)) as u64), total)),
            None => Some((used, total)),
        }
    }

    fn device_figures(&self, device: usize) -> Option<DeviceFigures> {
        let Some((used, total)) = self.device_memory(device) else { return self.inner.device_figures(device) };
        let known = self.inner.device_figures(device).unwrap_or_default();
        Some(DeviceFigures { used, total, ..known })
    }

    fn fit_camera(&self, stream: &str, camera: Box<dyn Camera>) -> Box<dyn Camera> {
        self.injector.ends(Until::Reopen);
        let inner = self.inner.fit_camera(stream, camera);
        Box::new(FaultyCamera::over(inner, &self.injector))
    }
}

/// How many captures and live frames went through, for tables.
impl Injector {
    /// Live frames that the engine was asked about.
    pub fn live_frames(&self) -> u64 {
        self.live_frames.load(Ordering::Relaxed)
    }

    /// Number of faults in the plan.
    pub fn faults(&self) -> u64 {
        count(self.plan.faults.len())
    }
}
