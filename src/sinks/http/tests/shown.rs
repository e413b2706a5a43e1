//! What pages show: words, pictures, events, texts.

use super::*;

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
    for script in
        [include_str!("../pages/engineer.js"), include_str!("../pages/line.js"), include_str!("../pages/words.js")]
    {
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
    for page in [include_str!("../pages/engineer.html"), include_str!("../pages/line.html")] {
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
