use super::*;
use PixelFormat::{Bgr8, Gray8, Nv12, Rgb8, Uyvy, Yuyv};
use proptest::prelude::*;

/// What OpenCV 5.0 makes of the pattern; made by `tools/letterbox_golden.py`.
const FROM_OPENCV: [(PixelFormat, [u32; 2], [u32; 2], u64); 14] = [
    (Rgb8, [192, 108], [64, 64], 0x48bb39068555e807),
    (Rgb8, [81, 61], [64, 64], 0x736fff611292e3af),
    (Rgb8, [30, 90], [64, 64], 0xca34da35c6ad7822),
    (Rgb8, [128, 72], [64, 64], 0xd4dea151b49768bb),
    (Rgb8, [64, 48], [64, 64], 0x6df6746b79102dd9),
    (Rgb8, [17, 13], [64, 96], 0x8251ca305886c233),
    (Rgb8, [1, 1], [32, 32], 0xaa3fd2df722a0725),
    (Rgb8, [3, 90], [32, 32], 0x2a2df9f8cac02e19),
    (Bgr8, [81, 61], [64, 64], 0xd3346342ab9eecbb),
    (Gray8, [81, 61], [64, 64], 0x71291708eeb228b2),
    (Yuyv, [82, 62], [64, 64], 0x7c600a9af719894c),
    (Uyvy, [82, 62], [64, 64], 0xb0358328f9c35966),
    (Nv12, [82, 62], [64, 64], 0xbbe247a8eba12b08),
    (Nv12, [128, 128], [64, 64], 0x496ae3cf115f88e3),
];

const GRAY_FROM_OPENCV: u64 = 0xc762e9711d45ee4b;

