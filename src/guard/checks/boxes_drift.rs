//! Boxes that move although nothing in the picture does.
//!
//! A picture that was seen before to the byte must have the boxes it had. A scene that stands still under a sensor's noise
//! is judged by averages over a few frames, because noise moves single boxes a little.

use super::{About, Advice, Check, NOT_LIVE, SetUp, Setup};
use crate::detections::Detection;
use crate::error::Result;
use crate::guard::gallery::keep;
use crate::guard::picture::VIEW_CELLS;
use crate::guard::{Observation, Reason, Severity, Side};
use crate::units::{BoxPx, SizePx, float64};
use std::collections::VecDeque;

/// What people need to know of it.
pub(super) const ABOUT: About = About {
    reason: Reason::BoxesDrift,
    severity: Severity::Soft,
    side: Side::Engine,
    compares: "the edges of boxes with those on the same picture, or on the same still scene, before: the median box",
    limits: &["drift_px", "drift_frames", "still_luma"],
    off_when: "the source is not live",
    english: Advice {
        seen: "Boxes move although the picture does not.",
        what_to_do: "Have the parts checked by hand; if it stays, restart the program and call service.",
    },
    chinese: Advice {
        seen: "画面静止而检测框移动。",
        what_to_do: "请人工检查零件；若持续出现，请重启程序并联系维护人员。",
    },
};

/// Pictures remembered by their hash.
const REMEMBERED: usize = 8;
/// Boxes followed in a still scene.
const FOLLOWED: usize = 64;
/// Share of the frames in which a box must be seen to count.
const SEEN_SHARE: f64 = 0.8;
/// The limit holds for pictures up to this size and grows in proportion beyond.
const BASE_SIDE_PX: f64 = 640.0;

/// Sums over a few frames.
#[derive(Debug)]
struct Average {
    frames: u64,
    size: SizePx,
    cells: Box<[u32; VIEW_CELLS]>,
    boxes: Vec<Followed>,
}

#[derive(Debug, Clone)]
struct Followed {
    first: Detection,
    sums: [f64; 4],
    frames: u64,
}

impl Followed {
    fn edges(&self) -> [f64; 4] {
        self.sums.map(|sum| sum / float64(self.frames))
    }
}

impl Average {
    fn new() -> Self {
        let boxes = Vec::with_capacity(FOLLOWED);
        Average { frames: 0, size: SizePx::new(0, 0), cells: Box::new([0; VIEW_CELLS]), boxes }
    }

    fn clear(&mut self) {
        self.frames = 0;
        self.cells.fill(0);
        self.boxes.clear();
    }

    fn add(&mut self, size: SizePx, cells: &[u16; VIEW_CELLS], boxes: &[Detection]) {
        if self.frames > 0 && self.size != size {
            self.clear();
        }
        self.size = size;
        for (sum, cell) in self.cells.iter_mut().zip(cells) {
            *sum += u32::from(*cell);
        }
        if self.frames == 0 {
            let followed = |found: &Detection| Followed { first: found.clone(), sums: [0.0; 4], frames: 0 };
            self.boxes.extend(boxes.iter().take(FOLLOWED).map(followed));
        }
        self.frames += 1;
        for followed in &mut self.boxes {
            if let Some(twin) = nearest(&followed.first, boxes) {
                followed.frames += 1;
                for (sum, edge) in followed.sums.iter_mut().zip(edges(&twin.edges)) {
                    *sum += edge;
                }
            }
        }
    }

    /// Whether no cell of the two scenes differs by more than `luma`.
    fn shows_the_same(&self, other: &Average, luma: f64) -> bool {
        let mean = |average: &Average, cell: usize| f64::from(average.cells[cell]) / float64(average.frames) / 64.0;
        self.size == other.size && (0..VIEW_CELLS).all(|cell| (mean(self, cell) - mean(other, cell)).abs() <= luma)
    }

    fn reliable(&self) -> impl Iterator<Item = &Followed> {
        let least = SEEN_SHARE * float64(self.frames);
        self.boxes.iter().filter(move |followed| float64(followed.frames) >= least)
    }
}

