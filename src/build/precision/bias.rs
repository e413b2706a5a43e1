//! Bias correction: what storing in 8 bits does to the mean of a convolution's outputs is taken out of its bias.
//!
//! Rounding the weights of a channel, cutting off its inputs and rounding them moves the mean of its outputs by an amount that does
//! not depend on the picture much. It is measured on calibration pictures, layer by layer against the float network's own inputs,
//! so that one look at each picture serves all layers and no layer pays for what others did before it. (Nagel et al. 2019,
//! "Data-Free Quantization through Weight Equalization and Bias Correction"; their form that runs through the layers one after the
//! other lost more boxes on the test models.)

use super::observe::Observation;
use super::placement::Placement;
use crate::build::watcher::Watcher;
use crate::error::Result;
use crate::onnx::Model;
use crate::onnx::index::GraphIndex;
use crate::onnx::node::{self, make};
use crate::onnx::tensor;
use crate::units::{float64, narrow};
use onnx_protobuf::{NodeProto, TensorProto};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Calibration pictures on which means are measured.
pub(super) const PICTURES: usize = 32;

/// What was corrected.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Corrected {
    /// Convolutions with a corrected bias.
    pub(super) layers: usize,
    /// The layer with the channel that moved most, and by how much.
    pub(super) largest: Option<(String, f32)>,
    /// Convolutions whose bias stays, because what was measured is not finite or their bias is no constant.
    pub(super) left: Vec<String>,
}

impl Corrected {
    /// One sentence for each thing worth telling.
    pub(super) fn sentences(&self) -> Vec<String> {
        let mut told = Vec::new();
        if let Some((layer, largest)) = &self.largest {
            told.push(format!(
                "{} convolutions have a corrected bias: storing in 8 bits moved the means of their channels by up to {largest:.3} ({layer})",
                self.layers
            ));
        }
        if !self.left.is_empty() {
            let names: Vec<&str> = self.left.iter().map(String::as_str).collect();
            let names = super::placement::some_names(&names);
            told.push(format!(
                "{} convolutions keep their bias, no correction can be measured: {names}",
                self.left.len()
            ));
        }
        told
    }
}

/// Means that were measured already: output of a convolution → scale of its input, what its channels are moved by.
#[derive(Debug, Default)]
pub(super) struct Means {
    known: BTreeMap<String, (Option<Vec<f32>>, Vec<f64>)>,
}

impl Means {
    /// Corrects the biases of the convolutions of `quantised` that `placement` has in INT8; `observation` looks at the float graph.
    pub(super) fn correct(
        &mut self,
        quantised: &mut Model,
        placement: &Placement,
        observation: &Observation<'_>,
        watcher: &mut dyn Watcher,
    ) -> Result<Corrected> {
        let nodes = &observation.model.graph().node;
        let layers: Vec<&NodeProto> = placement
            .layers
            .iter()
            .filter(|layer| layer.float.is_none())
            .filter_map(|layer| nodes.get(layer.position))
            .collect();
        let scales: BTreeMap<String, Option<Vec<f32>>> = layers
            .iter()
            .filter_map(|layer| Some((output(layer)?.clone(), input_scale(layer, placement, quantised))))
            .collect();
        let is_open = |layer: &&&NodeProto| {
            output(layer).is_some_and(|name| self.known.get(name).map(|(scale, _)| scale) != scales.get(name))
        };
        let open: Vec<&NodeProto> = layers.iter().filter(is_open).copied().collect();
        for (name, means) in measure(&open, quantised, placement, observation, watcher)? {
            let scale = scales.get(&name).cloned().flatten();
            self.known.insert(name, (scale, means));
        }
        let mut corrected = Corrected::default();
        for layer in layers {
            let Some(means) = output(layer).and_then(|name| self.known.get(name)).map(|(_, means)| means) else {
                corrected.left.push(node::label(layer));
                continue;
            };
            match apply(layer, means, quantised)? {
                Some(largest) => {
                    corrected.layers += 1;
                    if corrected.largest.as_ref().is_none_or(|(_, most)| largest > *most) {
                        corrected.largest = Some((node::label(layer), largest));
                    }
                }
                None => corrected.left.push(node::label(layer)),
            }
        }
        crate::onnx::edit::remove_dead_nodes(quantised.graph_mut());
        Ok(corrected)
    }
}