fn pattern(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The pattern as a picture whose rows are `gap` bytes longer than they need to be.
fn picture(format: PixelFormat, width_px: u32, height_px: u32, gap: usize) -> Picture {
    let size = SizePx::new(width_px, height_px);
    let row = format.row_bytes(width_px);
    let tight = pattern(format.picture_bytes(size, row));
    let padded = tight.chunks(row).flat_map(|bytes| bytes.iter().copied().chain(vec![0xee; gap])).collect::<Vec<_>>();
    Picture { size, stride_bytes: row + gap, format, pixels: padded.into() }
}

fn filled<T: Sample>(picture: &Picture, input: SizePx, channels: u32) -> Vec<T> {
    let letterbox = Letterbox::fit(picture.size, input);
    let mut target = vec![T::default(); index(channels) * input.pixels()];
    Filler::new().fill(picture, &letterbox, channels, &mut target).unwrap();
    target
}

/// OpenCV's arithmetic, one pixel at a time, nothing reused.
fn naive(picture: &Picture, letterbox: &Letterbox) -> Vec<u8> {
    let (source, scaled, input) = (letterbox.source, letterbox.scaled, letterbox.input);
    let at = |x: i64, y: i64, channel: usize| {
        let x = x.clamp(0, i64::from(source.width_px) - 1) as usize;
        let y = y.clamp(0, i64::from(source.height_px) - 1) as usize;
        i64::from(picture.pixels.as_slice()[y * picture.stride_bytes + 3 * x + channel])
    };
    let split = |target: u32, scaled: u32, source: u32| {
        let step = 1.0 / (f64::from(scaled) / f64::from(source));
        let position = ((f64::from(target) + 0.5) * step - 0.5) as f32;
        let share = |share: f32| (share * 2048.0).round_ties_even() as i64;
        let fraction = position - position.floor();
        (position.floor() as i64, share(1.0 - fraction), share(fraction))
    };
    let halved = source.width_px == 2 * scaled.width_px && source.height_px == 2 * scaled.height_px;
    let mut out = vec![PADDING; 3 * input.pixels()];
    for channel in 0..3 {
        for y in 0..scaled.height_px {
            for x in 0..scaled.width_px {
                let grey = if source == scaled {
                    at(x.into(), y.into(), channel)
                } else if halved {
                    let (x, y) = (i64::from(2 * x), i64::from(2 * y));
                    (at(x, y, channel) + at(x + 1, y, channel) + at(x, y + 1, channel) + at(x + 1, y + 1, channel) + 2)
                        / 4
                } else {
                    let (x0, left, right) = split(x, scaled.width_px, source.width_px);
                    let (y0, upper, lower) = split(y, scaled.height_px, source.height_px);
                    let row = |y: i64| (at(x0, y, channel) * left + at(x0 + 1, y, channel) * right) >> 4;
                    (((upper * row(y0)) >> 16) + ((lower * row(y0 + 1)) >> 16) + 2) >> 2
                };
                let at = channel * input.pixels()
                    + index(y + letterbox.pad_top_px) * index(input.width_px)
                    + index(x + letterbox.pad_left_px);
                out[at] = grey as u8;
            }
        }
    }
    out
}

#[test]
fn every_format_is_as_opencv_makes_it_bit_for_bit() {
    let mut failed = Vec::new();
    for (format, [width_px, height_px], [input_width_px, input_height_px], hash) in FROM_OPENCV {
        for gap in [0, 7] {
            let picture = picture(format, width_px, height_px, gap);
            let bytes: Vec<u8> = filled(&picture, SizePx::new(input_width_px, input_height_px), 3);
            if fnv(&bytes) != hash {
                failed.push((format, width_px, height_px, gap));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn gray_networks_get_opencvs_gray() {
    let whole: Vec<u8> = filled(&picture(Rgb8, 81, 61, 3), SizePx::new(64, 48), 1);
    assert_eq!(fnv(&whole), GRAY_FROM_OPENCV);
    // Every other format agrees with the gray of its RGB.
    for format in [Bgr8, Yuyv, Uyvy, Nv12] {
        let picture = picture(format, 62, 46, 2);
        let rgb: Vec<u8> = filled(&picture, picture.size, 3);
        let (red, rest) = rgb.split_at(picture.size.pixels());
        let (green, blue) = rest.split_at(picture.size.pixels());
        let weighed = |((&red, &green), &blue): ((&u8, &u8), &u8)| {
            ((i32::from(red) * 9798 + i32::from(green) * 19235 + i32::from(blue) * 3735 + 16384) >> 15) as u8
        };
        let expected: Vec<u8> = red.iter().zip(green).zip(blue).map(weighed).collect();
        assert_eq!(filled::<u8>(&picture, picture.size, 1), expected, "{format:?}");
    }
}

#[test]
fn element_types_agree() {
    let picture = picture(Rgb8, 81, 61, 0);
    let input = SizePx::new(64, 64);
    let bytes: Vec<u8> = filled(&picture, input, 3);
    let floats: Vec<f32> = filled(&picture, input, 3);
    let halves: Vec<half::f16> = filled(&picture, input, 3);
    for ((&byte, &float), half) in bytes.iter().zip(&floats).zip(halves) {
        assert_eq!(float, f32::from(byte) / 255.0);
        assert_eq!(half, half::f16::from_f32(float));
    }
}

#[test]
fn one_filler_serves_changing_sizes() {
    let mut filler = Filler::new();
    let input = SizePx::new(48, 32);
    for (format, width_px, height_px) in
        [(Rgb8, 81, 61), (Gray8, 20, 90), (Nv12, 96, 64), (Rgb8, 48, 32), (Yuyv, 17, 5), (Rgb8, 81, 61)]
    {
        let picture = picture(format, width_px, height_px, 1);
        let letterbox = Letterbox::fit(picture.size, input);
        let mut reused = vec![9_u8; 3 * input.pixels()];
        filler.fill(&picture, &letterbox, 3, &mut reused).unwrap();
        assert_eq!(reused, filled::<u8>(&picture, input, 3), "{format:?}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let input = SizePx::new(64, 64);
    let whole = picture(Rgb8, 8, 8, 0);
    let letterbox = Letterbox::fit(whole.size, input);
    let mut target = vec![0.0; 3 * input.pixels()];
    fill(&whole, &letterbox, 3, &mut target).unwrap();
    let mut torn = picture(Rgb8, 8, 8, 0);
    torn.pixels = vec![0; 8 * 8 * 3 - 1].into();
    assert!(fill(&torn, &letterbox, 3, &mut target).is_err());
    assert!(fill(&picture(Rgb8, 9, 8, 0), &letterbox, 3, &mut target).is_err());
    assert!(fill(&whole, &letterbox, 2, &mut target).is_err());
    assert!(fill(&whole, &letterbox, 3, &mut target[1..]).is_err());
    let outside = Letterbox { pad_left_px: 1, ..letterbox };
    assert!(fill(&whole, &outside, 3, &mut target).is_err());
}

#[test]
fn rounding_is_pythons() {
    // 0.5 rounds to 0, 1.5 to 2, 2.5 to 2: heights 641/1281 ... chosen so that w × r ends in .5
    let letterbox = Letterbox::fit(SizePx::new(5, 256), SizePx::new(128, 128));
    assert_eq!(letterbox.scaled, SizePx::new(2, 128));
    let letterbox = Letterbox::fit(SizePx::new(7, 256), SizePx::new(128, 128));
    assert_eq!(letterbox.scaled, SizePx::new(4, 128));
    let letterbox = Letterbox::fit(SizePx::new(1920, 1080), SizePx::new(640, 640));
    assert_eq!((letterbox.scaled, letterbox.pad_left_px, letterbox.pad_top_px), (SizePx::new(640, 360), 0, 140));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn fast_equals_naive(width_px in 1_u32..90, height_px in 1_u32..90, input_width_px in 1_u32..70, input_height_px in 1_u32..70, gap in 0_usize..5) {
        let picture = picture(Rgb8, width_px, height_px, gap);
        let input = SizePx::new(input_width_px, input_height_px);
        let letterbox = Letterbox::fit(picture.size, input);
        prop_assert_eq!(filled::<u8>(&picture, input, 3), naive(&picture, &letterbox));
    }

    #[test]
    fn boxes_come_back(width_px in 16_u32..4000, height_px in 16_u32..4000, left in 0.0_f32..1.0, top in 0.0_f32..1.0, wide in 0.0_f32..1.0, high in 0.0_f32..1.0) {
        let letterbox = Letterbox::fit(SizePx::new(width_px, height_px), SizePx::new(640, 640));
        let (width, height) = (units::float(width_px), units::float(height_px));
        let edges = BoxPx::new(left * width, top * height, (left + wide) * width, (top + high) * height);
        let back = letterbox.to_source(letterbox.to_input(edges));
        for (there, back) in <[f32; 4]>::from(edges).into_iter().zip(<[f32; 4]>::from(back)) {
            prop_assert!((there - back).abs() < 0.01, "{there} {back}");
        }
    }
}
