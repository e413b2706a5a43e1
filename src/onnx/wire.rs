//! A look at the raw bytes before the parser sees them: nesting, lengths and the number of parts are bounded.
//!
//! The protobuf parser recurses where the file nests and makes a struct of hundreds of bytes out of two; this walker does
//! neither. It runs in time linear in the file, with a stack of at most [`MAX_DEPTH`] entries.

use super::refused_file;
use crate::error::Result;

/// Deepest nesting of messages. YOLO exports need 6; each level of control flow would add 3.
const MAX_DEPTH: usize = 48;
/// Most messages in one file. The largest YOLO exports have about 20,000.
const MAX_MESSAGES: u64 = 1_000_000;
/// Most fields in one file.
const MAX_FIELDS: u64 = 8_000_000;
/// Most bytes of packed variable-length integers: one byte becomes eight in memory.
const MAX_PACKED_BYTES: usize = 256 << 20;

/// The messages of the ONNX schema that matter for nesting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    SparseTensor,
    ValueInfo,
    Type,
    TensorType,
    ElementHolder,
    Map,
    Shape,
    Annotation,
    Training,
    Function,
    /// A message without messages inside: key and value, dimension, opset, segment.
    Leaf,
}

/// What a length-delimited field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Nested(Message),
    PackedVarints,
    Bytes,
}

/// The field `number` of `message` according to `onnx.proto`.
fn field(message: Message, number: u32) -> Field {
    use Field::{Bytes, Nested, PackedVarints};
    use Message as M;
    match (message, number) {
        (M::Model, 8 | 14) => Nested(M::Leaf),
        (M::Model, 7) => Nested(M::Graph),
        (M::Model, 20) => Nested(M::Training),
        (M::Model, 25) => Nested(M::Function),
        (M::Graph, 1) => Nested(M::Node),
        (M::Graph, 5) => Nested(M::Tensor),
        (M::Graph, 15) => Nested(M::SparseTensor),
        (M::Graph, 11..=13) => Nested(M::ValueInfo),
        (M::Graph, 14) => Nested(M::Annotation),
        (M::Graph, 16) => Nested(M::Leaf),
        (M::Node, 5) => Nested(M::Attribute),
        (M::Node, 9) => Nested(M::Leaf),
        (M::Attribute, 5 | 10) => Nested(M::Tensor),
        (M::Attribute, 6 | 11) => Nested(M::Graph),
        (M::Attribute, 22 | 23) => Nested(M::SparseTensor),
        (M::Attribute, 14 | 15) => Nested(M::Type),
        (M::Attribute, 8) => PackedVarints,
        (M::Tensor, 1 | 5 | 7 | 11) => PackedVarints,
        (M::Tensor, 3 | 13 | 16) => Nested(M::Leaf),
        (M::SparseTensor, 1 | 2) => Nested(M::Tensor),
        (M::SparseTensor, 3) => PackedVarints,
        (M::ValueInfo, 2) => Nested(M::Type),
        (M::ValueInfo, 4) => Nested(M::Leaf),
        (M::Type, 1 | 8) => Nested(M::TensorType),
        (M::Type, 4 | 9) => Nested(M::ElementHolder),
        (M::Type, 5) => Nested(M::Map),
        (M::TensorType, 2) => Nested(M::Shape),
        (M::ElementHolder, 1) | (M::Map, 2) => Nested(M::Type),
        (M::Shape, 1) => Nested(M::Leaf),
        (M::Annotation, 2) => Nested(M::Leaf),
        (M::Training, 1 | 2) => Nested(M::Graph),
        (M::Training, 3 | 4) => Nested(M::Leaf),
        (M::Function, 7) => Nested(M::Node),
        (M::Function, 11) => Nested(M::Attribute),
        (M::Function, 12) => Nested(M::ValueInfo),
        (M::Function, 9 | 14) => Nested(M::Leaf),
        _ => Bytes,
    }
}

