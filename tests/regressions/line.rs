//! A whole line without a real network: a bundle with known answers, canned engines, a camera of small pictures.

use edge_trt::bundle::golden::{self, GoldenFrame, GoldenSet, RecordOptions, entry_name, synthetic_pictures};
use edge_trt::bundle::manifest::{Golden, GoldenKind, Manifest, Precision, SCHEMA, Source, Target};
use edge_trt::bundle::{self, Bundle, MODEL};
use edge_trt::camera::{Camera, Capture, SourceInfo, SourceKind, SourceSpec};
use edge_trt::engine::canned::{CannedAnswer, CannedEngine};
use edge_trt::engine::{Candidate, ElementType, Engine, EngineInfo, Inference, InputSpec, Layout, MemoryFigures};
use edge_trt::error::{Error, ErrorKind, Result};
use edge_trt::frame::{Frame, Picture, PixelPool, StreamName};
use edge_trt::run::depot::Delivery;
use edge_trt::run::inject::{Fault, FaultKind, Injected, Injector, Plan, Until};
use edge_trt::run::source::EngineSource;
use edge_trt::run::stop::StopFlag;
use edge_trt::run::{self, Options, Outcome, OutputOptions, ServiceOptions, StreamOptions};
use edge_trt::units::{BoxPx, Bytes, SizePx};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

pub(crate) const INPUT: SizePx = SizePx::new(64, 64);

/// What the canned network sees: two boxes whose place depends on the picture's number for known answers, and on nothing
/// for live ones. `bias` makes bundles differ.
pub(crate) fn see(bias: f32, frame: &Frame, answer: &mut CannedAnswer) {
    let offset = if &*frame.stream == "golden" { frame.number as f32 } else { 0.0 };
    answer.candidates.clear();
    for (anchor, left, score) in [(3, 4.0 + offset, 0.9), (9, 30.0 + offset, 0.6)] {
        let edges = BoxPx::new(left + bias, 8.0, left + bias + 14.0, 22.0);
        answer.candidates.push(Candidate { anchor, class_id: 0, score, edges });
    }
}

/// An engine over canned answers.
pub(crate) fn engine(bias: f32) -> CannedEngine {
    CannedEngine::scripted(&["hole"], INPUT, Box::new(move |_, frame, answer| see(bias, frame, answer)))
}

/// A manifest for canned engines; the model's bytes say which one.
pub(crate) fn write_bundle(path: &Path, bias: f32, change: impl FnOnce(&mut Manifest)) {
    let mut manifest = Manifest {
        schema: SCHEMA,
        name: "line1".into(),
        edge_build: "0.1.0".into(),
        source: Source {
            file_name: "m.onnx".into(),
            sha256: "0".into(),
            side_files: vec![],
            producer: "test".into(),
            opset: 17,
        },
        input: InputSpec { name: "images".into(), batch: 1, channels: 3, size: INPUT, element: ElementType::F32 },
        layout: Layout::Raw { output: "output0".into(), classes: 1, anchors: 84 },
        classes: vec!["hole".into()],
        metadata: Default::default(),
        decided: vec![],
        target: Target { platform: "cpu".into(), flavour: "cpu".into(), compute_capability: None, budget: None },
        precision: Precision { asked: "as exported".into(), found: Default::default() },
        thresholds: Default::default(),
        guard: Default::default(),
        decision: None,
        golden: Golden {
            kind: GoldenKind::Synthetic,
            frames: vec![],
            answered_by: "canned".into(),
            tolerance_px: 5.0,
            tolerance_score: 0.03,
            tolerated_share: 0.0,
            score_floor: 0.01,
        },
        gate: None,
        reload: None,
        cache_key: "k".into(),
        cache_key_fields: Default::default(),
        files: Default::default(),
    };
    let pictures = synthetic_pictures(INPUT);
    let frames: Vec<Frame> =
        pictures.into_iter().zip(0..).map(|(picture, number)| golden::frame(number, picture)).collect();
    let options = RecordOptions { thresholds: &manifest.thresholds, classes: &manifest.classes, score_floor: 0.01 };
    let answers = golden::record(&mut engine(bias), &frames, &options).unwrap();
    let frames = frames.into_iter().zip(answers).enumerate().map(|(number, (frame, answer))| GoldenFrame {
        name: entry_name(number),
        picture: frame.picture,
        answer,
    });
    let (names, mut files) = GoldenSet { frames: frames.collect() }.to_files().unwrap();
    manifest.golden.frames = names;
    change(&mut manifest);
    let mut model = bias.to_le_bytes().to_vec();
    model.resize(4096, 7);
    files.insert(MODEL.to_owned(), model);
    bundle::write(path, &manifest, &files).unwrap();
}

