//! R04: reload. The old engine runs on through every failure, the new one comes in between frames, and nothing is left over.

use crate::line::{CannedSource, Line, fault, write_bundle};
use edge_trt::run::inject::{Fault, FaultKind, Injected, Injector, Plan, Until};
use edge_trt::run::source::EngineSource;
use edge_trt::run::stop::{StopFlag, StopReason};
use edge_trt::run::{self, Outcome, ReloadDoor, Settled};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A line that runs in a thread until it is told to stop.
pub(crate) struct Running {
    pub(crate) line: Line,
    pub(crate) door: Arc<ReloadDoor>,
    stop: StopFlag,
    pub(crate) live: Arc<AtomicI64>,
    thread: JoinHandle<edge_trt::Result<Outcome>>,
}

impl Running {
    pub(crate) fn start(line: Line, source: CannedSource) -> Self {
        Self::start_over(line, Arc::clone(&source.live), Arc::new(source))
    }

    /// `live` counts the engines of `source`.
    pub(crate) fn start_over(mut line: Line, live: Arc<AtomicI64>, source: Arc<dyn EngineSource>) -> Self {
        line.options.frames = None;
        line.options.duration = Some(Duration::from_secs(300));
        let door = Arc::clone(&line.options.service.reload.door);
        let stop = StopFlag::default();
        let thread = std::thread::spawn({
            let (options, stop) = (line.options.clone(), stop.clone());
            move || run::start_with(&options, source, &stop, &mut |_| {})
        });
        let running = Running { line, door, stop, live, thread };
        running.wait_for("the first engine", || running.live.load(Ordering::SeqCst) == 1);
        running
    }

