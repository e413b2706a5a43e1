use super::node::make;
use super::samples::{Sample, value};
use super::tensor::DataType;
use super::*;
use onnx_protobuf::StringStringEntryProto;
use onnx_protobuf::tensor_proto::DataLocation;
use proptest::prelude::*;
use std::fs;

fn relu() -> Sample {
    Sample::new(
        &[1, 3],
        vec![make::node("Relu", "relu", &["images"], &["y"], vec![])],
        vec![value("y", DataType::F32, &[1, 3])],
    )
}

fn with_side_file(location: &str, offset: &str, length: &str) -> Vec<u8> {
    let mut sample = relu();
    sample.nodes.push(make::node("Add", "add", &["y", "w"], &["z"], vec![]));
    let mut weight = tensor::from_f32("w", &[1, 3], &[]);
    weight.data_location = DataLocation::EXTERNAL.into();
    weight.external_data = [("location", location), ("offset", offset), ("length", length)]
        .into_iter()
        .map(|(key, value)| StringStringEntryProto { key: key.into(), value: value.into(), ..Default::default() })
        .collect();
    sample.weights.push(weight);
    sample.bytes()
}

#[test]
fn a_model_comes_back_as_it_was() {
    let bytes = relu().bytes();
    let model = Model::from_bytes(&bytes).unwrap();
    assert_eq!(model.to_bytes().unwrap(), bytes);
    assert_eq!(model.opset(), 17);
    assert_eq!(dump::graph(&model), "opset 17\ninput images f32 [1, 3]\ny = Relu(images)\noutput y f32 [1, 3]\n");
}

#[test]
fn opsets_outside_are_refused_with_both_sides() {
    for (opset, accepted) in [(10, false), (11, true), (22, true), (23, false)] {
        let sample = Sample { opset, ..relu() };
        match Model::from_bytes(&sample.bytes()) {
            Ok(model) => assert!(accepted && model.opset() == opset),
            Err(error) => assert!(!accepted && error.message().contains(&format!("opset {opset}, expected 11 to 22"))),
        }
    }
}

#[test]
fn a_tensor_without_source_or_with_two_is_refused() {
    let mut sample = relu();
    sample.nodes.push(make::node("Add", "add", &["y", "w"], &["z"], vec![]));
    let error = Model::from_bytes(&sample.bytes()).unwrap_err();
    assert!(error.to_string().contains("no source of tensor `w`\n  at: node `add` (Add)"), "{error}");
    let mut sample = relu();
    sample.nodes.push(make::node("Abs", "abs", &["images"], &["y"], vec![]));
    assert!(Model::from_bytes(&sample.bytes()).unwrap_err().message().contains("made twice"));
}

#[test]
fn side_files_are_read_and_hashed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    fs::write(&path, with_side_file("m.onnx.data", "4", "12")).unwrap();
    let error = Model::read(&path).unwrap_err();
    assert!(error.message().contains("no side file `m.onnx.data`"), "{error}");
    let side = folder.path().join("m.onnx.data");
    fs::write(&side, [0_u8; 10]).unwrap();
    assert!(Model::read(&path).unwrap_err().message().contains("file of 10 bytes, expected at least 16"));
    let mut data = vec![0_u8; 4];
    data.extend([1.0_f32, 2.0, 3.0].iter().flat_map(|value| value.to_le_bytes()));
    fs::write(&side, &data).unwrap();
    let model = Model::read(&path).unwrap();
    assert_eq!(tensor::f32_data(&model.graph().initializer[0]).unwrap(), [1.0, 2.0, 3.0]);
    assert_eq!(model.origin().side_files, ["m.onnx.data"]);
    assert!(Model::from_bytes(&model.to_bytes().unwrap()).is_ok(), "written without side files");
    data[4] = 1;
    fs::write(&side, &data).unwrap();
    assert_ne!(Model::read(&path).unwrap().origin().sha256, model.origin().sha256, "the side file is part of the hash");
}

#[test]
fn side_files_outside_the_folder_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("inside");
    fs::create_dir(&inside).unwrap();
    fs::write(folder.path().join("secret"), [0_u8; 12]).unwrap();
    let path = inside.join("m.onnx");
    for location in ["../secret", "/etc/passwd", "", "a/../../secret", "..\\secret"] {
        fs::write(&path, with_side_file(location, "0", "12")).unwrap();
        assert!(Model::read(&path).unwrap_err().message().contains("inside the model's folder"), "{location}");
    }
    std::os::unix::fs::symlink(folder.path().join("secret"), inside.join("link")).unwrap();
    fs::write(&path, with_side_file("link", "0", "12")).unwrap();
    assert!(Model::read(&path).unwrap_err().message().contains("inside the model's folder"));
    fs::write(&path, with_side_file("data", "x", "12")).unwrap();
    fs::write(inside.join("data"), [0_u8; 12]).unwrap();
    assert!(Model::read(&path).unwrap_err().message().contains("offset `x`"));
    assert!(Model::from_bytes(&fs::read(&path).unwrap()).unwrap_err().message().contains("side file"));
}

