//! edge-build for GPUs: real plans by TensorRT-RTX, and every family's double behind a driver's double.

use crate::common::{graphs, lacks, shared};
use crate::workbench::{Bench, Ran, edge_build};
use edge_trt::bundle::Bundle;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The folder with TensorRT-RTX, as `tests/fetch_tensorrt_rtx.sh` makes one.
fn tensorrt_rtx() -> Option<PathBuf> {
    let found = std::env::var_os("EDGE_TENSORRT_RTX_DIR").map(PathBuf::from).filter(|folder| folder.is_dir());
    if found.is_none() {
        lacks("tensorrt-rtx", "the folder EDGE_TENSORRT_RTX_DIR with TensorRT-RTX");
    }
    found
}

/// A C file of `tests/doubles` as a shared library.
fn compile_double(source: &str, target: &Path, defines: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doubles").join(source);
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([target, source.as_path()])
        .args(defines.iter().map(|define| format!("-D{define}")))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A machine with a double of a GPU of compute capability 8.7 and of one TensorRT.
pub(crate) struct Machine {
    pub(crate) bench: Bench,
}

impl Machine {
    fn new(library: &str, parser: &str, defines: &[&str]) -> Machine {
        Machine::with_driver(&[], library, parser, defines)
    }

    fn with_driver(driver: &[&str], library: &str, parser: &str, defines: &[&str]) -> Machine {
        let bench = Bench::new();
        for folder in ["driver", "tensorrt"] {
            std::fs::create_dir(bench.path(folder)).unwrap();
        }
        compile_double("cuda.c", &bench.path("driver/libcuda.so.1"), driver);
        for name in [library, parser] {
            compile_double("tensorrt.c", &bench.path("tensorrt").join(name), defines);
        }
        Machine { bench }
    }

    pub(crate) fn trt10(defines: &[&str]) -> Machine {
        let defines = [&["FAMILY=1", "NUMBER=100300", "SIDE=64"], defines].concat();
        Machine::new("libnvinfer.so.10", "libnvonnxparser.so.10", &defines)
    }

    /// As [`Machine::trt10`], whose GPU is as `driver` defines.
    pub(crate) fn trt10_with_driver(defines: &[&str], driver: &[&str]) -> Machine {
        let defines = [&["FAMILY=1", "NUMBER=100300", "SIDE=64"], defines].concat();
        Machine::with_driver(driver, "libnvinfer.so.10", "libnvonnxparser.so.10", &defines)
    }

    /// Another GPU in place of the one that was there.
    pub(crate) fn change_driver(&self, driver: &[&str]) {
        compile_double("cuda.c", &self.bench.path("driver/libcuda.so.1"), driver);
    }

    fn trt8(defines: &[&str]) -> Machine {
        let defines = [&["FAMILY=0", "NUMBER=8502", "SIDE=64"], defines].concat();
        Machine::new("libnvinfer.so.8", "libnvonnxparser.so.8", &defines)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(edge_build(), arguments)
    }

    pub(crate) fn command_of(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = self.bench.command(Path::new(program), arguments);
        command
            .env("LD_LIBRARY_PATH", self.bench.path("driver"))
            .env("EDGE_TENSORRT_DIR", self.bench.path("tensorrt"))
            .env("EDGE_CACHE_DIR", self.bench.path("cache"));
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.command(arguments).output().unwrap().into()
    }

    /// How many graphs' timings of TensorRT 10.3.0 on this GPU are kept.
    fn timings(&self) -> usize {
        let names = std::fs::read_dir(self.bench.path("cache")).unwrap().map(|entry| entry.unwrap().file_name());
        names
            .filter(|name| {
                let name = name.to_string_lossy();
                name.starts_with("trt10-10.3.0-Double-0-") && name.ends_with(".timings")
            })
            .count()
    }
}

pub(crate) const MODEL: [&str; 5] = ["model.onnx", "--names", "names.txt", "--cpu-backend", "rten"];

fn with(more: &[&'static str]) -> Vec<&'static str> {
    [&MODEL[..], more].concat()
}

/// The plan of TensorRT-RTX is byte for byte the one that the proof of the binary interface makes.
#[test]
fn a_plan_of_rtx_is_the_one_that_the_proof_makes() {
    let (Some(library), Some(shared)) = (tensorrt_rtx(), shared()) else { return };
    let bench = Bench::new();
    let proof = build_proof(&bench, &shared.join("tensorrt/proto_main.rs"));
    let model = shared.join("models/pcb-yolov8n.onnx");
    let real = |stem: &str| {
        let found = std::fs::read_dir(&library).unwrap().map(|entry| entry.unwrap().path());
        found.into_iter().find(|path| path.to_string_lossy().contains(stem)).unwrap()
    };
    let (core, parser) = (real("libtensorrt_rtx.so.1"), real("libtensorrt_onnxparser_rtx.so.1"));
    for (target, capability) in [("a2", "86"), ("8.0", "80"), ("8.9", "89"), ("12.0", "120"), ("7.5", "75")] {
        let output = bench.path("a.edge");
        let mut command = bench.command(Path::new(edge_build()), &[]);
        command.arg(&model).args(["--target", target, "--flavour", "rtx", "--workspace", "1GiB"]);
        command.args(["--gpu-budget", "4GiB", "--cpu-backend", "rten", "-o"]).arg(&output);
        command.env("EDGE_TENSORRT_DIR", &library).env("EDGE_CACHE_DIR", bench.path(&format!("cache-{target}")));
        let ran: Ran = command.output().unwrap().into();
        let ran = ran.ends_with(0);
        assert!(ran.people.contains("compiling: TensorRT-RTX 1."), "{}", ran.people);

        let expected = bench.path("proof.plan");
        let mut command = Command::new(&proof);
        command.arg("build").args([&core, &parser, &model]).arg(format!("sm{capability}")).arg("--out").arg(&expected);
        assert!(command.stdout(Stdio::null()).status().unwrap().success());
        let bundle = Bundle::open(&output).unwrap();
        let names: Vec<_> = bundle.plan_names().map(str::to_owned).collect();
        assert_eq!(names.len(), 1);
        let (facts, plan) = bundle.plan(&names[0]).unwrap();
        assert!(plan == std::fs::read(&expected).unwrap(), "{target}: the plans differ");
        assert_eq!(facts.compute_capability.replace('.', ""), capability);
        assert_eq!(facts.made_on, None);
        let shown = bench.edge_build(&["inspect", "a.edge"]).ends_with(0).data;
        assert!(shown.contains("TensorRT-RTX 1.") && shown.contains("made without a GPU"), "{shown}");
        bench.edge_build(&["verify", "a.edge", "--cpu-backend", "rten"]).ends_with(0);
    }
}

/// Compiles the proof, which is one file, with this project's own copy of `libloading`.
fn build_proof(bench: &Bench, source: &Path) -> PathBuf {
    bench.write("proof/src/main.rs", &std::fs::read(source).unwrap());
    let manifest = "[package]\nname = 'proof'\nversion = '0.0.0'\nedition = '2021'\n[dependencies]\nlibloading = '0.9'\n[workspace]\n";
    bench.write("proof/Cargo.toml", manifest.as_bytes());
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command.args(arguments).current_dir(bench.path("proof")).env_remove("CARGO_TARGET_DIR");
        command.output().unwrap()
    };
    let mut output = cargo(&["build", "--quiet", "--offline"]);
    if !output.status.success() {
        output = cargo(&["build", "--quiet"]);
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    bench.path("proof/target/debug/proof")
}

/// Case P05, whole: refused with the node before anything is built, nothing is left.
#[test]
fn p05_attention_for_turing_under_rtx_is_explained() {
    let (Some(library), Some(shared)) = (tensorrt_rtx(), shared()) else { return };
    let bench = Bench::new();
    let before = bench.names();
    let mut command = bench.command(Path::new(edge_build()), &[]);
    command.arg(shared.join("models/pcb-yolo11n.onnx")).args(["--target", "t4", "--flavour", "rtx", "-o"]);
    command.arg(bench.path("t4.edge")).env("EDGE_TENSORRT_DIR", &library);
    let ran: Ran = command.output().unwrap().into();
    ran.ends_with(3).says_one_error(&[
        "2 FP32 matrix products (the first is",
        "compute capability 7.5",
        "in FP16",
        "pcb-yolo11n",
    ]);
    assert_eq!(bench.names(), before);
}

#[test]
fn a_target_that_needs_its_own_gpu_names_two_ways_and_both_work() {
    let machine = Machine::trt10(&[]);
    let bench = &machine.bench;
    let target = with(&["--target", "orin-nano-8gb", "-o", "o.edge"]);
    let before = bench.names();
    let here = bench.edge_build(&target).ends_with(10);
    here.says_one_error(&[
        "no plan for target `orin-nano-8gb` can be made here",
        "`--portable`",
        "CI runner",
        "Jetson Orin Nano 8 GB",
    ]);
    assert_eq!(bench.names(), before);

    let portable = bench.edge_build(&[&target[..], &["--portable"]].concat()).ends_with(0);
    assert!(
        portable.people.contains("next, on the device (Jetson Orin Nano 8 GB): edge-build finish o.edge"),
        "{}",
        portable.people
    );
    let unfinished = bench.read("o.edge");
    let id = Bundle::open(&bench.path("o.edge")).unwrap().id().to_owned();
    assert!(bench.edge_build(&["inspect", "o.edge"]).data.contains("none yet: `edge-build finish` adds one"));

    bench
        .edge_build(&["finish", "o.edge"])
        .ends_with(10)
        .says_one_error(&["compute capability 8.7", "found no CUDA driver"]);
    assert_eq!(bench.read("o.edge"), unfinished);

    // The double computes nothing: its plan does not prove itself, and the bundle stays as it was.
    machine.run(&["finish", "o.edge"]).ends_with(3).says_one_error(&["found a plan that must not be used"]);
    assert_eq!(bench.read("o.edge"), unfinished);
    let finished = machine.run(&["finish", "o.edge", "--keep-unproved"]).ends_with(0);
    assert!(finished.people.contains("kept although"), "{}", finished.people);
    assert!(finished.people.contains("added plan `trt10-10.3.0-cc8.7` to o.edge"), "{}", finished.people);
    let bundle = Bundle::open(&bench.path("o.edge")).unwrap();
    assert_eq!(bundle.id(), id, "a plan does not change what the bundle is");
    let (facts, plan) = bundle.plan("trt10-10.3.0-cc8.7").unwrap();
    assert_eq!((facts.flavour.as_str(), facts.tensorrt.as_str()), ("trt10", "10.3.0"));
    assert_eq!(facts.made_on.as_deref(), Some("Double 0"));
    assert_eq!(plan, [b"PLAN1", &bundle.model().unwrap()[..]].concat());
    assert_eq!(machine.timings(), 1);

    // The runner on the device: the same command there.
    let on_device = machine.run(&[&target[..], &["--flavour", "trt10", "--keep-unproved"]].concat()).ends_with(0);
    assert!(on_device.people.contains("compiling: TensorRT 10 10.3.0"), "{}", on_device.people);
}

#[test]
fn families_are_told_apart_by_what_is_installed() {
    let machine = Machine::trt8(&[]);
    let build = with(&["--target", "orin-nano-8gb", "-o", "o.edge"]);
    machine.run(&build).ends_with(2).says_one_error(&["several families", "`trt8` and `trt10`"]);
    let none = machine.run(&[&build[..], &["--flavour", "trt10"]].concat()).ends_with(10);
    none.says_one_error(&["found no TensorRT 10 library", "holds no `libnvinfer.so.10`"]);
    machine.run(&[&build[..], &["--portable"]].concat()).ends_with(0);
    let finished = machine.run(&["finish", "o.edge", "--keep-unproved"]).ends_with(0);
    assert!(finished.people.contains("trt8-8.5.2-cc8.7"), "{}", finished.people);
    machine.run(&["finish", "o.edge", "--portable"]).ends_with(2).says_one_error(&["`--portable`"]);

    let other_gpu = with(&["--target", "t4", "--flavour", "trt8", "-o", "t.edge"]);
    machine
        .run(&other_gpu)
        .ends_with(10)
        .says_one_error(&["needs a GPU of compute capability 7.5", "this machine has one of 8.7"]);
    assert!(!machine.bench.path("t.edge").exists());
}

/// Case P04 (a): a builder that gives nothing is an error, and no file is left.
#[test]
fn p04_a_builder_that_gives_no_plan_is_an_error_without_a_file() {
    for machine in [Machine::trt8(&["FAILS"]), Machine::trt10(&["FAILS"])] {
        let flavour = if machine.bench.path("tensorrt/libnvinfer.so.8").exists() { "trt8" } else { "trt10" };
        let build = with(&["--target", "orin-nano-8gb", "-o", "o.edge", "--flavour", flavour]);
        let ran = machine.run(&build).ends_with(3);
        ran.says_one_error(&[
            "made no plan",
            "Could not find any implementation for node /model.0/conv",
            "`--workspace`",
        ]);
        assert!(!machine.bench.path("o.edge").exists());
    }
}

/// TensorRT 8 is held to the halves that the graph asks for; where it has no kernel for one it builds again, free to take float.
#[test]
fn tensorrt_8_without_a_kernel_in_half_builds_with_halves_free() {
    let calls = |inner: &str| {
        let machine = Machine::trt8(&[&format!("INNER=\"{inner}\"")]);
        let model = graphs::constant(
            graphs::Type::F32,
            [1, 3, 64, 64],
            vec![graphs::raw_head(2, 84, &[[32.0, 32.0, 20.0, 12.0, 0.01, 0.0]])],
        );
        machine.bench.write("model.onnx", &graphs::with_convolutions(&model));
        machine.bench.pictures("good", 4);
        let flags = ["--fp16", "--calibration", "good", "--target", "orin-nano-8gb"];
        let more = ["--flavour", "trt8", "--keep-unproved", "-o", "o.edge"];
        let ran = machine.run(&[&MODEL[..], &flags, &more].concat()).ends_with(0);
        let calls = String::from_utf8(machine.bench.read("tensorrt/libnvinfer.so.8.calls")).unwrap();
        (ran.people, calls)
    };
    let count = |calls: &str, call: &str| calls.lines().filter(|line| line.contains(call)).count();
    let (people, made) = calls("second_output");
    assert!(people.contains("no kernel for a layer that the graph asks in half"), "{people}");
    assert_eq!(count(&made, "buildSerializedNetwork"), 2, "{made}");
    assert_eq!(count(&made, "layer=0 type=1"), 1, "{made}");

    let (people, made) = calls("of_no_convolution");
    assert!(!people.contains("no kernel"), "{people}");
    assert_eq!((count(&made, "buildSerializedNetwork"), count(&made, " type=1")), (1, 0), "{made}");
}

/// A build that is out of time, then one that is stopped: each ends with its own exit code and leaves no bundle.
fn out_of_time_then_stopped(machine: &Machine, flavour: &'static str) {
    let build = with(&["--target", "orin-nano-8gb", "-o", "o.edge", "--flavour", flavour]);
    let late = machine.run(&[&build[..], &["--time-limit", "0.5s"]].concat()).ends_with(9);
    let late = late.says_one_error(&["no plan within the time limit of 0.5 s"]);
    assert!(!late.people.contains("corrupted"), "{}", late.people);
    assert!(!machine.bench.path("o.edge").exists());

    let child = machine.command(&build).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ran: Ran = child.wait_with_output().unwrap().into();
    ran.ends_with(130).says_one_error(&["interrupted"]);
    assert!(!machine.bench.path("o.edge").exists());
}

#[test]
fn a_build_that_is_stopped_or_out_of_time_leaves_only_its_timings() {
    let machine = Machine::trt10(&["SLOW"]);
    out_of_time_then_stopped(&machine, "trt10");
    assert_eq!(machine.timings(), 1);
}

/// TensorRT 8 cannot be asked to stop: the build is left behind, and the process must not run into the library's end.
#[test]
fn a_build_of_tensorrt_8_that_is_left_behind_ends_with_its_own_exit_code() {
    out_of_time_then_stopped(&Machine::trt8(&["SLOW"]), "trt8");
}

#[test]
fn flags_for_gpus_are_checked_before_the_model_is_read() {
    let bench = Bench::new();
    for (arguments, words) in [
        (&["--target", "cpu", "--flavour", "rtx"][..], &["target `cpu` with a flag for GPUs"][..]),
        (&["--target", "8.0", "--flavour", "rtx"], &["no memory size for target `8.0`", "--gpu-budget 4GiB"]),
        (&["--target", "a2", "--flavour", "rtx", "--gpu-budget", "64GiB"], &["expected at most the 16.0 GiB"]),
        (
            &["--target", "a2", "--flavour", "rtx", "--gpu-budget", "1GiB", "--workspace", "2GiB"],
            &["at most the budget"],
        ),
    ] {
        let ran = bench.edge_build(&[&["no-such.onnx"][..], arguments].concat()).ends_with(2);
        ran.says_one_error(words);
    }
    for arguments in
        [&["--flavour", "trt7"][..], &["--workspace", "much"], &["--time-limit", "0"], &["--optimization-level", "6"]]
    {
        bench.edge_build(&[&["no-such.onnx"][..], arguments].concat()).ends_with(2);
    }
}
