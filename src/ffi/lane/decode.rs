//! What the candidate kernels know of the output; `struct Decode` of `candidates.cu`.

use super::layout::LaneLayout;
use crate::error::{Error, Result};
use crate::ffi::cuda::DeviceBuffer;
use crate::ffi::tensorrt::{DataType, TensorFacts};

/// Threads of a block of `scan`.
pub(super) const SCAN_THREADS: u32 = 128;
/// Threads of the block of `gather`.
pub(super) const GATHER_THREADS: u32 = 1024;
/// Length of one block's counts.
pub(super) const PARTIAL_BYTES: usize = 56;

/// How an output is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeKind {
    /// `[n, 4 + classes, anchors]`.
    Raw,
    /// `[n, anchors, 5 + classes]`.
    Objectness,
    /// `[n, rows, 6]`.
    EndToEnd,
    /// Count, boxes, scores, class ids.
    Plugin,
}

/// The output's layout with the tensors that hold it.
#[derive(Debug, Clone)]
pub struct Decode {
    /// How it is read.
    pub kind: DecodeKind,
    /// Number of classes.
    pub classes: u32,
    /// The tensors by name: the output; or count, boxes, scores, class ids.
    pub tensors: Vec<String>,
    pub(super) raw: RawDecode,
}

/// As the kernels read it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawDecode {
    layout: u32,
    classes: u32,
    anchors: u32,
    cap: u32,
    padded: u32,
    pub(super) blocks: u32,
    element: [u32; 4],
    tensor: [u64; 4],
}

const _: () = assert!(size_of::<RawDecode>() == 72);

impl Decode {
    /// A layout that is not placed yet.
    pub fn new(kind: DecodeKind, classes: u32, tensors: Vec<String>) -> Decode {
        Decode { kind, classes, tensors, raw: RawDecode::default() }
    }

    /// With the addresses of its tensors, after their sizes were compared with what the kernels will read.
    pub(super) fn placed(mut self, arena: &DeviceBuffer, facts: &[TensorFacts], layout: &LaneLayout) -> Result<Decode> {
        let (batch, anchors) = (u64::from(layout.shape.batch), u64::from(layout.shape.anchors));
        let classes = u64::from(self.classes);
        let elements: &[u64] = match self.kind {
            DecodeKind::Raw => &[(4 + classes) * anchors],
            DecodeKind::Objectness => &[(5 + classes) * anchors],
            DecodeKind::EndToEnd => &[6 * anchors],
            DecodeKind::Plugin => &[1, 4 * anchors, anchors, anchors],
        };
        if elements.len() != self.tensors.len() {
            return Err(Error::unexpected(format!("found {:?} for {:?}", self.tensors, self.kind)));
        }
        self.raw = RawDecode {
            layout: match self.kind {
                DecodeKind::Raw => 0,
                DecodeKind::Objectness => 1,
                DecodeKind::EndToEnd => 2,
                DecodeKind::Plugin => 3,
            },
            classes: self.classes,
            anchors: layout.shape.anchors,
            cap: layout.shape.cap,
            padded: layout.shape.anchors.next_power_of_two(),
            blocks: layout.shape.anchors.div_ceil(SCAN_THREADS),
            ..RawDecode::default()
        };
        for (number, (name, &expected)) in self.tensors.iter().zip(elements).enumerate() {
            let place = |error: Error| error.at(format!("output `{name}`"));
            let found = facts.iter().zip(&layout.tensors).find(|(facts, _)| facts.name == *name && !facts.input);
            let Some((facts, section)) = found else {
                let names: Vec<_> = facts.iter().map(|facts| facts.name.as_str()).collect();
                return Err(Error::refused(format!("found tensors {names:?}, expected an output named `{name}`")));
            };
            let (element, bytes) = element(facts.data_type).map_err(place)?;
            if facts.bytes() != Some(batch * expected * bytes) {
                return Err(place(Error::refused(format!(
                    "found sizes {:?}, expected {expected} elements for each of {batch} pictures",
                    facts.sizes
                ))));
            }
            self.raw.element[number] = element;
            self.raw.tensor[number] = arena.part(section.offset, section.bytes)?;
        }
        Ok(self)
    }
}

/// The kernels' number of a type and its bytes.
fn element(data_type: DataType) -> Result<(u32, u64)> {
    match data_type {
        DataType::Float => Ok((0, 4)),
        DataType::Half => Ok((1, 2)),
        DataType::Int32 => Ok((2, 4)),
        DataType::Int64 => Ok((3, 8)),
        other => Err(Error::refused(format!("found {other:?}, expected 32- or 16-bit floats, or integers"))),
    }
}
