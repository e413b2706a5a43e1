//! What the health addresses say, and which engine and camera it is about.

use super::*;

#[test]
fn ready_is_red_until_warm_up_and_proof_are_done_and_again_in_a_fault() {
    let bench = plain(&["cam0"]);
    bench.board.heartbeat();
    for phase in [Phase::Starting, Phase::WarmingUp, Phase::Proving] {
        bench.board.set_phase(phase);
        assert_eq!(bench.get("/readyz").0, 503, "{phase:?}");
        assert_eq!(bench.get("/livez").0, 200, "{phase:?}");
    }
    bench.ready();
    assert_eq!(bench.get("/readyz").0, 200);
    let mut sink = bench.board.sink();
    let fault = |reason| Row { trust: Trust::Fault, reasons: vec![reason], ..row() };
    sink.put(&fault(Reason::Nan)).unwrap();
    assert_eq!(bench.get("/readyz").0, 503);
    sink.put(&fault(Reason::Dark)).unwrap();
    assert_eq!(bench.get("/readyz").0, 200, "a dark picture does not speak against the engine");
    bench.board.set_phase(Phase::Fault);
    assert_eq!(bench.get("/readyz"), (503, "not ready: fault\n".to_owned()));
}

#[test]
fn live_is_red_when_the_engine_thread_stands() {
    let limits = Limits { engine_stuck_after: Duration::from_secs(1), ..generous() };
    let bench = bench(HttpOptions { listen: local(), limits, ..HttpOptions::default() }, &["cam0"]);
    bench.ready();
    assert_eq!(bench.get("/livez").0, 200);
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(bench.get("/livez").0, 503);
    assert_eq!(bench.get("/readyz").0, 503);
    bench.board.heartbeat();
    assert_eq!(bench.get("/livez").0, 200);
}

/// R02: an engine that always answers with an error must not leave the health page green.
#[test]
fn health_needs_an_inferred_frame_per_stream() {
    let limits = Limits { stream_silent_after: Duration::from_secs(2), ..generous() };
    let bench = bench(HttpOptions { listen: local(), limits, ..HttpOptions::default() }, &["cam0", "cam1"]);
    bench.ready();
    let mut sink = bench.board.sink();
    sink.put(&row()).unwrap();
    let (status, body) = bench.get("/healthz");
    let health: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 503, "cam1 has not answered");
    assert_eq!(health["streams"][0]["healthy"], true);
    assert_eq!(health["streams"][1]["healthy"], false);
    std::thread::sleep(Duration::from_millis(120));
    sink.put(&row()).unwrap();
    sink.put(&Row { stream: "cam1".into(), ..row() }).unwrap();
    assert_eq!(bench.get("/healthz").0, 200);
    for _ in 0..11 {
        std::thread::sleep(Duration::from_millis(200));
        sink.put(&Row { stream: "cam1".into(), ..row() }).unwrap();
        sink.put(&Row { trust: Trust::Fault, reasons: vec![Reason::EngineError], ..row() }).unwrap();
    }
    let (status, body) = bench.get("/healthz");
    assert_eq!(status, 503);
    assert!(body.contains("\"word\":\"not_inspected\""), "{body}");
}

#[test]
fn a_lost_camera_shows_no_picture_and_no_boxes() {
    let bench = plain(&["cam0"]);
    bench.ready();
    bench.board.sink().put(&with_picture("cam0")).unwrap();
    assert_eq!(bench.get("/preview/cam0.jpg").0, 200);
    bench.board.source_lost("cam0", "unplugged");
    assert_eq!(bench.get("/preview/cam0.jpg").0, 404);
    std::thread::sleep(Duration::from_millis(120));
    let health: serde_json::Value = serde_json::from_str(&bench.get("/healthz").1).unwrap();
    let stream = &health["streams"][0];
    assert_eq!(stream["state"], "lost");
    assert_eq!(stream["word"], "not_inspected");
    assert_eq!(stream["because"], "camera_lost");
    assert_eq!(stream["lost"], "unplugged");
    assert_eq!(stream["picture"], false);
    assert_eq!(stream["detections"], serde_json::json!([]));
    bench.board.source_back("cam0");
    bench.board.sink().put(&with_picture("cam0")).unwrap();
    assert_eq!(bench.get("/preview/cam0.jpg").0, 200);
}

#[test]
fn an_old_picture_is_not_shown_as_present() {
    let limits = Limits { stale_after: Duration::from_secs(1), ..generous() };
    let bench = bench(HttpOptions { listen: local(), limits, ..HttpOptions::default() }, &["cam0"]);
    bench.ready();
    bench.board.sink().put(&with_picture("cam0")).unwrap();
    assert_eq!(bench.get("/preview/cam0.jpg").0, 200);
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(bench.get("/preview/cam0.jpg").0, 404);
    assert!(bench.get("/healthz").1.contains("\"state\":\"silent\""));
}

#[test]
fn engines_of_several_bundles_are_told_apart() {
    let setup = |name: &str| StreamSetup { name: name.into(), continuous: true, has_rule: false };
    let board = Board::of_several(vec![setup("a"), setup("b")], &[0, 1]);
    let options = HttpOptions { listen: local(), ..HttpOptions::default() };
    let telemetry = Telemetry::new();
    let server = Server::start(options, Arc::clone(&board), Arc::clone(&telemetry)).unwrap().unwrap();
    let bench = Bench { server, board, telemetry };
    for (engine, (label, device)) in [("left", "0"), ("right", "1")].into_iter().enumerate() {
        let own = bench.board.of_engine(engine);
        own.name_engine(label);
        own.set_phase(if engine == 0 { Phase::Ready } else { Phase::Fault });
        own.heartbeat();
        let view = DeviceView::new(device.to_owned(), "serving", None, None, DeviceState::default());
        own.show_devices(vec![view]);
    }
    let text = bench.get("/metrics").1;
    for line in ["edge_engine_ready{engine=\"left\"} 1", "edge_engine_ready{engine=\"right\"} 0"] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    let health: serde_json::Value = serde_json::from_str(&bench.get("/healthz").1).unwrap();
    let engines = health["engines"].as_array().unwrap();
    let told: Vec<_> = engines
        .iter()
        .map(|engine| (engine["label"].as_str().unwrap(), &engine["streams"][0], &engine["devices"][0]["device"]))
        .collect();
    assert_eq!(told, [("left", &"a".into(), &"0".into()), ("right", &"b".into(), &"1".into())]);
    assert_eq!((&health["ready"], health["devices"].as_array().unwrap().len()), (&false.into(), 2));
}