    pub(crate) fn wait_for(&self, what: &str, done: impl Fn() -> bool) {
        let since = Instant::now();
        while !done() {
            assert!(!self.thread.is_finished(), "the line ended before {what}");
            assert!(since.elapsed() < Duration::from_secs(60), "{what} did not come");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn next(&self, ask: impl FnOnce()) -> Settled {
        let (before, _) = self.door.settled();
        ask();
        self.wait_for("an outcome", || self.door.settled().0 > before);
        self.door.settled().1.unwrap()
    }

    pub(crate) fn reload(&self) -> Settled {
        self.next(|| self.door.ask())
    }

    /// Puts a bundle under the running path, as a rename.
    pub(crate) fn put(&self, bias: f32, change: impl FnOnce(&mut edge_trt::bundle::Manifest)) {
        write_bundle(&self.line.options.bundle, bias, change);
    }

    pub(crate) fn end(self) -> (Line, Outcome) {
        self.stop.raise(StopReason::Done);
        let outcome = self.thread.join().unwrap().unwrap();
        assert_eq!(self.live.load(Ordering::SeqCst), 0, "an engine was left behind");
        (self.line, outcome)
    }
}

pub(crate) fn line() -> Line {
    let mut line = Line::new();
    let reload = &mut line.options.service.reload;
    reload.rest = Duration::from_millis(150);
    reload.shadow_frames = 5;
    reload.probation = Duration::from_millis(50);
    line
}

pub(crate) fn refused(settled: Settled) -> String {
    match settled {
        Settled::Refused(why) => why,
        other => panic!("expected a refusal, found {other:?}"),
    }
}

#[test]
fn a_good_bundle_comes_in_between_frames_and_every_row_says_which_one_answered() {
    let running = Running::start(line(), CannedSource::new());
    assert_eq!(running.reload(), Settled::Unchanged);
    running.put(0.2, |_| {});
    let Settled::Swapped(id) = running.reload() else { panic!() };
    running.wait_for("the end of the probation", || running.live.load(Ordering::SeqCst) == 1);
    std::thread::sleep(Duration::from_millis(100));
    let (line, outcome) = running.end();
    assert_eq!(outcome.incidents, []);
    let rows = line.rows();
    let swap = rows.iter().position(|row| row["engine"]["sha256"] == id.as_str()).unwrap();
    assert!(swap > 0 && rows[swap..].iter().all(|row| row["engine"]["sha256"] == id.as_str()));
    assert!(rows.iter().all(|row| row["trust"] == "trusted"));
    // No gap beyond a frame: capture numbers may jump by the drops of a newest lane, never by a load's time.
    let gap = rows.windows(2).map(|pair| pair[1]["frame"].as_u64().unwrap() - pair[0]["frame"].as_u64().unwrap()).max();
    assert!(gap.unwrap() < 30, "{gap:?}");
}

#[test]
fn what_does_not_fit_is_refused_with_both_sides_and_not_tried_again() {
    let running = Running::start(line(), CannedSource::new());
    let path = running.line.options.bundle.clone();
    running.put(0.2, |manifest| manifest.classes = vec!["scratch".into()]);
    let why = refused(running.reload());
    assert!(why.contains("found [scratch], expected [hole]"), "{why}");
    assert!(refused(running.reload()).contains("has failed before"));
    running.put(0.2, |manifest| manifest.input.size = edge_trt::units::SizePx::new(32, 64));
    assert!(refused(running.reload()).contains("found 32×64"), "input");
    running.put(0.2, |manifest| manifest.schema = 0);
    assert!(refused(running.reload()).contains("schema: found 0, expected 1"));
    // Boxes elsewhere: it proves itself, and the shadow sees that it is another network.
    running.put(25.0, |_| {});
    let why = refused(running.reload());
    assert!(why.contains("on 5 frames") && why.contains("agree to 0.50"), "{why}");
    // A recipe may ask for more frames or another agreement.
    let rules = |shadow_frames, agreement| Some(edge_trt::bundle::manifest::ReloadRules { shadow_frames, agreement });
    running.put(26.0, |manifest| manifest.reload = rules(9, 0.6));
    let why = refused(running.reload());
    assert!(why.contains("on 9 frames") && why.contains("expected at least 0.60"), "{why}");
    running.put(27.0, |manifest| manifest.reload = rules(3, 0.4));
    assert!(matches!(running.reload(), Settled::Swapped(_)));
    running.put(0.0, |manifest| manifest.reload = rules(3, 0.4));
    assert!(matches!(running.reload(), Settled::Swapped(_)), "back again");
    running.put(2000.0, |_| {});
    assert!(refused(running.reload()).contains("cannot be loaded"));
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    refused(running.reload());
    std::fs::remove_file(&path).unwrap();
    refused(running.reload());
    let (line, outcome) = running.end();
    assert_eq!(outcome.incidents, []);
    assert!(line.rows().iter().all(|row| row["trust"] == "trusted"));
}

#[test]
fn a_watched_file_is_taken_however_it_is_replaced_and_never_half() {
    let mut line = line();
    line.options.service.reload.watch = true;
    let other = line.path("other.edge");
    let path = line.options.bundle.clone();
    let real = line.path("real.edge");
    std::fs::rename(&path, &real).unwrap();
    std::os::unix::fs::symlink(&real, &path).unwrap();
    let running = Running::start(line, CannedSource::new());
    let swapped = |settled| assert!(matches!(settled, Settled::Swapped(_)), "{settled:?}");
    // Written in place with pauses shorter than the rest.
    write_bundle(&other, 0.1, |_| {});
    let bytes = std::fs::read(&other).unwrap();
    swapped(running.next(|| {
        use std::io::Write;
        let mut file = std::fs::File::create(&path).unwrap();
        for part in bytes.chunks(bytes.len() / 3 + 1) {
            file.write_all(part).unwrap();
            std::thread::sleep(Duration::from_millis(60));
        }
    }));
    // The link shows another file.
    write_bundle(&other, 0.2, |_| {});
    swapped(running.next(|| {
        let link = running.line.path("link");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        std::fs::rename(&link, &path).unwrap();
    }));
    // Deleted and made again.
    swapped(running.next(|| {
        std::fs::remove_file(&path).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        write_bundle(&path, 0.3, |_| {});
    }));
    running.end();
}

#[test]
fn a_fault_in_the_probation_brings_the_old_engine_back() {
    let mut line = line();
    line.options.service.reload.probation = Duration::from_secs(60);
    // The new bundle turns bad a while after its five frames in the shadow.
    let source = CannedSource { bad: Some((0.2, 25)), ..CannedSource::new() };
    let running = Running::start(line, source);
    running.put(0.2, |_| {});
    assert!(matches!(running.reload(), Settled::Swapped(_)));
    running.wait_for("the rollback", || matches!(running.door.settled().1, Some(Settled::RolledBack(_))));
    assert!(refused(running.reload()).contains("has failed before"));
    std::thread::sleep(Duration::from_millis(100));
    let (line, outcome) = running.end();
    assert_eq!(outcome.incidents.len(), 1);
    let rows = line.rows();
    assert_eq!(rows.iter().filter(|row| row["trust"] == "fault").count(), 1, "the bad frame itself");
    let (first, last) = (&rows[0]["engine"]["sha256"], &rows[rows.len() - 1]["engine"]["sha256"]);
    assert_eq!(first, last);
}

#[test]
fn by_hand_the_bundle_before_comes_back_during_and_after_the_probation() {
    for probation in [Duration::from_secs(60), Duration::ZERO] {
        let mut line = line();
        line.options.service.reload.probation = probation;
        let running = Running::start(line, CannedSource::new());
        assert!(refused(running.next(|| running.door.ask_rollback())).contains("no bundle to go back to"));
        running.put(0.2, |_| {});
        assert!(matches!(running.reload(), Settled::Swapped(_)));
        if probation.is_zero() {
            running.wait_for("the end of the probation", || running.live.load(Ordering::SeqCst) == 1);
        }
        let request = running.line.path("state").join(run::ROLLBACK_REQUEST);
        let settled = running.next(|| std::fs::write(&request, "").unwrap());
        assert!(matches!(settled, Settled::RolledBack(_)), "{settled:?}");
        std::thread::sleep(Duration::from_millis(50));
        let (line, _) = running.end();
        let rows = line.rows();
        assert_eq!(rows[0]["engine"]["sha256"], rows[rows.len() - 1]["engine"]["sha256"]);
    }
}

#[test]
fn while_memory_is_short_no_bundle_is_loaded() {
    let hog = Plan { faults: vec![Fault { frames: 400, ..fault(FaultKind::MemoryHog, 0.9, Until::Frames) }] };
    let source = CannedSource::new();
    let live = Arc::clone(&source.live);
    let running = Running::start_over(line(), live, Injected::over(Arc::new(source), Injector::new(hog)));
    // Another class list is refused as well: what tells is the reason, which changes while the hog is there.
    running.put(0.2, |manifest| manifest.classes = vec!["scratch".into()]);
    let reason = |word: &str| {
        let since = Instant::now();
        while !refused(running.reload()).contains(word) {
            assert!(since.elapsed() < Duration::from_secs(60), "no refusal for {word}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    reason("scratch");
    reason("the device's memory is short");
    reason("has failed before");
    let (_, outcome) = running.end();
    assert_eq!(outcome.incidents, []);
}

/// `EDGE_FULL=1` runs the thousand of the issue, else sixty.
#[test]
fn cycles_of_good_bad_and_truncated_bundles_leave_one_engine() {
    let cycles = if std::env::var_os("EDGE_FULL").is_some() { 1000 } else { 60 };
    let mut line = line();
    line.options.service.reload.shadow_frames = 2;
    line.options.service.reload.probation = Duration::ZERO;
    line.options.output.file = None;
    for (bias, name) in [(0.1, "a"), (0.2, "b"), (25.0, "c")] {
        write_bundle(&line.path(name), bias, |_| {});
    }
    let source = CannedSource { period: Duration::from_millis(1), ..CannedSource::new() };
    let running = Running::start(line, source);
    let (mut swapped, mut refused, mut threads) = (0, 0, 0);
    for cycle in 0..cycles {
        // Good and bad ones in turn; of the bad ones, another kind each time.
        let good = cycle % 2 == 0;
        match (good, cycle / 2 % 8) {
            (true, turn) => put_bytes(&running.line, &std::fs::read(running.line.path(["a", "b"][turn % 2])).unwrap()),
            (false, kind) => put_bad(&running.line, kind, cycle),
        }
        match (good, running.reload()) {
            (true, Settled::Swapped(_)) => swapped += 1,
            (false, Settled::Refused(_)) => refused += 1,
            (_, other) => panic!("cycle {cycle}: {other:?}"),
        }
        running.wait_for("the old engine to go", || running.live.load(Ordering::SeqCst) == 1);
        if cycle == 20 {
            threads = tasks();
        }
    }
    assert_eq!((swapped, refused), (cycles / 2, cycles / 2));
    std::thread::sleep(Duration::from_millis(100));
    assert!(tasks() <= threads + 8, "{} threads after cycle 20, {} at the end", threads, tasks());
    running.end();
}

fn put_bytes(line: &Line, bytes: &[u8]) {
    std::fs::write(line.path("next"), bytes).unwrap();
    std::fs::rename(line.path("next"), &line.options.bundle).unwrap();
}

/// A bundle that must be refused: other boxes, other classes, another input, an older schema, cut off, one byte changed,
/// one that cannot be loaded, no bundle at all. `turn` makes each differ from those before.
fn put_bad(line: &Line, kind: usize, turn: usize) {
    let bias = 0.3 + turn as f32 * 1e-4;
    let mut bytes = match kind {
        0 => std::fs::read(line.path("c")).unwrap(),
        1..=3 | 6 => {
            let bias = if kind == 6 { 2000.0 + bias } else { bias };
            write_bundle(&line.path("bad"), bias, |manifest| match kind {
                1 => manifest.classes = vec!["scratch".into()],
                2 => manifest.input.size = edge_trt::units::SizePx::new(32, 64),
                3 => manifest.schema = 0,
                _ => {}
            });
            std::fs::read(line.path("bad")).unwrap()
        }
        7 => b"no bundle".to_vec(),
        _ => std::fs::read(line.path("b")).unwrap(),
    };
    if kind == 4 {
        bytes.truncate(bytes.len() * (turn % 97) / 97);
    }
    if kind == 5 {
        // In the model, whose hash is in the manifest.
        let model = bytes.windows(16).position(|window| window == [7; 16]).unwrap();
        bytes[model + turn % 1000] ^= 1;
    }
    put_bytes(line, &bytes);
}

/// Threads of this process; other tests run beside this one.
fn tasks() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}
