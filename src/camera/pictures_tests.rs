use super::*;
use crate::frame::PixelFormat;
use image::ExtendedColorType;

const SIZE: SizePx = SizePx::new(37, 21);

/// A smooth picture with an edge, so that turning it shows.
fn sample() -> Vec<u8> {
    let mut pixels = Vec::new();
    for y in 0..SIZE.height_px {
        for x in 0..SIZE.width_px {
            let value = u8::try_from(x * 5 + y).unwrap();
            pixels.extend_from_slice(&[value, 255 - value, if x < 9 { 200 } else { 30 }]);
        }
    }
    pixels
}

fn encode(format: ImageFormat, color: ExtendedColorType, bytes: &[u8]) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    image::write_buffer_with_format(&mut file, bytes, SIZE.width_px, SIZE.height_px, color, format).unwrap();
    file.into_inner()
}

fn jpeg() -> Vec<u8> {
    encode(ImageFormat::Jpeg, ExtendedColorType::Rgb8, &sample())
}

#[test]
fn lossless_formats_give_the_very_bytes() {
    for format in [ImageFormat::Png, ImageFormat::Bmp, ImageFormat::Tiff] {
        let picture = decode_bytes(&encode(format, ExtendedColorType::Rgb8, &sample())).unwrap();
        assert_eq!((picture.size, picture.format), (SIZE, PixelFormat::Rgb8));
        assert!(picture.is_whole());
        assert_eq!(picture.pixels.as_slice(), sample(), "{format:?}");
    }
}

#[test]
fn other_pixel_kinds_become_rgb() {
    let gray: Vec<u8> = sample().chunks_exact(3).map(|pixel| pixel[0]).collect();
    let gray_rgb: Vec<u8> = gray.iter().flat_map(|&value| [value; 3]).collect();
    let rgba: Vec<u8> = sample().chunks_exact(3).flat_map(|pixel| [pixel[0], pixel[1], pixel[2], 7]).collect();
    let gray16: Vec<u8> = gray.iter().flat_map(|&value| u16::from_be_bytes([value, 0xf1]).to_ne_bytes()).collect();
    for (color, bytes, expected) in [
        (ExtendedColorType::L8, &gray, &gray_rgb),
        (ExtendedColorType::Rgba8, &rgba, &sample()),
        (ExtendedColorType::L16, &gray16, &gray_rgb),
    ] {
        let picture = decode_bytes(&encode(ImageFormat::Png, color, bytes)).unwrap();
        assert_eq!(picture.pixels.as_slice(), expected.as_slice(), "{color:?}");
    }
}

#[test]
fn jpeg_is_near_and_whole() {
    let picture = decode_bytes(&jpeg()).unwrap();
    assert_eq!(picture.size, SIZE);
    let worst = picture.pixels.as_slice().iter().zip(sample()).map(|(&a, b)| a.abs_diff(b)).max().unwrap();
    assert!((1..=80).contains(&worst), "{worst}");
}

#[test]
fn a_jpeg_cut_anywhere_is_an_error() {
    let whole = jpeg();
    for length in 0..whole.len() {
        assert!(decode_bytes(&whole[..length]).is_err(), "{length} of {}", whole.len());
    }
    for length in 2..whole.len() - 2 {
        let mut closed = whole[..length].to_vec();
        closed.extend_from_slice(&[0xff, 0xd9]);
        assert!(decode_bytes(&closed).is_err(), "{length} of {} with an end marker", whole.len());
    }
}

#[test]
fn lossless_formats_cut_anywhere_are_errors_or_whole() {
    for format in [ImageFormat::Png, ImageFormat::Bmp, ImageFormat::Tiff] {
        let whole = encode(format, ExtendedColorType::Rgb8, &sample());
        for length in 0..whole.len() {
            if let Ok(picture) = decode_bytes(&whole[..length]) {
                assert_eq!(picture.pixels.as_slice(), sample(), "{format:?} cut at {length} of {}", whole.len());
            }
        }
    }
}

#[test]
fn bytes_behind_a_jpeg_are_ignored_and_missing_tables_are_the_standard_ones() {
    let mut padded = jpeg();
    padded.extend_from_slice(&[0; 100]);
    let expected = decode_bytes(&jpeg()).unwrap();
    assert_eq!(decode_bytes(&padded).unwrap().pixels.as_slice(), expected.pixels.as_slice());
    let without = without_tables(&jpeg());
    assert!(without.len() < jpeg().len());
    assert_eq!(decode_bytes(&without).unwrap().pixels.as_slice(), expected.pixels.as_slice());
}

