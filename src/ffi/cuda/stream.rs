//! Streams and events.

use super::context::{Context, Wait, note};
use super::driver::Handle;
use crate::error::Result;
use std::ffi::{c_uint, c_void};
use std::sync::Arc;
use std::time::Duration;

/// A queue of work on the device. Does not wait for the default stream.
#[derive(Debug)]
pub struct Stream {
    pub(super) context: Arc<Context>,
    handle: Handle,
}

// SAFETY: the driver API is thread-safe and a stream handle may be used from any thread; the order of what two threads enqueue
// is theirs to settle.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new stream.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Stream>> {
        const NON_BLOCKING: c_uint = 1;
        context.make_current()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle; the context is current; destroyed in drop.
        let code = unsafe { (context.driver.functions.stream_create)(&raw mut handle, NON_BLOCKING) };
        context.driver.check("cuStreamCreate", code)?;
        Ok(Arc::new(Stream { context: Arc::clone(context), handle }))
    }

    /// The context it belongs to.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Waits until everything enqueued so far is done.
    ///
    /// # Errors
    /// What the driver reports, also for earlier work.
    pub fn synchronize(&self) -> Result<()> {
        self.context.make_current()?;
        // SAFETY: the handle is live until drop.
        self.context
            .driver
            .check("cuStreamSynchronize", unsafe { (self.context.driver.functions.stream_wait)(self.handle) })
    }

    /// Makes later work of this stream wait for an event.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        self.context.make_current()?;
        // SAFETY: both handles are live.
        self.context.driver.check("cuStreamWaitEvent", unsafe {
            (self.context.driver.functions.stream_wait_event)(self.handle, event.handle, 0)
        })
    }

    /// The `cudaStream_t` that TensorRT takes.
    pub(crate) fn handle(&self) -> *mut c_void {
        self.handle
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: made in `new`, destroyed once; the driver finishes what is enqueued first.
            let code = unsafe { (self.context.driver.functions.stream_destroy)(self.handle) };
            note(self.context.driver, "cuStreamDestroy", code);
        }
    }
}

/// A mark in a stream: can be waited for and timed.
#[derive(Debug)]
pub struct Event {
    context: Arc<Context>,
    handle: Handle,
}

// SAFETY: as for `Stream`.
unsafe impl Send for Event {}
// SAFETY: as for `Stream`.
unsafe impl Sync for Event {}

impl Event {
    /// A new event with timing, waited for as `wait` says.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn new(context: &Arc<Context>, wait: Wait) -> Result<Event> {
        const BLOCKING_SYNC: c_uint = 1;
        context.make_current()?;
        let flags = if wait == Wait::Block { BLOCKING_SYNC } else { 0 };
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle; the context is current; destroyed in drop.
        let code = unsafe { (context.driver.functions.event_create)(&raw mut handle, flags) };
        context.driver.check("cuEventCreate", code)?;
        Ok(Event { context: Arc::clone(context), handle })
    }

    /// Marks the current end of a stream.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.context.make_current()?;
        // SAFETY: both handles are live.
        self.context
            .driver
            .check("cuEventRecord", unsafe { (self.context.driver.functions.event_record)(self.handle, stream.handle) })
    }

    /// Marks the current end of a stream; inside of a recording a step of the graph that marks it at every launch.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn record_in_graph(&self, stream: &Stream) -> Result<()> {
        const EXTERNAL: c_uint = 1;
        self.context.make_current()?;
        // SAFETY: both handles are live.
        self.context.driver.check("cuEventRecordWithFlags", unsafe {
            (self.context.driver.functions.event_record_flags)(self.handle, stream.handle, EXTERNAL)
        })
    }

    /// Waits until the stream has passed the mark.
    ///
    /// # Errors
    /// What the driver reports, also for earlier work.
    pub fn synchronize(&self) -> Result<()> {
        self.context.make_current()?;
        // SAFETY: the handle is live.
        self.context
            .driver
            .check("cuEventSynchronize", unsafe { (self.context.driver.functions.event_wait)(self.handle) })
    }

    /// Whether the stream has passed the mark.
    ///
    /// # Errors
    /// What the driver reports, also for earlier work.
    pub fn is_done(&self) -> Result<bool> {
        const NOT_READY: super::driver::Code = 600;
        self.context.make_current()?;
        // SAFETY: the handle is live.
        match unsafe { (self.context.driver.functions.event_query)(self.handle) } {
            NOT_READY => Ok(false),
            code => self.context.driver.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Time on the device from this mark to a later one; both must have been passed.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn elapsed_until(&self, later: &Event) -> Result<Duration> {
        self.context.make_current()?;
        let mut milliseconds = 0.0_f32;
        // SAFETY: both handles are live; writes one number.
        let code =
            unsafe { (self.context.driver.functions.event_elapsed)(&raw mut milliseconds, self.handle, later.handle) };
        self.context.driver.check("cuEventElapsedTime", code)?;
        Ok(Duration::try_from_secs_f32(milliseconds / 1e3).unwrap_or_default())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: made in `new`, destroyed once.
            let code = unsafe { (self.context.driver.functions.event_destroy)(self.handle) };
            note(self.context.driver, "cuEventDestroy", code);
        }
    }
}
