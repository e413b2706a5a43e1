//! Device memory and page-locked host memory.

use super::context::{Context, note};
use super::driver::DeviceAddress;
use super::stream::Stream;
use crate::error::{Error, Result};
use crate::units::Bytes;
use std::ffi::{c_uint, c_void};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Allocations of this process that were not given back, device and page-locked host memory together.
static LIVE: AtomicU64 = AtomicU64::new(0);

/// Allocations that were not given back, device and page-locked host memory of this process together.
pub fn live_allocations() -> u64 {
    LIVE.load(Ordering::Acquire)
}

/// Bytes of device memory, one driver allocation, freed on drop.
///
/// Dropping waits for the device, as `cuMemFree` does.
#[derive(Debug)]
pub struct DeviceBuffer {
    context: Arc<Context>,
    address: DeviceAddress,
    bytes: usize,
}

impl DeviceBuffer {
    /// Allocates.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Budget`] when the device has not that much left.
    pub fn new(context: &Arc<Context>, bytes: usize) -> Result<DeviceBuffer> {
        context.make_current()?;
        let mut address = 0;
        // SAFETY: writes one address; the context is current; freed in drop.
        let code = unsafe { (context.driver.functions.memory_allocate)(&raw mut address, bytes.max(1)) };
        let at = |error: Error| error.at(format!("{} of device memory", Bytes(crate::units::count(bytes))));
        context.driver.check("cuMemAlloc", code).map_err(at)?;
        LIVE.fetch_add(1, Ordering::AcqRel);
        Ok(DeviceBuffer { context: Arc::clone(context), address, bytes })
    }

    /// Length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The device address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The address `offset` bytes in, when `bytes` more lie behind it.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unexpected`] when they do not.
    pub fn part(&self, offset: usize, bytes: usize) -> Result<u64> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(self.address + crate::units::count(offset)),
            _ => Err(Error::unexpected(format!(
                "found a device buffer of {} bytes, expected {bytes} bytes from {offset}",
                self.bytes
            ))),
        }
    }

    /// Enqueues a copy of the whole of `source` to `offset`.
    ///
    /// # Errors
    /// It does not fit, or what the driver reports.
    ///
    /// # Safety
    /// Until the stream has done the copy (each time, when it is recorded in a graph) both buffers live and nobody writes to
    /// `source`.
    pub unsafe fn copy_from(&self, offset: usize, source: &PinnedBuffer, stream: &Stream) -> Result<()> {
        let target = self.part(offset, source.bytes())?;
        self.context.make_current()?;
        let start = source.start.as_ptr().cast::<c_void>().cast_const();
        // SAFETY: both ranges are long enough (checked); the caller vouches for the rest.
        self.context.driver.check("cuMemcpyHtoDAsync", unsafe {
            (self.context.driver.functions.copy_to_device)(target, start, source.bytes(), stream.handle())
        })
    }

    /// Enqueues a copy of `range` of `source` to `offset`.
    ///
    /// # Errors
    /// It does not fit, or what the driver reports.
    ///
    /// # Safety
    /// As [`DeviceBuffer::copy_from`].
    pub unsafe fn copy_part_from(
        &self,
        offset: usize,
        source: &PinnedBuffer,
        range: std::ops::Range<usize>,
        stream: &Stream,
    ) -> Result<()> {
        let target = self.part(offset, range.len())?;
        if range.end > source.bytes() {
            return Err(Error::unexpected(format!(
                "found a copy of bytes {range:?}, expected at most {}",
                source.bytes()
            )));
        }
        self.context.make_current()?;
        // SAFETY: both ranges are long enough (checked); the caller vouches for the rest.
        self.context.driver.check("cuMemcpyHtoDAsync", unsafe {
            let start = source.start.as_ptr().add(range.start).cast::<c_void>().cast_const();
            (self.context.driver.functions.copy_to_device)(target, start, range.len(), stream.handle())
        })
    }

    /// Enqueues a copy of `target`'s length from `offset`.
    ///
    /// # Errors
    /// It does not fit, or what the driver reports.
    ///
    /// # Safety
    /// Until the stream has done the copy (each time, when it is recorded in a graph) both buffers live and nobody reads or
    /// writes `target`.
    pub unsafe fn copy_to(&self, offset: usize, target: &PinnedBuffer, stream: &Stream) -> Result<()> {
        let source = self.part(offset, target.bytes())?;
        self.context.make_current()?;
        // SAFETY: both ranges are long enough (checked); the caller vouches for the rest.
        self.context.driver.check("cuMemcpyDtoHAsync", unsafe {
            (self.context.driver.functions.copy_to_host)(
                target.start.as_ptr().cast(),
                source,
                target.bytes(),
                stream.handle(),
            )
        })
    }

    /// Enqueues filling the whole buffer with one byte value.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn fill(&self, value: u8, stream: &Stream) -> Result<()> {
        self.context.make_current()?;
        // SAFETY: the whole range is ours.
        self.context.driver.check("cuMemsetD8Async", unsafe {
            (self.context.driver.functions.fill)(self.address, value, self.bytes, stream.handle())
        })
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: allocated in `new`, freed once; the driver waits for work that uses it.
            let code = unsafe { (self.context.driver.functions.memory_free)(self.address) };
            note(self.context.driver, "cuMemFree", code);
            LIVE.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Page-locked host memory: copies to and from the device run beside the CPU.
#[derive(Debug)]
pub struct PinnedBuffer {
    context: Arc<Context>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain memory of our own; what the device does to it is the contract of the `unsafe` copies.
unsafe impl Send for PinnedBuffer {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for PinnedBuffer {}

impl PinnedBuffer {
    /// Allocates, filled with zeros.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn new(context: &Arc<Context>, bytes: usize) -> Result<PinnedBuffer> {
        const PORTABLE: c_uint = 1;
        context.make_current()?;
        let mut start = std::ptr::null_mut();
        // SAFETY: writes one address; the context is current; freed in drop.
        let code = unsafe { (context.driver.functions.host_allocate)(&raw mut start, bytes.max(1), PORTABLE) };
        context.driver.check("cuMemHostAlloc", code)?;
        let start =
            NonNull::new(start.cast::<u8>()).ok_or_else(|| Error::unexpected("`cuMemHostAlloc` gave no memory"))?;
        // SAFETY: the driver gave at least `bytes` writable bytes.
        unsafe { start.as_ptr().write_bytes(0, bytes) };
        LIVE.fetch_add(1, Ordering::AcqRel);
        Ok(PinnedBuffer { context: Arc::clone(context), start, bytes })
    }

    /// Length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `bytes` initialised bytes (zeroed in `new`), and whoever enqueued a copy keeps readers out while it runs.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// The bytes to fill.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and the exclusive reference keeps other threads out.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: allocated in `new`, freed once; the driver waits for work that uses it.
            let code = unsafe { (self.context.driver.functions.host_free)(self.start.as_ptr().cast()) };
            note(self.context.driver, "cuMemFreeHost", code);
            LIVE.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
