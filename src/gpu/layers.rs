//! What TensorRT's inspector says of a plan's layers: precision, formats, fusions.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Longest layer name that is kept, characters.
pub const MOST_NAME: usize = 200;

/// One layer of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// As TensorRT names it: the nodes that were fused, cut off when long.
    pub name: String,
    /// TensorRT's kind of layer, as in `CaskConvolution`.
    pub kind: String,
    /// What it computes in: `f32`, `f16`, `int8` …, or `?`.
    pub precision: String,
    /// How its first output lies in memory, in TensorRT's words.
    pub format: String,
}

/// The layers of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerReport {
    /// Layers by precision, those that only move data left out.
    pub by_precision: BTreeMap<String, u32>,
    /// Convolutions and matrix products by precision.
    pub products: BTreeMap<String, u32>,
    /// Layers that only move data or change its format.
    pub moves: u32,
    /// Layers that hold more than one node of the graph.
    pub fused: u32,
    /// First outputs by format, in TensorRT's words.
    pub formats: BTreeMap<String, u32>,
    /// Every layer in the order of the run.
    pub layers: Vec<Layer>,
}

impl LayerReport {
    /// Reads the inspector's JSON. `nodes` are the names of the graph's nodes.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unexpected`] when it is no JSON with layers, or was made without details.
    pub fn parse(text: &str, nodes: &BTreeSet<String>) -> Result<(LayerReport, Vec<Parts>)> {
        let odd = |what: &str| Error::unexpected(format!("TensorRT's description of the plan {what}"));
        let value: Value = serde_json::from_str(text).map_err(|error| odd("is no JSON").because(error))?;
        let listed = value.get("Layers").and_then(Value::as_array).ok_or_else(|| odd("lists no layers"))?;
        let (mut report, mut parts) = (LayerReport::default(), vec![]);
        for entry in listed {
            let Some(name) = text_of(entry, "Name") else {
                return Err(odd("has names only").hint("the plan was built without detailed profiling verbosity"));
            };
            let kind = text_of(entry, "LayerType").unwrap_or("?").to_owned();
            let format = format_of(entry, "Outputs").unwrap_or_default();
            let product = is_product(&kind) || text_of(entry, "ParameterType").is_some_and(is_product);
            let precision = precision(entry, product, &format);
            let held = parts_of(entry, name, nodes);
            if is_move(&kind) {
                report.moves += 1;
            } else {
                *report.by_precision.entry(precision.to_owned()).or_default() += 1;
            }
            if product {
                *report.products.entry(precision.to_owned()).or_default() += 1;
            }
            report.fused += u32::from(held.len() > 1);
            if !format.is_empty() {
                *report.formats.entry(format.clone()).or_default() += 1;
            }
            let name = name.chars().take(MOST_NAME).collect();
            parts.push(Parts { nodes: held, moves: is_move(&kind), product, precision });
            report.layers.push(Layer { name, kind, precision: precision.to_owned(), format });
        }
        Ok((report, parts))
    }

    /// Lines for people.
    pub fn to_lines(&self) -> Vec<String> {
        let all: u32 = self.by_precision.values().sum();
        let share = |count: u32| format!("{} %", (200 * count + all) / (2 * all).max(1));
        let listed = |counts: &BTreeMap<String, u32>| {
            let parts: Vec<_> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
            if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
        };
        let shares: Vec<_> =
            self.by_precision.iter().map(|(name, &count)| format!("{count} {name} ({})", share(count))).collect();
        let mut first = format!("read back: {} layers that compute: {}", all, shares.join(", "));
        let _infallible = write!(first, "; {} that move data", self.moves);
        let mut formats: Vec<_> = self.formats.iter().collect();
        formats.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), (*name).clone()));
        let formats: Vec<_> = formats.iter().take(4).map(|(name, count)| format!("{count} {name}")).collect();
        vec![
            first,
            format!(
                "read back: convolutions and products: {}; {} layers of several nodes",
                listed(&self.products),
                self.fused
            ),
            format!("read back: formats: {}", formats.join("; ")),
        ]
    }
}

/// The nodes of the graph in one layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// Their names.
    pub nodes: BTreeSet<String>,
    /// Whether the layer only moves data.
    pub moves: bool,
    /// Whether it is a convolution or a matrix product.
    pub product: bool,
    /// What the layer computes in.
    pub precision: &'static str,
}

fn text_of<'a>(entry: &'a Value, key: &str) -> Option<&'a str> {
    entry.get(key).and_then(Value::as_str)
}

fn format_of(entry: &Value, key: &str) -> Option<String> {
    let first = entry.get(key)?.as_array()?.first()?;
    text_of(first, "Format/Datatype").map(|text| text.trim_end_matches('.').to_owned())
}

fn is_product(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    // `conv` and `gemm` are what TensorRT 10 calls them where its second compiler made the layer.
    kind == "conv"
        || ["convolution", "gemm", "matrixmultiply", "matmul", "fullyconnected"].iter().any(|part| kind.contains(part))
}

fn is_move(kind: &str) -> bool {
    matches!(
        kind,
        "Reformat"
            | "NoOp"
            | "Shuffle"
            | "Constant"
            | "Slice"
            | "Concat"
            | "Copy"
            | "kgen_copy"
            | "Signal"
            | "Wait"
            | "shape_call"
    )
}

