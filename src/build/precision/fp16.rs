//! FP16: every node to half except what must stay in float.
//!
//! Stays in float: what lies behind the last convolutions (box arithmetic, DFL), normalisations and soft-max, operators
//! without a half form, and every node whose values, seen on the calibration pictures, come near the largest half. Casts
//! stand where the two meet; the graph's inputs and outputs are floats unless asked otherwise. Q/DQ pairs get half scales
//! between halves, which needs opset 19.

use super::tail::Tail;
use crate::engine::ElementType;
use crate::error::Result;
use crate::onnx::index::GraphIndex;
use crate::onnx::node::make;
use crate::onnx::shapes::{self, Fact, Shapes};
use crate::onnx::tensor::{self, DataType};
use crate::onnx::{Model, node, opset};
use onnx_protobuf::{NodeProto, TensorProto};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Oldest opset in which the scales of Q/DQ pairs may be halves.
const HALF_SCALES_OPSET: i64 = 19;
/// Largest finite half.
const LARGEST: f32 = 65_504.0;
/// Values on pictures that nobody has seen yet may be this many times those seen.
pub(super) const MARGIN: f32 = 4.0;

/// Largest magnitude seen of each tensor; infinity for one that was not finite.
pub(super) type Ranges = HashMap<String, f32>;

/// What the pass did.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Fp16 {
    /// Nodes that compute in half.
    pub(super) halves: usize,
    /// Reason → names of the nodes that stay in float.
    pub(super) exceptions: BTreeMap<String, Vec<String>>,
    /// Weights that half stores as zero though they are not, among all.
    pub(super) lost_weights: (usize, usize),
}

