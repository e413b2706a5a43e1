//! One row of any picture → interleaved RGB or gray. YUV is BT.601, limited range, in OpenCV's 20-bit fixed point
//! (`COLOR_YUV2RGB_YUYV`, `_UYVY`, `_NV12`); RGB → gray is its 15-bit `COLOR_RGB2GRAY`.

use crate::frame::{Picture, PixelFormat};
use crate::units::index;

const YUV_SHIFT: i32 = 20;
const Y_SCALE: i32 = 1_220_542;
const U_TO_BLUE: i32 = 2_116_026;
const U_TO_GREEN: i32 = -409_993;
const V_TO_GREEN: i32 = -852_492;
const V_TO_RED: i32 = 1_673_527;

/// A channel before clamping lies above -`BELOW`, and below 1024 - `BELOW`.
const BELOW: i32 = 384;

/// Channel + `BELOW` → 0..=255. A comparison for each end would be mispredicted on busy pictures and cost ten times more.
static CLAMPED: [u8; 1024] = {
    let mut table = [0; 1024];
    let mut at = 0;
    while at < table.len() {
        let channel = at as i32 - BELOW;
        table[at] = if channel < 0 {
            0
        } else if channel > 255 {
            255
        } else {
            channel as u8
        };
        at += 1;
    }
    table
};

/// Row `row` of `picture` as `planes` (1 or 3) interleaved bytes a pixel; at least two pixels, the last one repeated.
///
/// Borrowed from the picture where it already lies so, else written to `converted`.
pub(super) fn row<'a>(picture: &'a Picture, row: usize, planes: usize, converted: &'a mut [u8]) -> &'a [u8] {
    let width = index(picture.size.width_px);
    let bytes = &picture.pixels.as_slice()[row * picture.stride_bytes..];
    let bytes = &bytes[..picture.format.row_bytes(picture.size.width_px)];
    let as_is = matches!((picture.format, planes), (PixelFormat::Rgb8, 3) | (PixelFormat::Gray8, 1));
    if as_is && width >= 2 {
        return bytes;
    }
    let target = &mut converted[..(width + 2) * planes];
    match planes {
        3 => colour_row(picture, row, bytes, target),
        _ => gray_row(picture, row, bytes, width, target),
    }
    for plane in 0..planes {
        target[width * planes + plane] = target[(width - 1) * planes + plane];
    }
    target
}

fn colour_row(picture: &Picture, row: usize, bytes: &[u8], target: &mut [u8]) {
    let (pixels, _) = target.as_chunks_mut::<3>();
    match picture.format {
        PixelFormat::Rgb8 => target[..bytes.len()].copy_from_slice(bytes),
        PixelFormat::Bgr8 => {
            for (pixel, &[blue, green, red]) in pixels.iter_mut().zip(bytes.as_chunks().0) {
                *pixel = [red, green, blue];
            }
        }
        PixelFormat::Gray8 => {
            for (pixel, &grey) in pixels.iter_mut().zip(bytes) {
                *pixel = [grey; 3];
            }
        }
        PixelFormat::Yuyv => each_pair(bytes, pixels, |&[y0, u, y1, v]| (y0, y1, u, v)),
        PixelFormat::Uyvy => each_pair(bytes, pixels, |&[u, y0, v, y1]| (y0, y1, u, v)),
        PixelFormat::Nv12 => nv12_row(picture, row, bytes, pixels),
    }
}

fn each_pair(bytes: &[u8], pixels: &mut [[u8; 3]], read: impl Fn(&[u8; 4]) -> (u8, u8, u8, u8)) {
    let (quads, _) = bytes.as_chunks::<4>();
    for (pair, quad) in pixels.chunks_mut(2).zip(quads) {
        let (y0, y1, u, v) = read(quad);
        let tint = Tint::new(u, v);
        pair[0] = tint.pixel(y0);
        if let Some(second) = pair.get_mut(1) {
            *second = tint.pixel(y1);
        }
    }
}

