//! Several bundles in one run: each answers its own streams, and what goes wrong with one is the matter of one.

use crate::line::{CannedSource, Line, write_bundle};
use edge_trt::bundle::Bundle;
use edge_trt::camera::Camera;
use edge_trt::engine::Engine;
use edge_trt::error::Result;
use edge_trt::run::depot::Delivery;
use edge_trt::run::inject::{FaultKind, Plan, Until};
use edge_trt::run::source::EngineSource;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// One source of engines a bundle, by the bundle's name.
struct ByBundle(BTreeMap<String, Arc<dyn EngineSource>>);

impl EngineSource for ByBundle {
    fn load(&self, bundle: &Bundle, score_floor: f32, device: usize) -> Result<Box<dyn Engine>> {
        self.0[&bundle.manifest().name].load(bundle, score_floor, device)
    }

    fn fit_camera(&self, stream: &str, camera: Box<dyn Camera>) -> Box<dyn Camera> {
        self.0["slow"].fit_camera(stream, camera)
    }
}

/// Streams `cam0` and `cam1` on the bundle `quick`, `cam2` on the bundle `slow`.
fn line() -> Line {
    let names: Vec<String> = (0..3).map(|number| format!("cam{number}")).collect();
    let mut line = Line::with_streams(&names);
    let slow = line.path("slow.edge");
    write_bundle(&line.options.bundle, 0.0, |manifest| manifest.name = "quick".into());
    write_bundle(&slow, 4.0, |manifest| manifest.name = "slow".into());
    line.options.streams[2].engine = Some(slow);
    line.options.service.call_limit = Some(Duration::from_secs(20));
    line.options.service.echo_every = 0;
    line.options.frames = Some(300);
    line
}

fn engines(slow: CannedSource) -> ByBundle {
    let slow: Arc<dyn EngineSource> = Arc::new(slow);
    ByBundle([("quick".into(), Arc::new(CannedSource::new()) as _), ("slow".into(), slow)].into())
}

fn by_stream(line: &Line) -> BTreeMap<String, Vec<serde_json::Value>> {
    let mut rows: BTreeMap<String, Vec<serde_json::Value>> = BTreeMap::new();
    for row in line.rows() {
        rows.entry(row["stream"].as_str().unwrap().to_owned()).or_default().push(row);
    }
    rows
}

#[test]
fn each_stream_is_answered_by_its_bundle_and_a_slow_one_holds_nobody_up() {
    let line = line();
    let outcome = line.run(Arc::new(engines(CannedSource { call: Duration::from_millis(60), ..CannedSource::new() })));
    let outcome = outcome.unwrap();
    assert_eq!(outcome.incidents, []);
    assert_eq!(outcome.results.values().sum::<u64>(), 300);
    let rows = by_stream(&line);
    for (stream, rows) in &rows {
        let (bundle, left) = if stream == "cam2" { ("slow", 8.0) } else { ("quick", 4.0) };
        for row in rows {
            assert_eq!((row["trust"].as_str(), row["engine"]["bundle"].as_str()), (Some("trusted"), Some(bundle)));
            // The bias of the slow bundle is 4 px of the network's input; the picture is scaled by 1.6 and padded by 6.
            let found = row["detections"][0]["box"][0].as_f64().unwrap();
            assert!((found - f64::max((left - 6.0) / 1.6, 0.0)).abs() < 0.1, "{stream}: {found}");
        }
    }
    assert!(rows["cam2"].len() < 60, "{}", rows["cam2"].len());
    assert!(rows["cam0"].len() > 2 * rows["cam2"].len(), "{} and {}", rows["cam0"].len(), rows["cam2"].len());
    // Each keeps its own state.
    assert!(line.path("state").join("slow").is_dir() && line.path("state").join("line1").is_dir());
}

#[test]
fn a_fault_of_one_bundle_is_not_one_of_the_other() {
    let mut line = line();
    line.options.frames = Some(600);
    line.options.streams.iter_mut().for_each(|stream| stream.delivery = Some(Delivery::Every));
    let fault = crate::line::fault(FaultKind::Nan, 1.0, Until::Load);
    let injector = edge_trt::run::inject::Injector::new(Plan { faults: vec![fault] });
    let faulty = edge_trt::run::inject::Injected::over(Arc::new(CannedSource::new()), injector);
    let engines = ByBundle([("quick".into(), Arc::new(CannedSource::new()) as _), ("slow".into(), faulty)].into());
    let outcome = line.run(Arc::new(engines)).unwrap();
    assert_eq!(outcome.incidents.len(), 1, "{:?}", outcome.incidents);
    let rows = by_stream(&line);
    let faults = |stream: &str| rows[stream].iter().filter(|row| row["trust"] == "fault").count();
    assert_eq!((faults("cam0"), faults("cam1"), faults("cam2")), (0, 0, 1));
    // The incident is the faulty bundle's, with its stream alone, so that it can be run again.
    let (listed, broken) = edge_trt::run::incident::list(&line.path("state")).unwrap();
    assert_eq!((listed.len(), broken.len()), (1, 0));
    let report = &listed[0].report;
    assert_eq!((report.engine.bundle.as_str(), &report.streams[..]), ("slow", &["cam2".to_owned()][..]));
    assert_eq!(report.steps.last().map(String::as_str), Some("new_context"));
}

#[test]
fn a_request_for_other_bundles_reaches_every_bundle() {
    let mut line = line();
    line.options.frames = None;
    line.options.duration = Some(Duration::from_secs(20));
    line.options.service.reload.shadow_frames = 3;
    let (quick, slow, door) =
        (line.options.bundle.clone(), line.path("slow.edge"), Arc::clone(&line.options.service.reload.door));
    let stop = edge_trt::run::stop::StopFlag::default();
    let asks = std::thread::spawn({
        let stop = stop.clone();
        move || {
            std::thread::sleep(Duration::from_millis(1500));
            write_bundle(&quick, 0.5, |manifest| manifest.name = "quick".into());
            write_bundle(&slow, 4.5, |manifest| manifest.name = "slow".into());
            door.ask();
            std::thread::sleep(Duration::from_secs(4));
            stop.raise(edge_trt::run::stop::StopReason::Done);
        }
    });
    let source = Arc::new(engines(CannedSource::new()));
    edge_trt::run::start_with(&line.options, source, &stop, &mut |_| {}).unwrap();
    asks.join().unwrap();
    for (stream, rows) in by_stream(&line) {
        let mut bundles: Vec<&str> = rows.iter().map(|row| row["engine"]["sha256"].as_str().unwrap()).collect();
        bundles.dedup();
        assert_eq!(bundles.len(), 2, "{stream}: the bundle before and the one after");
    }
}