/// How an operator takes halves: which inputs become halves, by position.
enum Form {
    /// All of them.
    All,
    /// Only these; the others keep their types.
    Only(&'static [usize]),
}

fn half_form(op_type: &str) -> Option<Form> {
    Some(match op_type {
        "Abs" | "Add" | "AveragePool" | "Ceil" | "Clip" | "Concat" | "Conv" | "ConvTranspose" | "Cos" | "Div"
        | "Elu" | "Erf" | "Exp" | "Floor" | "Gelu" | "Gemm" | "GlobalAveragePool" | "GlobalMaxPool" | "HardSigmoid"
        | "HardSwish" | "Identity" | "LeakyRelu" | "MatMul" | "Max" | "MaxPool" | "Min" | "Mish" | "Mul" | "Neg"
        | "PRelu" | "Reciprocal" | "Relu" | "Selu" | "Sigmoid" | "Sin" | "Softplus" | "Sqrt" | "Sub" | "Sum"
        | "Tanh" | "Transpose" | "Flatten" | "DepthToSpace" | "SpaceToDepth" | "Where" => Form::All,
        "Expand" | "Gather" | "GatherElements" | "Pow" | "Reshape" | "Resize" | "Slice" | "Split" | "Squeeze"
        | "Tile" | "Unsqueeze" => Form::Only(&[0]),
        "Pad" => Form::Only(&[0, 2]),
        "QuantizeLinear" => Form::Only(&[0, 1]),
        "DequantizeLinear" => Form::Only(&[1]),
        _ => return None,
    })
}

/// Operators whose constants are limits or masks: a constant beyond the largest half becomes the largest half.
fn takes_limits(op_type: &str) -> bool {
    matches!(op_type, "Clip" | "Where" | "Max" | "Min" | "Pad")
}

/// Turns `model` into half precision; `ranges` holds what calibration saw, `io` the type of inputs and outputs.
///
/// # Errors
/// [`crate::ErrorKind::Refused`] for a graph whose shapes contradict each other.
pub(super) fn convert(model: &mut Model, ranges: Option<&Ranges>, io: ElementType) -> Result<Fp16> {
    let half_scales = model.graph().node.iter().any(is_quantization) && opset::raise(model, HALF_SCALES_OPSET)?;
    let shapes = shapes::infer(model)?;
    let mut report = Fp16::default();
    let halves = {
        let index = GraphIndex::new(model.graph());
        let tail = Tail::of(&index)?;
        let mut halves = HashSet::new();
        for (position, node) in model.graph().node.iter().enumerate() {
            if !touches_float(node, &shapes) || is_quantization(node) {
                continue;
            }
            match reason(position, node, &tail, &shapes, ranges, &index)? {
                None => {
                    halves.insert(position);
                }
                Some(reason) if node.op_type != "Constant" => {
                    report.exceptions.entry(reason).or_default().push(node::label(node));
                }
                Some(_) => {}
            }
        }
        report.halves = halves.len();
        if half_scales {
            let scales = half_quantization(&index, &halves, ranges);
            halves.extend(scales);
        }
        halves
    };
    let mut rewrite = Rewrite::new(model, &shapes, halves)?;
    let nodes = std::mem::take(&mut model.graph_mut().node);
    let ends: Vec<String> = model.graph().output.iter().map(|output| output.name.clone()).collect();
    rewrite.nodes(nodes, &ends)?;
    report.lost_weights = rewrite.lost;
    let Rewrite { done, weights, half_tensors, .. } = rewrite;
    let graph = model.graph_mut();
    graph.node = done;
    graph.initializer.extend(weights);
    graph.value_info.retain(|info| !half_tensors.contains(&info.name));
    if io == ElementType::F16 {
        half_borders(model, &shapes);
    }
    crate::onnx::edit::remove_dead_nodes(model.graph_mut());
    Ok(report)
}

fn is_quantization(node: &NodeProto) -> bool {
    matches!(node.op_type.as_str(), "QuantizeLinear" | "DequantizeLinear")
}

/// Positions of the Q/DQ nodes whose float side is half: Q behind a half node, DQ before one.
fn half_quantization(index: &GraphIndex<'_>, halves: &HashSet<usize>, ranges: Option<&Ranges>) -> Vec<usize> {
    let too_large = |name: &String| {
        let producer = index.producer(name).filter(|producer| producer.op_type == "QuantizeLinear");
        let source = producer.and_then(|producer| producer.input.first());
        source.and_then(|source| ranges?.get(source)).is_some_and(|&largest| largest > LARGEST / MARGIN)
    };
    let is_half = |(position, node): &(usize, &NodeProto)| match (node.op_type.as_str(), node.input.first()) {
        ("QuantizeLinear", Some(input)) => {
            index.producer_position(input).is_some_and(|producer| halves.contains(&producer))
        }
        ("DequantizeLinear", Some(input)) => {
            let mut consumers = node.output.iter().flat_map(|output| index.consumer_positions(output));
            !too_large(input) && !halves.contains(position) && consumers.any(|consumer| halves.contains(consumer))
        }
        _ => false,
    };
    index.graph().node.iter().enumerate().filter(is_half).map(|(position, _)| position).collect()
}

fn is_float(name: &str, shapes: &Shapes) -> bool {
    shapes.fact(name).element == DataType::F32
}

fn touches_float(node: &NodeProto, shapes: &Shapes) -> bool {
    node.output.iter().any(|name| is_float(name, shapes))
}

/// Why `node` stays in float; `None` when it need not.
fn reason(
    position: usize,
    node: &NodeProto,
    tail: &Tail,
    shapes: &Shapes,
    ranges: Option<&Ranges>,
    index: &GraphIndex<'_>,
) -> Result<Option<String>> {
    if tail.nodes.contains(&position) {
        return Ok(Some("behind the last convolutions: box arithmetic and scores".to_owned()));
    }
    if matches!(node.op_type.as_str(), "Softmax" | "LogSoftmax") || node.op_type.ends_with("Normalization") {
        return Ok(Some("normalisation".to_owned()));
    }
    let Some(form) = half_form(&node.op_type).filter(|_| node::is_default_domain(node)) else {
        return Ok(Some(format!("`{}` has no half form here", node.op_type)));
    };
    for name in node.input.iter().chain(&node.output).filter(|name| !name.is_empty()) {
        if let Some(&largest) = ranges.and_then(|ranges| ranges.get(name))
            && largest > LARGEST / MARGIN
        {
            let seen = if largest.is_finite() { format!("up to {largest:.0}") } else { "without bound".to_owned() };
            return Ok(Some(format!("values {seen}; half ends at 65504, {MARGIN} times are kept free")));
        }
    }
    for (at, name) in node.input.iter().enumerate() {
        if !takes_half(&form, at) || !is_float(name, shapes) || takes_limits(&node.op_type) {
            continue;
        }
        if let Some(constant) = index.constant(name)? {
            let largest = tensor::f32_data(&constant)?.into_iter().fold(0.0_f32, |most, value| most.max(value.abs()));
            if largest > LARGEST {
                return Ok(Some(format!("a constant of {largest:e} is beyond half")));
            }
        }
    }
    Ok(None)
}

fn takes_half(form: &Form, position: usize) -> bool {
    match form {
        Form::All => true,
        Form::Only(positions) => positions.contains(&position),
    }
}

struct Rewrite<'a> {
    shapes: &'a Shapes,
    halves: HashSet<usize>,
    /// Float constants by name.
    constants: HashMap<String, TensorProto>,
    /// Tensors that half nodes make.
    half_tensors: HashSet<String>,
    /// Names made here, so that each cast and constant is made once.
    made: HashSet<String>,
    done: Vec<NodeProto>,
    weights: Vec<TensorProto>,
    lost: (usize, usize),
}