/// Checks that `bytes` can be an ONNX model: well-formed, not deeper and not made of more parts than allowed.
pub(super) fn check(bytes: &[u8]) -> Result<()> {
    let mut open = vec![(Message::Model, bytes.len())];
    let mut walk = Walk { bytes, position: 0 };
    let (mut messages, mut fields, mut packed_bytes) = (0_u64, 0_u64, 0_usize);
    while let Some(&(message, end)) = open.last() {
        if walk.position == end {
            open.pop();
            continue;
        }
        fields += 1;
        let (number, payload) = walk.field(end)?;
        let Some(payload_end) = payload else { continue };
        match field(message, number) {
            Field::Nested(child) => {
                messages += 1;
                if open.len() >= MAX_DEPTH {
                    return Err(refused_file(format!(
                        "found messages nested deeper than {MAX_DEPTH} levels at byte {}, expected at most {MAX_DEPTH}",
                        walk.position
                    )));
                }
                open.push((child, payload_end));
            }
            Field::PackedVarints => {
                packed_bytes = packed_bytes.saturating_add(payload_end - walk.position);
                walk.position = payload_end;
            }
            Field::Bytes => walk.position = payload_end,
        }
        if messages > MAX_MESSAGES || fields > MAX_FIELDS || packed_bytes > MAX_PACKED_BYTES {
            return Err(refused_file(format!(
                "found more parts than any YOLO export has (over {MAX_MESSAGES} messages, {MAX_FIELDS} fields or \
                 {MAX_PACKED_BYTES} bytes of packed integers)"
            )));
        }
    }
    Ok(())
}

struct Walk<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl Walk<'_> {
    /// Reads one field; a length-delimited one is left unread, with the position of its end.
    fn field(&mut self, end: usize) -> Result<(u32, Option<usize>)> {
        let start = self.position;
        let tag = u32::try_from(self.varint(end)?).map_err(|_| malformed(start, "a field number out of range"))?;
        let (number, wire_type) = (tag >> 3, tag & 7);
        if number == 0 {
            return Err(malformed(start, "field number 0"));
        }
        let skip = match wire_type {
            0 => {
                self.varint(end)?;
                return Ok((number, None));
            }
            1 => 8,
            5 => 4,
            2 => {
                let length = self.varint(end)?;
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                if length > end - self.position {
                    return Err(truncated(start));
                }
                return Ok((number, Some(self.position + length)));
            }
            _ => return Err(malformed(start, &format!("wire type {wire_type}"))),
        };
        if skip > end - self.position {
            return Err(truncated(start));
        }
        self.position += skip;
        Ok((number, None))
    }

    fn varint(&mut self, end: usize) -> Result<u64> {
        let start = self.position;
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = match self.bytes.get(self.position) {
                Some(&byte) if self.position < end => byte,
                _ => return Err(truncated(start)),
            };
            self.position += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(malformed(start, "a number of more than ten bytes"))
    }
}

fn truncated(position: usize) -> crate::Error {
    refused_file(format!(
        "found a field at byte {position} that ends after its message: the file is cut off or damaged"
    ))
    .hint("copy or export the file again and compare its size")
}

fn malformed(position: usize, what: &str) -> crate::Error {
    refused_file(format!("found {what} at byte {position}, expected an ONNX model: the file is no ONNX or is damaged"))
        .hint("export it again, for example `yolo export model=x.pt format=onnx`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nested(field_number: u8, inner: &[u8]) -> Vec<u8> {
        let mut bytes = vec![field_number << 3 | 2];
        let mut length = inner.len();
        while length >= 0x80 {
            bytes.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
            length >>= 7;
        }
        bytes.push(u8::try_from(length).unwrap());
        bytes.extend_from_slice(inner);
        bytes
    }

    /// A model whose graph holds a node whose attribute holds a graph, and so on.
    fn deep(levels: usize) -> Vec<u8> {
        let mut graph = Vec::new();
        for _ in 0..levels {
            graph = nested(1, &nested(5, &nested(6, &graph)));
        }
        nested(7, &graph)
    }

    #[test]
    fn deep_nesting_is_refused_and_shallow_is_not() {
        assert!(check(&deep(10)).is_ok());
        let message = check(&deep(5_000)).unwrap_err().to_string();
        assert!(message.contains("nested deeper"), "{message}");
    }

    #[test]
    fn groups_and_field_zero_are_refused() {
        assert!(check(&[0x0b]).is_err(), "start of a group");
        assert!(check(&[0x00, 0x00]).is_err(), "field 0");
        assert!(check(&[0x3a, 0x05, 0x0a]).is_err(), "length beyond the end");
        assert!(check(&[0x80; 12]).is_err(), "endless number");
        assert!(check(&[0x08, 0x08]).is_ok());
    }

    #[test]
    fn many_empty_messages_are_refused() {
        let nodes: Vec<u8> = [0x0a, 0x00].repeat(1_000_001);
        assert!(check(&nested(7, &nodes)).unwrap_err().to_string().contains("more parts"));
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = check(&bytes);
        }
    }
}
