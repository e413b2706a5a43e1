//! What the candidate kernels know of the output; `struct Decode` of `candidates.cu`.

use super::layout::LaneLayout;
use crate::error::{Error, Result};
use crate::ffi::cuda::DeviceBuffer;
use crate::ffi::tensorrt::{DataType, TensorFacts};
use crate::units::count;

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
        let (batch, anchors) = (i64::from(layout.shape.batch), i64::from(layout.shape.anchors));
        let classes = i64::from(self.classes);
        let shapes: &[&[i64]] = match self.kind {
            DecodeKind::Raw => &[&[batch, 4 + classes, anchors]],
            DecodeKind::Objectness => &[&[batch, anchors, 5 + classes]],
            DecodeKind::EndToEnd => &[&[batch, anchors, 6]],
            DecodeKind::Plugin => &[&[batch, 1], &[batch, anchors, 4], &[batch, anchors], &[batch, anchors]],
        };
        if shapes.len() != self.tensors.len() {
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
        for (number, (name, &expected)) in self.tensors.iter().zip(shapes).enumerate() {
            let place = |error: Error| error.at(format!("output `{name}`"));
            let found = facts.iter().zip(&layout.tensors).find(|(facts, _)| facts.name == *name && !facts.input);
            let Some((facts, section)) = found else {
                let names: Vec<_> = facts.iter().map(|facts| facts.name.as_str()).collect();
                return Err(Error::refused(format!("found tensors {names:?}, expected an output named `{name}`")));
            };
            // Some plugins leave the last axis of one out.
            let same = facts.sizes == expected || (expected.ends_with(&[1]) && facts.sizes == expected[..1]);
            if !same {
                return Err(place(Error::refused(format!("found sizes {:?}, expected {expected:?}", facts.sizes))));
            }
            let element = element(facts.data_type).map_err(place)?;
            if facts.bytes() != Some(count(section.bytes)) {
                return Err(place(Error::unexpected(format!("found {section:?} for {:?}", facts.sizes))));
            }
            self.raw.element[number] = element;
            self.raw.tensor[number] = arena.part(section.offset, section.bytes)?;
        }
        Ok(self)
    }
}

/// The kernels' number of a type.
fn element(data_type: DataType) -> Result<u32> {
    match data_type {
        DataType::Float => Ok(0),
        DataType::Half => Ok(1),
        DataType::Int32 => Ok(2),
        DataType::Int64 => Ok(3),
        other => Err(Error::refused(format!("found {other:?}, expected 32- or 16-bit floats, or integers"))),
    }
}
