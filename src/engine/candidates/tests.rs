use super::*;
use proptest::prelude::*;

const FLOOR: f32 = 0.25;

fn raw_layout(classes: u32, anchors: u32) -> Layout {
    Layout::Raw { output: "output0".into(), classes, anchors }
}

fn wanted(cap: usize) -> Wanted {
    Wanted { picture: 0, floor: FLOOR, cap }
}

fn run(values: &[f32], shape: &[usize], layout: &Layout, cap: usize) -> (Candidates, OutputStats) {
    let tensor = RawTensor { name: "output0", shape, elements: Elements::F32(values) };
    let mut candidates = Candidates::default();
    let stats = extract(&[tensor], layout, wanted(cap), &mut Scratch::default(), &mut candidates).unwrap();
    (candidates, stats)
}

/// Raw output with the given `[cx, cy, w, h, score, class]` anchors, the rest zero.
fn raw(classes: usize, anchors: usize, boxes: &[[f32; 6]]) -> Vec<f32> {
    let mut values = vec![0.0; (4 + classes) * anchors];
    for (anchor, fields) in boxes.iter().enumerate() {
        for (row, &field) in fields[..4].iter().enumerate() {
            values[row * anchors + anchor] = field;
        }
        values[(4 + fields[5] as usize) * anchors + anchor] = fields[4];
    }
    values
}

/// Anchor by anchor, everything spelled out.
fn naive_raw(values: &[f32], classes: usize, anchors: usize) -> (Vec<Candidate>, OutputStats) {
    let at = |row: usize, anchor: usize| values[row * anchors + anchor];
    let mut stats = OutputStats { values: count(values.len()), all_zero: true, ..OutputStats::default() };
    let mut boxes = Vec::new();
    let mut scores = Vec::new();
    for &value in values {
        stats.nan += u64::from(value.is_nan());
        stats.infinite += u64::from(value.is_infinite());
        stats.all_zero &= value == 0.0;
    }
    for anchor in 0..anchors {
        let mut best = (0, f32::NEG_INFINITY);
        for class in 0..classes {
            let score = at(4 + class, anchor);
            stats.scores_out_of_range += u64::from(!(0.0..=1.0).contains(&score) && !score.is_nan());
            if score > best.1 {
                best = (class, score);
            }
        }
        if best.1.is_finite() {
            scores.push(best.1);
        }
        if best.1.is_finite() && best.1 >= FLOOR {
            stats.boxes_before_nms += 1;
            let edges = centred([at(0, anchor), at(1, anchor), at(2, anchor), at(3, anchor)]);
            if edges.is_finite() {
                boxes.push(Candidate { anchor: anchor as u32, class_id: best.0 as u32, score: best.1, edges });
            }
        }
    }
    stats.minimum_score = scores.iter().copied().reduce(f32::min).unwrap_or(0.0);
    stats.maximum_score = scores.iter().copied().reduce(f32::max).unwrap_or(0.0);
    let sum: f64 = scores.iter().copied().map(f64::from).sum();
    stats.mean_score = if scores.is_empty() { 0.0 } else { (sum / scores.len() as f64) as f32 };
    boxes.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.anchor.cmp(&b.anchor)));
    (boxes, stats)
}

fn any_value() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => 0.0_f32..1.0,
        2 => Just(0.0_f32),
        1 => Just(-0.0_f32),
        1 => Just(1.0_f32),
        1 => -10.0_f32..700.0,
        1 => Just(f32::NAN),
        1 => Just(-f32::NAN),
        1 => Just(f32::INFINITY),
        1 => Just(f32::NEG_INFINITY),
        1 => Just(f32::MIN_POSITIVE / 2.0),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn fast_equals_naive((classes, anchors, values) in (1_usize..5, 1_usize..1100).prop_flat_map(|(classes, anchors)| {
        let length = (4 + classes) * anchors;
        (Just(classes), Just(anchors), prop::collection::vec(any_value(), length))
    })) {
        let layout = raw_layout(classes as u32, anchors as u32);
        let (candidates, stats) = run(&values, &[1, 4 + classes, anchors], &layout, CAP);
        let (boxes, expected) = naive_raw(&values, classes, anchors);
        prop_assert_eq!(candidates.boxes, boxes);
        prop_assert_eq!(stats, expected);
    }
}

