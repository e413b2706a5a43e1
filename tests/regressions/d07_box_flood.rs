//! D07: 8,400 boxes of score 0.9 must cost a bounded time, and the next quiet picture nothing.

use edge_trt::detections::{Detector, Thresholds};
use edge_trt::engine::{Candidate, Candidates, Layout, Letterbox};
use edge_trt::units::{BoxPx, SizePx};
use std::time::{Duration, Instant};

fn flood(classes: u32, side_px: f32) -> Candidates {
    let boxes = (0..8400_u32).map(|anchor| {
        let (left, top) = ((anchor % 92) as f32 * 7.0, (anchor / 92) as f32 * 7.0);
        let edges = BoxPx::new(left, top, left + side_px, top + side_px);
        Candidate { anchor, class_id: anchor % classes, score: 0.9, edges }
    });
    Candidates { boxes: boxes.collect(), overflow: 0 }
}

fn detect(candidates: &Candidates, thresholds: &Thresholds) -> (usize, Duration) {
    let names: Vec<String> = (0..80).map(|class| format!("c{class}")).collect();
    let layout = Layout::Raw { output: "output0".into(), classes: 80, anchors: 8400 };
    let letterbox = Letterbox::fit(SizePx::new(640, 640), SizePx::new(640, 640));
    let mut detector = Detector::new(thresholds, &names).unwrap();
    let mut detections = Vec::new();
    let start = Instant::now();
    detector.detect(candidates, &letterbox, &layout, &mut detections);
    (detections.len(), start.elapsed())
}

#[test]
fn time_is_bounded_and_quiet_returns() {
    // An unoptimised build on a busy machine: generous, and still far below the seconds of the field case.
    let limit = Duration::from_millis(500);
    let over_all = Thresholds { over_all_classes: true, ..Thresholds::default() };
    // Far apart and of one class (every box is kept), all alike (one is kept), spread over the classes.
    for (classes, side_px, thresholds, kept) in [
        (1, 3.0, Thresholds::default(), 300),
        (1, 30.0, Thresholds::default(), 300),
        (80, 30.0, over_all, 300),
        (80, 30.0, Thresholds::default(), 300),
    ] {
        let (found, time) = detect(&flood(classes, side_px), &thresholds);
        assert_eq!(found, kept);
        assert!(time < limit, "{time:?}");
    }
    // The worst case: nearly 300 kept boxes and thousands that each overlap only the last of them.
    let mut worst = flood(1, 3.0);
    for candidate in &mut worst.boxes[299..] {
        candidate.edges = BoxPx::new(0.0, 0.0, 3.0, 3.0);
    }
    let (found, time) = detect(&worst, &Thresholds::default());
    assert_eq!(found, 299);
    assert!(time < limit, "{time:?}");
    assert_eq!(detect(&Candidates::default(), &Thresholds::default()).0, 0);
}
