//! The kernels against the CPU path, on the GPU of this machine: letterbox of every format, candidates of every layout.
//!
//! Needs a driver, no TensorRT. `edge-run bench --check` runs it.

use super::answers;
use super::load::decode;
use super::stage::Stager;
use crate::engine::candidates::{Elements, RawTensor, Scratch, Wanted, extract};
use crate::engine::letterbox::{Filler, Sample};
use crate::engine::{Candidates, Layout, OutputStats};
use crate::error::Result;
use crate::ffi::cuda::{Budget, Context, Driver, Wait};
use crate::ffi::lane::{Kernels, Lane, LaneLayout, LaneShape};
use crate::ffi::tensorrt::{DataType, TensorFacts};
use crate::frame::{Picture, PixelFormat};
use crate::units::{Bytes, SizePx, index};
use half::f16;
use std::sync::Arc;

/// One comparison.
#[derive(Debug, Clone)]
pub struct CheckLine {
    /// What was compared.
    pub what: String,
    /// What differs; `None` when nothing does.
    pub difference: Option<String>,
}

/// Compares the kernels with the CPU path on GPU `device`.
///
/// # Errors
/// [`crate::ErrorKind::MachineLacks`] without a driver; what the driver reports.
pub fn check_kernels(device: u32) -> Result<Vec<CheckLine>> {
    let context = Context::new(Driver::load()?, device, Wait::Block)?;
    let bench = Bench {
        kernels: Kernels::load(&context, 0, 0)?,
        budget: Budget::new(&context, Bytes::gib(2)),
        random: Random(0x9e37_79b9_7f4a_7c15),
    };
    let mut bench = bench;
    let mut lines = vec![];
    bench.letterboxes(&mut lines)?;
    bench.candidates(&mut lines)?;
    Ok(lines)
}

/// xorshift64*: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// 0 up to but not 1.
    fn share(&mut self) -> f32 {
        (self.bits() >> 8) as f32 / 16_777_216.0
    }

    fn below(&mut self, end: u32) -> u32 {
        self.bits() % end.max(1)
    }
}

struct Bench {
    kernels: Kernels,
    budget: Arc<Budget>,
    random: Random,
}

const FORMATS: [PixelFormat; 6] =
    [PixelFormat::Rgb8, PixelFormat::Bgr8, PixelFormat::Gray8, PixelFormat::Nv12, PixelFormat::Yuyv, PixelFormat::Uyvy];
/// Equal, exact half, shrunk, grown, odd, thin, single pixel, larger than a slot.
const SOURCES: [(u32, u32); 10] =
    [(96, 64), (192, 128), (320, 200), (50, 41), (331, 77), (33, 300), (7, 64), (1, 9), (1, 1), (700, 500)];

fn facts(name: &str, sizes: &[u32], data_type: DataType, input: bool) -> TensorFacts {
    TensorFacts { name: name.to_owned(), sizes: sizes.iter().map(|&size| i64::from(size)).collect(), data_type, input }
}

fn bytes_of(facts: &[TensorFacts]) -> Vec<usize> {
    facts.iter().map(|facts| usize::try_from(facts.bytes().unwrap_or(0)).unwrap_or(0)).collect()
}

