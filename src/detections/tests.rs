use super::*;
use crate::engine::{Candidate, Candidates, Layout, Letterbox};
use crate::units::SizePx;
use proptest::prelude::*;

fn names(count: usize) -> Vec<String> {
    (0..count).map(|class| format!("c{class}")).collect()
}

fn layout(classes: u32) -> Layout {
    Layout::Raw { output: "output0".into(), classes, anchors: 8400 }
}

fn same_size() -> Letterbox {
    Letterbox::fit(SizePx::new(640, 640), SizePx::new(640, 640))
}

fn sorted(mut boxes: Vec<Candidate>) -> Candidates {
    boxes.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.anchor.cmp(&b.anchor)));
    Candidates { boxes, overflow: 0 }
}

fn candidate(class_id: u32, score: f32, edges: [f32; 4]) -> Candidate {
    Candidate { anchor: 0, class_id, score, edges: edges.into() }
}

fn detect(thresholds: &Thresholds, classes: usize, candidates: &Candidates) -> Vec<Detection> {
    let mut detections = Vec::new();
    let mut detector = Detector::new(thresholds, &names(classes)).unwrap();
    detector.detect(candidates, &same_size(), &layout(classes as u32), &mut detections);
    detections
}

/// `nms` of the reference program, line by line: boxes moved apart by class, greedy, the highest first.
fn reference_nms(candidates: &Candidates, iou: f64, most: usize) -> Vec<usize> {
    let boxes: Vec<[f64; 4]> = candidates
        .boxes
        .iter()
        .map(|candidate| {
            <[f32; 4]>::from(candidate.edges).map(|edge| f64::from(edge) + f64::from(candidate.class_id) * 7680.0)
        })
        .collect();
    let area = |b: &[f64; 4]| (b[2] - b[0]) * (b[3] - b[1]);
    let mut order: Vec<usize> = (0..boxes.len()).collect();
    let mut keep = Vec::new();
    while !order.is_empty() {
        let best = order.remove(0);
        keep.push(best);
        let a = boxes[best];
        order.retain(|&other| {
            let b = boxes[other];
            let width = (a[2].min(b[2]) - a[0].max(b[0])).max(0.0);
            let height = (a[3].min(b[3]) - a[1].max(b[1])).max(0.0);
            let inter = width * height;
            inter / (area(&a) + area(&b) - inter + 1e-9) <= iou
        });
    }
    keep.truncate(most);
    keep
}

