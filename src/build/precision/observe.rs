//! What calibration pictures do to the tensors inside a network: magnitudes, counted in bins.

use super::fp16::Ranges;
use super::usable::Usable;
use crate::build::watcher::Watcher;
use crate::engine::candidates::{Elements, RawTensor};
use crate::engine::cpu::CpuOptions;
use crate::engine::cpu::probe::Probe;
use crate::engine::{InputSpec, Layout};
use crate::error::Result;
use crate::frame::Picture;
use crate::onnx::Model;
use crate::onnx::shapes::Shapes;
use crate::units::count;
use std::collections::BTreeMap;

/// Most bytes of inner tensors that are kept at once; more are looked at in further passes over the pictures.
const GROUP_BYTES: u64 = 384 << 20;
/// Bins of a histogram.
pub(super) const BINS: usize = 4096;

/// Magnitudes of one tensor over all pictures. The range doubles when a larger value comes: bins are merged in pairs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Histogram {
    /// Values by magnitude, `BINS` bins from 0 to `top`.
    pub(super) bins: Vec<u64>,
    /// Upper edge of the last bin.
    pub(super) top: f32,
    /// Largest magnitude seen.
    pub(super) largest: f32,
    /// Values that were not finite.
    pub(super) not_finite: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { bins: vec![0; BINS], top: 0.0, largest: 0.0, not_finite: 0 }
    }
}

impl Histogram {
    /// Counts `values`.
    pub(super) fn add(&mut self, values: &[f32]) {
        let mut largest = 0.0_f32;
        for value in values {
            // A comparison with NaN is false, infinity is counted below.
            let magnitude = value.abs();
            if magnitude > largest && magnitude < f32::INFINITY {
                largest = magnitude;
            }
        }
        self.largest = self.largest.max(largest);
        if self.top == 0.0 {
            self.top = largest;
        }
        while self.top > 0.0 && self.largest > self.top {
            for at in 0..BINS / 2 {
                self.bins[at] = self.bins[2 * at] + self.bins[2 * at + 1];
            }
            self.bins[BINS / 2..].fill(0);
            self.top *= 2.0;
        }
        #[expect(clippy::cast_precision_loss, reason = "4096 is exact")]
        let per_unit = if self.top > 0.0 { BINS as f32 / self.top } else { 0.0 };
        for value in values {
            if value.is_finite() {
                // Saturates; the last bin takes the upper edge.
                let bin = (value.abs() * per_unit) as usize;
                self.bins[bin.min(BINS - 1)] += 1;
            } else {
                self.not_finite += 1;
            }
        }
    }

    /// Number of values.
    pub(super) fn total(&self) -> u64 {
        self.bins.iter().sum()
    }
}

/// One tensor of two networks that saw the same pictures.
pub(super) struct Beside<'a> {
    pub(super) name: &'a str,
    /// Pictures in it.
    pub(super) places: usize,
    pub(super) exact: &'a [f32],
    pub(super) found: &'a [f32],
}

/// What to look at, and with what.
pub(super) struct Observation<'a> {
    pub(super) model: &'a Model,
    pub(super) shapes: &'a Shapes,
    pub(super) input: &'a InputSpec,
    pub(super) layout: &'a Layout,
    pub(super) options: &'a CpuOptions,
    pub(super) pictures: &'a Usable,
}

