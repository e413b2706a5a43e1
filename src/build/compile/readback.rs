//! What a fresh plan is on this machine: its layers, its memory, its answers.

use super::PlanOrder;
use super::asked::{AsAsked, GraphPrecision};
use super::faults::REST_IN_FLOAT;
use crate::build::watcher::Watcher;
use crate::bundle::manifest::Precision;
use crate::bundle::plan::PlanFacts;
use crate::bundle::{Bundle, Files, MODEL, golden};
use crate::engine::tensorrt::{self, GpuOptions, LoadFigures, Plan};
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::cuda::{Driver, devices};
use crate::ffi::tensorrt::probe::Search;
use crate::gpu::layers::{LayerReport, Parts};
use crate::gpu::plan::{Basis, MemoryInputs, MemoryPlan};
use crate::onnx::Model;
use crate::platform::Platform;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadBack {
    /// What the plan takes on the GPU, as it was when it was loaded.
    pub memory: MemoryPlan,
    /// Its layers.
    pub layers: LayerReport,
    /// The layers beside what the graph asks of their nodes.
    pub as_asked: AsAsked,
    /// The proof in words.
    pub proof: String,
    /// Why the plan must not be used; empty when it may.
    pub troubles: Vec<String>,
}

/// How plans are read back: this function in this process, or one that starts a process of its own, where nothing of the build lies
/// in the device's memory.
pub type ReadBackBy = fn(&Path, &str, &Search) -> Result<ReadBack>;

/// Reads the plan in `entries` back from the bundle at `staged`, tells what was found, and gives the entries with it in the plan's
/// facts. A family that builds without a GPU is left as it is.
///
/// # Errors
/// [`crate::ErrorKind::Refused`]: the plan does not prove itself, or its layers are not as asked; [`crate::ErrorKind::Budget`]: it
/// takes more than its budget; and those of reading it back.
pub fn add_read_back(entries: Files, order: &PlanOrder, staged: &Path, watcher: &mut dyn Watcher) -> Result<Files> {
    let json = entries.iter().find(|(name, _)| name.ends_with(".json"));
    let Some((_, json)) = json.filter(|_| !order.flavour.builds_without_gpu()) else { return Ok(entries) };
    let facts: PlanFacts = serde_json::from_slice(json)
        .map_err(|error| Error::unexpected("the plan's facts cannot be read back").because(error))?;
    let by = order.read_back.unwrap_or(read_back);
    let found = by(staged, &facts.name(), &order.search).map_err(|error| match error.place() {
        Some(_) => error,
        None => error.at(format!("plan `{}`", facts.name())),
    })?;
    for line in
        found.layers.to_lines().iter().chain(&found.memory.to_table().lines().map(str::to_owned).collect::<Vec<_>>())
    {
        watcher.say(line);
    }
    if found.as_asked.above.is_empty() {
        watcher.say(&found.as_asked.to_line());
    } else {
        watcher.warn(&found.as_asked.to_line());
    }
    watcher.say(&format!("proof on the GPU: {}", found.proof));
    if order.keep_unproved {
        found.troubles.iter().for_each(|trouble| watcher.warn(&format!("kept although {trouble}")));
    } else if let Some(first) = found.troubles.first() {
        let more =
            if found.troubles.len() > 1 { format!(" (and {} more)", found.troubles.len() - 1) } else { String::new() };
        return Err(Error::refused(format!("found a plan that must not be used: {first}{more}"))
            .at(format!("plan `{}`", facts.name()))
            .hint(format!(
                "no plan was written; {}",
                Bundle::open(staged).map_or_else(|_| OTHERS.to_owned(), |bundle| way_out(&bundle.manifest().precision))
            )));
    } else if !found.memory.fits() {
        let (total, budget) = (found.memory.total, found.memory.budget);
        return Err(Error::new(ErrorKind::Budget, format!("found a plan that takes {total} GPU memory, expected at most the budget of {budget}"))
            .at(format!("plan `{}`", facts.name()))
            .hint("no plan was written; a smaller batch, input or model needs less, `--gpu-budget` raises the limit; other programs on this GPU count"));
    }
    let plan = entries.into_iter().find(|(name, _)| name.ends_with(".plan")).map(|(_, plan)| plan).unwrap_or_default();
    PlanFacts { memory: Some(found.memory), layers: Some(found.layers), ..facts }.entries(plan)
}

const OTHERS: &str = "try another optimisation level or TensorRT version";

