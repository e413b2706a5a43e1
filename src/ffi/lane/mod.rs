//! One lane of the GPU: pinned staging → letterbox kernel → network → candidate kernels → pinned answers.
//!
//! Everything behind the copy of the pictures is recorded once as a CUDA graph; the copies go in front of it on the same stream,
//! because their length changes with the picture. A staging memory is either being filled or in flight, never both: that is what
//! makes the asynchronous copies sound, and every method checks it. A lane with a second staging memory ([`LaneShape::ahead`]) takes
//! the next pictures, and copies them, while a run is in flight: the next graph then starts without waiting for the bus.

mod answer;
mod decode;
mod head;
mod kernels;
mod layout;
mod set;

pub use answer::{Answer, AnswerBox, FRONT_BOXES};
pub use decode::{Decode, DecodeKind};
pub use head::{Head, PictureFormat, ScaleMode, StagedPicture, Weight};

pub use kernels::Kernels;
pub use layout::{LaneLayout, LaneShape, Section};

use super::cuda::{DeviceBuffer, Event, Graph, PinnedBuffer, Stream, Wait};
use super::tensorrt;
use crate::error::{Error, Result};
use crate::units::{count, index};
use set::StagingSet;
use std::sync::Arc;
use std::time::Duration;

/// Where the device's time of one run went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceTimes {
    /// Pictures to the device.
    pub copy: Duration,
    /// Letterbox kernel.
    pub prepare: Duration,
    /// Network.
    pub network: Duration,
    /// Candidate kernels and the copy of the answers.
    pub decode: Duration,
}

/// A lane. Dropping waits for its work.
pub struct Lane {
    /// Their graphs are dropped before what they use.
    sets: Vec<StagingSet>,
    bare: Option<Graph>,
    network: Option<tensorrt::Context>,
    kernels: Kernels,
    layout: LaneLayout,
    decode: Decode,
    arena: Arc<DeviceBuffer>,
    answers: PinnedBuffer,
    rest: Option<PinnedBuffer>,
    stream: Arc<Stream>,
    /// Copies ahead of their run; only with two sets.
    copy_stream: Option<Arc<Stream>>,
    /// Start, letterboxed, network done, all done.
    marks: [Event; 4],
    /// The set of the run in flight, or of the last one.
    running: usize,
    in_flight: bool,
    graph_refused: Option<String>,
}

impl Lane {
    /// A lane in `arena` at the layout's offsets. Runs the network once and records the graphs; a network that cannot be recorded
    /// is launched step by step (see [`Lane::graph_refused`]).
    ///
    /// # Errors
    /// Something does not fit the layout, or what the driver and TensorRT report.
    pub fn new(
        engine: &Arc<tensorrt::Engine>,
        kernels: &Kernels,
        arena: &Arc<DeviceBuffer>,
        layout: LaneLayout,
        decode: Decode,
        wait: Wait,
    ) -> Result<Lane> {
        let mut network = engine.create_context()?;
        network.set_memory(arena, layout.activations.offset, layout.activations.bytes)?;
        for (tensor, section) in engine.tensors().iter().zip(&layout.tensors) {
            network.bind(tensor, arena, section.offset)?;
        }
        network.check()?;
        Lane::build(Some(network), engine.tensors(), kernels, arena, layout, decode, wait)
    }

    /// A lane without a network: what lies in its output tensors is decoded as it is. For checks of the kernels.
    ///
    /// # Errors
    /// As [`Lane::new`].
    pub fn without_network(
        tensors: &[tensorrt::TensorFacts],
        kernels: &Kernels,
        arena: &Arc<DeviceBuffer>,
        layout: LaneLayout,
        decode: Decode,
    ) -> Result<Lane> {
        Lane::build(None, tensors, kernels, arena, layout, decode, Wait::Block)
    }

    fn build(
        network: Option<tensorrt::Context>,
        tensors: &[tensorrt::TensorFacts],
        kernels: &Kernels,
        arena: &Arc<DeviceBuffer>,
        layout: LaneLayout,
        decode: Decode,
        wait: Wait,
    ) -> Result<Lane> {
        let context = kernels.context();
        let decode = decode.placed(arena, tensors, &layout)?;
        let event = || Event::new(context, wait);
        let batch = layout.shape.batch;
        let sets = layout.stagings().map(|section| StagingSet::new(context, section, batch, wait));
        let mut lane = Lane {
            sets: sets.collect::<Result<_>>()?,
            bare: None,
            network,
            kernels: kernels.clone(),
            answers: PinnedBuffer::new(context, layout.answers.bytes)?,
            copy_stream: layout.staging_ahead.map(|_| Stream::new(context)).transpose()?,
            running: 0,
            rest: layout.rest.map(|rest| PinnedBuffer::new(context, rest.bytes)).transpose()?,
            layout,
            decode,
            arena: Arc::clone(arena),
            stream: Stream::new(context)?,
            marks: [event()?, event()?, event()?, event()?],
            in_flight: false,
            graph_refused: None,
        };
        lane.start()?;
        Ok(lane)
    }

