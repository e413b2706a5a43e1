//! The recorder with its writer: what begins an incident, what is in it, and what a full disk or a killed process leaves.

use super::recording::Recording;
use super::report::{FrameLine, REPORT, Report};
use super::{FOLDER, IncidentOptions, Recorder, export, list, list_in};
use crate::engine::{Candidate, Candidates, Inference, Letterbox, OutputStats};
use crate::frame::{Frame, Picture, StreamName};
use crate::guard::ladder::{Cause, Step};
use crate::guard::picture::PictureStats;
use crate::guard::{Reason, Trust};
use crate::sinks::http::{Board, StreamSetup};
use crate::sinks::row::Row;
use crate::telemetry::{Labels, Metric, Telemetry};
use crate::units::{BoxPx, Bytes, SizePx};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SIZE: SizePx = SizePx::new(40, 30);

/// A line with nothing in it.
pub(super) fn frame_line(number: u64) -> FrameLine {
    FrameLine {
        stream: "cam0".into(),
        frame: Some(number),
        at: "2026-01-01T00:00:00.000Z".into(),
        captured_at: None,
        source: None,
        part: None,
        picture: None,
        measured: None,
        trust: Trust::Trusted,
        reasons: vec![],
        observed: vec![],
        decision: None,
        proved_at: None,
        error: None,
        answered_for: None,
        output: None,
        candidates: vec![],
        candidates_in_all: 0,
        detections: vec![],
        timings_ms: Default::default(),
        age_ms: 0.0,
        memory_bytes: Default::default(),
        sha256: String::new(),
        device: 0,
    }
}

struct Line {
    recorder: Arc<Recorder>,
    board: Arc<Board>,
    telemetry: Arc<Telemetry>,
}

impl Line {
    fn start(state: Option<&Path>, options: IncidentOptions, streams: &[&str]) -> Line {
        Self::of_engines(state, options, &streams.iter().map(|stream| (*stream, 0)).collect::<Vec<_>>())
    }

    /// Each stream with the number of its engine.
    fn of_engines(state: Option<&Path>, options: IncidentOptions, streams: &[(&str, usize)]) -> Line {
        let names: Vec<StreamName> = streams.iter().map(|(name, _)| (*name).into()).collect();
        let engine_of: Vec<usize> = streams.iter().map(|(_, engine)| *engine).collect();
        let setup = |name: &StreamName| StreamSetup { name: Arc::clone(name), continuous: true, has_rule: false };
        let board = Board::new(names.iter().map(setup).collect());
        let telemetry = Telemetry::new();
        let recorder = Recorder::start(options, state, (&names, &engine_of), &board, &telemetry).unwrap();
        Line { recorder, board, telemetry }
    }

    /// Good frames, one with a NaN, good frames.
    fn one_fault(&self) {
        self.frames("cam0", 0..30);
        self.frame("cam0", 30, &[Reason::Nan]);
        self.frames("cam0", 31..60);
    }

    /// One frame through the recorder, as the inspector and the loop do it.
    fn frame(&self, stream: &str, number: u64, reasons: &[Reason]) {
        self.frame_of(stream, number, reasons, false);
    }

    fn frame_of(&self, stream: &str, number: u64, reasons: &[Reason], told: bool) {
        let shade = u8::try_from(number % 250).unwrap();
        let frame = Arc::new(Frame::new(stream, number, Picture::rgb(SIZE, vec![shade; SIZE.pixels() * 3])));
        let edges = BoxPx::new(1.0, 2.0, 11.0, 12.0);
        let inference = Inference {
            tag: frame.tag(),
            letterbox: Letterbox::fit(SIZE, SizePx::new(40, 40)),
            candidates: Candidates {
                boxes: vec![Candidate { anchor: 3, class_id: 0, score: 0.9, edges }],
                overflow: 0,
            },
            stats: OutputStats { nan: u64::from(reasons.contains(&Reason::Nan)), ..OutputStats::default() },
            timings: Default::default(),
        };
        let stats = PictureStats::measure(&frame.picture);
        let answer = if reasons.contains(&Reason::EngineError) { Err("the run failed") } else { Ok(&inference) };
        self.recorder.answered(&frame, &stats, answer, &[]);
        let trust = if reasons.is_empty() { Trust::Trusted } else { Trust::Fault };
        let row = Row {
            stream: stream.into(),
            number: Some(number),
            trust,
            reasons: reasons.to_vec(),
            frame: Some(frame),
            ..crate::sinks::row::tests::row()
        };
        self.recorder.row(&row, told);
    }

