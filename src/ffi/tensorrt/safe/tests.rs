//! Every family's build and run flow against `tests/doubles/tensorrt.c`, which notes the slot in which each call lands.
//!
//! The snapshots are what arrived. `cargo insta accept` rewrites them.

use super::*;
use crate::ErrorKind;
use crate::ffi::cuda::{self, DeviceBuffer, Driver, Stream, Wait};
use crate::ffi::tensorrt::callbacks::{self, DeviceAllocator, Phase, ProgressMonitor};
use crate::ffi::tensorrt::probe::Search;
use crate::ffi::tensorrt::version::Flavour;
use crate::units::Bytes;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Flavour, the double's family, the version it claims.
const LIBRARIES: [(Flavour, u32, i32); 8] = [
    (Flavour::Trt8, 0, 8503),
    (Flavour::Trt8, 0, 8601),
    (Flavour::Trt10, 1, 100_000),
    (Flavour::Trt10, 1, 100_300),
    (Flavour::Trt10, 1, 101_501),
    (Flavour::Trt11, 2, 110_400),
    (Flavour::Rtx, 3, 10_400),
    (Flavour::Rtx, 4, 10_700),
];

/// A double in a folder of its own.
struct Double {
    folder: tempfile::TempDir,
    flavour: Flavour,
    library: Arc<Library>,
}

impl Double {
    fn new((flavour, family, number): (Flavour, u32, i32), defines: &[&str]) -> Double {
        let (folder, search) = compiled((flavour, family, number), defines);
        let library = Library::open_without_driver(flavour, &search).unwrap();
        Double { folder, flavour, library }
    }

    /// What arrived, in order: calls of the core library, then those of the parser. Panics on a mistake that the double saw.
    fn calls(&self) -> String {
        let read =
            |name: &str| std::fs::read_to_string(self.folder.path().join(format!("{name}.calls"))).unwrap_or_default();
        let text = read(self.flavour.library_name()) + "-- parser\n" + &read(self.flavour.parser_name());
        let mistakes: Vec<_> = text.lines().filter(|line| line.contains('!')).collect();
        assert!(mistakes.is_empty(), "{mistakes:#?}\n{text}");
        text
    }
}

fn compiled((flavour, family, number): (Flavour, u32, i32), defines: &[&str]) -> (tempfile::TempDir, Search) {
    let folder = tempfile::tempdir().unwrap();
    let mut all = vec![format!("FAMILY={family}"), format!("NUMBER={number}")];
    all.extend(defines.iter().map(ToString::to_string));
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let core = folder.path().join(flavour.library_name());
    cuda::double::compile("tensorrt.c", &core, &all);
    std::fs::copy(&core, folder.path().join(flavour.parser_name())).unwrap();
    let search = Search { directory: Some(folder.path().to_path_buf()) };
    (folder, search)
}

#[derive(Default)]
struct Watcher {
    seen: Mutex<Vec<String>>,
    cancel_at: Option<u32>,
}

impl ProgressMonitor for Watcher {
    fn progress(&self, phases: &[Phase]) -> bool {
        let text: Vec<_> =
            phases.iter().map(|phase| format!("{} {}/{}", phase.name, phase.done, phase.steps)).collect();
        self.seen.lock().unwrap().push(text.join(" > "));
        self.cancel_at.is_none_or(|step| phases.first().is_none_or(|phase| phase.done < step))
    }
}

fn settings(flavour: Flavour, library: &Library) -> BuildSettings {
    let has_level = library.version().to_string() != "8.5.3";
    BuildSettings {
        workspace: Bytes::gib(1),
        optimization_level: has_level.then_some(2),
        compute_capabilities: if flavour == Flavour::Rtx { vec![80, 89] } else { vec![] },
        precisions: if flavour == Flavour::Trt8 { vec![DataType::Half, DataType::Int8] } else { vec![] },
        ..BuildSettings::default()
    }
}

/// Memory for TensorRT out of a vector: the double's device memory is host memory.
#[derive(Default)]
struct HostAllocator {
    blocks: Mutex<Vec<Vec<u64>>>,
    given_bytes: AtomicU64,
    refuse: bool,
}