fn nv12_row(picture: &Picture, row: usize, luma: &[u8], pixels: &mut [[u8; 3]]) {
    let chroma_start = (index(picture.size.height_px) + row / 2) * picture.stride_bytes;
    let chroma = picture.pixels.as_slice().get(chroma_start..).unwrap_or_default();
    for (column, (pair, luma)) in pixels.chunks_mut(2).zip(luma.chunks(2)).enumerate() {
        // The last pair of an odd width may lie outside a tight stride: gray then.
        let u = chroma.get(2 * column).copied().unwrap_or(128);
        let v = chroma.get(2 * column + 1).copied().unwrap_or(128);
        let tint = Tint::new(u, v);
        for (pixel, &y) in pair.iter_mut().zip(luma) {
            *pixel = tint.pixel(y);
        }
    }
}

/// What a pair of chroma samples adds to each channel, with the rounding half and `BELOW`.
struct Tint {
    red: i32,
    green: i32,
    blue: i32,
}

impl Tint {
    #[inline]
    fn new(u: u8, v: u8) -> Tint {
        let (u, v) = (i32::from(u) - 128, i32::from(v) - 128);
        let half = (BELOW << YUV_SHIFT) + (1 << (YUV_SHIFT - 1));
        Tint { red: half + V_TO_RED * v, green: half + V_TO_GREEN * v + U_TO_GREEN * u, blue: half + U_TO_BLUE * u }
    }

    #[inline]
    fn pixel(&self, y: u8) -> [u8; 3] {
        let luma = (i32::from(y) - 16).max(0) * Y_SCALE;
        let channel = |tint: i32| CLAMPED[((luma + tint) >> YUV_SHIFT) as usize & (CLAMPED.len() - 1)];
        [channel(self.red), channel(self.green), channel(self.blue)]
    }
}

fn gray_row(picture: &Picture, row: usize, bytes: &[u8], width: usize, target: &mut [u8]) {
    match picture.format {
        PixelFormat::Gray8 => target[..width].copy_from_slice(bytes),
        PixelFormat::Rgb8 => {
            for (grey, pixel) in target.iter_mut().zip(bytes.as_chunks().0) {
                *grey = gray(pixel);
            }
        }
        PixelFormat::Bgr8 => {
            for (grey, &[blue, green, red]) in target.iter_mut().zip(bytes.as_chunks().0) {
                *grey = gray(&[red, green, blue]);
            }
        }
        PixelFormat::Yuyv | PixelFormat::Uyvy | PixelFormat::Nv12 => {
            // Gray networks on colour cameras are rare: go through RGB, two pixels at a time.
            let mut pair = [[0; 3]; 2];
            for (column, grey) in target[..width].chunks_mut(2).enumerate() {
                pair_at(picture, row, bytes, column, &mut pair);
                for (grey, pixel) in grey.iter_mut().zip(&pair) {
                    *grey = gray(pixel);
                }
            }
        }
    }
}

fn pair_at(picture: &Picture, row: usize, bytes: &[u8], column: usize, pair: &mut [[u8; 3]; 2]) {
    let quad = &bytes[(4 * column).min(bytes.len())..];
    match picture.format {
        PixelFormat::Yuyv => each_pair(quad, pair, |&[y0, u, y1, v]| (y0, y1, u, v)),
        PixelFormat::Uyvy => each_pair(quad, pair, |&[u, y0, v, y1]| (y0, y1, u, v)),
        _ => {
            let chroma_start = (index(picture.size.height_px) + row / 2) * picture.stride_bytes + 2 * column;
            let chroma = picture.pixels.as_slice();
            let at = |offset: usize| chroma.get(chroma_start + offset).copied().unwrap_or(128);
            let tint = Tint::new(at(0), at(1));
            for (pixel, &y) in pair.iter_mut().zip(&bytes[2 * column..]) {
                *pixel = tint.pixel(y);
            }
        }
    }
}

#[inline]
fn gray(&[red, green, blue]: &[u8; 3]) -> u8 {
    ((i32::from(red) * 9_798 + i32::from(green) * 19_235 + i32::from(blue) * 3_735 + (1 << 14)) >> 15) as u8
}