/// Leaves out the DHT segments, as UVC cameras do; the encoder used here writes the standard tables.
fn without_tables(jpeg: &[u8]) -> Vec<u8> {
    let mut out = jpeg[..2].to_vec();
    let mut position = 2;
    while jpeg[position + 1] != 0xda {
        let length = 2 + usize::from(u16::from_be_bytes([jpeg[position + 2], jpeg[position + 3]]));
        if jpeg[position + 1] != 0xc4 {
            out.extend_from_slice(&jpeg[position..position + length]);
        }
        position += length;
    }
    out.extend_from_slice(&jpeg[position..]);
    out
}

#[test]
fn damaged_bytes_never_panic_and_never_change_the_size_silently() {
    let whole = jpeg();
    let mut state = 7u64;
    for _ in 0..3000 {
        let mut bytes = whole.clone();
        for _ in 0..3 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = usize::try_from(state >> 33).unwrap() % bytes.len();
            bytes[at] = state.to_be_bytes()[3];
        }
        if let Ok(picture) = decode_bytes(&bytes) {
            assert!(picture.is_whole());
        }
    }
}

#[test]
fn bombs_and_strangers_are_explained() {
    let mut bomb = jpeg();
    let header = bomb.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    bomb[header + 5..header + 9].copy_from_slice(&[0xff, 0xff, 0xff, 0xff]);
    let error = decode_bytes(&bomb).unwrap_err();
    assert!(error.message().contains("65535×65535"), "{error}");
    for (bytes, word) in [
        (&b""[..], "empty"),
        (b"GIF89a..........", "Gif"),
        (b"hello world, this is no picture", "no JPEG"),
        (b"version https://git-lfs.github.com/spec/v1", "LFS"),
    ] {
        let error = decode_bytes(bytes).unwrap_err();
        assert!(error.message().contains(word), "{error}");
        assert_eq!(error.kind(), crate::ErrorKind::Source);
    }
}

/// Against OpenCV: run `tools/compare_pictures.py DIR`, then
/// `EDGE_PICTURES=DIR cargo test --lib opencv -- --ignored --nocapture`.
#[test]
#[ignore = "needs the folder that tools/compare_pictures.py writes"]
fn opencv_reads_the_same() {
    let folder = std::path::PathBuf::from(std::env::var("EDGE_PICTURES").expect("EDGE_PICTURES names the folder"));
    let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut bad = Vec::new();
    for path in paths.iter().filter(|path| path.with_added_extension("raw").exists()) {
        let expected = std::fs::read(path.with_added_extension("raw")).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let picture = match decode(path) {
            Ok(picture) => picture,
            Err(error) => {
                println!("{name:24} refused: {error}");
                bad.push(name);
                continue;
            }
        };
        let found = picture.pixels.as_slice();
        if found.len() != expected.len() {
            println!("{name:24} {} bytes against {}", found.len(), expected.len());
            bad.push(name);
            continue;
        }
        let mut steps = [0usize; 256];
        found.iter().zip(&expected).for_each(|(&a, &b)| steps[usize::from(a.abs_diff(b))] += 1);
        let worst = steps.iter().rposition(|&number| number > 0).unwrap();
        let share = crate::units::length(steps[0]) / crate::units::length(found.len());
        println!("{name:24} equal {:.3} %, largest difference {worst}", share * 100.0);
        // Noise is the worst case for chroma upsampling; 16-bit TIFF is rounded there and cut here.
        let allowed = match name.as_str() {
            jpeg if jpeg.ends_with("cmyk.jpg") => 2,
            jpeg if jpeg.ends_with(".jpg") => {
                if jpeg.starts_with("noise") {
                    5
                } else {
                    1
                }
            }
            tiff if tiff.ends_with("_rgb16.tif") || tiff.ends_with("_jpeg.tif") => 1,
            _ => 0,
        };
        if worst > allowed {
            bad.push(name);
        }
    }
    assert!(bad.is_empty(), "{bad:?}");
}

/// Damages every picture of the folder of `tools/compare_pictures.py` in many ways; reading must not panic.
#[test]
#[ignore = "needs the folder that tools/compare_pictures.py writes"]
fn damaged_pictures_of_every_kind_never_panic() {
    let folder = std::path::PathBuf::from(std::env::var("EDGE_PICTURES").expect("EDGE_PICTURES names the folder"));
    let (mut read, mut refused, mut state) = (0, 0, 1u64);
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below.max(1)
    };
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let whole = std::fs::read(&path).unwrap();
        if path.extension().is_some_and(|extension| extension == "raw") || whole.len() > 200_000 {
            continue;
        }
        for round in 0..60 {
            let mut bytes = whole.clone();
            let reach = if round % 2 == 0 { bytes.len() } else { 400.min(bytes.len()) };
            for _ in 0..1 + random(4) {
                let at = random(reach);
                bytes[at] = u8::try_from(random(256)).unwrap();
            }
            if round % 5 == 0 {
                bytes.truncate(random(whole.len()));
            }
            match decode_bytes(&bytes) {
                Ok(picture) => {
                    assert!(picture.is_whole());
                    read += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    println!("{read} read, {refused} refused");
}
