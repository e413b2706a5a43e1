//! Every check of an export, in the order in which a user wants to hear of them.

use super::layout::{self, LayoutChoice, Output};
use super::{names, operators, pin, precision, quantized, weights};
use crate::bundle::manifest;
use crate::engine::{InputSpec, Layout};
use crate::error::Result;
use crate::onnx::metadata::Metadata;
use crate::onnx::{Model, edit};
use crate::units::SizePx;
use std::collections::BTreeMap;

/// What the user decided; everything else is read from the model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// Input size of a dynamic export (`--imgsz`).
    pub imgsz: Option<SizePx>,
    /// Pictures a run (`--batch`): a dynamic export is pinned to it, one fixed at batch 1 is rewritten, up to
    /// [`super::batch::MOST`].
    pub batch: Option<u32>,
    /// How the outputs are to be read (`--layout`).
    pub layout: Option<LayoutChoice>,
    /// Class names that take the place of those in the model, index = class id (`--names`).
    pub names: Option<Vec<String>>,
    /// Tensors that become the graph's outputs; what does not lead to them is cut off (`--outputs`). Empty: as exported.
    pub outputs: Vec<String>,
}

/// A model that can run and be decoded.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared {
    /// The graph as it will run, as an ONNX file without side files: static shapes, weights inside.
    pub model_bytes: Vec<u8>,
    /// The graph at batch 1, where it was rewritten to a larger one: what the slots are compared with.
    pub batch_one: Option<Vec<u8>>,
    /// Where it came from.
    pub source: manifest::Source,
    /// Input of the network.
    pub input: InputSpec,
    /// Layout of the outputs.
    pub layout: Layout,
    /// Class names, index = class id.
    pub classes: Vec<String>,
    /// Metadata of the export that was understood, key → text.
    pub metadata: BTreeMap<String, String>,
    /// What was pinned or decided for the user, one sentence each.
    pub decided: Vec<String>,
    /// Number of convolutions, matrix products and Gemm by precision: `f32`, `f16`, `bf16`, `int8`.
    pub precision_found: BTreeMap<String, u64>,
}

/// Checks `model`, pins its shapes and decides its layout.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] when the model cannot run or cannot be decoded without a guess,
/// [`crate::ErrorKind::Usage`] when an option is missing or does not fit the model.
pub fn prepare(mut model: Model, options: &Options) -> Result<Prepared> {
    let mut decided = Vec::new();
    if !options.outputs.is_empty() {
        edit::keep_outputs(&mut model, &options.outputs)?;
        decided.push(format!("the graph ends at {}, as `--outputs` says", quoted(&options.outputs)));
    }
    operators::check(&model)?;
    match edit::remove_identities(&mut model) {
        0 => {}
        1 => decided.push("removed 1 operator that only renames".to_owned()),
        many => decided.push(format!("removed {many} operators that only rename")),
    }
    weights::check(&model, &mut decided)?;
    quantized::check(&model, &mut decided)?;
    let metadata = Metadata::of(&model)?;
    layout::check_task(&model, &metadata)?;
    let pinned = pin::pin(&mut model, &metadata, options, &mut decided)?;
    let outputs: Vec<Output> = pinned.outputs;
    let names = names::choose(&metadata, options, &mut decided)?;
    let facts = layout::Facts {
        input: &pinned.input,
        outputs: &outputs,
        metadata: &metadata,
        names: names.as_deref(),
        choice: options.layout,
    };
    let layout = layout::decide(&facts, &mut decided)?;
    let classes = names::settle(names, &layout)?;
    let source = source(&model);
    Ok(Prepared {
        precision_found: precision::count(&model, &pinned.shapes),
        model_bytes: model.to_bytes()?,
        batch_one: pinned.batch_one,
        source,
        input: pinned.input,
        layout,
        classes,
        metadata: metadata.understood,
        decided,
    })
}

fn source(model: &Model) -> manifest::Source {
    let origin = model.origin();
    manifest::Source {
        file_name: origin.file_name.clone(),
        sha256: origin.sha256.clone(),
        side_files: origin.side_files.clone(),
        producer: model.producer(),
        opset: model.opset(),
    }
}

/// Names in backticks, joined by commas.
pub(super) fn quoted<T: AsRef<str>>(names: &[T]) -> String {
    names.iter().map(|name| format!("`{}`", name.as_ref())).collect::<Vec<_>>().join(", ")
}
