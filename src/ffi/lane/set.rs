//! Pictures of one run on their way to the device: pinned memory, its twin on the device, and the graph that reads from there.

use super::head::{HEAD_BYTES, Head, StagedPicture};
use super::layout::{LaneLayout, Section};
use crate::error::{Error, Result};
use crate::ffi::cuda::{Context, DeviceBuffer, Event, Graph, PinnedBuffer, Stream, Wait};
use crate::units::index;
use std::sync::Arc;
use std::time::Duration;

/// One set of staging memory. A lane has one, or two when pictures may be copied ahead.
pub(super) struct StagingSet {
    /// Letterbox, network and candidates of the pictures in this set.
    pub(super) graph: Option<Graph>,
    /// Where its twin lies in the arena.
    pub(super) section: Section,
    pinned: PinnedBuffer,
    /// Begin and end of the copy.
    marks: [Event; 2],
    /// Bytes of each slot that the next run copies.
    pending: Vec<usize>,
    /// Bytes that lie in each slot.
    staged: Vec<usize>,
    /// Whether a copy was enqueued that no run has used yet.
    pub(super) copied_ahead: bool,
}

impl StagingSet {
    pub(super) fn new(context: &Arc<Context>, section: Section, batch: u32, wait: Wait) -> Result<StagingSet> {
        Ok(StagingSet {
            graph: None,
            section,
            pinned: PinnedBuffer::new(context, section.bytes)?,
            marks: [Event::new(context, wait)?, Event::new(context, wait)?],
            pending: vec![HEAD_BYTES; index(batch)],
            staged: vec![HEAD_BYTES; index(batch)],
            copied_ahead: false,
        })
    }

    pub(super) fn stage(&mut self, layout: &LaneLayout, slot: u32, picture: Option<&StagedPicture<'_>>) -> Result<()> {
        if self.copied_ahead {
            return Err(Error::unexpected("found pictures that are being copied already, expected `submit` first"));
        }
        let range = layout.slot(slot)?;
        let bytes = &mut self.pinned.as_mut_slice()[range];
        let written = match picture {
            Some(picture) => picture.write(layout, bytes)?,
            None => {
                Head::write_unused(bytes);
                HEAD_BYTES
            }
        };
        (self.pending[index(slot)], self.staged[index(slot)]) = (written, written);
        Ok(())
    }

    /// Lets the next run copy every slot again.
    pub(super) fn stage_again(&mut self) {
        self.pending.copy_from_slice(&self.staged);
    }

    pub(super) fn set_floor(&mut self, floor: f32) {
        self.pinned.as_mut_slice()[..4].copy_from_slice(&floor.to_le_bytes());
    }

    /// Enqueues the copies of the slots that changed, between the two marks.
    ///
    /// # Safety
    /// Until the stream has done the copies `self` and the arena live and nobody calls [`StagingSet::stage`] or
    /// [`StagingSet::set_floor`].
    pub(super) unsafe fn enqueue(&mut self, layout: &LaneLayout, arena: &DeviceBuffer, stream: &Stream) -> Result<()> {
        self.marks[0].record(stream)?;
        for (slot, pending) in (0..layout.shape.batch).zip(&mut self.pending) {
            let bytes = std::mem::take(pending);
            let slot_range = layout.slot(slot)?;
            // The floor lies in front of the first slot.
            let range = if slot == 0 { 0 } else { slot_range.start }..slot_range.start + bytes;
            if range.is_empty() {
                continue;
            }
            // SAFETY: the caller's.
            unsafe { arena.copy_part_from(self.section.offset + range.start, &self.pinned, range, stream) }?;
        }
        self.marks[1].record(stream)
    }

    /// Makes later work of `stream` wait for the copies.
    pub(super) fn before(&self, stream: &Stream) -> Result<()> {
        stream.wait_for(&self.marks[1])
    }

    /// How long the last copies took.
    pub(super) fn copy_time(&self) -> Result<Duration> {
        self.marks[0].elapsed_until(&self.marks[1])
    }

    pub(super) fn pinned_bytes(&self) -> usize {
        self.pinned.bytes()
    }
}
