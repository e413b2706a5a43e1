use super::head::HEAD_BYTES;
use super::*;

fn layout() -> LaneLayout {
    let shape = LaneShape { batch: 2, channels: 3, width: 8, height: 4, picture_bytes: 1000, anchors: 300, cap: 2000 };
    LaneLayout::new(shape, &[768, 12_000], 5000, 10).unwrap()
}

#[test]
fn parts_of_a_lane_are_aligned_and_do_not_overlap() {
    let layout = layout();
    let mut parts = layout.tensors.clone();
    parts.extend([layout.activations, layout.staging, layout.keys, layout.class_ids, layout.partials, layout.answers]);
    parts.extend(layout.rest);
    for pair in parts.windows(2) {
        assert!(pair[0].offset + pair[0].bytes <= pair[1].offset, "{pair:?}");
    }
    assert!(parts.iter().all(|part| part.offset % 256 == 0));
    assert_eq!(layout.end, parts.last().map(|part| part.offset + part.bytes).unwrap());
    assert_eq!(layout.keys.bytes, 2 * 512 * 8);
    assert!(layout.slot(2).is_err());
    assert!(layout.slot(1).unwrap().end <= layout.staging.bytes);
    assert!(layout.pixel_bytes() >= 1000);
    let huge = LaneShape { picture_bytes: usize::MAX - 5, ..layout.shape };
    assert!(LaneLayout::new(huge, &[], 0, 0).is_err());
}

fn head() -> Head {
    Head {
        format: PictureFormat::Rgb,
        mode: ScaleMode::Copy,
        source_width: 8,
        source_height: 4,
        stride: 24,
        length: 96,
        scaled_width: 8,
        scaled_height: 4,
        pad_left: 0,
        pad_top: 0,
    }
}

/// The kernel trusts the head: whatever would make it read or write outside is refused here.
#[test]
fn heads_that_would_lead_the_kernel_outside_are_refused() {
    let layout = layout();
    let weight = |first, second| Weight { first, second, first_share: 2048, second_share: 0 };
    let pixels = vec![7; 96];
    let staged = |head: Head, columns: &[Weight], rows: &[Weight], pixels: &[u8]| {
        let mut slot = vec![1; layout.slot_bytes];
        StagedPicture { head, columns, rows, pixels }.write(&layout, &mut slot).map(|bytes| (bytes, slot))
    };
    let (bytes, slot) = staged(head(), &[], &[], &pixels).unwrap();
    assert_eq!(bytes, layout.pixels_start() + 96);
    assert_eq!(slot[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(slot[layout.pixels_start()..bytes], pixels);
    assert!(HEAD_BYTES <= layout.pixels_start());
    for wrong in [
        Head { stride: 23, ..head() },
        Head { source_height: 5, ..head() },
        Head { length: 97, ..head() },
        Head { pad_left: 1, ..head() },
        Head { pad_top: u32::MAX, ..head() },
        Head { source_width: 0, ..head() },
        Head { mode: ScaleMode::Halve, ..head() },
        Head { format: PictureFormat::Nv12, ..head() },
        Head { format: PictureFormat::Letterboxed, source_width: 4, source_height: 8, ..head() },
        Head { source_width: 4, stride: 12, ..head() },
    ] {
        assert!(staged(wrong, &[], &[], &pixels).is_err(), "{wrong:?}");
    }
    assert!(staged(head(), &[], &[], &[7; 95]).is_err());
    let blend = Head { mode: ScaleMode::Blend, ..head() };
    let (columns, rows) = ([weight(7, 0); 8], [weight(3, 3); 4]);
    assert!(staged(blend, &columns, &rows, &pixels).is_ok());
    assert!(staged(blend, &columns[..7], &rows, &pixels).is_err());
    assert!(staged(blend, &[weight(8, 0); 8], &rows, &pixels).is_err());
    assert!(staged(blend, &columns, &[weight(3, 4); 4], &pixels).is_err());
}

#[test]
fn answers_are_read_as_the_kernel_writes_them() {
    let layout = layout();
    let mut bytes = vec![0; layout.answers.bytes];
    let slot = &mut bytes[layout.answers.bytes / 2..];
    let mut put = |number: usize, value: u32| slot[4 * number..4 * number + 4].copy_from_slice(&value.to_le_bytes());
    put(8, !(-1.0_f32).to_bits());
    put(9, 0.5_f32.to_bits() | 0x8000_0000);
    let sum = 2.5_f64.to_bits();
    put(12, u32::try_from(sum & 0xffff_ffff).unwrap());
    put(13, u32::try_from(sum >> 32).unwrap());
    put(10, 2);
    put(11, 1);
    put(14, 1);
    put(16, 42);
    put(18, 0.25_f32.to_bits());
    put(22, 9.0_f32.to_bits());
    let answer = Answer::read(&bytes, 1, &layout).unwrap();
    assert_eq!((answer.minimum_score, answer.maximum_score, answer.sum), (-1.0, 0.5, 2.5));
    let boxes: Vec<_> = answer.front().collect();
    assert_eq!(boxes, [AnswerBox { anchor: 42, class_id: 0, score: 0.25, edges: [0.0, 0.0, 0.0, 9.0] }]);
    assert_eq!(answer.behind(), 0);
    bytes[layout.answers.bytes / 2 + 4 * 14] = 3;
    assert!(Answer::read(&bytes, 1, &layout).is_err());
    assert!(Answer::read(&bytes, 2, &layout).is_err());
}