#[test]
fn missing_files_and_folders_are_usage_errors_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let error = Model::read(&folder.path().join("x.onnx")).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Usage);
    assert!(error.place().unwrap().ends_with("x.onnx"));
    assert_eq!(Model::read(folder.path()).unwrap_err().kind(), crate::ErrorKind::Usage);
    assert_eq!(Model::read(Path::new("/dev/null")).unwrap_err().kind(), crate::ErrorKind::Usage);
}

#[test]
fn kept_outputs_drop_what_does_not_lead_to_them() {
    let mut sample = relu();
    sample.nodes.push(make::node("Add", "add", &["y", "w"], &["z"], vec![]));
    sample.weights.push(tensor::from_f32("w", &[1], &[1.0]));
    sample.outputs.push(value("z", DataType::F32, &[1, 3]));
    let mut model = sample.model();
    edit::keep_outputs(&mut model, &["y".to_owned()]).unwrap();
    assert_eq!(dump::graph(&model), dump::graph(&relu().model()));
    assert!(edit::keep_outputs(&mut model, &["z".to_owned()]).unwrap_err().hint_text().unwrap().contains("`y`"));
}

#[test]
fn a_loop_of_operators_is_refused_and_unsorted_files_are_sorted() {
    let back = make::node("Relu", "b", &["x"], &["y"], vec![]);
    let front = make::node("Relu", "a", &["images"], &["x"], vec![]);
    let model = Sample::new(&[1], vec![back.clone(), front], vec![value("y", DataType::F32, &[1])]).model();
    assert_eq!(index::GraphIndex::new(model.graph()).run_order().unwrap(), [1, 0]);
    let circle = make::node("Relu", "a", &["y"], &["x"], vec![]);
    let model = Sample::new(&[1], vec![back, circle], vec![value("y", DataType::F32, &[1])]).model();
    assert!(index::GraphIndex::new(model.graph()).run_order().unwrap_err().message().contains("without loops"));
}

proptest! {
    #[test]
    fn any_bytes_give_a_model_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Model::from_bytes(&bytes);
    }

    #[test]
    fn damaged_models_give_a_model_or_an_error(position in 0_usize..400, byte in any::<u8>(), end in 0_usize..400) {
        let mut bytes = Sample::constant_output(&[1, 3, 4, 4], &[("o", DataType::F32, &[1, 2, 3])]).bytes();
        let position = position % bytes.len();
        bytes[position] = byte;
        bytes.truncate(bytes.len() - end % bytes.len() / 8);
        if let Ok(model) = Model::from_bytes(&bytes) {
            let _ = dump::graph(&model);
            let _ = shapes::infer(&model);
        }
    }
}

/// weight → a → b → convolution; its output → c, which ends the graph, and → d → a second reader.
#[test]
fn identities_go_and_outputs_keep_their_names() {
    let identity = |from: &str, to: &str| make::node("Identity", to, &[from], &[to], vec![]);
    // Not in the order of their values, as nobody may write them, but some do.
    let nodes = vec![
        identity("a", "b"),
        identity("weight", "a"),
        make::node("Conv", "conv", &["images", "b"], &["y"], vec![]),
        identity("y", "c"),
        identity("y", "d"),
        make::node("Relu", "relu", &["d"], &["z"], vec![]),
    ];
    let outputs = ["c", "z"].map(|name| value(name, DataType::F32, &[1, 1, 8, 8]));
    let mut sample = Sample::new(&[1, 1, 8, 8], nodes, outputs.to_vec());
    sample.weights = vec![tensor::from_f32("weight", &[1, 1, 1, 1], &[2.0])];
    let mut model = sample.model();
    assert_eq!(edit::remove_identities(&mut model), 3);
    let left: Vec<_> = model.graph().node.iter().map(|node| (node.name.as_str(), node.input.join(" "))).collect();
    let wanted = [("conv", "images weight"), ("c", "y"), ("relu", "y")];
    assert_eq!(left, wanted.map(|(name, inputs)| (name, inputs.to_owned())));
    assert_eq!(edit::remove_identities(&mut model), 0);
}

#[test]
fn long_chains_of_identities_are_followed_once() {
    let name = |number: usize| if number == 0 { "images".to_owned() } else { format!("i{number}") };
    let many = 20_000;
    let link = |number: usize| make::node("Identity", "", &[&name(number - 1)], &[&name(number)], vec![]);
    let mut nodes: Vec<_> = (1..=many).rev().map(link).collect();
    nodes.extend((1..=many).map(|at| make::node("Relu", "", &[&name(at)], &[&format!("r{at}")], vec![])));
    let mut sample = Sample::new(&[1, 1, 8, 8], nodes, vec![value("r1", DataType::F32, &[1, 1, 8, 8])]);
    sample.weights = vec![];
    let mut model = sample.model();
    assert_eq!(edit::remove_identities(&mut model), many);
    assert!(model.graph().node.iter().all(|node| node.input == ["images"]));
}
