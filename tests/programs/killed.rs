//! `kill -9` at random moments of a build, of results being written and of a reload: the next start is clean, and nothing
//! half-written is ever read. `EDGE_FULL=1` kills 200 times, else 20 times; `EDGE_SEED=N` repeats a run.

use crate::workbench::{Bench, edge_build, edge_run, model};
use edge_trt::bundle::Bundle;
use edge_trt::run::ledger;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

/// Random moments from a seed that is printed.
struct Moments {
    state: u64,
}

impl Moments {
    fn new(what: &str) -> Self {
        let seed = std::env::var("EDGE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_260_101_u64);
        eprintln!("{what}: EDGE_SEED={seed}");
        Moments { state: seed | 1 }
    }

    /// A moment from 0 to `most`, evenly spread.
    fn next(&mut self, most: Duration) -> Duration {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        most.mul_f64((self.state >> 11) as f64 / (1_u64 << 53) as f64)
    }
}

/// Half of the 200 or 20 moments.
fn half() -> u32 {
    if std::env::var_os("EDGE_FULL").is_some() { 100 } else { 10 }
}

fn kill(mut child: Child) {
    // Already at its end when the moment is late: that is one of the moments.
    let _ended = child.kill();
    child.wait().unwrap();
}

/// Files that a program writes aside before they get their name.
fn leftovers(folder: &Path) -> Vec<String> {
    crate::workbench::names(folder).into_iter().filter(|name| name.ends_with(".part")).collect()
}

#[test]
fn a_killed_build_leaves_the_old_bundle_or_the_new_one() {
    let bench = Bench::new();
    bench.pictures("good", 6);
    let arguments =
        ["model.onnx", "--names", "names.txt", "--target", "cpu", "--cpu-backend", "rten", "--calibration", "good"];
    let build = [&arguments[..], &["-o", "line.edge"]].concat();
    let mut whole = Vec::new();
    let mut longest = Duration::ZERO;
    for score in [0.9, 0.8] {
        bench.write("model.onnx", &model(score));
        let since = Instant::now();
        bench.edge_build(&build).ends_with(0);
        longest = longest.max(since.elapsed());
        whole.push((bench.read("model.onnx"), bench.read("line.edge")));
    }
    std::fs::remove_file(bench.path("line.edge")).unwrap();
    let mut moments = Moments::new("killed builds");
    for number in 0..half() {
        bench.write("model.onnx", &whole[usize::from(number % 2 == 0)].0);
        let child = bench.command(Path::new(edge_build()), &build).spawn().unwrap();
        std::thread::sleep(moments.next(longest + longest / 4));
        kill(child);
        if let Ok(found) = std::fs::read(bench.path("line.edge")) {
            let known = whole.iter().any(|(_, bytes)| *bytes == found);
            assert!(known, "after kill {number} the bundle is neither of the two");
        }
        assert!(leftovers(&bench.path("")).len() <= 1, "what an earlier kill left is removed by the next build");
    }
    bench.write("model.onnx", &whole[0].0);
    bench.edge_build(&build).ends_with(0);
    assert_eq!(bench.read("line.edge"), whole[0].1);
    assert_eq!(leftovers(&bench.path("")), [""; 0]);
}

/// Frames go out as fast as the engine takes them, every 150 ms another bundle lies under the path and SIGHUP asks for it.
#[test]
fn a_killed_line_starts_again_and_its_files_are_whole() {
    let bench = Bench::new();
    for (name, score) in [("a.edge", 0.9), ("b.edge", 0.85)] {
        bench.write("model.onnx", &model(score));
        bench.build(&["-o", name]).ends_with(0);
    }
    let bundles = [bench.read("a.edge"), bench.read("b.edge")];
    bench.write("line.edge", &bundles[0]);
    let line = |more: &[&str]| {
        let always = [
            "--engine",
            "line.edge",
            "--cpu-backend",
            "rten",
            "--threads",
            "1",
            "--source",
            "sim:?fps=240&size=160x96",
            "--listen",
            "none",
            "--quiet",
            "--output",
            "rows.jsonl",
            "--state",
            "state",
        ];
        let mut command = bench.command(Path::new(edge_run()), &[&always[..], more].concat());
        // Nobody reads along: a full pipe must not hold the line up.
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).env("EDGE_LOG", "off");
        command
    };
    let since = Instant::now();
    assert!(line(&["--frames", "3"]).status().unwrap().success());
    let start = since.elapsed();
    let mut moments = Moments::new("killed lines");
    let mut kept = 0;
    for number in 0..half() {
        let child = line(&[]).spawn().unwrap();
        let until = Instant::now() + moments.next(start * 3 + Duration::from_secs(1));
        let mut turn = usize::try_from(number).unwrap();
        while Instant::now() < until {
            turn += 1;
            bench.write("next.edge", &bundles[turn % 2]);
            std::fs::rename(bench.path("next.edge"), bench.path("line.edge")).unwrap();
            if bench.path("rows.jsonl").is_file() && Instant::now() + start < until {
                let asked = std::process::Command::new("kill").args(["-HUP", &child.id().to_string()]).status();
                drop(asked);
            }
            std::thread::sleep(until.saturating_duration_since(Instant::now()).min(Duration::from_millis(150)));
        }
        kill(child);
        let ended = line(&["--frames", "2"]).status().unwrap();
        assert!(ended.success(), "start after kill {number}: {ended}");
        assert_rows_are_whole(&bench.read("rows.jsonl"), number);
        if bench.path("state/last_good.edge").is_file() {
            kept += 1;
            let found = bench.read("state/last_good.edge");
            assert!(bundles.contains(&found), "after kill {number} the copy of the last good bundle is half");
            Bundle::open(&bench.path("state/last_good.edge")).unwrap();
        }
        assert!(leftovers(&bench.path("state")).len() <= 1, "{:?}", leftovers(&bench.path("state")));
    }
    let (incidents, broken) = ledger::read(&bench.path("state")).unwrap();
    let ended_by_a_kill = incidents.iter().filter(|incident| incident.uncounted).count();
    assert!(ended_by_a_kill > 0 && broken == 0, "{} incidents, {broken} broken lines", incidents.len());
    assert!(ended_by_a_kill <= half() as usize, "orderly ends leave no word: {ended_by_a_kill}");
    eprintln!("{ended_by_a_kill} of {} kills ended a line that had begun, and the next start said so", half());
    eprintln!("a copy of the last good bundle was there after {kept} of {} kills", half());
}

/// Every line is whole, but for those that a kill has cut off: they are closed by the next start and stand alone.
fn assert_rows_are_whole(bytes: &[u8], number: u32) {
    assert!(bytes.ends_with(b"\n"), "after kill {number} the file ends in the middle of a line");
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let row: serde_json::Value = serde_json::from_slice(line)
            .unwrap_or_else(|error| panic!("after kill {number}: {error} in {}", String::from_utf8_lossy(line)));
        assert!(row["trust"].is_string() && row["engine"]["sha256"].is_string(), "{row}");
    }
}
