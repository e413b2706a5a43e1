use super::head::HEAD_BYTES;
use super::*;

fn layout() -> LaneLayout {
    let shape = LaneShape {
        batch: 2,
        channels: 3,
        width: 8,
        height: 4,
        picture_bytes: 1000,
        anchors: 300,
        cap: 2000,
        ahead: false,
    };
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
    assert!(parts.iter().all(|part| part.offset % 512 == 0));
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

/// On the stand-in driver kernels do nothing, but everything around them happens: copies, graph, marks, waiting, giving back.
#[test]
fn a_lane_runs_on_the_double_and_gives_everything_back() {
    use crate::ffi::cuda::{Budget, Context, Driver, double};
    use crate::ffi::tensorrt::DataType;
    use crate::units::Bytes;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libcuda.so.1");
    double::compile("cuda.c", &path, &[]);
    let driver = Driver::from_file(&path).unwrap();
    let context = Context::new(driver, 0, Wait::Block).unwrap();
    let tensor = |name: &str, sizes: &[i64], input| tensorrt::TensorFacts {
        name: name.into(),
        sizes: sizes.into(),
        data_type: DataType::Float,
        input,
    };
    let tensors = [tensor("images", &[2, 3, 4, 8], true), tensor("output0", &[2, 6, 300], false)];
    let sizes: Vec<usize> =
        tensors.iter().map(|tensor| index(u32::try_from(tensor.bytes().unwrap()).unwrap())).collect();
    let layout = LaneLayout::new(layout().shape, &sizes, 256, 0).unwrap();
    let budget = Budget::new(&context, Bytes(count(layout.end)));
    let arena = budget.reserve(layout.end).unwrap();
    let error = budget.reserve(1).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Budget);
    assert_eq!((budget.allocations(), budget.allocated(), budget.peak()), (1, budget.limit(), budget.limit()));
    let kernels = Kernels::load(&context, 0, 0).unwrap();
    let decode = |name: &str| Decode::new(DecodeKind::Raw, 2, vec![name.into()]);
    let lane = |decode| Lane::without_network(&tensors, &kernels, &arena, layout.clone(), decode);
    assert!(lane(decode("output1")).err().unwrap().message().contains("expected an output named `output1`"));
    assert!(lane(Decode::new(DecodeKind::EndToEnd, 2, vec!["output0".into()])).is_err());
    let mut lane = lane(decode("output0")).unwrap();
    assert_eq!(lane.graph_refused(), None);
    lane.set_floor(0.5).unwrap();
    let pixels = [9; 96];
    lane.stage(1, Some(&StagedPicture { head: head(), columns: &[], rows: &[], pixels: &pixels })).unwrap();
    assert!(lane.stage(2, None).is_err());
    lane.write(layout.answers, &vec![0; layout.answers.bytes]).unwrap();
    lane.submit().unwrap();
    assert!(lane.submit().is_err() && lane.answer(0).is_err() && lane.set_floor(0.1).is_err());
    lane.wait().unwrap();
    assert_eq!(lane.answer(1).unwrap().kept, 0);
    let staging = lane.read_back(layout.staging).unwrap();
    assert_eq!(staging[..4], 0.5_f32.to_le_bytes());
    let slot = layout.slot(1).unwrap();
    assert_eq!(staging[slot.start + layout.pixels_start()..][..96], pixels);
    assert!(lane.times().is_ok() && lane.pinned_bytes() > 0);
    // The kernels' pages of an answer that contradicts itself are no answer.
    lane.write(layout.answers, &[0xff; 64]).unwrap();
    lane.submit().unwrap();
    lane.wait().unwrap();
    assert!(lane.answer(0).is_err());
    drop((lane, arena, budget));
    two_sets_take_turns(&tensors, &sizes, &kernels, decode("output0"), &context);
    drop((kernels, context));
}

/// The next pictures are copied while a run is in flight; a run reads its own set, and the floor reaches both.
fn two_sets_take_turns(
    tensors: &[tensorrt::TensorFacts],
    sizes: &[usize],
    kernels: &Kernels,
    decode: Decode,
    context: &Arc<crate::ffi::cuda::Context>,
) {
    let layout = LaneLayout::new(LaneShape { ahead: true, ..layout().shape }, sizes, 256, 0).unwrap();
    let arena = Arc::new(DeviceBuffer::new(context, layout.end).unwrap());
    let mut lane = Lane::without_network(tensors, kernels, &arena, layout.clone(), decode).unwrap();
    lane.set_floor(0.25).unwrap();
    let second = layout.staging_ahead.unwrap();
    let at = layout.slot(0).unwrap().start + layout.pixels_start();
    let stage = |lane: &mut Lane, value: u8| {
        let picture = StagedPicture { head: head(), columns: &[], rows: &[], pixels: &[value; 96] };
        lane.stage(0, Some(&picture))
    };
    let first_set = lane.next_set();
    stage(&mut lane, 1).unwrap();
    lane.submit().unwrap();
    assert_eq!((lane.running_set(), lane.next_set()), (first_set, 1 - first_set));
    stage(&mut lane, 2).unwrap();
    lane.send_ahead().unwrap();
    assert!(stage(&mut lane, 3).unwrap_err().message().contains("being copied already"));
    assert!(lane.submit().is_err(), "one run at a time");
    lane.wait().unwrap();
    lane.submit().unwrap();
    lane.wait().unwrap();
    assert_eq!(lane.running_set(), 1 - first_set);
    let sections = [layout.staging, second];
    for (set, value) in [(first_set, 1), (1 - first_set, 2)] {
        let staging = lane.read_back(sections[set]).unwrap();
        assert_eq!((&staging[..4], staging[at]), (&0.25_f32.to_le_bytes()[..], value), "set {set}");
    }
    // A new floor also reaches pictures that were sent ahead.
    stage(&mut lane, 4).unwrap();
    lane.send_ahead().unwrap();
    lane.set_floor(0.75).unwrap();
    lane.submit().unwrap();
    lane.wait().unwrap();
    let staging = lane.read_back(sections[lane.running_set()]).unwrap();
    assert_eq!((&staging[..4], staging[at]), (&0.75_f32.to_le_bytes()[..], 4));
    assert!(lane.times().is_ok());
}