#[derive(Debug)]
struct BoxesDrift {
    limit_px: f64,
    frames: f64,
    still_luma: f64,
    lately: VecDeque<(u64, Vec<Detection>)>,
    anchor: Average,
    present: Average,
    apart: Vec<f64>,
    drifted: bool,
}

pub(super) fn set_up(setup: &Setup<'_>) -> Result<SetUp> {
    if !setup.traits.live {
        return SetUp::off(NOT_LIVE);
    }
    let limits = setup.limits;
    SetUp::on(BoxesDrift {
        limit_px: limits.drift_px,
        frames: limits.drift_frames.max(1.0),
        still_luma: limits.still_luma,
        lately: VecDeque::with_capacity(REMEMBERED + 1),
        anchor: Average::new(),
        present: Average::new(),
        apart: Vec::with_capacity(FOLLOWED),
        drifted: false,
    })
}

impl BoxesDrift {
    /// Against the boxes that this very picture had before.
    fn differs_on_the_same_picture(&mut self, hash: u64, boxes: &[Detection], limit_px: f64) -> bool {
        let Some((_, before)) = self.lately.iter().find(|(known, _)| *known == hash) else {
            let mut room = if self.lately.len() < REMEMBERED { None } else { self.lately.pop_front() }
                .map_or_else(|| Vec::with_capacity(FOLLOWED), |(_, room)| room);
            keep(&mut room, boxes);
            self.lately.push_back((hash, room));
            return false;
        };
        self.apart.clear();
        let twins = before.iter().filter_map(|found| Some((found, nearest(found, boxes)?)));
        self.apart.extend(twins.map(|(found, twin)| distance_px(edges(&found.edges), edges(&twin.edges))));
        median(&mut self.apart).is_some_and(|apart| apart >= limit_px)
    }

    /// At the end of a block of frames: against the first block of the same still scene.
    fn look_at_block(&mut self, limit_px: f64) {
        let same = self.anchor.frames > 0 && self.present.shows_the_same(&self.anchor, self.still_luma);
        if same {
            self.apart.clear();
            for before in self.anchor.reliable() {
                let same_box = |now: &&Followed| is_near(&before.first, &now.first);
                let twins = self.present.reliable().filter(same_box);
                let distances = twins.map(|now| distance_px(before.edges(), now.edges()));
                self.apart.extend(distances.min_by(f64::total_cmp));
            }
            self.drifted = median(&mut self.apart).is_some_and(|apart| apart >= limit_px);
        } else {
            self.drifted = false;
            std::mem::swap(&mut self.anchor, &mut self.present);
        }
        self.present.clear();
    }
}

impl Check for BoxesDrift {
    fn reason(&self) -> Reason {
        Reason::BoxesDrift
    }

    fn fires(&mut self, seen: &Observation<'_>) -> bool {
        let (Some(answer), Some(stats)) = (seen.answer, seen.stats()) else { return false };
        let longer_side = f64::from(stats.size.width_px.max(stats.size.height_px));
        let limit_px = self.limit_px * (longer_side / BASE_SIDE_PX).max(1.0);
        self.present.add(stats.size, &stats.view_64ths, answer.detections);
        if float64(self.present.frames) >= self.frames {
            self.look_at_block(limit_px);
        }
        self.differs_on_the_same_picture(stats.hash, answer.detections, limit_px) || self.drifted
    }
}

fn edges(edges: &BoxPx) -> [f64; 4] {
    let edges: [f32; 4] = (*edges).into();
    edges.map(f64::from)
}

fn distance_px(one: [f64; 4], other: [f64; 4]) -> f64 {
    one.iter().zip(other).map(|(left, right)| (left - right).abs()).fold(0.0, f64::max)
}

fn center(found: &Detection) -> (f32, f32) {
    let edges = &found.edges;
    (edges.left_px.midpoint(edges.right_px), edges.top_px.midpoint(edges.bottom_px))
}

fn apart_px(one: &Detection, other: &Detection) -> f32 {
    let ((x, y), (other_x, other_y)) = (center(one), center(other));
    (x - other_x).abs().max((y - other_y).abs())
}

