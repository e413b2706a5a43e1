//! Kernels: PTX that the driver compiles for its device.

use super::context::{Context, note};
use super::driver::Handle;
use super::stream::Stream;
use crate::error::{Error, Result};
use std::ffi::{CStr, c_void};
use std::sync::Arc;

/// A compiled module.
pub(crate) struct Module {
    context: Arc<Context>,
    handle: Handle,
}

// SAFETY: a module handle may be used from any thread; the driver API is thread-safe.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// Compiles PTX for the context's device.
    ///
    /// # Errors
    /// What the driver reports; [`crate::ErrorKind::Refused`] when it does not take the PTX.
    pub(crate) fn load(context: &Arc<Context>, ptx: &CStr) -> Result<Arc<Module>> {
        context.make_current()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the text ends in 0; writes one handle, unloaded in drop.
        let code = unsafe { (context.driver.functions.module_load)(&raw mut handle, ptx.as_ptr().cast()) };
        context.driver.check("cuModuleLoadData", code)?;
        Ok(Arc::new(Module { context: Arc::clone(context), handle }))
    }

    /// The kernel of that name.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn kernel(self: &Arc<Self>, name: &CStr) -> Result<Kernel> {
        self.context.make_current()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the module is live; writes one handle that lives as long as the module.
        let code =
            unsafe { (self.context.driver.functions.module_function)(&raw mut handle, self.handle, name.as_ptr()) };
        let at = |error: Error| error.at(format!("kernel `{}`", name.to_string_lossy()));
        self.context.driver.check("cuModuleGetFunction", code).map_err(at)?;
        Ok(Kernel { module: Arc::clone(self), handle })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: loaded once, unloaded once; kernels hold the module.
            let code = unsafe { (self.context.driver.functions.module_unload)(self.handle) };
            note(self.context.driver, "cuModuleUnload", code);
        }
    }
}

/// One kernel of a module.
#[derive(Clone)]
pub(crate) struct Kernel {
    module: Arc<Module>,
    handle: Handle,
}

// SAFETY: as for `Module`.
unsafe impl Send for Kernel {}
// SAFETY: as for `Module`.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// Enqueues a launch of `grid` blocks of `block` threads.
    ///
    /// # Errors
    /// What the driver reports.
    ///
    /// # Safety
    /// `arguments` point at values of the kernel's parameter types, in order; what those point at on the device lives and is
    /// the kernel's alone until the stream has done the launch (each time, when it is recorded in a graph).
    pub(crate) unsafe fn launch(
        &self,
        grid: [u32; 3],
        block: [u32; 3],
        stream: &Stream,
        arguments: &[*const c_void],
    ) -> Result<()> {
        let context = &self.module.context;
        context.make_current()?;
        let arguments = arguments.as_ptr().cast_mut().cast::<*mut c_void>();
        let none = std::ptr::null_mut();
        // SAFETY: kernel and stream are live; the driver reads the arguments during the call; the caller vouches for the rest.
        let code = unsafe {
            (context.driver.functions.kernel_launch)(
                self.handle,
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                0,
                stream.handle(),
                arguments,
                none,
            )
        };
        context.driver.check("cuLaunchKernel", code)
    }
}
