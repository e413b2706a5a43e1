use super::*;
use crate::engine::ElementType;
use crate::units::SizePx;

struct Case {
    size: SizePx,
    outputs: Vec<Output>,
    metadata: Metadata,
    names: Option<u32>,
    choice: Option<LayoutChoice>,
}

fn case(outputs: &[(&str, DataType, &[i64])]) -> Case {
    let outputs = outputs
        .iter()
        .map(|&(name, element, shape)| Output { name: name.to_owned(), element, shape: shape.to_vec() })
        .collect();
    Case { size: SizePx::new(640, 640), outputs, metadata: Metadata::default(), names: Some(80), choice: None }
}

fn one(shape: &[i64]) -> Case {
    case(&[("o", DataType::F32, shape)])
}

impl Case {
    fn names(self, names: Option<u32>) -> Case {
        Case { names, ..self }
    }

    fn choice(self, choice: LayoutChoice) -> Case {
        Case { choice: Some(choice), ..self }
    }

    fn size(self, width_px: u32, height_px: u32) -> Case {
        Case { size: SizePx::new(width_px, height_px), ..self }
    }

    fn end2end(mut self, value: bool) -> Case {
        self.metadata.end2end = Some(value);
        self
    }

    fn decide(&self) -> Result<Layout> {
        let input = InputSpec { name: "i".into(), batch: 1, channels: 3, size: self.size, element: ElementType::F32 };
        let names: Option<Vec<String>> = self.names.map(|count| (0..count).map(|class| class.to_string()).collect());
        let facts = Facts {
            input: &input,
            outputs: &self.outputs,
            metadata: &self.metadata,
            names: names.as_deref(),
            choice: self.choice,
        };
        decide(&facts, &mut Vec::new())
    }

    fn refused(&self) -> String {
        self.decide().unwrap_err().to_string()
    }
}

fn output() -> String {
    "o".to_owned()
}

#[test]
fn the_layouts_of_the_field() {
    let raw = Layout::Raw { output: output(), classes: 80, anchors: 8400 };
    assert_eq!(one(&[1, 84, 8400]).decide().unwrap(), raw);
    let objectness = Layout::Objectness { output: output(), classes: 80, anchors: 25200 };
    assert_eq!(one(&[1, 25200, 85]).decide().unwrap(), objectness);
    let rows = Layout::EndToEnd { output: output(), classes: 80, rows: 300 };
    assert_eq!(one(&[1, 300, 6]).end2end(true).decide().unwrap(), rows);
    assert_eq!(one(&[1, 300, 6]).decide().unwrap(), rows);
    let rectangle = Layout::Raw { output: output(), classes: 80, anchors: 5040 };
    assert_eq!(one(&[1, 84, 5040]).size(640, 384).decide().unwrap(), rectangle);
    let fine = Layout::Raw { output: output(), classes: 80, anchors: 34000 };
    assert_eq!(one(&[1, 84, 34000]).decide().unwrap(), fine);
    let one_class = Layout::Objectness { output: output(), classes: 1, anchors: 25200 };
    assert_eq!(one(&[1, 25200, 6]).names(Some(1)).decide().unwrap(), one_class);
}

#[test]
fn raw_heads_beside_the_decoded_output_are_not_read() {
    let heads: [(&str, DataType, &[i64]); 4] = [
        ("p3", DataType::F32, &[1, 3, 80, 80, 85]),
        ("p4", DataType::F32, &[1, 3, 40, 40, 85]),
        ("p5", DataType::F32, &[1, 3, 20, 20, 85]),
        ("o", DataType::F32, &[1, 25200, 85]),
    ];
    assert!(matches!(case(&heads).decide().unwrap(), Layout::Objectness { output, .. } if output == "o"));
    assert!(case(&heads[..3]).refused().contains("before decoding"));
}

