//! The GPU engine beside the bare network, in one process.

use super::{BenchOptions, Report, detect_all, machine_facts};
use crate::bundle::{Bundle, golden};
use crate::detections::Detector;
use crate::engine::Engine;
use crate::engine::tensorrt::{GpuOptions, TensorRtEngine};
use crate::error::Result;
use crate::ffi::cuda::Wait;
use crate::frame::Frame;
use crate::gpu::layers::MOST_NAME;
use crate::gpu::plan::{Basis, LIBRARIES, MemoryInputs, MemoryPlan, WEIGHTS};
use crate::run::machine;
use crate::units::{Bytes, float64, index, milliseconds};
use std::time::Instant;

/// What ours may take beyond bare engine and copy.
const OVERHEAD_MS: f64 = 0.10;
/// Host CPU time a frame when waiting blocks.
const HOST_MS: f64 = 0.3;
/// Share of the bare engine's throughput.
const THROUGHPUT_SHARE: f64 = 0.95;
/// Start to ready beyond deserialising and context creation.
const START_MS: f64 = 500.0;
/// Runs over which the layers' times are averaged, and how many layers are listed.
const LAYER_RUNS: u32 = 100;
const SLOWEST_LAYERS: usize = 25;
/// The driver's granularity.
const GRANULARITY_MIB: f64 = 2.0;
const WARMUP_RUNS: u32 = 200;

pub(super) fn measure(
    options: &BenchOptions,
    bundle: &Bundle,
    frame: &Frame,
    report: &mut Report,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    for wait in [Wait::Block, Wait::Spin] {
        let since = Instant::now();
        let gpu = GpuOptions { lanes: 2, ahead: true, wait, ..options.gpu.clone() };
        let floor = bundle.manifest().thresholds.lowest_score();
        let mut engine = machine::load_plan(bundle, floor, &gpu)?;
        let loaded_ms = milliseconds(since.elapsed());
        let word = if wait == Wait::Block { "block" } else { "spin" };
        say(&format!("{}: waiting by {word}", engine.info().backend));
        if wait == Wait::Block {
            report.engine = engine.info().backend.clone();
            if let Some(reason) = engine.graph_refused() {
                report.note(format!("no CUDA graph: {reason}"));
            }
            start(bundle, &mut engine, loaded_ms, floor, report)?;
            memory(&engine, kept(bundle, &gpu)?.as_ref(), report)?;
            super::slots::compare(bundle, &mut engine, report)?;
        }
        let timed = options.layers && wait == Wait::Spin;
        let mut session = Session::new(bundle, &mut engine, frame, options.runs, word)?;
        session.latency(report)?;
        session.throughput(report)?;
        if wait == Wait::Block && options.growth_runs > 0 {
            session.growth(options.growth_runs, report)?;
        }
        if timed {
            layers(bundle, &gpu, &mut engine, report)?;
        }
    }
    Ok(())
}

fn start(bundle: &Bundle, engine: &mut TensorRtEngine, loaded_ms: f64, floor: f32, report: &mut Report) -> Result<()> {
    let since = Instant::now();
    engine.set_score_floor(bundle.manifest().golden.score_floor.min(floor));
    let proof = golden::prove(engine, bundle);
    engine.set_score_floor(floor);
    let proved_ms = milliseconds(since.elapsed());
    match proof {
        Ok(proof) => report.note(format!(
            "proved on {} golden frames: corners within {:.3} px, scores within {:.4}",
            proof.frames, proof.worst_px, proof.worst_score
        )),
        Err(error) => report.note(format!("NOT PROVED: {}", error.message())),
    }
    let figures = engine.figures();
    let (read_ms, prepare_ms) = (milliseconds(figures.deserialize), milliseconds(figures.prepare));
    report.figure("reading the plan (deserialise)", read_ms, "ms");
    report.figure("contexts, memory, first run, graphs (two lanes)", prepare_ms, "ms");
    report.figure("proving on the golden frames", proved_ms, "ms");
    let beyond_ms = loaded_ms - read_ms - prepare_ms + proved_ms;
    report.bounded(
        "start to ready beyond reading and preparing",
        beyond_ms,
        "ms",
        format!("at most {START_MS} ms"),
        beyond_ms <= START_MS,
    );
    Ok(())
}

