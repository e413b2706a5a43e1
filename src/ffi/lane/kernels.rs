//! The project's kernels and their launches.

use super::decode::{Decode, GATHER_THREADS, SCAN_THREADS};
use super::layout::{LaneLayout, Section};
use crate::error::{Error, Result};
use crate::ffi::cuda::{Context, DeviceBuffer, Kernel, Module, Stream};
use crate::units::count;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

/// PTX made by `tools/make_ptx.py`, with the 0 that the driver wants at its end.
macro_rules! ptx {
    ($name:literal) => {
        concat!(include_str!(concat!("../../gpu/kernels/", $name, ".ptx")), "\0").as_bytes()
    };
}

/// The kernels, compiled for one device.
#[derive(Clone)]
pub struct Kernels {
    context: Arc<Context>,
    preprocess: Kernel,
    scan: Kernel,
    gather: Kernel,
    /// Element of the network's input: 0 float, 1 half, 2 bytes.
    element: u32,
    /// Which of the engine's tensors is the input.
    input: usize,
}

fn text(bytes: &'static [u8]) -> Result<&'static CStr> {
    CStr::from_bytes_with_nul(bytes).map_err(|_| Error::unexpected("found PTX with a zero byte inside"))
}

impl Kernels {
    /// The same kernels for another input.
    #[must_use]
    pub fn for_input(&self, input: usize, element: u32) -> Kernels {
        Kernels { input, element, ..self.clone() }
    }

    /// Compiles the kernels. `input` is the place of the network's input among its tensors, `element` its type: 0 for 32-bit, 1
    /// for 16-bit floats, 2 for bytes.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] when the driver does not take them.
    pub fn load(context: &Arc<Context>, input: usize, element: u32) -> Result<Kernels> {
        let preprocess = Module::load(context, text(ptx!("preprocess"))?)?;
        let candidates = Module::load(context, text(ptx!("candidates"))?)?;
        Ok(Kernels {
            preprocess: preprocess.kernel(c"preprocess")?,
            scan: candidates.kernel(c"scan")?,
            gather: candidates.kernel(c"gather")?,
            context: Arc::clone(context),
            element,
            input,
        })
    }

    /// The context they were compiled in.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Enqueues the letterbox of every slot of `staging`.
    pub(super) fn preprocess(
        &self,
        arena: &DeviceBuffer,
        layout: &LaneLayout,
        staging: Section,
        stream: &Stream,
    ) -> Result<()> {
        const BLOCK: [u32; 3] = [32, 8, 1];
        let shape = &layout.shape;
        let element_bytes = [4, 2, 1].get(crate::units::index(self.element)).copied().unwrap_or(u64::MAX);
        let input = layout.tensors.get(self.input).copied().filter(|input| {
            let pixels = u64::from(shape.width) * u64::from(shape.height) * u64::from(shape.channels);
            pixels.saturating_mul(u64::from(shape.batch)).saturating_mul(element_bytes) == count(input.bytes)
        });
        let input = input.ok_or_else(|| Error::unexpected(format!("found no input tensor that fits {shape:?}")))?;
        let slots = staging.first_slot();
        let staging = arena.part(slots.offset, slots.bytes)?;
        let target = arena.part(input.offset, input.bytes)?;
        let slot_bytes = count(layout.slot_bytes);
        let grid = [shape.width.div_ceil(BLOCK[0]), shape.height.div_ceil(BLOCK[1]), shape.batch];
        let arguments = [
            pointer(&staging),
            pointer(&slot_bytes),
            pointer(&target),
            pointer(&shape.channels),
            pointer(&shape.width),
            pointer(&shape.height),
            pointer(&self.element),
        ];
        // SAFETY: the arguments are those of `preprocess` in order. It reads `batch` slots, whose heads `StagedPicture::check` has
        // compared with their lengths, and writes the input, whose length was compared above. The arena outlives the stream's
        // work, as the lane holds both.
        unsafe { self.preprocess.launch(grid, BLOCK, stream, &arguments) }
    }

    /// Enqueues the search for candidates in every picture's output, above the floor of `staging`.
    pub(super) fn candidates(
        &self,
        arena: &DeviceBuffer,
        layout: &LaneLayout,
        decode: &Decode,
        staging: Section,
        stream: &Stream,
    ) -> Result<()> {
        let at = |section: Section| arena.part(section.offset, section.bytes);
        let floor = at(staging)?;
        let (keys, class_ids, partials) = (at(layout.keys)?, at(layout.class_ids)?, at(layout.partials)?);
        let (answers, rest) = (at(layout.answers)?, layout.rest.map_or(Ok(0), at)?);
        let batch = layout.shape.batch;
        let scan = [pointer(&decode.raw), pointer(&floor), pointer(&keys), pointer(&class_ids), pointer(&partials)];
        // SAFETY: the arguments are those of `scan` in order; `Decode::placed` has compared the tensors' lengths with what is read,
        // `LaneLayout::new` has sized the rest for this batch and these anchors. The arena outlives the work, as in `preprocess`.
        unsafe { self.scan.launch([decode.raw.blocks, batch, 1], [SCAN_THREADS, 1, 1], stream, &scan) }?;
        let gather = [
            pointer(&decode.raw),
            pointer(&keys),
            pointer(&class_ids),
            pointer(&partials),
            pointer(&answers),
            pointer(&rest),
        ];
        // SAFETY: as above, for `gather`; `rest` is only written behind the first boxes, and then it has a section.
        unsafe { self.gather.launch([batch, 1, 1], [GATHER_THREADS, 1, 1], stream, &gather) }
    }
}

fn pointer<T>(value: &T) -> *const c_void {
    std::ptr::from_ref(value).cast()
}
