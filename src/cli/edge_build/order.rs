//! From flags as typed to an order that can be carried out.

use super::flags::{BuildFlags, PrecisionFlags};
use crate::build::Options;
use crate::build::assemble::Order;
use crate::build::compile::Compiler;
use crate::cli::Terminal;
use crate::config::Recipe;
use crate::config::precision::{Int8Rules, Precision};
use crate::config::recipe::{ImageSize, RECIPE_FILE};
use crate::error::{Error, Result};
use crate::platform::Platform;
use crate::units::SizePx;
use std::path::{Path, PathBuf};

const MOST_NAMES_BYTES: u64 = 1 << 20;

/// Lays the flags over the recipe and checks what can be checked without the model.
pub(super) fn check(flags: &BuildFlags, terminal: &mut Terminal) -> Result<Order> {
    let input = flags.input.as_deref().ok_or_else(|| Error::usage("found no model, expected one"))?;
    let mut recipe = read_input(input)?;
    lay_over(&mut recipe, flags)?;
    let platform = match &recipe.target {
        Some(target) => {
            let platform = Platform::find(target)?;
            terminal.say(format_args!("target: {} ({})", platform.name, platform.title));
            platform
        }
        None => this_machine(terminal)?,
    };
    let compiler = Compiler::choose(&platform, &flags.gpu.wishes())?;
    if let (Compiler::Plan(plan), None) = (&compiler, flags.gpu.flavour) {
        terminal.say(format_args!("flavour: {} (the only one that this machine can build for it)", plan.flavour));
    }
    let options = Options {
        imgsz: recipe.shapes.imgsz.as_ref().map(size).transpose()?,
        batch: recipe.shapes.batch,
        layout: recipe.layout.as_deref().map(str::parse).transpose()?,
        names: if recipe.names.is_empty() { None } else { Some(recipe.names.clone()) },
        outputs: recipe.outputs.clone(),
    };
    let output = flags.output.clone().unwrap_or_else(|| default_output(&recipe, input));
    let name = recipe.name.clone().unwrap_or_else(|| stem(&output));
    Ok(Order {
        recipe,
        name,
        output,
        platform,
        compiler,
        cpu: flags.cpu.options(),
        options,
        report: flags.precision.report.clone(),
        ask_by: Some(super::read_back::ask_in_its_own_process),
        rebuild: flags.rebuild,
    })
}

/// A folder or a `*.toml` is a recipe, all else a model.
fn read_input(input: &Path) -> Result<Recipe> {
    let is_toml = input.extension().is_some_and(|extension| extension == "toml");
    if is_toml || (input.is_dir() && input.join(RECIPE_FILE).exists()) {
        return Recipe::read(input);
    }
    if input.is_dir() {
        return Err(Error::usage(format!("found a folder without `{RECIPE_FILE}`, expected a model or a recipe"))
            .at(input.display())
            .hint("give the ONNX file itself, or a folder that holds a `recipe.toml`"));
    }
    Ok(Recipe::for_model(input))
}

fn lay_over(recipe: &mut Recipe, flags: &BuildFlags) -> Result<()> {
    if let Some(path) = &flags.names {
        recipe.names = read_names(path)?;
    }
    if let Some(size) = &flags.imgsz {
        recipe.shapes.imgsz = Some(ImageSize::Text(size.clone()));
    }
    if !flags.outputs.is_empty() {
        recipe.outputs.clone_from(&flags.outputs);
    }
    recipe.name = flags.name.clone().or(recipe.name.take());
    recipe.target = flags.target.clone().or(recipe.target.take());
    recipe.calibration = flags.calibration.clone().or(recipe.calibration.take());
    recipe.golden = flags.golden.clone().or(recipe.golden.take());
    recipe.layout = flags.layout.clone().or(recipe.layout.take());
    recipe.shapes.batch = flags.batch.or(recipe.shapes.batch);
    lay_precision_over(recipe, &flags.precision)?;
    recipe.thresholds.score = flags.conf.unwrap_or(recipe.thresholds.score);
    recipe.thresholds.iou = flags.iou.unwrap_or(recipe.thresholds.iou);
    recipe.name.as_deref().map_or(Ok(()), check_name)
}

