//! Flags of the GPU engine, shared by running and measuring.

use crate::config::run::GpuConfig;
use crate::engine::tensorrt::GpuOptions;
use crate::error::{Error, Result};
use crate::ffi::cuda::Wait;
use crate::ffi::tensorrt::probe::Search;
use crate::units::Bytes;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// The GPU engine.
#[derive(Debug, Args)]
pub struct GpuFlags {
    /// How a thread waits for the GPU: block sleeps, spin answers earliest and costs one core
    #[arg(
        long,
        value_enum,
        help = "How a thread waits for the GPU: block sleeps, spin answers earliest and costs one core [default: block]"
    )]
    gpu_wait: Option<WaitArg>,
    /// Ordinal of the GPU
    #[arg(long, value_name = "N", default_value_t = 0)]
    gpu: u32,
    /// Several GPUs: the first serves, warm engines stand by on the others
    #[arg(long, value_name = "N,N", value_delimiter = ',', conflicts_with = "gpu")]
    devices: Vec<u32>,
    /// GPU memory that the engine may take [default: the bundle's budget]
    #[arg(long, value_name = "BYTES")]
    gpu_budget: Option<Bytes>,
    /// Room for the pixels of one picture on the GPU; larger ones are letterboxed on the CPU [default: 3840×2160 RGB]
    #[arg(long, value_name = "BYTES")]
    gpu_picture: Option<Bytes>,
    /// Batches in flight at once; each has its own buffers [default: 2 with several streams where they fit, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=8))]
    gpu_lanes: Option<u32>,
    /// Folder with TensorRT's libraries [default: EDGE_TENSORRT_DIR, then where the loader looks]
    #[arg(long, value_name = "DIR")]
    tensorrt_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum WaitArg {
    Block,
    Spin,
}

impl GpuFlags {
    /// Ordinals of the GPUs in the order of use, as typed or as in `config`; empty when neither names any.
    pub fn devices(&self, config: &GpuConfig) -> Vec<u32> {
        if self.devices.is_empty() { config.devices.clone() } else { self.devices.clone() }
    }

    /// As the engine takes them: what was typed, and for what was not typed the file.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for a value of the file that is not understood.
    pub fn options_or(&self, config: &GpuConfig) -> Result<GpuOptions> {
        let place = |key: &'static str| move |error: Error| error.at(format!("[gpu] {key}"));
        let wait = match config.wait.as_deref() {
            None => None,
            Some("block") => Some(WaitArg::Block),
            Some("spin") => Some(WaitArg::Spin),
            Some(other) => {
                return Err(place("wait")(Error::usage(format!("found `{other}`, expected block or spin"))));
            }
        };
        if let Some(lanes) = config.lanes.filter(|lanes| !(1..=8).contains(lanes)) {
            return Err(place("lanes")(Error::usage(format!("found {lanes}, expected 1 to 8"))));
        }
        let bytes =
            |key, text: &Option<String>| text.as_deref().map(str::parse::<Bytes>).transpose().map_err(place(key));
        let both = GpuFlags {
            gpu_wait: self.gpu_wait.or(wait),
            gpu: self.gpu,
            devices: self.devices(config),
            gpu_budget: self.gpu_budget.or(bytes("budget", &config.budget)?),
            gpu_picture: self.gpu_picture.or(bytes("picture", &config.picture)?),
            gpu_lanes: self.gpu_lanes.or(config.lanes),
            tensorrt_dir: self.tensorrt_dir.clone().or_else(|| config.tensorrt_dir.clone()),
        };
        Ok(both.options())
    }

    /// As the engine takes them.
    pub fn options(&self) -> GpuOptions {
        let usual = GpuOptions::default();
        GpuOptions {
            device: self.devices.first().copied().unwrap_or(self.gpu),
            wait: match self.gpu_wait {
                None | Some(WaitArg::Block) => Wait::Block,
                Some(WaitArg::Spin) => Wait::Spin,
            },
            search: Search::new(self.tensorrt_dir.clone()),
            largest_picture: self.gpu_picture.unwrap_or(usual.largest_picture),
            budget: self.gpu_budget,
            lanes: self.gpu_lanes.unwrap_or(GpuOptions::AS_FITS),
            ..usual
        }
    }
}
