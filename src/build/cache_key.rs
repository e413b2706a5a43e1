//! What makes one bundle differ from another (case P08): weights, graph, shapes, precision, calibration, target, versions.

use super::Prepared;
use crate::bundle::manifest::Target;
use crate::onnx::hex;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// What goes into the key besides the prepared model.
#[derive(Debug, Clone, Copy)]
pub struct KeyParts<'a> {
    /// Precision asked for.
    pub precision: &'a str,
    /// Hash over the calibration pictures; `None` without any.
    pub calibration_sha256: Option<&'a str>,
    /// What the bundle is built for.
    pub target: &'a Target,
    /// Version of TensorRT; `None` for the CPU.
    pub tensorrt: Option<&'a str>,
    /// Version of edge-build.
    pub edge_build: &'a str,
    /// Further fields of the recipe that change the bundle, name → text.
    pub recipe: &'a BTreeMap<String, String>,
}

/// A key with the fields it was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheKey {
    /// SHA-256 over the fields, lower-case hex.
    pub sha256: String,
    /// Field → value.
    pub fields: BTreeMap<String, String>,
}

/// The key of `prepared` built as `parts` say. Times and paths play no part: a touched file keeps its key.
pub fn cache_key(prepared: &Prepared, parts: &KeyParts<'_>) -> CacheKey {
    let mut fields: BTreeMap<String, String> = BTreeMap::new();
    let input = &prepared.input;
    let mut add = |name: &str, value: String| fields.insert(name.to_owned(), value);
    add("source_sha256", prepared.source.sha256.clone());
    add("graph_sha256", hex(&Sha256::digest(&prepared.model_bytes)));
    add("input", format!("[{}, {}, {}, {}]", input.batch, input.channels, input.size.height_px, input.size.width_px));
    add("layout", serde_json::to_string(&prepared.layout).unwrap_or_default());
    add("classes", serde_json::to_string(&prepared.classes).unwrap_or_default());
    add("precision", parts.precision.to_owned());
    add("calibration_sha256", parts.calibration_sha256.unwrap_or("none").to_owned());
    add("target", parts.target.platform.clone());
    add("flavour", parts.target.flavour.clone());
    add("compute_capability", parts.target.compute_capability.clone().unwrap_or("none".to_owned()));
    add("budget_bytes", parts.target.budget.map_or("none".to_owned(), |budget| budget.0.to_string()));
    add("tensorrt", parts.tensorrt.unwrap_or("none").to_owned());
    add("edge_build", parts.edge_build.to_owned());
    for (name, value) in parts.recipe {
        add(&format!("recipe.{name}"), value.clone());
    }
    CacheKey { sha256: hash(&fields), fields }
}

/// The key over `fields`: lengths are part of it, so that no two field lists give the same bytes.
pub fn hash(fields: &BTreeMap<String, String>) -> String {
    let mut hash = Sha256::new();
    for (name, value) in fields {
        hash.update(format!("{}:{name}={}:{value}\n", name.len(), value.len()));
    }
    hex(&hash.finalize())
}

/// The fields in which two keys differ, one sentence each; empty for equal keys.
pub fn differences(found: &BTreeMap<String, String>, expected: &BTreeMap<String, String>) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = found.keys().chain(expected.keys()).collect();
    let show = |value: Option<&String>| value.map_or("nothing".to_owned(), |value| format!("`{value}`"));
    names
        .into_iter()
        .filter(|name| found.get(*name) != expected.get(*name))
        .map(|name| format!("`{name}`: found {}, expected {}", show(found.get(name)), show(expected.get(name))))
        .collect()
}
