//! Devices and their contexts.

use super::driver::{Driver, Handle};
use crate::error::{Error, Result};
use crate::units::{Bytes, count};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::fmt;
use std::sync::Arc;

/// What a device says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// Ordinal among the visible devices, from 0.
    pub ordinal: u32,
    /// Product name.
    pub name: String,
    /// Compute capability × 10, as in 75 for 7.5.
    pub compute_capability: u32,
    /// Memory that the driver reports; on a Jetson that of the whole board.
    pub memory: Bytes,
    /// Whether CPU and GPU share their memory (Jetson).
    pub integrated: bool,
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Whether error correction is on.
    pub ecc: bool,
}

/// Every device of a driver.
///
/// # Errors
/// What the driver reports.
pub fn devices(driver: &'static Driver) -> Result<Vec<DeviceFacts>> {
    (0..driver.device_count()).map(|ordinal| facts(driver, ordinal)).collect()
}

fn device(driver: &Driver, ordinal: u32) -> Result<c_int> {
    let (mut device, wanted) = (0, c_int::try_from(ordinal).unwrap_or(c_int::MAX));
    // SAFETY: writes one number.
    driver.check("cuDeviceGet", unsafe { (driver.functions.device)(&raw mut device, wanted) })?;
    Ok(device)
}

fn facts(driver: &'static Driver, ordinal: u32) -> Result<DeviceFacts> {
    const MULTIPROCESSORS: c_int = 16;
    const INTEGRATED: c_int = 18;
    const ECC: c_int = 32;
    const CAPABILITY_MAJOR: c_int = 75;
    const CAPABILITY_MINOR: c_int = 76;
    let device = device(driver, ordinal)?;
    let attribute = |which: c_int| -> Result<u32> {
        let mut value = 0;
        // SAFETY: writes one number.
        let code = unsafe { (driver.functions.device_attribute)(&raw mut value, which, device) };
        driver.check("cuDeviceGetAttribute", code)?;
        Ok(u32::try_from(value).unwrap_or(0))
    };
    let mut name: [c_char; 256] = [0; 256];
    // SAFETY: writes at most 255 bytes and a final 0.
    driver.check("cuDeviceGetName", unsafe { (driver.functions.device_name)(name.as_mut_ptr(), 255, device) })?;
    // SAFETY: the array holds a final 0, as its last byte was never written.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    let mut memory_bytes = 0;
    // SAFETY: writes one number.
    driver.check("cuDeviceTotalMem", unsafe { (driver.functions.device_memory)(&raw mut memory_bytes, device) })?;
    Ok(DeviceFacts {
        ordinal,
        name,
        compute_capability: attribute(CAPABILITY_MAJOR)? * 10 + attribute(CAPABILITY_MINOR)?,
        memory: Bytes(count(memory_bytes)),
        integrated: attribute(INTEGRATED)? != 0,
        multiprocessors: attribute(MULTIPROCESSORS)?,
        ecc: attribute(ECC)? != 0,
    })
}

/// Where a device sits, as other libraries name it: `00000000:3B:00.0`.
///
/// # Errors
/// What the driver reports; there is no such device.
pub fn pci_address(driver: &'static Driver, ordinal: u32) -> Result<String> {
    const BUS: c_int = 33;
    const DEVICE: c_int = 34;
    const DOMAIN: c_int = 50;
    if ordinal >= driver.device_count() {
        return Err(Error::machine_lacks(format!("found no GPU {ordinal}")));
    }
    let device = device(driver, ordinal)?;
    let attribute = |which: c_int| -> Result<c_int> {
        let mut value = 0;
        // SAFETY: writes one number.
        let code = unsafe { (driver.functions.device_attribute)(&raw mut value, which, device) };
        driver.check("cuDeviceGetAttribute", code).map(|()| value)
    };
    Ok(format!("{:08X}:{:02X}:{:02X}.0", attribute(DOMAIN)?, attribute(BUS)?, attribute(DEVICE)?))
}

/// How a thread waits for the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wait {
    /// Sleeps until the driver wakes it: little CPU, some tens of microseconds later.
    #[default]
    Block,
    /// Polls: earliest answer, one CPU core.
    Spin,
}