#[test]
fn a_clean_output_gives_its_box_and_clean_counts() {
    let values = raw(80, 8400, &[[320.0, 320.0, 100.0, 60.0, 0.9, 17.0]]);
    let (candidates, stats) = run(&values, &[1, 84, 8400], &raw_layout(80, 8400), CAP);
    let edges = BoxPx::new(270.0, 290.0, 370.0, 350.0);
    assert_eq!(candidates.boxes, [Candidate { anchor: 0, class_id: 17, score: 0.9, edges }]);
    assert_eq!((stats.nan, stats.infinite, stats.scores_out_of_range, stats.all_zero), (0, 0, 0, false));
    assert_eq!(stats.values, 84 * 8400);
    assert_eq!(stats.maximum_score, 0.9);
}

#[test]
fn not_a_number_is_counted_and_never_becomes_a_box() {
    let mut values = raw(3, 10, &[[5.0, 5.0, 2.0, 2.0, 0.9, 0.0]]);
    for class in 0..3 {
        values[(4 + class) * 10 + 7] = f32::NAN;
    }
    values[2 * 10 + 3] = f32::INFINITY;
    values[4 * 10 + 3] = 0.9;
    let (candidates, stats) = run(&values, &[1, 7, 10], &raw_layout(3, 10), CAP);
    assert_eq!((stats.nan, stats.infinite), (3, 1));
    assert_eq!(candidates.boxes.len(), 1);
    assert_eq!(stats.boxes_before_nms, 2);
}

#[test]
fn a_score_of_seven_is_counted_and_still_shown() {
    let values = raw(80, 84, &[[32.0, 32.0, 9.0, 6.0, 7.28, 0.0]]);
    let (candidates, stats) = run(&values, &[1, 84, 84], &raw_layout(80, 84), CAP);
    assert_eq!(stats.scores_out_of_range, 1);
    assert_eq!(candidates.boxes[0].score, 7.28);
}

#[test]
fn zeros_are_seen_even_when_negative() {
    let mut values = raw(2, 9, &[]);
    values[3] = -0.0;
    values[50] = -0.0;
    assert!(run(&values, &[1, 6, 9], &raw_layout(2, 9), CAP).1.all_zero);
    values[50] = 1e-30;
    assert!(!run(&values, &[1, 6, 9], &raw_layout(2, 9), CAP).1.all_zero);
}

#[test]
fn the_cap_keeps_the_highest_and_counts_the_rest() {
    let boxes: Vec<[f32; 6]> =
        (0..100).map(|at| [9.0, 9.0, 2.0, 2.0, 0.3 + (at * 37 % 100) as f32 / 1000.0, 0.0]).collect();
    let values = raw(1, 100, &boxes);
    let (candidates, stats) = run(&values, &[1, 5, 100], &raw_layout(1, 100), 10);
    assert_eq!(candidates.overflow, 90);
    assert_eq!(stats.boxes_before_nms, 100);
    let scores: Vec<f32> = candidates.boxes.iter().map(|candidate| candidate.score).collect();
    assert!(scores.iter().all(|&score| score >= 0.39), "{scores:?}");
    assert!(scores.is_sorted_by(|a, b| a >= b));
}

#[test]
fn objectness_multiplies() {
    let mut values = vec![0.0; 7 * 50];
    values[7 * 3..7 * 4].copy_from_slice(&[20.0, 20.0, 4.0, 4.0, 0.8, 0.1, 0.9]);
    values[7 * 4..7 * 5].copy_from_slice(&[20.0, 20.0, 4.0, 4.0, 0.2, 0.1, 0.9]);
    values[7 * 5..7 * 6].copy_from_slice(&[20.0, 20.0, 4.0, 4.0, f32::NAN, 0.1, 0.9]);
    let layout = Layout::Objectness { output: "output0".into(), classes: 2, anchors: 50 };
    let (candidates, stats) = run(&values, &[1, 50, 7], &layout, CAP);
    assert_eq!(candidates.boxes.len(), 1);
    assert_eq!((candidates.boxes[0].anchor, candidates.boxes[0].class_id), (3, 1));
    assert!((candidates.boxes[0].score - 0.72).abs() < 1e-6);
    assert_eq!((stats.nan, stats.values), (1, 350));
}