    fn frames(&self, stream: &str, numbers: std::ops::Range<u64>) {
        numbers.for_each(|number| self.frame(stream, number, &[]));
    }

    fn end(self) -> (Arc<Board>, Arc<Telemetry>) {
        self.recorder.finish(None);
        (self.board, self.telemetry)
    }
}

fn numbers(frames: &[FrameLine], stream: &str) -> Vec<u64> {
    frames.iter().filter(|frame| frame.stream == stream).filter_map(|frame| frame.frame).collect()
}

/// A whole manifest, as an incident needs it to be read back.
fn write_manifest(folder: &Path) {
    std::fs::copy(sample_manifest().path(), folder.join("manifest.json")).unwrap();
}

fn sample_manifest() -> tempfile::NamedTempFile {
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/engines/sample/sample.edge");
    let bundle = crate::bundle::Bundle::open(Path::new(sample)).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bundle.manifest_bytes()).unwrap();
    file
}

fn open(folder: &Path) -> Recording {
    write_manifest(folder);
    Recording::open(folder).unwrap()
}

#[test]
fn fifty_frames_around_a_fault_are_kept_and_the_line_before_is_not() {
    let state = tempfile::tempdir().unwrap();
    let line = Line::start(Some(state.path()), IncidentOptions::default(), &["cam0"]);
    line.recorder.event("self_test_passed", "frame 0");
    line.frames("cam0", 0..100);
    line.frame("cam0", 100, &[Reason::Nan]);
    line.recorder.alarm(Some(Cause::Answer), "stream cam0, frame 100: nan");
    line.recorder.step(Step::RetryFrame);
    line.recorder.recovered(&[Step::RetryFrame], Duration::from_millis(120));
    line.frames("cam0", 101..200);
    let (board, telemetry) = line.end();
    let (listed, broken) = list(state.path()).unwrap();
    assert_eq!((listed.len(), broken.len()), (1, 0));
    let report = &listed[0].report;
    assert_eq!((report.reason.as_str(), report.steps.as_slice()), ("nan", &["retry_frame".to_owned()][..]));
    assert_eq!(report.recovered_after_ms, Some(120.0));
    assert!(report.complete && report.left_out == 0, "{report:?}");
    let kinds: Vec<&str> = report.events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["self_test_passed", "alarm", "step", "recovered"]);
    let recording = open(&listed[0].folder);
    let expected: Vec<u64> = (75..125).collect();
    assert_eq!(numbers(recording.frames(), "cam0"), expected, "25 before, 25 from it on");
    let fault = &recording.frames()[25];
    assert_eq!((fault.trust, fault.output.unwrap().nan), (Trust::Fault, 1));
    assert_eq!(fault.candidates.len(), 1);
    for frame in recording.frames() {
        let picture = recording.picture(frame).unwrap().unwrap();
        assert_eq!(u64::from(picture.pixels.as_slice()[0]), frame.frame.unwrap() % 250);
    }
    let note = &board.incidents()[0];
    assert!(note.kept && !note.ended);
    assert_eq!((note.reason.as_str(), note.recovered_after_ms), ("nan", Some(120.0)));
    assert_eq!(telemetry.total(Metric::Incidents, Labels::reason("nan")), 1);
    assert_eq!(telemetry.total(Metric::IncidentFrames, Labels::NONE), 50);
}

#[test]
fn a_clean_line_leaves_nothing() {
    let state = tempfile::tempdir().unwrap();
    let line = Line::start(Some(state.path()), IncidentOptions::default(), &["cam0"]);
    line.frames("cam0", 0..300);
    let (board, telemetry) = line.end();
    assert_eq!(list(state.path()).unwrap().0.len(), 0);
    assert_eq!(board.incidents(), []);
    assert_eq!(telemetry.total(Metric::Incidents, Labels::NONE), 0);
}