impl Observation<'_> {
    /// The histograms of the tensors `names`.
    pub(super) fn histograms(
        &self,
        names: &[String],
        watcher: &mut dyn Watcher,
    ) -> Result<BTreeMap<String, Histogram>> {
        let mut histograms: BTreeMap<String, Histogram> = BTreeMap::new();
        self.each(names, watcher, &mut |tensor, values| {
            if !histograms.contains_key(tensor) {
                histograms.insert(tensor.to_owned(), Histogram::default());
            }
            if let Some(histogram) = histograms.get_mut(tensor) {
                histogram.add(values);
            }
        })?;
        Ok(histograms)
    }

    /// The largest magnitude of the tensors `names`.
    pub(super) fn ranges(&self, names: &[String], watcher: &mut dyn Watcher) -> Result<Ranges> {
        let mut ranges = Ranges::new();
        self.each(names, watcher, &mut |tensor, values| {
            let mut largest = 0.0_f32;
            for &value in values {
                let magnitude = if value.is_nan() { f32::INFINITY } else { value.abs() };
                largest = largest.max(magnitude);
            }
            let range = ranges.entry(tensor.to_owned()).or_insert(0.0);
            *range = range.max(largest);
        })?;
        Ok(ranges)
    }

    /// The values of each of the tensors `names`, for each picture.
    pub(super) fn values(&self, names: &[String]) -> Result<Vec<Vec<Vec<f32>>>> {
        let mut probe = Probe::open(self.model.clone(), names, self.input, self.layout, self.options)?;
        let mut all = Vec::with_capacity(self.pictures.len());
        for at in 0..self.pictures.len() {
            let picture = self.pictures.decode(at)?;
            let mut values = Vec::new();
            probe.run(&picture, &mut |tensors: &[RawTensor<'_>]| {
                values.extend(floats(tensors).map(|(_, part)| part.to_vec()));
                Ok(())
            })?;
            all.push(values);
        }
        Ok(all)
    }

    fn each(&self, names: &[String], watcher: &mut dyn Watcher, visit: &mut dyn FnMut(&str, &[f32])) -> Result<()> {
        let groups = self.groups(names);
        let total = count(groups.len() * self.pictures.len());
        let mut done = 0;
        for group in groups {
            let mut probe = Probe::open(self.model.clone(), &group, self.input, self.layout, self.options)?;
            for first in (0..self.pictures.len()).step_by(probe.places()) {
                watcher.check_stop()?;
                let pictures = self.batch(first, probe.places())?;
                probe.run_all(&pictures, &mut |tensors: &[RawTensor<'_>]| {
                    floats(tensors).for_each(|(name, values)| visit(name, values));
                    Ok(())
                })?;
                done += count(pictures.len());
                watcher.step("ranges", done, total);
            }
        }
        Ok(())
    }

    /// Shows the values of the tensors `names` of this model and of `other`, batch by batch.
    pub(super) fn beside(
        &self,
        other: &Model,
        what: &str,
        names: &[String],
        watcher: &mut dyn Watcher,
        visit: &mut dyn FnMut(Beside<'_>),
    ) -> Result<()> {
        let open = |model: &Model| Probe::open(model.clone(), names, self.input, self.layout, self.options);
        let (mut one, mut other) = (open(self.model)?, open(other)?);
        let places = one.places();
        for first in (0..self.pictures.len()).step_by(places) {
            watcher.check_stop()?;
            let pictures = self.batch(first, places)?;
            let mut exact: BTreeMap<String, Vec<f32>> = BTreeMap::new();
            one.run_all(&pictures, &mut |tensors: &[RawTensor<'_>]| {
                exact.extend(floats(tensors).map(|(name, values)| (name.to_owned(), values.to_vec())));
                Ok(())
            })?;
            other.run_all(&pictures, &mut |tensors: &[RawTensor<'_>]| {
                for (name, found) in floats(tensors) {
                    if let Some(exact) = exact.get(name) {
                        visit(Beside { name, places, exact, found });
                    }
                }
                Ok(())
            })?;
            watcher.step(what, count(first + pictures.len()), count(self.pictures.len()));
        }
        Ok(())
    }

    /// The pictures of one batch; fewer at the end.
    fn batch(&self, first: usize, places: usize) -> Result<Vec<Picture>> {
        (first..(first + places).min(self.pictures.len())).map(|at| self.pictures.decode(at)).collect()
    }

    fn groups(&self, names: &[String]) -> Vec<Vec<String>> {
        let mut groups: Vec<Vec<String>> = Vec::new();
        let mut bytes = u64::MAX;
        for name in names {
            let elements = self.shapes.fixed(name).map_or(1, |shape| shape.iter().product::<i64>());
            let size = 4 * u64::try_from(elements).unwrap_or(0);
            if bytes.saturating_add(size) > GROUP_BYTES {
                groups.push(Vec::new());
                bytes = 0;
            }
            bytes += size;
            if let Some(group) = groups.last_mut() {
                group.push(name.clone());
            }
        }
        groups
    }
}

