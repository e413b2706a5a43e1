//! P01: asymmetric Q/DQ is found before any parser, with node, type, value and the way out.

use crate::common::cases::{prepared, refused};

#[test]
fn symmetric_int8_passes() {
    let Some(prepared) = prepared("qdq_i8") else { return };
    assert_eq!(prepared.layout.classes(), 80);
}

#[test]
fn a_zero_point_other_than_zero_names_its_node_type_and_value() {
    for (name, found) in [
        ("qdq_u8zp128", "zero point 128 of type `u8`, expected 0"),
        ("qdq_i8zp5", "zero point 5 of type `i8`, expected 0"),
    ] {
        let Some(text) = refused(name) else { return };
        assert!(text.contains(found) && text.contains("(QuantizeLinear)") && text.contains("node `"), "{text}");
        assert!(text.contains("symmetric INT8"), "{text}");
    }
}

#[test]
fn unsigned_with_zero_point_zero_is_refused_and_never_rewritten() {
    let Some(text) = refused("qdq_u8zp0") else { return };
    assert!(text.contains("type `u8` with zero point 0") && text.contains("saturate"), "{text}");
}

#[test]
fn scale_zero_is_refused() {
    let Some(text) = refused("qdq_scale0") else { return };
    assert!(text.contains("scale 0, expected a finite number above 0"), "{text}");
}
