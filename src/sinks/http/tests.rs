use super::*;
use crate::ErrorKind as Kind;
use crate::decision::Decision;
use crate::detections::Detection;
use crate::frame::{Frame, Picture};
use crate::guard::{Reason, Trust};
use crate::sinks::Sink;
use crate::sinks::row::tests::row;
use crate::sinks::row::{EngineStamp, Row};
use crate::units::{BoxPx, SizePx};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;

fn setup(name: &str) -> StreamSetup {
    StreamSetup { name: name.into(), continuous: true, has_rule: true }
}

struct Bench {
    server: Server,
    board: Arc<Board>,
    telemetry: Arc<Telemetry>,
}

fn local() -> Listen {
    "127.0.0.1:0".parse().unwrap()
}

fn bench(options: HttpOptions, names: &[&str]) -> Bench {
    let board = Board::new(names.iter().map(|name| setup(name)).collect());
    let telemetry = Telemetry::new();
    let server = Server::start(options, Arc::clone(&board), Arc::clone(&telemetry)).unwrap().unwrap();
    Bench { server, board, telemetry }
}

fn plain(names: &[&str]) -> Bench {
    bench(HttpOptions { listen: local(), limits: generous(), ..HttpOptions::default() }, names)
}

/// Limits that a busy machine does not reach.
fn generous() -> Limits {
    let long = Duration::from_secs(60);
    Limits { stream_silent_after: long, engine_stuck_after: long, start_stuck_after: long, stale_after: long }
}

