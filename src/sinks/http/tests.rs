//! The server as its visitors see it, over real connections.

mod health;
mod requests;
mod shown;
mod ways_in;

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