/// Canned engines for the bundles above, counted while they live, and a camera of small pictures in place of the real one.
pub(crate) struct CannedSource {
    pub(crate) live: Arc<AtomicI64>,
    pub(crate) devices: usize,
    pub(crate) period: Duration,
    /// The engine's own time a call.
    pub(crate) call: Duration,
    /// The bundle with this bias answers not-a-number after so many live frames.
    pub(crate) bad: Option<(f32, u64)>,
    /// Devices on which nothing can be loaded.
    pub(crate) broken: Vec<usize>,
    /// Devices in the order in which engines were loaded.
    pub(crate) loads: Arc<std::sync::Mutex<Vec<usize>>>,
    /// The first engine of the bundle with this bias answers not-a-number while this is set.
    pub(crate) spoilt: Option<(f32, Arc<AtomicBool>)>,
    /// Engines of that bundle so far.
    pub(crate) loads_of_spoilt: AtomicU64,
    /// What all engines may take together; each claims its model's bytes.
    pub(crate) room: Option<Bytes>,
    /// What loading takes.
    pub(crate) load_time: Duration,
    /// Most engines at a time so far.
    pub(crate) most_live: Arc<AtomicI64>,
    /// A device with another room than the rest.
    pub(crate) other_room: Option<(usize, Bytes)>,
}

impl CannedSource {
    pub(crate) fn new() -> Self {
        CannedSource {
            live: Arc::default(),
            devices: 1,
            period: Duration::from_millis(5),
            call: Duration::ZERO,
            bad: None,
            broken: Vec::new(),
            loads: Arc::default(),
            spoilt: None,
            loads_of_spoilt: AtomicU64::new(0),
            room: None,
            load_time: Duration::ZERO,
            most_live: Arc::default(),
            other_room: None,
        }
    }
}

struct Counted {
    engine: CannedEngine,
    live: Arc<AtomicI64>,
    call: Duration,
    bad_after: Option<u64>,
    spoilt: Option<Arc<AtomicBool>>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Engine for Counted {
    fn info(&self) -> &EngineInfo {
        self.engine.info()
    }
    fn infer(&mut self, frames: &[&Frame], answers: &mut Vec<Inference>) -> Result<()> {
        if !self.call.is_zero() {
            std::thread::sleep(self.call);
        }
        self.engine.infer(frames, answers)?;
        if self.spoilt.as_ref().is_some_and(|spoilt| spoilt.load(Ordering::SeqCst)) {
            answers.iter_mut().for_each(|answer| answer.stats.nan = 5);
        }
        if let Some(left) = &mut self.bad_after {
            if &*frames[0].stream == "cam0" && *left > 0 {
                *left -= 1;
            } else if *left == 0 {
                answers.iter_mut().for_each(|answer| answer.stats.nan = 5);
            }
        }
        Ok(())
    }
    fn memory(&self) -> MemoryFigures {
        self.engine.memory()
    }
    fn recycle(&mut self, spent: Inference) {
        self.engine.recycle(spent);
    }
    fn set_score_floor(&mut self, score_floor: f32) {
        self.engine.set_score_floor(score_floor);
    }
}

impl EngineSource for CannedSource {
    fn load(&self, bundle: &Bundle, score_floor: f32, device: usize) -> Result<Box<dyn Engine>> {
        self.loads.lock().unwrap().push(device);
        if self.broken.contains(&device) {
            return Err(Error::new(ErrorKind::Device, "the device does not answer"));
        }
        let model = bundle.model()?;
        let bias = f32::from_le_bytes([model[0], model[1], model[2], model[3]]);
        if bias >= 1000.0 {
            return Err(Error::refused("this network cannot be loaded"));
        }
        let mut engine = engine(bias);
        engine.set_score_floor(score_floor);
        let bad_after = self.bad.filter(|(bad, _)| *bad == bias).map(|(_, after)| after);
        let spoilt = self.spoilt.as_ref().filter(|(spoilt, _)| *spoilt == bias).map(|(_, flag)| Arc::clone(flag));
        let spoilt = spoilt.filter(|_| self.loads_of_spoilt.fetch_add(1, Ordering::SeqCst) == 0);
        std::thread::sleep(self.load_time);
        let live = self.live.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_live.fetch_max(live, Ordering::SeqCst);
        Ok(Box::new(Counted { engine, live: Arc::clone(&self.live), call: self.call, bad_after, spoilt }))
    }

    fn claim(&self, bundle: &Bundle, _device: usize) -> Option<Bytes> {
        Some(Bytes(bundle.manifest().files.get(MODEL)?.bytes))
    }

    fn budget(&self, _bundle: &Bundle, device: usize) -> Option<Bytes> {
        self.other_room.filter(|(other, _)| *other == device).map(|(_, room)| room).or(self.room)
    }

    fn devices(&self) -> usize {
        self.devices
    }

    fn device_memory(&self, _device: usize) -> Option<(Bytes, Bytes)> {
        Some((Bytes::gib(1), Bytes::gib(8)))
    }

