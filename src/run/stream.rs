//! One thread a camera: opens the source, measures each picture, hands it to the depot, and opens a lost source again.

use crate::camera::{self, Camera, Capture, SourceKind, SourceSpec};
use crate::error::Error;
use crate::frame::{Frame, StreamName};
use crate::guard::picture::PictureStats;
use crate::run::cameras::Beat;
use crate::run::clerk::Clerk;
use crate::run::depot::{Depot, Pushed, Sight, Work};
use crate::run::source::EngineSource;
use crate::run::stop::StopFlag;
use crate::sinks::http::Board;
use crate::telemetry::{Labels, Metric, Telemetry};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a stream thread needs.
pub(super) struct Stream {
    /// Index of the lane, the guard and the board entry.
    pub(super) index: usize,
    /// Sign of life, and what this thread is asked to do.
    pub(super) beat: Arc<Beat>,
    /// What may stand between a camera and the run.
    pub(super) source: Arc<dyn EngineSource>,
    /// Unique name.
    pub(super) name: StreamName,
    /// Where pictures come from.
    pub(super) spec: SourceSpec,
    /// Where captures go.
    pub(super) depot: Arc<Depot>,
    /// The parts.
    pub(super) clerk: Arc<Clerk>,
    /// What pages and health checks see.
    pub(super) board: Arc<Board>,
    /// Counters.
    pub(super) telemetry: Arc<Telemetry>,
    /// When to end.
    pub(super) stop: StopFlag,
    /// Set when a source of files fails, before its lane ends.
    pub(super) failed: Arc<AtomicBool>,
    /// Called with a part that found no room, to be answered at once.
    pub(super) refused: Box<dyn Fn(Box<Work>) + Send>,
}

/// How the loop over one opened source ended.
enum Ended {
    ByItself,
    Stopped,
    Lost(Error),
}

impl Stream {
    /// Patience with a silent source before looking at the stop flag again.
    const PATIENCE: Duration = Duration::from_millis(200);

    /// Runs until the source ends or the run stops. `opened` is the source when the start already opened it.
    ///
    /// Returns the error that ended a source of files; a live source is opened again for ever, with back-off.
    pub(super) fn run(self, opened: Option<Box<dyn Camera>>) -> Option<Error> {
        let error = self.until_the_end(opened);
        if self.beat.is_given_up() {
            return None;
        }
        if let Some(error) = &error {
            self.failed.store(true, Ordering::Release);
            self.board.source_lost(&self.name, error.message());
        }
        self.depot.end(self.index);
        error
    }

    fn until_the_end(&self, mut opened: Option<Box<dyn Camera>>) -> Option<Error> {
        let mut pauses = camera::reopen::Backoff::for_cameras(self.seed());
        loop {
            self.beat.moved();
            let mut camera = match opened.take() {
                Some(camera) => camera,
                None => match camera::open(&self.spec, Arc::clone(&self.name)) {
                    Ok(camera) => self.source.fit_camera(&self.name, camera),
                    Err(error) if self.spec.kind() == SourceKind::Files => return Some(error),
                    Err(error) => {
                        let pause = next_pause(&mut pauses);
                        log::warn!("stream {}: {error}\n  next attempt in {:.1} s", self.name, pause.as_secs_f64());
                        self.board.source_lost(&self.name, error.message());
                        if self.rest(pause) {
                            return None;
                        }
                        continue;
                    }
                },
            };
            let info = camera.info();
            log::info!("stream {}: {}", self.name, info.description);
            self.board.source_back(&self.name);
            let since = Instant::now();
            match self.capture(camera.as_mut(), &mut pauses) {
                Ended::ByItself | Ended::Stopped => return None,
                Ended::Lost(error) if info.kind == SourceKind::Files => return Some(error),
                Ended::Lost(error) => {
                    self.board.source_lost(&self.name, error.message());
                    self.telemetry.count(Metric::SourceReopened, Labels::stream(&self.name).because("lost"));
                    log::warn!("stream {}: lost after {:.1} s: {error}", self.name, since.elapsed().as_secs_f64());
                }
            }
            // Close before opening again: a camera that is still held cannot be opened a second time.
            drop(camera);
            if self.rest(next_pause(&mut pauses)) {
                return None;
            }
        }
    }