/// What to try instead of a plan that must not be used.
fn way_out(precision: &Precision) -> String {
    let holds = |name: &str| precision.found.get(name).is_some_and(|&layers| layers > 0);
    let others = OTHERS;
    match (holds("int8"), holds("f16")) {
        (true, true) => {
            format!("{REST_IN_FLOAT}, or leave parts out of INT8 with `--int8-keep PART`; or {others}, or `--fp16`")
        }
        (true, false) => format!("leave parts out of INT8 with `--int8-keep PART`; or {others}, or `--fp16`"),
        _ => format!("{others}, or build without `--fp16`"),
    }
}

/// Loads plan `name` of the bundle at `path`, reads it back and proves it.
///
/// # Errors
/// As [`tensorrt::load`]; what the inspector or the driver report.
pub fn read_back(path: &Path, name: &str, search: &Search) -> Result<ReadBack> {
    let bundle = Bundle::open(path)?;
    let (facts, bytes) = bundle.plan(name)?;
    let here = devices(Driver::load()?)?;
    let fitting = here.iter().find(|device| super::dotted(device.compute_capability) == facts.compute_capability);
    let device = fitting.map(|device| device.ordinal).ok_or_else(|| {
        Error::machine_lacks(format!("found no GPU of compute capability {}", facts.compute_capability))
    })?;
    let manifest = bundle.manifest();
    let plan =
        Plan { bytes: &bytes, flavour: facts.flavour.parse()?, input: &manifest.input, layout: &manifest.layout };
    let options =
        GpuOptions { device, search: search.clone(), budget: manifest.target.budget, ..GpuOptions::default() };
    let classes: Arc<[String]> = manifest.classes.clone().into();
    let floor = manifest.thresholds.lowest_score();
    let mut engine = tensorrt::load(&plan, &classes, floor, &options)?;
    let graph = GraphPrecision::of(&Model::from_bytes(&bundle.read(MODEL)?)?)?;
    let information = engine.layer_information()?;
    log::trace!("layers as TensorRT tells them: {information}");
    let (layers, parts) = LayerReport::parse(&information, &graph.nodes)?;
    let platform = Platform::find(&facts.compute_capability)?;
    let budget = manifest.target.budget.unwrap_or(engine.figures().limit);
    let memory = measured(engine.figures(), budget, platform.plan.alarm_percent)?;
    let mut troubles = judge(&asked(&manifest.precision), &graph, &layers, &parts);
    let as_asked = AsAsked::of(&graph, &layers, &parts);
    let proof = match golden::prove(&mut engine, &bundle) {
        Ok(proof) => format!(
            "{} known answers came out right, largest difference {:.3} px and {:.4} in score",
            proof.frames, proof.worst_px, proof.worst_score
        ),
        Err(error) => {
            troubles.push(error.message().to_owned());
            "not proved".to_owned()
        }
    };
    Ok(ReadBack { memory, layers, as_asked, proof, troubles })
}

/// The precision that must be in the plan: the one that was asked for; of an export as it is, every one that it holds. What an INT8
/// graph has beside INT8, TensorRT may compute in more.
fn asked(precision: &Precision) -> BTreeMap<String, u64> {
    let only = match precision.asked.as_str() {
        "fp16" => Some("f16"),
        "int8" => Some("int8"),
        _ => None,
    };
    let found = precision.found.iter().filter(|(name, _)| only.is_none_or(|only| only == *name));
    found.map(|(name, count)| (name.clone(), *count)).collect()
}

/// The memory plan of what was loaded.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] for sizes that no memory holds.
pub fn measured(figures: &LoadFigures, budget: crate::units::Bytes, alarm_percent: u32) -> Result<MemoryPlan> {
    MemoryPlan::of(&MemoryInputs {
        basis: Basis::Measured,
        weights: figures.tensorrt,
        activations: figures.activations_each,
        tensors: figures.tensors.clone(),
        shape: figures.shape.clone(),
        overhead: figures.device_before,
        libraries: figures.overhead(),
        contexts: figures.lanes,
        budget,
        alarm_percent,
    })
}

/// What is wrong with the layers: precisions `asked` for (as [`crate::bundle::manifest::Precision::found`] counts them) that the plan
/// has nowhere, and layers of nodes that must stay in float and do not.
pub fn judge(
    asked: &BTreeMap<String, u64>,
    graph: &GraphPrecision,
    layers: &LayerReport,
    parts: &[Parts],
) -> Vec<String> {
    let mut troubles = missing(asked, layers);
    troubles.append(&mut below_float(graph, layers, parts));
    troubles
}

