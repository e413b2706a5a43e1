//! Where engines come from: bundles in earnest, canned engines in tests and in the fault harness.

use crate::bundle::Bundle;
use crate::bundle::signature::PublicKey;
use crate::camera::Camera;
use crate::engine::Engine;
use crate::engine::cpu::CpuOptions;
use crate::engine::tensorrt::GpuOptions;
use crate::error::{Error, ErrorKind, Result};
use crate::run::gpu_watch::{DeviceFigures, GpuWatch};
use crate::run::{Options, machine};
use crate::units::Bytes;
use std::path::Path;
use std::sync::Arc;

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

    /// What people and results call device `device`.
    fn device_label(&self, device: usize) -> String {
        device.to_string()
    }

    /// What the engine of `bundle` will take on device `device`, where that is known before it is loaded.
    fn claim(&self, _bundle: &Bundle, _device: usize) -> Option<Bytes> {
        None
    }

    /// What all engines may take together on the device that `bundle` is for.
    fn budget(&self, _bundle: &Bundle, _device: usize) -> Option<Bytes> {
        None
    }

    /// The same while engines that take `loaded` run on it.
    fn budget_beside(&self, bundle: &Bundle, device: usize, _loaded: Bytes) -> Option<Bytes> {
        self.budget(bundle, device)
    }

    /// Puts something between a camera and the run; nothing by default.
    fn fit_camera(&self, _stream: &str, camera: Box<dyn Camera>) -> Box<dyn Camera> {
        camera
    }

    /// Memory of device `device` at this moment: in use by all programs, and in all. `None` where the device has none of
    /// its own.
    fn device_memory(&self, _device: usize) -> Option<(Bytes, Bytes)> {
        None
    }

    /// What is known of device `device` without asking it now; never waits for a driver.
    fn device_figures(&self, device: usize) -> Option<DeviceFigures> {
        self.device_memory(device).map(|(used, total)| DeviceFigures { used, total, ..DeviceFigures::default() })
    }
}

/// Engines from bundles, on this machine.
#[derive(Debug, Clone, Default)]
pub struct BundleEngines {
    /// How engines on the CPU are made.
    pub cpu: CpuOptions,
    /// How engines on a GPU are made.
    pub gpu: GpuOptions,
    /// Ordinals of the GPUs in the order in which they are used; empty: the one of `gpu`.
    pub devices: Vec<u32>,
    /// The key that every bundle must be signed with.
    pub trust: Option<PublicKey>,
    /// Several streams share the engine: two batches in flight are worth their memory.
    pub shared: bool,
    /// What all engines on the CPU may take together.
    pub cpu_budget: Option<Bytes>,
    watch: Arc<GpuWatch>,
}

impl BundleEngines {
    /// As `options` ask for them.
    pub fn of(options: &Options) -> Self {
        BundleEngines {
            cpu: options.cpu.clone(),
            gpu: options.gpu.clone(),
            devices: options.service.devices.clone(),
            trust: options.trust.clone(),
            shared: options.streams.len() > 1,
            cpu_budget: options.service.cpu_budget,
            watch: Arc::default(),
        }
    }

    fn ordinal(&self, device: usize) -> u32 {
        self.devices.get(device).copied().unwrap_or(self.gpu.device)
    }

    fn gpu(&self, device: usize) -> GpuOptions {
        GpuOptions { device: self.ordinal(device), ..self.gpu.clone() }
    }
}

impl EngineSource for BundleEngines {
    fn open(&self, path: &Path) -> Result<Bundle> {
        let bundle = Bundle::open(path)?;
        if let Some(key) = &self.trust {
            key.check(&bundle)?;
        }
        if !machine::is_for_cpu(&bundle) {
            // Known before anything else is started; the plan is read again when the engine is loaded. One device that
            // fits is enough: a broken one must not keep the line from starting on the other.
            let mut fits = Ok(());
            for device in 0..self.devices() {
                fits = machine::plan_for_this_machine(&bundle, &self.gpu(device)).map(drop);
                if fits.is_ok() {
                    break;
                }
            }
            fits?;
            self.watch.begin((0..self.devices()).map(|device| self.ordinal(device)).collect());
        }
        Ok(bundle)
    }

    fn claim(&self, bundle: &Bundle, _device: usize) -> Option<Bytes> {
        machine::claim(bundle)
    }

    fn budget(&self, bundle: &Bundle, device: usize) -> Option<Bytes> {
        self.budget_beside(bundle, device, Bytes(0))
    }

    fn budget_beside(&self, bundle: &Bundle, device: usize, loaded: Bytes) -> Option<Bytes> {
        if machine::is_for_cpu(bundle) {
            return self.cpu_budget.or_else(|| machine::cpu_budget(bundle, loaded));
        }
        machine::gpu_budget(bundle, &self.gpu(device))
    }

    fn load(&self, bundle: &Bundle, score_floor: f32, device: usize) -> Result<Box<dyn Engine>> {
        let gpu = self.gpu(device);
        if machine::is_for_cpu(bundle) {
            return machine::load(bundle, score_floor, &self.cpu, &gpu);
        }
        let mut refused: Option<Error> = None;
        for (lanes, ahead) in choices(gpu.lanes, self.shared) {
            if let Some(error) = refused.take() {
                let less = if lanes < 2 { "one batch in flight instead of two" } else { "no pictures copied ahead" };
                log::warn!("{less}: {}", error.message());
            }
            match machine::load(bundle, score_floor, &self.cpu, &GpuOptions { lanes, ahead, ..gpu.clone() }) {
                Err(error) if error.kind() == ErrorKind::Budget => refused = Some(error),
                loaded => return loaded,
            }
        }
        Err(refused.unwrap_or_else(|| Error::unexpected("found no way to load an engine")))
    }

    fn devices(&self) -> usize {
        self.devices.len().max(1)
    }

    /// The GPU's ordinal; further engines on one GPU carry a number behind it.
    fn device_label(&self, device: usize) -> String {
        let ordinal = self.ordinal(device);
        match self.devices.iter().take(device).filter(|before| **before == ordinal).count() {
            0 => ordinal.to_string(),
            before => format!("{ordinal}:{}", before + 1),
        }
    }

    fn device_memory(&self, device: usize) -> Option<(Bytes, Bytes)> {
        self.watch.memory(device)
    }

    fn device_figures(&self, device: usize) -> Option<DeviceFigures> {
        self.watch.figures(device)
    }
}

/// Lanes, and whether pictures are copied ahead, to be tried in turn until one fits the budget. One stream alone keeps no batch
/// waiting for another: one lane, no more memory than planned.
fn choices(asked: u32, shared: bool) -> Vec<(u32, bool)> {
    match asked {
        GpuOptions::AS_FITS if shared => vec![(2, true), (2, false), (1, false)],
        GpuOptions::AS_FITS | 1 => vec![(1, false)],
        lanes => vec![(lanes, true), (lanes, false)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_streams_get_two_lanes_and_copies_ahead_where_they_fit() {
        assert_eq!(choices(GpuOptions::AS_FITS, true), [(2, true), (2, false), (1, false)]);
        assert_eq!(choices(GpuOptions::AS_FITS, false), [(1, false)], "one stream waits for nobody");
        assert_eq!(choices(1, true), [(1, false)], "as asked");
        assert_eq!(choices(3, false), [(3, true), (3, false)], "as asked");
    }
}
