//! Where engines come from: bundles in earnest, canned engines in tests and in the fault harness.

use crate::bundle::Bundle;
use crate::bundle::signature::PublicKey;
use crate::camera::Camera;
use crate::engine::Engine;
use crate::engine::cpu::CpuOptions;
use crate::engine::tensorrt::GpuOptions;
use crate::error::Result;
use crate::run::{Options, machine};
use crate::units::{Bytes, count32};
use std::path::Path;

/// Opens bundles and loads engines from them. Shared by the run's threads; loading happens on the engine's own thread.
pub trait EngineSource: Send + Sync {
    /// Opens a bundle and checks everything that needs no engine.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] for a bundle that is damaged, [`crate::ErrorKind::MachineLacks`] for one that is for
    /// another machine.
    fn open(&self, path: &Path) -> Result<Bundle> {
        Bundle::open(path)
    }

    /// Loads the engine of `bundle` on device `device` (0 is the first); candidates below `score_floor` are left out.
    ///
    /// # Errors
    /// Of the backend.
    fn load(&self, bundle: &Bundle, score_floor: f32, device: usize) -> Result<Box<dyn Engine>>;

    /// Devices that may be used; the run starts on device 0 and keeps the others for when it fails.
    fn devices(&self) -> usize {
        1
    }

    /// Puts something between a camera and the run; nothing by default.
    fn fit_camera(&self, _stream: &str, camera: Box<dyn Camera>) -> Box<dyn Camera> {
        camera
    }

    /// Memory of device `device`: in use by all programs, and in all. `None` where the device has none of its own.
    fn device_memory(&self, _device: usize) -> Option<(Bytes, Bytes)> {
        None
    }
}

/// Engines from bundles, on this machine.
#[derive(Debug, Clone, Default)]
pub struct BundleEngines {
    /// How engines on the CPU are made.
    pub cpu: CpuOptions,
    /// How engines on a GPU are made; devices are counted from its first one.
    pub gpu: GpuOptions,
    /// The key that every bundle must be signed with.
    pub trust: Option<PublicKey>,
}

impl BundleEngines {
    /// As `options` ask for them.
    pub fn of(options: &Options) -> Self {
        BundleEngines { cpu: options.cpu.clone(), gpu: options.gpu.clone(), trust: options.trust.clone() }
    }

    fn gpu(&self, device: usize) -> GpuOptions {
        GpuOptions { device: self.gpu.device.saturating_add(count32(device)), ..self.gpu.clone() }
    }
}

impl EngineSource for BundleEngines {
    fn open(&self, path: &Path) -> Result<Bundle> {
        let bundle = Bundle::open(path)?;
        if let Some(key) = &self.trust {
            key.check(&bundle)?;
        }
        if !machine::is_for_cpu(&bundle) {
            // Known before anything else is started; the plan is read again when the engine is loaded.
            machine::plan_for_this_machine(&bundle, &self.gpu)?;
        }
        Ok(bundle)
    }

    fn load(&self, bundle: &Bundle, score_floor: f32, device: usize) -> Result<Box<dyn Engine>> {
        machine::load(bundle, score_floor, &self.cpu, &self.gpu(device))
    }
}
