//! Scenes and streams for the tests of the guard.

use super::picture::PictureStats;
use super::reference::ReferenceBuilder;
use super::{Answer, Gallery, Guard, GuardSpec, Home, Observation, Reference, Seen, StreamTraits, Verdict};
use crate::detections::Detection;
use crate::engine::OutputStats;
use crate::frame::{FrameTag, Picture};
use crate::units::{BoxPx, SizePx, count32, float, index};
use std::ops::Range;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

pub(super) const SIZE: SizePx = SizePx::new(640, 480);

pub(super) fn live() -> StreamTraits {
    StreamTraits { live: true, related_frames: true, triggered: false }
}

pub(super) fn unrelated() -> StreamTraits {
    StreamTraits { live: false, related_frames: false, triggered: false }
}

/// An RGB picture of gray pixels.
pub(super) fn gray(size: SizePx, luma: impl Fn(usize, usize) -> u8) -> Picture {
    let (width, height) = (index(size.width_px), index(size.height_px));
    let mut pixels = vec![0; 3 * width * height];
    for (y, row) in pixels.chunks_exact_mut(3 * width).enumerate() {
        for (x, pixel) in row.chunks_exact_mut(3).enumerate() {
            pixel.fill(luma(x, y));
        }
    }
    Picture::rgb(size, pixels)
}

fn scramble(value: u64) -> usize {
    let mut hash = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    usize::try_from(hash >> 33).unwrap()
}

fn scene_luma(x: usize, y: usize, size: SizePx) -> u8 {
    let (width, height) = (index(size.width_px), index(size.height_px));
    let (across, down) = (x * 640 / width, y * 480 / height);
    let rails = if (40..70).contains(&down) || (410..440).contains(&down) { 60 } else { 0 };
    let posts = if across % 160 < 30 { 40 } else { 0 };
    let texture = if (across / 6 + down / 6).is_multiple_of(2) { 12 } else { 0 };
    70 + rails + posts + texture
}

/// A fixed scene (rails, posts, texture) with sensor noise of up to ±`amplitude`.
pub(super) fn noisy_scene(size: SizePx, seed: u64, amplitude: u8) -> Picture {
    static NOISE: LazyLock<Vec<u8>> = LazyLock::new(|| (0..8192).map(|n| scramble(n).to_le_bytes()[0]).collect());
    static PLAIN: LazyLock<Picture> = LazyLock::new(|| gray(SIZE, |x, y| scene_luma(x, y, SIZE)));
    let (width, height) = (index(size.width_px), index(size.height_px));
    let mut pixels = if size == SIZE {
        PLAIN.pixels.as_slice().to_vec()
    } else {
        gray(size, |x, y| scene_luma(x, y, size)).pixels.as_slice().to_vec()
    };
    let noise = NOISE.as_slice();
    for y in 0..height {
        let offset = scramble(seed << 16 | crate::units::count(y)) % 4096;
        for x in 0..width {
            let value = noise[(offset + x) % 8192] % (2 * amplitude + 1);
            for byte in &mut pixels[3 * (y * width + x)..3 * (y * width + x) + 3] {
                *byte = *byte + value - amplitude;
            }
        }
    }
    Picture::rgb(size, pixels)
}

/// `count` boxes of class 0, 30 × 30 px, inside the picture.
pub(super) fn boxes(count: usize, score: f32) -> Vec<Detection> {
    let corner = |number: usize| float(count32(number % 20)) * 30.0;
    (0..count)
        .map(|number| {
            let edges = BoxPx::new(10.0 + corner(number), 15.0, 40.0 + corner(number), 45.0);
            Detection { class_id: 0, score, edges, unclipped: edges }
        })
        .collect()
}

/// The same boxes elsewhere.
pub(super) fn moved(mut boxes: Vec<Detection>, across_px: f32, down_px: f32) -> Vec<Detection> {
    for found in &mut boxes {
        let [left, top, right, bottom]: [f32; 4] = found.edges.into();
        found.edges = BoxPx::new(left + across_px, top + down_px, right + across_px, bottom + down_px);
        found.unclipped = found.edges;
    }
    boxes
}

