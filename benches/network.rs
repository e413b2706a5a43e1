//! Times one network in one backend; `tools/bench_cpu.py` runs several of these in turns.
//!
//! usage: cargo bench --bench network -- BACKEND THREADS MODEL.onnx
//! Every line on standard input is a number of runs; the answer is one line: the lowest wall time and the lowest CPU time
//! of one run, milliseconds. Wall time is the network alone; CPU time is that of all threads for the whole engine.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, reason = "a bench program")]

use edge_trt::engine::cpu::{CpuOptions, load};
use edge_trt::engine::{ElementType, Engine, InputSpec, Layout};
use edge_trt::frame::{Frame, Picture};
use edge_trt::units::SizePx;
use std::io::BufRead;

/// CPU time of all threads of this process, milliseconds.
fn cpu_ms() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let nanoseconds = threads.flatten().filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    nanoseconds.sum::<f64>() / 1e6
}

fn engine(backend: &str, threads: u32, model: &str) -> Box<dyn Engine> {
    let size = SizePx::new(640, 640);
    let input = InputSpec { name: "images".into(), batch: 1, channels: 3, size, element: ElementType::F32 };
    let layout = Layout::Raw { output: "output0".into(), classes: 6, anchors: 8400 };
    let classes = (0..6).map(|class| format!("c{class}")).collect();
    let options = CpuOptions { backend: backend.parse().unwrap(), threads: Some(threads), ..CpuOptions::default() };
    load(&std::fs::read(model).unwrap(), &input, &layout, classes, 0.25, &options).unwrap()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [backend, threads, model] = arguments.as_slice() else {
        println!("usage: cargo bench --bench network -- BACKEND THREADS MODEL.onnx");
        return;
    };
    let mut engine = engine(backend, threads.parse().unwrap(), model);
    let size = SizePx::new(640, 640);
    let pixels = (0..3 * size.pixels()).map(|at| (at * 7 % 251) as u8).collect();
    let frame = Frame::new("bench", 0, Picture::rgb(size, pixels));
    println!("{}", engine.info().backend);
    let mut answers = Vec::new();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let mut best = [f64::INFINITY; 2];
        for _ in 0..line.trim().parse().unwrap_or(0) {
            let before_ms = cpu_ms();
            engine.infer(&[&frame], &mut answers).unwrap();
            let spent_ms = cpu_ms() - before_ms;
            let answer = answers.pop().unwrap();
            best = [best[0].min(answer.timings.inference_ms), best[1].min(spent_ms)];
            engine.recycle(answer);
        }
        println!("{:.3} {:.3}", best[0], best[1]);
    }
}
