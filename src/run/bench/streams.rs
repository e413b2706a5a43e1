//! Several streams on several devices in one process: what the second device adds, and whether every answer is that of its
//! own frame.

use super::{BenchOptions, Report};
use crate::bundle::Bundle;
use crate::detections::Detector;
use crate::engine::tensorrt::GpuOptions;
use crate::engine::{Engine, Inference};
use crate::error::{Error, Result};
use crate::frame::{Frame, Picture, PixelPool};
use crate::run::machine;
use crate::units::{count, float64, index, length};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Barrier};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// What each further device must add, of what the first gives.
const SHARE_OF_A_DEVICE: f64 = 0.95;
/// Times that one device and all of them are measured in turn.
const TURNS: u32 = 3;
/// Frames of a stream that wait.
const QUEUE: usize = 4;
const WARMUP_BATCHES: u32 = 50;

/// Measures one device and all of them in turn, with the same streams.
pub(super) fn measure(
    options: &BenchOptions,
    streams: u32,
    bundle: &Bundle,
    frame: &Frame,
    report: &mut Report,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let (mut one, mut all) = (Vec::new(), Vec::new());
    let several = options.devices.len() > 1;
    let mut wrong = 0;
    for _ in 0..TURNS {
        let first = &options.devices[..1];
        for (devices, rates) in
            [(first, &mut one), (&options.devices[..], &mut all)].into_iter().take(1 + usize::from(several))
        {
            let measured = Measured::take(options, streams, devices, bundle, frame)?;
            say(&format!(
                "{streams} streams on {} of {}: {:.0} frames/s",
                devices.len(),
                measured.backend,
                measured.frames_a_second
            ));
            report.engine = measured.backend;
            wrong += measured.wrong;
            rates.push(measured.frames_a_second);
        }
    }
    let alone = rates_of(report, &format!("{streams} streams on one device"), &mut one);
    if several {
        let devices = options.devices.len();
        let together = rates_of(report, &format!("{streams} streams on {devices} devices"), &mut all);
        let least = SHARE_OF_A_DEVICE * length(devices);
        let what = format!("{devices} devices against one");
        if machine::is_for_cpu(bundle) {
            report.figure(&what, together / alone, "×");
        } else {
            let text = format!("at least {least:.2} ×");
            report.bounded(&what, together / alone, "×", text, together >= least * alone);
        }
    }
    report.bounded("answers of another frame, or out of order", float64(wrong), "", "0".into(), wrong == 0);
    Ok(())
}

/// The median, which is given back, and the least and most.
fn rates_of(report: &mut Report, what: &str, rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    let (least, most) = (rates.first().copied().unwrap_or(0.0), rates.last().copied().unwrap_or(0.0));
    let median = rates.get(rates.len() / 2).copied().unwrap_or(0.0);
    report.figure(&format!("{what}, median of {}", rates.len()), median, "frames/s");
    report.figure(&format!("{what}, least"), least, "frames/s");
    report.figure(&format!("{what}, most"), most, "frames/s");
    median
}

struct Measured {
    frames_a_second: f64,
    wrong: u64,
    backend: String,
}

/// What one device has answered.
struct Answered {
    frames: u64,
    wrong: u64,
    from: Instant,
    to: Instant,
    backend: String,
}

impl Measured {
    fn take(options: &BenchOptions, streams: u32, devices: &[u32], bundle: &Bundle, frame: &Frame) -> Result<Measured> {
        let over = AtomicBool::new(false);
        let ready = Barrier::new(devices.len());
        let answered = std::thread::scope(|scope| {
            let mut handles = Vec::new();
            for (place, device) in devices.iter().enumerate() {
                let of_device = (0..index(streams)).filter(|stream| stream % devices.len() == place);
                let queues = of_device.map(|stream| stream_of(scope, stream, &frame.picture, &over)).collect();
                let (options, ready) = (options.clone(), &ready);
                handles.push(scope.spawn(move || Device::serve(&options, *device, bundle, queues, ready)));
            }
            let ended: Vec<Result<Answered>> = handles.into_iter().map(joined).collect();
            over.store(true, Ordering::Release);
            ended.into_iter().collect::<Result<Vec<Answered>>>()
        })?;
        let from = answered.iter().map(|one| one.from).min().unwrap_or_else(Instant::now);
        let to = answered.iter().map(|one| one.to).max().unwrap_or(from);
        let frames: u64 = answered.iter().map(|one| one.frames).sum();
        Ok(Measured {
            frames_a_second: float64(frames) / (to - from).as_secs_f64().max(1e-9),
            wrong: answered.iter().map(|one| one.wrong).sum(),
            backend: answered.into_iter().next().map(|one| one.backend).unwrap_or_default(),
        })
    }
}

fn joined(handle: ScopedJoinHandle<'_, Result<Answered>>) -> Result<Answered> {
    handle.join().unwrap_or_else(|_| Err(Error::unexpected("a thread of the measurement has ended early")))
}

/// A stream that delivers as fast as it is taken, every frame a buffer of its own as from a camera.
fn stream_of<'scope>(
    scope: &'scope Scope<'scope, '_>,
    number: usize,
    picture: &'scope Picture,
    over: &'scope AtomicBool,
) -> Receiver<Arc<Frame>> {
    let (send, receive) = sync_channel(QUEUE);
    scope.spawn(move || deliver(number, picture, over, &send));
    receive
}

