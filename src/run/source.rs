//! Where engines come from: bundles in earnest, canned engines in tests and in the fault harness.

use crate::bundle::Bundle;
use crate::bundle::signature::PublicKey;
use crate::camera::Camera;
use crate::engine::Engine;
use crate::engine::cpu::CpuOptions;
use crate::engine::tensorrt::GpuOptions;
use crate::error::{Error, ErrorKind, Result};
use crate::gpu::plan::MemoryPlan;
use crate::run::gpu_watch::{DeviceFigures, GpuWatch};
use crate::run::{Options, machine};
use crate::units::Bytes;
use std::path::Path;
use std::sync::{Arc, OnceLock};

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

    /// What device `device` will have in use of this process with the engine of `bundle` alone, by the bundle's memory plan:
    /// [`EngineSource::claim`] and what the process takes once.
    fn planned(&self, _bundle: &Bundle, _device: usize) -> Option<Bytes> {
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
    integrated: Arc<OnceLock<bool>>,
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
            integrated: Arc::default(),
        }
    }

    fn ordinal(&self, device: usize) -> u32 {
        self.devices.get(device).copied().unwrap_or(self.gpu.device)
    }

    fn gpu(&self, device: usize) -> GpuOptions {
        GpuOptions { device: self.ordinal(device), ..self.gpu.clone() }
    }

    /// The ways in which the engine of `bundle` may be loaded, best first, each with its memory plan where the bundle has one.
    /// Ways that do not fit the budget by their plan are left out, but for the last.
    fn ways(&self, bundle: &Bundle, device: usize) -> Vec<(Way, Option<MemoryPlan>)> {
        let gpu = self.gpu(device);
        let shares_memory = *self.integrated.get_or_init(|| machine::is_integrated(&gpu));
        let plan = machine::memory_plan(bundle);
        let budget = machine::gpu_budget(bundle, plan.as_ref(), &gpu);
        let ways = choices(gpu.lanes, self.shared).into_iter().map(|way| {
            let ahead = way.ahead && !shares_memory;
            (way, plan.as_ref().map(|plan| plan.with_lanes(way.lanes, ahead)))
        });
        fitting(ways.collect(), budget)
    }

    fn memory_plan(&self, bundle: &Bundle, device: usize) -> Option<MemoryPlan> {
        self.ways(bundle, device).into_iter().next()?.1
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

    fn claim(&self, bundle: &Bundle, device: usize) -> Option<Bytes> {
        if machine::is_for_cpu(bundle) {
            return machine::cpu_claim(bundle);
        }
        self.memory_plan(bundle, device).map(|plan| plan.appearing())
    }

    fn planned(&self, bundle: &Bundle, device: usize) -> Option<Bytes> {
        if machine::is_for_cpu(bundle) {
            return None;
        }
        self.memory_plan(bundle, device).map(|plan| plan.total)
    }

    fn budget(&self, bundle: &Bundle, device: usize) -> Option<Bytes> {
        self.budget_beside(bundle, device, Bytes(0))
    }

    fn budget_beside(&self, bundle: &Bundle, device: usize, loaded: Bytes) -> Option<Bytes> {
        if machine::is_for_cpu(bundle) {
            return self.cpu_budget.or_else(|| machine::cpu_budget(bundle, loaded));
        }
        machine::gpu_budget(bundle, machine::memory_plan(bundle).as_ref(), &self.gpu(device))
    }

    fn load(&self, bundle: &Bundle, score_floor: f32, device: usize) -> Result<Box<dyn Engine>> {
        let gpu = self.gpu(device);
        if machine::is_for_cpu(bundle) {
            return machine::load(bundle, score_floor, &self.cpu, &gpu);
        }
        let mut refused: Option<Error> = None;
        let ways = self.ways(bundle, device);
        let best = choices(gpu.lanes, self.shared).first().copied();
        if let Some((way, plan)) = ways.first().filter(|(way, _)| Some(*way) != best) {
            let plan = plan.as_ref().map_or(Bytes(0), |plan| plan.total);
            log::warn!("{}: more does not fit the budget; planned {plan}", way.less());
        }
        for (way, _) in ways {
            if let Some(error) = refused.take() {
                log::warn!("{}: {}", way.less(), error.message());
            }
            let options = GpuOptions { lanes: way.lanes, ahead: way.ahead, ..gpu.clone() };
            match machine::load(bundle, score_floor, &self.cpu, &options) {
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

/// How an engine is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    /// Runs in flight.
    lanes: u32,
    /// Whether the pictures of the next batch are copied while they run.
    ahead: bool,
}

impl Way {
    /// What it gives up against the best.
    fn less(self) -> &'static str {
        if self.lanes < 2 { "one batch in flight instead of two" } else { "no pictures copied ahead" }
    }
}

/// The ways to be tried in turn until one fits the budget. One stream alone keeps no batch waiting for another: one lane.
fn choices(asked: u32, shared: bool) -> Vec<Way> {
    let way = |(lanes, ahead)| Way { lanes, ahead };
    match asked {
        GpuOptions::AS_FITS if shared => [(2, true), (2, false), (1, false)].map(way).to_vec(),
        GpuOptions::AS_FITS | 1 => vec![way((1, false))],
        lanes => [(lanes, true), (lanes, false)].map(way).to_vec(),
    }
}

/// Those of `ways` that take no more than `budget` while they are loaded; the last one stays in any case, for the engine to
/// refuse it with its figures.
fn fitting(ways: Vec<(Way, Option<MemoryPlan>)>, budget: Option<Bytes>) -> Vec<(Way, Option<MemoryPlan>)> {
    let last = ways.len().saturating_sub(1);
    let fits = |plan: &Option<MemoryPlan>| match (plan, budget) {
        (Some(plan), Some(budget)) => plan.appearing() <= budget,
        _ => true,
    };
    ways.into_iter().enumerate().filter(|(at, (_, plan))| *at == last || fits(plan)).map(|(_, way)| way).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::plan::{Basis, PlanLine, Reload};

    #[test]
    fn several_streams_get_two_lanes_and_copies_ahead_where_they_fit() {
        let pairs = |asked, shared| -> Vec<(u32, bool)> {
            choices(asked, shared).into_iter().map(|way| (way.lanes, way.ahead)).collect()
        };
        assert_eq!(pairs(GpuOptions::AS_FITS, true), [(2, true), (2, false), (1, false)]);
        assert_eq!(pairs(GpuOptions::AS_FITS, false), [(1, false)], "one stream waits for nobody");
        assert_eq!(pairs(1, true), [(1, false)], "as asked");
        assert_eq!(pairs(3, false), [(3, true), (3, false)], "as asked");
    }

    #[test]
    fn by_the_plan_the_best_way_that_fits_is_taken() {
        let line = |what: &str, mib| PlanLine { what: what.into(), times: 1, each: Bytes::mib(mib) };
        let one = MemoryPlan {
            basis: Basis::Measured,
            lines: vec![
                line("CUDA context and libraries", 500),
                line("weights", 10),
                line("staging of pictures", 20),
                line("activations", 70),
            ],
            total: Bytes::mib(600),
            budget: Bytes::gib(1),
            alarm: Bytes::gib(1),
            reload_total: Bytes::mib(700),
            reload: Reload::Beside,
        };
        let ways = || {
            let all = choices(GpuOptions::AS_FITS, true).into_iter();
            all.map(|way| (way, Some(one.with_lanes(way.lanes, way.ahead)))).collect::<Vec<_>>()
        };
        let best = |budget| {
            let found = fitting(ways(), budget);
            let (way, plan) = found.first().unwrap();
            (way.lanes, way.ahead, plan.as_ref().unwrap().appearing())
        };
        assert_eq!(best(None), (2, true, Bytes::mib(10 + 2 * 40 + 2 * 70)));
        assert_eq!(best(Some(Bytes::mib(230))), (2, true, Bytes::mib(230)));
        assert_eq!(best(Some(Bytes::mib(229))), (2, false, Bytes::mib(190)));
        assert_eq!(best(Some(Bytes::mib(189))), (1, false, Bytes::mib(100)));
        assert_eq!(
            best(Some(Bytes::mib(9))),
            (1, false, Bytes::mib(100)),
            "the engine itself says why it does not fit"
        );
    }
}
