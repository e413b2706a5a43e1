//! What an ONNX file declares about its inputs and outputs, read without its weights.

use crate::engine::{ElementType, InputSpec, Layout};
use crate::error::{Error, Result};
use crate::units::{count, index};
use onnx_protobuf::{Message, ValueInfoProto, tensor_shape_proto::dimension, type_proto};
use std::collections::HashSet;

/// Field numbers of `onnx.proto`.
mod field {
    pub(super) const MODEL_GRAPH: u64 = 7;
    pub(super) const GRAPH_INITIALIZER: u64 = 5;
    pub(super) const GRAPH_INPUT: u64 = 11;
    pub(super) const GRAPH_OUTPUT: u64 = 12;
    pub(super) const TENSOR_NAME: u64 = 8;
}

/// A tensor at the border of the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Border {
    pub(super) name: String,
    /// `None` for a type that no engine takes.
    pub(super) element: Option<ElementType>,
    /// `None` for a dimension that the file leaves open.
    pub(super) shape: Vec<Option<u64>>,
}

/// Inputs, outputs and size of the weights.
#[derive(Debug, Default)]
pub(super) struct Declared {
    pub(super) inputs: Vec<Border>,
    pub(super) outputs: Vec<Border>,
    pub(super) weight_bytes: u64,
}

impl Declared {
    /// Reads the borders of `model`, an ONNX file.
    pub(super) fn read(model: &[u8]) -> Result<Declared> {
        let graph = Fields(model)
            .collect::<Option<Vec<_>>>()
            .and_then(|fields| fields.into_iter().find(|(number, _)| *number == field::MODEL_GRAPH))
            .map(|(_, graph)| graph)
            .filter(|graph| !graph.is_empty())
            .ok_or_else(|| damaged("found no graph in the model"))?;
        let mut declared = Declared::default();
        let mut weights = HashSet::new();
        for entry in Fields(graph) {
            let (number, bytes) = entry.ok_or_else(|| damaged("found a damaged or truncated graph"))?;
            match number {
                field::GRAPH_INITIALIZER => {
                    declared.weight_bytes += count(bytes.len());
                    let name = Fields(bytes).flatten().find(|(number, _)| *number == field::TENSOR_NAME);
                    weights.extend(name.map(|(_, name)| name.to_vec()));
                }
                field::GRAPH_INPUT => declared.inputs.push(border(bytes)?),
                field::GRAPH_OUTPUT => declared.outputs.push(border(bytes)?),
                _ => {}
            }
        }
        // Old files list their weights among the inputs.
        declared.inputs.retain(|input| !weights.contains(input.name.as_bytes()));
        Ok(declared)
    }

    /// Compares with what the bundle says.
    pub(super) fn check(&self, input: &InputSpec, layout: &Layout) -> Result<()> {
        let [only] = self.inputs.as_slice() else {
            let names: Vec<&str> = self.inputs.iter().map(|input| input.name.as_str()).collect();
            return Err(Error::refused(format!("found inputs {names:?}, expected one named `{}`", input.name)));
        };
        let expected = [input.batch, input.channels, input.size.height_px, input.size.width_px].map(u64::from);
        if only.name != input.name {
            return Err(Error::refused(format!("found input `{}`, expected `{}`", only.name, input.name)));
        }
        if only.element != Some(input.element) {
            return Err(Error::refused(format!(
                "found element type {}, expected {:?}",
                only.element_text(),
                input.element
            ))
            .at(format_args!("input `{}`", input.name)));
        }
        only.check_shape(&expected).map_err(|error| error.at(format_args!("input `{}`", input.name)))?;
        for (name, shape) in named_outputs(layout, input.batch) {
            self.output(name)?.check_output(&shape).map_err(|error| error.at(format_args!("output `{name}`")))?;
        }
        Ok(())
    }

    fn output(&self, name: &str) -> Result<&Border> {
        self.outputs.iter().find(|output| output.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.outputs.iter().map(|output| output.name.as_str()).collect();
            Error::refused(format!("found outputs {names:?}, expected one named `{name}`"))
        })
    }
}

/// The outputs that a layout names, with their full shapes.
pub(super) fn named_outputs(layout: &Layout, batch: u32) -> Vec<(&str, Vec<u64>)> {
    let batch = u64::from(batch);
    match layout {
        Layout::Raw { output, classes, anchors } => {
            vec![(output, vec![batch, u64::from(*classes) + 4, u64::from(*anchors)])]
        }
        Layout::Objectness { output, classes, anchors } => {
            vec![(output, vec![batch, u64::from(*anchors), u64::from(*classes) + 5])]
        }
        Layout::EndToEnd { output, rows, .. } => vec![(output, vec![batch, u64::from(*rows), 6])],
        Layout::NmsPlugin { count, boxes, scores, class_ids, rows, .. } => {
            let rows = u64::from(*rows);
            vec![
                (count, vec![batch, 1]),
                (boxes, vec![batch, rows, 4]),
                (scores, vec![batch, rows]),
                (class_ids, vec![batch, rows]),
            ]
        }
    }
}

impl Border {
    fn element_text(&self) -> String {
        self.element.map_or_else(|| "that no engine takes".to_owned(), |element| format!("{element:?}"))
    }

