//! Triggers over HTTP: exactly one decision a part, also for parts that nobody can answer.

use crate::run_sim::rows;
use crate::workbench::{Bench, Running};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// One request; the status code and the body.
pub(crate) fn ask(address: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

pub(crate) fn address(line: &str) -> String {
    line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned()
}

/// A line that takes triggers over HTTP and is ready, and its address; parts go to `parts.jsonl`.
fn triggered(bench: &Bench, source: &[&str]) -> (Running, String) {
    let flags = ["--trigger", "http", "--listen", "127.0.0.1:0", "--output", "parts.jsonl"];
    let mut running = bench.start_sample(&[source, &flags].concat());
    let address = address(&running.wait_for("page: http://127.0.0.1:"));
    running.wait_for("ready after");
    (running, address)
}

#[test]
fn every_trigger_gets_exactly_one_decision() {
    let bench = Bench::new();
    let (running, address) = triggered(&bench, &["--source", "line=sim:"]);
    assert_eq!(ask(&address, "GET", "/livez", "").0, 200);
    let until = Instant::now() + Duration::from_secs(20);
    while ask(&address, "GET", "/readyz", "").0 != 200 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    for number in 0..25 {
        let body = format!("{{\"stream\":\"line\",\"part\":\"part-{number}\"}}");
        let (status, said) = ask(&address, "POST", "/trigger", &body);
        assert_eq!(status, 202, "{said}");
        assert!(said.contains(&format!("part-{number}")), "{said}");
        std::thread::sleep(Duration::from_millis(30));
    }
    assert_eq!(ask(&address, "POST", "/trigger", "{\"stream\":\"line\"}").0, 202, "an id is given");
    for (body, status) in [("{\"stream\":\"nowhere\",\"part\":\"x\"}", 404), ("{\"stream\":3}", 400), ("no JSON", 400)]
    {
        let (seen, said) = ask(&address, "POST", "/trigger", body);
        assert!(seen == status || (400..500).contains(&seen), "{body}: {seen} {said}");
    }
    // The last one is triggered and the run ends at once: it is answered all the same.
    assert_eq!(ask(&address, "POST", "/trigger", "{\"stream\":\"line\",\"part\":\"last\"}").0, 202);
    std::thread::sleep(Duration::from_millis(150));
    running.signal("TERM");
    running.end().ends_with(130);
    let rows = rows(&String::from_utf8(bench.read("parts.jsonl")).unwrap());
    let mut decisions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in &rows {
        match row["part"].as_str() {
            Some(part) => decisions.entry(part).or_default().push(row["decision"].as_str().unwrap()),
            None => assert!(row["decision"].is_null(), "a frame without a part decides nothing: {row}"),
        }
    }
    assert_eq!(decisions.len(), 27, "{decisions:?}");
    for number in 0..25 {
        assert!(decisions.contains_key(&*format!("part-{number}")), "{decisions:?}");
    }
    assert!(decisions.contains_key("last") && decisions.values().all(|seen| seen.len() == 1), "{decisions:?}");
}

#[test]
fn parts_of_a_lost_camera_are_not_inspected() {
    let bench = Bench::new();
    let (running, address) = triggered(&bench, &["--camera", "cam=/dev/video97", "--wait"]);
    for number in 0..5 {
        let body = format!("{{\"stream\":\"cam\",\"part\":\"{number}\"}}");
        assert_eq!(ask(&address, "POST", "/trigger", &body).0, 202);
    }
    let until = Instant::now() + Duration::from_secs(20);
    let written = || std::fs::read_to_string(bench.path("parts.jsonl")).unwrap_or_default();
    while written().lines().count() < 5 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(ask(&address, "GET", "/healthz", "").0, 503, "a lost camera is not healthy");
    running.signal("TERM");
    running.end().ends_with(130);
    let rows = rows(&written());
    assert_eq!(rows.len(), 5);
    for row in &rows {
        assert_eq!((row["decision"].as_str(), row["trust"].as_str()), (Some("not_inspected"), Some("fault")), "{row}");
    }
}
