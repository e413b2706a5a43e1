//! Fixed shapes: the input's from the model, its metadata and the flags; all others by inference. Nothing is guessed.

use super::layout::Output;
use super::prepare::quoted;
use super::{Options, batch};
use crate::engine::{ElementType, InputSpec};
use crate::error::{Error, Result};
use crate::onnx::index::GraphIndex;
use crate::onnx::metadata::Metadata;
use crate::onnx::shapes::{self, Dim, Fact, Shapes};
use crate::onnx::tensor::DataType;
use crate::onnx::{Model, node};
use crate::units::SizePx;

/// Stride that sizes must divide by when the export does not say.
const USUAL_STRIDE_PX: u32 = 32;
/// Largest input side, px.
const MAX_SIDE_PX: u32 = 16_384;
/// Largest batch.
const MAX_BATCH: u32 = 1_024;

/// A model whose tensors all have fixed shapes, as far as they can.
pub(super) struct Pinned {
    pub(super) input: InputSpec,
    pub(super) outputs: Vec<Output>,
    pub(super) shapes: Shapes,
    /// The file at batch 1, where the graph was rewritten to a larger one.
    pub(super) batch_one: Option<Vec<u8>>,
}

/// Pins the input of `model`, infers all shapes and writes them into it.
pub(super) fn pin(
    model: &mut Model,
    metadata: &Metadata,
    options: &Options,
    decided: &mut Vec<String>,
) -> Result<Pinned> {
    let declared = Declared::read(model)?;
    let size = size(&declared, metadata, options, decided)?;
    let batch = pictures_a_run(model, &declared, metadata, options, decided)?;
    let channels = channels(&declared, metadata, decided)?;
    let input = InputSpec { name: declared.name.clone(), batch, channels, size, element: declared.element };
    let dims = [batch, channels, size.height_px, size.width_px].map(i64::from);
    one_size_a_name(&declared, dims)?;
    let fixed = declared.dims.iter().all(|dim| dim.known().is_some());
    if !fixed {
        let own_batch = declared.dims[0].known().unwrap_or(dims[0]);
        let fact = Fact::with_fixed_shape(declared.kind, &[own_batch, dims[1], dims[2], dims[3]]);
        for info in model.graph_mut().input.iter_mut().filter(|info| info.name == input.name) {
            *info = fact.declare(&input.name);
        }
    }
    let batch_one = match side(declared.dims[0]) {
        Some(1) if batch > 1 => Some(widen(model, &dims, &declared, decided)?),
        _ => None,
    };
    let shapes = shapes::infer(model)
        .map_err(|error| if batch > 1 && !fixed { error.hint(batch_hint(batch)) } else { error })?;
    let outputs = outputs(model, &shapes, fixed, decided)?;
    check_batch(model, &outputs, batch)?;
    if !fixed || model.graph().output.iter().any(|info| Fact::declared(info).fixed().is_none()) {
        write_back(model, &shapes, &outputs);
    }
    Ok(Pinned { input, outputs, shapes, batch_one })
}

/// Refuses an axis name that stands for two sizes, as for a batch on two axes.
fn one_size_a_name(declared: &Declared, sizes: [i64; 4]) -> Result<()> {
    const AXES: [&str; 4] = ["batch", "channels", "height", "width"];
    let named: Vec<(&str, &str, i64)> = declared
        .axis_names
        .iter()
        .zip(AXES)
        .zip(sizes)
        .filter(|((name, _), _)| !name.is_empty())
        .map(|((name, axis), size)| (name.as_str(), axis, size))
        .collect();
    for (at, (name, axis, size)) in named.iter().enumerate() {
        if let Some((_, other, other_size)) =
            named.iter().skip(at + 1).find(|(other, _, other_size)| other == name && other_size != size)
        {
            return Err(Error::refused(format!(
                "found the name `{name}` for {axis} ({size}) and {other} ({other_size}), expected one size for one name"
            ))
            .at(declared.place())
            .hint("export with fixed shapes: `yolo export model=x.pt format=onnx dynamic=False`"));
        }
    }
    Ok(())
}