#[test]
fn without_a_state_folder_the_page_still_hears_of_it() {
    let line = Line::start(None, IncidentOptions::default(), &["cam0"]);
    line.frames("cam0", 0..10);
    line.frame("cam0", 10, &[Reason::Frozen]);
    line.frames("cam0", 11..60);
    assert!(line.recorder.line().contains("--state DIR"));
    assert!(!line.recorder.ask(10));
    let (board, _) = line.end();
    let note = &board.incidents()[0];
    assert_eq!((note.reason.as_str(), note.kept), ("frozen", false));
    assert!(note.recovered_after_ms.is_some());
    let asked = IncidentOptions { deep_log: true, ..IncidentOptions::default() };
    let board = Board::new(vec![]);
    let refused = Recorder::start(asked, None, (&[], &[]), &board, &Telemetry::new()).err().unwrap();
    assert_eq!(refused.kind(), crate::ErrorKind::Usage);
}

#[test]
fn an_engine_fault_is_about_all_streams_and_a_bad_picture_about_its_own() {
    let state = tempfile::tempdir().unwrap();
    let line = Line::start(Some(state.path()), IncidentOptions::default(), &["left", "right"]);
    for number in 0..40 {
        line.frame("left", number, &[]);
        line.frame("right", number, &[]);
    }
    line.frame("left", 40, &[Reason::Frozen]);
    line.frames("left", 41..80);
    line.frame("right", 40, &[Reason::Nan]);
    for number in 80..140 {
        line.frame("left", number, &[]);
        line.frame("right", number, &[]);
    }
    line.end();
    let (listed, _) = list(state.path()).unwrap();
    let of = |reason: &str| listed.iter().find(|listed| listed.report.reason == reason).unwrap();
    let (frozen, nan) = (open(&of("frozen").folder), open(&of("nan").folder));
    assert_eq!(frozen.report().streams, ["left"]);
    assert_eq!((numbers(frozen.frames(), "left").len(), numbers(frozen.frames(), "right").len()), (50, 0));
    assert_eq!(nan.report().streams, ["left", "right"]);
    assert_eq!((numbers(nan.frames(), "left").len(), numbers(nan.frames(), "right").len()), (50, 50));
}

#[test]
fn a_lasting_fault_is_one_incident_and_its_end_is_written_later() {
    let state = tempfile::tempdir().unwrap();
    let line = Line::start(Some(state.path()), IncidentOptions::default(), &["cam0"]);
    line.frames("cam0", 0..30);
    (30..300).for_each(|number| line.frame("cam0", number, &[Reason::Dark]));
    line.frames("cam0", 300..302);
    // Again within seconds: part of the same trouble, not one more incident.
    line.frame("cam0", 302, &[Reason::Dark]);
    line.frames("cam0", 303..400);
    line.end();
    let (listed, _) = list(state.path()).unwrap();
    assert_eq!(listed.len(), 1);
    assert!(listed[0].report.recovered_after_ms.is_some());
    assert_eq!(listed[0].report.frames, 50);
}

#[test]
fn frames_that_were_asked_for_are_kept_and_a_fault_among_them_gets_its_own() {
    let state = tempfile::tempdir().unwrap();
    let line = Line::start(Some(state.path()), IncidentOptions::default(), &["cam0"]);
    line.frames("cam0", 0..30);
    assert!(line.recorder.ask(10));
    assert!(!line.recorder.ask(10), "one at a time");
    line.frames("cam0", 30..60);
    line.end();
    let (listed, _) = list(state.path()).unwrap();
    assert_eq!(listed[0].report.reason, "asked");
    assert_eq!(numbers(open(&listed[0].folder).frames(), "cam0"), (30..40).collect::<Vec<_>>());

    let state = tempfile::tempdir().unwrap();
    let every = IncidentOptions { deep_log: true, ..IncidentOptions::default() };
    let line = Line::start(Some(state.path()), every, &["cam0"]);
    line.frames("cam0", 0..150);
    line.frame("cam0", 150, &[Reason::Nan]);
    line.frames("cam0", 151..260);
    let (board, _) = line.end();
    let (listed, _) = list(state.path()).unwrap();
    let reasons: Vec<&str> = listed.iter().map(|listed| listed.report.reason.as_str()).collect();
    assert_eq!(reasons, ["asked", "asked", "nan", "asked"]);
    let mut seen: Vec<u64> = listed.iter().flat_map(|listed| numbers(open(&listed.folder).frames(), "cam0")).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, (0..260).collect::<Vec<_>>(), "every frame is there");
    assert_eq!(board.incidents().len(), 1, "the page lists faults alone");
}

