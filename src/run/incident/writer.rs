//! The thread that writes incidents. Nothing it meets (a slow disk, a full one, a folder that is gone) reaches the line.

use super::picture;
use super::recorder::words::note_of;
use super::report::{FRAMES, MANIFEST, REPORT, Report};
use super::ring::Shot;
use super::shelf::Shelf;
use crate::aside::AsideFile;
use crate::error::{Error, Result};
use crate::ffi::thread::be_nice;
use crate::sinks::http::Board;
use crate::sinks::space::{Room, SpaceWatch};
use crate::telemetry::{Labels, Metric, Telemetry};
use crate::units::{Bytes, count, float64};
use std::fs::File;
use std::io::{ErrorKind, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Frames that may wait.
const MOST_WAITING: u64 = 512;
/// A file that keeps room for the last report of an incident, however full the disk has become meanwhile.
pub(super) const RESERVE: &str = "reserve";
const RESERVE_BYTES: usize = 128 << 10;
/// How long the end of a run waits for what is being written; the rest is found by the next start.
const END_LIMIT: Duration = Duration::from_secs(15);

/// What the recorder tells.
pub(super) enum Note {
    /// An incident begins.
    Open(Box<Report>, Option<Arc<[u8]>>),
    /// A frame of the incident with this id.
    Frame(Arc<str>, Box<Shot>),
    /// More is known of it.
    Update(Box<Report>),
    /// It has all its frames.
    Close(Box<Report>),
    /// One that is closed is over now.
    Over {
        /// Which one.
        id: String,
        /// After how long, ms.
        after_ms: f64,
    },
}

/// The near end.
pub(super) struct Writer {
    notes: Option<Sender<Note>>,
    thread: Option<JoinHandle<()>>,
    waiting: Arc<Waiting>,
    most_bytes: u64,
    telemetry: Arc<Telemetry>,
}

#[derive(Debug, Default)]
struct Waiting {
    frames: AtomicU64,
    bytes: AtomicU64,
    left_out: AtomicU64,
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unexpected`] when no thread can be had.
    pub(super) fn start(shelf: Shelf, memory: Bytes, board: Arc<Board>, telemetry: Arc<Telemetry>) -> Result<Self> {
        let (notes, told) = channel();
        let waiting = Arc::new(Waiting::default());
        let clerk = Clerk {
            space: SpaceWatch::new(shelf.folder()),
            shelf,
            open: Vec::new(),
            rows: Vec::new(),
            bytes: Vec::new(),
            waiting: Arc::clone(&waiting),
            board,
            telemetry: Arc::clone(&telemetry),
            complained: false,
        };
        let thread = std::thread::Builder::new()
            .name("incidents".into())
            .spawn(move || clerk.run(&told))
            .map_err(|error| Error::unexpected("the thread for incidents cannot be started").because(error))?;
        Ok(Writer { notes: Some(notes), thread: Some(thread), waiting, most_bytes: memory.0, telemetry })
    }

    /// Hands a frame of incident `id` over; its picture stays behind when too many of them wait already.
    pub(super) fn put(&self, id: &Arc<str>, shot: &Shot) {
        let mut shot = Box::new(shot.clone());
        let bytes = shot.picture_bytes();
        let dropped = || {
            self.waiting.left_out.fetch_add(1, Ordering::Relaxed);
            self.telemetry.count(Metric::IncidentFramesDropped, Labels::reason("writer_busy"));
        };
        if self.waiting.frames.load(Ordering::Relaxed) >= MOST_WAITING {
            dropped();
            return;
        }
        if self.waiting.bytes.load(Ordering::Relaxed) + bytes > self.most_bytes {
            dropped();
            shot.frame = None;
        }
        self.waiting.frames.fetch_add(1, Ordering::Relaxed);
        self.waiting.bytes.fetch_add(shot.picture_bytes(), Ordering::Relaxed);
        self.tell(Note::Frame(Arc::clone(id), shot));
    }

    /// Tells something that is never left out.
    pub(super) fn tell(&self, note: Note) {
        if let Some(notes) = &self.notes {
            let _gone = notes.send(note);
        }
    }

    /// Waits until everything is written, but not for ever.
    pub(super) fn finish(mut self) {
        self.notes = None;
        let Some(thread) = self.thread.take() else { return };
        let since = Instant::now();
        while !thread.is_finished() {
            if since.elapsed() > END_LIMIT {
                log::warn!("an incident is still being written; what is there is found by the next start");
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ended = thread.join();
    }
}

/// The far end.
struct Clerk {
    shelf: Shelf,
    space: SpaceWatch,
    /// What is being written: one incident an engine at most.
    open: Vec<OpenFolder>,
    rows: Vec<u8>,
    bytes: Vec<u8>,
    waiting: Arc<Waiting>,
    board: Arc<Board>,
    telemetry: Arc<Telemetry>,
    complained: bool,
}

struct OpenFolder {
    report: Report,
    part: PathBuf,
    lines: File,
    lines_bytes: u64,
    bytes: u64,
    /// Left out in all runs of the counter before this incident.
    left_out_before: u64,
    left_out: u64,
}

impl Clerk {
    fn run(mut self, told: &Receiver<Note>) {
        be_nice();
        self.show_used();
        while let Ok(note) = told.recv() {
            match note {
                Note::Open(report, manifest) => self.open(*report, manifest.as_deref()),
                Note::Frame(id, shot) => {
                    let bytes = shot.picture_bytes();
                    self.frame(&id, &shot);
                    self.waiting.frames.fetch_sub(1, Ordering::Relaxed);
                    self.waiting.bytes.fetch_sub(bytes, Ordering::Relaxed);
                }
                Note::Update(report) => self.update(*report),
                Note::Close(report) => self.close(*report),
                Note::Over { id, after_ms } => self.over(&id, after_ms),
            }
        }
    }

    fn at(&self, id: &str) -> Option<usize> {
        self.open.iter().position(|open| open.report.id == id)
    }

    fn open(&mut self, report: Report, manifest: Option<&[u8]>) {
        if self.space.room() == Room::Low {
            self.telemetry.count(Metric::IncidentFramesDropped, Labels::reason("low_space"));
            return;
        }
        let part = self.shelf.folder().join(format!(".{}.part", report.id));
        let made = std::fs::create_dir_all(part.join("pictures"))
            .and_then(|()| std::fs::write(part.join(MANIFEST), manifest.unwrap_or(b"{}")))
            .and_then(|()| std::fs::write(part.join(RESERVE), vec![0; RESERVE_BYTES]))
            .and_then(|()| File::create(part.join(FRAMES)));
        match made {
            Ok(lines) => {
                let left_out_before = self.waiting.left_out.load(Ordering::Relaxed);
                let bytes = count(manifest.map_or(2, <[u8]>::len));
                self.open.push(OpenFolder { report, part, lines, lines_bytes: 0, bytes, left_out_before, left_out: 0 });
                self.write_report(self.open.len() - 1);
            }
            Err(error) => {
                self.complain(&part, error);
                let _nothing_left = std::fs::remove_dir_all(&part);
            }
        }
    }

    fn frame(&mut self, id: &str, shot: &Shot) {
        let Some(at) = self.at(id) else {
            self.telemetry.count(Metric::IncidentFramesDropped, Labels::reason("write_error"));
            return;
        };
        let entry = self.picture(at, shot);
        let Some(open) = self.open.get_mut(at) else { return };
        let written = serde_json::to_vec(&shot.line(entry)).map_err(std::io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            // A line that does not fit leaves no half of itself: the next one would stand behind it.
            let appended = open.lines.write_all(&line).or_else(|error| {
                open.lines.set_len(open.lines_bytes)?;
                open.lines.seek(SeekFrom::End(0))?;
                Err(error)
            });
            appended.map(|()| count(line.len()))
        });
        match written {
            Ok(bytes) => {
                open.lines_bytes += bytes;
                open.bytes += bytes;
                open.report.frames += 1;
                self.telemetry.count(Metric::IncidentFrames, Labels::NONE);
            }
            Err(error) => {
                open.left_out += 1;
                let place = open.part.clone();
                self.failed(&place, error);
            }
        }
    }

    /// Packs and writes the picture; its entry name when it lies there.
    fn picture(&mut self, at: usize, shot: &Shot) -> Option<String> {
        let frame = shot.frame.as_ref()?;
        let packed = picture::pack(&frame.picture, &mut self.rows, &mut self.bytes);
        let open_bytes: u64 = self.open.iter().map(|open| open.bytes).sum();
        let open = self.open.get_mut(at)?;
        if let Err(error) = packed {
            log::debug!("a picture is not recorded: {error}");
            open.left_out += 1;
            self.telemetry.count(Metric::IncidentFramesDropped, Labels::reason("not_whole"));
            return None;
        }
        let bytes = count(self.bytes.len());
        let (removed, room) = self.shelf.make_room(open_bytes, bytes);
        self.telemetry.counter(Metric::IncidentsRemoved, Labels::NONE).add(removed);
        if !room || self.space.room() == Room::Low {
            open.left_out += 1;
            let reason = if room { "low_space" } else { "space_limit" };
            self.telemetry.count(Metric::IncidentFramesDropped, Labels::reason(reason));
            return None;
        }
        let entry = format!("pictures/{:06}.png", open.report.frames);
        let path = open.part.join(&entry);
        match std::fs::write(&path, &self.bytes) {
            Ok(()) => {
                open.bytes += bytes;
                Some(entry)
            }
            Err(error) => {
                open.left_out += 1;
                let _half = std::fs::remove_file(&path);
                self.failed(&path, error);
                None
            }
        }
    }

    fn failed(&mut self, place: &Path, error: std::io::Error) {
        if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
            self.space.is_full();
        }
        self.telemetry.count(Metric::IncidentFramesDropped, Labels::reason("write_error"));
        self.complain(place, error);
    }

    fn complain(&mut self, place: &Path, error: std::io::Error) {
        if !std::mem::replace(&mut self.complained, true) {
            log::error!("an incident is not written down: {}", crate::aside::cannot_write(place, error));
        }
    }

    fn update(&mut self, report: Report) {
        let Some(at) = self.at(&report.id) else { return };
        let open = &mut self.open[at];
        open.report = Report { frames: open.report.frames, ..report };
        self.write_report(at);
    }

    fn write_report(&mut self, at: usize) {
        let Some(open) = self.open.get_mut(at) else { return };
        let left_out = self.waiting.left_out.load(Ordering::Relaxed) - open.left_out_before + open.left_out;
        open.report.left_out = left_out;
        open.report.complete &= left_out == 0;
        if let Err(error) = replace_report(&open.part, &open.report) {
            log::debug!("an incident's report is not written: {error}");
        }
    }

    fn close(&mut self, report: Report) {
        let Some(at) = self.at(&report.id) else { return };
        let _freed = std::fs::remove_file(self.open[at].part.join(RESERVE));
        self.update(report);
        let open = self.open.remove(at);
        let whole = self.shelf.folder().join(&open.report.id);
        let named = open.lines.sync_all().and_then(|()| std::fs::rename(&open.part, &whole));
        match named {
            Ok(()) => {
                self.complained = false;
                let bytes = super::shelf::folder_bytes(&whole);
                self.shelf.add(&open.report.id, bytes);
                self.show_used();
                if open.report.reason != "asked" {
                    self.board.note_incident(note_of(&open.report, true));
                }
                log::warn!(
                    "incident {} is in {}: {} frames, {}",
                    open.report.id,
                    whole.display(),
                    open.report.frames,
                    Bytes(bytes)
                );
            }
            Err(error) => {
                self.complain(&whole, error);
                let _nothing_left = std::fs::remove_dir_all(&open.part);
            }
        }
    }

    fn over(&mut self, id: &str, after_ms: f64) {
        let folder = self.shelf.folder().join(id);
        let report = std::fs::read(folder.join(REPORT)).ok().and_then(|text| Report::parse(&text).ok());
        let Some(report) = report.filter(|_| self.shelf.has(id)) else { return };
        let report = Report { recovered_after_ms: Some(after_ms), ..report };
        if let Err(error) = replace_report(&folder, &report) {
            log::debug!("an incident's report is not written: {error}");
        }
        self.board.note_incident(note_of(&report, true));
    }

    fn show_used(&self) {
        self.telemetry.gauge(Metric::IncidentsUsed, Labels::NONE).set(float64(self.shelf.used_bytes()));
    }
}

fn replace_report(folder: &Path, report: &Report) -> Result<()> {
    let path = folder.join(REPORT);
    let mut file = AsideFile::create(&path)?;
    file.write_all(&report.to_json()?).map_err(|error| crate::aside::cannot_write(&path, error))?;
    file.commit()
}