fn reference() -> Reference {
    let mut builder = ReferenceBuilder::new();
    for number in 0..40_u16 {
        let stats = PictureStats::measure(&noisy_scene(SIZE, u64::from(number), 3));
        let score = 0.5 + 0.45 * f32::from(number) / 39.0;
        builder.add(&stats, &boxes(2 + usize::from(number % 5), score), SIZE);
    }
    builder.finish()
}

/// What a guard is made from.
pub(super) struct Scene {
    pub(super) spec: GuardSpec,
}

impl Scene {
    /// A reference of 40 pictures of the fixed scene with 2 to 6 boxes of score 0.5 to 0.95.
    pub(super) fn with_reference() -> Self {
        static REFERENCE: LazyLock<Reference> = LazyLock::new(reference);
        Scene { spec: GuardSpec { reference: Some(REFERENCE.clone()), ..GuardSpec::default() } }
    }

    pub(super) fn without_reference() -> Self {
        Scene { spec: GuardSpec::default() }
    }

    pub(super) fn stream(&self, traits: StreamTraits) -> Stream {
        self.stream_of(traits, Home::alone())
    }

    /// One of several streams.
    pub(super) fn stream_at(&self, traits: StreamTraits, lane: usize, gallery: &Arc<Gallery>) -> Stream {
        self.stream_of(traits, Home { lane, gallery: Arc::clone(gallery), ..Home::alone() })
    }

    pub(super) fn stream_of(&self, traits: StreamTraits, home: Home) -> Stream {
        let classes = ["part".to_owned(), "scratch".to_owned()];
        Stream {
            guard: Guard::at(&self.spec, &classes, traits, home).unwrap(),
            number: 0,
            gap_ms: 33,
            arrived: Instant::now(),
            last: noisy_scene(SIZE, 5_000, 3),
        }
    }
}

/// A stream of frames with its guard.
pub(super) struct Stream {
    pub(super) guard: Guard,
    pub(super) number: u64,
    pub(super) gap_ms: u64,
    arrived: Instant,
    last: Picture,
}

/// One frame that a test may spoil.
pub(super) struct TestFrame {
    pub(super) picture: Picture,
    pub(super) boxes: Vec<Detection>,
    pub(super) output: OutputStats,
    pub(super) answered: FrameTag,
    pub(super) engine_failed: bool,
    pub(super) raw_layout: bool,
    pub(super) echo_differs: bool,
}

impl Stream {
    /// Judges a clean frame.
    pub(super) fn clean(&mut self) -> Verdict {
        self.see(|_| {})
    }

    /// Judges a frame that `spoil` has changed.
    pub(super) fn see(&mut self, spoil: impl FnOnce(&mut TestFrame)) -> Verdict {
        self.number += 1;
        self.arrived += Duration::from_millis(self.gap_ms);
        let tag = FrameTag { stream: "cam0".into(), number: self.number };
        let mut frame = TestFrame {
            picture: noisy_scene(SIZE, 10_000 + self.number, 3),
            boxes: boxes(4, 0.8),
            output: OutputStats { values: 84 * 8400, maximum_score: 0.8, ..OutputStats::default() },
            answered: tag.clone(),
            engine_failed: false,
            raw_layout: true,
            echo_differs: false,
        };
        spoil(&mut frame);
        let stats = PictureStats::measure(&frame.picture);
        let answer = Answer {
            tag: &frame.answered,
            stats: &frame.output,
            detections: &frame.boxes,
            all_zero_is_fault: frame.raw_layout,
            most_boxes: 300,
            echo_differs: frame.echo_differs,
        };
        let verdict = self.guard.judge(&Observation {
            tag: &tag,
            arrived: self.arrived,
            picture: Seen::Picture(&stats),
            answer: (!frame.engine_failed).then_some(answer),
        });
        self.last = frame.picture;
        verdict
    }