/// Precisions that the graph holds and the plan has nowhere.
fn missing(asked: &BTreeMap<String, u64>, layers: &LayerReport) -> Vec<String> {
    let found = |name: &str| layers.products.get(name).copied().unwrap_or(0) > 0;
    let wanted = asked.iter().filter(|(name, count)| **count > 0 && matches!(name.as_str(), "f16" | "int8"));
    let lacking = wanted.filter(|(name, _)| !found(name));
    lacking
        .map(|(name, count)| {
            let has: Vec<_> = layers.products.iter().map(|(name, count)| format!("{count} in {name}")).collect();
            format!(
                "asked for {count} convolutions and products in {name}, the plan has none in it but {}",
                has.join(", ")
            )
        })
        .collect()
}

/// Layers of nodes that must stay in float, and do not.
fn below_float(graph: &GraphPrecision, layers: &LayerReport, parts: &[Parts]) -> Vec<String> {
    let low = |precision: &str| matches!(precision, "f16" | "bf16" | "int8" | "fp8" | "int4");
    let below = layers.layers.iter().zip(parts).filter(|(_, part)| {
        let float = !part.nodes.is_empty() && part.nodes.iter().all(|name| graph.float.contains(name));
        float && !part.moves && low(part.precision)
    });
    below
        .map(|(layer, _)| format!("layer `{}` must stay in float and computes in {}", layer.name, layer.precision))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(products: &[(&str, u32)]) -> LayerReport {
        LayerReport {
            products: products.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            ..LayerReport::default()
        }
    }

    /// Field case P04: FP16 was asked for, the plan is FP32, and the build says so.
    #[test]
    fn p04_a_precision_that_the_plan_lacks_is_trouble() {
        let asked = [("f16".to_owned(), 60), ("f32".to_owned(), 4)].into();
        let troubles = missing(&asked, &report(&[("f32", 64)]));
        assert_eq!(troubles, ["asked for 60 convolutions and products in f16, the plan has none in it but 64 in f32"]);
        assert_eq!(missing(&asked, &report(&[("f16", 3), ("f32", 61)])), Vec::<String>::new());
        assert_eq!(missing(&[("f32".to_owned(), 9)].into(), &report(&[("f32", 9)])), Vec::<String>::new());
    }

    #[test]
    fn the_way_out_of_a_plan_that_is_not_proved_follows_its_precision() {
        let of = |found: &[(&str, u64)]| {
            let found = found.iter().map(|(name, layers)| ((*name).to_owned(), *layers)).collect();
            way_out(&Precision { asked: "int8".to_owned(), found })
        };
        let half = of(&[("int8", 57), ("f16", 7)]);
        assert!(half.contains("`--int8-rest float`") && half.contains("--int8-keep"), "{half}");
        let float = of(&[("int8", 57), ("f16", 0), ("f32", 7)]);
        assert!(!float.contains("--int8-rest") && float.contains("--int8-keep"), "{float}");
        for other in [of(&[("f16", 64)]), of(&[("f32", 64)])] {
            assert!(!other.contains("--int8") && other.contains("optimisation level"), "{other}");
        }
    }

    #[test]
    fn an_int8_build_asks_for_int8_alone() {
        let found: BTreeMap<String, u64> = [("int8".to_owned(), 57), ("f16".to_owned(), 7)].into();
        let of = |name: &str| asked(&Precision { asked: name.to_owned(), found: found.clone() });
        assert_eq!(of("int8"), [("int8".to_owned(), 57)].into());
        assert_eq!(of("fp16"), [("f16".to_owned(), 7)].into());
        assert_eq!(of("as exported"), found);
    }

    #[test]
    fn a_layer_of_float_nodes_must_not_be_below_float() {
        let graph = GraphPrecision {
            nodes: ["/soft", "/conv"].map(str::to_owned).into(),
            float: ["/soft".to_owned()].into(),
            ..GraphPrecision::default()
        };
        let text = |kind: &str, format: &str| {
            format!(
                r#"{{"Layers": [{{"Name": "/soft", "LayerType": "{kind}", "Outputs": [{{"Format/Datatype": "{format}"}}]}},
                   {{"Name": "/conv + /soft", "LayerType": "PointWiseV2", "Outputs": [{{"Format/Datatype": "FP16"}}]}}]}}"#
            )
        };
        let troubles = |kind: &str, format: &str| {
            let (report, parts) = LayerReport::parse(&text(kind, format), &graph.nodes).unwrap();
            below_float(&graph, &report, &parts)
        };
        assert_eq!(
            troubles("SoftMaxV2", "Row major linear FP16 format"),
            ["layer `/soft` must stay in float and computes in f16"]
        );
        assert_eq!(troubles("SoftMaxV2", "Row major linear FP32"), Vec::<String>::new());
        assert_eq!(troubles("Shuffle", "Row major linear FP16 format"), Vec::<String>::new());
    }
}