    fn check_output(&self, shape: &[u64]) -> Result<()> {
        if matches!(self.element, None | Some(ElementType::U8)) {
            return Err(Error::refused(format!(
                "found element type {}, expected F32, F16, I32 or I64",
                self.element_text()
            )));
        }
        self.check_shape(shape)
    }

    fn check_shape(&self, shape: &[u64]) -> Result<()> {
        let fits = self.shape.len() == shape.len()
            && self.shape.iter().zip(shape).all(|(found, expected)| found.is_none_or(|found| found == *expected));
        // A file without shape information is checked against the real outputs instead.
        if fits || self.shape.is_empty() {
            return Ok(());
        }
        let found: Vec<String> =
            self.shape.iter().map(|size| size.map_or_else(|| "?".to_owned(), |size| size.to_string())).collect();
        Err(Error::refused(format!("found shape [{}], expected {shape:?}", found.join(", "))))
    }
}

fn border(bytes: &[u8]) -> Result<Border> {
    let info = ValueInfoProto::parse_from_bytes(bytes)
        .map_err(|error| damaged("found a damaged input or output").because(error.to_string()))?;
    let mut border = Border { name: info.name.clone(), element: None, shape: Vec::new() };
    if let Some(type_proto::Value::TensorType(tensor)) = info.type_.value.as_ref() {
        border.element = element(tensor.elem_type);
        let dimensions = tensor.shape.dim.iter().map(|size| match size.value {
            Some(dimension::Value::DimValue(size)) => u64::try_from(size).ok(),
            _ => None,
        });
        border.shape = dimensions.collect();
    }
    Ok(border)
}

/// `TensorProto.DataType` → element type.
fn element(onnx: i32) -> Option<ElementType> {
    match onnx {
        1 => Some(ElementType::F32),
        2 => Some(ElementType::U8),
        6 => Some(ElementType::I32),
        7 => Some(ElementType::I64),
        10 => Some(ElementType::F16),
        _ => None,
    }
}

fn damaged(message: &str) -> Error {
    Error::refused(format!("{message}, expected an ONNX file"))
}

/// The fields of one protobuf message: number and bytes (empty for plain numbers); `None` once where it is damaged.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn bytes(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u64, &'a [u8])> {
        let key = self.varint()?;
        let bytes = match key & 7 {
            0 => self.varint().map(|_| &[][..])?,
            1 => self.bytes(8)?,
            2 => {
                let length = self.varint()?;
                self.bytes(length)?
            }
            5 => self.bytes(4)?,
            _ => return None,
        };
        Some((key >> 3, bytes))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// Elements of the outputs that `layout` names.
pub(super) fn output_elements(layout: &Layout, batch: u32) -> u64 {
    named_outputs(layout, batch).iter().map(|(_, shape)| shape.iter().product::<u64>()).sum()
}

/// Elements of the input.
pub(super) fn input_elements(input: &InputSpec) -> usize {
    index(input.batch) * index(input.channels) * input.size.pixels()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::SizePx;

    /// `key` and a length-delimited field.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).unwrap();
        [&[number << 3 | 2, length][..], bytes].concat()
    }

    fn value_info(name: &str, element: u8, shape: &[u8]) -> Vec<u8> {
        let dimensions: Vec<u8> = shape.iter().flat_map(|&size| field(1, &[0x08, size])).collect();
        let tensor = [&[0x08, element][..], &field(2, &dimensions)].concat();
        [field(1, name.as_bytes()), field(2, &field(1, &tensor))].concat()
    }

    fn model(element: u8) -> Vec<u8> {
        let graph = [
            field(5, &field(8, b"w")),
            field(11, &value_info("w", 1, &[1])),
            field(11, &value_info("images", element, &[1, 3, 64, 64])),
            field(12, &value_info("output0", 1, &[1, 6, 84])),
        ]
        .concat();
        field(7, &graph)
    }

    fn spec(element: ElementType) -> (InputSpec, Layout) {
        let input = InputSpec { name: "images".into(), batch: 1, channels: 3, size: SizePx::new(64, 64), element };
        (input, Layout::Raw { output: "output0".into(), classes: 2, anchors: 84 })
    }

    #[test]
    fn borders_are_read_without_weights_listed_as_inputs() {
        let declared = Declared::read(&model(1)).unwrap();
        assert_eq!(declared.inputs.len(), 1);
        let (input, layout) = spec(ElementType::F32);
        declared.check(&input, &layout).unwrap();
    }

    #[test]
    fn differences_are_refused_with_both_sides() {
        let declared = Declared::read(&model(10)).unwrap();
        let (input, layout) = spec(ElementType::F32);
        let error = declared.check(&input, &layout).unwrap_err();
        assert_eq!(error.message(), "found element type F16, expected F32");
        let (input, _) = spec(ElementType::F16);
        let layout = Layout::Raw { output: "output0".into(), classes: 80, anchors: 84 };
        let error = declared.check(&input, &layout).unwrap_err();
        assert_eq!(error.message(), "found shape [1, 6, 84], expected [1, 84, 84]");
        assert_eq!(error.place(), Some("output `output0`"));
        let layout = Layout::Raw { output: "boxes".into(), classes: 2, anchors: 84 };
        assert!(declared.check(&input, &layout).is_err());
    }

    #[test]
    fn every_truncation_is_an_error_or_reads() {
        let whole = model(1);
        for length in 0..whole.len() {
            assert!(Declared::read(&whole[..length]).is_err(), "{length}");
        }
    }
}
