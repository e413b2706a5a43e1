//! N04 and the field's picture files: every colour kind becomes the same RGB, what cannot be read is one unreadable row
//! and the rest goes on.

use edge_trt::camera::{Capture, SourceSpec, open, pictures};
use edge_trt::frame::PixelFormat;
use std::time::Duration;

fn sample(x: u32, y: u32) -> u8 {
    u8::try_from(x * 3 + y).unwrap_or(u8::MAX)
}

#[test]
fn a_folder_of_every_kind_loses_nothing_and_hides_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let gray = image::GrayImage::from_fn(64, 48, |x, y| image::Luma([sample(x, y)]));
    let dynamic = image::DynamicImage::ImageLuma8(gray.clone());
    dynamic.to_rgb8().save(path("a_rgb.png")).unwrap();
    dynamic.to_rgba8().save(path("b_rgba.png")).unwrap();
    gray.save(path("c_gray.png")).unwrap();
    dynamic.to_luma16().save(path("d_gray16.png")).unwrap();
    dynamic.to_rgb16().save(path("e_rgb16.tiff")).unwrap();
    dynamic.to_rgb8().save(path("f.bmp")).unwrap();
    dynamic.to_rgb8().save(path("g.jpg")).unwrap();
    let jpeg = std::fs::read(path("g.jpg")).unwrap();
    std::fs::write(path("h_half.jpg"), &jpeg[..jpeg.len() / 2]).unwrap();
    std::fs::write(path("i_zero.jpg"), b"").unwrap();
    std::fs::write(path("j_text.png"), b"not a picture").unwrap();
    std::os::unix::fs::symlink("gone.png", path("k_gone.png")).unwrap();
    let half_png = std::fs::read(path("a_rgb.png")).unwrap();
    std::fs::write(path("l_half.png"), &half_png[..half_png.len() / 2]).unwrap();

    let mut camera = open(&SourceSpec::parse(folder.path().to_str().unwrap()).unwrap(), "files".into()).unwrap();
    let (mut read, mut unreadable) = (Vec::new(), Vec::new());
    for expected in 0.. {
        match camera.next(Duration::ZERO).unwrap() {
            Capture::Frame(frame) => {
                assert_eq!((frame.number, frame.picture.format), (expected, PixelFormat::Rgb8));
                let tolerance = if frame.source.as_deref() == Some("g.jpg") { 8 } else { 0 };
                for (index, pixel) in frame.picture.pixels.as_slice().chunks_exact(3).enumerate() {
                    let index = u32::try_from(index).unwrap();
                    let wanted = sample(index % 64, index / 64);
                    assert!(pixel.iter().all(|value| value.abs_diff(wanted) <= tolerance), "{:?}", frame.source);
                }
                read.push(frame.source.clone().unwrap().to_string());
            }
            Capture::Unreadable { number, source, why, .. } => {
                assert_eq!(number, expected);
                unreadable.push((source.unwrap().to_string(), why));
            }
            Capture::End => break,
            Capture::Nothing => panic!("files never wait"),
        }
    }
    assert_eq!(read, ["a_rgb.png", "b_rgba.png", "c_gray.png", "d_gray16.png", "e_rgb16.tiff", "f.bmp", "g.jpg"]);
    let names: Vec<&str> = unreadable.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["h_half.jpg", "i_zero.jpg", "j_text.png", "k_gone.png", "l_half.png"], "{unreadable:?}");
}

#[test]
fn a_jpeg_that_lost_data_in_the_middle_is_refused_even_with_its_end() {
    let picture = image::RgbImage::from_fn(320, 240, |x, y| {
        let noise = x.wrapping_mul(2_654_435_761).wrapping_add(y.wrapping_mul(40_503)) >> 7;
        image::Rgb([sample(x, y), (noise & 63) as u8, 128])
    });
    let mut bytes = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut bytes, image::ImageFormat::Jpeg).unwrap();
    let whole = bytes.into_inner();
    pictures::decode_bytes(&whole).unwrap();
    let mut accepted = 0;
    for at in (700..whole.len() - 600).step_by(97) {
        let mut torn = whole[..at].to_vec();
        torn.extend_from_slice(&whole[at + 512..]);
        accepted += usize::from(pictures::decode_bytes(&torn).is_ok());
    }
    assert_eq!(accepted, 0, "a lost USB packet of 512 bytes goes unnoticed");
}