// SAFETY: each block is a vector of its own, kept until `free`; `u64`s are aligned enough for the double.
unsafe impl DeviceAllocator for HostAllocator {
    fn allocate(&self, bytes: u64, _alignment: u64) -> Option<u64> {
        if self.refuse {
            return None;
        }
        let block = vec![0_u64; usize::try_from(bytes).unwrap().div_ceil(8)];
        let address = block.as_ptr().expose_provenance() as u64;
        self.blocks.lock().unwrap().push(block);
        self.given_bytes.fetch_add(bytes, Ordering::Relaxed);
        Some(address)
    }

    fn free(&self, address: u64) -> bool {
        let mut blocks = self.blocks.lock().unwrap();
        let before = blocks.len();
        blocks.retain(|block| block.as_ptr().expose_provenance() as u64 != address);
        blocks.len() < before
    }
}

/// Build, read back, run: in every family each call lands in the slot of its method.
#[test]
fn each_family_builds_and_runs() {
    let cuda_folder = tempfile::tempdir().unwrap();
    let driver = cuda_folder.path().join("libcuda.so.1");
    cuda::double::compile("cuda.c", &driver, &[]);
    let context = cuda::Context::new(Driver::from_file(&driver).unwrap(), 0, Wait::Block).unwrap();
    for library in LIBRARIES {
        let double = Double::new(library, &[]);
        let plan = build(&double);
        run(&double, &plan, &context);
        insta::assert_snapshot!(format!("calls-{}-{}", double.flavour, double.library.version()), double.calls());
    }
}

fn build(double: &Double) -> Vec<u8> {
    let watcher = Arc::new(Watcher::default());
    let builder = Builder::new(&double.library).unwrap();
    let network = Network::from_onnx(&builder, b"a model").unwrap();
    assert_eq!(network.layers().unwrap(), 2);
    let tensors = network.tensors().unwrap();
    assert_eq!(tensors[0].sizes, [1, 3, 4, 5]);
    assert_eq!((tensors[0].name.as_str(), tensors[0].data_type, tensors[0].input), ("images", DataType::Half, true));
    assert_eq!(tensors[1].sizes, [1, 6, 10]);
    assert_eq!((tensors[1].name.as_str(), tensors[1].data_type, tensors[1].input), ("output0", DataType::Float, false));
    if double.flavour == Flavour::Trt8 {
        assert_eq!(network.hold(&["output0".to_owned()], DataType::Float).unwrap(), 1);
    }
    let mut settings = settings(double.flavour, &double.library);
    settings.watcher = Some(Arc::clone(&watcher) as Arc<dyn ProgressMonitor>);
    let config = Config::new(&builder, &settings).unwrap();
    let collector = callbacks::collect_log();
    let plan = builder.build(&network, &config).unwrap().expect("a plan");
    let expected =
        format!("PLAN{}a model", LIBRARIES.iter().find(|l| l.2 == double.library.version().number()).unwrap().1);
    assert_eq!(String::from_utf8(plan.clone()).unwrap(), expected);
    assert_eq!(config.timings().unwrap().unwrap(), b"timings");
    assert!(collector.lines().iter().any(|line| {
        line.to_string().starts_with("Tactic 0 needs 0 MiB, only 0 MiB are free (3 times alike)") || line.count > 3
    }));
    let seen = watcher.seen.lock().unwrap();
    if double.flavour == Flavour::Trt8 {
        assert!(seen.is_empty());
    } else {
        assert_eq!(seen[1], "Building engine 0/4 > Timing tactics 0/1");
        assert_eq!(seen.last().unwrap(), "");
        assert!(seen.contains(&"Building engine 4/4".to_owned()));
    }
    assert_eq!(Rc::strong_count(&builder), 3, "network and configuration hold the builder");
    drop(builder);
    plan
}

