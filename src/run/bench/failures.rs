//! Loads that must fail, again and again: each ends with its typed error, and nothing of it stays on the device.

use super::resident;
use crate::bundle::Bundle;
use crate::engine::tensorrt::{self, GpuOptions, Plan};
use crate::engine::{Engine, InputSpec, Layout};
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::cuda::{Context, DeviceBuffer, Driver, live_allocations};
use crate::ffi::tensorrt::version::Flavour;
use crate::frame::Frame;
use crate::run::machine;
use crate::units::{Bytes, SizePx, count};
use std::fmt::Write;
use std::sync::Arc;

/// Loads before the baseline is taken: what a library takes once and keeps is there then.
const WARMUP_LOADS: u32 = 2;
/// Left free when the device is filled.
const LEFT_FREE: u64 = 8 << 20;
/// Runs on a full device.
const FULL_RUNS: u32 = 100;

/// One load that must fail.
struct Case {
    what: &'static str,
    bytes: Vec<u8>,
    input: InputSpec,
    layout: Layout,
    flavour: Flavour,
    options: GpuOptions,
    /// The device is full but for a few MiB.
    full: bool,
}

/// Lets `times` loads of each kind fail and compares live allocations and device memory before and after.
///
/// # Errors
/// As loading the bundle; [`ErrorKind::Device`] when a load does not fail, or leaves something behind; `say` was told of every kind
/// before.
pub fn failures(bundle: &Bundle, times: u32, gpu: &GpuOptions, say: &mut dyn FnMut(&str)) -> Result<()> {
    let (facts, bytes) = machine::plan_for_this_machine(bundle, gpu)?;
    let manifest = bundle.manifest();
    let gpu = GpuOptions { budget: gpu.budget.or(manifest.target.budget), ..gpu.clone() };
    let context = Context::new(Driver::load()?, gpu.device, gpu.wait)?;
    let good = Case {
        what: "",
        bytes,
        input: manifest.input.clone(),
        layout: manifest.layout.clone(),
        flavour: facts.flavour.parse()?,
        options: gpu,
        full: false,
    };
    let classes: Arc<[String]> = manifest.classes.clone().into();
    let load = |case: &Case| {
        let plan = Plan { bytes: &case.bytes, flavour: case.flavour, input: &case.input, layout: &case.layout };
        tensorrt::load(&plan, &classes, 0.25, &case.options)
    };
    let weights = load(&good)?.figures().tensorrt;
    say("| load | answer | exit code | times | live allocations left | device memory left |");
    say("| --- | --- | ---: | ---: | ---: | ---: |");
    let mut wrong = 0;
    for case in cases(&good, weights) {
        let ballast = if case.full { Some(fill(&context)?) } else { None };
        let mut answer = None;
        let mut attempt = || -> Result<()> {
            match load(&case) {
                Err(error) => answer = Some(error),
                Ok(_) => {
                    return Err(Error::new(ErrorKind::Device, format!("a load that must fail did not: {}", case.what)));
                }
            }
            Ok(())
        };
        for _ in 0..WARMUP_LOADS {
            attempt()?;
        }
        let before = (live_allocations(), context.memory()?.free);
        for _ in 0..times {
            attempt()?;
        }
        let after = (live_allocations(), context.memory()?.free);
        drop(ballast);
        let (left, grown) = (after.0.saturating_sub(before.0), Bytes(before.1.0.saturating_sub(after.1.0)));
        wrong += u32::from(left > 0 || grown.0 > 0);
        let (message, code) = answer.map_or((String::new(), 0), |error| (whole(&error), error.kind().exit_code()));
        say(&format!("| {} | {message} | {code} | {times} | {left} | {grown} |", case.what));
    }
    full_device(bundle, &good, &context, &load, say)?;
    if wrong > 0 {
        return Err(Error::new(ErrorKind::Device, format!("{wrong} kinds of failed loads left something behind")));
    }
    Ok(())
}

