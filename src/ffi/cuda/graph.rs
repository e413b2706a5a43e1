//! CUDA graphs: a stream's work recorded once and launched as one.

use super::context::note;
use super::driver::Handle;
use super::stream::Stream;
use crate::error::Result;
use std::ffi::c_uint;
use std::sync::Arc;

/// A recorded and instantiated graph. Holds what it was recorded with.
pub struct Graph {
    stream: Arc<Stream>,
    handle: Handle,
    _uses: Vec<Box<dyn Send + Sync>>,
}

// SAFETY: a graph may be launched from any thread; two launches at once are kept out by `&mut self`.
unsafe impl Send for Graph {}
// SAFETY: shared references only allow asking for nothing.
unsafe impl Sync for Graph {}

impl Graph {
    /// Records what `work` enqueues on `stream`. `uses` are the buffers and contexts whose addresses the graph keeps.
    ///
    /// # Errors
    /// What `work` or the driver reports; the stream is out of capture mode afterwards in every case.
    ///
    /// # Safety
    /// `uses` keeps alive every address that `work` enqueues, and host memory that the graph copies is not touched between a
    /// launch and the end of its work.
    pub unsafe fn record(
        stream: &Arc<Stream>,
        uses: Vec<Box<dyn Send + Sync>>,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<Graph> {
        const MODE_THREAD_LOCAL: c_uint = 1;
        let context = &stream.context;
        let functions = &context.driver.functions;
        context.make_current()?;
        // SAFETY: the stream is live.
        let code = unsafe { (functions.capture_begin)(stream.handle(), MODE_THREAD_LOCAL) };
        context.driver.check("cuStreamBeginCapture", code)?;
        let worked = work();
        let mut recorded = std::ptr::null_mut();
        // SAFETY: the stream is live and in capture mode; writes one handle.
        let code = unsafe { (functions.capture_end)(stream.handle(), &raw mut recorded) };
        let recorded = Recorded { stream, handle: recorded };
        worked?;
        context.driver.check("cuStreamEndCapture", code)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the graph is live until the end of this function; writes one handle, destroyed in drop.
        let code = unsafe { (functions.graph_instantiate)(&raw mut handle, recorded.handle, 0) };
        context.driver.check("cuGraphInstantiateWithFlags", code)?;
        Ok(Graph { stream: Arc::clone(stream), handle, _uses: uses })
    }

    /// Enqueues the whole graph on the stream it was recorded from.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn launch(&mut self) -> Result<()> {
        let context = &self.stream.context;
        context.make_current()?;
        // SAFETY: both handles are live, and what the graph uses is held by it.
        context.driver.check("cuGraphLaunch", unsafe {
            (context.driver.functions.graph_launch)(self.handle, self.stream.handle())
        })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Err(error) = self.stream.synchronize() {
            log::warn!("while freeing a graph: {}", error.message());
        }
        // SAFETY: instantiated in `record`, destroyed once, no launch is under way.
        let code = unsafe { (self.stream.context.driver.functions.graph_exec_destroy)(self.handle) };
        note(self.stream.context.driver, "cuGraphExecDestroy", code);
    }
}

/// The graph as recorded, needed until it is instantiated.
struct Recorded<'a> {
    stream: &'a Stream,
    handle: Handle,
}

impl Drop for Recorded<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: given to us by `cuStreamEndCapture`, destroyed once.
            let code = unsafe { (self.stream.context.driver.functions.graph_destroy)(self.handle) };
            note(self.stream.context.driver, "cuGraphDestroy", code);
        }
    }
}
