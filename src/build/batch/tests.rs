use super::proof::{Tolerance, prove};
use super::rewrite;
use crate::build::watcher::Watcher;
use crate::engine::cpu::{self, CpuBackend, CpuOptions};
use crate::engine::{ElementType, Engine, InputSpec, Layout};
use crate::onnx::Model;
use crate::onnx::node::make;
use crate::onnx::samples::{Sample, value};
use crate::onnx::shapes::{self, Fact};
use crate::onnx::tensor::{self, DataType};
use crate::units::SizePx;

const F32: DataType = DataType::F32;

struct Silent;

impl Watcher for Silent {
    fn say(&mut self, _: &str) {}
    fn warn(&mut self, line: &str) {
        panic!("{line}");
    }
    fn step(&mut self, _: &str, _: u64, _: u64) {}
    fn check_stop(&self) -> crate::Result<()> {
        Ok(())
    }
}

/// A model of one `Reshape` to `target`, from an input of `shape`, and what follows.
fn reshaped(shape: &[i64], target: &[i64], more: Vec<onnx_protobuf::NodeProto>) -> Sample {
    let mut nodes = vec![make::node("Reshape", "flat", &["images", "target"], &["r"], vec![])];
    nodes.extend(more);
    let output = nodes.last().unwrap().output[0].clone();
    let mut sample = Sample::new(shape, nodes, vec![value(&output, F32, &[-1])]);
    sample.weights.push(tensor::from_i64("target", &[i64::try_from(target.len()).unwrap()], target));
    sample
}

fn rewritten(sample: &Sample, batch: u32) -> crate::Result<(Model, usize)> {
    let mut model = sample.model();
    rewrite(&mut model, batch).map(|operands| (model, operands))
}

/// Shape of the output after the rewrite.
fn shape_at(sample: &Sample, batch: u32) -> Vec<i64> {
    let (model, _) = rewritten(sample, batch).unwrap();
    let output = &model.graph().output[0];
    let inferred = shapes::infer(&model).unwrap().fixed(&output.name).unwrap();
    assert_eq!(Fact::declared(output).fixed().unwrap(), inferred);
    inferred
}

#[test]
fn shape_operands_that_carry_the_batch_are_found() {
    assert_eq!(shape_at(&reshaped(&[1, 64, 80, 80], &[1, 64, -1], vec![]), 8), [8, 64, 6400]);
    assert_eq!(shape_at(&reshaped(&[1, 64, 80, 80], &[1, 1, 64, 6400], vec![]), 8), [8, 1, 64, 6400]);
    assert_eq!(shape_at(&reshaped(&[1, 64, 8, 8], &[0, 64, -1], vec![]), 4), [4, 64, 64]);
    assert_eq!(shape_at(&reshaped(&[1, 64, 8, 8], &[-1, 64, 64], vec![]), 4), [4, 64, 64]);
    // The batch in the middle: channels first, pictures second.
    let turn = make::node("Transpose", "turn", &["images"], &["t"], vec![make::ints("perm", &[1, 0, 2, 3])]);
    let mut sample = reshaped(&[1, 3, 4, 4], &[3, 1, 16], vec![]);
    sample.nodes[0].input[0] = "t".to_owned();
    sample.nodes.insert(0, turn);
    assert_eq!(shape_at(&sample, 2), [3, 2, 16]);
}

#[test]
fn operands_that_follow_by_themselves_are_left_alone() {
    let (_, operands) = rewritten(&reshaped(&[1, 64, 8, 8], &[0, 64, -1], vec![]), 4).unwrap();
    assert_eq!(operands, 0);
    let (model, operands) = rewritten(&reshaped(&[1, 64, 8, 8], &[1, 64, -1], vec![]), 4).unwrap();
    assert_eq!(operands, 1);
    assert_eq!(model.graph().initializer.len(), 1, "the operand that nobody uses any more is gone");
}

#[test]
fn an_operand_shared_with_a_constant_branch_is_replaced_for_one_user_alone() {
    let mut sample = reshaped(
        &[1, 3, 2, 2],
        &[1, 3, 4],
        vec![
            make::node("Reshape", "grid", &["anchors", "target"], &["a"], vec![]),
            make::node("Add", "sum", &["r", "a"], &["y"], vec![]),
        ],
    );
    sample.weights.push(tensor::from_f32("anchors", &[12], &[0.5; 12]));
    assert_eq!(shape_at(&sample, 5), [5, 3, 4]);
    let (model, operands) = rewritten(&sample, 5).unwrap();
    assert_eq!((operands, model.graph().node[1].input[1].as_str()), (1, "target"));
}

#[test]
fn a_constant_that_is_joined_to_pictures_is_repeated() {
    let join = make::node("Concat", "join", &["r", "more"], &["y"], vec![make::int("axis", 1)]);
    let mut sample = reshaped(&[1, 3, 2, 2], &[1, 3, 4], vec![join]);
    sample.weights.push(tensor::from_f32("more", &[1, 2, 4], &[0.25; 8]));
    assert_eq!(shape_at(&sample, 3), [3, 5, 4]);
}

