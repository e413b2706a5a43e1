//! The end of a build: the bundle is written aside, its plan is read back and judged, and it gets its name when it has proved itself.

use super::Prepared;
use super::assemble::{Built, Order, load, report};
use super::compile::readback::add_read_back;
use super::compile::{Compiled, Compiler, PlanOrder};
use super::gate::{self, PlanToAsk};
use super::known::KnownAnswers;
use super::precision::Converted;
use super::watcher::Watcher;
use crate::bundle::golden;
use crate::bundle::plan::PlanFacts;
use crate::bundle::{Files, GOLDEN_ANSWERS, MODEL, Manifest, stage_with};
use crate::error::Result;
use crate::gpu::plan::MemoryPlan;
use crate::units::{Bytes, count};
use std::path::Path;

/// What a bundle is written from.
pub(super) struct Parts<'a> {
    pub(super) prepared: &'a Prepared,
    pub(super) known: &'a KnownAnswers,
    /// The plan, with what it will take by the graph.
    pub(super) compiled: Option<(Compiled, Option<MemoryPlan>)>,
}

/// Writes the bundle aside, judges its plan where there is one, proves it from there with an engine loaded anew, and gives it its
/// name.
pub(super) fn put(
    order: &Order,
    made: Parts<'_>,
    mut manifest: Manifest,
    converted: Option<&mut Converted>,
    watcher: &mut dyn Watcher,
) -> Result<Built> {
    let (_names, mut files) = made.known.set.to_files()?;
    debug_assert!(files.contains_key(GOLDEN_ANSWERS));
    files.insert(MODEL.to_owned(), made.prepared.model_bytes.clone());
    let bytes = files.values().map(|bytes| count(bytes.len())).sum();
    watcher.check_stop()?;
    let mut plan = Files::new();
    let mut staged = stage_with(&order.output, &manifest, &files, |id| {
        if let (Compiler::Plan(order), Some((compiled, memory))) = (&order.compiler, made.compiled) {
            plan = compiled.into_entries(order, id, memory)?;
        }
        Ok(plan.clone())
    })?;
    if let Compiler::Plan(order_of_plan) = &order.compiler {
        let mut plan = add_read_back(plan, order_of_plan, staged.aside(), watcher)?;
        if let Some(converted) = converted {
            plan = judge_plan(order, order_of_plan, staged.aside(), plan, converted, watcher)?;
            manifest.gate = converted.verdict.as_ref().map(|verdict| verdict.result().clone());
        }
        drop(staged);
        staged = stage_with(&order.output, &manifest, &files, |id| {
            let facts = PlanFacts { bundle: id.to_owned(), ..PlanFacts::of_entries(&plan)? };
            facts.into_entries_of(plan)
        })?;
    }
    let bundle = staged.open()?;
    let mut engine = load(order, made.prepared, &made.prepared.input, &bundle.model()?)?;
    let proof = golden::prove(engine.as_mut(), &bundle)?;
    watcher.say(&format!(
        "proved: {} known answers came out right, largest difference {:.4} px and {:.6} in score",
        proof.frames, proof.worst_px, proof.worst_score
    ));
    watcher.check_stop()?;
    drop(bundle);
    let id = staged.commit()?;
    Ok(Built { id, bytes: Bytes(std::fs::metadata(&order.output).map_or(bytes, |about| about.len())), rebuilt: true })
}

/// Lets the plan of the bundle at `staged` answer for the candidate, where the graph was judged and this machine can run the plan: its
/// result takes the place of the graph's. Gives the plan's entries with it.
fn judge_plan(
    order: &Order,
    compiled: &PlanOrder,
    staged: &Path,
    entries: Files,
    converted: &mut Converted,
    watcher: &mut dyn Watcher,
) -> Result<Files> {
    let Some(verdict) = converted.verdict.as_mut() else { return Ok(entries) };
    if !gate::plan::runs_here(compiled) {
        watcher.say("gate: the graph was judged on the CPU; this machine cannot run the plan");
        return Ok(entries);
    }
    let facts = PlanFacts::of_entries(&entries)?;
    let name = facts.name();
    let plan = PlanToAsk { bundle: staged, name: &name, search: &compiled.search };
    let graph = verdict.result().candidate.clone();
    verdict.judged = verdict.ground.judge_plan(plan, order.ask_by, Some(graph), watcher)?;
    let result = verdict.result().clone();
    if let Err(error) = gate::plan::tell(&result, watcher) {
        if let Some(folder) = &order.report {
            report(order, converted, folder, false, watcher)?;
        }
        return Err(error);
    }
    PlanFacts { gate: Some(result), ..facts }.into_entries_of(entries)
}