impl Bench {
    /// Sends bytes, reads until the server closes or `enough` is seen.
    fn send(&self, request: &str, enough: Option<&str>) -> String {
        let mut stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(read) = stream.read(&mut buffer) {
            answer.extend_from_slice(&buffer[..read]);
            let seen = enough.is_some_and(|enough| String::from_utf8_lossy(&answer).contains(enough));
            if read == 0 || seen {
                break;
            }
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn get(&self, path: &str) -> (u16, String) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        split(&self.send(&request, None))
    }

    fn post(&self, path: &str, headers: &str, body: &str) -> (u16, String) {
        let length = body.len();
        split(&self.send(
            &format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"),
            None,
        ))
    }

    fn ready(&self) {
        self.board.heartbeat();
        self.board.set_phase(Phase::Ready);
    }
}

fn split(answer: &str) -> (u16, String) {
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

fn with_picture(stream: &str) -> Row {
    let size = SizePx::new(64, 48);
    let frame = Frame::new(stream, 123, Picture::rgb(size, vec![90; size.pixels() * 3]));
    Row { stream: stream.into(), frame: Some(Arc::new(frame)), ..row() }
}

#[test]
fn every_route_answers_and_carries_the_policy() {
    let bench = plain(&["cam0"]);
    bench.ready();
    bench.board.sink().put(&with_picture("cam0")).unwrap();
    for (path, status) in [
        ("/", 200),
        ("/line", 200),
        ("/style.css", 200),
        ("/causes.js", 200),
        ("/words.js", 200),
        ("/engineer.js", 200),
        ("/line.js", 200),
        ("/incident", 200),
        ("/incident.js", 200),
        ("/incidents/20260101T000000Z-001-nan/incident.json", 404),
        ("/metrics", 200),
        ("/livez", 200),
        ("/readyz", 200),
        ("/healthz", 200),
        ("/preview/cam0.jpg", 200),
        ("/preview/cam1.jpg", 404),
        ("/nothing", 404),
        ("/trigger", 405),
    ] {
        let answer = bench.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"), None);
        assert_eq!(split(&answer).0, status, "{path}: {answer}");
        assert!(answer.contains("content-security-policy: default-src 'none'"), "{path}");
        assert!(answer.contains("x-content-type-options: nosniff"), "{path}");
    }
}

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
fn words_follow_trust_and_decision() {
    let bench = plain(&["cam0"]);
    let mut sink = bench.board.sink();
    let word = || {
        std::thread::sleep(Duration::from_millis(110));
        let health: serde_json::Value = serde_json::from_str(&bench.get("/healthz").1).unwrap();
        health["streams"][0]["word"].as_str().unwrap().to_owned()
    };
    sink.put(&Row { decision: Some(Decision::Pass), ..row() }).unwrap();
    assert_eq!(word(), "not_inspected", "nothing passes before the run is ready");
    bench.ready();
    assert_eq!(word(), "pass");
    sink.put(&Row { decision: Some(Decision::Reject), ..row() }).unwrap();
    assert_eq!(word(), "reject");
    sink.put(&Row { decision: None, ..row() }).unwrap();
    assert_eq!(word(), "reject", "frames without a part leave the last decision");
    sink.put(&Row { trust: Trust::Fault, reasons: vec![Reason::Frozen], decision: None, ..row() }).unwrap();
    assert_eq!(word(), "not_inspected");
}

#[test]
fn events_carry_the_snapshot() {
    let bench = plain(&["cam0"]);
    bench.ready();
    bench.board.sink().put(&row()).unwrap();
    let answer = bench.send("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n", Some("\"totals\""));
    assert!(answer.contains("content-type: text/event-stream"), "{answer}");
    assert!(answer.contains("data: {\"at\":"), "{answer}");
}

#[test]
fn triggers_reach_the_channel_and_a_full_one_answers_at_once() {
    let (sender, receiver) = mpsc::sync_channel(2);
    let options = HttpOptions { listen: local(), triggers: Some(sender), ..HttpOptions::default() };
    let bench = bench(options, &["cam0", "cam1"]);
    let json = "Content-Type: application/json\r\n";
    let (status, body) = bench.post("/trigger", json, r#"{"stream":"cam1","part":"A-17"}"#);
    assert_eq!((status, body.trim()), (202, r#"{"part":"A-17","stream":"cam1"}"#));
    assert_eq!(bench.post("/trigger?stream=cam0", "", "").0, 202);
    assert_eq!(bench.post("/trigger?stream=cam0", "", "").0, 503);
    let first = receiver.recv().unwrap();
    assert_eq!((&*first.stream, &*first.part), ("cam1", "A-17"));
    assert_eq!(&*receiver.recv().unwrap().part, "http-1");
    for (path, headers, body, status) in [
        ("/trigger", json, r#"{"stream":"cam9"}"#, 404),
        ("/trigger", json, "{}", 400),
        ("/trigger", json, "{\"part\":", 400),
        ("/trigger", json, r#"{"stream":"cam0","part":""}"#, 400),
        ("/trigger", json, r#"{"stream":"cam0","part":"a\u0000"}"#, 400),
        ("/trigger", json, r#"{"stream":"cam0","unknown":1}"#, 400),
        ("/trigger", "Content-Type: text/plain\r\n", r#"{"stream":"cam0"}"#, 415),
        ("/trigger?stream=cam0", "Origin: http://evil.example\r\n", "", 403),
        ("/trigger", json, &"x".repeat(5000), 413),
    ] {
        assert_eq!(bench.post(path, headers, body).0, status, "{path} {headers} {body:.40}");
    }
    assert!(receiver.try_recv().is_err());
    assert_eq!(bench.telemetry.total(Metric::Triggers, Labels::stream("cam1")), 1);
    assert_eq!(bench.telemetry.total(Metric::TriggersRefused, Labels::reason("queue_full")), 1);
}

#[test]
fn commands_need_a_token_that_is_set_and_right() {
    let (sender, receiver) = mpsc::sync_channel(2);
    let open =
        bench(HttpOptions { listen: local(), commands: Some(sender.clone()), ..HttpOptions::default() }, &["cam0"]);
    assert_eq!(open.post("/reload", "", "").0, 403, "no token is set: whoever is on this machine may not");
    let token = Some("open-sesame-1".to_owned());
    let bench =
        bench(HttpOptions { listen: local(), commands: Some(sender), token, ..HttpOptions::default() }, &["cam0"]);
    assert_eq!(bench.post("/reload", "", "").0, 401);
    assert_eq!(bench.post("/rollback", "Authorization: Bearer open-sesame-2\r\n", "").0, 401);
    assert!(receiver.try_recv().is_err());
    let right = "Authorization: Bearer open-sesame-1\r\n";
    assert_eq!(bench.post("/reload", right, "").0, 202);
    assert_eq!(bench.post("/rollback", right, "").0, 202);
    assert_eq!(bench.post("/reload", right, "").0, 503, "nobody waits for a full channel");
    assert_eq!([receiver.recv().unwrap(), receiver.recv().unwrap()], [Command::Reload, Command::Rollback]);
}

#[test]
fn incidents_are_listed_and_their_files_served_and_no_others() {
    let bench = plain(&["cam0"]);
    let note = |id: &str, kept| IncidentNote {
        id: id.to_owned(),
        at: "2026-01-01T00:00:00.000Z".into(),
        streams: vec!["cam0".into()],
        reason: "nan".into(),
        what: "stream cam0, frame 7: nan".into(),
        steps: vec!["rewarm".into()],
        recovered_after_ms: Some(120.0),
        ended: false,
        kept,
    };
    let id = "20260101T000000Z-001-nan";
    assert_eq!(bench.get(&format!("/incidents/{id}/incident.json")).0, 404, "no folder is known");
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join(id).join("pictures")).unwrap();
    std::fs::write(folder.path().join(id).join("incident.json"), "{}").unwrap();
    std::fs::write(folder.path().join(id).join("pictures/000012.png"), "png").unwrap();
    std::fs::write(folder.path().join("secret"), "secret").unwrap();
    bench.board.keep_incidents_in(folder.path());
    assert_eq!(bench.get(&format!("/incidents/{id}/incident.json")), (200, "{}".to_owned()));
    assert_eq!(bench.get(&format!("/incidents/{id}/pictures/000012.png")).0, 200);
    for path in ["..%2Fsecret", "../secret", "pictures/..%2F..%2Fsecret", "secret", "pictures/000013.png"] {
        assert_eq!(bench.get(&format!("/incidents/{id}/{path}")).0, 404, "{path}");
    }
    assert_eq!(bench.get("/incidents/%2e%2e/secret").0, 404);
    bench.board.note_incident(note("a", false));
    bench.board.note_incident(note("b", true));
    bench.board.note_incident(note("b", false));
    (0..2 * Board::INCIDENTS).for_each(|_| bench.board.note_incident(note("b", false)));
    let health: serde_json::Value = serde_json::from_str(&bench.get("/healthz").1).unwrap();
    let listed = health["incidents"].as_array().unwrap();
    assert_eq!((listed.len(), &listed[0]["id"], &listed[0]["kept"]), (2, &"b".into(), &true.into()));
}

#[test]
fn a_deep_log_is_asked_for_with_the_token() {
    let (sender, receiver) = mpsc::sync_channel(2);
    let token = Some("open-sesame-1".to_owned());
    let bench =
        bench(HttpOptions { listen: local(), commands: Some(sender), token, ..HttpOptions::default() }, &["cam0"]);
    let right = "Authorization: Bearer open-sesame-1\r\n";
    assert_eq!(bench.post("/deep-log?frames=50", "", "").0, 401);
    assert_eq!(bench.post("/deep-log?frames=50", right, "").0, 409, "there is no folder to write to");
    bench.board.keep_incidents_in(std::path::Path::new("/nowhere"));
    for wrong in ["0", "1001", "-1", "many"] {
        assert_eq!(bench.post(&format!("/deep-log?frames={wrong}"), right, "").0, 400, "{wrong}");
    }
    assert_eq!(bench.post("/deep-log?frames=50", right, "").0, 202);
    assert_eq!(bench.post("/deep-log", right, "").0, 202);
    assert_eq!([receiver.recv().unwrap(), receiver.recv().unwrap()], [Command::DeepLog(50), Command::DeepLog(100)]);
}

#[test]
fn a_product_is_asked_for_by_id_and_answered_when_it_is_inspected() {
    let (sender, receiver) = mpsc::sync_channel(1);
    let token = Some("open-sesame-1".to_owned());
    let bench =
        bench(HttpOptions { listen: local(), commands: Some(sender), token, ..HttpOptions::default() }, &["cam0"]);
    let right = "Authorization: Bearer open-sesame-1\r\n";
    let json = format!("{right}Content-Type: application/json\r\n");
    let (status, text) = bench.post("/product", &json, r#"{"id":"a"}"#);
    assert!(status == 404 && text.contains("this run has no products"), "{status} {text}");
    let place = |id: &str| ProductPlace { id: id.into(), bundle: id.into(), sha256: "ab".into() };
    bench.board.change_products(|products| {
        products.known = vec![place("a"), place("b")];
        products.active = Some("a".into());
    });
    assert_eq!(bench.post("/product?id=b", "", "").0, 401, "no token");
    for (path, body, expected, says) in [
        ("/product", "", 400, "found no `id`, expected one of: `a`, `b`"),
        ("/product?id=c", "", 404, "found product `c`, expected one of: `a`, `b`"),
        ("/product?idd=b", "", 400, "expected `id` alone"),
        ("/product", r#"{"id":1}"#, 400, "expected a body like"),
    ] {
        let (status, text) = bench.post(path, if body.is_empty() { right } else { &json }, body);
        assert!(status == expected && text.contains(says), "{path} {body}: {status} {text}");
    }
    assert!(receiver.try_recv().is_err(), "nothing of that reached the run");
    let board = Arc::clone(&bench.board);
    let run = std::thread::spawn(move || {
        let Ok(Command::Product { product, .. }) = receiver.recv() else { panic!("expected a product") };
        std::thread::sleep(Duration::from_millis(50));
        board.change_products(|products| {
            products.active = Some(Arc::clone(&product));
            products.changes += 1;
            products.last = Some(Changed { product, took_ms: 52.5, trouble: None });
        });
    });
    let (status, text) = bench.post("/product", &json, r#"{"id":"b"}"#);
    assert_eq!((status, text.trim()), (200, r#"{"product":"b","took_ms":52.5,"trouble":null}"#));
    run.join().unwrap();
    let listed =
        bench.send(&format!("GET /products HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{right}\r\n"), None);
    assert!(
        listed.contains(r#""active":"b""#) && listed.contains(r#"{"id":"a","bundle":"a","sha256":"ab"}"#),
        "{listed}"
    );
}

#[test]
fn malformed_requests_harm_nothing() {
    let bench = plain(&["cam0"]);
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: {}\r\n\r\n", "x".repeat(200_000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(500));
    for request in [
        "\0\0\0\0\r\n\r\n",
        "GET\r\n\r\n",
        "GET /%ff%fe HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "GET /preview/%2e%2e%2f HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "POST /trigger HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        "POST /trigger HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "BREW / HTTP/9.9\r\n\r\n",
        &long,
        &many,
    ] {
        let answer = bench.send(request, None);
        assert!(!answer.starts_with("HTTP/1.1 2"), "{request:.60}: {answer:.80}");
    }
    let half = TcpStream::connect(bench.server.address()).unwrap();
    (&half).write_all(b"GET / HT").unwrap();
    assert_eq!(bench.get("/livez").0, 200);
}

#[test]
fn connections_are_bounded() {
    let bench = plain(&["cam0"]);
    let _open: Vec<TcpStream> =
        (0..MOST_CONNECTIONS).map(|_| TcpStream::connect(bench.server.address()).unwrap()).collect();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(bench.get("/livez").0, 0);
    assert!(bench.telemetry.total(Metric::HttpRefused, Labels::reason("too_many_connections")) >= 1);
    drop(_open);
    std::thread::sleep(Duration::from_millis(1000));
    assert_eq!(bench.get("/livez").0, 200);
}

#[test]
fn wrong_tokens_are_slowed_down_and_the_right_one_becomes_a_cookie() {
    let options = HttpOptions { listen: local(), token: Some("open-sesame-1".to_owned()), ..HttpOptions::default() };
    let bench = bench(options, &["cam0"]);
    assert_eq!(bench.get("/").0, 401);
    assert_eq!(bench.get("/metrics").0, 401);
    assert_eq!(bench.get("/livez").0, 200);
    let answer =
        bench.send("GET /line?token=open-sesame-1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", None);
    assert_eq!(split(&answer).0, 303);
    assert!(answer.contains("set-cookie: edge_token=open-sesame-1; Path=/; HttpOnly; SameSite=Strict"), "{answer}");
    assert!(answer.contains("location: /line\r\n"), "{answer}");
    for _ in 0..door::FAILURES_ALLOWED {
        assert_eq!(bench.get("/?token=open-sesame-2").0, 401);
    }
    assert_eq!(bench.get("/?token=open-sesame-1").0, 429);
}

#[test]
fn names_from_outside_are_data_and_never_markup() {
    let evil = "<script>alert('x')</script>\"&";
    let bench = plain(&[evil]);
    bench.ready();
    let engine = EngineStamp {
        bundle: evil.to_owned(),
        sha256: String::new(),
        backend: evil.to_owned(),
        classes: vec![evil.to_owned()].into(),
        device: None,
        product: None,
        label: None,
    };
    let edges = BoxPx::new(1.0, 2.0, 3.0, 4.0);
    let detections = Some(vec![Detection { class_id: 0, score: 0.5, edges, unclipped: edges }]);
    bench.board.sink().put(&Row { engine: Arc::new(engine), detections, ..with_picture(evil) }).unwrap();
    for path in ["/", "/line", "/style.css", "/words.js", "/engineer.js", "/line.js"] {
        assert!(!bench.get(path).1.contains("alert("), "{path}");
    }
    for script in [include_str!("pages/engineer.js"), include_str!("pages/line.js"), include_str!("pages/words.js")] {
        for way in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "setAttribute('on",
        ] {
            assert!(!script.contains(way), "{way}: text from outside goes through textContent alone");
        }
    }
    for page in [include_str!("pages/engineer.html"), include_str!("pages/line.html")] {
        assert!(
            !page.contains("<script>")
                && !page.contains("style=\"")
                && !page.contains("http://")
                && !page.contains("https://")
        );
    }
    let answer = bench.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", None);
    assert!(answer.contains("content-type: application/json"));
    let health: serde_json::Value = serde_json::from_str(&split(&answer).1).unwrap();
    assert_eq!(health["streams"][0]["name"], evil);
    let path = "/preview/%3Cscript%3Ealert('x')%3C%2Fscript%3E%22&.jpg";
    assert_eq!(bench.get(path).0, 200);
}

#[test]
fn every_reason_has_a_text_in_both_languages() {
    let bench = plain(&["cam0"]);
    let script = bench.get("/causes.js").1;
    let json = script.split_once("guardCauses = ").unwrap().1.trim().trim_end_matches(';');
    let texts: serde_json::Value = serde_json::from_str(json).unwrap();
    for reason in Reason::all() {
        for language in ["en", "zh"] {
            let text = &texts[language][reason.name()];
            assert!(text[0].as_str().is_some_and(|seen| !seen.is_empty()), "{language} {}", reason.name());
            assert!(text[1].as_str().is_some_and(|todo| !todo.is_empty()), "{language} {}", reason.name());
        }
    }
}

/// A part that got no frame is decided, and the last picture stays.
#[test]
fn a_part_without_a_frame_leaves_the_picture() {
    let bench = plain(&["cam0"]);
    bench.ready();
    let mut sink = bench.board.sink();
    sink.put(&with_picture("cam0")).unwrap();
    let late = Row {
        number: None,
        trust: Trust::Fault,
        reasons: vec![Reason::Late],
        decision: Some(Decision::NotInspected),
        ..row()
    };
    sink.put(&late).unwrap();
    assert_eq!(bench.get("/preview/cam0.jpg").0, 200);
    assert_eq!(bench.get("/readyz").0, 200, "a late part does not speak against the engine");
    let health: serde_json::Value = serde_json::from_str(&bench.get("/healthz").1).unwrap();
    assert_eq!(
        (&health["streams"][0]["word"], &health["streams"][0]["because"]),
        (&"not_inspected".into(), &"late".into())
    );
}

#[test]
fn a_taken_port_is_an_output_error_with_the_way_out() {
    let bench = plain(&["cam0"]);
    let options = HttpOptions { listen: Listen::Address(bench.server.address()), ..HttpOptions::default() };
    let error = Server::start(options, Board::new(vec![]), Telemetry::new()).err().unwrap();
    assert_eq!(error.kind(), Kind::Output);
    assert!(error.hint_text().unwrap().contains("--listen 127.0.0.1:"), "{error}");
}

#[test]
fn beyond_loopback_needs_a_token_or_read_only() {
    let options = HttpOptions { listen: "0.0.0.0:0".parse().unwrap(), ..HttpOptions::default() };
    let start = |options| Server::start(options, Board::new(vec![]), Telemetry::new());
    assert_eq!(start(options.clone()).err().unwrap().kind(), Kind::Usage);
    let short = HttpOptions { token: Some("short".to_owned()), ..options.clone() };
    assert_eq!(start(short).err().unwrap().kind(), Kind::Usage);
    assert!(start(HttpOptions { read_only: true, ..options.clone() }).unwrap().is_some());
    let guarded = start(HttpOptions { token: Some("long-enough".to_owned()), ..options }).unwrap().unwrap();
    assert!(guarded.start_lines()[0].contains("?token=TOKEN") && !guarded.start_lines()[0].contains("long-enough"));
    assert!(start(HttpOptions { listen: Listen::None, ..HttpOptions::default() }).unwrap().is_none());
}

#[test]
fn listen_is_written_as_people_write_it() {
    for (text, expected) in [
        ("none", Listen::None),
        ("8081", Listen::Address("127.0.0.1:8081".parse().unwrap())),
        (":8081", Listen::Address("127.0.0.1:8081".parse().unwrap())),
        ("localhost:8081", Listen::Address("127.0.0.1:8081".parse().unwrap())),
        ("[::1]:80", Listen::Address("[::1]:80".parse().unwrap())),
        ("0.0.0.0:8080", Listen::Address("0.0.0.0:8080".parse().unwrap())),
    ] {
        assert_eq!(text.parse::<Listen>().unwrap(), expected, "{text}");
    }
    for bad in ["", "8080x", "example.com:80", "127.0.0.1", "99999"] {
        assert_eq!(bad.parse::<Listen>().unwrap_err().kind(), Kind::Usage, "{bad}");
    }
}

#[test]
fn the_start_line_says_how_to_come_from_elsewhere() {
    let bench = plain(&["cam0"]);
    let port = bench.server.address().port();
    let lines = bench.server.start_lines().join("\n");
    assert!(lines.contains(&format!("http://127.0.0.1:{port}/")), "{lines}");
    assert!(lines.contains(&format!("ssh -L {port}:127.0.0.1:{port} USER@")), "{lines}");
}

#[test]
fn a_reload_tells_beforehand_and_afterwards_how_it_goes() {
    let (sender, receiver) = mpsc::sync_channel(2);
    let token = Some("open-sesame-1".to_owned());
    let options = HttpOptions { listen: local(), commands: Some(sender), token, ..HttpOptions::default() };
    let bench = bench(options, &["cam0"]);
    let right = "Authorization: Bearer open-sesame-1\r\n";
    let said = "reload: `line1` takes 4 KiB, beside it 1 KiB of 5 KiB are left";
    bench.board.name_engine("line1");
    bench.board.change_reload(|reload| {
        reload.room = Some(ReloadRoom::Refused);
        reload.said = Some(said.to_owned());
    });
    let (status, text) = bench.post("/reload", right, "");
    assert!(status == 202 && text.contains(said), "{status} {text}");
    receiver.recv().unwrap();
    let receiver = std::sync::Mutex::new(receiver);
    for (how, status) in [("swapped", 200), ("does_not_fit", 409)] {
        let board = Arc::clone(&bench.board);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                receiver.lock().unwrap().recv().unwrap();
                board.change_reload(|reload| {
                    reload.note(ReloadEnd { how, gap_ms: Some(1500.0), ..ReloadEnd::default() })
                });
            });
            let (found, text) = bench.post("/reload?wait=20", right, "");
            assert_eq!(found, status, "{text}");
            let told: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!((told[0]["engine"].as_str(), told[0]["room"].as_str()), (Some("line1"), Some("refused")));
            assert_eq!((&told[0]["last"]["how"], &told[0]["last"]["gap_ms"]), (&how.into(), &1500.0.into()));
        });
    }
    assert_eq!(bench.post("/reload?wait=601", right, "").0, 400);
    assert_eq!(bench.post("/reload?now", right, "").0, 400);
    let request = format!("GET /reload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{right}\r\n");
    let (status, text) = split(&bench.send(&request, None));
    assert!(status == 200 && text.contains("\"ended\":2"), "{status} {text}");
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
