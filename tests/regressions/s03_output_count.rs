//! S03: outputs are bound by name and shape, however many there are.

use crate::common::cases::prepared;
use edge_trt::engine::Layout;

#[test]
fn one_four_and_five_outputs() {
    let Some(plugin) = prepared("nms4") else { return };
    let expected = Layout::NmsPlugin {
        count: "num_dets".into(),
        boxes: "det_boxes".into(),
        scores: "det_scores".into(),
        class_ids: "det_classes".into(),
        classes: 80,
        rows: 100,
    };
    assert_eq!(plugin.layout, expected);
    let heads = prepared("v5_heads").unwrap();
    assert!(heads.decided.iter().any(|said| said.contains("`p3`, `p4`, `p5` are not read")), "{:?}", heads.decided);
    assert!(prepared("ok").is_some());
}