fn output(layer: &NodeProto) -> Option<&String> {
    layer.output.first()
}

/// Names of what stores the input of `layer`: scale and zero point of its group.
fn storing(layer: &NodeProto, placement: &Placement) -> Option<[String; 2]> {
    let group = *placement.group_of.get(layer.input.first()?)?;
    Some(super::int8::group_constants(group))
}

fn input_scale(layer: &NodeProto, placement: &Placement, quantised: &Model) -> Option<Vec<f32>> {
    let [scale, _] = storing(layer, placement)?;
    let stored = quantised.graph().initializer.iter().find(|tensor| tensor.name == scale)?;
    tensor::f32_data(stored).ok()
}

/// Output of each of `layers` → mean of (float − quantised) for each channel.
fn measure(
    layers: &[&NodeProto],
    quantised: &Model,
    placement: &Placement,
    observation: &Observation<'_>,
    watcher: &mut dyn Watcher,
) -> Result<BTreeMap<String, Vec<f64>>> {
    if layers.is_empty() || observation.pictures.len() == 0 {
        return Ok(BTreeMap::new());
    }
    let (model, names) = side_by_side(layers, quantised, placement, observation.model);
    let mut sums: BTreeMap<String, (Vec<f64>, u64)> = BTreeMap::new();
    let shown: Vec<String> = names.keys().cloned().collect();
    let looking = Observation { model: &model, ..*observation };
    looking.each("bias correction", &shown, watcher, &mut |shown, values| {
        let Some((name, channels)) = names.get(shown) else { return };
        let (sum, count) = sums.entry(name.clone()).or_insert_with(|| (vec![0.0; *channels], 0));
        for place in values.chunks_exact((*channels).max(1)) {
            sum.iter_mut().zip(place).for_each(|(sum, &value)| *sum += f64::from(value));
            *count += 1;
        }
    })?;
    let mean = |(sum, count): (Vec<f64>, u64)| sum.into_iter().map(|sum| sum / float64(count.max(1))).collect();
    Ok(sums.into_iter().map(|(name, sums)| (name, mean(sums))).collect())
}

/// The float graph in which each of `layers` has its quantised form beside it, on the same float input. Gives also what to look at:
/// name of the mean difference → output of the layer, number of its channels.
fn side_by_side(
    layers: &[&NodeProto],
    quantised: &Model,
    placement: &Placement,
    float: &Model,
) -> (Model, BTreeMap<String, (String, usize)>) {
    let mut model = float.clone();
    let made: HashMap<&str, &NodeProto> = quantised
        .graph()
        .node
        .iter()
        .flat_map(|node| node.output.iter().map(move |output| (output.as_str(), node)))
        .collect();
    let weights: HashMap<&str, &TensorProto> =
        quantised.graph().initializer.iter().map(|weight| (weight.name.as_str(), weight)).collect();
    let (mut nodes, mut constants): (Vec<NodeProto>, BTreeMap<String, TensorProto>) = Default::default();
    let (mut names, mut done) = (BTreeMap::new(), BTreeSet::new());
    for layer in layers {
        let (Some(name), Some(input), Some(weight)) = (output(layer), layer.input.first(), layer.input.get(1)) else {
            continue;
        };
        let Some(stored) = made.get(name.as_str()).and_then(|node| made.get(node.input.get(1)?.as_str())) else {
            continue;
        };
        let Some([scale, zero]) = storing(layer, placement) else { continue };
        let of = |part: &str| format!("{name}_{part}");
        if done.insert(input) {
            let pair = [format!("{input}_quantized"), format!("{input}_dequantized")];
            nodes.push(make::node("QuantizeLinear", &pair[0], &[input, &scale, &zero], &[&pair[0]], Vec::new()));
            nodes.push(make::node("DequantizeLinear", &pair[1], &[&pair[0], &scale, &zero], &[&pair[1]], Vec::new()));
        }
        if done.insert(weight) {
            nodes.push((*stored).clone());
        }
        let needed = [&scale, &zero].into_iter().chain(&stored.input);
        constants.extend(needed.filter_map(|name| Some((name.clone(), (*weights.get(name.as_str())?).clone()))));
        let mut beside = (*layer).clone();
        beside.name = of("in_int8");
        beside.input.truncate(2);
        beside.input = vec![format!("{input}_dequantized"), stored.output.first().cloned().unwrap_or_default()];
        beside.input.extend(layer.input.get(2).cloned());
        beside.output = vec![of("in_int8")];
        nodes.push(beside);
        nodes.push(make::node("Sub", &of("moved"), &[name, &of("in_int8")], &[&of("moved")], Vec::new()));
        nodes.push(make::node("GlobalAveragePool", &of("mean"), &[&of("moved")], &[&of("mean")], Vec::new()));
        let channels =
            weights.get(stored.input.first().map_or("", String::as_str)).and_then(|stored| stored.dims.first());
        let channels = channels.and_then(|&channels| usize::try_from(channels).ok()).unwrap_or(0);
        names.insert(of("mean"), (name.clone(), channels));
    }
    let graph = model.graph_mut();
    graph.node.extend(nodes);
    graph.initializer.extend(constants.into_values());
    (model, names)
}

