//! `edge-run incident`, `edge-run replay` and the flags of the deep log.

use crate::workbench::{Bench, SmallDisk, names, sample};
use std::time::{Duration, Instant};

const SIM: &str = "sim:?size=320x192&fast&frames=30";

/// A bench whose folder `st` holds one log of 30 frames that was asked for.
fn recorded() -> (Bench, String) {
    let bench = Bench::new();
    let ran =
        bench.run_sample(&["--source", SIM, "--delivery", "every", "--listen", "none", "--state", "st", "--deep-log"]);
    let ran = ran.ends_with(0);
    assert!(ran.people.contains("incident "), "{}", ran.people);
    let found = names(&bench.path("st/incidents"));
    assert_eq!(found.len(), 1, "{found:?}");
    (bench, found[0].clone())
}

#[test]
fn a_deep_log_is_listed_shown_exported_and_the_same_again() {
    let (bench, id) = recorded();
    let listed = bench.edge_run(&["incident", "list", "--state", "st"]).ends_with(0);
    let lines: Vec<&str> = listed.data.lines().collect();
    assert_eq!(lines.len(), 2, "{}", listed.data);
    assert!(
        lines[0].starts_with("seen at") && lines[1].contains("asked") && lines[1].ends_with(&id),
        "{}",
        listed.data
    );
    let json = bench.edge_run(&["incident", "list", "--state", "st", "--json"]).ends_with(0).data;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["report"]["frames"], 30);
    assert_eq!(json[0]["report"]["left_out"], 0);

    let shown = bench.edge_run(&["incident", "show", &id, "--state", "st"]).ends_with(0).data;
    assert!(shown.contains("recorded    30 frames") && shown.contains("cam0"), "{shown}");
    let json = bench.edge_run(&["incident", "show", &id, "--state", "st", "--json"]).ends_with(0).data;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["frames"].as_array().unwrap().len(), 30);
    assert!(json["frames"][3]["output"]["values"].as_u64().unwrap() > 0);

    bench.edge_run(&["incident", "export", &id, "--state", "st"]).ends_with(0);
    assert!(bench.names().contains(&"incident.zip".to_owned()));
    let zip = std::fs::File::open(bench.path("incident.zip")).unwrap();
    assert_eq!(zip::ZipArchive::new(zip).unwrap().len(), 33, "any unzip tool can look inside");
    // The state folder is gone: the zip is enough. The sample bundle is known to every edge-run.
    std::fs::remove_dir_all(bench.path("st")).unwrap();
    let replayed = bench.edge_run(&["replay", "incident.zip", "--cpu-backend", "rten", "--threads", "1"]).ends_with(0);
    assert!(replayed.people.contains("30 frames: 30 the same, 0 differ"), "{}", replayed.people);
    assert_eq!(replayed.data.lines().count(), 30);
    // Another thread count computes in another order: still the same within the tolerance.
    let json = bench.edge_run(&["replay", "incident.zip", "--cpu-backend", "rten", "--threads", "2", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.ends_with(0).data).unwrap();
    assert_eq!((json["same"].as_u64(), json["differ"].as_u64()), (Some(30), Some(0)));
}