/// The slowest layers, and sums by precision.
fn layers(bundle: &Bundle, gpu: &GpuOptions, engine: &mut TensorRtEngine, report: &mut Report) -> Result<()> {
    let (facts, _plan) = machine::plan_for_this_machine(bundle, gpu)?;
    let known = facts.layers.unwrap_or_default().layers;
    let cut = |name: &str| name.chars().take(MOST_NAME).collect::<String>();
    let mut times = engine.layer_times(LAYER_RUNS)?;
    let precision = |name: &str| {
        known.iter().find(|layer| layer.name == cut(name)).map_or("?".to_owned(), |layer| match layer.kind.as_str() {
            "Reformat" => format!("{} copy", layer.precision),
            _ => layer.precision.clone(),
        })
    };
    let mut sums = std::collections::BTreeMap::<String, (f64, u32)>::new();
    for (name, ms) in &times {
        let sum = sums.entry(precision(name)).or_default();
        *sum = (sum.0 + ms, sum.1 + 1);
    }
    report.figure("layers one by one, sum", times.iter().map(|(_, ms)| ms).sum(), "ms");
    for (precision, (ms, count)) in sums {
        report.figure(&format!("layers one by one, {count} in {precision}"), ms, "ms");
    }
    times.sort_by(|one, other| other.1.total_cmp(&one.1));
    for (name, ms) in times.iter().take(SLOWEST_LAYERS) {
        let short: String = name.chars().take(90).collect();
        report.figure(&format!("layer `{}` in {}", short.replace('|', "/"), precision(name)), *ms, "ms");
    }
    Ok(())
}

fn mib(bytes: Bytes) -> f64 {
    float64(bytes.0) / float64(1 << 20)
}

/// The memory plan beside the plan, when it was measured.
fn kept(bundle: &Bundle, gpu: &GpuOptions) -> Result<Option<MemoryPlan>> {
    let (facts, _plan) = machine::plan_for_this_machine(bundle, gpu)?;
    Ok(facts.memory.filter(|memory| memory.basis == Basis::Measured))
}

/// What the plan in the bundle says of this load: its weights and code, and the layout of these lanes.
fn planned(kept: &MemoryPlan, engine: &TensorRtEngine) -> Result<MemoryPlan> {
    let figures = engine.figures();
    MemoryPlan::of(&MemoryInputs {
        basis: Basis::Measured,
        weights: kept.line(WEIGHTS),
        activations: figures.activations_each,
        tensors: figures.tensors.clone(),
        shape: figures.shape.clone(),
        overhead: figures.device_before,
        libraries: kept.line(LIBRARIES),
        contexts: figures.lanes,
        budget: figures.limit,
        alarm_percent: 85,
    })
}

fn memory(engine: &TensorRtEngine, kept: Option<&MemoryPlan>, report: &mut Report) -> Result<()> {
    let figures = engine.figures();
    report.figure("device memory before loading (CUDA context, other processes)", mib(figures.device_before), "MiB");
    report.figure("our arena (I/O, activations, staging, candidates; two lanes)", mib(figures.arena), "MiB");
    report.figure("of it activations", mib(figures.activations), "MiB");
    report.figure("TensorRT's weights and contexts, through our allocator", mib(figures.tensorrt), "MiB");
    report.figure("taken on the device in all, as the driver reports", mib(figures.device_taken), "MiB");
    report.figure("code of kernels and libraries, granularity", mib(figures.overhead()), "MiB");
    report.figure("page-locked host memory", mib(figures.pinned), "MiB");
    report.figure("device allocations made", float64(figures.allocations), "");
    if let Some(kept) = kept {
        let planned = planned(kept, engine)?.appearing();
        report.figure("planned to appear on the device while loading", mib(planned), "MiB");
        let apart = mib(figures.device_taken) - mib(planned);
        let allowed = GRANULARITY_MIB * float64(figures.allocations);
        report.bounded(
            "appeared beyond the plan",
            apart,
            "MiB",
            format!("at most ±{GRANULARITY_MIB} MiB for each of {} allocations", figures.allocations),
            apart.abs() <= allowed,
        );
        report.figure("the same as a share of the plan", 100.0 * apart / mib(planned), "%");
    }
    Ok(())
}