/// Whether the two may be the same object: one class, and no farther apart than its longer edge.
fn is_near(one: &Detection, other: &Detection) -> bool {
    one.class_id == other.class_id && apart_px(one, other) <= one.edges.width_px().max(one.edges.height_px())
}

fn nearest<'a>(wanted: &Detection, boxes: &'a [Detection]) -> Option<&'a Detection> {
    let near = boxes.iter().filter(|other| is_near(wanted, other));
    near.min_by(|left, right| apart_px(wanted, left).total_cmp(&apart_px(wanted, right)))
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    // The lower of the two in the middle: half of the boxes alone is not the scene.
    values.get(values.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Trust;
    use crate::guard::fixture::{Scene, Stream, boxes, live, moved, noisy_scene};

    /// Boxes with the jitter that noise brings.
    fn jittered(number: u64, across: f32) -> Vec<Detection> {
        let jitter = [0.3, -0.2, 0.0, 0.4, -0.4, 0.1][usize::try_from(number % 6).unwrap()];
        moved(boxes(4, 0.8), across + jitter, jitter)
    }

    fn first_seen(stream: &mut Stream, frames: u64, across: impl Fn(u64) -> f32) -> Option<u64> {
        (0..frames)
            .find(|&number| stream.see_boxes(&jittered(number, across(number))).reasons.contains(&Reason::BoxesDrift))
    }

    #[test]
    fn a_drift_of_1_px_on_a_still_scene_is_seen_at_once_and_slowly_too() {
        for drift in [1.2_f32, 3.0, 10.0] {
            let mut stream = Scene::with_reference().stream(live());
            assert_eq!(first_seen(&mut stream, 100, |_| 0.0), None);
            let seen = first_seen(&mut stream, 60, |_| drift).unwrap();
            assert!(seen < 20, "{drift}: {seen}");
            assert_eq!(first_seen(&mut stream, 1, |_| drift), Some(0), "it stays while the drift does");
        }
        let mut stream = Scene::with_reference().stream(live());
        let slow = first_seen(&mut stream, 1000, |number| number as f32 * 0.005).unwrap();
        assert!((200..300).contains(&slow), "{slow}");
    }

    #[test]
    fn jitter_moving_parts_and_another_scene_are_not() {
        let mut stream = Scene::with_reference().stream(live());
        assert_eq!(first_seen(&mut stream, 500, |_| 0.0), None);
        // A part moves through the picture with its boxes.
        for number in 0..200_u16 {
            let verdict = stream.see(|frame| {
                let left = usize::from(number) * 2;
                let stride = frame.picture.stride_bytes;
                for y in 200..280 {
                    frame.picture.pixels.as_mut_slice()[y * stride + 3 * left..][..3 * 120].fill(230);
                }
                frame.boxes = moved(boxes(1, 0.8), f32::from(number) * 2.0, 200.0);
            });
            assert!(!verdict.reasons.contains(&Reason::BoxesDrift), "{number}");
        }
        assert_eq!(first_seen(&mut stream, 100, |_| 40.0), None, "after another scene the measure is new");
    }

    #[test]
    fn the_same_picture_must_have_the_same_boxes() {
        let mut scene = Scene::with_reference();
        scene.spec.off.push(Reason::Frozen);
        let mut stream = scene.stream(live());
        let mut see = |number: u64, boxes: Vec<Detection>| {
            stream.see(|frame| {
                frame.picture = noisy_scene(crate::guard::fixture::SIZE, 77 + number, 3);
                frame.boxes = boxes;
            })
        };
        see(0, boxes(4, 0.8));
        see(1, moved(boxes(3, 0.8), 200.0, 90.0));
        assert_eq!(see(0, moved(boxes(4, 0.8), 0.9, 0.0)).trust, Trust::Trusted);
        assert_eq!(see(0, moved(boxes(4, 0.8), 1.0, 0.0)).reasons, [Reason::BoxesDrift]);
        assert_eq!(see(1, moved(boxes(3, 0.8), 200.0, 90.0)).trust, Trust::Trusted);
    }
}
