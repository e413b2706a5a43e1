//! Who is let in: addresses, tokens, broken requests, too many of them.

use super::*;

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