/// The one input as the file declares it.
struct Declared {
    name: String,
    kind: DataType,
    element: ElementType,
    dims: [Dim; 4],
    /// Names of axes without a fixed size, empty for the others.
    axis_names: Vec<String>,
}

impl Declared {
    fn read(model: &Model) -> Result<Declared> {
        let index = GraphIndex::new(model.graph());
        let inputs: Vec<_> = index.inputs().collect();
        let [info] = inputs.as_slice() else {
            let names: Vec<&str> = inputs.iter().map(|info| info.name.as_str()).collect();
            return Err(Error::refused(format!(
                "found {} inputs ({}), expected one picture",
                names.len(),
                quoted(&names)
            ))
            .hint("export the detector alone, with the picture as its only input"));
        };
        let fact = Fact::declared(info);
        let place = format!("input `{}`", info.name);
        let element = match fact.element {
            DataType::F32 => ElementType::F32,
            DataType::F16 => ElementType::F16,
            DataType::U8 => ElementType::U8,
            other => {
                return Err(Error::refused(format!("found element type `{other}`, expected f32, f16 or u8")).at(place));
            }
        };
        let Some(&[batch, channels, height, width]) = fact.shape.as_deref() else {
            return Err(Error::refused(format!("found `{fact}`, expected [batch, channels, height, width]")).at(place));
        };
        if width == Dim::Known(3) && channels != Dim::Known(3) {
            return Err(Error::refused(format!(
                "found `{fact}` with channels last, expected [batch, channels, height, width]"
            ))
            .at(place)
            .hint("export from PyTorch: `yolo export model=x.pt format=onnx`"));
        }
        let shape = &info.type_.get_or_default().tensor_type().shape.get_or_default().dim;
        Ok(Declared {
            name: info.name.clone(),
            kind: fact.element,
            element,
            dims: [batch, channels, height, width],
            axis_names: shape.iter().map(|dim| dim.dim_param().to_owned()).collect(),
        })
    }

    fn place(&self) -> String {
        format!("input `{}`", self.name)
    }
}

fn side(dim: Dim) -> Option<u32> {
    dim.known().map(|length| u32::try_from(length).unwrap_or(u32::MAX))
}

fn size(declared: &Declared, metadata: &Metadata, options: &Options, decided: &mut Vec<String>) -> Result<SizePx> {
    let [_, _, height, width] = declared.dims;
    let (own_height, own_width) = (side(height), side(width));
    let (wanted, from) = match (options.imgsz, metadata.input_size) {
        (Some(size), _) => (Some(size), "`--imgsz`"),
        (None, size) => (size, "the model's metadata `imgsz`"),
    };
    if let (Some(height_px), Some(width_px)) = (own_height, own_width) {
        let own = SizePx::new(width_px, height_px);
        if let Some(asked) = options.imgsz.filter(|&asked| asked != own) {
            return Err(Error::usage(format!("found an export fixed at {own}, expected {asked} as `--imgsz` says"))
                .at(declared.place())
                .hint(format!(
                    "export again at that size: `yolo export model=x.pt format=onnx imgsz={},{}`",
                    asked.height_px, asked.width_px
                )));
        }
        if let Some(other) = metadata.input_size.filter(|&other| other != own) {
            decided.push(format!("input size {own} as the graph has it; the metadata `imgsz` says {other}"));
        }
        return bounded(own, declared);
    }
    let Some(wanted) = wanted else {
        return Err(Error::usage("found an export of any size without metadata `imgsz`, expected a fixed size")
            .at(declared.place())
            .hint("say the size: `--imgsz 640` or `--imgsz HEIGHT,WIDTH`"));
    };
    for (own, asked, axis) in [(own_height, wanted.height_px, "height"), (own_width, wanted.width_px, "width")] {
        if own.is_some_and(|own| own != asked) {
            return Err(Error::usage(format!(
                "found a fixed {axis} of {}, expected {asked} from {from}",
                own.unwrap_or(0)
            ))
            .at(declared.place()));
        }
    }
    let stride_px = metadata.stride_px.unwrap_or(USUAL_STRIDE_PX);
    let wrong = |length: u32| length == 0 || !length.is_multiple_of(stride_px);
    if wrong(wanted.width_px) || wrong(wanted.height_px) {
        let near = |length: u32| (length.saturating_add(stride_px / 2) / stride_px).max(1).saturating_mul(stride_px);
        return Err(Error::usage(format!("found {wanted} from {from}, expected multiples of the stride {stride_px}"))
            .at(declared.place())
            .hint(format!("the nearest size is `--imgsz {},{}`", near(wanted.height_px), near(wanted.width_px))));
    }
    decided.push(format!("input size pinned to {wanted} from {from}"));
    bounded(wanted, declared)
}

