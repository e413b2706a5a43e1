//! N02: `fp16overflow` is fine in float and beyond half in half. Neither CPU engine shows it when it runs the half graph
//! itself; the twin must. Pictures for calibration keep the values in float.

use crate::common::{cases, lacks};
use edge_trt::ErrorKind;
use edge_trt::bundle::Bundle;
use edge_trt::engine::candidates::{Elements, RawTensor};
use edge_trt::engine::cpu::probe::Probe;
use edge_trt::engine::cpu::{CpuBackend, CpuOptions};
use edge_trt::engine::{ElementType, InputSpec, Layout};
use edge_trt::frame::Picture;
use edge_trt::onnx::Model;
use edge_trt::onnx::twin::{Rounding, make_twin};
use edge_trt::units::SizePx;
use std::path::Path;
use std::process::Command;

/// The graph that edge-build writes for the case, and what it said.
fn built(folder: &Path, flags: &[&str]) -> Option<(Model, String)> {
    let case = cases::path("fp16overflow")?;
    let output = folder.join("x.edge");
    let ran = Command::new(env!("CARGO_BIN_EXE_edge-build"))
        .arg(&case)
        .args(["--fp16", "--target", "cpu", "--cpu-backend", "rten", "-o"])
        .arg(&output)
        .args(flags)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{said}");
    Some((Model::from_bytes(&Bundle::open(&output).unwrap().model().unwrap()).unwrap(), said))
}

/// Largest magnitude of what the convolution gives; `None` where this machine lacks the backend.
fn largest(mut model: Model, backend: CpuBackend, twin: bool) -> Option<f32> {
    if twin {
        let rounding = if backend == CpuBackend::Rten { Rounding::Arithmetic } else { Rounding::Casts };
        make_twin(&mut model, rounding).unwrap();
    }
    let size = SizePx::new(640, 640);
    let input = InputSpec { name: "images".into(), batch: 1, channels: 3, size, element: ElementType::F32 };
    let layout = Layout::Raw { output: "output0".into(), classes: 80, anchors: 8400 };
    let options = CpuOptions { backend, threads: Some(1), ..CpuOptions::default() };
    // The convolution's result, whichever type it has.
    let names = ["back".to_owned()];
    let mut probe = match Probe::open(model, &names, &input, &layout, &options) {
        Err(error) if error.kind() == ErrorKind::MachineLacks => {
            lacks("onnxruntime", "ONNX Runtime");
            return None;
        }
        probe => probe.unwrap(),
    };
    let mut most = 0.0_f32;
    let visit = &mut |tensors: &[RawTensor<'_>]| {
        let Elements::F32(values) = tensors[0].elements else { panic!("no floats") };
        most = values.iter().fold(most, |most, value| if value.is_nan() { f32::NAN } else { most.max(value.abs()) });
        Ok(())
    };
    probe.run(&Picture::rgb(size, vec![255; 640 * 640 * 3]), visit).unwrap();
    Some(most)
}

#[test]
fn the_twin_overflows_where_half_does_and_the_engines_alone_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let Some((half, _)) = built(folder.path(), &[]) else { return };
    for backend in [CpuBackend::Rten, CpuBackend::OnnxRuntime] {
        let Some(twin) = largest(half.clone(), backend, true) else { continue };
        assert!(twin.is_infinite(), "{backend:?}: {twin}");
    }
    let alone = largest(half, CpuBackend::Rten, false).unwrap();
    assert!((0.9..1.1).contains(&alone), "rten widens halves: {alone}");
}

#[test]
fn calibration_pictures_keep_it_in_float() {
    let folder = tempfile::tempdir().unwrap();
    let pictures = folder.path().join("good");
    std::fs::create_dir(&pictures).unwrap();
    for number in 0..2_u32 {
        let mut picture = image::RgbImage::from_pixel(64, 64, image::Rgb([255, 250, 240]));
        (0..32).for_each(|x| picture.put_pixel(x, number, image::Rgb([0, 20, 90])));
        (0..64).for_each(|x| picture.put_pixel(x, 40, image::Rgb([0, 0, 0])));
        picture.save(pictures.join(format!("{number}.png"))).unwrap();
    }
    let pictures = pictures.to_str().unwrap().to_owned();
    let Some((half, said)) = built(folder.path(), &["--calibration", &pictures]) else { return };
    assert!(said.contains("values up to 1") && said.contains("stay in float"), "{said}");
    for backend in [CpuBackend::Rten, CpuBackend::OnnxRuntime] {
        let Some(twin) = largest(half.clone(), backend, true) else { continue };
        assert!((0.9..1.1).contains(&twin), "{backend:?}: {twin}");
    }
}
