//! Builder, configuration, timing cache, network.

use super::super::abi::{Raw, call};
use super::super::sys::enums::BuilderFlag;
use super::super::sys::{self, Object, enums};
use super::{Builder, Config, HostMemory, Layer, Network, Tensor, TimingCache, by_dims, null, text_of};
use crate::error::{Error, Result};
use std::ffi::c_void;

impl Raw<Builder> {
    pub(in super::super) unsafe fn logger(self) -> Result<Object> {
        // SAFETY: the caller's, see the module.
        Ok(unsafe { call!(self, sys::BuilderGetLogger) })
    }

    pub(in super::super) unsafe fn set_error_recorder(self, recorder: Object) -> Result<()> {
        // SAFETY: the caller's; the recorder outlives the builder.
        unsafe { call!(self, sys::BuilderSetErrorRecorder, recorder) };
        Ok(())
    }

    pub(in super::super) unsafe fn create_network(self) -> Result<Raw<Network>> {
        let flags = enums::network_flags(self.abi().family);
        // SAFETY: the caller's, see the module.
        let object = unsafe { call!(self, sys::BuilderCreateNetworkV2, flags) };
        Raw::new(object, self.abi()).ok_or_else(|| null("createNetworkV2"))
    }

    pub(in super::super) unsafe fn create_config(self) -> Result<Raw<Config>> {
        // SAFETY: the caller's, see the module.
        let object = unsafe { call!(self, sys::BuilderCreateBuilderConfig) };
        Raw::new(object, self.abi()).ok_or_else(|| null("createBuilderConfig"))
    }

    /// `None` when the build failed or was cancelled; the reason is with the error recorder.
    pub(in super::super) unsafe fn build(
        self,
        network: Raw<Network>,
        config: Raw<Config>,
    ) -> Result<Option<Raw<HostMemory>>> {
        // SAFETY: the caller's, see the module.
        let object = unsafe { call!(self, sys::BuilderBuildSerializedNetwork, network.object(), config.object()) };
        Ok(Raw::new(object, self.abi()))
    }
}

impl Raw<Config> {
    pub(in super::super) unsafe fn set_workspace(self, bytes: usize) -> Result<()> {
        // SAFETY: the caller's, see the module.
        unsafe { call!(self, sys::BuilderConfigSetMemoryPoolLimit, enums::MEMORY_POOL_WORKSPACE, bytes) };
        Ok(())
    }

    pub(in super::super) unsafe fn workspace(self) -> Result<usize> {
        // SAFETY: the caller's, see the module.
        Ok(unsafe { call!(self, sys::BuilderConfigGetMemoryPoolLimit, enums::MEMORY_POOL_WORKSPACE) })
    }

    pub(in super::super) unsafe fn set_flag(self, flag: BuilderFlag) -> Result<()> {
        let value = flag.value(self.abi().family).ok_or_else(|| {
            Error::machine_lacks(format!("version {} of this library has no builder flag {flag:?}", self.abi().version))
        })?;
        // SAFETY: the caller's, see the module.
        unsafe { call!(self, sys::BuilderConfigSetFlag, value) };
        // SAFETY: as above.
        match unsafe { call!(self, sys::BuilderConfigGetFlag, value) } {
            0 => Err(Error::unexpected(format!("builder flag {flag:?} was set and read back as not set"))),
            _ => Ok(()),
        }
    }

    pub(in super::super) unsafe fn set_profiling_verbosity(self, value: i32) -> Result<()> {
        // SAFETY: the caller's, see the module.
        unsafe { call!(self, sys::BuilderConfigSetProfilingVerbosity, value) };
        Ok(())
    }

    pub(in super::super) unsafe fn set_optimization_level(self, level: i32) -> Result<()> {
        // SAFETY: the caller's, see the module.
        unsafe { call!(self, sys::BuilderConfigSetBuilderOptimizationLevel, level) };
        Ok(())
    }

    pub(in super::super) unsafe fn optimization_level(self) -> Result<i32> {
        // SAFETY: the caller's, see the module.
        Ok(unsafe { call!(self, sys::BuilderConfigGetBuilderOptimizationLevel) })
    }

    pub(in super::super) unsafe fn set_progress_monitor(self, monitor: Object) -> Result<()> {
        // SAFETY: the caller's; the monitor outlives the config.
        unsafe { call!(self, sys::BuilderConfigSetProgressMonitor, monitor) };
        Ok(())
    }

    pub(in super::super) unsafe fn set_compute_capability_count(self, count: i32) -> Result<bool> {
        // SAFETY: the caller's, see the module.
        Ok(unsafe { call!(self, sys::BuilderConfigSetNbComputeCapabilities, count) } != 0)
    }

    pub(in super::super) unsafe fn set_compute_capability(self, capability: i32, index: i32) -> Result<bool> {
        // SAFETY: the caller's, see the module.
        Ok(unsafe { call!(self, sys::BuilderConfigSetComputeCapability, capability, index) } != 0)
    }

