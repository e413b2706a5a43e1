//! `edge-run` under a supervisor: the notify socket, the watchdog, SIGHUP, the state folder.

use crate::workbench::Bench;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

/// A stand-in for systemd: the socket and the child that talks to it.
struct Supervisor {
    socket: UnixDatagram,
    child: Child,
    told: Vec<String>,
}

impl Supervisor {
    fn start(bench: &Bench, more: &[&str]) -> Self {
        let path = bench.path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut arguments =
            vec!["--source", "sim:?fps=10&size=160x96", "--listen", "none", "--quiet", "--engine", "model.edge"];
        arguments.extend(more);
        let child = bench
            .command(Path::new(env!("CARGO_BIN_EXE_edge-run")), &arguments)
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "1000000")
            .env("STATE_DIRECTORY", bench.path("state"))
            .env("EDGE_LOG", "info")
            .spawn()
            .unwrap();
        Supervisor { socket, child, told: Vec::new() }
    }

    fn wait_for(&mut self, word: &str) {
        let since = Instant::now();
        let mut bytes = [0; 512];
        loop {
            if let Ok(length) = self.socket.recv(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                let found = text.contains(word);
                self.told.push(text);
                if found {
                    return;
                }
            }
            assert!(since.elapsed() < Duration::from_secs(60), "no {word} in {:?}", self.told);
        }
    }

    fn signal(&self, name: &str) {
        let number = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args([name, &number]).status().unwrap().success());
    }
}

#[test]
fn ready_watchdog_hang_up_and_stop_as_systemd_expects() {
    let bench = Bench::new();
    bench.build(&[]).ends_with(0);
    let mut supervisor = Supervisor::start(&bench, &[]);
    supervisor.wait_for("READY=1");
    assert!(!supervisor.told.iter().rev().skip(1).any(|told| told.contains("READY=1")), "{:?}", supervisor.told);
    for _ in 0..3 {
        supervisor.wait_for("WATCHDOG=1");
    }
    supervisor.signal("-HUP");
    supervisor.wait_for("WATCHDOG=1");
    assert!(supervisor.child.try_wait().unwrap().is_none(), "SIGHUP asks for a reload, it does not end the run");
    // A second one on the same state folder is refused.
    let second = bench
        .command(
            Path::new(env!("CARGO_BIN_EXE_edge-run")),
            &["--source", "sim:", "--listen", "none", "--quiet", "--engine", "model.edge", "--state", "state"],
        )
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(2), "{}", String::from_utf8_lossy(&second.stderr));
    assert!(String::from_utf8_lossy(&second.stderr).contains("another edge-run uses this state folder"));
    supervisor.signal("-TERM");
    supervisor.wait_for("STOPPING=1");
    let ended = supervisor.child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    let log = String::from_utf8_lossy(&ended.stderr);
    assert!(log.contains("reload: the file holds the bundle that runs already"), "{log}");
}

#[test]
fn a_configuration_says_how_the_run_looks_after_itself() {
    let bench = Bench::new();
    bench.build(&[]).ends_with(0);
    let config = |service: &str| {
        let text = format!(
            "engine = 'model.edge'\n[[stream]]\nname = 'left'\nsource = 'sim:?fps=10&size=160x96'\n[http]\nlisten = 'none'\n[service]\n{service}"
        );
        bench.write("edge.toml", text.as_bytes());
        bench.edge_run(&["--config", "edge.toml", "--frames", "3"])
    };
    let ran = config("state = 'state'\nguard = 'observe'\n").ends_with(0);
    assert!(ran.people.contains("soft checks only observe: so it was asked for"), "{}", ran.people);
    assert!(bench.path("state/lock").is_file());
    config("memory_alarn = 90.0\n").ends_with(2).says_one_error(&["memory_alarn", "config example"]);
    config("memory_alarm = 70.0\n").ends_with(2).says_one_error(&["ends at 80 %"]);
}

#[test]
fn baselines_are_shown_and_accepted_by_a_person() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("state")).unwrap();
    let shown = bench.edge_run(&["baseline", "show", "--state", "state"]).ends_with(0);
    assert!(shown.people.contains("no baseline is kept yet"), "{}", shown.people);
    bench
        .edge_run(&["baseline", "accept", "--state", "state"])
        .ends_with(2)
        .says_one_error(&["no baseline of this stream"]);
    bench.edge_run(&["baseline", "show", "--state", "nowhere"]).ends_with(2).says_one_error(&["no such folder"]);
}