#[test]
fn a_replay_that_differs_ends_with_three_and_says_what() {
    let (bench, id) = recorded();
    // One frame of the recording gets another answer.
    let frames = bench.path(&format!("st/incidents/{id}/frames.jsonl"));
    let text = std::fs::read_to_string(&frames).unwrap();
    let mut lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let changed = lines.iter().position(|line| line["candidates"][0]["score"].as_f64() > Some(0.5)).unwrap();
    lines[changed]["candidates"][0]["score"] = 0.99.into();
    lines[changed]["output"]["nan"] = 3.into();
    std::fs::write(&frames, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    let folder = format!("st/incidents/{id}");
    let ran = bench.edge_run(&["replay", &folder, "--cpu-backend", "rten"]).ends_with(3);
    let different: Vec<&str> = ran.data.lines().filter(|line| line.contains("DIFFERS")).collect();
    assert_eq!(different.len(), 1, "{}", ran.data);
    assert!(ran.data.contains("recorded 3 values that are not a number, now 0"), "{}", ran.data);
    assert!(ran.people.contains("error: 1 of 30 recorded answers differ"), "{}", ran.people);
    // Other classes cannot be compared; a bundle that is not there is named.
    bench.build(&[]).ends_with(0);
    bench
        .edge_run(&["replay", &folder, "--engine", "model.edge"])
        .ends_with(3)
        .explains(&["found a bundle with the classes"]);
    bench.edge_run(&["replay", &folder, "--engine", "none.edge"]).ends_with(3).explains(&["none.edge"]);
    bench.edge_run(&["replay", &folder, "--cpu-backend", "abacus"]).ends_with(2);
}

#[test]
fn the_bundle_travels_with_the_incident_when_asked() {
    let bench = Bench::new();
    bench.build(&[]).ends_with(0);
    bench.pictures("pictures", 4);
    let run = [
        "--engine",
        "model.edge",
        "--source",
        "pictures",
        "--state",
        "st",
        "--deep-log",
        "--quiet",
        "--cpu-backend",
        "rten",
    ];
    bench.edge_run(&run).ends_with(0);
    let id = names(&bench.path("st/incidents"))[0].clone();
    let export = |more: &[&str]| {
        let mut arguments = vec!["incident", "export", &id, "--state", "st", "-o", "out.zip"];
        arguments.extend(more);
        bench.edge_run(&arguments)
    };
    export(&["--bundle", sample()]).ends_with(3).explains(&["that answered in this incident", "--bundle FILE"]);
    assert!(!bench.path("out.zip").exists(), "nothing half-written");
    export(&[]).ends_with(0);
    std::fs::rename(bench.path("model.edge"), bench.path("kept.edge")).unwrap();
    bench.edge_run(&["replay", "out.zip"]).ends_with(2).explains(&["--engine FILE", "--with-bundle"]);
    export(&["--with-bundle"]).ends_with(3).explains(&["--bundle FILE"]);
    export(&["--bundle", "kept.edge"]).ends_with(0);
    let ran = bench.edge_run(&["replay", "out.zip", "--cpu-backend", "rten"]).ends_with(0);
    assert!(ran.people.contains("4 frames: 4 the same"), "{}", ran.people);
}

#[test]
fn a_bad_recording_is_one_clear_error() {
    let (bench, id) = recorded();
    bench.edge_run(&["incident", "export", &id, "--state", "st"]).ends_with(0);
    let whole = bench.read("incident.zip");
    let replay = |name: &str| bench.edge_run(&["replay", name, "--engine", sample()]);
    replay("none.zip").ends_with(6).explains(&["none.zip"]);
    replay("model.onnx").ends_with(6).explains(&["recorded incident"]);
    bench.write("cut.zip", &whole[..whole.len() / 3]);
    replay("cut.zip").ends_with(6).explains(&["cut.zip"]);
    bench.write("flipped.zip", &flipped(&whole));
    replay("flipped.zip").ends_with(6).explains(&["checksum"]);
    for (name, entry) in
        [("escape.zip", "../../../tmp/evil"), ("escape2.zip", "pictures/../../x.png"), ("absolute.zip", "/etc/passwd")]
    {
        bench.write(name, &packed(&[("incident.json", b"{}"), (entry, b"x")]));
        replay(name).ends_with(6).explains(&["expected only incident.json"]);
    }
    bench.write("newer.zip", &packed(&[("incident.json", br#"{"schema":7}"#)]));
    replay("newer.zip").ends_with(6).explains(&["found incident schema 7, expected at most 1", "update this program"]);
    bench.write("empty.zip", &packed(&[("frames.jsonl", b"")]));
    replay("empty.zip").ends_with(6).says_one_error(&["incident.json"]);
    bench.write("odd.zip", &packed(&[("incident.json", b"[1,")]));
    replay("odd.zip").ends_with(6).says_one_error(&["cannot be understood"]);
    bench
        .edge_run(&["incident", "show", "20260101T000000Z-001-nan", "--state", "st"])
        .ends_with(6)
        .explains(&["cannot be read"]);
    bench.edge_run(&["incident", "list", "--state", "nowhere"]).ends_with(2).explains(&["nowhere"]);
    bench.edge_run(&["incident", "list"]).ends_with(2).explains(&["--state DIR"]);
}

/// One bit of a picture's data is another one.
fn flipped(whole: &[u8]) -> Vec<u8> {
    let name = b"frames.jsonl";
    let at = whole.windows(name.len()).position(|part| part == name).unwrap();
    let mut bytes = whole.to_vec();
    bytes[at + name.len() + 40] ^= 1;
    bytes
}

fn packed(entries: &[(&str, &[u8])]) -> Vec<u8> {
    use std::io::Write;
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        zip.start_file(*name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn a_deep_log_without_a_folder_is_refused_and_a_live_run_says_that_it_keeps_nothing() {
    let bench = Bench::new();
    let live = ["--source", SIM, "--listen", "none"];
    bench.run_sample(&[&live[..], &["--deep-log"]].concat()).ends_with(2).explains(&["--deep-log", "--state DIR"]);
    let ran = bench.run_sample(&live).ends_with(0);
    assert_eq!(ran.people.matches("incidents: not written down").count(), 1, "{}", ran.people);
}

#[test]
fn a_disk_without_room_does_not_disturb_the_line() {
    let bench = Bench::new();
    let Some(_disk) = SmallDisk::mount(&bench.path("st"), "size=700k") else { return };
    let arguments = ["--source", SIM, "--delivery", "every", "--listen", "none", "--state", "st", "--deep-log"];
    let ran = bench.run_sample(&[&arguments[..], &["--output", "rows.jsonl"]].concat()).ends_with(0);
    let rows = String::from_utf8(bench.read("rows.jsonl")).unwrap();
    assert_eq!(rows.lines().count(), 30, "every frame is answered");
    let listed = bench.edge_run(&["incident", "list", "--state", "st", "--json"]).ends_with(0).data;
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert!(listed[0]["report"]["left_out"].as_u64() > Some(0), "{listed}\n{}", ran.people);
    assert_eq!(listed[0]["report"]["complete"], false);
}

#[test]
fn a_killed_process_leaves_what_it_has_written() {
    let bench = Bench::new();
    let live = ["--source", "sim:?size=320x192&fps=30", "--listen", "none", "--state", "st"];
    let mut running = bench.start_sample(&[&live[..], &["--deep-log"]].concat());
    running.wait_for("kept in the state folder");
    let folder = bench.path("st/incidents");
    let until = Instant::now() + Duration::from_secs(60);
    let some = || {
        let part = names(&folder).into_iter().find(|name| name.ends_with(".part"))?;
        (std::fs::read_dir(folder.join(part).join("pictures")).ok()?.count() > 5).then_some(())
    };
    while some().is_none() {
        assert!(Instant::now() < until, "nothing is written: {:?}", names(&folder));
        std::thread::sleep(Duration::from_millis(20));
    }
    running.signal("KILL");
    let _killed = running.end();
    assert_eq!(
        bench.edge_run(&["incident", "list", "--state", "st"]).ends_with(0).data,
        "",
        "half-written is never read"
    );
    let ran = bench.run_sample(&[&live[..], &["--frames", "3"]].concat()).ends_with(0);
    assert!(ran.people.contains("was cut off with its process"), "{}", ran.people);
    let id = names(&folder).pop().unwrap();
    assert!(!id.ends_with(".part"));
    let replayed = bench.edge_run(&["replay", &format!("st/incidents/{id}"), "--cpu-backend", "rten"]).ends_with(0);
    assert!(replayed.people.contains(" 0 differ"), "{}", replayed.people);
}

#[test]
fn a_folder_for_incidents_needs_no_state_folder_and_takes_one_process() {
    let bench = Bench::new();
    let config = |incident: &str| {
        let text = format!(
            "engine = '{}'\n[http]\nlisten = 'none'\n[cpu]\nbackend = 'rten'\nthreads = 1\n[[stream]]\nname = 'left'\n\
             source = '{SIM}'\ndelivery = 'every'\n[incident]\n{incident}",
            sample()
        );
        bench.write("edge.toml", text.as_bytes());
    };
    config("folder = 'kept'\ndeep_log = true\n");
    let ran = bench.edge_run(&["--config", "edge.toml", "--output", "-"]).ends_with(0);
    assert!(ran.people.contains("kept in kept, at most 1.0 GiB"), "{}", ran.people);
    let found: Vec<String> = names(&bench.path("kept")).into_iter().filter(|name| name != ".lock").collect();
    assert_eq!(found.len(), 1, "{found:?}");
    let list = |flags: &[&str]| bench.edge_run(&[&["incident", "list"], flags].concat());
    assert!(list(&["--incident-folder", "kept"]).ends_with(0).data.contains(&found[0]));
    list(&["--incident-folder", "nowhere"]).ends_with(2).says_one_error(&["found no such folder"]);
    let shown = bench.edge_run(&["incident", "show", &found[0], "--incident-folder", "kept"]).ends_with(0);
    assert!(shown.data.contains("recorded    30 frames"), "{}", shown.data);
    // What is typed goes before the file.
    let ran = bench.edge_run(&["--config", "edge.toml", "--output", "-", "--incident-folder", "typed"]).ends_with(0);
    assert!(ran.people.contains("kept in typed"), "{}", ran.people);
    // Another process writes there.
    let lock = std::fs::File::create(bench.path("kept/.lock")).unwrap();
    lock.try_lock().unwrap();
    let refused = bench.edge_run(&["--config", "edge.toml", "--output", "-"]).ends_with(2);
    assert!(refused.people.contains("another edge-run uses this folder of incidents"), "{}", refused.people);
    drop(lock);
    config("space = '10KiB'\n");
    for flags in [&["config", "check", "edge.toml"][..], &["--config", "edge.toml"]] {
        let ran = bench.edge_run(flags).ends_with(2);
        assert!(ran.people.contains("found 10.0 KiB, expected at least 1.0 MiB"), "{}", ran.people);
    }
    config("spaces = 1\n");
    bench.edge_run(&["config", "check", "edge.toml"]).ends_with(2).says_one_error(&["unknown field `spaces`"]);
    assert!(bench.edge_run(&["config", "example"]).ends_with(0).data.contains("[incident]"));
}