fn bounded(size: SizePx, declared: &Declared) -> Result<SizePx> {
    if size.width_px.max(size.height_px) > MAX_SIDE_PX {
        return Err(
            Error::refused(format!("found {size}, expected at most {MAX_SIDE_PX} px a side")).at(declared.place())
        );
    }
    Ok(size)
}

/// Rewrites an export fixed at batch 1; gives the file as it was.
fn widen(model: &mut Model, dims: &[i64; 4], declared: &Declared, decided: &mut Vec<String>) -> Result<Vec<u8>> {
    // What contradicts itself at batch 1 is refused as that, not as a failed rewrite.
    outputs(model, &shapes::infer(model)?, true, &mut Vec::new())?;
    let before = model.to_bytes()?;
    let batch = u32::try_from(dims[0]).unwrap_or(u32::MAX);
    let operands = batch::rewrite(model, batch).map_err(|error| match error.place() {
        Some(_) => error,
        None => error.at(declared.place()),
    })?;
    decided.push(format!("batch rewritten from 1 to {batch} as `--batch` says: {operands} shape operands replaced"));
    Ok(before)
}

fn pictures_a_run(
    model: &Model,
    declared: &Declared,
    metadata: &Metadata,
    options: &Options,
    decided: &mut Vec<String>,
) -> Result<u32> {
    let [own, ..] = declared.dims;
    let batch = match (side(own), options.batch, metadata.batch) {
        (Some(1), Some(asked), _) if (1..=batch::MOST).contains(&asked) => asked,
        (Some(own), Some(asked), _) if own != asked => {
            let baked = baked_batch(model).map_or(declared.place(), |node| format!("{}, {node}", declared.place()));
            return Err(Error::usage(format!(
                "found batch {own} fixed in the export, expected {asked} as `--batch` says"
            ))
            .at(baked)
            .hint(batch_hint(asked)));
        }
        (Some(own), ..) => own,
        (None, Some(asked), _) => {
            decided.push(format!("batch pinned to {asked} from `--batch`"));
            asked
        }
        (None, None, Some(own)) => {
            decided.push(format!("batch pinned to {own} from the model's metadata `batch`"));
            own
        }
        (None, None, None) => {
            decided.push("batch pinned to 1: neither the model nor a flag names another".to_owned());
            1
        }
    };
    if batch == 0 || batch > MAX_BATCH {
        return Err(Error::usage(format!("found batch {batch}, expected 1 to {MAX_BATCH}")).at(declared.place()));
    }
    Ok(batch)
}

fn batch_hint(batch: u32) -> String {
    format!("export again for it: `yolo export model=x.pt format=onnx batch={batch}` (or `dynamic=True`)")
}

/// The first node that writes a batch of 1 into the graph: a `Reshape` to a constant shape that begins with 1.
fn baked_batch(model: &Model) -> Option<String> {
    let index = GraphIndex::new(model.graph());
    model.graph().node.iter().filter(|node| node.op_type == "Reshape").find_map(|reshape| {
        let target = index.constant(reshape.input.get(1)?).ok()??;
        let first = crate::onnx::tensor::i64_data(&target).ok()?.first().copied();
        (first == Some(1)).then(|| node::place(reshape))
    })
}

