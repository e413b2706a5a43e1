//! P08: every input that matters gives another key, and nothing else does.

use super::*;
use crate::build::watcher::Silent;
use crate::build::{Options, prepare};
use crate::engine::cpu::{CpuBackend, CpuOptions};
use crate::ffi::cuda;
use crate::ffi::tensorrt::probe::Search;
use crate::onnx::Model;
use crate::platform::Platform;
use crate::units::Bytes;
use std::fs;

/// An order with every kind of input, for TensorRT-RTX, in a folder of its own.
struct Case {
    folder: tempfile::TempDir,
    order: Order,
    prepared: Prepared,
}

impl Case {
    fn new() -> Case {
        let folder = tempfile::tempdir().unwrap();
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("engines/sample/sample.onnx");
        let mut recipe = Recipe::for_model(&sample);
        for (name, slot) in [("calibration", &mut recipe.calibration), ("golden", &mut recipe.golden)] {
            *slot = Some(pictures(folder.path(), name));
        }
        recipe.gate.pictures = Some(pictures(folder.path(), "gate"));
        let labels = folder.path().join("labels");
        fs::create_dir(&labels).unwrap();
        fs::write(labels.join("a.txt"), "0 .5 .5 .1 .1").unwrap();
        recipe.gate.labels = Some(labels);
        let plan = PlanOrder {
            read_back: None,
            keep_unproved: false,
            flavour: Flavour::Rtx,
            compute_capability: 86,
            budget: Bytes::gib(4),
            workspace: Bytes::gib(1),
            optimization_level: None,
            time_limit: None,
            search: Search::default(),
        };
        let order = Order {
            recipe,
            name: "line1".to_owned(),
            output: folder.path().join("line1.edge"),
            platform: Platform::find("a2").unwrap(),
            compiler: Compiler::Plan(plan),
            cpu: CpuOptions { backend: CpuBackend::Rten, ..CpuOptions::default() },
            options: Options::default(),
            report: None,
            ask_by: None,
            rebuild: false,
        };
        let prepared = prepare(Model::read(&sample).unwrap(), &order.options).unwrap();
        let mut case = Case { folder, order, prepared };
        case.library("10700");
        case
    }

    /// Puts a TensorRT-RTX of this version into a folder of its own and lets the order look there: a loaded file stays loaded.
    fn library(&mut self, number: &str) {
        let folder = self.folder.path().join(format!("rtx-{number}"));
        fs::create_dir(&folder).unwrap();
        let defines = ["FAMILY=4", &format!("NUMBER={number}")];
        cuda::double::compile("tensorrt.c", &folder.join(Flavour::Rtx.library_name()), &defines);
        self.plan().search = Search { directory: Some(folder) };
    }

    fn key(&self) -> CacheKey {
        key(&self.order, &self.prepared, &mut Silent).unwrap()
    }

    fn plan(&mut self) -> &mut PlanOrder {
        match &mut self.order.compiler {
            Compiler::Plan(plan) => plan,
            _ => panic!("a plan"),
        }
    }
}

fn pictures(folder: &Path, name: &str) -> PathBuf {
    let folder = folder.join(name);
    fs::create_dir(&folder).unwrap();
    for (file, content) in [("a.jpg", "one"), ("b.jpg", "two")] {
        fs::write(folder.join(file), content).unwrap();
    }
    folder
}

/// The fields that `change` changes.
fn changed(change: impl FnOnce(&mut Case)) -> Vec<String> {
    let mut case = Case::new();
    let before = case.key();
    change(&mut case);
    let after = case.key();
    let names = before.fields.keys().chain(after.fields.keys()).collect::<std::collections::BTreeSet<_>>();
    let names: Vec<String> =
        names.into_iter().filter(|name| before.fields.get(*name) != after.fields.get(*name)).cloned().collect();
    assert_eq!(names.is_empty(), before.sha256 == after.sha256);
    names
}

type Change = (&'static [&'static str], fn(&mut Case));