/// Products compute in the type of their weights, or of what goes in; others in that of what comes out.
fn precision(entry: &Value, product: bool, format: &str) -> &'static str {
    if product {
        let weights = entry.get("Weights").and_then(|weights| text_of(weights, "Type"));
        let input = format_of(entry, "Inputs");
        let known = weights.map(of_type).filter(|known| *known != "?");
        return known.or_else(|| input.as_deref().map(of_type)).unwrap_or("?");
    }
    of_type(format)
}

/// The type in TensorRT's words: `Row major linear FP32`, `Half`, `… vectorized row major Int8 format`.
fn of_type(text: &str) -> &'static str {
    const NAMES: [(&str, &str); 14] = [
        ("bf16", "bf16"),
        ("bfloat16", "bf16"),
        ("fp16", "f16"),
        ("half", "f16"),
        ("fp32", "f32"),
        ("float", "f32"),
        ("fp8", "fp8"),
        ("uint8", "uint8"),
        ("int8", "int8"),
        ("int4", "int4"),
        ("int32", "int32"),
        ("int64", "int64"),
        ("bool", "bool"),
        ("tf32", "f32"),
    ];
    let text = text.to_ascii_lowercase();
    NAMES.iter().find(|(part, _)| text.contains(part)).map_or("?", |(_, name)| name)
}

/// Node names in a layer: its metadata where TensorRT writes it, else its name taken apart.
fn parts_of(entry: &Value, name: &str, nodes: &BTreeSet<String>) -> BTreeSet<String> {
    let metadata = text_of(entry, "Metadata").unwrap_or_default();
    let from_metadata: BTreeSet<String> = metadata
        .split("[ONNX Layer: ")
        .skip(1)
        .filter_map(|part| part.split(']').next())
        .filter(|part| nodes.contains(*part))
        .map(str::to_owned)
        .collect();
    if !from_metadata.is_empty() {
        return from_metadata;
    }
    let separators: &[char] = &['+', '(', ')', ',', '|', '{', '}', '[', ']'];
    let pieces = name.split(separators).flat_map(|piece| piece.split("..."));
    pieces.map(str::trim).filter(|piece| nodes.contains(*piece)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"Layers": [
        {"Name": "Reformatting CopyNode for Input Tensor 0 to /c/Conv", "LayerType": "Reformat",
         "Inputs": [{"Format/Datatype": "Row major linear FP32"}], "Outputs": [{"Format/Datatype": "Channel major FP16 format where channel % 8 == 0"}]},
        {"Name": "/c/Conv + PWN(PWN(/a/Sigmoid), /a/Mul)", "LayerType": "CaskConvolution", "Weights": {"Type": "Int8", "Count": 3},
         "Inputs": [{"Format/Datatype": "Thirty-two wide channel vectorized row major Int8 format"}],
         "Outputs": [{"Format/Datatype": "Channel major FP16 format where channel % 8 == 0."}]},
        {"Name": "/s/Softmax", "LayerType": "SoftMaxV2", "Inputs": [{"Format/Datatype": "Row major linear FP32"}],
         "Outputs": [{"Format/Datatype": "Row major linear FP32"}]},
        {"Name": "x", "LayerType": "PointWiseV2", "Metadata": "[ONNX Layer: /b/Add]\u001e[ONNX Layer: other]",
         "Outputs": [{"Format/Datatype": "Half"}]}
    ], "Bindings": []}"#;

    #[test]
    fn precision_formats_and_fusions_are_read() {
        let nodes = ["/c/Conv", "/a/Sigmoid", "/a/Mul", "/s/Softmax", "/b/Add"].map(str::to_owned).into();
        let (report, parts) = LayerReport::parse(TEXT, &nodes).unwrap();
        let counts = |pairs: &[(&str, u32)]| pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        assert_eq!(report.by_precision, counts(&[("f16", 1), ("f32", 1), ("int8", 1)]));
        assert_eq!(report.products, counts(&[("int8", 1)]));
        assert_eq!((report.moves, report.fused, report.layers.len()), (1, 1, 4));
        assert_eq!(report.formats["Channel major FP16 format where channel % 8 == 0"], 2);
        assert!(parts[0].nodes.is_empty(), "a copy holds no node");
        assert!(parts[0].moves && !parts[1].moves);
        assert_eq!(parts[1].nodes.len(), 3);
        assert_eq!((parts[3].nodes.len(), parts[3].precision), (1, "f16"));
        let lines = report.to_lines().join("\n");
        assert!(
            lines.contains("3 layers that compute: 1 f16 (33 %), 1 f32 (33 %), 1 int8 (33 %); 1 that move data"),
            "{lines}"
        );
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<LayerReport>(&json).unwrap(), report);
    }

    #[test]
    fn a_plan_without_details_and_what_is_no_json_are_told() {
        let names_only = LayerReport::parse(r#"{"Layers": ["/c/Conv"]}"#, &BTreeSet::new()).unwrap_err();
        assert!(names_only.hint_text().unwrap().contains("detailed"));
        assert!(LayerReport::parse("no", &BTreeSet::new()).is_err());
        assert!(LayerReport::parse("{}", &BTreeSet::new()).is_err());
    }

    #[test]
    fn types_are_found_in_tensorrts_words() {
        for (text, expected) in [
            ("Row major linear FP32", "f32"),
            ("Two wide channel vectorized row major FP16 format", "f16"),
            ("Row major Int8 format", "int8"),
            ("Row major linear INT32", "int32"),
            ("BFloat16", "bf16"),
            ("N/A due to dynamic shapes", "?"),
        ] {
            assert_eq!(of_type(text), expected, "{text}");
        }
    }
}
