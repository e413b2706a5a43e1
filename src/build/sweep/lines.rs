//! What each combination needs, from its graph alone.

use super::accuracy::Accuracy;
use super::finder::BatchSearch;
use super::timing::Timed;
use super::{Clock, SweepOrder};
use crate::build::memory::{Circumstances, estimate};
use crate::build::pictures::short_name;
use crate::build::{Options, Prepared, prepare};
use crate::config::precision::Precision;
use crate::error::{Error, ErrorKind, Result};
use crate::gpu::plan::{MemoryInputs, MemoryPlan, Reload};
use crate::onnx::Model;
use crate::platform::{Platform, PlatformKind};
use crate::units::{Bytes, SizePx};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Sizes of an export that takes any, px.
const USUAL_SIDES_PX: [u32; 7] = [320, 416, 512, 640, 768, 960, 1280];

/// One combination.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// File name of the export.
    pub model: String,
    /// Where it lies.
    #[serde(skip)]
    pub path: PathBuf,
    /// Input of the network, px.
    pub size: SizePx,
    /// Precision.
    pub precision: Precision,
    /// Pictures a run.
    pub batch: u32,
    /// Why it cannot be built.
    pub refused: Option<Refusal>,
    /// What it takes on a GPU, before the CUDA context. Of a size that needs another export: scaled by area.
    pub memory: Option<MemoryNeed>,
    /// One a GPU target.
    pub fits: Vec<Fit>,
    /// The same for every batch of a size and precision.
    pub accuracy: Option<Accuracy>,
    /// Why there is none.
    pub accuracy_missing: Option<String>,
    /// Of finalists at their best batch.
    pub time: Option<Timed>,
    /// How the best batch was found; on one line of each finalist.
    pub batch_search: Option<BatchSearch>,
}

/// Why a combination cannot be built, and the way out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// What was found against what was expected.
    pub reason: String,
    /// The way out.
    pub hint: Option<String>,
}

/// Memory of one context, estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MemoryNeed {
    /// Weights.
    pub weights: Bytes,
    /// Scratch memory at its peak.
    pub activations: Bytes,
    /// Everything of ours: weights, activations, inputs, outputs, staging, candidates.
    pub total: Bytes,
    /// Whether it was scaled by area from another size, because this one needs another export.
    pub scaled: bool,
}

/// Whether it fits a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fit {
    /// The target.
    pub target: String,
    /// With CUDA context and libraries where they were measured.
    pub total: Bytes,
    /// What may be used there.
    pub budget: Bytes,
    /// Whether it fits.
    pub fits: bool,
    /// Whether a second engine fits beside it for a reload.
    pub reload: Reload,
}

impl Line {
    /// Whether it can be built and fits every GPU target.
    pub fn fits_all(&self) -> bool {
        self.refused.is_none() && self.fits.iter().all(|fit| fit.fits)
    }

    /// Whether both are one model, size and precision.
    pub(super) fn same_group(&self, other: &Line) -> bool {
        self.path == other.path && self.size == other.size && self.precision == other.precision
    }
}

/// The lines of one export.
pub(super) fn of_model(order: &SweepOrder, path: &Path, clock: &mut Clock<'_>) -> Result<Vec<Line>> {
    let bytes = Model::read(path)?;
    let own = prepare(bytes.clone(), &Options { imgsz: None, ..order.options.clone() });
    let sizes = sizes(order, own.as_ref().ok(), &bytes)?;
    let mut lines = Vec::new();
    for size in sizes {
        for &precision in &order.precisions {
            for &batch in &order.batches {
                clock.inner.check_stop()?;
                let mut line = empty(path, size, precision, batch);
                let options = Options { imgsz: Some(size), batch: Some(batch), ..order.options.clone() };
                match prepare(bytes.clone(), &options)
                    .and_then(|prepared| check(&prepared, precision).map(|()| prepared))
                {
                    Ok(prepared) => {
                        let inputs = inputs(&prepared, precision)?;
                        fill(&mut line, &inputs, &order.platforms, false)?;
                    }
                    Err(error) if error.kind() == ErrorKind::Unexpected => return Err(error),
                    Err(error) => {
                        line.refused = Some(Refusal {
                            reason: error.message().to_owned(),
                            hint: error.hint_text().map(str::to_owned),
                        });
                        if let Ok(own) = &own
                            && own.input.size != size
                            && check(own, precision).is_ok()
                            && let Some(inputs) = scaled(own, precision, size, batch)?
                        {
                            fill(&mut line, &inputs, &order.platforms, true)?;
                        }
                    }
                }
                lines.push(line);
            }
        }
    }
    Ok(lines)
}