impl Bench {
    fn letterboxes(&mut self, lines: &mut Vec<CheckLine>) -> Result<()> {
        let input = SizePx::new(96, 64);
        for (element, data_type) in [(0, DataType::Float), (1, DataType::Half), (2, DataType::Uint8)] {
            for channels in [3, 1] {
                let tensors = [
                    facts("images", &[2, channels, input.height_px, input.width_px], data_type, true),
                    facts("output0", &[2, 6, 10], DataType::Float, false),
                ];
                let shape = LaneShape {
                    batch: 2,
                    channels,
                    width: input.width_px,
                    height: input.height_px,
                    picture_bytes: 700 * 500,
                    anchors: 10,
                    cap: 10,
                    ahead: false,
                };
                let layout = LaneLayout::new(shape, &bytes_of(&tensors), 256, 0)?;
                let arena = self.budget.reserve(layout.end)?;
                let kernels = self.kernels.for_input(0, element);
                let wanted = decode(&Layout::Raw { output: "output0".into(), classes: 2, anchors: 10 });
                let mut lane = Lane::without_network(&tensors, &kernels, &arena, layout, wanted)?;
                for format in FORMATS {
                    let difference = self.letterbox(&mut lane, format, element, channels)?;
                    let what =
                        format!("letterbox {format:?} → {channels} × {input} {data_type:?}, {} sizes", SOURCES.len());
                    lines.push(CheckLine { what, difference });
                }
            }
        }
        Ok(())
    }

    /// The first difference between both paths over all source sizes, each in slot 1 with slot 0 unused and then in both.
    fn letterbox(
        &mut self,
        lane: &mut Lane,
        format: PixelFormat,
        element: u32,
        channels: u32,
    ) -> Result<Option<String>> {
        let (mut stager, mut filler) = (Stager::quiet(), Filler::new());
        for (width, height) in SOURCES {
            let picture = self.picture(SizePx::new(width, height), format);
            for both in [false, true] {
                if both {
                    stager.stage(lane, 0, &picture)?;
                } else {
                    lane.stage(0, None)?;
                }
                let letterbox = stager.stage(lane, 1, &picture)?;
                lane.submit()?;
                lane.wait()?;
                let section = lane.layout().tensors[0];
                let found = lane.read_back(section)?;
                let mut expected = vec![];
                if both {
                    fill(&mut filler, &picture, &letterbox, element, channels, &mut expected)?;
                } else {
                    let grey = Picture::rgb(letterbox.input, vec![114; 3 * letterbox.input.pixels()]);
                    let same = crate::engine::Letterbox::fit(letterbox.input, letterbox.input);
                    fill(&mut filler, &grey, &same, element, channels, &mut expected)?;
                }
                fill(&mut filler, &picture, &letterbox, element, channels, &mut expected)?;
                let differing = found.iter().zip(&expected).filter(|(found, expected)| found != expected).count();
                if differing > 0 || found.len() != expected.len() {
                    return Ok(Some(format!("{width}×{height}: {differing} of {} bytes differ", expected.len())));
                }
            }
        }
        Ok(None)
    }

    fn picture(&mut self, size: SizePx, format: PixelFormat) -> Picture {
        let stride_bytes = format.row_bytes(size.width_px) + index(self.random.below(3)) * 2;
        let mut pixels = vec![0; format.picture_bytes(size, stride_bytes)];
        pixels.iter_mut().for_each(|byte| *byte = (self.random.bits() >> 24) as u8);
        Picture { size, stride_bytes, format, pixels: pixels.into() }
    }

    fn candidates(&mut self, lines: &mut Vec<CheckLine>) -> Result<()> {
        // Anchors around a block, a power of two, the keys in shared memory, and the real count.
        for (anchors, cap) in [(1, 1), (129, 129), (300, 8), (4097, 4097), (8400, 8400), (8400, 1500)] {
            for data_type in [DataType::Float, DataType::Half] {
                for classes in [1, 6] {
                    let layouts = [
                        Layout::Raw { output: "output0".into(), classes, anchors },
                        Layout::Objectness { output: "output0".into(), classes, anchors },
                        Layout::EndToEnd { output: "output0".into(), classes, rows: anchors },
                        plugin(classes, anchors),
                    ];
                    for layout in layouts {
                        let difference = self.output(&layout, data_type, cap)?;
                        let kind = format!("{layout:?}");
                        let kind = kind.split(' ').next().unwrap_or_default();
                        let what = format!(
                            "candidates {kind} {classes} × {anchors} {data_type:?}, cap {cap}, {} kinds",
                            KINDS.len()
                        );
                        lines.push(CheckLine { what, difference });
                    }
                }
            }
        }
        Ok(())
    }