#[test]
fn the_oldest_goes_when_the_room_is_used_up() {
    let state = tempfile::tempdir().unwrap();
    for round in 0..6_u64 {
        let options = IncidentOptions { space: Bytes(150_000), ..IncidentOptions::default() };
        let line = Line::start(Some(state.path()), options, &["cam0"]);
        line.frames("cam0", 0..30);
        line.frame("cam0", 30, &[if round % 2 == 0 { Reason::Nan } else { Reason::AllZero }]);
        line.frames("cam0", 31..60);
        let (_, telemetry) = line.end();
        let used: u64 = list(state.path()).unwrap().0.iter().map(|listed| listed.bytes).sum();
        assert!(used <= 150_000, "{used}");
        if round == 5 {
            assert_eq!(telemetry.total(Metric::IncidentsRemoved, Labels::NONE), 1);
        }
    }
    let left = list(state.path()).unwrap().0;
    assert!((1..6).contains(&left.len()), "{}", left.len());
    // Less room than one incident needs: the pictures are left out and counted, the line's facts are kept.
    let options = IncidentOptions { space: Bytes(100), ..IncidentOptions::default() };
    let line = Line::start(Some(state.path()), options, &["cam0"]);
    line.frame("cam0", 1, &[Reason::Nan]);
    let (_, telemetry) = line.end();
    assert_eq!(telemetry.total(Metric::IncidentFramesDropped, Labels::reason("space_limit")), 1);
    let listed = list(state.path()).unwrap().0;
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].report.frames, listed[0].report.left_out), (1, 1));
}

#[test]
fn pictures_take_no_more_memory_than_they_may() {
    let state = tempfile::tempdir().unwrap();
    let picture_bytes = 40 * 30 * 3;
    let options = IncidentOptions { memory: Bytes(5 * picture_bytes), ..IncidentOptions::default() };
    let line = Line::start(Some(state.path()), options, &["cam0"]);
    for number in 0..100 {
        line.frame("cam0", number, &[]);
        assert!(line.recorder.held_bytes() <= 5 * picture_bytes);
    }
    assert_eq!(line.recorder.held_bytes(), 5 * picture_bytes);
    line.frame("cam0", 100, &[Reason::Nan]);
    line.end();
    let listed = list(state.path()).unwrap().0;
    let recording = open(&listed[0].folder);
    assert_eq!(recording.frames().len(), 26, "what is known of a frame stays without its picture");
    let with_picture = recording.frames().iter().filter(|frame| frame.picture.is_some()).count();
    assert!((1..=6).contains(&with_picture), "{with_picture}");
}

#[test]
fn a_folder_that_cannot_be_written_disturbs_nothing() {
    let state = tempfile::tempdir().unwrap();
    let line = Line::start(Some(state.path()), IncidentOptions::default(), &["cam0"]);
    std::fs::remove_dir_all(state.path().join(FOLDER)).unwrap();
    std::fs::write(state.path().join(FOLDER), "in the way").unwrap();
    line.one_fault();
    let (board, telemetry) = line.end();
    assert!(!board.incidents()[0].kept);
    assert_eq!(telemetry.total(Metric::IncidentFramesDropped, Labels::reason("write_error")), 50);
}

#[test]
fn what_a_killed_process_left_is_found_by_the_next_start() {
    let state = tempfile::tempdir().unwrap();
    let line = Line::start(Some(state.path()), IncidentOptions::default(), &["cam0"]);
    line.one_fault();
    line.end();
    let folder = state.path().join(FOLDER);
    let id = list(state.path()).unwrap().0[0].report.id.clone();
    std::fs::rename(folder.join(&id), folder.join(format!(".{id}.part"))).unwrap();
    let lines = folder.join(format!(".{id}.part/frames.jsonl"));
    let text = std::fs::read(&lines).unwrap();
    std::fs::write(&lines, &text[..text.len() - 40]).unwrap();
    std::fs::create_dir(folder.join(".20260101T000000Z-001-nan.part")).unwrap();
    assert_eq!(list(state.path()).unwrap().0.len(), 0);
    let line = Line::start(Some(state.path()), IncidentOptions::default(), &["cam0"]);
    assert!(line.board.incidents()[0].kept, "the page knows it too");
    line.end();
    let listed = list(state.path()).unwrap().0;
    assert_eq!(listed.len(), 1);
    assert_eq!(open(&listed[0].folder).frames().len(), 49, "the line that was cut off is passed over");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "what cannot be read is removed");
}

