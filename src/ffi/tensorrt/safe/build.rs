//! Builder, network, configuration, timing cache: one thread, one build.

use super::super::abi::Raw;
use super::super::callbacks::{self, Callback, Monitor, ProgressMonitor, Recorder, ReportedError};
use super::super::result;
use super::super::sys::enums::BuilderFlag;
use super::Owned;
use super::library::Library;
use super::run::{DataType, TensorFacts};
use crate::error::{Error, Result};
use crate::units::Bytes;
use std::ffi::CString;
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

    /// The library it came from.
    pub fn library(&self) -> &Arc<Library> {
        &self.library
    }

    /// Builds a plan. `None`: the build failed or was cancelled; [`Builder::take_errors`] says why.
    ///
    /// # Errors
    /// `network` or `config` is of another builder.
    pub fn build(self: &Rc<Self>, network: &Network, config: &Config) -> Result<Option<Vec<u8>>> {
        if !Rc::ptr_eq(self, &network.builder) || !Rc::ptr_eq(self, &config.builder) {
            return Err(Error::unexpected("network and configuration must be of the builder that builds them"));
        }
        // SAFETY: all three live, are of one library and on one thread; the network still has its parser with the weights.
        let Some(memory) = unsafe { self.raw.0.build(network.raw.0, config.raw.0) }? else { return Ok(None) };
        let memory = Owned(memory);
        // SAFETY: the memory lives until the end of this function.
        unsafe { memory.0.to_vec() }.map(Some)
    }

    /// What TensorRT reported to this builder since the last call.
    pub fn take_errors(&self) -> Vec<ReportedError> {
        self.recorder.payload().take()
    }
}

/// One error of the ONNX parser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParserError {
    /// `nvonnxparser::ErrorCode`.
    pub code: i32,
    /// The parser's text.
    pub description: String,
    /// Index of the node, if one is to blame.
    pub node: Option<u32>,
    /// Name of the node; empty on TensorRT 8.
    pub node_name: String,
    /// Operator of the node; empty on TensorRT 8.
    pub operator: String,
}

/// A network read from ONNX, with the parser that owns its weights.
pub struct Network {
    parser: OwnedParser,
    raw: Owned<result::Network>,
    builder: Rc<Builder>,
}

/// A parser, deleted before its network and only after every build from it.
struct OwnedParser(Raw<result::Parser>);

impl Drop for OwnedParser {
    fn drop(&mut self) {
        // SAFETY: made by the parser library's factory, deleted once here; `Network` drops it first of its fields.
        if let Err(error) = unsafe { self.0.delete() } {
            log::warn!("while freeing: {}", error.message());
        }
    }
}

impl Network {
    /// Reads a model: explicit batch on TensorRT 8, strongly typed everywhere else.
    ///
    /// # Errors
    /// No parser of this version ([`crate::ErrorKind::MachineLacks`]); the parser refuses the model
    /// ([`crate::ErrorKind::Refused`], with the node).
    pub fn from_onnx(builder: &Rc<Builder>, model: &[u8]) -> Result<Network> {
        let library = Arc::clone(&builder.library);
        let factory = library.parser()?;
        // SAFETY: the builder lives and the network holds it.
        let raw = Owned(unsafe { builder.raw.0.create_network() }?);
        // SAFETY: network and logger live and have this family's layout; the version is the parser's own.
        let parser = unsafe { (factory.create_parser)(raw.0.object(), library.logger(), factory.version) };
        let parser =
            Raw::<result::Parser>::new(parser, library.abi()).ok_or_else(|| library.no_object("ONNX parser"))?;
        let network = Network { parser: OwnedParser(parser), raw, builder: Rc::clone(builder) };
        // SAFETY: the parser lives.
        if !unsafe { network.parser.0.parse(model) }? {
            return Err(refusal(&network.errors()?, &builder.take_errors()));
        }
        // A file that is cut off at the right place parses to nothing.
        // SAFETY: the network lives.
        if unsafe { network.raw.0.outputs() }? == 0 {
            return Err(Error::refused(
                "TensorRT's ONNX parser refused the model: found no output, expected at least one",
            ));
        }
        Ok(network)
    }