fn run(double: &Double, plan: &[u8], cuda: &Arc<cuda::Context>) {
    let memory = Arc::new(HostAllocator::default());
    let runtime = Runtime::new(&double.library, Some(Arc::clone(&memory) as Arc<dyn DeviceAllocator>)).unwrap();
    let known = if double.flavour == Flavour::Rtx { Some(true) } else { None };
    assert_eq!(runtime.accepts(plan).unwrap(), known);
    let engine = runtime.deserialize(plan).unwrap();
    assert_eq!(memory.given_bytes.load(Ordering::Relaxed), 1000);
    assert_eq!(Arc::strong_count(&runtime), 2, "the engine holds the runtime");
    assert_eq!(engine.layers().unwrap(), 2);
    assert_eq!(engine.context_memory().unwrap(), Bytes(4096));
    assert!(engine.layer_information().unwrap().contains("\"Layers\""));
    let tensors = engine.tensors();
    assert_eq!(tensors.iter().map(|tensor| tensor.bytes().unwrap()).collect::<Vec<_>>(), [120, 240]);

    let stream = Stream::new(cuda).unwrap();
    let buffer = Arc::new(DeviceBuffer::new(cuda, 8192).unwrap());
    let activations = Arc::new(DeviceBuffer::new(cuda, 8192).unwrap());
    let aligned = usize::try_from(activations.address().next_multiple_of(512) - activations.address()).unwrap();
    let mut context = engine.create_context().unwrap();
    assert_eq!(Arc::strong_count(&engine), 2, "the context holds the engine");
    assert!(context.check().unwrap_err().message().contains("no activation memory"));
    assert!(context.enqueue(&stream).is_err());
    assert!(context.set_memory(&activations, aligned, 4095).unwrap_err().message().contains("expected 4.0 KiB"));
    assert!(context.set_memory(&activations, aligned + 1, 4096).unwrap_err().message().contains("aligned"));
    context.set_memory(&activations, aligned, 4096).unwrap();
    context.bind(&tensors[0], &buffer, 0).unwrap();
    assert!(context.check().unwrap_err().message().contains("1 tensors unbound"));
    assert!(context.bind(&tensors[1], &buffer, 8000).is_err(), "behind the end of the buffer");
    context.bind(&tensors[1], &buffer, 4096).unwrap();
    context.check().unwrap();
    assert!(context.profile_layers().unwrap().take().is_empty());

    buffer.fill(2, &stream).unwrap();
    context.enqueue(&stream).unwrap();
    let result = cuda::PinnedBuffer::new(cuda, 240).unwrap();
    // SAFETY: the buffers live to the end of this function and the stream is waited for before the read.
    unsafe { buffer.copy_to(4096, &result, &stream) }.unwrap();
    stream.synchronize().unwrap();
    assert_eq!(result.as_slice()[..4], 514_f32.to_le_bytes());
    let times = context.profile_layers().unwrap().take();
    assert_eq!((times[0].name.as_str(), times[0].milliseconds), ("conv", 0.25));

    // Dropped in the worst order, also from another thread: each child keeps what it needs.
    drop((runtime, engine));
    std::thread::spawn(move || drop(context)).join().unwrap();
    assert!(memory.blocks.lock().unwrap().is_empty(), "TensorRT gave its memory back");
}

#[test]
fn a_cancelled_build_says_so_and_keeps_its_timings() {
    for library in LIBRARIES.into_iter().filter(|library| library.0 != Flavour::Trt8) {
        let double = Double::new(library, &[]);
        let builder = Builder::new(&double.library).unwrap();
        let network = Network::from_onnx(&builder, b"a model").unwrap();
        let watcher = Arc::new(Watcher { cancel_at: Some(2), ..Watcher::default() });
        let settings = BuildSettings {
            workspace: Bytes::mib(1),
            watcher: Some(Arc::clone(&watcher) as Arc<dyn ProgressMonitor>),
            timing_cache: b"of before".to_vec(),
            ..BuildSettings::default()
        };
        let config = Config::new(&builder, &settings).unwrap();
        assert!(!config.cache_was_refused());
        assert!(builder.build(&network, &config).unwrap().is_none());
        assert!(builder.take_errors().iter().any(|error| error.is_cancelled()));
        assert!(builder.take_errors().is_empty());
        assert!(config.timings().unwrap().is_some());
        assert!(!watcher.seen.lock().unwrap().iter().any(|line| line.contains("3/4")));
        drop((config, network, builder));
        double.calls();
    }
}