/// Adds `means` to the bias of `layer` in `quantised`; gives the largest magnitude, or `None` where it cannot be done.
fn apply(layer: &NodeProto, means: &[f64], quantised: &mut Model) -> Result<Option<f32>> {
    let Some(name) = output(layer) else { return Ok(None) };
    let index = GraphIndex::new(quantised.graph());
    let before = match layer.input.get(2).filter(|bias| !bias.is_empty()) {
        Some(bias) => match index.constant(bias)? {
            Some(bias) => tensor::f32_data(&bias)?,
            None => return Ok(None),
        },
        None => vec![0.0; means.len()],
    };
    let after: Vec<f32> = before.iter().zip(means).map(|(&bias, &mean)| narrow(f64::from(bias) + mean)).collect();
    if after.len() != means.len() || before.len() != means.len() || !after.iter().all(|bias| bias.is_finite()) {
        return Ok(None);
    }
    let Some(position) = index.producer_position(name) else { return Ok(None) };
    let corrected = format!("{name}_bias_corrected");
    let graph = quantised.graph_mut();
    let Some(node) = graph.node.get_mut(position) else { return Ok(None) };
    node.input.truncate(2);
    node.input.push(corrected.clone());
    let channels = [i64::try_from(after.len()).unwrap_or(i64::MAX)];
    graph.initializer.push(tensor::from_f32(&corrected, &channels, &after));
    Ok(Some(means.iter().fold(0.0_f32, |most, &mean| most.max(narrow(mean.abs())))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::pictures::pixel_hash;
    use crate::build::precision::int8::ActivationScale;
    use crate::build::precision::tests::usual;
    use crate::build::precision::usable::{Usable, UsablePicture};
    use crate::build::precision::{Quantised, build_int8};
    use crate::build::watcher::Silent;
    use crate::engine::cpu::{CpuBackend, CpuOptions};
    use crate::engine::{ElementType, InputSpec, Layout};
    use crate::onnx::samples::{Sample, value};
    use crate::onnx::shapes::{self, Shapes};
    use crate::onnx::tensor::DataType;
    use crate::units::SizePx;

    const SIZE: SizePx = SizePx::new(8, 8);

    /// picture → stem → act → body, with a bias → neck, without → last. Almost every weight of body and neck is rounded down.
    fn network(batch: i64) -> Model {
        let conv = |name: &str, inputs: &[&str], output: &str| {
            let attributes = vec![
                make::ints("dilations", &[1, 1]),
                make::ints("pads", &[0, 0, 0, 0]),
                make::ints("strides", &[1, 1]),
            ];
            make::node("Conv", name, inputs, &[output], attributes)
        };
        let nodes = vec![
            conv("stem", &["images", "stem_weight"], "stem_out"),
            make::node("Relu", "act", &["stem_out"], &["act_out"], vec![]),
            conv("body", &["act_out", "body_weight", "body_bias"], "body_out"),
            conv("neck", &["body_out", "neck_weight"], "neck_out"),
            conv("last", &["neck_out", "last_weight"], "output0"),
        ];
        let mut sample =
            Sample::new(&[batch, 3, 8, 8], nodes, vec![value("output0", DataType::F32, &[batch, 1, 8, 8])]);
        let biased: Vec<f32> = (0..16).map(|at| if at % 4 == 0 { 1.27 } else { 0.0149 }).collect();
        sample.weights = vec![
            tensor::from_f32("stem_weight", &[4, 3, 1, 1], &[0.5; 12]),
            tensor::from_f32("body_weight", &[4, 4, 1, 1], &biased),
            tensor::from_f32("body_bias", &[4], &[0.5, -0.5, 0.25, 0.0]),
            tensor::from_f32("neck_weight", &[4, 4, 1, 1], &biased),
            tensor::from_f32("last_weight", &[1, 4, 1, 1], &[0.25; 4]),
        ];
        sample.model()
    }

    fn pictures(folder: &std::path::Path) -> Usable {
        let one = |shade: u8| {
            let path = folder.join(format!("{shade}.png"));
            image::RgbImage::from_fn(8, 8, |x, y| image::Rgb([shade, (x * 30) as u8, (y * 30) as u8]))
                .save(&path)
                .unwrap();
            let picture = crate::build::pictures::decode(&path).unwrap();
            UsablePicture { path, hash: pixel_hash(&picture), size: picture.size }
        };
        Usable { pictures: [50, 120, 200, 250].map(one).to_vec() }
    }

    struct Bench {
        model: Model,
        shapes: Shapes,
        input: InputSpec,
        layout: Layout,
        options: CpuOptions,
        pictures: Usable,
    }

    impl Bench {
        fn of(model: Model, batch: u32, pictures: Usable) -> Bench {
            Bench {
                shapes: shapes::infer(&model).unwrap(),
                model,
                input: InputSpec { name: "images".into(), batch, channels: 3, size: SIZE, element: ElementType::F32 },
                layout: Layout::Raw { output: "output0".into(), classes: 1, anchors: 1 },
                options: CpuOptions { backend: CpuBackend::Rten, threads: Some(1), emulate_half: false },
                pictures,
            }
        }

        fn observation<'a>(&'a self, model: &'a Model) -> Observation<'a> {
            Observation {
                model,
                shapes: &self.shapes,
                input: &self.input,
                layout: &self.layout,
                options: &self.options,
                pictures: &self.pictures,
            }
        }

        fn quantise(&self, kept: &[&str]) -> Quantised {
            let range = ActivationScale { largest: 2.0, cut: 2.0 };
            let ranges = ["act_out", "body_out"].map(|name| (name.to_owned(), range.clone())).into();
            let kept = kept.iter().map(|name| ((*name).to_owned(), "test".to_owned())).collect();
            build_int8(&self.model, &self.shapes, &ranges, &kept, &usual()).unwrap()
        }

        fn correct(&self, means: &mut Means, kept: &[&str]) -> (Model, Corrected) {
            let Quantised { mut model, placement, .. } = self.quantise(kept);
            let corrected = means.correct(&mut model, &placement, &self.observation(&self.model), &mut Silent).unwrap();
            (model, corrected)
        }

        /// Mean of each channel of `name` over all pictures.
        fn means(&self, model: &Model, name: &str) -> Vec<f64> {
            let mut sums = [0.0_f64; 4];
            let all = self.observation(model).values(&[name.to_owned()]).unwrap();
            for values in all.iter().flatten() {
                for (at, pixels) in values.chunks_exact(64).enumerate() {
                    sums[at % 4] += pixels.iter().map(|&value| f64::from(value)).sum::<f64>() / float64(64);
                }
            }
            sums.map(|sum| sum / (all.len() * usize::try_from(self.input.batch).unwrap()) as f64).to_vec()
        }
    }

    fn largest_difference(one: &[f64], other: &[f64]) -> f64 {
        one.iter().zip(other).map(|(one, other)| (one - other).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn the_mean_of_every_channel_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        for batch in [1_u32, 2, 3] {
            let bench = Bench::of(network(i64::from(batch)), batch, pictures(folder.path()));
            let exact = bench.means(&bench.model, "body_out");
            let before = largest_difference(&exact, &bench.means(&bench.quantise(&[]).model, "body_out"));
            let (corrected, told) = bench.correct(&mut Means::default(), &[]);
            let after = largest_difference(&exact, &bench.means(&corrected, "body_out"));
            // Batch 3 shows two of the four pictures twice.
            let most = if batch == 3 { before / 3.0 } else { 1e-5 };
            assert!(before > 0.004 && after < most, "batch {batch}: {before} before, {after} after");
            assert_eq!(told.layers, 2);
            assert!(told.left.is_empty());
            let (layer, largest) = told.largest.clone().unwrap();
            assert!(["body", "neck"].contains(&layer.as_str()) && largest > 0.004, "{layer} {largest}");
            assert_eq!(told.sentences().len(), 1);
        }
    }

    #[test]
    fn layers_in_float_keep_their_bias() {
        let folder = tempfile::tempdir().unwrap();
        let bench = Bench::of(network(1), 1, pictures(folder.path()));
        let bias_of = |model: &Model, name: &str| {
            model.graph().node.iter().find(|node| node.name == name).unwrap().input.get(2).cloned()
        };
        let (corrected, told) = bench.correct(&mut Means::default(), &["body"]);
        assert_eq!(told.layers, 1);
        assert_eq!(bias_of(&corrected, "body").as_deref(), Some("body_bias"));
        assert_eq!(bias_of(&corrected, "neck").as_deref(), Some("neck_out_bias_corrected"));
        assert_eq!(bias_of(&corrected, "stem"), None);
        assert_eq!(bias_of(&corrected, "last"), None);
    }

    #[test]
    fn the_same_pictures_give_the_same_bytes_and_are_looked_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut bench = Bench::of(network(1), 1, pictures(folder.path()));
        let mut means = Means::default();
        let first = bench.correct(&mut means, &[]).0.to_bytes().unwrap();
        assert!(first == bench.correct(&mut Means::default(), &[]).0.to_bytes().unwrap());
        bench.pictures = Usable::default();
        assert!(first == bench.correct(&mut means, &[]).0.to_bytes().unwrap());
        let (blind, told) = bench.correct(&mut Means::default(), &[]);
        assert_eq!((told.layers, told.left.len()), (0, 2));
        assert_eq!(told.sentences().len(), 1);
        assert!(blind.to_bytes().unwrap() == bench.quantise(&[]).model.to_bytes().unwrap());
    }

    #[test]
    fn what_is_not_finite_gets_into_no_bias() {
        let folder = tempfile::tempdir().unwrap();
        let bench = Bench::of(network(1), 1, pictures(folder.path()));
        let body = bench.model.graph().node.iter().find(|node| node.name == "body").unwrap();
        let mut model = bench.quantise(&[]).model;
        let before = model.to_bytes().unwrap();
        for wrong in [f64::NAN, f64::INFINITY, 1e39] {
            assert_eq!(apply(body, &[0.0, wrong, 0.0, 0.0], &mut model).unwrap(), None);
        }
        assert_eq!(apply(body, &[0.1; 3], &mut model).unwrap(), None);
        assert!(model.to_bytes().unwrap() == before);
        assert_eq!(apply(body, &[0.5, -1.5, 0.0, 0.0], &mut model).unwrap(), Some(1.5));
        let stored = GraphIndex::new(model.graph()).initializer("body_out_bias_corrected").cloned().unwrap();
        assert_eq!(tensor::f32_data(&stored).unwrap(), [1.0, -2.0, 0.25, 0.0]);
    }
}
