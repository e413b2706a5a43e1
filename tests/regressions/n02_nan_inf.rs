//! N02: NaN and infinity must be a fault, in the raw output and in a box. Comparisons with NaN are false, so depending on
//! its form a threshold lets NaN through (`score < threshold → skip`) or drops it (`score >= threshold → keep`): the guard
//! sees both.

use edge_trt::detections::Detection;
use edge_trt::engine::OutputStats;
use edge_trt::frame::FrameTag;
use edge_trt::guard::{Answer, Guard, GuardSpec, Observation, Reason, Seen, StreamTraits, Trust};
use edge_trt::units::BoxPx;
use std::time::Instant;

fn judge(stats: OutputStats, boxes: &[Detection]) -> (Trust, Vec<Reason>) {
    let traits = StreamTraits { live: false, related_frames: false, triggered: false };
    let mut guard = Guard::new(&GuardSpec::default(), &["part".to_owned()], traits).unwrap();
    let tag = FrameTag { stream: "files".into(), number: 0 };
    let picture = edge_trt::frame::Picture::rgb(edge_trt::units::SizePx::new(64, 64), vec![120; 64 * 64 * 3]);
    let measured = edge_trt::guard::picture::PictureStats::measure(&picture);
    let answer = Answer {
        tag: &tag,
        stats: &stats,
        detections: boxes,
        all_zero_is_fault: true,
        most_boxes: 300,
        echo_differs: false,
    };
    let picture = Seen::Picture(&measured);
    let verdict = guard.judge(&Observation { tag: &tag, arrived: Instant::now(), picture, answer: Some(answer) });
    (verdict.trust, verdict.reasons)
}

fn found(score: f32, width_px: f32) -> Detection {
    let edges = BoxPx::new(5.0, 5.0, 5.0 + width_px, 30.0);
    Detection { class_id: 0, score, edges, unclipped: edges }
}

#[test]
fn dropped_by_the_threshold_but_counted_in_the_output() {
    let healthy = OutputStats { values: 1000, ..OutputStats::default() };
    assert_eq!(judge(healthy, &[found(0.9, 20.0)]), (Trust::Trusted, vec![]));
    assert_eq!(judge(OutputStats { nan: 1, ..healthy }, &[]), (Trust::Fault, vec![Reason::Nan]));
    assert_eq!(judge(OutputStats { infinite: 1, ..healthy }, &[]), (Trust::Fault, vec![Reason::Infinite]));
}

#[test]
fn let_through_by_the_threshold_inside_a_box() {
    let healthy = OutputStats { values: 1000, ..OutputStats::default() };
    assert_eq!(judge(healthy, &[found(f32::NAN, 20.0)]).1, [Reason::Nan]);
    assert_eq!(judge(healthy, &[found(0.9, f32::INFINITY)]).1, [Reason::Infinite]);
}