    /// Sleeps with a sign of life; whether the thread is to end.
    fn rest(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        loop {
            self.beat.moved();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.stop.sleep(left.min(Duration::from_secs(1))) {
                return self.stop.is_raised() || self.beat.is_given_up();
            }
        }
    }

    /// This thread takes the place of one that is stuck in a read.
    pub(super) fn says_stuck(&self, still_for: Duration) {
        let why = format!("the read has not come back for {:.0} s", still_for.as_secs_f64());
        log::error!("stream {}: {why}; opening the source again beside it", self.name);
        self.board.source_lost(&self.name, &why);
        self.telemetry.count(Metric::SourceReopened, Labels::stream(&self.name).because("stuck"));
    }

    /// Spreads the attempts of several cameras: each stream its own sequence.
    fn seed(&self) -> u64 {
        self.name
            .bytes()
            .fold(u64::from(std::process::id()), |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)))
    }

    fn capture(&self, camera: &mut dyn Camera, pauses: &mut camera::reopen::Backoff) -> Ended {
        let captured = self.telemetry.counter(Metric::FramesCaptured, Labels::stream(&self.name));
        let replaced = self.telemetry.counter(Metric::FramesDropped, Labels::stream(&self.name).because("newer_frame"));
        while !self.stop.is_raised() {
            self.beat.moved();
            let next = camera.next(Self::PATIENCE);
            if self.beat.is_given_up() {
                return Ended::Stopped;
            }
            if self.beat.take_reopen() {
                return Ended::Lost(Error::source_failed("the pictures stay bad"));
            }
            let work = match next {
                Ok(Capture::Frame(frame)) => {
                    pauses.reset();
                    self.with_part(frame)
                }
                Ok(Capture::Unreadable { number, captured_at, source, why }) => Work {
                    number,
                    captured_at,
                    source,
                    arrived: Instant::now(),
                    part: self.clerk.claim(self.index, Instant::now()),
                    picture: Sight::Unreadable(why),
                },
                Ok(Capture::Nothing) => continue,
                Ok(Capture::End) => return Ended::ByItself,
                Err(error) => return Ended::Lost(error),
            };
            captured.increment();
            self.board.frame_arrived(&self.name);
            match self.depot.push(self.index, Box::new(work), || {
                self.beat.moved();
                !self.stop.is_raised()
            }) {
                Pushed::Waiting => {}
                Pushed::Replaced => replaced.increment(),
                Pushed::Refused(work) => (self.refused)(work),
                Pushed::Closed => return Ended::Stopped,
            }
        }
        Ended::Stopped
    }

    /// Measures the picture and finds the part it was taken for: its own, or a trigger that waits.
    fn with_part(&self, frame: Arc<Frame>) -> Work {
        let part = match &frame.part {
            Some(tag) => match self.clerk.open(self.index, &tag.id, frame.arrived) {
                Ok(opened) => Some(opened.tag),
                Err(error) => {
                    log::warn!("stream {}: part `{}` not taken: {error}", self.name, tag.id);
                    None
                }
            },
            None => self.clerk.claim(self.index, frame.arrived),
        };
        let stats = PictureStats::measure(&frame.picture);
        Work {
            number: frame.number,
            captured_at: frame.captured_at,
            source: frame.source.clone(),
            arrived: frame.arrived,
            part,
            picture: Sight::Frame(frame, Box::new(stats)),
        }
    }
}

fn next_pause(pauses: &mut camera::reopen::Backoff) -> Duration {
    pauses.next().unwrap_or(Duration::from_secs(10))
}