fn channels(declared: &Declared, metadata: &Metadata, decided: &mut Vec<String>) -> Result<u32> {
    let [_, own, ..] = declared.dims;
    let channels = match (side(own), metadata.channels) {
        (Some(own), _) => own,
        (None, Some(named)) => {
            decided.push(format!("channels pinned to {named} from the model's metadata `channels`"));
            named
        }
        (None, None) => {
            return Err(Error::refused("found any number of channels, expected 1 or 3")
                .at(declared.place())
                .hint("export with a fixed number of channels"));
        }
    };
    if !matches!(channels, 1 | 3) {
        return Err(
            Error::refused(format!("found {channels} channels, expected 3 (RGB) or 1 (gray)")).at(declared.place())
        );
    }
    Ok(channels)
}

/// The graph's outputs with fixed shapes.
fn outputs(model: &Model, shapes: &Shapes, fixed: bool, decided: &mut Vec<String>) -> Result<Vec<Output>> {
    let mut outputs = Vec::new();
    for info in &model.graph().output {
        let (declared, inferred) = (Fact::declared(info), shapes.fact(&info.name));
        let place = format!("output `{}`", info.name);
        if let (Some(known), Some(found)) = (&declared.shape, &inferred.shape)
            && contradicts(known, found)
        {
            return Err(Error::refused(format!(
                "found {inferred} by computing shapes, expected {declared} as the model declares"
            ))
            .at(place)
            .hint("the graph is fixed to another input size: export it at the size you want, or with `dynamic=True`"));
        }
        let shape = match (inferred.fixed(), declared.fixed()) {
            (Some(shape), _) => shape,
            (None, Some(shape)) if fixed => {
                decided.push(format!("shape {declared} of {place} is the model's own word: {}", reasons(shapes)));
                shape
            }
            _ => {
                return Err(Error::refused(format!("found {inferred}, expected a fixed shape: {}", reasons(shapes)))
                    .at(place)
                    .hint("export with fixed shapes: `yolo export model=x.pt format=onnx dynamic=False`"));
            }
        };
        let element = if inferred.element == DataType::Undefined { declared.element } else { inferred.element };
        outputs.push(Output { name: info.name.clone(), element, shape });
    }
    Ok(outputs)
}

fn contradicts(declared: &[Dim], inferred: &[Dim]) -> bool {
    let pairs = declared.iter().zip(inferred);
    declared.len() != inferred.len()
        || pairs
            .into_iter()
            .any(|(one, other)| matches!((one, other), (Dim::Known(one), Dim::Known(other)) if one != other))
}

fn reasons(shapes: &Shapes) -> String {
    match shapes.unknown.first() {
        Some(unknown) => format!("{}, {}", unknown.reason, unknown.place),
        None => "it depends on data".to_owned(),
    }
}

/// Every output has the batch of the input, or the export has another batch baked in.
fn check_batch(model: &Model, outputs: &[Output], batch: u32) -> Result<()> {
    let Some(output) = outputs.iter().find(|output| batch > 1 && output.shape.first() != Some(&i64::from(batch)))
    else {
        return Ok(());
    };
    let producer = GraphIndex::new(model.graph()).producer(&output.name).map(node::place);
    let node = baked_batch(model).or(producer).unwrap_or_default();
    Err(Error::usage(format!("found output `{}` of shape {:?}, expected batch {batch}", output.name, output.shape))
        .at(node)
        .hint(batch_hint(batch)))
}

/// Writes the inferred shapes into the model, so that whoever reads it sees fixed ones.
fn write_back(model: &mut Model, shapes: &Shapes, outputs: &[Output]) {
    let graph = model.graph_mut();
    for (info, output) in graph.output.iter_mut().zip(outputs) {
        *info = Fact::with_fixed_shape(output.element, &output.shape).declare(&output.name);
    }
    graph.value_info.retain_mut(|info| {
        let fact = shapes.fact(&info.name);
        if fact.fixed().is_some() && fact.element != DataType::Undefined {
            *info = fact.declare(&info.name);
            return true;
        }
        false
    });
}