    fn fit_camera(&self, stream: &str, _camera: Box<dyn Camera>) -> Box<dyn Camera> {
        small_pictures(stream, self.period)
    }
}

/// A camera of 32 × 40 pixels whose pictures all differ, one every `period`.
pub(crate) fn small_pictures(stream: &str, period: Duration) -> Box<dyn Camera> {
    Box::new(SmallPictures { stream: stream.into(), number: 0, period, pool: PixelPool::new() })
}

/// A camera of 32 × 40 pixels whose pictures all differ.
struct SmallPictures {
    stream: StreamName,
    number: u64,
    period: Duration,
    pool: Arc<PixelPool>,
}

impl Camera for SmallPictures {
    fn info(&self) -> SourceInfo {
        SourceInfo {
            description: "small pictures".into(),
            kind: SourceKind::Live,
            related_frames: true,
            triggers: false,
            frames: None,
        }
    }

    fn next(&mut self, _patience: Duration) -> Result<Capture> {
        if !self.period.is_zero() {
            std::thread::sleep(self.period);
        }
        let size = SizePx::new(32, 40);
        let mut pixels = self.pool.take(3 * size.pixels());
        let mut state = self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for (at, value) in pixels.as_mut_slice().iter_mut().enumerate() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let slope = u8::try_from(at % 96).unwrap_or(0);
            *value = 60 + slope + (state >> 60) as u8;
        }
        let picture = Picture { pixels, ..Picture::rgb(size, Vec::new()) };
        let frame = Frame {
            stream: Arc::clone(&self.stream),
            number: self.number,
            captured_at: Some(SystemTime::now()),
            arrived: Instant::now(),
            source: None,
            part: None,
            picture,
        };
        self.number += 1;
        Ok(Capture::Frame(Arc::new(frame)))
    }
}

/// A folder with a bundle and options to run it.
pub(crate) struct Line {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) options: Options,
}

impl Line {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pictures = folder.path().join("pictures");
        std::fs::create_dir(&pictures).unwrap();
        image::RgbImage::new(4, 4).save(pictures.join("a.png")).unwrap();
        let bundle = folder.path().join("line1.edge");
        write_bundle(&bundle, 0.0, |_| {});
        let service = ServiceOptions {
            state: Some(folder.path().join("state")),
            call_limit: Some(Duration::from_millis(300)),
            patience: Duration::from_secs(1),
            camera_stuck_after: Duration::from_secs(1),
            echo_every: 50,
            ..ServiceOptions::default()
        };
        let options = Options {
            gpu: Default::default(),
            bundle,
            streams: vec![StreamOptions {
                name: "cam0".into(),
                engine: None,
                spec: SourceSpec::parse(&format!("replay:{}?loop&fps=1", pictures.display())).unwrap(),
                delivery: Some(Delivery::Newest),
                wait: false,
                triggered: false,
            }],
            trust: None,
            cpu: Default::default(),
            conf: None,
            iou: None,
            output: OutputOptions { file: Some(folder.path().join("rows.jsonl")), ..OutputOptions::default() },
            service,
            frames: Some(400),
            duration: Some(Duration::from_secs(30)),
        };
        Line { folder, options }
    }

    /// As many streams as `names`.
    pub(crate) fn with_streams(names: &[String]) -> Self {
        let mut line = Line::new();
        let first = line.options.streams[0].clone();
        line.options.streams = names.iter().map(|name| StreamOptions { name: name.clone(), ..first.clone() }).collect();
        line
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn run(&self, source: Arc<dyn EngineSource>) -> Result<Outcome> {
        run::start_with(&self.options, source, &StopFlag::default(), &mut |_| {})
    }

    /// Runs with one fault.
    pub(crate) fn run_with(&self, source: CannedSource, fault: Fault) -> (Result<Outcome>, Arc<Injector>) {
        let injector = Injector::new(Plan { faults: vec![fault] });
        let outcome = self.run(Injected::over(Arc::new(source), Arc::clone(&injector)));
        (outcome, injector)
    }

    /// The results written so far, as JSON; a line that is being written is left out.
    pub(crate) fn rows_so_far(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.path("rows.jsonl")).unwrap_or_default();
        text.lines().map_while(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Every result, as JSON, those of files that were put aside for their size first.
    pub(crate) fn rows(&self) -> Vec<serde_json::Value> {
        let aside = (1..10).rev().map(|number| format!("rows.jsonl.{number}"));
        let files = aside.chain(["rows.jsonl".to_owned()]);
        let text: String = files.filter_map(|file| std::fs::read_to_string(self.path(&file)).ok()).collect();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A fault that begins at the 110th live frame.
pub(crate) fn fault(kind: FaultKind, amount: f64, until: Until) -> Fault {
    Fault { kind, at: 110, amount, until, frames: 1, device: None }
}