    /// Judges a frame with these boxes on a picture measured before: quick, for many frames.
    pub(super) fn see_boxes(&mut self, boxes: &[Detection]) -> Verdict {
        static MEASURED: LazyLock<Vec<PictureStats>> =
            LazyLock::new(|| (0..16).map(|seed| PictureStats::measure(&noisy_scene(SIZE, 70_000 + seed, 3))).collect());
        self.number += 1;
        self.arrived += Duration::from_millis(self.gap_ms);
        let tag = FrameTag { stream: "cam0".into(), number: self.number };
        let mut stats = MEASURED[usize::try_from(self.number % 16).unwrap()].clone();
        stats.hash ^= self.number << 8;
        let output = OutputStats { values: 84 * 8400, maximum_score: 0.8, ..OutputStats::default() };
        let answer = Answer {
            tag: &tag,
            stats: &output,
            detections: boxes,
            all_zero_is_fault: true,
            most_boxes: 300,
            echo_differs: false,
        };
        let picture = Seen::Picture(&stats);
        self.guard.judge(&Observation { tag: &tag, arrived: self.arrived, picture, answer: Some(answer) })
    }

    /// Judges a frame without a picture.
    pub(super) fn see_nothing(&mut self, picture: Seen<'_>) -> Verdict {
        self.number += 1;
        let tag = FrameTag { stream: "cam0".into(), number: self.number };
        self.guard.judge(&Observation { tag: &tag, arrived: self.arrived, picture, answer: None })
    }

    /// The pixels of the last frame.
    pub(super) fn last_picture(&self) -> Vec<u8> {
        self.last.pixels.as_slice().to_vec()
    }
}

impl TestFrame {
    /// Changes the luma of every pixel.
    pub(super) fn recolour(&mut self, luma: impl Fn(f64) -> f64) {
        for byte in self.picture.pixels.as_mut_slice() {
            *byte = u8::try_from(crate::units::round_px(luma(f64::from(*byte)).clamp(0.0, 255.0))).unwrap();
        }
    }

    /// More or less light.
    pub(super) fn light(&mut self, gain: f64) {
        self.recolour(|luma| luma * gain);
    }

    /// A box blur of 2 × `radius_px` + 1, across and down.
    pub(super) fn blur(&mut self, radius_px: usize) {
        let (width, height) = (index(SIZE.width_px), index(SIZE.height_px));
        for down in [false, true] {
            let before = self.picture.pixels.as_slice().to_vec();
            let average = |x: usize, y: usize| {
                let (at, end) = if down { (y, height) } else { (x, width) };
                let range = at.saturating_sub(radius_px)..(at + radius_px + 1).min(end);
                let pixel = |other: usize| {
                    let (x, y) = if down { (x, other) } else { (other, y) };
                    u32::from(before[3 * (y * width + x)])
                };
                u8::try_from(range.clone().map(pixel).sum::<u32>() / count32(range.len())).unwrap()
            };
            self.picture = gray(SIZE, average);
        }
    }

    /// The view after the camera has moved.
    pub(super) fn bump(&mut self, across_px: isize, down_px: isize) {
        let (width, height) = (index(SIZE.width_px), index(SIZE.height_px));
        let before = self.picture.pixels.as_slice().to_vec();
        self.picture = gray(SIZE, |x, y| {
            let x = x.saturating_add_signed(across_px).min(width - 1);
            let y = y.saturating_add_signed(down_px).min(height - 1);
            before[3 * (y * width + x)]
        });
    }

    /// Rows taken from another picture, or all of one value.
    pub(super) fn overwrite_rows(&mut self, rows: Range<usize>, other: &[u8], value: Option<u8>) {
        let stride = self.picture.stride_bytes;
        let bytes = rows.start * stride..rows.end * stride;
        let target = &mut self.picture.pixels.as_mut_slice()[bytes.clone()];
        match value {
            Some(value) => target.fill(value),
            None => target.copy_from_slice(&other[bytes]),
        }
    }
}
