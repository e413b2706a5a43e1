//! On the sample model (fixed at 384×224), the head of any size and pcb-yolov8n.

use super::*;
use crate::engine::cpu::CpuBackend;
use std::path::Path;

#[derive(Default)]
struct Heard(Vec<String>);

impl Watcher for Heard {
    fn say(&mut self, line: &str) {
        self.0.push(line.to_owned());
    }
    fn warn(&mut self, line: &str) {
        self.0.push(line.to_owned());
    }
    fn step(&mut self, _: &str, _: u64, _: u64) {}
    fn check_stop(&self) -> Result<()> {
        Ok(())
    }
}

fn project(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn order(model: PathBuf, targets: &[&str]) -> SweepOrder {
    SweepOrder {
        recipe: Recipe::for_model(&model),
        models: vec![model],
        sizes: vec![],
        precisions: vec![Precision::AsExported, Precision::Fp16, Precision::Int8],
        batches: vec![1, 4],
        platforms: targets.iter().map(|name| Platform::find(name).unwrap()).collect(),
        options: Options::default(),
        cpu: CpuOptions { backend: CpuBackend::Rten, threads: Some(1), emulate_half: false },
        flavour: None,
        optimization_level: None,
        search: Search::default(),
        finalists: 0,
        time_limit: None,
    }
}

fn swept(order: &SweepOrder) -> Sweep {
    sweep(order, &mut Heard::default()).unwrap()
}

fn total(line: &Line) -> u64 {
    line.memory.unwrap().total.0
}

#[test]
fn an_export_of_any_size_gives_a_curve_that_rises() {
    let found = swept(&order(project("tests/models/dynamic_opset17.onnx"), &["orin-nano-4gb", "t4"]));
    assert_eq!(found.lines.len(), 7 * 3 * 2);
    assert!(found.lines.iter().all(|line| line.refused.is_none() && line.fits.len() == 2));
    for pair in found.lines.iter().filter(|line| line.batch == 1).collect::<Vec<_>>().windows(4) {
        let (small, large) = (pair[0], pair[3]);
        assert_eq!(small.precision, large.precision);
        assert!(small.size.width_px < large.size.width_px && total(small) < total(large), "{small:?} {large:?}");
    }
    for pair in found.lines.chunks(2) {
        let (one, four) = (pair[0].memory.unwrap().activations.0, pair[1].memory.unwrap().activations.0);
        assert_eq!(4 * one, four, "activations grow with the batch");
    }
    for size in found.lines.chunks(6) {
        assert!(total(&size[2]) < total(&size[0]), "FP16 needs less");
    }
    let page = found.to_html();
    assert!(
        page.contains("<svg") && page.contains("<polyline") && !page.contains("http"),
        "the page needs no other file"
    );
    assert_eq!(page.matches("<circle").count(), 42);
    let json = serde_json::to_value(&found).unwrap();
    assert_eq!(json["lines"][0]["size"]["width_px"], 320);
    assert_eq!(json["targets"][0]["name"], "orin-nano-4gb");
}

#[test]
fn what_does_not_fit_a_target_says_so() {
    let mut order = order(project("tests/models/dynamic_opset17.onnx"), &["orin-nano-4gb", "h200"]);
    order.sizes = vec![SizePx::new(1280, 1280)];
    order.batches = vec![1, 64];
    let found = swept(&order);
    let fits: Vec<Vec<bool>> = found.lines.iter().map(|line| line.fits.iter().map(|fit| fit.fits).collect()).collect();
    assert_eq!(fits[0], [true, true]);
    assert_eq!(fits[1], [false, true], "{:?}", found.lines[1]);
    assert!(!found.lines[1].fits_all() && found.lines[0].fits_all());
}

#[test]
fn a_size_that_cannot_be_pinned_again_is_a_line_with_its_reason() {
    let mut order = order(project("engines/sample/sample.onnx"), &["t4"]);
    assert_eq!(swept(&order).lines.len(), 3 * 2, "a fixed export has one size");
    order.sizes = vec![SizePx::new(384, 224), SizePx::new(768, 448), SizePx::new(640, 640)];
    order.precisions = vec![Precision::AsExported];
    order.batches = vec![1, 2];
    let found = swept(&order);
    let [own, _, double, _, other, _] = found.lines.as_slice() else { panic!("{found:?}") };
    assert!(own.refused.is_none() && !own.memory.unwrap().scaled);
    let refused = double.refused.as_ref().unwrap();
    assert!(refused.reason.contains("an export fixed at 384×224, expected 768×448"), "{refused:?}");
    assert!(refused.hint.as_ref().unwrap().contains("export again at that size"));
    let (own, double) = (own.memory.unwrap(), double.memory.unwrap());
    assert!(double.scaled);
    assert_eq!(double.activations.0, 4 * own.activations.0, "four times the area");
    assert!(other.refused.is_some() && other.memory.is_none(), "another shape is not guessed");
    assert!(found.to_html().contains("fill='#fff'"), "scaled points are hollow");
}

#[test]
fn sizes_and_batches_that_the_model_cannot_take_end_nothing() {
    let mut order = order(project("tests/models/dynamic_opset17.onnx"), &["t4"]);
    order.sizes = vec![SizePx::new(641, 641), SizePx::new(640, 640)];
    order.precisions = vec![Precision::AsExported];
    let found = swept(&order);
    assert!(
        found.lines[0].refused.as_ref().unwrap().reason.contains("multiples of the stride"),
        "{:?}",
        found.lines[0]
    );
    assert!(found.lines[2].refused.is_none());
    let mut order = self::order(project("engines/sample/sample.onnx"), &["t4"]);
    order.batches = vec![1, 64];
    let found = swept(&order);
    let refused = found.lines[1].refused.as_ref().unwrap();
    assert!(found.lines[0].refused.is_none() && refused.reason.contains("batch"), "{refused:?}");
}

#[test]
fn finalists_are_timed_on_the_cpu_and_the_batch_is_searched() {
    let mut order = order(project("engines/sample/sample.onnx"), &["cpu", "orin-nx"]);
    order.finalists = 2;
    order.batches = vec![1, 2];
    let mut heard = Heard::default();
    let found = sweep(&order, &mut heard).unwrap();
    let timed: Vec<&Line> = found.lines.iter().filter(|line| line.time.is_some()).collect();
    let [line] = timed.as_slice() else { panic!("{found:?}") };
    let (time, search) = (line.time.as_ref().unwrap(), line.batch_search.as_ref().unwrap());
    assert_eq!((time.target.as_str(), line.precision), ("cpu", Precision::AsExported));
    assert!(time.engine.starts_with("rten") && time.ms_a_picture > 0.0);
    assert_eq!(search.best, Some(time.batch));
    assert_eq!(search.steps.iter().map(|step| step.batch).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(heard.0, ["time: sample.onnx 384×224 as exported on cpu"]);
    assert!(found.remarks.iter().any(|remark| remark.contains("not timed on orin-nx")), "{:?}", found.remarks);
    assert!(found.to_html().contains("Best batch"));
}

#[test]
fn after_the_time_limit_nothing_new_begins() {
    let folder = tempfile::tempdir().unwrap();
    image::RgbImage::from_fn(64, 48, |x, y| image::Rgb([x as u8, y as u8, 9]))
        .save(folder.path().join("a.png"))
        .unwrap();
    let mut order = order(project("engines/sample/sample.onnx"), &["cpu"]);
    order.recipe.gate.pictures = Some(folder.path().to_owned());
    order.finalists = 1;
    order.time_limit = Some(Duration::ZERO);
    let found = swept(&order);
    assert!(found.time_limit_reached);
    assert!(found.lines.iter().all(|line| line.memory.is_some()), "memory costs no time");
    let missing = found.lines[0].accuracy_missing.as_ref().unwrap();
    assert!(missing.contains("the time limit was reached"), "{missing}");
    assert!(found.lines.iter().all(|line| line.time.is_none()));
}

/// Labels and pictures as a line has them; the export comes for free with a conversion.
#[test]
fn accuracy_goes_through_the_gate() {
    let Some(shared) = crate::test_inputs::shared("data/pcb/val") else { return };
    let model = crate::test_inputs::shared("models/pcb-yolov8n.onnx").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let shared = Path::new(&shared);
    let mut pictures: Vec<PathBuf> =
        std::fs::read_dir(shared.join("images")).unwrap().map(|entry| entry.unwrap().path()).collect();
    pictures.sort();
    for picture in pictures.iter().take(4) {
        std::fs::copy(picture, folder.path().join(picture.file_name().unwrap())).unwrap();
    }
    let mut order = order(model, &["t4"]);
    order.precisions = vec![Precision::AsExported, Precision::Fp16];
    order.batches = vec![1];
    order.recipe.gate.pictures = Some(folder.path().to_owned());
    order.recipe.gate.labels = Some(shared.join("labels"));
    let found = swept(&order);
    let [export, half] = found.lines.as_slice() else { panic!("{found:?}") };
    let (export, half) = (export.accuracy.as_ref().unwrap(), half.accuracy.as_ref().unwrap());
    assert_eq!((export.passed, half.passed, export.pictures), (None, Some(true), 4));
    assert!(
        export.map50.unwrap() > 0.9 && (export.map50.unwrap() - half.map50.unwrap()).abs() < 0.01,
        "{export:?} {half:?}"
    );
    assert_eq!(export.truth, "labels");
    assert!(found.to_html().contains("Memory against accuracy"));
}

/// TensorRT 8.6.1 asked for 17.0 MiB in FP32 and 11.5 MiB in FP16 for this network: the curve runs above them, not far.
#[test]
fn the_curve_of_pcb_yolov8n_is_near_what_tensorrt_asks_for() {
    let Some(model) = crate::test_inputs::shared("models/pcb-yolov8n.onnx") else { return };
    let mut order = order(model, &["orin-nano-8gb", "orin-nano-4gb"]);
    order.batches = vec![1];
    order.precisions = vec![Precision::AsExported, Precision::Fp16];
    order.sizes = vec![SizePx::new(640, 640), SizePx::new(1280, 1280)];
    let found = swept(&order);
    let activations = |at: usize| found.lines[at].memory.unwrap().activations.0;
    assert!((Bytes::mib(17).0..Bytes::mib(34).0).contains(&activations(0)), "{}", activations(0));
    assert!((12_000_000..24_000_000).contains(&activations(1)), "{}", activations(1));
    assert!(found.lines[2].refused.is_some() && found.lines[2].memory.unwrap().scaled);
}
