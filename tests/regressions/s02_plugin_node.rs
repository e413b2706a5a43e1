//! S02: operators outside the standard are listed before any parser, with a place to cut the graph.

use crate::common::cases::{prepare, refused};
use edge_trt::build::Options;
use edge_trt::onnx::Model;

#[test]
fn the_plugin_is_named_and_the_graph_can_be_cut_above_it() {
    let Some(text) = refused("plugin") else { return };
    assert!(text.contains("TRT.EfficientNMS_TRT") && text.contains("`--outputs output0`"), "{text}");
    let cut = Options { outputs: vec!["output0".into()], ..Options::default() };
    let prepared = prepare("plugin", &cut).unwrap().unwrap();
    assert_eq!(prepared.layout.classes(), 80);
    let model = Model::from_bytes(&prepared.model_bytes).unwrap();
    assert!(model.graph().node.iter().all(|node| node.op_type != "EfficientNMS_TRT"));
    let missing = Options { outputs: vec!["nowhere".into()], ..Options::default() };
    assert!(prepare("plugin", &missing).unwrap().unwrap_err().hint_text().unwrap().contains("`output0`"));
}
