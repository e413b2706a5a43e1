//! What lens and sensor do to the scene: uneven light, exposure, blur and noise.

use super::random::Random;
use crate::units::SizePx;

/// Light over the picture, and a store of noise.
#[derive(Debug)]
pub(super) struct Optics {
    width_px: usize,
    height_px: usize,
    /// Share of the light that reaches a pixel, 1.0 = 4096; one value a channel.
    light: Vec<u16>,
    noise: Vec<i8>,
    sums: Vec<u8>,
}

/// How one frame is exposed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exposure {
    /// Gain, 1.0 is right.
    pub(super) gain: f32,
    /// Added to every value after the gain.
    pub(super) offset: f32,
    /// Radius of the blur, pixels; 0 is sharp.
    pub(super) blur_px: usize,
}

const NOISE: usize = 1 << 18;
const SIGMA: f32 = 2.6;

impl Optics {
    /// Light falls from the upper left and fades to the corners.
    pub(super) fn new(size: SizePx, seed: u64) -> Self {
        let (width_px, height_px) = (size.width_px as usize, size.height_px as usize);
        let mut light = Vec::with_capacity(width_px * height_px * 3);
        for row in 0..height_px {
            for column in 0..width_px {
                let x = column as f32 / width_px as f32 - 0.5;
                let y = row as f32 / height_px as f32 - 0.5;
                let fade = 1.04 - 0.42 * (x * x + y * y) - 0.07 * x - 0.05 * y;
                light.extend([(fade * 4096.0) as u16; 3]);
            }
        }
        let mut random = Random::new(seed, 41);
        let noise = (0..NOISE).map(|_| (random.normal() * SIGMA).round().clamp(-24.0, 24.0) as i8).collect();
        Optics { width_px, height_px, light, noise, sums: Vec::new() }
    }

    /// Turns the scene in `pixels` (RGB) into what the sensor gives.
    pub(super) fn expose(&mut self, pixels: &mut [u8], exposure: Exposure, random: &mut Random) {
        if exposure.blur_px > 0 {
            for _ in 0..2 {
                self.blur_rows(pixels, exposure.blur_px);
                self.blur_columns(pixels, exposure.blur_px);
            }
        }
        let gain = (exposure.gain * 256.0).clamp(0.0, 4095.0) as u32;
        let offset = exposure.offset as i32;
        let row_bytes = self.width_px * 3;
        for (line, light) in pixels.chunks_exact_mut(row_bytes).zip(self.light.chunks_exact(row_bytes)) {
            let start = random.index(NOISE - row_bytes);
            let noise = &self.noise[start..start + row_bytes];
            for ((value, &light), &noise) in line.iter_mut().zip(light).zip(noise) {
                let lit = (((u32::from(*value) * u32::from(light)) >> 8) * gain) >> 12;
                *value = (lit as i32 + offset + i32::from(noise)).clamp(0, 255) as u8;
            }
        }
    }

    fn blur_rows(&mut self, pixels: &mut [u8], radius: usize) {
        let row_bytes = self.width_px * 3;
        self.sums.resize(row_bytes.max(self.height_px * 3), 0);
        for line in pixels.chunks_exact_mut(row_bytes) {
            self.sums[..row_bytes].copy_from_slice(line);
            for channel in 0..3 {
                slide(
                    self.width_px,
                    radius,
                    |at| self.sums[at * 3 + channel],
                    |at, mean| line[at * 3 + channel] = mean,
                );
            }
        }
    }

    fn blur_columns(&mut self, pixels: &mut [u8], radius: usize) {
        let row_bytes = self.width_px * 3;
        self.sums.resize(row_bytes.max(self.height_px * 3), 0);
        for column in 0..row_bytes {
            for row in 0..self.height_px {
                self.sums[row] = pixels[row * row_bytes + column];
            }
            slide(self.height_px, radius, |at| self.sums[at], |at, mean| pixels[at * row_bytes + column] = mean);
        }
    }
}

/// Running mean over `2 radius + 1` values; the ends are repeated.
fn slide(length: usize, radius: usize, read: impl Fn(usize) -> u8, mut write: impl FnMut(usize, u8)) {
    let last = length - 1;
    let window = (2 * radius + 1) as u32;
    let mut sum: u32 = (0..=2 * radius).map(|at| u32::from(read(at.saturating_sub(radius).min(last)))).sum();
    for at in 0..length {
        write(at, (sum / window) as u8);
        sum += u32::from(read((at + radius + 1).min(last)));
        sum -= u32::from(read(at.saturating_sub(radius)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_mean_is_the_plain_mean() {
        let values: Vec<u8> = (0..50).map(|index| (index * 37 % 251) as u8).collect();
        let mut fast = vec![0; values.len()];
        slide(values.len(), 4, |at| values[at], |at, mean| fast[at] = mean);
        for (at, &mean) in fast.iter().enumerate() {
            let plain: u32 = (0..9).map(|step| u32::from(values[(at + step).saturating_sub(4).min(49)])).sum();
            assert_eq!(u32::from(mean), plain / 9, "at {at}");
        }
    }
}