#[test]
fn an_export_is_read_back_whole_and_a_damaged_one_is_refused() {
    let state = tempfile::tempdir().unwrap();
    let line = Line::start(Some(state.path()), IncidentOptions::default(), &["cam0"]);
    line.one_fault();
    line.end();
    let folder = list(state.path()).unwrap().0.remove(0).folder;
    let original = open(&folder);
    let zip = state.path().join("incident.zip");
    export::export(&original, &zip, None).unwrap();
    let read = Recording::open(&zip).unwrap();
    assert_eq!(read.frames(), original.frames());
    assert_eq!(read.report(), original.report());
    assert!(read.bundle().unwrap().is_none());
    let rows = |recording: &Recording| recording.picture(&recording.frames()[7]).unwrap().unwrap();
    assert_eq!(rows(&read).pixels.as_slice(), rows(&original).pixels.as_slice());
    let whole = std::fs::read(&zip).unwrap();
    for length in [0, 10, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&zip, &whole[..length]).unwrap();
        assert_eq!(Recording::open(&zip).unwrap_err().kind().exit_code(), 6, "{length} bytes");
    }
    let other = concat!(env!("CARGO_MANIFEST_DIR"), "/engines/sample/sample.edge");
    let refused = export::export(&original, &zip, Some(Path::new(other))).unwrap_err();
    assert!(refused.message().contains("that answered in this incident"), "{refused}");
    let text = std::fs::read(folder.join(REPORT)).unwrap();
    assert!(Report::parse(&text).is_ok());
}

#[test]
fn flipped_bytes_and_cut_lines_never_panic() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/incident");
    let whole = std::fs::read(corpus.join("whole.zip")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let zip = folder.path().join("incident.zip");
    let look = |bytes: &[u8]| {
        std::fs::write(&zip, bytes).unwrap();
        let recording = Recording::open(&zip)?;
        recording.frames().iter().try_for_each(|frame| recording.picture(frame).map(drop))
    };
    look(&whole).unwrap();
    let mut refused = 0;
    for at in (0..whole.len()).step_by(3) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        if let Err(error) = look(&bytes) {
            assert_eq!(error.kind().exit_code(), 6, "byte {at}: {error}");
            refused += 1;
        }
    }
    assert!(refused * 4 > whole.len(), "a checksum, a header or a name: {refused}");
    // Past the checksums: a folder with lines that are cut, doubled or changed.
    let unpacked = folder.path().join("unpacked");
    std::fs::create_dir_all(unpacked.join("pictures")).unwrap();
    let mut archive = zip::ZipArchive::new(std::fs::File::open(corpus.join("whole.zip")).unwrap()).unwrap();
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).unwrap();
        let name = entry.name().unwrap().into_owned();
        std::io::copy(&mut entry, &mut std::fs::File::create(unpacked.join(name)).unwrap()).unwrap();
    }
    let lines = std::fs::read(corpus.join("frames.jsonl")).unwrap();
    for at in (0..lines.len()).step_by(2) {
        let mut changed = lines.clone();
        match at % 3 {
            0 => changed[at] = b'9',
            1 => drop(changed.drain(at..(at + 5).min(lines.len()))),
            _ => changed[at] = b'"',
        }
        std::fs::write(unpacked.join("frames.jsonl"), &changed).unwrap();
        let read = Recording::open(&unpacked)
            .and_then(|recording| recording.frames().iter().try_for_each(|frame| recording.picture(frame).map(drop)));
        assert!(read.is_ok() || read.is_err_and(|error| error.kind().exit_code() == 6), "byte {at}");
    }
}

