//! Builder, configuration, timing cache: one thread, one build.

use super::super::abi::Raw;
use super::super::callbacks::{self, Callback, Monitor, ProgressMonitor, Recorder, ReportedError};
use super::super::result;
use super::super::sys::enums::BuilderFlag;
use super::Owned;
use super::library::Library;
use super::network::Network;
use super::tensor::DataType;
use crate::error::{Error, Result};
use crate::units::Bytes;
use std::rc::Rc;
use std::sync::Arc;

/// Builds plans. Neither `Send` nor `Sync`, as TensorRT's builder belongs to one thread:
///
/// ```compile_fail,E0277
/// fn must_be_send<T: Send>() {}
/// must_be_send::<edge_trt::ffi::tensorrt::Builder>();
/// ```
pub struct Builder {
    raw: Owned<result::Builder>,
    recorder: Callback<Recorder>,
    library: Arc<Library>,
}

impl Builder {
    /// A builder that has passed its self-tests.
    ///
    /// # Errors
    /// [`crate::ErrorKind::MachineLacks`]: no driver where one is needed, no object, or a library whose layout is not the known
    /// one.
    pub fn new(library: &Arc<Library>) -> Result<Rc<Builder>> {
        let object = library.create_builder()?;
        let raw =
            Owned(Raw::<result::Builder>::new(object, library.abi()).ok_or_else(|| library.no_object("builder"))?);
        // SAFETY: the object was just made. The first call is one whose answer is known.
        if unsafe { raw.0.logger() }? != library.logger() {
            std::mem::forget(raw);
            return Err(library.mismatch("builder"));
        }
        let recorder = callbacks::recorder(library.abi().family);
        // SAFETY: the recorder has this family's layout and is dropped after the builder (field order).
        unsafe { raw.0.set_error_recorder(recorder.object()) }?;
        Ok(Rc::new(Builder { raw, recorder, library: Arc::clone(library) }))
    }

    pub(super) fn raw(&self) -> Raw<result::Builder> {
        self.raw.0
    }

    /// The library it came from.
    pub fn library(&self) -> &Arc<Library> {
        &self.library
    }

    /// Builds a plan. `None`: the build failed or was cancelled; [`Builder::take_errors`] says why.
    ///
    /// # Errors
    /// `network` or `config` is of another builder.
    pub fn build(self: &Rc<Self>, network: &Network, config: &Config) -> Result<Option<Vec<u8>>> {
        if !Rc::ptr_eq(self, network.builder()) || !Rc::ptr_eq(self, &config.builder) {
            return Err(Error::unexpected("network and configuration must be of the builder that builds them"));
        }
        // SAFETY: all three live, are of one library and on one thread; the network still has its parser with the weights.
        let Some(memory) = unsafe { self.raw.0.build(network.raw(), config.raw.0) }? else { return Ok(None) };
        let memory = Owned(memory);
        // SAFETY: the memory lives until the end of this function.
        unsafe { memory.0.to_vec() }.map(Some)
    }

    /// What TensorRT reported to this builder since the last call.
    pub fn take_errors(&self) -> Vec<ReportedError> {
        self.recorder.payload().take()
    }
}

/// How much the plan remembers of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProfilingVerbosity {
    /// Names of layers.
    NamesOnly,
    /// Nothing.
    None,
    /// Layers with types, formats and tactics: what reading the plan back needs.
    #[default]
    Detailed,
}

/// Settings of one build.
#[derive(Default)]
pub struct BuildSettings {
    /// Most scratch memory that a layer may use.
    pub workspace: Bytes,
    /// How much the plan remembers of itself.
    pub verbosity: ProfilingVerbosity,
    /// 0 (fast build) to 5 (fast plan); `None` leaves TensorRT's own, 3.
    pub optimization_level: Option<u8>,
    /// Compute capabilities × 10 to build for (TensorRT-RTX alone); empty for this machine's.
    pub compute_capabilities: Vec<u32>,
    /// Watches and cancels, where the family reports progress.
    pub watcher: Option<Arc<dyn ProgressMonitor>>,
    /// Timings of earlier builds; empty starts a new cache.
    pub timing_cache: Vec<u8>,
    /// On TensorRT 8, hold layers to their types and allow these precisions.
    pub precisions: Vec<DataType>,
}

/// A build's configuration with what TensorRT calls and reads during it.
pub struct Config {
    raw: Owned<result::Config>,
    cache: Option<TimingCache>,
    cache_was_refused: bool,
    _monitor: Option<Callback<Monitor>>,
    builder: Rc<Builder>,
}

/// Timings of tactics, to make the next build faster.
pub struct TimingCache(Owned<result::TimingCache>);

