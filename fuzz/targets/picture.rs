//! Any bytes as a picture: JPEG (also without tables, as cameras send it), PNG, BMP, TIFF.
#![no_main]

use edge_trt::camera::pictures::decode_bytes;
use edge_trt::guard::picture::PictureStats;
use libfuzzer_sys::fuzz_target;

/// Larger pictures are right, but they make the fuzzer slow.
const MOST_PIXELS: usize = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let Ok(picture) = decode_bytes(bytes) else { return };
    assert!(picture.is_whole(), "a picture that is decoded is whole");
    if picture.size.pixels() <= MOST_PIXELS {
        let _stats = PictureStats::measure(&picture);
    }
});
