//! D01: the layout is decided by anchor counts that match exactly; ambiguity prints both readings.

use crate::common::cases::{prepare, prepared, refused};
use edge_trt::build::{LayoutChoice, Options};
use edge_trt::engine::Layout;

#[test]
fn equal_axes_are_refused_until_layout_decides() {
    let Some(text) = refused("ambig64") else { return };
    assert!(
        text.contains("2 ways") && text.contains("(1)") && text.contains("(2)") && text.contains("--layout raw"),
        "{text}"
    );
    let options = Options { layout: Some(LayoutChoice::Raw), ..Options::default() };
    let layout = prepare("ambig64", &options).unwrap().unwrap().layout;
    assert_eq!(layout, Layout::Raw { output: "output0".into(), classes: 80, anchors: 84 });
}

#[test]
fn objectness_is_told_from_raw_by_three_boxes_a_cell() {
    for (name, output) in [("v5_85", "output0"), ("v5_heads", "output")] {
        let Some(prepared) = prepared(name) else { return };
        assert_eq!(prepared.layout, Layout::Objectness { output: output.into(), classes: 80, anchors: 25200 });
    }
}

#[test]
fn rectangles_and_score_types_do_not_matter() {
    for (name, anchors) in [("ok", 8400), ("rect", 5040), ("conf7", 8400), ("fp16io", 8400), ("u8in", 8400)] {
        let Some(prepared) = prepared(name) else { return };
        assert_eq!(prepared.layout, Layout::Raw { output: "output0".into(), classes: 80, anchors }, "{name}");
    }
}

#[test]
fn additional_outputs_are_said_to_be_unread() {
    let Some(prepared) = prepared("fp16overflow") else { return };
    assert!(prepared.decided.iter().any(|said| said.contains("`back` are not read")), "{:?}", prepared.decided);
}