fn some_candidates() -> impl Strategy<Value = Candidates> {
    let one = (0_u32..3, 0.25_f32..1.0, 0.0_f32..100.0, 0.0_f32..100.0, 1.0_f32..60.0, 1.0_f32..60.0);
    prop::collection::vec(one, 0..120).prop_map(|boxes| {
        let boxes = boxes.into_iter().enumerate().map(|(anchor, (class_id, score, left, top, wide, high))| Candidate {
            anchor: anchor as u32,
            class_id,
            score,
            edges: BoxPx::new(left, top, left + wide, top + high),
        });
        sorted(boxes.collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_same_boxes_as_the_reference(candidates in some_candidates(), percent in 0_u32..100, boxes in 1_u32..40) {
        let thresholds = Thresholds { iou: percent as f32 / 100.0, boxes, ..Thresholds::default() };
        let expected: Vec<(u32, f32, BoxPx)> = reference_nms(&candidates, f64::from(percent) / 100.0, boxes as usize)
            .into_iter()
            .map(|at| (candidates.boxes[at].class_id, candidates.boxes[at].score, candidates.boxes[at].edges))
            .collect();
        let found: Vec<(u32, f32, BoxPx)> = detect(&thresholds, 3, &candidates)
            .into_iter()
            .map(|detection| (detection.class_id, detection.score, detection.unclipped))
            .collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn nms_twice_is_nms_once(candidates in some_candidates(), over_all_classes: bool) {
        let thresholds = Thresholds { over_all_classes, ..Thresholds::default() };
        let once = detect(&thresholds, 3, &candidates);
        let again = once.iter().enumerate().map(|(anchor, detection)| Candidate {
            anchor: anchor as u32,
            class_id: detection.class_id,
            score: detection.score,
            edges: detection.unclipped,
        });
        prop_assert_eq!(&detect(&thresholds, 3, &sorted(again.collect())), &once);
    }

    #[test]
    fn overlap_is_symmetric_and_bounded(a: [i16; 4], b: [i16; 4]) {
        let edges = |[x0, y0, x1, y1]: [i16; 4]| {
            BoxPx::new(x0.min(x1).into(), y0.min(y1).into(), x0.max(x1).into(), y0.max(y1).into())
        };
        let (a, b) = (edges(a), edges(b));
        prop_assert_eq!(a.iou(&b), b.iou(&a));
        prop_assert!((0.0..=1.0001).contains(&a.iou(&b)));
        if a.area_px2() > 0.0 {
            prop_assert!((a.iou(&a) - 1.0).abs() < 1e-5);
        }
    }
}

#[test]
fn classes_do_not_suppress_each_other_unless_asked() {
    let candidates = sorted(vec![
        candidate(0, 0.9, [10.0, 10.0, 50.0, 50.0]),
        candidate(1, 0.8, [10.0, 10.0, 50.0, 50.0]),
        candidate(0, 0.7, [11.0, 10.0, 50.0, 50.0]),
    ]);
    assert_eq!(detect(&Thresholds::default(), 2, &candidates).len(), 2);
    let over_all = Thresholds { over_all_classes: true, ..Thresholds::default() };
    assert_eq!(detect(&over_all, 2, &candidates).len(), 1);
}

#[test]
fn end_to_end_boxes_are_left_alone() {
    let candidates =
        sorted(vec![candidate(0, 0.9, [10.0, 10.0, 50.0, 50.0]), candidate(0, 0.8, [10.0, 10.0, 50.0, 50.0])]);
    let layout = Layout::EndToEnd { output: "output0".into(), classes: 1, rows: 300 };
    let mut detections = Vec::new();
    let mut detector = Detector::new(&Thresholds::default(), &names(1)).unwrap();
    detector.detect(&candidates, &same_size(), &layout, &mut detections);
    assert_eq!(detections.len(), 2);
}

#[test]
fn thresholds_by_class_and_their_errors() {
    let mut thresholds = Thresholds { score: 0.5, ..Thresholds::default() };
    thresholds.score_by_class.insert("c1".into(), 0.3);
    let candidates = sorted(vec![
        candidate(0, 0.4, [0.0, 0.0, 9.0, 9.0]),
        candidate(1, 0.4, [20.0, 0.0, 29.0, 9.0]),
        candidate(1, 0.2, [40.0, 0.0, 49.0, 9.0]),
        candidate(9, 0.9, [60.0, 0.0, 69.0, 9.0]),
    ]);
    let found = detect(&thresholds, 2, &candidates);
    assert_eq!(found.iter().map(|detection| detection.class_id).collect::<Vec<_>>(), [1]);
    thresholds.score_by_class.insert("no such class".into(), 0.3);
    let error = Detector::new(&thresholds, &names(2)).unwrap_err();
    assert!(error.to_string().contains("no such class"), "{error}");
    for bad in [-0.1, 1.1, f32::NAN] {
        assert!(Detector::new(&Thresholds { iou: bad, ..Thresholds::default() }, &names(1)).is_err(), "{bad}");
        assert!(Detector::new(&Thresholds { score: bad, ..Thresholds::default() }, &names(1)).is_err(), "{bad}");
    }
}

#[test]
fn boxes_are_clipped_and_remembered_whole() {
    let candidates = sorted(vec![candidate(0, 0.9, [-5.0, 100.0, 700.0, 650.0])]);
    let found = detect(&Thresholds::default(), 1, &candidates);
    assert_eq!(found[0].edges, BoxPx::new(0.0, 100.0, 640.0, 640.0));
    assert_eq!(found[0].unclipped, BoxPx::new(-5.0, 100.0, 700.0, 650.0));
}

#[test]
fn counts_are_capped_before_and_after() {
    let row = |at: usize| candidate(0, 0.9 - at as f32 / 1000.0, [at as f32 * 10.0, 0.0, at as f32 * 10.0 + 8.0, 9.0]);
    let candidates = sorted((0..60).map(row).collect());
    let capped = Thresholds { candidates_before_nms: 7, ..Thresholds::default() };
    assert_eq!(detect(&capped, 1, &candidates).len(), 7);
    let capped = Thresholds { boxes: 5, ..Thresholds::default() };
    assert_eq!(detect(&capped, 1, &candidates).len(), 5);
    let none = Thresholds { boxes: 0, ..Thresholds::default() };
    assert!(detect(&none, 1, &candidates).is_empty());
}

#[test]
fn nothing_that_is_no_number_comes_through() {
    let candidates = Candidates {
        boxes: vec![
            candidate(0, f32::NAN, [0.0, 0.0, 9.0, 9.0]),
            candidate(0, 0.9, [f32::NAN, 0.0, 9.0, 9.0]),
            candidate(0, 0.9, [0.0, 0.0, f32::INFINITY, 9.0]),
        ],
        overflow: 0,
    };
    assert!(detect(&Thresholds::default(), 1, &candidates).is_empty());
}
