//! D03: models of other tasks are refused with the reason and the shapes found.

use crate::common::cases::refused;

#[test]
fn each_task_names_itself_and_its_shapes() {
    for (name, task, shape) in [
        ("seg", "`segment`", "[1, 116, 8400]"),
        ("pose", "`pose`", "[1, 56, 8400]"),
        ("obb", "`obb`", "[1, 20, 21504]"),
        ("cls", "`classify`", "[1, 1000]"),
    ] {
        let Some(text) = refused(name) else { return };
        assert!(text.contains(task) && text.contains(shape), "{text}");
    }
}

#[test]
fn masks_are_found_without_metadata() {
    let Some(text) = refused("seg_nometa") else { return };
    assert!(text.contains("segmentation") && text.contains("32 mask prototypes"), "{text}");
}