#[test]
fn what_was_in_flight_at_the_repair_is_part_of_its_incident_and_what_came_after_is_not() {
    let state = tempfile::tempdir().unwrap();
    let line = Line::start(Some(state.path()), IncidentOptions::default(), &["cam0", "cam1"]);
    for number in 0..30 {
        line.frame("cam0", number, &[]);
        line.frame("cam1", number, &[]);
    }
    line.frame("cam0", 30, &[Reason::Nan]);
    line.recorder.alarm(Some(Cause::Answer), "stream cam0, frame 30: nan");
    line.recorder.recovered(&[Step::Rewarm], Duration::from_millis(5));
    line.frame_of("cam1", 30, &[Reason::EngineError], true);
    line.frame_of("cam0", 31, &[Reason::Infinite], true);
    line.frames("cam0", 32..40);
    line.frames("cam1", 31..40);
    // The same reasons again, of frames that the repaired engine took.
    line.frame("cam1", 40, &[Reason::EngineError]);
    let (board, telemetry) = line.end();
    let reasons = |reason| telemetry.total(Metric::Incidents, Labels::reason(reason));
    assert_eq!((reasons("nan"), reasons("engine_error"), reasons("infinite")), (1, 1, 0), "{:?}", board.incidents());
    let (listed, _) = list(state.path()).unwrap();
    let first = open(&listed[0].folder);
    assert!(numbers(first.frames(), "cam1").contains(&30), "it is among the frames of its incident");
}

#[test]
fn bundles_have_incidents_of_their_own() {
    let state = tempfile::tempdir().unwrap();
    let line = Line::of_engines(Some(state.path()), IncidentOptions::default(), &[("cam0", 0), ("cam1", 1)]);
    let other = line.recorder.of_engine(1);
    for number in 0..40 {
        line.frame("cam0", number, &[]);
        line.frame("cam1", number, &[]);
    }
    line.frame("cam0", 40, &[Reason::Nan]);
    line.recorder.alarm(Some(Cause::Answer), "stream cam0, frame 40: nan");
    line.recorder.step(Step::RetryFrame);
    line.frame("cam1", 40, &[Reason::Infinite]);
    other.alarm(Some(Cause::Answer), "stream cam1, frame 40: infinite");
    other.step(Step::RetryFrame);
    other.step(Step::Rewarm);
    other.recovered(&[Step::RetryFrame, Step::Rewarm], Duration::from_millis(70));
    line.recorder.recovered(&[Step::RetryFrame], Duration::from_millis(30));
    for number in 41..70 {
        line.frame("cam0", number, &[]);
        line.frame("cam1", number, &[]);
    }
    line.end();
    let (listed, broken) = list(state.path()).unwrap();
    assert_eq!((listed.len(), broken.len()), (2, 0));
    for (reason, stream, steps, took) in [("nan", "cam0", 1, 30.0), ("infinite", "cam1", 2, 70.0)] {
        let own = listed.iter().find(|listed| listed.report.reason == reason).unwrap();
        let report = &own.report;
        assert_eq!(report.streams, [stream]);
        assert_eq!((report.steps.len(), report.recovered_after_ms), (steps, Some(took)), "{report:?}");
        let steps_told = report.events.iter().filter(|event| event.kind == "step").count();
        assert_eq!(steps_told, steps, "{report:?}");
        assert!(report.complete, "{report:?}");
        let recording = open(&own.folder);
        assert_eq!(numbers(recording.frames(), stream), (15..65).collect::<Vec<_>>());
        assert_eq!(recording.frames().len(), 50, "of its own streams alone");
    }
}

#[test]
fn frames_before_and_after_and_the_folder_are_as_set() {
    let elsewhere = tempfile::tempdir().unwrap();
    let folder = elsewhere.path().join("kept");
    let options = IncidentOptions {
        folder: Some(folder.clone()),
        frames_before: 3,
        frames_after: 5,
        ..IncidentOptions::default()
    };
    let line = Line::start(None, options, &["cam0"]);
    assert!(line.recorder.line().contains("3 frames before a fault and 5"), "{}", line.recorder.line());
    line.one_fault();
    line.end();
    let (listed, _) = list_in(&folder);
    assert_eq!(numbers(open(&listed[0].folder).frames(), "cam0"), (27..35).collect::<Vec<_>>());
}
