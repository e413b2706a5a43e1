//! S11: every size comes from the model, none is 640 by habit.

use crate::common::cases::prepared;
use edge_trt::units::SizePx;

#[test]
fn rectangles_keep_width_and_height_apart() {
    let Some(prepared) = prepared("rect") else { return };
    assert_eq!(prepared.input.size, SizePx::new(640, 384));
    assert_eq!(prepared.layout.capacity(), 80 * 48 + 40 * 24 + 20 * 12);
}