impl<'a> Rewrite<'a> {
    fn new(model: &Model, shapes: &'a Shapes, halves: HashSet<usize>) -> Result<Rewrite<'a>> {
        let graph = model.graph();
        let mut constants = HashMap::new();
        for weight in &graph.initializer {
            if tensor::data_type(weight) == DataType::F32 {
                constants.insert(weight.name.clone(), weight.clone());
            }
        }
        for constant in graph.node.iter().filter(|node| node.op_type == "Constant") {
            if let (Some(name), Some(value)) = (constant.output.first(), node::constant(constant)?)
                && tensor::data_type(&value) == DataType::F32
            {
                constants.insert(name.clone(), value);
            }
        }
        let half_tensors = halves
            .iter()
            .filter_map(|&position| graph.node.get(position))
            .flat_map(|node| node.output.iter().filter(|name| is_float(name, shapes)).cloned())
            .collect();
        Ok(Rewrite {
            shapes,
            halves,
            constants,
            half_tensors,
            made: HashSet::new(),
            done: Vec::new(),
            weights: Vec::new(),
            lost: (0, 0),
        })
    }

    fn nodes(&mut self, nodes: Vec<NodeProto>, ends: &[String]) -> Result<()> {
        for (position, mut node) in nodes.into_iter().enumerate() {
            let form = half_form(&node.op_type).filter(|_| self.halves.contains(&position));
            for at in 0..node.input.len() {
                let Some(name) = node.input.get(at).cloned() else { continue };
                let replaced = match &form {
                    Some(form) if takes_half(form, at) && is_float(&name, self.shapes) => {
                        self.as_half(&name, takes_limits(&node.op_type))?
                    }
                    _ if self.half_tensors.contains(&name) => self.as_float(&name),
                    _ => continue,
                };
                if let Some(input) = node.input.get_mut(at) {
                    *input = replaced;
                }
            }
            let mut ended = Vec::new();
            for output in node.output.iter_mut().filter(|output| self.half_tensors.contains(*output)) {
                if ends.contains(output) {
                    let half = format!("{output}_half");
                    ended.push(cast(&half, output, DataType::F32));
                    self.made.insert(half.clone());
                    *output = half;
                }
            }
            self.done.push(node);
            self.done.append(&mut ended);
        }
        Ok(())
    }

    /// The half form of float tensor `name`.
    fn as_half(&mut self, name: &str, limits: bool) -> Result<String> {
        let half = format!("{name}_half");
        if self.half_tensors.contains(name) {
            // One that is an output of the graph has been given its half name where it is made.
            return Ok(if self.made.contains(&half) { half } else { name.to_owned() });
        }
        if self.made.insert(half.clone()) {
            match self.constants.get(name) {
                Some(constant) => {
                    let mut values = tensor::f32_data(constant)?;
                    if limits {
                        values.iter_mut().filter(|value| value.is_finite()).for_each(|value| {
                            *value = value.clamp(-LARGEST, LARGEST);
                        });
                    }
                    let stored = tensor::from_f32_as_f16(&half, &constant.dims, &values);
                    let back = tensor::f32_data(&stored)?;
                    self.lost.0 +=
                        values.iter().zip(&back).filter(|(exact, half)| **exact != 0.0 && **half == 0.0).count();
                    self.lost.1 += values.len();
                    self.weights.push(stored);
                }
                None => self.done.push(cast(name, &half, DataType::F16)),
            }
        }
        Ok(half)
    }

    /// The float form of half tensor `name`.
    fn as_float(&mut self, name: &str) -> String {
        if self.made.contains(&format!("{name}_half")) {
            return name.to_owned();
        }
        let float = format!("{name}_float");
        if self.made.insert(float.clone()) {
            self.done.push(cast(name, &float, DataType::F32));
        }
        float
    }
}

fn cast(from: &str, to: &str, target: DataType) -> NodeProto {
    make::node("Cast", &format!("{to}_cast"), &[from], &[to], vec![make::int("to", i64::from(target.code()))])
}

/// Makes the float inputs and outputs of the graph halves.
fn half_borders(model: &mut Model, shapes: &Shapes) {
    let graph = model.graph_mut();
    let declare = |name: &str| Fact { element: DataType::F16, ..shapes.fact(name).clone() }.declare(name);
    let mut before = Vec::new();
    for input in graph.input.iter_mut().filter(|input| is_float(&input.name, shapes)) {
        let (name, float) = (input.name.clone(), format!("{}_float", input.name));
        for node in &mut graph.node {
            // The cast into half that stood at the border has nothing left to do.
            if node.op_type == "Cast" && node.output.first() == Some(&format!("{name}_half")) {
                "Identity".clone_into(&mut node.op_type);
                node.attribute.clear();
                continue;
            }
            node.input.iter_mut().filter(|used| **used == name).for_each(|used| used.clone_from(&float));
        }
        before.push(cast(&name, &float, DataType::F32));
        *input = declare(&name);
    }
    for output in graph.output.iter_mut().filter(|output| is_float(&output.name, shapes)) {
        let (name, float) = (output.name.clone(), format!("{}_float", output.name));
        for node in &mut graph.node {
            node.output.iter_mut().filter(|made| **made == name).for_each(|made| made.clone_from(&float));
            node.input.iter_mut().filter(|used| **used == name).for_each(|used| used.clone_from(&float));
        }
        graph.node.push(cast(&float, &name, DataType::F16));
        *output = declare(&name);
    }
    before.append(&mut graph.node);
    graph.node = before;
}