#[test]
fn end_to_end_rows_carry_whole_class_ids() {
    let mut values = vec![0.0; 6 * 300];
    values[..6].copy_from_slice(&[10.0, 20.0, 110.0, 220.0, 0.9, 17.0]);
    let layout = Layout::EndToEnd { output: "output0".into(), classes: 80, rows: 300 };
    let (candidates, stats) = run(&values, &[1, 300, 6], &layout, CAP);
    assert_eq!(candidates.boxes[0].edges, BoxPx::new(10.0, 20.0, 110.0, 220.0));
    assert_eq!((stats.class_ids_out_of_range, stats.maximum_score, stats.minimum_score), (0, 0.9, 0.9));
    for bad in [399.01, 80.0, -1.0, 17.5, f32::NAN, f32::INFINITY] {
        values[5] = bad;
        let (candidates, stats) = run(&values, &[1, 300, 6], &layout, CAP);
        assert_eq!((candidates.boxes.len(), stats.class_ids_out_of_range), (0, 1), "{bad}");
    }
}

#[test]
fn the_plugin_tells_how_many_rows_are_valid() {
    let layout = Layout::NmsPlugin {
        count: "n".into(),
        boxes: "b".into(),
        scores: "s".into(),
        class_ids: "c".into(),
        classes: 2,
        rows: 3,
    };
    let boxes: Vec<f32> = (0..12).map(|edge| edge as f32).collect();
    let check = |count: i32, class: i32| {
        let tensors = [
            RawTensor { name: "n", shape: &[1, 1], elements: Elements::I32(&[count]) },
            RawTensor { name: "b", shape: &[1, 3, 4], elements: Elements::F32(&boxes) },
            RawTensor { name: "s", shape: &[1, 3], elements: Elements::F32(&[0.9, 0.8, f32::NAN]) },
            RawTensor { name: "c", shape: &[1, 3], elements: Elements::I32(&[0, class, 77]) },
        ];
        let mut candidates = Candidates::default();
        let stats = extract(&tensors, &layout, wanted(CAP), &mut Scratch::default(), &mut candidates).unwrap();
        (candidates.boxes.len(), stats)
    };
    let (boxes, stats) = check(2, 1);
    assert_eq!((boxes, stats.nan, stats.class_ids_out_of_range, stats.counts_out_of_range), (2, 0, 0, 0));
    assert_eq!(check(2, 5).1.class_ids_out_of_range, 1);
    assert_eq!(check(3, 1).1.nan, 1);
    assert_eq!((check(4, 1).1.counts_out_of_range, check(-1, 1).1.counts_out_of_range), (1, 1));
}

#[test]
fn halves_and_later_pictures_are_read() {
    let first = raw(2, 9, &[]);
    let second = raw(2, 9, &[[5.0, 5.0, 2.0, 2.0, 0.5, 1.0]]);
    let both: Vec<f16> = first.iter().chain(&second).map(|&value| f16::from_f32(value)).collect();
    let tensor = RawTensor { name: "output0", shape: &[2, 6, 9], elements: Elements::F16(&both) };
    let mut candidates = Candidates::default();
    let mut scratch = Scratch::default();
    let mut picture = |picture| {
        let wanted = Wanted { picture, floor: FLOOR, cap: CAP };
        extract(&[tensor], &raw_layout(2, 9), wanted, &mut scratch, &mut candidates).map(|_| candidates.boxes.len())
    };
    assert_eq!(picture(0).unwrap(), 0);
    assert_eq!(picture(1).unwrap(), 1);
    assert!(picture(2).is_err());
}

#[test]
fn other_shapes_and_names_are_refused() {
    let values = raw(2, 9, &[]);
    let extract_as = |name: &'static str, shape: &[usize]| {
        let tensor = RawTensor { name, shape, elements: Elements::F32(&values) };
        let layout = raw_layout(2, 9);
        extract(&[tensor], &layout, wanted(CAP), &mut Scratch::default(), &mut Candidates::default()).is_ok()
    };
    assert!(extract_as("output0", &[1, 6, 9]));
    assert!(!extract_as("output0", &[1, 9, 6]));
    assert!(!extract_as("output0", &[6, 9]));
    assert!(!extract_as("output0", &[2, 6, 9]) || values.len() >= 54);
    assert!(!extract_as("other", &[1, 6, 9]));
}
