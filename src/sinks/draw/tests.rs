use super::*;
use crate::units::{BoxPx, SizePx};
use proptest::prelude::*;

fn picture(format: PixelFormat, size: SizePx, pad_bytes: usize, value: u8) -> Picture {
    let stride_bytes = format.row_bytes(size.width_px) + pad_bytes;
    Picture { size, stride_bytes, format, pixels: vec![value; format.picture_bytes(size, stride_bytes)].into() }
}

const FORMATS: [PixelFormat; 6] =
    [PixelFormat::Rgb8, PixelFormat::Bgr8, PixelFormat::Gray8, PixelFormat::Nv12, PixelFormat::Yuyv, PixelFormat::Uyvy];

fn detection(class_id: u32, edges: BoxPx) -> Detection {
    Detection { class_id, score: 0.9, edges, unclipped: edges }
}

#[test]
fn every_format_gives_gray_for_gray() {
    for format in FORMATS {
        let mut canvas = Canvas::default();
        canvas.paint(&picture(format, SizePx::new(7, 5), 3, 128), &Drawing::default(), 100).unwrap();
        assert_eq!((canvas.width_px(), canvas.height_px()), (7, 5));
        assert!(canvas.rgb().iter().all(|&value| value.abs_diff(128) <= 3), "{format:?} {:?}", &canvas.rgb()[..6]);
    }
}

#[test]
fn colours_come_out_right() {
    assert_eq!(rgb_of((81, 90, 240)), [255, 0, 0]);
    assert_eq!(rgb_of((145, 54, 34)), [0, 255, 1]);
    assert_eq!(rgb_of((41, 240, 110)), [0, 0, 255]);
    let mut bgr = picture(PixelFormat::Bgr8, SizePx::new(1, 1), 0, 0);
    bgr.pixels = vec![1, 2, 3].into();
    let mut canvas = Canvas::default();
    canvas.paint(&bgr, &Drawing::default(), 10).unwrap();
    assert_eq!(canvas.rgb(), [3, 2, 1]);
    let yuyv = Picture {
        size: SizePx::new(2, 1),
        stride_bytes: 4,
        format: PixelFormat::Yuyv,
        pixels: vec![81, 90, 81, 240].into(),
    };
    canvas.paint(&yuyv, &Drawing::default(), 10).unwrap();
    assert_eq!(canvas.rgb(), [255, 0, 0, 255, 0, 0]);
}

#[test]
fn a_box_is_where_it_should_be_after_shrinking() {
    let source = picture(PixelFormat::Gray8, SizePx::new(200, 100), 0, 0);
    let drawing =
        Drawing { detections: vec![detection(0, BoxPx::new(100.0, 60.0, 160.0, 90.0))], ..Drawing::default() };
    let mut canvas = Canvas::default();
    canvas.paint(&source, &drawing, 100).unwrap();
    let at = |x: usize, y: usize| &canvas.rgb()[(y * 100 + x) * 3..][..3];
    assert_eq!((canvas.width_px(), canvas.height_px()), (100, 50));
    assert_eq!(at(50, 40), PALETTE[0]);
    assert_eq!(at(79, 40), PALETTE[0]);
    assert_eq!(at(65, 38), [0, 0, 0]);
    assert_eq!(at(49, 40), [0, 0, 0]);
}

#[test]
fn a_banner_lies_below_the_picture() {
    let source = picture(PixelFormat::Gray8, SizePx::new(320, 100), 0, 77);
    let banner = Banner { trust: Trust::Trusted, decision: Some(Decision::Reject), text: "part 图 A-17".to_owned() };
    let drawing = Drawing { banner: Some(banner), ..Drawing::default() };
    let mut canvas = Canvas::default();
    canvas.paint(&source, &drawing, 4000).unwrap();
    assert_eq!(canvas.height_px(), 115);
    assert!(canvas.rgb()[..320 * 100 * 3].iter().all(|&value| value == 77));
    assert_eq!(&canvas.rgb()[320 * 100 * 3..][..3], [235, 70, 60]);
}

#[test]
fn a_cut_picture_is_refused() {
    let mut cut = picture(PixelFormat::Rgb8, SizePx::new(64, 64), 0, 0);
    cut.pixels = vec![0; 100].into();
    assert_eq!(jpeg(&cut, &Drawing::default(), 64, 75).unwrap_err().kind(), crate::ErrorKind::Refused);
}

#[test]
fn the_jpeg_can_be_read_back() {
    let source = picture(PixelFormat::Nv12, SizePx::new(641, 359), 7, 128);
    let bytes = jpeg(&source, &Drawing::default(), 320, 75).unwrap();
    let read = image::load_from_memory(&bytes).unwrap();
    assert_eq!((read.width(), read.height()), (213, 119));
}

proptest! {
    #[test]
    fn no_box_and_no_size_panics(
        format in 0..FORMATS.len(),
        width in 1_u32..70,
        height in 1_u32..70,
        most in 0_usize..80,
        class_id in 0_u32..20,
        edges in prop::array::uniform4(prop_oneof![-200.0_f32..200.0, Just(f32::NAN), Just(f32::INFINITY)]),
    ) {
        let source = picture(FORMATS[format], SizePx::new(width, height), 1, 200);
        let drawing = Drawing {
            detections: vec![detection(class_id, edges.into())],
            classes: vec!["a".to_owned(), "图".to_owned()].into(),
            banner: Some(Banner { trust: Trust::Fault, decision: None, text: "x".repeat(50) }),
        };
        let mut canvas = Canvas::default();
        canvas.paint(&source, &drawing, most).unwrap();
        prop_assert_eq!(canvas.rgb().len(), canvas.width_px() * canvas.height_px() * 3);
    }
}