#[test]
fn equal_axes_are_ambiguous_until_the_user_decides() {
    let text = one(&[1, 84, 84]).size(64, 64).refused();
    assert!(text.contains("2 ways") && text.contains("transposed") && text.contains("`--layout raw`"), "{text}");
    let chosen = one(&[1, 84, 84]).size(64, 64).choice(LayoutChoice::Raw).decide().unwrap();
    assert_eq!(chosen, Layout::Raw { output: output(), classes: 80, anchors: 84 });
}

#[test]
fn counts_that_differ_from_the_names_name_both() {
    let text = one(&[1, 12, 8400]).names(Some(1)).refused();
    assert!(text.contains("8 classes") && text.contains("expected 1 classes"), "{text}");
    assert!(one(&[1, 116, 8400]).refused().contains("mask coefficients"));
    assert!(one(&[1, 85, 8400]).refused().contains("angle"));
}

#[test]
fn no_names_is_an_error_that_asks_for_them() {
    let text = one(&[1, 84, 8400]).names(None).refused();
    assert!(text.contains("for 80 classes") && text.contains("--names"), "{text}");
    assert!(one(&[1, 300, 6]).names(None).refused().contains("--names"));
}

#[test]
fn masks_are_found_without_metadata() {
    let outputs: [(&str, DataType, &[i64]); 2] =
        [("o", DataType::F32, &[1, 116, 8400]), ("m", DataType::F32, &[1, 32, 160, 160])];
    for names in [None, Some(80)] {
        assert!(case(&outputs).names(names).refused().contains("segmentation"));
    }
}

#[test]
fn the_word_of_the_export_must_not_contradict_the_shape() {
    assert!(one(&[1, 84, 8400]).end2end(true).refused().contains("two readings"));
    assert!(one(&[1, 300, 6]).end2end(false).refused().contains("two readings"));
    assert!(one(&[1, 300, 6]).end2end(false).choice(LayoutChoice::EndToEnd).decide().is_ok());
    let mut with_nms = one(&[1, 300, 6]).end2end(false);
    with_nms.metadata.nms = Some(true);
    assert!(with_nms.decide().is_ok());
}

#[test]
fn one_anchor_with_objectness_needs_a_word() {
    let text = one(&[1, 8400, 85]).refused();
    assert!(text.contains("YOLOX") && text.contains("--layout objectness"), "{text}");
    assert!(one(&[1, 8400, 85]).choice(LayoutChoice::Objectness).decide().is_ok());
    assert!(one(&[1, 8400, 84]).decide().is_err());
    assert!(one(&[1, 8400, 6]).names(Some(2)).decide().is_err(), "boxes before NMS by rows, or final ones");
}

#[test]
fn the_plugin_is_bound_by_shape_and_type() {
    let outputs: [(&str, DataType, &[i64]); 4] = [
        ("a", DataType::F32, &[1, 100]),
        ("b", DataType::I32, &[1, 100]),
        ("c", DataType::F32, &[1, 100, 4]),
        ("d", DataType::I32, &[1, 1]),
    ];
    let Layout::NmsPlugin { count, boxes, scores, class_ids, rows, classes } = case(&outputs).decide().unwrap() else {
        panic!("another layout");
    };
    assert_eq!([count, boxes, scores, class_ids], ["d", "c", "a", "b"]);
    assert_eq!((rows, classes), (100, 80));
    assert!(case(&outputs[..3]).decide().is_err());
}

#[test]
fn two_detection_outputs_are_ambiguous() {
    let outputs: [(&str, DataType, &[i64]); 2] =
        [("a", DataType::F32, &[1, 84, 8400]), ("b", DataType::F32, &[1, 84, 8400])];
    assert!(case(&outputs).refused().contains("--outputs a"));
}

#[test]
fn what_fits_nothing_prints_what_would() {
    let text = one(&[1, 84, 8401]).refused();
    assert!(text.contains("8400") && text.contains("25200") && text.contains("8401"), "{text}");
}

#[test]
fn choices_have_names() {
    for choice in LayoutChoice::ALL {
        assert_eq!(choice.to_string().parse::<LayoutChoice>().unwrap(), choice);
    }
    assert!("v8".parse::<LayoutChoice>().is_err());
}