/// Message and hint as one cell.
fn whole(error: &Error) -> String {
    let mut text = error.message().replace('|', "/").replace('\n', " ");
    if let Some(hint) = error.hint_text() {
        let _infallible = write!(text, " ({})", hint.replace('|', "/"));
    }
    text
}

fn cases(good: &Case, weights: Bytes) -> Vec<Case> {
    let same = || Case {
        what: "",
        bytes: good.bytes.clone(),
        input: good.input.clone(),
        layout: good.layout.clone(),
        flavour: good.flavour,
        options: good.options.clone(),
        full: false,
    };
    let cut = |length: usize| good.bytes.get(..length).unwrap_or_default().to_vec();
    let flipped = |at: usize| {
        let mut bytes = good.bytes.clone();
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 0xff;
        }
        bytes
    };
    let half = good.bytes.len() / 2;
    let budget = |bytes: u64| GpuOptions { budget: Some(Bytes(bytes)), ..good.options.clone() };
    let other = match good.flavour {
        Flavour::Trt10 => Flavour::Trt8,
        _ => Flavour::Trt10,
    };
    let size = SizePx::new(good.input.size.width_px + 32, good.input.size.height_px);
    vec![
        Case { what: "empty plan", bytes: vec![], ..same() },
        Case { what: "plan of one byte", bytes: cut(1), ..same() },
        Case { what: "plan cut at half", bytes: cut(half), ..same() },
        Case { what: "plan without its last byte", bytes: cut(good.bytes.len().saturating_sub(1)), ..same() },
        Case { what: "flipped byte in the plan's head", bytes: flipped(9), ..same() },
        Case { what: "not a plan", bytes: b"this is not a plan".repeat(1000), ..same() },
        Case { what: "TensorRT of another family", flavour: other, ..same() },
        Case { what: "budget below the weights", options: budget(weights.0 / 2), ..same() },
        Case { what: "budget below the arena", options: budget(weights.0 + (1 << 20)), ..same() },
        Case { what: "plan of another input size", input: InputSpec { size, ..good.input.clone() }, ..same() },
        Case {
            what: "plan without the bundle's input",
            input: InputSpec { name: "no such input".into(), ..good.input.clone() },
            ..same()
        },
        Case { what: "device memory full at load", full: true, ..same() },
    ]
}

/// Takes the device's memory but for a little.
fn fill(context: &Arc<Context>) -> Result<Vec<DeviceBuffer>> {
    let mut taken = vec![];
    let mut step: u64 = 1 << 30;
    while step >= 2 << 20 {
        let free = context.memory()?.free.0;
        if free < step + LEFT_FREE {
            step /= 2;
            continue;
        }
        let length = usize::try_from(step).unwrap_or(usize::MAX);
        match DeviceBuffer::new(context, length) {
            Ok(buffer) => taken.push(buffer),
            Err(_) => step /= 2,
        }
    }
    Ok(taken)
}

/// A loaded engine needs nothing more: it answers on a device that is full.
fn full_device(
    bundle: &Bundle,
    good: &Case,
    context: &Arc<Context>,
    load: &dyn Fn(&Case) -> Result<tensorrt::TensorRtEngine>,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let mut engine = load(good)?;
    let frame: Frame = resident(bundle)?;
    let mut answers = vec![];
    engine.infer(&[&frame], &mut answers)?;
    let allocations = engine.device_allocations();
    let ballast = fill(context)?;
    let free = context.memory()?.free;
    for _ in 0..FULL_RUNS {
        answers.clear();
        engine.infer(&[&frame], &mut answers)?;
    }
    let more = engine.device_allocations() - allocations;
    let filled = Bytes(ballast.iter().map(|buffer| count(buffer.bytes())).sum());
    drop(ballast);
    say(&format!(
        "a loaded engine on a full device ({filled} taken, {free} free): {FULL_RUNS} runs answered, {more} device allocations"
    ));
    Ok(())
}