    /// First runs and recording.
    fn start(&mut self) -> Result<()> {
        for _ in 0..self.sets.len() {
            self.submit()?;
            self.wait()?;
        }
        match self.record_graphs() {
            Ok(()) => Ok(()),
            Err(error) => {
                self.stream.synchronize()?;
                self.graph_refused = Some(error.to_string());
                Ok(())
            }
        }
    }

    fn record_graphs(&mut self) -> Result<()> {
        let stream = Arc::clone(&self.stream);
        for set in 0..self.sets.len() {
            // SAFETY: the arena, the pinned buffers, the events and the kernels live in this lane beside the graph, which is dropped
            // first (field order) and waits; `in_flight` keeps the host's hands off while it runs.
            let graph = unsafe { Graph::record(&stream, vec![], || self.enqueue_steps(set, true)) }?;
            self.sets[set].graph = Some(graph);
        }
        if let Some(network) = &mut self.network {
            // SAFETY: as above.
            self.bare = Some(unsafe { Graph::record(&stream, vec![], || network.enqueue(&stream)) }?);
        }
        Ok(())
    }

    /// Letterbox, network, candidates, answers back.
    fn enqueue_steps(&mut self, set: usize, recording: bool) -> Result<()> {
        let (stream, layout, staging) = (&self.stream, &self.layout, self.sets[set].section);
        self.kernels.preprocess(&self.arena, layout, staging, stream)?;
        let mark = |event: &Event| if recording { event.record_in_graph(stream) } else { event.record(stream) };
        mark(&self.marks[1])?;
        if let Some(network) = &mut self.network {
            network.enqueue(stream)?;
        }
        mark(&self.marks[2])?;
        self.kernels.candidates(&self.arena, layout, &self.decode, staging, stream)?;
        // SAFETY: arena and answers live in this lane, whose drop waits; `in_flight` keeps readers out until then.
        unsafe { self.arena.copy_to(layout.answers.offset, &self.answers, stream) }
    }

    /// Why the steps could not be recorded as a graph; they are launched one by one then.
    pub fn graph_refused(&self) -> Option<&str> {
        self.graph_refused.as_deref()
    }

    /// The sizes of this lane.
    pub fn layout(&self) -> &LaneLayout {
        &self.layout
    }

    fn must_be_idle(&self) -> Result<()> {
        if self.in_flight { Err(Error::unexpected("found a lane in flight, expected `wait` first")) } else { Ok(()) }
    }

    /// The set that the next run takes its pictures from.
    pub fn next_set(&self) -> usize {
        (self.running + 1) % self.sets.len()
    }

    /// The set of the run in flight, or of the last one.
    pub fn running_set(&self) -> usize {
        self.running
    }

    /// The set that may be filled now.
    fn open_set(&mut self) -> Result<&mut StagingSet> {
        if self.sets.len() < 2 {
            self.must_be_idle()?;
        }
        let next = self.next_set();
        Ok(&mut self.sets[next])
    }

    /// Puts a picture into a slot of the next run, or marks the slot as unused. With one staging memory a slot keeps its picture from
    /// run to run; with two every run is staged anew.
    ///
    /// # Errors
    /// In flight with one staging memory, already sent ahead, no such slot, or a picture whose head does not fit its pixels or
    /// weights.
    pub fn stage(&mut self, slot: u32, picture: Option<&StagedPicture<'_>>) -> Result<()> {
        self.open_set()?;
        let next = self.next_set();
        self.sets[next].stage(&self.layout, slot, picture)
    }

    /// Lets the next run copy every slot again, as if it had been staged again.
    pub fn stage_again(&mut self) {
        let next = self.next_set();
        self.sets[next].stage_again();
    }

