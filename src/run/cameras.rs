//! The camera threads from outside: a read that never ends gets a new thread beside it, and pictures that stay bad have their
//! camera opened again.

use crate::camera::{Camera, SourceKind};
use crate::error::{Error, Result};
use crate::guard::{Reason, Side, Trust};
use crate::run::Options;
use crate::run::stream::Stream;
use crate::sinks::row::Row;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A sign of life of one camera thread, and what it is asked to do.
#[derive(Debug)]
pub(super) struct Beat {
    since: Instant,
    moved_ms: AtomicU64,
    given_up: AtomicBool,
    reopen: AtomicBool,
}

impl Beat {
    fn new() -> Arc<Self> {
        Arc::new(Beat {
            since: Instant::now(),
            moved_ms: AtomicU64::new(0),
            given_up: AtomicBool::new(false),
            reopen: AtomicBool::new(false),
        })
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The thread moves.
    pub(super) fn moved(&self) {
        self.moved_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// Whether another thread has taken this one's place.
    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// Whether the camera is to be closed and opened again; answers yes once.
    pub(super) fn take_reopen(&self) -> bool {
        self.reopen.swap(false, Ordering::AcqRel)
    }

    fn still_for(&self) -> Duration {
        Duration::from_millis(self.now_ms().saturating_sub(self.moved_ms.load(Ordering::Relaxed)))
    }
}

/// Makes the thread's work for the stream with this index.
type Make<'a> = &'a (dyn Fn(usize, Arc<Beat>) -> Stream + Sync);

struct Place {
    beat: Arc<Beat>,
    thread: JoinHandle<Option<Error>>,
    live: bool,
    bad_in_a_row: u32,
    bad_since: Instant,
}

/// All camera threads of a run.
pub(super) struct Cameras<'a> {
    make: Make<'a>,
    places: Vec<Place>,
    left_behind: Vec<JoinHandle<Option<Error>>>,
    looked: Instant,
    stuck_after: Duration,
}

impl<'a> Cameras<'a> {
    /// Threads left behind in calls that never end; beyond this, a stuck camera stays lost.
    const MOST_LEFT_BEHIND: usize = 8;
    /// Bad pictures in a row, and over at least this time, before a camera is opened again.
    const BAD_FRAMES: u32 = 30;
    const BAD_FOR: Duration = Duration::from_secs(2);

    /// Starts one thread a stream.
    pub(super) fn start(opened: Vec<Option<Box<dyn Camera>>>, make: Make<'a>, options: &Options) -> Result<Self> {
        let mut places = Vec::new();
        for (index, (camera, stream)) in opened.into_iter().zip(&options.streams).enumerate() {
            let beat = Beat::new();
            let thread = spawn(make(index, Arc::clone(&beat)), camera)?;
            let live = stream.spec.kind() == SourceKind::Live;
            places.push(Place { beat, thread, live, bad_in_a_row: 0, bad_since: Instant::now() });
        }
        let stuck_after = options.service.camera_stuck_after;
        Ok(Cameras { make, places, left_behind: Vec::new(), looked: Instant::now(), stuck_after })
    }

    /// Looks for threads that stand still; called by the loop over captures, works at most twice a second.
    pub(super) fn look(&mut self) {
        if self.looked.elapsed() < Duration::from_millis(500) {
            return;
        }
        self.looked = Instant::now();
        self.left_behind.retain(|thread| !thread.is_finished());
        for (index, place) in self.places.iter_mut().enumerate() {
            let stuck = place.live && !place.thread.is_finished() && place.beat.still_for() > self.stuck_after;
            if !stuck || self.left_behind.len() >= Self::MOST_LEFT_BEHIND {
                continue;
            }
            place.beat.given_up.store(true, Ordering::Release);
            let beat = Beat::new();
            let stream = (self.make)(index, Arc::clone(&beat));
            stream.says_stuck(place.beat.still_for());
            match spawn(stream, None) {
                Ok(thread) => {
                    place.beat = beat;
                    self.left_behind.push(std::mem::replace(&mut place.thread, thread));
                }
                Err(error) => log::error!("{error}"),
            }
        }
    }

    /// Counts bad pictures of a live camera; after enough of them in a row it is opened again.
    pub(super) fn note(&mut self, index: usize, row: &Row) {
        let Some(place) = self.places.get_mut(index).filter(|place| place.live) else { return };
        let bad = |reason: &Reason| reason.side() == Side::Picture;
        if row.trust != Trust::Fault || !row.reasons.iter().any(bad) {
            place.bad_in_a_row = 0;
            return;
        }
        if place.bad_in_a_row == 0 {
            place.bad_since = Instant::now();
        }
        place.bad_in_a_row += 1;
        if place.bad_in_a_row >= Self::BAD_FRAMES && place.bad_since.elapsed() >= Self::BAD_FOR {
            let reasons: Vec<&str> = row.reasons.iter().map(|reason| reason.name()).collect();
            log::warn!(
                "stream {}: {} bad pictures ({}): opening it again",
                row.stream,
                place.bad_in_a_row,
                reasons.join(", ")
            );
            place.bad_in_a_row = 0;
            place.beat.reopen.store(true, Ordering::Release);
        }
    }

    /// Waits until all threads have ended, but not for ever; the errors that ended sources of files.
    pub(super) fn finish(&mut self) -> Vec<Error> {
        const LIMIT: Duration = Duration::from_secs(3);
        let since = Instant::now();
        let mut errors = Vec::new();
        for place in self.places.drain(..) {
            while !place.thread.is_finished() && since.elapsed() < LIMIT {
                std::thread::sleep(Duration::from_millis(5));
            }
            if place.thread.is_finished() {
                errors.extend(place.thread.join().ok().flatten());
            }
        }
        errors
    }
}

fn spawn(stream: Stream, camera: Option<Box<dyn Camera>>) -> Result<JoinHandle<Option<Error>>> {
    std::thread::Builder::new()
        .name(format!("camera {}", stream.name))
        .spawn(move || stream.run(camera))
        .map_err(|error| Error::unexpected("a camera's thread cannot be started").because(error))
}
