//! What can be asked for: triggers, incidents, the deep log, products, reloads.

use super::*;

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
