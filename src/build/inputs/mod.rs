//! Everything outside the model that makes one bundle differ from another, read before any work is done: so an unchanged
//! recipe is known to be one without building it.

use super::Prepared;
use super::assemble::Order;
use super::cache_key::{CacheKey, KeyParts, cache_key};
use super::compile::{Compiler, PlanOrder, dotted};
use super::pictures::PictureFolder;
use super::watcher::Watcher;
use crate::bundle::RunningHash;
use crate::bundle::manifest::{SCHEMA, Target};
use crate::config::Recipe;
use crate::engine::cpu;
use crate::error::{Error, Result};
use crate::ffi::cuda::{Driver, devices};
use crate::ffi::tensorrt::Library;
use crate::ffi::tensorrt::version::Flavour;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Lists of class names that stand beside labels and are compared with the model's.
const NAME_FILES: [&str; 2] = ["classes.txt", "obj.names"];
/// Keys of a recipe that are paths, or that the prepared model already tells.
const TOLD_OTHERWISE: [&str; 9] =
    ["model", "target", "calibration", "golden", "shapes", "layout", "outputs", "names", "precision"];

/// What a bundle of `order` is built for, as its manifest states it.
pub(super) fn target(order: &Order) -> Target {
    Target {
        platform: order.platform.name.clone(),
        flavour: order.compiler.flavour().to_owned(),
        compute_capability: order.platform.compute_capability.as_ref().map(|known| known.value.clone()),
        budget: order.compiler.budget(),
    }
}

/// The cache key of `order` for the model as prepared, before its precision is converted.
///
/// # Errors
/// [`crate::ErrorKind::Source`] for a folder of pictures that cannot be read; [`crate::ErrorKind::Interrupted`].
pub(super) fn key(order: &Order, prepared: &Prepared, watcher: &mut dyn Watcher) -> Result<CacheKey> {
    let recipe = &order.recipe;
    let mut fields = recipe_fields(recipe)?;
    let mut add = |name: &str, value: String| fields.insert(name.to_owned(), value);
    add("name", order.name.clone());
    add("schema", SCHEMA.to_string());
    add("decided", prepared.decided.join("\n"));
    add("platform", text(&order.platform)?);
    add("answers_by", cpu::backend(&order.cpu));
    add("portable", matches!(order.compiler, Compiler::Portable { .. }).to_string());
    let calibration = recipe.calibration.as_deref().map(Pictures::of).transpose()?;
    let gate = recipe.gate.pictures.as_deref().map(Pictures::of).transpose()?;
    if let Some(golden) = recipe.golden.as_deref().map(Pictures::of).transpose()? {
        add("golden", golden.hash(Names::GiveTheOrder, None, watcher)?);
    }
    if let Some(gate) = &gate {
        add("gate_pictures", gate.hash(Names::DoNotMatter, None, watcher)?);
    }
    if let (Some(labels), Some(judging)) = (&recipe.gate.labels, gate.as_ref().or(calibration.as_ref())) {
        add("labels", judging.hash(Names::DoNotMatter, Some(labels), watcher)?);
    }
    let mut tensorrt = None;
    if let Compiler::Plan(plan) = &order.compiler {
        // A library that is missing is told by the build itself.
        tensorrt = Library::open(plan.flavour, &plan.search).ok().map(|library| library.version().to_string());
        add("workspace_bytes", plan.workspace.0.to_string());
        add("optimization_level", plan.optimization_level.map_or("its own".to_owned(), |level| level.to_string()));
        add("gpu", gpu(plan));
    }
    let calibration = calibration.map(|pictures| pictures.hash(Names::DoNotMatter, None, watcher)).transpose()?;
    let parts = KeyParts {
        precision: recipe.precision.name(),
        calibration_sha256: calibration.as_deref(),
        target: &target(order),
        tensorrt: tensorrt.as_deref(),
        edge_build: env!("CARGO_PKG_VERSION"),
        recipe: &fields,
    };
    Ok(cache_key(prepared, &parts))
}

/// The recipe's keys, one field each, without paths: where a file lies makes no difference.
fn recipe_fields(recipe: &Recipe) -> Result<BTreeMap<String, String>> {
    let mut recipe = recipe.clone();
    recipe.gate.pictures = None;
    recipe.gate.labels = None;
    let unwritable = |error| Error::unexpected("the recipe cannot be written as JSON").because(error);
    let serde_json::Value::Object(all) = serde_json::to_value(&recipe).map_err(unwritable)? else {
        return Err(Error::unexpected("found a recipe that is no table"));
    };
    let kept = all.into_iter().filter(|(name, _)| !TOLD_OTHERWISE.contains(&name.as_str()) && name != "name");
    Ok(kept.map(|(name, value)| (name, value.to_string())).collect())
}

fn text(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| Error::unexpected("a part of the cache key cannot be written").because(error))
}

/// The GPU that a plan is timed on; TensorRT-RTX builds without one.
fn gpu(plan: &PlanOrder) -> String {
    if plan.flavour == Flavour::Rtx {
        return "none".to_owned();
    }
    let found = Driver::load().and_then(devices).unwrap_or_default();
    let same = found.iter().find(|device| device.compute_capability == plan.compute_capability);
    same.map_or_else(|| dotted(plan.compute_capability), ToString::to_string)
}

/// Whether the names of pictures matter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    /// They give the order.
    GiveTheOrder,
    /// A renamed picture is the same picture.
    DoNotMatter,
}

/// The picture files of a folder.
struct Pictures {
    files: Vec<PathBuf>,
}

impl Pictures {
    fn of(folder: &Path) -> Result<Pictures> {
        Ok(Pictures { files: PictureFolder::list(folder)?.files })
    }

    /// SHA-256 over the files' contents; with `labels` over each content and the label file that belongs to it.
    fn hash(&self, names: Names, labels: Option<&Path>, watcher: &mut dyn Watcher) -> Result<String> {
        let mut hashes = Vec::with_capacity(self.files.len());
        for file in &self.files {
            watcher.check_stop()?;
            let mut hash = file_hash(file);
            if let Some(folder) = labels {
                let stem = file.file_stem().unwrap_or_default().to_string_lossy();
                hash.push_str(&file_hash(&folder.join(format!("{stem}.txt"))));
            }
            hashes.push(hash);
        }
        if names == Names::DoNotMatter {
            hashes.sort_unstable();
        }
        hashes.extend(labels.into_iter().flat_map(|folder| NAME_FILES.map(|name| file_hash(&folder.join(name)))));
        let mut all = RunningHash::default();
        hashes.iter().for_each(|hash| {
            all.update(hash.as_bytes());
            all.update(b"\n");
        });
        Ok(all.finish())
    }
}

/// SHA-256 of a file's content; a text that is no hash for one that cannot be read.
fn file_hash(path: &Path) -> String {
    let mut hash = RunningHash::default();
    let mut buffer = vec![0; 1 << 16];
    let Ok(mut file) = std::fs::File::open(path) else { return "unreadable".to_owned() };
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return hash.finish(),
            Ok(bytes) => hash.update(buffer.get(..bytes).unwrap_or_default()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return "unreadable".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