/// One engine under measurement.
struct Session<'a> {
    engine: &'a mut TensorRtEngine,
    detector: Detector,
    batch: u32,
    runs: u32,
    word: &'static str,
}

impl<'a> Session<'a> {
    fn new(
        bundle: &Bundle,
        engine: &'a mut TensorRtEngine,
        frame: &Frame,
        runs: u32,
        word: &'static str,
    ) -> Result<Session<'a>> {
        let manifest = bundle.manifest();
        let batch = manifest.input.batch;
        let frames = vec![frame; index(batch)];
        for _set in 0..2 {
            for lane in 0..engine.lanes() {
                engine.stage(lane, &frames)?;
                engine.submit(lane)?;
                engine.wait(lane)?;
            }
        }
        let detector = Detector::new(&manifest.thresholds, &manifest.classes)?;
        Ok(Session { engine, detector, batch, runs: runs.max(1), word })
    }

    /// Bare network, copy, and ours, run by run in turn: the same clocks for all three.
    fn latency(&mut self, report: &mut Report) -> Result<()> {
        let (mut bare, mut copy, mut ours) = (vec![], vec![], vec![]);
        let (mut bare_device, mut split) = (vec![], [vec![], vec![], vec![], vec![]]);
        let (mut answers, mut detections) = (vec![], vec![]);
        for run in 0..WARMUP_RUNS + self.runs {
            let measured = run >= WARMUP_RUNS;
            let since = Instant::now();
            let device = self.engine.run_bare(0)?;
            let bare_ms = milliseconds(since.elapsed());
            let copy_ms = milliseconds(self.engine.run_copies(0)?);
            self.engine.stage_again(0)?;
            let since = Instant::now();
            self.engine.submit(0)?;
            self.engine.collect(0, &mut answers)?;
            detect_all(&mut self.detector, self.engine, &mut answers, &mut detections);
            let ours_ms = milliseconds(since.elapsed());
            if measured {
                bare.push(bare_ms);
                bare_device.push(milliseconds(device));
                copy.push(copy_ms);
                ours.push(ours_ms);
                let times = self.engine.times(0)?;
                for (all, time) in split.iter_mut().zip([times.copy, times.prepare, times.network, times.decode]) {
                    all.push(milliseconds(time));
                }
            }
        }
        let word = self.word;
        report.spread(&format!("{word}: bare engine in a CUDA graph, device"), &mut bare_device);
        let bare_ms = report.spread(&format!("{word}: bare engine in a CUDA graph, host"), &mut bare);
        let copy_ms = report.spread(&format!("{word}: copy of the frames to the device"), &mut copy);
        let ours_ms = report.spread(&format!("{word}: frame in pinned memory → final boxes"), &mut ours);
        for (name, all) in ["copy", "letterbox", "network", "candidates and answer"].iter().zip(&mut split) {
            all.sort_by(f64::total_cmp);
            report.figure(&format!("{word}: ours, {name}, median"), all[all.len() / 2], "ms");
        }
        let most_ms = bare_ms + copy_ms + OVERHEAD_MS;
        report.bounded(
            &format!("{word}: ours beyond bare engine and copy"),
            ours_ms - bare_ms - copy_ms,
            "ms",
            format!("at most {OVERHEAD_MS} ms"),
            ours_ms <= most_ms,
        );
        self.host_cpu(report)
    }

    /// CPU time of the process while frames are answered one after the other.
    fn host_cpu(&mut self, report: &mut Report) -> Result<()> {
        let (mut answers, mut detections) = (vec![], vec![]);
        let before = machine_facts::process_cpu_ms();
        for _ in 0..self.runs {
            self.engine.stage_again(0)?;
            self.engine.submit(0)?;
            self.engine.collect(0, &mut answers)?;
            detect_all(&mut self.detector, self.engine, &mut answers, &mut detections);
        }
        let each_ms = (machine_facts::process_cpu_ms() - before) / f64::from(self.runs * self.batch);
        let what = format!("{}: host CPU a frame, pinned memory → final boxes", self.word);
        if self.word == "block" {
            report.bounded(&what, each_ms, "ms", format!("at most {HOST_MS} ms"), each_ms <= HOST_MS);
        } else {
            report.figure(&what, each_ms, "ms");
        }
        Ok(())
    }

    /// Two graphs in flight: the bare network and ours.
    fn throughput(&mut self, report: &mut Report) -> Result<()> {
        let (mut answers, mut detections) = (vec![], vec![]);
        let frames = f64::from(self.runs * self.batch);
        let since = Instant::now();
        self.engine.submit_bare(0)?;
        for run in 1..self.runs {
            self.engine.submit_bare(index(run % 2))?;
            self.engine.wait(index((run + 1) % 2))?;
        }
        self.engine.wait(index((self.runs + 1) % 2))?;
        let bare = frames / since.elapsed().as_secs_f64();
        let since = Instant::now();
        for lane in 0..2.min(self.runs) {
            self.engine.stage_again(index(lane))?;
            self.engine.submit(index(lane))?;
        }
        for run in 0..self.runs {
            let (lane, more) = (index(run % 2), run + 2 < self.runs);
            if more {
                self.engine.stage_again(lane)?;
                self.engine.send_ahead(lane)?;
            }
            self.engine.collect(lane, &mut answers)?;
            if more {
                self.engine.submit(lane)?;
            }
            detect_all(&mut self.detector, self.engine, &mut answers, &mut detections);
        }
        let ours = frames / since.elapsed().as_secs_f64();
        let word = self.word;
        report.figure(&format!("{word}: bare engine, two graphs in flight, batch {}", self.batch), bare, "frames/s");
        report.figure(&format!("{word}: ours, two graphs in flight, batch {}", self.batch), ours, "frames/s");
        report.bounded(
            &format!("{word}: ours of the bare engine's throughput"),
            ours / bare,
            "",
            format!("at least {THROUGHPUT_SHARE}"),
            ours >= THROUGHPUT_SHARE * bare,
        );
        Ok(())
    }

    /// Nothing may be allocated after loading.
    fn growth(&mut self, runs: u32, report: &mut Report) -> Result<()> {
        let (mut answers, mut detections) = (vec![], vec![]);
        let (allocations, used) = (self.engine.device_allocations(), self.engine.device_memory()?);
        for _ in 0..runs.div_ceil(self.batch) {
            self.engine.stage_again(0)?;
            self.engine.submit(0)?;
            self.engine.collect(0, &mut answers)?;
            detect_all(&mut self.detector, self.engine, &mut answers, &mut detections);
        }
        let more = self.engine.device_allocations() - allocations;
        let grown = mib(Bytes(used.free.0.saturating_sub(self.engine.device_memory()?.free.0)));
        report.bounded(&format!("device allocations during {runs} frames"), float64(more), "", "0".into(), more == 0);
        report.bounded(&format!("device memory grown during {runs} frames"), grown, "MiB", "0".into(), grown == 0.0);
        Ok(())
    }
}