    fn output(&mut self, layout: &Layout, data_type: DataType, cap: u32) -> Result<Option<String>> {
        const BATCH: u32 = 2;
        let mut tensors = vec![facts("images", &[BATCH, 1, 1, 8], DataType::Float, true)];
        tensors.extend(outputs(layout, BATCH, data_type));
        let shape = LaneShape {
            batch: BATCH,
            channels: 1,
            width: 8,
            height: 1,
            picture_bytes: 64,
            anchors: layout.capacity(),
            cap,
            ahead: false,
        };
        let placed = LaneLayout::new(shape, &bytes_of(&tensors), 256, 0)?;
        let arena = self.budget.reserve(placed.end)?;
        let kernels = self.kernels.for_input(0, 0);
        let mut lane = Lane::without_network(&tensors, &kernels, &arena, placed, decode(layout))?;
        for kind in KINDS {
            for floor in [0.0, 0.25] {
                let values: Vec<Tensor> = tensors[1..].iter().map(|facts| self.tensor(facts, layout, kind)).collect();
                for (number, values) in values.iter().enumerate() {
                    lane.write(lane.layout().tensors[number + 1], &values.bytes())?;
                }
                lane.set_floor(floor)?;
                lane.submit()?;
                lane.wait()?;
                let mut fetched = false;
                for picture in 0..BATCH {
                    let mut found = Candidates::default();
                    let found_stats = answers::read(&mut lane, picture, &mut fetched, &mut found)?;
                    let (expected, expected_stats) =
                        on_cpu(&values, &tensors[1..], layout, index(picture), floor, index(cap))?;
                    if let Some(difference) = compare(&found, &found_stats, &expected, &expected_stats) {
                        return Ok(Some(format!("{kind:?}, floor {floor}, picture {picture}: {difference}")));
                    }
                }
            }
        }
        Ok(None)
    }

    fn tensor(&mut self, facts: &TensorFacts, layout: &Layout, kind: Kind) -> Tensor {
        let elements = facts.sizes.iter().product::<i64>().unsigned_abs();
        let values = (0..elements).map(|at| {
            let role = role(layout, &facts.name, at);
            match kind {
                Kind::Zero => 0.0,
                Kind::Hot if role == Role::Score => 0.5 + self.random.share() / 2.0,
                Kind::Ties if role == Role::Score => (self.random.below(4) as f32) / 4.0,
                _ => self.value(role, layout, kind),
            }
        });
        let values: Vec<f32> = values.collect();
        match facts.data_type {
            DataType::Half => Tensor::Half(values.into_iter().map(f16::from_f32).collect()),
            DataType::Int32 => Tensor::Int(values.into_iter().map(|value| value as i32).collect()),
            _ => Tensor::Float(values),
        }
    }

    fn value(&mut self, role: Role, layout: &Layout, kind: Kind) -> f32 {
        if kind == Kind::Sick {
            match self.random.below(40) {
                0 => return f32::NAN,
                1 => return f32::INFINITY,
                2 => return f32::NEG_INFINITY,
                3 => return -0.0,
                4 => return -0.5,
                5 => return 1.5,
                _ => {}
            }
        }
        match role {
            Role::Number => self.random.share() * 700.0 - 20.0,
            Role::Score => self.random.share().powi(8),
            Role::ClassId => {
                let most = layout.classes() + u32::from(kind == Kind::Sick);
                self.random.below(most) as f32 + if kind == Kind::Sick && self.random.below(9) == 0 { 0.5 } else { 0.0 }
            }
            Role::Count => {
                let over = if kind == Kind::Sick { 3 } else { 0 };
                self.random.below(layout.capacity() + 1 + over) as f32
            }
        }
    }
}