#[test]
fn p08_every_input_that_matters_changes_the_key() {
    let changes: &[Change] = &[
        (&["source_sha256"], |case| case.prepared.source.sha256 = "other weights".into()),
        (&["graph_sha256"], |case| case.prepared.model_bytes.push(0)),
        (&["input"], |case| case.prepared.input.batch = 8),
        (&["classes"], |case| case.prepared.classes[0] = "other".into()),
        (&["precision"], |case| case.order.recipe.precision = crate::config::precision::Precision::Int8),
        (&["recipe.calibrator"], |case| case.order.recipe.calibrator = crate::config::precision::Calibrator::Max),
        (&["recipe.int8"], |case| case.order.recipe.int8.rest = Some(crate::config::precision::Rest::Float)),
        (&["recipe.int8"], |case| case.order.recipe.int8.keep.push("model.10".into())),
        (&["recipe.thresholds"], |case| case.order.recipe.thresholds.score = 0.31),
        (&["recipe.gate"], |case| case.order.recipe.gate.limits.map50 = 0.01),
        (&["recipe.decision"], |case| {
            case.order.recipe.decision = Some(toml::from_str("deadline_ms = 80").unwrap());
        }),
        (&["recipe.guard"], |case| case.order.recipe.guard.off.push(crate::guard::Reason::Blurred)),
        (&["recipe.name"], |case| case.order.name = "line2".into()),
        (&["calibration_sha256"], |case| fs::write(case.folder.path().join("calibration/a.jpg"), "other").unwrap()),
        (&["calibration_sha256"], |case| fs::write(case.folder.path().join("calibration/c.jpg"), "three").unwrap()),
        (&["recipe.golden"], |case| fs::write(case.folder.path().join("golden/a.jpg"), "other").unwrap()),
        (&["recipe.golden"], |case| {
            fs::rename(case.folder.path().join("golden/a.jpg"), case.folder.path().join("golden/z.jpg")).unwrap();
        }),
        (&["recipe.gate_pictures", "recipe.labels"], |case| {
            fs::write(case.folder.path().join("gate/a.jpg"), "other").unwrap();
        }),
        (&["recipe.labels"], |case| fs::write(case.folder.path().join("labels/a.txt"), "1 .5 .5 .1 .1").unwrap()),
        (&["recipe.labels"], |case| fs::write(case.folder.path().join("labels/b.txt"), "0 .5 .5 .1 .1").unwrap()),
        (&["recipe.labels"], |case| fs::write(case.folder.path().join("labels/classes.txt"), "x").unwrap()),
        (&["recipe.platform"], |case| case.order.platform.plan.alarm_percent = 70),
        (&["recipe.platform", "target"], |case| case.order.platform.name = "other".into()),
        (&["recipe.answers_by"], |case| case.order.cpu.backend = CpuBackend::OnnxRuntime),
        (&["budget_bytes"], |case| case.plan().budget = Bytes::gib(2)),
        (&["recipe.workspace_bytes"], |case| case.plan().workspace = Bytes::mib(64)),
        (&["recipe.optimization_level"], |case| case.plan().optimization_level = Some(3)),
        (&["tensorrt"], |case| case.library("10600")),
        (
            &[
                "flavour",
                "recipe.gpu",
                "recipe.optimization_level",
                "recipe.portable",
                "recipe.workspace_bytes",
                "tensorrt",
            ],
            |case| {
                let budget = Some(case.plan().budget);
                case.order.compiler = Compiler::Portable { flavour: None, budget };
            },
        ),
    ];
    for (at, (expected, change)) in changes.iter().enumerate() {
        assert_eq!(changed(change), *expected, "change {at}");
    }
}

#[test]
fn p08_what_does_not_matter_keeps_the_key() {
    let changes: &[fn(&mut Case)] = &[
        |case| case.order.output = "elsewhere/x.edge".into(),
        |case| case.order.recipe.model = "moved/sample.onnx".into(),
        |case| case.order.recipe.target = Some("a2".into()),
        |case| case.prepared.source.file_name = "renamed.onnx".into(),
        |case| case.order.report = Some("reports".into()),
        |case| case.order.rebuild = true,
        |case| case.order.cpu.threads = Some(7),
        |case| case.plan().time_limit = Some(std::time::Duration::from_secs(60)),
        |case| fs::write(case.folder.path().join("calibration/notes.md"), "no picture").unwrap(),
        |case| {
            let at = |name: &str| case.folder.path().join("calibration").join(name);
            fs::rename(at("a.jpg"), at("z.jpg")).unwrap();
        },
        |case| {
            let moved = case.folder.path().join("moved");
            fs::rename(case.folder.path().join("calibration"), &moved).unwrap();
            case.order.recipe.calibration = Some(moved);
        },
        |case| {
            let file = fs::File::options().write(true).open(case.folder.path().join("gate/a.jpg")).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        },
        |case| fs::write(case.folder.path().join("labels/no-such-picture.txt"), "0 .5 .5 .1 .1").unwrap(),
    ];
    for (at, change) in changes.iter().enumerate() {
        assert_eq!(changed(change), [""; 0], "change {at}");
    }
}

/// A key that a recipe gets one day is part of the cache key without a line here.
#[test]
fn p08_every_key_of_a_recipe_is_told() {
    let all = serde_json::to_value(Recipe::for_model(Path::new("m.onnx"))).unwrap();
    let fields = recipe_fields(&Recipe::for_model(Path::new("m.onnx"))).unwrap();
    for name in all.as_object().unwrap().keys() {
        assert!(fields.contains_key(name) || TOLD_OTHERWISE.contains(&name.as_str()) || name == "name", "{name}");
    }
    assert!(fields.len() >= 5, "{fields:?}");
}