/// Device memory as the driver sees it at one moment, all processes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Free, in the driver's opinion. On a Jetson reclaimable pages do not count as free.
    pub free: Bytes,
    /// In all.
    pub total: Bytes,
}

/// The primary context of a device, the one that TensorRT uses too.
pub struct Context {
    pub(super) driver: &'static Driver,
    handle: Handle,
    device: c_int,
    facts: DeviceFacts,
}

// SAFETY: "a context may be current to several threads at the same time" (CUDA driver API, context management): the handle is
// an address, and every call that uses it is thread-safe.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("device", &self.facts).finish_non_exhaustive()
    }
}

impl Context {
    /// Makes the device's primary context and takes a reference to it.
    ///
    /// # Errors
    /// No such device, or what the driver reports (out of memory: [`crate::ErrorKind::Budget`]).
    pub fn new(driver: &'static Driver, ordinal: u32, wait: Wait) -> Result<Arc<Context>> {
        const SCHEDULE_SPIN: c_uint = 1;
        const SCHEDULE_BLOCKING_SYNC: c_uint = 4;
        if ordinal >= driver.device_count() {
            let found = driver.device_count();
            return Err(Error::machine_lacks(format!(
                "found {found} CUDA devices, expected one with ordinal {ordinal}"
            )));
        }
        let (device, facts) = (device(driver, ordinal)?, facts(driver, ordinal)?);
        let flags = if wait == Wait::Spin { SCHEDULE_SPIN } else { SCHEDULE_BLOCKING_SYNC };
        let mut handle = std::ptr::null_mut();
        // SAFETY: the device is one of this driver's.
        driver.check("cuDevicePrimaryCtxSetFlags", unsafe { (driver.functions.context_flags)(device, flags) })?;
        // SAFETY: writes one handle; released in drop.
        let code = unsafe { (driver.functions.context_retain)(&raw mut handle, device) };
        driver.check("cuDevicePrimaryCtxRetain", code)?;
        let context = Arc::new(Context { driver, handle, device, facts });
        context.make_current()?;
        Ok(context)
    }

    /// What the device says of itself.
    pub fn device(&self) -> &DeviceFacts {
        &self.facts
    }

    /// Makes this context the calling thread's. Needed before a call into TensorRT; the functions of this module do it themselves.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn make_current(&self) -> Result<()> {
        // SAFETY: the handle is live until drop.
        self.driver.check("cuCtxSetCurrent", unsafe { (self.driver.functions.context_current)(self.handle) })
    }

    /// Waits until the device has done everything asked of it in this context.
    ///
    /// # Errors
    /// What the driver reports, also for earlier work.
    pub fn synchronize(&self) -> Result<()> {
        self.make_current()?;
        // SAFETY: the context is current.
        self.driver.check("cuCtxSynchronize", unsafe { (self.driver.functions.context_wait)() })
    }

    /// Device memory at this moment, all processes together.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn memory(&self) -> Result<MemoryInfo> {
        self.make_current()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two numbers; the context is current.
        let code = unsafe { (self.driver.functions.memory_info)(&raw mut free, &raw mut total) };
        self.driver.check("cuMemGetInfo", code)?;
        Ok(MemoryInfo { free: Bytes(count(free)), total: Bytes(count(total)) })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once in `new`; everything made in it held an `Arc` and is gone.
        let code = unsafe { (self.driver.functions.context_release)(self.device) };
        note(self.driver, "cuDevicePrimaryCtxRelease", code);
    }
}

/// An error in a destructor can only be told.
pub(super) fn note(driver: &Driver, call: &str, code: super::driver::Code) {
    if let Err(error) = driver.check(call, code) {
        log::warn!("while freeing: {}", error.message());
    }
}

impl fmt::Display for DeviceFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = (self.compute_capability / 10, self.compute_capability % 10);
        let kind = if self.integrated { "shared with the CPU" } else { "its own" };
        write!(f, "{} (compute capability {major}.{minor}, {} of memory, {kind})", self.name, self.memory)
    }
}