fn deliver(stream: usize, picture: &Picture, over: &AtomicBool, send: &SyncSender<Arc<Frame>>) {
    let pool = PixelPool::new();
    let name: Arc<str> = format!("stream{stream}").into();
    let from = picture.pixels.as_slice();
    for number in 0.. {
        let mut pixels = pool.take(from.len());
        pixels.as_mut_slice().copy_from_slice(from);
        // So that frames differ.
        let mark = usize::try_from(number).unwrap_or(0) % from.len().max(1);
        if let Some(pixel) = pixels.as_mut_slice().get_mut(mark) {
            *pixel = pixel.wrapping_add(91);
        }
        let frame = Frame::new(
            Arc::clone(&name),
            number,
            Picture { pixels, size: picture.size, stride_bytes: picture.stride_bytes, format: picture.format },
        );
        if over.load(Ordering::Acquire) || send.send(Arc::new(frame)).is_err() {
            return;
        }
    }
}

/// One device with its streams.
struct Device {
    engine: Box<dyn Engine>,
    queues: Vec<Receiver<Arc<Frame>>>,
    next: usize,
    /// The frames in each lane, with the place of their queue.
    flights: Vec<Vec<(usize, Arc<Frame>)>>,
    last: Vec<Option<u64>>,
    answers: Vec<Inference>,
    detector: Detector,
    frames: u64,
    wrong: u64,
}

impl Device {
    fn serve(
        options: &BenchOptions,
        device: u32,
        bundle: &Bundle,
        queues: Vec<Receiver<Arc<Frame>>>,
        ready: &Barrier,
    ) -> Result<Answered> {
        let loaded = Device::load(options, device, bundle, queues).and_then(|mut device| {
            device.run(WARMUP_BATCHES.min(options.runs))?;
            device.frames = 0;
            Ok(device)
        });
        // Also after a failure: the others wait here.
        ready.wait();
        let mut device = loaded?;
        let from = Instant::now();
        device.run(options.runs.max(1))?;
        let to = Instant::now();
        let backend = device.engine.info().backend.clone();
        Ok(Answered { frames: device.frames, wrong: device.wrong, from, to, backend })
    }

    fn load(options: &BenchOptions, device: u32, bundle: &Bundle, queues: Vec<Receiver<Arc<Frame>>>) -> Result<Device> {
        let manifest = bundle.manifest();
        let gpu = GpuOptions { device, lanes: 2, ahead: true, ..options.gpu.clone() };
        let engine = machine::load(bundle, manifest.thresholds.lowest_score(), &options.cpu, &gpu)?;
        Ok(Device {
            flights: vec![Vec::new(); engine.lanes()],
            last: vec![None; queues.len()],
            queues,
            next: 0,
            answers: Vec::new(),
            detector: Detector::new(&manifest.thresholds, &manifest.classes)?,
            engine,
            frames: 0,
            wrong: 0,
        })
    }

    /// Answers `batches` full batches, with as many in flight as the engine has lanes.
    fn run(&mut self, batches: u32) -> Result<()> {
        let lanes = self.flights.len();
        for batch in 0..index(batches) {
            let lane = batch % lanes;
            self.land(lane)?;
            self.fill(lane)?;
            let frames: Vec<&Frame> = self.flights[lane].iter().map(|(_, frame)| &**frame).collect();
            if lanes == 1 {
                self.engine.infer(&frames, &mut self.answers)?;
            } else {
                self.engine.begin(lane, &frames)?;
            }
        }
        (0..lanes).try_for_each(|lane| self.land((index(batches) + lane) % lanes))
    }

    /// A batch in turn from the streams.
    fn fill(&mut self, lane: usize) -> Result<()> {
        const PATIENCE: Duration = Duration::from_secs(10);
        for _ in 0..self.engine.info().input.batch {
            let queue = self.queues.get(self.next).ok_or_else(|| Error::usage("found fewer streams than devices"))?;
            let frame = queue
                .recv_timeout(PATIENCE)
                .map_err(|error| Error::unexpected("a stream of the measurement has ended").because(error))?;
            self.flights[lane].push((self.next, frame));
            self.next = (self.next + 1) % self.queues.len();
        }
        Ok(())
    }

    /// Waits for a lane, compares each answer with the frame in its slot, and finds the boxes.
    fn land(&mut self, lane: usize) -> Result<()> {
        if self.flights[lane].is_empty() {
            return Ok(());
        }
        if self.flights.len() > 1 {
            self.engine.finish(lane, &mut self.answers)?;
        }
        let frames = std::mem::take(&mut self.flights[lane]);
        self.wrong += count(frames.len().abs_diff(self.answers.len()));
        let mut boxes = Vec::new();
        for ((queue, frame), answer) in frames.iter().zip(self.answers.drain(..)) {
            let last = self.last[*queue].replace(frame.number);
            let in_order = last.is_none_or(|last| frame.number == last + 1);
            self.wrong += u64::from(answer.tag != frame.tag() || !in_order);
            self.detector.detect(&answer.candidates, &answer.letterbox, &self.engine.info().layout, &mut boxes);
            self.frames += 1;
            self.engine.recycle(answer);
        }
        Ok(())
    }
}
