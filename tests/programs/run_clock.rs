//! A wall clock that jumps by days, a year, decades and to before 1970 while the line runs (tests/clock_preload): nothing is
//! decided by it. Parts keep their deadlines, self-tests their interval, and what the state folder keeps is still believed.

use crate::common;
use crate::run_sim::rows;
use crate::workbench::{Bench, Ran};
use std::path::{Path, PathBuf};
use std::process::Command;

fn library(bench: &Bench) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clock_preload/jumping_clock.c");
    let library = bench.path("libjumping_clock.so");
    let compiled =
        Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).args([&library, &source]).arg("-ldl").output();
    match compiled {
        Ok(output) => {
            assert!(output.status.success(), "cc failed:\n{}", String::from_utf8_lossy(&output.stderr));
            Some(library)
        }
        Err(error) => {
            common::lacks("cc", &format!("a C compiler `cc` for the clock that jumps ({error})"));
            None
        }
    }
}

#[test]
fn a_clock_that_jumps_decides_nothing() {
    let bench = Bench::new();
    let Some(library) = library(&bench) else { return };
    for start in ["first", "second"] {
        let mut command = bench.sample_command(&[
            "--source",
            "sim:?fps=10",
            "--listen",
            "none",
            "--output",
            "-",
            "--frames",
            "25",
            "--delivery",
            "every",
            "--state",
            "state",
            "--proof-every",
            "300ms",
            "--echo-every",
            "5",
        ]);
        command.env("LD_PRELOAD", &library).env("EDGE_LOG", "warn");
        let ran = Ran::from(command.output().unwrap()).ends_with(0);
        let rows = rows(&ran.data);
        assert!(rows.len() >= 25, "{start}: {} rows", rows.len());
        let times: std::collections::BTreeSet<&str> =
            rows.iter().filter_map(|row| row["captured_at"].as_str()).map(|time| &time[..4]).collect();
        assert!(times.len() > 2, "the clock did jump: {times:?}");
        for row in &rows {
            assert_eq!(row["trust"], "trusted", "{row}");
            let age_ms = row["timings_ms"]["age"].as_f64().unwrap();
            assert!((0.0..60_000.0).contains(&age_ms), "{row}");
        }
        assert!(!ran.people.contains("aside") && !ran.people.contains("fault:"), "{}", ran.people);
    }
}
