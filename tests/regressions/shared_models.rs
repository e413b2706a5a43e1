//! The test models: read, prepared, and their shapes inferred as the exporter wrote them.

use crate::common::shared;
use edge_trt::build::{self, Options};
use edge_trt::engine::{ElementType, Layout};
use edge_trt::onnx::{Model, shapes};
use edge_trt::units::SizePx;

const MODELS: [(&str, u64); 4] = [("pcb-yolov8n", 64), ("pcb-yolo11n", 90), ("pcb-yolo26n", 106), ("pcb-yolov10n", 85)];

#[test]
fn all_four_are_prepared() {
    let Some(shared) = shared() else { return };
    for (name, heavy) in MODELS {
        let model = Model::read(&shared.join(format!("models/{name}.onnx"))).unwrap();
        let prepared = build::prepare(model, &Options::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(prepared.classes, ["open", "short", "mousebite", "spur", "copper", "pin-hole"]);
        assert_eq!(prepared.layout, Layout::Raw { output: "output0".into(), classes: 6, anchors: 8400 });
        assert_eq!(prepared.input.size, SizePx::new(640, 640));
        assert_eq!((prepared.input.batch, prepared.input.channels, prepared.input.element), (1, 3, ElementType::F32));
        assert_eq!(prepared.source.opset, 17);
        assert_eq!(prepared.source.producer, "pytorch 2.11.0");
        assert_eq!(prepared.precision_found.get("f32"), Some(&heavy), "{name}: {:?}", prepared.precision_found);
    }
}

#[test]
fn inferred_shapes_equal_those_of_the_exporter() {
    let Some(shared) = shared() else { return };
    for (name, _) in MODELS {
        let model = Model::read(&shared.join(format!("models/{name}.onnx"))).unwrap();
        let inferred = shapes::infer(&model).unwrap();
        assert_eq!(inferred.unknown, [], "{name}");
        let declared = model.graph().value_info.iter().chain(&model.graph().output);
        let wrong: Vec<String> = declared
            .filter_map(|info| {
                let (found, wanted) = (inferred.fact(&info.name), shapes::Fact::declared(info));
                let same = found.element == wanted.element && found.shape == wanted.shape;
                (!same).then(|| format!("{}: found {found}, expected {wanted}", info.name))
            })
            .collect();
        assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
    }
}