/// What random outputs look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Few high scores.
    Usual,
    /// Everything is a candidate.
    Hot,
    /// Many equal scores.
    Ties,
    /// Nothing but zeros.
    Zero,
    /// NaN, infinities, values out of range.
    Sick,
}

const KINDS: [Kind; 5] = [Kind::Usual, Kind::Hot, Kind::Ties, Kind::Zero, Kind::Sick];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Number,
    Score,
    ClassId,
    Count,
}

fn role(layout: &Layout, name: &str, at: u64) -> Role {
    match layout {
        Layout::Raw { classes, anchors, .. } => {
            let row = at / u64::from(*anchors) % u64::from(classes + 4);
            if row < 4 { Role::Number } else { Role::Score }
        }
        Layout::Objectness { classes, .. } => {
            if at % u64::from(classes + 5) < 4 {
                Role::Number
            } else {
                Role::Score
            }
        }
        Layout::EndToEnd { .. } => match at % 6 {
            4 => Role::Score,
            5 => Role::ClassId,
            _ => Role::Number,
        },
        Layout::NmsPlugin { .. } => match name {
            "count" => Role::Count,
            "scores" => Role::Score,
            "ids" => Role::ClassId,
            _ => Role::Number,
        },
    }
}

fn plugin(classes: u32, rows: u32) -> Layout {
    Layout::NmsPlugin {
        count: "count".into(),
        boxes: "boxes".into(),
        scores: "scores".into(),
        class_ids: "ids".into(),
        classes,
        rows,
    }
}

fn outputs(layout: &Layout, batch: u32, data_type: DataType) -> Vec<TensorFacts> {
    let output = |name: &str, sizes: &[u32], data_type| facts(name, sizes, data_type, false);
    match layout {
        Layout::Raw { classes, anchors, .. } => vec![output("output0", &[batch, classes + 4, *anchors], data_type)],
        Layout::Objectness { classes, anchors, .. } => {
            vec![output("output0", &[batch, *anchors, classes + 5], data_type)]
        }
        Layout::EndToEnd { rows, .. } => vec![output("output0", &[batch, *rows, 6], data_type)],
        Layout::NmsPlugin { rows, .. } => vec![
            output("count", &[batch, 1], DataType::Int32),
            output("boxes", &[batch, *rows, 4], data_type),
            output("scores", &[batch, *rows], data_type),
            output("ids", &[batch, *rows], if data_type == DataType::Half { DataType::Half } else { DataType::Int32 }),
        ],
    }
}

enum Tensor {
    Float(Vec<f32>),
    Half(Vec<f16>),
    Int(Vec<i32>),
}

impl Tensor {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Tensor::Float(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Tensor::Half(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Tensor::Int(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        }
    }

    fn elements(&self) -> Elements<'_> {
        match self {
            Tensor::Float(values) => Elements::F32(values),
            Tensor::Half(values) => Elements::F16(values),
            Tensor::Int(values) => Elements::I32(values),
        }
    }
}

fn on_cpu(
    values: &[Tensor],
    facts: &[TensorFacts],
    layout: &Layout,
    picture: usize,
    floor: f32,
    cap: usize,
) -> Result<(Candidates, OutputStats)> {
    let shapes: Vec<Vec<usize>> = facts
        .iter()
        .map(|facts| facts.sizes.iter().map(|&size| usize::try_from(size).unwrap_or(0)).collect())
        .collect();
    let tensors: Vec<RawTensor<'_>> = values
        .iter()
        .zip(facts)
        .zip(&shapes)
        .map(|((values, facts), shape)| RawTensor { name: &facts.name, shape, elements: values.elements() })
        .collect();
    let mut candidates = Candidates::default();
    let wanted = Wanted { picture, floor, cap };
    let stats = extract(&tensors, layout, wanted, &mut Scratch::default(), &mut candidates)?;
    Ok((candidates, stats))
}

