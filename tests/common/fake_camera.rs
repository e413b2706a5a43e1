//! Runs a program with a made-up UVC camera in front of the kernel: see `tests/v4l2_preload/fake_v4l2.c`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The library to preload, compiled once a process; `None` (said aloud) where there is no C compiler.
pub(crate) fn library() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    LIBRARY.get_or_init(build).as_deref()
}

fn build() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/v4l2_preload/fake_v4l2.c");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let library = folder.join("libfake_v4l2.so");
    let aside = folder.join(format!("libfake_v4l2.{}.so", std::process::id()));
    let compiled = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .args([&aside, &source])
        .args(["-ldl", "-lpthread"])
        .output();
    match compiled {
        Ok(output) if output.status.success() => {
            std::fs::rename(&aside, &library).unwrap();
            Some(library)
        }
        Ok(output) => panic!("cc failed:\n{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            super::lacks("cc", &format!("a C compiler `cc` for the made-up camera ({error})"));
            None
        }
    }
}

/// Writes `WIDTHxHEIGHT_0.jpg` to `…_3.jpg` without Huffman tables, as UVC cameras send them.
pub(crate) fn write_jpegs(folder: &Path, width_px: u32, height_px: u32) {
    for number in 0..4u32 {
        let picture = image::RgbImage::from_fn(width_px, height_px, |x, y| {
            image::Rgb([u8::try_from((x / 8) % 256).unwrap(), u8::try_from((y / 8) % 256).unwrap(), number as u8 * 60])
        });
        let mut bytes = std::io::Cursor::new(Vec::new());
        picture.write_to(&mut bytes, image::ImageFormat::Jpeg).unwrap();
        std::fs::write(folder.join(format!("{width_px}x{height_px}_{number}.jpg")), without_tables(bytes.get_ref()))
            .unwrap();
    }
}

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