    /// Starts to copy what was staged for the next run, also while a run is in flight. Without a second staging memory
    /// [`Lane::submit`] copies, and this does nothing.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn send_ahead(&mut self) -> Result<()> {
        let next = self.next_set();
        let (Some(stream), set) = (&self.copy_stream, &mut self.sets[next]) else { return Ok(()) };
        if set.copied_ahead {
            return Ok(());
        }
        // SAFETY: set and arena live in this lane, whose drop waits for the copy stream; `copied_ahead` keeps writers out until the
        // run that uses the copy is done. The set's last run is done: two sets take turns and one run is in flight at most.
        let sent = unsafe { set.enqueue(&self.layout, &self.arena, stream) };
        set.copied_ahead = sent.is_ok();
        if sent.is_err() {
            set.stage_again();
            if let Err(error) = stream.synchronize() {
                log::warn!("after a failed copy: {}", error.message());
            }
        }
        sent
    }

    /// Candidates below this score are not returned; from the next run on.
    ///
    /// # Errors
    /// In flight, or what the driver reports.
    pub fn set_floor(&mut self, floor: f32) -> Result<()> {
        self.must_be_idle()?;
        for set in &mut self.sets {
            if std::mem::take(&mut set.copied_ahead) {
                if let Some(stream) = &self.copy_stream {
                    stream.synchronize()?;
                }
                set.stage_again();
            }
            set.set_floor(floor);
        }
        Ok(())
    }

    /// Enqueues one run of what was staged; slots that were not staged again keep their picture.
    ///
    /// # Errors
    /// In flight, or what the driver and TensorRT report.
    pub fn submit(&mut self) -> Result<()> {
        self.must_be_idle()?;
        let submitted = self.enqueue_run();
        self.unless_failed(submitted)
    }

    /// After a failure some work may be under way and no mark stands behind it: waits for the stream.
    fn unless_failed(&mut self, submitted: Result<()>) -> Result<()> {
        if submitted.is_err() {
            if let Err(error) = self.stream.synchronize() {
                log::warn!("after a failed run: {}", error.message());
            }
            self.in_flight = false;
            self.sets.iter_mut().for_each(StagingSet::stage_again);
        }
        submitted
    }

    fn enqueue_run(&mut self) -> Result<()> {
        let next = self.next_set();
        self.in_flight = true;
        let set = &mut self.sets[next];
        if std::mem::take(&mut set.copied_ahead) {
            set.before(&self.stream)?;
        } else {
            // SAFETY: set and arena live in this lane, whose drop waits; `in_flight` keeps writers out until then.
            unsafe { set.enqueue(&self.layout, &self.arena, &self.stream) }?;
        }
        self.marks[0].record(&self.stream)?;
        self.running = next;
        match &mut set.graph {
            Some(graph) => graph.launch()?,
            None => self.enqueue_steps(next, false)?,
        }
        self.marks[3].record(&self.stream)
    }

    /// Waits for the run; afterwards answers can be read and slots filled.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn wait(&mut self) -> Result<()> {
        if self.in_flight {
            self.marks[3].synchronize()?;
            self.in_flight = false;
        }
        Ok(())
    }

    /// Whether the run is done.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn is_done(&self) -> Result<bool> {
        Ok(!self.in_flight || self.marks[3].is_done()?)
    }

    /// Enqueues the network alone on whatever lies in its input; to be measured against [`Lane::submit`].
    ///
    /// # Errors
    /// In flight, no graph, or what the driver reports.
    pub fn submit_bare(&mut self) -> Result<()> {
        self.must_be_idle()?;
        let bare =
            self.bare.as_mut().ok_or_else(|| Error::unexpected("the network could not be recorded as a graph"))?;
        self.marks[0].record(&self.stream)?;
        self.in_flight = true;
        let submitted = bare.launch().and_then(|()| self.marks[3].record(&self.stream));
        self.unless_failed(submitted)
    }

    /// Enqueues the copies of all slots alone; to be measured against [`Lane::submit`].
    ///
    /// # Errors
    /// As [`Lane::submit`].
    pub fn submit_copies(&mut self) -> Result<()> {
        self.must_be_idle()?;
        self.stage_again();
        let next = self.next_set();
        self.in_flight = true;
        let submitted = self.marks[0].record(&self.stream).and_then(|()| {
            // SAFETY: set and arena live in this lane, whose drop waits; `in_flight` keeps writers out until then.
            unsafe { self.sets[next].enqueue(&self.layout, &self.arena, &self.stream) }
        });
        let submitted = submitted.and_then(|()| self.marks[3].record(&self.stream));
        self.unless_failed(submitted)
    }

    /// Device time of the last bare run or copy.
    ///
    /// # Errors
    /// In flight.
    pub fn bare_time(&self) -> Result<Duration> {
        self.must_be_idle()?;
        self.marks[0].elapsed_until(&self.marks[3])
    }

    /// Device times of the last run.
    ///
    /// # Errors
    /// In flight.
    pub fn times(&self) -> Result<DeviceTimes> {
        self.must_be_idle()?;
        let between = |from: usize| self.marks[from].elapsed_until(&self.marks[from + 1]);
        let copy = self.sets[self.running].copy_time()?;
        Ok(DeviceTimes { copy, prepare: between(0)?, network: between(1)?, decode: between(2)? })
    }

    /// Time of every layer of the network alone, in order, ms a run: the mean of `runs`, launched one by one with TensorRT's profiler, so
    /// slower in all than the graph.
    ///
    /// # Errors
    /// In flight, no network, or what the driver and TensorRT report.
    pub fn layer_times(&mut self, runs: u32) -> Result<Vec<(String, f64)>> {
        self.must_be_idle()?;
        let stream = Arc::clone(&self.stream);
        let network = self.network.as_mut().ok_or_else(|| Error::unexpected("found a lane without a network"))?;
        network.profile_layers()?.take();
        for _ in 0..runs.max(1) {
            network.enqueue(&stream)?;
            stream.synchronize()?;
        }
        let mut layers: Vec<(String, f64)> = vec![];
        for time in network.profile_layers()?.take() {
            let each = f64::from(time.milliseconds) / f64::from(runs.max(1));
            match layers.iter_mut().find(|layer| layer.0 == time.name) {
                Some(layer) => layer.1 += each,
                None => layers.push((time.name, each)),
            }
        }
        Ok(layers)
    }

    /// The answer of one slot: counts and the first boxes.
    ///
    /// # Errors
    /// In flight, no such slot, or an answer that contradicts itself.
    pub fn answer(&self, slot: u32) -> Result<Answer<'_>> {
        self.must_be_idle()?;
        Answer::read(self.answers.as_slice(), slot, &self.layout)
    }

    /// Brings the boxes behind the first [`FRONT_BOXES`] of all slots; they stay until the next run.
    ///
    /// # Errors
    /// In flight, or what the driver reports.
    pub fn fetch_rest(&mut self) -> Result<()> {
        self.must_be_idle()?;
        let (Some(rest), Some(section)) = (&self.rest, self.layout.rest) else { return Ok(()) };
        self.in_flight = true;
        // SAFETY: both buffers live in this lane, whose drop waits; `in_flight` keeps readers out until then.
        let copied = unsafe { self.arena.copy_to(section.offset, rest, &self.stream) };
        let done = copied.and_then(|()| self.stream.synchronize());
        self.in_flight = false;
        done
    }

    /// Box `number` (from 0, behind the first [`FRONT_BOXES`]) of a slot, after [`Lane::fetch_rest`].
    ///
    /// # Errors
    /// In flight, or no such box.
    pub fn rest_box(&self, slot: u32, number: u32) -> Result<AnswerBox> {
        self.must_be_idle()?;
        let rest = self.rest.as_ref().map_or(&[][..], PinnedBuffer::as_slice);
        let each = self.layout.shape.cap.saturating_sub(FRONT_BOXES);
        let from = index(slot * each + number) * AnswerBox::BYTES;
        rest.get(from..from + AnswerBox::BYTES)
            .filter(|_| number < each)
            .map(AnswerBox::read)
            .ok_or_else(|| Error::unexpected(format!("found box {number} of slot {slot}, expected below {each}")))
    }

    /// Copies device memory of a section to the host, for checks.
    ///
    /// # Errors
    /// In flight, or what the driver reports.
    pub fn read_back(&mut self, section: Section) -> Result<Vec<u8>> {
        self.must_be_idle()?;
        let target = PinnedBuffer::new(self.kernels.context(), section.bytes)?;
        // SAFETY: both buffers live to the end of this function, which waits.
        unsafe { self.arena.copy_to(section.offset, &target, &self.stream) }?;
        self.stream.synchronize()?;
        Ok(target.as_slice().to_vec())
    }

    /// Copies bytes to the start of a section of the device memory, for checks.
    ///
    /// # Errors
    /// In flight, they do not fit, or what the driver reports.
    pub fn write(&mut self, section: Section, bytes: &[u8]) -> Result<()> {
        self.must_be_idle()?;
        if bytes.len() > section.bytes {
            return Err(Error::unexpected(format!("found {} bytes for {section:?}", bytes.len())));
        }
        let mut source = PinnedBuffer::new(self.kernels.context(), bytes.len())?;
        source.as_mut_slice().copy_from_slice(bytes);
        // SAFETY: both buffers live to the end of this function, which waits.
        unsafe { self.arena.copy_from(section.offset, &source, &self.stream) }?;
        self.stream.synchronize()
    }

    /// Pinned host memory of this lane in bytes.
    pub fn pinned_bytes(&self) -> u64 {
        let staging: usize = self.sets.iter().map(StagingSet::pinned_bytes).sum();
        count(staging + self.answers.bytes() + self.rest.as_ref().map_or(0, PinnedBuffer::bytes))
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        for stream in std::iter::once(&self.stream).chain(&self.copy_stream) {
            if let Err(error) = stream.synchronize() {
                log::warn!("while freeing a lane: {}", error.message());
            }
        }
    }
}

#[cfg(test)]
mod tests;