#[test]
fn products_of_a_configuration_run_and_are_listed_and_asked_for_by_a_person() {
    let bench = Bench::new();
    bench.build(&["-o", "a.edge"]).ends_with(0);
    let text = "[[product]]\nid = 'one'\nbundle = 'a.edge'\n[[product]]\nid = 'two'\nbundle = 'a.edge'\nthresholds = { score = 0.95 }\n\
                [[stream]]\nname = 'left'\nsource = 'sim:?fps=10&size=160x96'\n[http]\nlisten = 'none'\n\
                [service]\nstate = 'state'\n[output]\nfile = 'rows.jsonl'\n";
    bench.write("edge.toml", text.as_bytes());
    let run = |more: &[&str]| bench.edge_run(&[&["--config", "edge.toml", "--frames", "3", "--quiet"], more].concat());
    let products = || -> Vec<String> {
        let rows = String::from_utf8(bench.read("rows.jsonl")).unwrap();
        std::fs::remove_file(bench.path("rows.jsonl")).unwrap();
        let id =
            |line| serde_json::from_str::<serde_json::Value>(line).unwrap()["product"].as_str().unwrap().to_owned();
        rows.lines().map(id).collect()
    };
    bench.edge_run(&["product", "--state", "."]).ends_with(2).explains(&["found no products"]);
    run(&[]).ends_with(0);
    assert_eq!(products(), ["one"; 3]);
    assert_eq!(bench.edge_run(&["product", "--state", "state"]).ends_with(0).data, "* one\n  two\n");
    bench
        .edge_run(&["product", "three", "--state", "state"])
        .ends_with(2)
        .says_one_error(&["found product `three`, expected one of: `one`, `two`"]);
    bench.edge_run(&["product", "two", "--state", "state"]).ends_with(0);
    run(&[]).ends_with(0);
    assert_eq!(products(), ["two"; 3]);
    run(&["--product", "one"]).ends_with(0);
    assert_eq!(products(), ["one"; 3]);
    run(&["--product", "three"]).ends_with(2).says_one_error(&["expected one of: `one`, `two`"]);
    bench.edge_run(&["--product", "one", "--source", "sim:"]).ends_with(2).explains(&["`[[product]]`"]);
}

#[test]
fn the_unit_file_restarts_on_the_documented_codes_and_no_others() {
    let unit = include_str!("../../deploy/edge-run.service");
    let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_else(|| panic!("no {key}"));
    assert_eq!(value("Type="), "notify");
    assert_eq!(value("Restart="), "on-failure");
    let never: Vec<&str> = value("RestartPreventExitStatus=").split(' ').collect();
    let table = include_str!("../../docs/exit-codes.md");
    for line in table.lines().filter(|line| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit()) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if cells[0] != "0" {
            assert_eq!(cells[2] == "yes", !never.contains(&cells[0]), "{line}");
        }
    }
}