/// Refuses a name that does not fit into results and logs.
pub(super) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > 100 || name.chars().any(char::is_control) {
        return Err(Error::usage("found a name that is empty, longer than 100 bytes or holds control characters")
            .hint("give a short one with `--name`"));
    }
    Ok(())
}

fn lay_precision_over(recipe: &mut Recipe, flags: &PrecisionFlags) -> Result<()> {
    if flags.fp16 {
        recipe.precision = Precision::Fp16;
    }
    if flags.int8 {
        recipe.precision = Precision::Int8;
    }
    recipe.calibrator = flags.calibrator.unwrap_or(recipe.calibrator);
    recipe.io = flags.io.unwrap_or(recipe.io);
    if flags.fp16 {
        // Of a recipe for INT8 that is built in FP16 this once.
        recipe.int8 = Int8Rules::default();
    }
    let rules = &mut recipe.int8;
    rules.rest = flags.int8_rest.or(rules.rest);
    rules.first = flags.int8_first.or(rules.first);
    rules.few_channels = flags.int8_few_channels.or(rules.few_channels);
    rules.depthwise = flags.int8_depthwise.or(rules.depthwise);
    rules.attention = flags.int8_attention.or(rules.attention);
    rules.sums = flags.int8_sums.or(rules.sums);
    rules.head_inputs = flags.int8_head_inputs.or(rules.head_inputs);
    if !flags.int8_keep.is_empty() {
        rules.keep.clone_from(&flags.int8_keep);
    }
    recipe.int8.check(recipe.precision, recipe.io)?;
    recipe.gate.pictures = flags.gate.clone().or(recipe.gate.pictures.take());
    recipe.gate.labels = flags.labels.clone().or(recipe.gate.labels.take());
    Ok(())
}

/// `N` for a square, `WIDTHxHEIGHT` for all else.
pub(super) fn size(given: &ImageSize) -> Result<SizePx> {
    let text = given.to_string();
    let (width, height) = text.split_once(['x', 'X', '×']).unwrap_or((&text, &text));
    let side = |text: &str| text.trim().parse::<u32>().ok().filter(|side| (1..=16_384).contains(side));
    match (side(width), side(height)) {
        (Some(width), Some(height)) => Ok(SizePx::new(width, height)),
        _ => Err(Error::usage(format!("found image size `{text}`, expected a number of pixels or WIDTHxHEIGHT"))
            .hint("write `--imgsz 640` or `--imgsz 640x384`")),
    }
}

pub(super) fn read_names(path: &Path) -> Result<Vec<String>> {
    let failed =
        |error: std::io::Error| Error::usage("the class names cannot be read").because(error).at(path.display());
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() || about.len() > MOST_NAMES_BYTES {
        return Err(Error::usage("found no small text file, expected one class name a line").at(path.display()));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let names: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
    match names.iter().position(String::is_empty) {
        Some(at) => {
            Err(Error::usage(format!("line {}: found no name, expected one class name a line", at + 1))
                .at(path.display()))
        }
        None if names.is_empty() => {
            Err(Error::usage("found no name, expected one class name a line").at(path.display()))
        }
        None => Ok(names),
    }
}

/// The target when none is named: the CPU, and that is said aloud.
fn this_machine(terminal: &mut Terminal) -> Result<Platform> {
    let has_gpu = ["/dev/nvidia0", "/dev/nvhost-gpu", "/dev/nvmap"].iter().any(|node| Path::new(node).exists());
    let why = if has_gpu {
        "none was named; this machine has an NVIDIA GPU: `--target` builds for it"
    } else {
        "no NVIDIA GPU was found on this machine"
    };
    terminal.say(format_args!("target: cpu ({why})"));
    Platform::find("cpu")
}

/// Beside the model, or beside the recipe when there is one.
fn default_output(recipe: &Recipe, input: &Path) -> PathBuf {
    if input.is_dir() {
        return input.join(format!("{}.edge", recipe.name.as_deref().unwrap_or("bundle")));
    }
    if input.extension().is_some_and(|extension| extension == "toml") {
        return input.with_file_name(format!("{}.edge", recipe.name.as_deref().unwrap_or("bundle")));
    }
    input.with_extension("edge")
}

pub(super) fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(|| "bundle".to_owned(), |stem| stem.to_string_lossy().into_owned())
}