impl Config {
    /// A configuration with these settings, read back where TensorRT lets us.
    ///
    /// # Errors
    /// A setting that this version does not have or does not take.
    pub fn new(builder: &Rc<Builder>, settings: &BuildSettings) -> Result<Config> {
        let library = &builder.library;
        // SAFETY: the builder lives and the configuration holds it; so in every call below.
        let raw = Owned(unsafe { builder.raw.0.create_config() }?);
        let workspace = usize::try_from(settings.workspace.0).unwrap_or(usize::MAX);
        // SAFETY: the configuration lives.
        let read_back = unsafe {
            raw.0.set_workspace(workspace)?;
            raw.0.workspace()?
        };
        if read_back != workspace {
            std::mem::forget(raw);
            return Err(library.mismatch("workspace limit"));
        }
        let verbosity = match settings.verbosity {
            ProfilingVerbosity::NamesOnly => 0,
            ProfilingVerbosity::None => 1,
            ProfilingVerbosity::Detailed => 2,
        };
        // SAFETY: the configuration lives.
        unsafe { raw.0.set_profiling_verbosity(verbosity) }?;
        if let Some(level) = settings.optimization_level.map(i32::from) {
            // SAFETY: the configuration lives.
            let read_back = unsafe {
                raw.0.set_optimization_level(level)?;
                raw.0.optimization_level()?
            };
            if read_back != level {
                return Err(Error::usage(format!("found optimisation level {level}, expected 0 to 5")));
            }
        }
        let mut config =
            Config { raw, cache: None, cache_was_refused: false, _monitor: None, builder: Rc::clone(builder) };
        config.set_precisions(&settings.precisions)?;
        config.set_capabilities(&settings.compute_capabilities)?;
        config.set_watcher(settings.watcher.as_ref())?;
        config.set_timing_cache(&settings.timing_cache)?;
        Ok(config)
    }

    fn set_precisions(&self, precisions: &[DataType]) -> Result<()> {
        let flags = precisions.iter().filter_map(|precision| match precision {
            DataType::Half => Some(BuilderFlag::Fp16),
            DataType::Int8 => Some(BuilderFlag::Int8),
            _ => None,
        });
        let obey = (!precisions.is_empty()).then_some(BuilderFlag::ObeyPrecisionConstraints);
        for flag in flags.chain(obey) {
            // SAFETY: the configuration lives.
            unsafe { self.raw.0.set_flag(flag) }?;
        }
        Ok(())
    }

    fn set_capabilities(&self, capabilities: &[u32]) -> Result<()> {
        if capabilities.is_empty() {
            return Ok(());
        }
        let refused = |what: String| {
            Error::refused(format!("{} {} does not build for {what}", self.product(), self.builder.library.version()))
        };
        let count = i32::try_from(capabilities.len()).unwrap_or(i32::MAX);
        // SAFETY: the configuration lives.
        if !unsafe { self.raw.0.set_compute_capability_count(count) }? {
            return Err(refused(format!("{count} compute capabilities at once")));
        }
        for (index, &capability) in (0..).zip(capabilities) {
            let value = i32::try_from(capability).unwrap_or(i32::MAX);
            // SAFETY: the configuration lives.
            if !unsafe { self.raw.0.set_compute_capability(value, index) }? {
                return Err(refused(format!("compute capability {}.{}", capability / 10, capability % 10)));
            }
        }
        Ok(())
    }

    fn set_watcher(&mut self, watcher: Option<&Arc<dyn ProgressMonitor>>) -> Result<()> {
        use super::super::sys::BuilderConfigSetProgressMonitor;
        let Some(watcher) = watcher.filter(|_| self.raw.0.abi().has::<BuilderConfigSetProgressMonitor>()) else {
            return Ok(());
        };
        let monitor = callbacks::monitor(Arc::clone(watcher));
        // SAFETY: the monitor has the interface's layout and is dropped after the configuration (field order).
        unsafe { self.raw.0.set_progress_monitor(monitor.object()) }?;
        self._monitor = Some(monitor);
        Ok(())
    }

    fn set_timing_cache(&mut self, bytes: &[u8]) -> Result<()> {
        // SAFETY: the configuration lives.
        let mut cache = unsafe { self.raw.0.create_timing_cache(bytes) }?.map(Owned);
        if let Some(given) = &cache {
            // SAFETY: both live; the cache is dropped after the configuration (field order).
            if !unsafe { self.raw.0.set_timing_cache(given.0) }? {
                cache = None;
            }
        }
        if cache.is_none() && !bytes.is_empty() {
            self.cache_was_refused = true;
            return self.set_timing_cache(&[]);
        }
        self.cache = cache.map(TimingCache);
        Ok(())
    }

    fn product(&self) -> &'static str {
        self.builder.library.flavour().product()
    }

    /// Whether the saved timings given were refused, as those of another version or device are.
    pub fn cache_was_refused(&self) -> bool {
        self.cache_was_refused
    }

    /// The timings after a build, also after a cancelled one; `None` when TensorRT gives none.
    ///
    /// # Errors
    /// None in a known version.
    pub fn timings(&self) -> Result<Option<Vec<u8>>> {
        let Some(cache) = &self.cache else { return Ok(None) };
        // SAFETY: the cache lives.
        let Some(memory) = unsafe { cache.0.0.serialize() }? else { return Ok(None) };
        let memory = Owned(memory);
        // SAFETY: the memory lives until the end of this function.
        unsafe { memory.0.to_vec() }.map(Some)
    }
}