    fn errors(&self) -> Result<Vec<ParserError>> {
        let parser = self.parser.0;
        // SAFETY: the parser and its errors live as long as `self`; so below.
        let count = unsafe { parser.errors() }?;
        (0..count)
            .map(|index| {
                // SAFETY: as above.
                unsafe {
                    let error = parser.error(index)?;
                    Ok(ParserError {
                        code: error.code()?,
                        description: error.description()?,
                        node: u32::try_from(error.node()?).ok(),
                        node_name: error.node_name()?,
                        operator: error.node_operator()?,
                    })
                }
            })
            .collect()
    }

    /// Number of layers that the parser made.
    ///
    /// # Errors
    /// None in a known version.
    pub fn layers(&self) -> Result<u32> {
        // SAFETY: the network lives.
        Ok(u32::try_from(unsafe { self.raw.0.layers() }?).unwrap_or(0))
    }

    /// Inputs, then outputs.
    ///
    /// # Errors
    /// A tensor that TensorRT does not hand out, or a type that is not known.
    pub fn tensors(&self) -> Result<Vec<TensorFacts>> {
        let network = self.raw.0;
        let facts = |tensor: Raw<result::Tensor>, input| {
            // SAFETY: tensors live as long as their network.
            unsafe {
                let name = CString::new(tensor.name()?).unwrap_or_default();
                TensorFacts::new(name, tensor.sizes()?, tensor.data_type()?, input)
            }
        };
        // SAFETY: the network lives.
        let (inputs, outputs) = unsafe { (network.inputs()?, network.outputs()?) };
        // SAFETY: as above, and the indices are below the counts.
        let inputs = (0..inputs).map(|index| facts(unsafe { network.input(index) }?, true));
        // SAFETY: as above.
        let outputs = (0..outputs).map(|index| facts(unsafe { network.output(index) }?, false));
        inputs.chain(outputs).collect()
    }

    /// Holds every layer to the types of its tensors (TensorRT 8, where the graph's types are a wish otherwise): each layer
    /// computes in the type of its first output and its outputs keep theirs. The types found, by number of layers.
    ///
    /// # Errors
    /// A family without this method, or a type that is not known.
    pub fn constrain_layers(&self) -> Result<Vec<(DataType, u32)>> {
        let mut found: Vec<(DataType, u32)> = vec![];
        // SAFETY: the network lives; layers and tensors live as long as it; indices are below the counts.
        unsafe {
            for index in 0..self.raw.0.layers()? {
                let layer = self.raw.0.layer(index)?;
                let mut first = None;
                for output in 0..layer.outputs()? {
                    let Some(tensor) = layer.output(output)? else { continue };
                    let data_type = DataType::of(tensor.data_type()?)?;
                    layer.set_output_type(output, data_type.value())?;
                    first = first.or(Some(data_type));
                }
                let Some(data_type) = first.filter(|data_type| data_type.computes()) else { continue };
                layer.set_precision(data_type.value())?;
                match found.iter_mut().find(|entry| entry.0 == data_type) {
                    Some(entry) => entry.1 += 1,
                    None => found.push((data_type, 1)),
                }
            }
        }
        Ok(found)
    }
}

/// The parser's refusal in our words: the first error leads, others are counted.
fn refusal(errors: &[ParserError], reported: &[ReportedError]) -> Error {
    let Some(first) = errors.first() else {
        let text = reported.first().map_or("it gave no reason", |error| error.text.as_str());
        return Error::refused(format!("TensorRT's ONNX parser refused the model: {text}"));
    };
    let more = if errors.len() > 1 { format!(" (and {} more errors)", errors.len() - 1) } else { String::new() };
    let text = first.description.trim().trim_end_matches('.');
    let error = Error::refused(format!("TensorRT's ONNX parser refused the model: {text}{more}"));
    match (first.node, first.node_name.as_str()) {
        (_, name) if !name.is_empty() => error.at(format!("node `{name}` ({})", first.operator)),
        (Some(node), _) => error.at(format!("node {node}")),
        _ => error,
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
