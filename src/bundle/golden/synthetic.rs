//! Pictures drawn without any source, for bundles that were built without pictures. The same on every machine.

use crate::frame::Picture;
use crate::units::{SizePx, index};

/// Four pictures for a network input of `input`: two of its size, one wide and one tall, so that the letterbox is proved too.
///
/// Integer arithmetic alone, so every machine draws the same bytes.
pub fn synthetic_pictures(input: SizePx) -> Vec<Picture> {
    let wide = SizePx::new(input.width_px + input.width_px / 4, input.height_px * 3 / 4);
    let tall = SizePx::new(input.width_px * 5 / 8, input.height_px + input.height_px / 8);
    [input, input, wide, tall].into_iter().zip(1u64..).map(|(size, seed)| draw(at_least_one(size), seed)).collect()
}

/// A picture of `size` for `seed`; pictures of different seeds differ.
pub fn synthetic_picture(size: SizePx, seed: u64) -> Picture {
    draw(at_least_one(size), seed)
}

fn at_least_one(size: SizePx) -> SizePx {
    SizePx::new(size.width_px.max(1), size.height_px.max(1))
}

fn draw(size: SizePx, seed: u64) -> Picture {
    let (width_px, height_px) = (index(size.width_px), index(size.height_px));
    let mut random = Random(seed);
    let mut pixels = vec![0; width_px * height_px * 3];
    // A slope in each channel under fine noise: no large area of one value.
    let slopes = [random.below(width_px + 1), random.below(height_px + 1), random.below(width_px + height_px)];
    for (at, pixel) in pixels.chunks_exact_mut(3).enumerate() {
        let (x, y) = (at % width_px, at / width_px);
        let noise = random.below(17);
        for (channel, value) in pixel.iter_mut().enumerate() {
            let slope = (x * (channel + 1) + y * (3 - channel) + slopes[channel]) * 160 / (2 * (width_px + height_px));
            *value = byte(40 + slope % 160 + noise);
        }
    }
    for shape in 0..24 {
        let (w, h) = (1 + random.below(width_px / 3 + 1), 1 + random.below(height_px / 3 + 1));
        let (left, top) = (random.below(width_px), random.below(height_px));
        let colour = [byte(random.below(256)), byte(random.below(256)), byte(random.below(256))];
        for y in top..(top + h).min(height_px) {
            for x in left..(left + w).min(width_px) {
                // Every other shape is an ellipse: (2x/w − 1)² + (2y/h − 1)² ≤ 1 in whole numbers.
                let (dx, dy) = ((2 * (x - left)).abs_diff(w) * h, (2 * (y - top)).abs_diff(h) * w);
                if shape % 2 == 0 || dx * dx + dy * dy <= w * h * w * h {
                    pixels[(y * width_px + x) * 3..][..3].copy_from_slice(&colour);
                }
            }
        }
    }
    Picture::rgb(size, pixels)
}

fn byte(value: usize) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) >> 33).unwrap_or(0) % end.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_whole_differ_and_never_change() {
        let pictures = synthetic_pictures(SizePx::new(64, 32));
        assert!(pictures.iter().all(Picture::is_whole));
        let bytes: Vec<u8> = pictures.iter().flat_map(|picture| picture.pixels.as_slice()).copied().collect();
        assert_eq!(
            crate::bundle::sha256(&bytes),
            "453cce58752ccc8e97330cdad813230ec008732f1b0afd3c419bee3e34675736",
            "a change here changes every bundle that is built without pictures"
        );
        assert_ne!(pictures[0].pixels.as_slice(), pictures[1].pixels.as_slice());
        assert!(synthetic_pictures(SizePx::new(1, 1)).iter().all(Picture::is_whole));
    }
}