fn floats<'a>(tensors: &'a [RawTensor<'a>]) -> impl Iterator<Item = (&'a str, &'a [f32])> {
    tensors.iter().filter_map(|tensor| match tensor.elements {
        Elements::F32(values) => Some((tensor.name, values)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::pictures::pixel_hash;
    use crate::build::precision::usable::UsablePicture;
    use crate::build::watcher::Silent;
    use crate::engine::cpu::CpuBackend;
    use crate::onnx::node::make;
    use crate::onnx::samples::{Sample, value};
    use crate::onnx::shapes;
    use crate::onnx::tensor::DataType;
    use crate::units::SizePx;

    /// A batch whose other places are empty shows what a network makes of black, and the ranges become too narrow for pictures.
    #[test]
    fn every_place_of_a_batch_holds_a_picture() {
        let folder = tempfile::tempdir().unwrap();
        let pictures: Vec<UsablePicture> = [200_u8, 220, 240]
            .into_iter()
            .map(|shade| {
                let path = folder.path().join(format!("{shade}.png"));
                image::RgbImage::from_pixel(8, 8, image::Rgb([shade; 3])).save(&path).unwrap();
                let picture = crate::build::pictures::decode(&path).unwrap();
                UsablePicture { path, hash: pixel_hash(&picture), size: picture.size }
            })
            .collect();
        let pictures = Usable { pictures };
        for batch in [1_u32, 2, 4] {
            let sizes = [i64::from(batch), 3, 8, 8];
            let nodes = vec![make::node("Relu", "act", &["images"], &["seen"], vec![])];
            let model = Sample::new(&sizes, nodes, vec![value("seen", DataType::F32, &sizes)]).model();
            let size = SizePx::new(8, 8);
            let input =
                InputSpec { name: "images".into(), batch, channels: 3, size, element: crate::engine::ElementType::F32 };
            let layout = Layout::Raw { output: "seen".into(), classes: 1, anchors: 1 };
            let options = CpuOptions { backend: CpuBackend::Rten, threads: Some(1), emulate_half: false };
            let shapes = shapes::infer(&model).unwrap();
            let observation = Observation {
                model: &model,
                shapes: &shapes,
                input: &input,
                layout: &layout,
                options: &options,
                pictures: &pictures,
            };
            let found = observation.histograms(&["seen".to_owned()], &mut Silent).unwrap();
            let histogram = &found["seen"];
            assert!((histogram.largest - 240.0 / 255.0).abs() < 1e-6);
            let dark: u64 = histogram.bins[..BINS / 8].iter().sum();
            assert_eq!(dark, 0, "batch {batch}: values that no picture gives");
            let values = observation.values(&["seen".to_owned()]).unwrap();
            assert_eq!(values.len(), 3);
            assert!(values.iter().flatten().all(|values| values.iter().all(|&value| value > 0.7)), "batch {batch}");
        }
    }

    #[test]
    fn the_range_grows_and_nothing_is_lost() {
        let mut histogram = Histogram::default();
        histogram.add(&[0.0, 0.0]);
        histogram.add(&[0.5, -1.0]);
        histogram.add(&[3.5, f32::NAN, f32::INFINITY]);
        assert_eq!((histogram.total(), histogram.not_finite), (5, 2));
        assert_eq!((histogram.largest, histogram.top), (3.5, 4.0));
        let bin = |value: f32| (value / 4.0 * BINS as f32) as usize;
        assert_eq!(histogram.bins[bin(1.0) - 1] + histogram.bins[bin(1.0)], 1);
        assert_eq!(histogram.bins[bin(3.5)], 1);
        assert_eq!(histogram.bins[0], 2);
    }
}