/// The first difference; the mean may differ by rounding, as it is summed in another order.
fn compare(
    found: &Candidates,
    found_stats: &OutputStats,
    expected: &Candidates,
    expected_stats: &OutputStats,
) -> Option<String> {
    const MEAN_TOLERANCE: f32 = 1e-6;
    let mean = (found_stats.mean_score - expected_stats.mean_score).abs();
    let rest = OutputStats { mean_score: expected_stats.mean_score, ..*found_stats };
    if rest != *expected_stats || mean > MEAN_TOLERANCE * (1.0 + expected_stats.mean_score.abs()) {
        return Some(format!("found {found_stats:?}, expected {expected_stats:?}"));
    }
    if found.overflow != expected.overflow || found.boxes.len() != expected.boxes.len() {
        return Some(format!(
            "found {} boxes and overflow {}, expected {} and {}",
            found.boxes.len(),
            found.overflow,
            expected.boxes.len(),
            expected.overflow
        ));
    }
    let pairs = found.boxes.iter().zip(&expected.boxes);
    pairs.filter(|(found, expected)| found != expected).map(|pair| format!("found, expected: {pair:?}")).next()
}

fn fill(
    filler: &mut Filler,
    picture: &Picture,
    letterbox: &crate::engine::Letterbox,
    element: u32,
    channels: u32,
    expected: &mut Vec<u8>,
) -> Result<()> {
    let length = index(channels) * letterbox.input.pixels();
    match element {
        0 => {
            let values: Vec<f32> = filled(filler, picture, letterbox, channels, length)?;
            expected.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        1 => {
            let values: Vec<f16> = filled(filler, picture, letterbox, channels, length)?;
            expected.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        _ => expected.extend(filled::<u8>(filler, picture, letterbox, channels, length)?),
    }
    Ok(())
}

fn filled<T: Sample>(
    filler: &mut Filler,
    picture: &Picture,
    letterbox: &crate::engine::Letterbox,
    channels: u32,
    length: usize,
) -> Result<Vec<T>> {
    let mut values = vec![T::default(); length];
    filler.fill(picture, letterbox, channels, &mut values)?;
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs where there is a GPU; elsewhere it says so (`EDGE_REQUIRE=gpu` makes that a failure).
    #[test]
    fn kernels_answer_as_the_cpu_path_does() {
        match check_kernels(0) {
            Ok(lines) => {
                let failed: Vec<_> = lines.iter().filter(|line| line.difference.is_some()).collect();
                assert!(failed.is_empty() && lines.len() > 100, "{failed:#?}");
            }
            Err(error) if error.kind() == crate::ErrorKind::MachineLacks => {
                crate::test_inputs::skipped("gpu", &format!("the kernels need a GPU: {}", error.message()));
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_difference_is_seen() {
        let candidate = crate::engine::Candidate {
            anchor: 3,
            class_id: 0,
            score: 0.5,
            edges: crate::units::BoxPx::new(1.0, 2.0, 3.0, 4.0),
        };
        let candidates = Candidates { boxes: vec![candidate], overflow: 0 };
        let stats = OutputStats { mean_score: 0.1, ..OutputStats::default() };
        assert_eq!(compare(&candidates, &stats, &candidates, &stats), None);
        let rounded = OutputStats { mean_score: 0.100_000_01, ..stats };
        assert_eq!(compare(&candidates, &rounded, &candidates, &stats), None);
        let other = OutputStats { nan: 1, ..stats };
        assert!(compare(&candidates, &other, &candidates, &stats).is_some());
        let moved = Candidates { boxes: vec![crate::engine::Candidate { anchor: 4, ..candidate }], overflow: 0 };
        assert!(compare(&moved, &stats, &candidates, &stats).is_some());
        let cut = Candidates { overflow: 1, ..candidates.clone() };
        assert!(compare(&cut, &stats, &candidates, &stats).is_some());
    }
}