#[test]
fn refusals_of_parser_builder_and_runtime_are_explained() {
    for library in LIBRARIES {
        let double = Double::new(library, &[]);
        let builder = Builder::new(&double.library).unwrap();
        let error = Network::from_onnx(&builder, b"BAD").err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.message().contains("Unsupported operator Frobnicate (and 1 more errors)"), "{error}");
        let place = if double.flavour == Flavour::Trt8 { "node 7" } else { "node `/model.7/Frobnicate` (Frobnicate)" };
        assert_eq!(error.place(), Some(place));

        let network = Network::from_onnx(&builder, b"will FAIL").unwrap();
        let refused_cache = BuildSettings { timing_cache: b"X of another".to_vec(), ..BuildSettings::default() };
        let config = Config::new(&builder, &refused_cache).unwrap();
        assert!(config.cache_was_refused());
        assert!(builder.build(&network, &config).unwrap().is_none());
        assert!(builder.take_errors()[0].text.contains("Could not find any implementation"));
        let level = BuildSettings { optimization_level: Some(9), ..BuildSettings::default() };
        assert!(Config::new(&builder, &level).is_err());

        let other = Builder::new(&double.library).unwrap();
        assert!(other.build(&network, &config).is_err(), "a network of another builder");

        let runtime = Runtime::new(&double.library, None).unwrap();
        let refused = |plan: &[u8]| runtime.deserialize(plan).err().unwrap();
        assert!(refused(b"").message().contains("empty plan"));
        assert!(refused(b"garbage").message().contains("magicTag"), "{}", refused(b"garbage"));
        assert_eq!(refused(b"PLAN9 of another version").kind(), ErrorKind::Refused);
        let needs_gpu = format!("PLAN{}GPU", library.1);
        assert_eq!(refused(needs_gpu.as_bytes()).kind(), ErrorKind::MachineLacks);

        let stingy = Arc::new(HostAllocator { refuse: true, ..HostAllocator::default() });
        let runtime = Runtime::new(&double.library, Some(stingy)).unwrap();
        let plan = format!("PLAN{} of here", library.1);
        let error = runtime.deserialize(plan.as_bytes()).err().unwrap();
        assert!(error.message().contains("OutOfMemory") && error.kind() == ErrorKind::Budget, "{error}");
        drop((runtime, other, config, network, builder));
        double.calls();
    }
}

#[test]
fn unknown_capabilities_and_absent_methods_are_refused() {
    let double = Double::new((Flavour::Rtx, 4, 10_700), &[]);
    let builder = Builder::new(&double.library).unwrap();
    let config = |settings: BuildSettings| Config::new(&builder, &settings).err().unwrap();
    let error = config(BuildSettings { compute_capabilities: vec![80, 87], ..BuildSettings::default() });
    assert_eq!(error.message(), "TensorRT-RTX 1.7.0 does not build for compute capability 8.7");
    let error = config(BuildSettings { precisions: vec![DataType::Half], ..BuildSettings::default() });
    assert!(error.message().contains("has no builder flag Fp16"), "{error}");

    let double = Double::new((Flavour::Trt8, 0, 8503), &[]);
    let builder = Builder::new(&double.library).unwrap();
    let error = Config::new(&builder, &BuildSettings { optimization_level: Some(3), ..BuildSettings::default() });
    assert!(error.err().unwrap().message().contains("has no `VBuilderConfig::setBuilderOptimizationLevel`"));
    double.calls();
}

/// A library whose tables are not those of its version is found out by the first call and nothing else is called.
#[test]
fn a_table_that_does_not_fit_is_found_out() {
    let (folder, search) = compiled((Flavour::Trt10, 1, 100_300), &[]);
    // TensorRT 11's tables behind a number of 10.
    let core = folder.path().join(Flavour::Trt10.library_name());
    std::fs::remove_file(&core).unwrap();
    cuda::double::compile("tensorrt.c", &core, &["FAMILY=3", "NUMBER=110400"]);
    std::fs::rename(&core, folder.path().join(Flavour::Trt11.library_name())).unwrap();
    let library = Library::open_without_driver(Flavour::Trt11, &search).unwrap();
    let error = Builder::new(&library).err().unwrap();
    assert!(error.message().contains("whose builder answers otherwise"), "{error}");
    let error = Runtime::new(&library, None).err().unwrap();
    assert!(error.message().contains("whose runtime answers otherwise"), "{error}");
}

