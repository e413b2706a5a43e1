//! Files that are no model, damaged models, weights that are no numbers: one clear error each, never a panic.

use crate::common::cases::{folder, path, refused};
use crate::common::shared;
use edge_trt::onnx::Model;
use std::fs;

#[test]
fn cut_off_and_empty_files_say_so() {
    let Some(trunc) = path("trunc") else { return };
    let error = Model::read(&trunc).unwrap_err();
    assert!(error.message().contains("cut off") && error.place().unwrap().ends_with("trunc.onnx"), "{error}");
    let error = Model::read(&path("empty").unwrap()).unwrap_err();
    assert!(error.message().contains("an empty file"), "{error}");
}

#[test]
fn every_file_of_the_cases_gives_a_model_or_one_error() {
    let Some(folder) = folder() else { return };
    for entry in fs::read_dir(folder).unwrap() {
        if let Err(error) = Model::read(&entry.unwrap().path()) {
            assert!(matches!(error.kind().exit_code(), 2 | 3) && error.place().is_some(), "{error}");
        }
    }
}

#[test]
fn weights_that_are_no_numbers_name_the_initialiser() {
    for (name, found) in [("nan", "80 values that are no number"), ("inf", "1 infinite")] {
        let Some(text) = refused(name) else { return };
        assert!(text.contains(found) && text.contains("initialiser `output0_c`"), "{text}");
    }
}

#[test]
fn a_model_cut_anywhere_is_refused_or_whole() {
    let Some(shared) = shared() else { return };
    let bytes = fs::read(shared.join("models/pcb-yolov8n.onnx")).unwrap();
    for part in 1..40 {
        let end = bytes.len() * part / 40;
        assert!(Model::from_bytes(&bytes[..end]).is_err(), "cut at {end}");
    }
}