/// Areas of a picture attend apart, as in YOLO12: the batch is the outer factor of a dimension for a while.
#[test]
fn a_batch_that_shares_a_dimension_for_a_while_is_followed() {
    let back = |more: Vec<onnx_protobuf::NodeProto>, target: &[i64]| {
        let mut nodes = more;
        let last = nodes.last().map_or("r", |node| node.output[0].as_str()).to_owned();
        nodes.push(make::node("Reshape", "back", &[&last, "whole"], &["y"], vec![]));
        let mut sample = reshaped(&[1, 1, 8, 3], &[4, 2, 3], nodes);
        sample.weights.push(tensor::from_i64("whole", &[i64::try_from(target.len()).unwrap()], target));
        sample
    };
    assert_eq!(shape_at(&back(vec![], &[1, 8, 3]), 4), [4, 8, 3]);
    assert_eq!(shape_at(&back(vec![], &[1, -1, 3]), 4), [4, 8, 3]);
    let soft = make::node("Softmax", "soft", &["r"], &["s"], vec![make::int("axis", -1)]);
    assert_eq!(shape_at(&back(vec![soft], &[1, 8, 3]), 4), [4, 8, 3]);
    // Along the areas pictures would mix.
    let along = make::node("Softmax", "soft", &["r"], &["s"], vec![make::int("axis", 0)]);
    let error = rewritten(&back(vec![along], &[1, 8, 3]), 4).unwrap_err();
    assert!(error.message().contains("along the batch"), "{error}");
}

#[test]
fn a_graph_in_which_pictures_would_mix_or_be_lost_is_refused_with_the_node() {
    let after = |node| reshaped(&[1, 3, 2, 2], &[1, 3, 4], vec![node]);
    let axis = |axis| vec![make::int("axis", axis)];
    let merged = reshaped(&[1, 2, 4, 4], &[2, 16], vec![]);
    let mut gather = after(make::node("Gather", "pick", &["r", "zero"], &["y"], axis(0)));
    gather.weights.push(tensor::from_i64("zero", &[], &[0]));
    for (sample, name, reason) in [
        (merged, "`flat` (Reshape)", "no dimension for the batch"),
        (gather, "`pick` (Gather)", "along the batch"),
        (after(make::node("Softmax", "soft", &["r"], &["y"], axis(-3))), "`soft` (Softmax)", "along the batch"),
        (after(make::node("Concat", "twice", &["r", "r"], &["y"], axis(0))), "`twice` (Concat)", "along the batch"),
        (
            after(make::node("ReduceMean", "mean", &["r"], &["y"], vec![make::ints("axes", &[0])])),
            "`mean` (ReduceMean)",
            "holds no batch",
        ),
        (after(make::node("Squeeze", "squeeze", &["r"], &["y"], vec![])), "`squeeze` (Squeeze)", "becomes"),
        (after(make::node("NonZero", "hits", &["r"], &["y"], vec![])), "`hits` (NonZero)", "cannot be known"),
    ] {
        let error = rewritten(&sample, 4).unwrap_err();
        assert!(error.place().unwrap_or_default().contains(name), "{name}: {error}");
        assert!(error.message().contains(reason), "{name}: {error}");
        assert!(error.hint_text().unwrap().contains("batch=4"), "{error}");
    }
}

/// A detector of two classes on 8 × 8 pixels with two anchors: means of the picture become boxes and scores.
fn detector(batch: i64, mixed: bool) -> Vec<u8> {
    let source = if mixed { "one" } else { "images" };
    let mut nodes = vec![
        make::node("Reshape", "flat", &[source, "target"], &["r"], vec![]),
        make::node("MatMul", "head", &["r", "weights"], &["m"], vec![]),
        make::node("Sigmoid", "score", &["m"], &["s"], vec![]),
        make::node("Reshape", "out", &["s", "shape"], &["output0"], vec![]),
    ];
    if mixed {
        let index = make::node("Gather", "mix", &["images", "slots"], &["one"], vec![make::int("axis", 0)]);
        nodes.insert(0, index);
    }
    let mut sample = Sample::new(&[batch, 3, 8, 8], nodes, vec![value("output0", F32, &[batch, 6, 2])]);
    let weights: Vec<f32> = (0..192_u16)
        .flat_map(|row| (0..12_u16).map(move |at| f32::from(row * 7 + at * 5) % 11.0 - 5.0))
        .map(|value| value / 100.0)
        .collect();
    sample.weights = vec![
        tensor::from_i64("target", &[2], &[batch, 192]),
        tensor::from_i64("shape", &[3], &[batch, 6, 2]),
        tensor::from_f32("weights", &[192, 12], &weights),
    ];
    if mixed {
        let mut slots: Vec<i64> = (0..batch).collect();
        slots.swap(1, 2);
        sample.weights.push(tensor::from_i64("slots", &[batch], &slots));
    }
    sample.bytes()
}

fn engine(model: &[u8], batch: u32) -> Box<dyn Engine> {
    let input =
        InputSpec { name: "images".into(), batch, channels: 3, size: SizePx::new(8, 8), element: ElementType::F32 };
    let layout = Layout::Raw { output: "output0".into(), classes: 2, anchors: 2 };
    let options = CpuOptions { backend: CpuBackend::Rten, threads: Some(1), ..CpuOptions::default() };
    cpu::load(model, &input, &layout, ["a".to_owned(), "b".to_owned()].into(), 0.25, &options).unwrap()
}

const TOLERANCE: Tolerance = Tolerance { corner_px: 0.01, score: 0.001 };

#[test]
fn a_rewritten_graph_answers_in_every_slot_as_at_batch_1() {
    let one = detector(1, false);
    let mut model = Model::from_bytes(&one).unwrap();
    assert_eq!(rewrite(&mut model, 4).unwrap(), 2);
    let mut many = engine(&model.to_bytes().unwrap(), 4);
    prove(engine(&one, 1).as_mut(), many.as_mut(), TOLERANCE, &mut Silent).unwrap();
    assert_eq!(many.info().score_floor, 0.25, "the floor is set back");
}

/// Case S09: slots that are mixed up in the network are named.
#[test]
fn mixed_up_slots_are_refused() {
    let mut many = engine(&detector(4, true), 4);
    let error = prove(engine(&detector(1, false), 1).as_mut(), many.as_mut(), TOLERANCE, &mut Silent).unwrap_err();
    assert!(error.message().contains("slot 1 of batch 4"), "{error}");
}