#[test]
fn the_wild_pointer_of_a_factory_without_a_driver_is_no_object() {
    let double = Double::new((Flavour::Trt10, 1, 101_501), &["WITHOUT_DRIVER"]);
    assert!(Builder::new(&double.library).err().unwrap().message().contains("gave no builder"));
    assert!(Runtime::new(&double.library, None).err().unwrap().message().contains("gave no runtime"));
}

/// On a machine without a driver no factory of `libnvinfer` is called.
#[test]
fn no_factory_is_called_without_a_driver() {
    if Driver::load().is_ok() {
        eprintln!("not tested: this machine has a CUDA driver");
        return;
    }
    for library in LIBRARIES.into_iter().filter(|library| library.0 != Flavour::Rtx) {
        let (folder, search) = compiled(library, &[]);
        let opened = Library::open(library.0, &search).unwrap();
        let error = Builder::new(&opened).err().unwrap();
        assert_eq!((error.kind(), error.place()), (ErrorKind::MachineLacks, Some("CUDA driver")));
        assert!(Runtime::new(&opened, None).is_err());
        assert!(!folder.path().join(format!("{}.calls", library.0.library_name())).exists());
    }
}

#[test]
fn another_flavour_under_the_name_and_a_parser_of_another_release_are_refused() {
    let (_folder, search) = compiled((Flavour::Rtx, 1, 100_300), &[]);
    let error = Library::open(Flavour::Rtx, &search).unwrap_err();
    assert!(error.message().contains("found TensorRT 10 (version 10.3.0), expected TensorRT-RTX"), "{error}");

    let (folder, search) = compiled((Flavour::Trt10, 1, 100_300), &[]);
    let parser = folder.path().join(Flavour::Trt10.parser_name());
    std::fs::rename(&parser, folder.path().join("libnvonnxparser.so.10.7.0")).unwrap();
    let library = Library::open_without_driver(Flavour::Trt10, &search).unwrap();
    let error = Network::from_onnx(&Builder::new(&library).unwrap(), b"a model").err().unwrap();
    assert!(error.message().contains("found an ONNX parser of version 10.7.0, expected 10.3.0"), "{error}");

    std::fs::remove_file(folder.path().join("libnvonnxparser.so.10.7.0")).unwrap();
    let library = Library::open_without_driver(Flavour::Trt10, &search).unwrap();
    let error = Network::from_onnx(&Builder::new(&library).unwrap(), b"a model").err().unwrap();
    assert!(error.message().contains("holds no `libnvonnxparser.so.10`"), "{error}");
}

/// The real libraries of 8 and 10, where `EDGE_TENSORRT_8_DIR` and `EDGE_TENSORRT_10_DIR` name their folders: version read,
/// factories not called, the process alive.
#[test]
fn real_libraries_are_not_asked_without_a_driver() {
    for (flavour, variable) in [(Flavour::Trt8, "EDGE_TENSORRT_8_DIR"), (Flavour::Trt10, "EDGE_TENSORRT_10_DIR")] {
        let Some(directory) = std::env::var_os(variable).map(std::path::PathBuf::from) else {
            crate::test_inputs::skipped(
                flavour.name(),
                &format!("{variable} names no folder with {}", flavour.product()),
            );
            continue;
        };
        let library = Library::open(flavour, &Search { directory: Some(directory) }).unwrap();
        assert_eq!(library.flavour(), flavour);
        if crate::ffi::cuda::Driver::load().is_ok() {
            continue;
        }
        for error in
            [Builder::new(&library).map(|_| ()).unwrap_err(), Runtime::new(&library, None).map(|_| ()).unwrap_err()]
        {
            assert_eq!(error.kind(), crate::ErrorKind::MachineLacks);
            assert!(error.message().contains("found no CUDA driver"), "{error}");
        }
    }
}

/// `libnvinfer_lean` under the name of the whole library.
#[test]
fn the_lean_runtime_reads_plans_and_says_that_it_builds_none() {
    for library in LIBRARIES.into_iter().filter(|library| library.0 != Flavour::Rtx) {
        let double = Double::new(library, &["LEAN"]);
        assert!(Runtime::new(&double.library, None).is_ok(), "{library:?}");
        let error = Builder::new(&double.library).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::MachineLacks);
        assert!(error.message().contains("without a builder"), "{error}");
        assert!(error.hint_text().unwrap().contains("lean runtime"), "{error}");
    }
}