#[test]
fn the_state_folder_tells_what_is_unproven_and_takes_a_rollback() {
    let bench = Bench::new();
    let edge_run = |arguments: &[&str]| {
        crate::workbench::Ran::from(
            bench.command(Path::new(env!("CARGO_BIN_EXE_edge-run")), arguments).output().unwrap(),
        )
    };
    edge_run(&["unproven", "list", "--state", "nowhere"]).ends_with(2).says_one_error(&["cannot be read", "--state"]);
    edge_run(&["unproven", "list"]).ends_with(2).says_one_error(&["no state folder"]);
    bench.write(
        "state/unproven.jsonl",
        br#"{"failed_at":"2026-01-01T00:00:02Z","proved_at":"2026-01-01T00:00:00Z","why":"moved","bundle":"line1","sha256":"ab","older":0,"results":[{"stream":"cam0","frame":7,"part":"A1","decision":"pass"}]}
{"failed_at":"2026"#,
    );
    let listed = edge_run(&["unproven", "list", "--state", "state"]).ends_with(0);
    assert!(listed.data.contains("1 results since 2026-01-01T00:00:00Z of line1: moved"), "{}", listed.data);
    assert!(listed.people.contains("not whole"), "{}", listed.people);
    let exported = edge_run(&["unproven", "export", "--state", "state"]).ends_with(0);
    let row: serde_json::Value = serde_json::from_str(exported.data.trim()).unwrap();
    assert_eq!(
        (row["part"].as_str(), row["frame"].as_u64(), row["decision"].as_str()),
        (Some("A1"), Some(7), Some("pass"))
    );
    edge_run(&["rollback", "--state", "state"]).ends_with(0);
    assert!(bench.names().contains(&"state".to_owned()) && bench.path("state/rollback").is_file());
}

/// Made for this test with `openssl genpkey -algorithm ed25519`.
const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEID/Ta1Tgi805/w0CgRvpjouEh0PrVS4Z8HMC46egYTpA\n-----END PRIVATE KEY-----\n";
const ITS_PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAIgX7WbOb+bOYbwR2W6oQaX3UDvu2Ti0PMA03nMsNB0s=\n-----END PUBLIC KEY-----\n";
const OTHER_PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAZkKHgUnRFyGO/enVqEga8z+J6u6Uyec1kcMGCs3B/EA=\n-----END PUBLIC KEY-----\n";

#[test]
fn with_a_trusted_key_only_bundles_signed_by_it_run() {
    let bench = Bench::new();
    bench.build(&[]).ends_with(0);
    bench.write("line.key", KEY.as_bytes());
    bench.write("line.pub", ITS_PUBLIC_KEY.as_bytes());
    bench.write("other.pub", OTHER_PUBLIC_KEY.as_bytes());
    bench.pictures("pictures", 1);
    let run =
        |key: &str| bench.edge_run(&["--engine", "model.edge", "--source", "pictures", "--quiet", "--trust", key]);
    run("line.pub").ends_with(3).says_one_error(&["found no signature", "edge-build sign"]);
    run("line.key").ends_with(2).says_one_error(&["public Ed25519 key"]);
    let unsigned = bench.read("model.edge");
    bench.edge_build(&["sign", "model.edge", "--key", "line.pub"]).ends_with(2);
    assert_eq!(bench.read("model.edge"), unsigned, "a wrong key leaves the bundle as it was");
    bench.edge_build(&["sign", "model.edge", "--key", "line.key"]).ends_with(0);
    run("line.pub").ends_with(0);
    run("other.pub").ends_with(3).says_one_error(&["does not belong to the trusted key"]);
    // Signed, then built again from another model under the same name.
    bench.write("model.onnx", &crate::workbench::model(0.7));
    bench.build(&[]).ends_with(0);
    run("line.pub").ends_with(3);
}

/// Made for this test with `openssl genpkey -algorithm ed25519`.
const FOREIGN_KEY: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIGYodpP5Zc+5q9fm3t5wrj1Lns+vy96d0klKWpr3EEDI\n-----END PRIVATE KEY-----\n";

#[test]
fn while_a_key_is_trusted_a_running_line_takes_no_bundle_without_its_signature() {
    let bench = Bench::new();
    bench.write("line.key", KEY.as_bytes());
    bench.write("line.pub", ITS_PUBLIC_KEY.as_bytes());
    bench.write("foreign.key", FOREIGN_KEY.as_bytes());
    bench.write("model.onnx", &crate::workbench::model(0.7));
    bench.build(&[]).ends_with(0);
    let unsigned = bench.read("model.edge");
    bench.edge_build(&["sign", "model.edge", "--key", "foreign.key"]).ends_with(0);
    let foreign = bench.read("model.edge");
    bench.write("model.onnx", &crate::workbench::model(0.8));
    bench.build(&[]).ends_with(0);
    bench.edge_build(&["sign", "model.edge", "--key", "line.key"]).ends_with(0);
    let mut supervisor = Supervisor::start(&bench, &["--trust", "line.pub"]);
    supervisor.wait_for("READY=1");
    for bundle in [&unsigned, &foreign] {
        bench.write("new.edge", bundle);
        std::fs::rename(bench.path("new.edge"), bench.path("model.edge")).unwrap();
        supervisor.signal("-HUP");
        for _ in 0..4 {
            supervisor.wait_for("WATCHDOG=1");
        }
        assert!(supervisor.child.try_wait().unwrap().is_none());
    }
    supervisor.signal("-TERM");
    supervisor.wait_for("STOPPING=1");
    let log = String::from_utf8_lossy(&supervisor.child.wait_with_output().unwrap().stderr).into_owned();
    assert_eq!(log.matches("reload refused, the old bundle goes on").count(), 2, "{log}");
    assert!(log.contains("found no signature") && log.contains("does not belong to the trusted key"), "{log}");
}