    /// A timing cache from saved bytes; `None` when the library refuses them.
    pub(in super::super) unsafe fn create_timing_cache(self, bytes: &[u8]) -> Result<Option<Raw<TimingCache>>> {
        let start = if bytes.is_empty() { std::ptr::null() } else { bytes.as_ptr().cast::<c_void>() };
        // SAFETY: the caller's; the bytes are only read during the call.
        let object = unsafe { call!(self, sys::BuilderConfigCreateTimingCache, start, bytes.len()) };
        Ok(Raw::new(object, self.abi()))
    }

    pub(in super::super) unsafe fn set_timing_cache(self, cache: Raw<TimingCache>) -> Result<bool> {
        const IGNORE_MISMATCH: u8 = 0;
        // SAFETY: the caller's; the cache outlives the config.
        Ok(unsafe { call!(self, sys::BuilderConfigSetTimingCache, cache.object(), IGNORE_MISMATCH) } != 0)
    }
}

impl Raw<TimingCache> {
    pub(in super::super) unsafe fn serialize(self) -> Result<Option<Raw<HostMemory>>> {
        // SAFETY: the caller's, see the module.
        let object = unsafe { call!(self, sys::TimingCacheSerialize) };
        Ok(Raw::new(object, self.abi()))
    }
}

impl Raw<Network> {
    pub(in super::super) unsafe fn layers(self) -> Result<i32> {
        // SAFETY: the caller's, see the module.
        Ok(unsafe { call!(self, sys::NetworkDefinitionGetNbLayers) })
    }

    pub(in super::super) unsafe fn layer(self, index: i32) -> Result<Raw<Layer>> {
        // SAFETY: the caller's, see the module.
        let object = unsafe { call!(self, sys::NetworkDefinitionGetLayer, index) };
        Raw::new(object, self.abi()).ok_or_else(|| null("getLayer"))
    }

    pub(in super::super) unsafe fn inputs(self) -> Result<i32> {
        // SAFETY: the caller's, see the module.
        Ok(unsafe { call!(self, sys::NetworkDefinitionGetNbInputs) })
    }

    pub(in super::super) unsafe fn input(self, index: i32) -> Result<Raw<Tensor>> {
        // SAFETY: the caller's, see the module.
        let object = unsafe { call!(self, sys::NetworkDefinitionGetInput, index) };
        Raw::new(object, self.abi()).ok_or_else(|| null("getInput"))
    }

    pub(in super::super) unsafe fn outputs(self) -> Result<i32> {
        // SAFETY: the caller's, see the module.
        Ok(unsafe { call!(self, sys::NetworkDefinitionGetNbOutputs) })
    }

    pub(in super::super) unsafe fn output(self, index: i32) -> Result<Raw<Tensor>> {
        // SAFETY: the caller's, see the module.
        let object = unsafe { call!(self, sys::NetworkDefinitionGetOutput, index) };
        Raw::new(object, self.abi()).ok_or_else(|| null("getOutput"))
    }
}

impl Raw<Tensor> {
    pub(in super::super) unsafe fn name(self) -> Result<String> {
        // SAFETY: the caller's; the name belongs to the tensor.
        Ok(unsafe { text_of(call!(self, sys::TensorGetName)) })
    }

    pub(in super::super) unsafe fn sizes(self) -> Result<Vec<i64>> {
        // SAFETY: the caller's, see the module.
        Ok(unsafe { by_dims!(self, sys::TensorGetDimensions8, sys::TensorGetDimensions) })
    }

    pub(in super::super) unsafe fn data_type(self) -> Result<i32> {
        // SAFETY: the caller's, see the module.
        Ok(unsafe { call!(self, sys::TensorGetType) })
    }
}

impl Raw<Layer> {
    pub(in super::super) unsafe fn outputs(self) -> Result<i32> {
        // SAFETY: the caller's, see the module.
        Ok(unsafe { call!(self, sys::LayerGetNbOutputs) })
    }

    /// `None` for an optional output that the layer does not have.
    pub(in super::super) unsafe fn output(self, index: i32) -> Result<Option<Raw<Tensor>>> {
        // SAFETY: the caller's, see the module.
        Ok(Raw::new(unsafe { call!(self, sys::LayerGetOutput, index) }, self.abi()))
    }

    pub(in super::super) unsafe fn set_precision(self, data_type: i32) -> Result<()> {
        // SAFETY: the caller's, see the module.
        unsafe { call!(self, sys::LayerSetPrecision, data_type) };
        Ok(())
    }

    pub(in super::super) unsafe fn set_output_type(self, index: i32, data_type: i32) -> Result<()> {
        // SAFETY: the caller's, see the module.
        unsafe { call!(self, sys::LayerSetOutputType, index, data_type) };
        Ok(())
    }
}

impl Raw<HostMemory> {
    /// Copies the bytes.
    pub(in super::super) unsafe fn to_vec(self) -> Result<Vec<u8>> {
        // SAFETY: the caller's, see the module.
        let (start, length) = unsafe { (call!(self, sys::HostMemoryData), call!(self, sys::HostMemorySize)) };
        if start.is_null() || length == 0 || isize::try_from(length).is_err() {
            return Err(Error::unexpected(format!("TensorRT gave {length} bytes at {start:?}, expected a plan")));
        }
        // SAFETY: the object owns `length` initialised bytes at `start` for as long as it lives, and nobody writes to them.
        Ok(unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) }.to_vec())
    }
}