fn empty(path: &Path, size: SizePx, precision: Precision, batch: u32) -> Line {
    Line {
        model: short_name(path),
        path: path.to_owned(),
        size,
        precision,
        batch,
        refused: None,
        memory: None,
        fits: Vec::new(),
        accuracy: None,
        accuracy_missing: None,
        time: None,
        batch_search: None,
    }
}

/// The sizes to look at: those asked for, else the export's own, else the usual ones.
fn sizes(order: &SweepOrder, own: Option<&Prepared>, model: &Model) -> Result<Vec<SizePx>> {
    if !order.sizes.is_empty() {
        return Ok(order.sizes.clone());
    }
    let usual = USUAL_SIDES_PX.map(|side| SizePx::new(side, side));
    // A size that the export does not have decides whether it takes any.
    let other = usual.iter().find(|size| own.is_none_or(|own| own.input.size != **size)).copied();
    let takes_any = prepare(model.clone(), &Options { imgsz: other, ..order.options.clone() }).is_ok();
    match own {
        Some(own) if !takes_any => Ok(vec![own.input.size]),
        Some(_) => Ok(usual.to_vec()),
        None if takes_any => Ok(usual.to_vec()),
        // The reason stands in each line.
        None => Ok(vec![SizePx::new(640, 640)]),
    }
}

/// Refuses a precision for what has one already.
fn check(prepared: &Prepared, precision: Precision) -> Result<()> {
    let lower: u64 = prepared.precision_found.iter().filter(|(name, _)| *name != "f32").map(|(_, layers)| layers).sum();
    if precision != Precision::AsExported && lower > 0 {
        return Err(Error::refused(format!(
            "found {lower} layers below FP32 already, expected a float export for `{}`",
            precision.name()
        ))
        .hint("give the float export, or sweep `as-exported` alone"));
    }
    Ok(())
}

fn inputs(prepared: &Prepared, precision: Precision) -> Result<MemoryInputs> {
    let layers: u64 = prepared.precision_found.values().sum();
    let converted = match precision {
        Precision::AsExported => prepared.precision_found.clone(),
        Precision::Fp16 => BTreeMap::from([("f16".to_owned(), layers)]),
        Precision::Int8 => BTreeMap::from([("int8".to_owned(), layers)]),
    };
    let about = Circumstances {
        input: &prepared.input,
        layout: &prepared.layout,
        precision: &converted,
        budget: Bytes(0),
        alarm_percent: 100,
        kind: PlatformKind::Unified,
    };
    estimate(&Model::from_bytes(&prepared.model_bytes)?, &about)
}

/// What the export would need at another size, by area; `None` for another shape of the input.
fn scaled(own: &Prepared, precision: Precision, size: SizePx, batch: u32) -> Result<Option<MemoryInputs>> {
    let inputs = inputs(own, precision)?;
    let inputs = if batch == own.input.batch { inputs } else { inputs.with_batch(batch) };
    let inputs = inputs.with_longer_side(size.width_px.max(size.height_px));
    Ok((inputs.shape.width == size.width_px && inputs.shape.height == size.height_px).then_some(inputs))
}

fn fill(line: &mut Line, inputs: &MemoryInputs, platforms: &[Platform], scaled: bool) -> Result<()> {
    let plan = match MemoryPlan::of(inputs) {
        Ok(plan) => plan,
        Err(error) => {
            let hint = error.hint_text().map(str::to_owned);
            line.refused.get_or_insert(Refusal { reason: error.message().to_owned(), hint });
            return Ok(());
        }
    };
    line.memory =
        Some(MemoryNeed { weights: inputs.weights, activations: inputs.activations, total: plan.total, scaled });
    for platform in platforms {
        let Some(budget) = platform.budget() else { continue };
        let plan = MemoryPlan::of(&MemoryInputs {
            budget,
            overhead: crate::build::memory::overhead(platform.kind),
            alarm_percent: platform.plan.alarm_percent,
            ..inputs.clone()
        })?;
        line.fits.push(Fit {
            target: platform.name.clone(),
            total: plan.total,
            budget,
            fits: plan.fits(),
            reload: plan.reload,
        });
    }
    Ok(())
}
