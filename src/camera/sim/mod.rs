//! The simulated line `sim:`: a conveyor rendered in this process, with known truth for every frame.
//!
//! Parts of several kinds, some defective, move under a camera with uneven light and noise. A script makes things happen
//! (frozen, black, blurred pictures, a bumped camera, a stopped line, …). Equal options give equal frames. See
//! `docs/simulated-line.md`.

mod backdrop;
mod defects;
mod line;
mod optics;
mod options;
mod random;
mod render;
mod script;
mod shapes;
mod sprite;
mod truth;

pub use line::Line;
pub use options::{SimOptions, Triggers};
pub use render::{RENDER_STRIDE, Rendered, render};
pub use script::{Event, Happening, Product, Script};
pub use truth::{CLASSES, FIRST_DEFECT, FrameTruth, PartTruth, TruthBox, TruthWriter};

use super::{Camera, Capture, SourceInfo, SourceKind};
use crate::error::Result;
use crate::frame::{Frame, PartTag, Picture, PixelFormat, PixelPool, StreamName};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The simulated line as a camera.
#[derive(Debug)]
pub struct SimCamera {
    options: SimOptions,
    stream: StreamName,
    line: Line,
    pool: Arc<PixelPool>,
    truth: Option<TruthWriter>,
    captured: u64,
    opened: Instant,
    opened_at: SystemTime,
}

/// A camera that is this late gives up the frames it missed, as a real one does.
const LATE: Duration = Duration::from_millis(500);

impl SimCamera {
    /// Opens the line for `stream`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for options that do not go together, [`crate::ErrorKind::Output`] when the truth file
    /// cannot be created.
    pub fn open(options: &SimOptions, stream: StreamName) -> Result<Self> {
        let truth = options.truth.as_deref().map(TruthWriter::create).transpose()?;
        Ok(SimCamera {
            line: Line::new(options)?,
            options: options.clone(),
            stream,
            pool: PixelPool::new(),
            truth,
            captured: 0,
            opened: Instant::now(),
            opened_at: SystemTime::now(),
        })
    }

    /// When the frame `tick` of the line is due, counted from opening.
    fn due(&self, tick: u64) -> Duration {
        Duration::from_secs_f64(crate::units::float64(tick) / f64::from(self.options.fps))
    }

    /// Waits for the next frame's time; false when `patience` ends before it.
    fn wait(&mut self, until: Instant) -> bool {
        if self.options.fast {
            return true;
        }
        let now = Instant::now();
        let due = self.opened + self.due(self.line.ticks());
        if due > until {
            std::thread::sleep(until.saturating_duration_since(now));
            return false;
        }
        if now > due + LATE {
            self.opened += now - due;
        }
        std::thread::sleep(due.saturating_duration_since(now));
        true
    }

    fn frame(&mut self, truth: &FrameTruth, tick: u64) -> Frame {
        let mut pixels = self.pool.take(self.line.picture_bytes());
        self.line.picture(pixels.as_mut_slice());
        let captured_at = if self.options.fast { self.opened_at + self.due(tick) } else { SystemTime::now() };
        let part = match (self.line.triggers(), &truth.part) {
            (Triggers::Mark | Triggers::Only, Some(part)) => Some(PartTag { id: Arc::clone(&part.id), deadline: None }),
            _ => None,
        };
        Frame {
            stream: Arc::clone(&self.stream),
            number: truth.frame,
            captured_at: Some(captured_at),
            arrived: Instant::now(),
            source: None,
            part,
            picture: Picture {
                size: self.options.size,
                stride_bytes: PixelFormat::Rgb8.row_bytes(self.options.size.width_px),
                format: PixelFormat::Rgb8,
                pixels,
            },
        }
    }
}

impl Camera for SimCamera {
    fn info(&self) -> SourceInfo {
        let SimOptions { seed, fps, size, script, fast, triggers, .. } = &self.options;
        let pace = if *fast { " as fast as taken" } else { "" };
        let parts = match triggers {
            Triggers::Off => "",
            Triggers::Mark => ", parts triggered",
            Triggers::Only => ", one picture a part",
        };
        SourceInfo {
            description: format!(
                "simulated line, {size} RGB at {fps} fps{pace}, script `{}`, seed {seed}{parts}",
                script.name
            ),
            kind: SourceKind::Live,
            related_frames: *triggers != Triggers::Only,
            triggers: *triggers != Triggers::Off,
            frames: self.options.frames,
        }
    }

    fn next(&mut self, patience: Duration) -> Result<Capture> {
        if self.options.frames.is_some_and(|frames| self.captured >= frames) {
            if let Some(truth) = &mut self.truth {
                truth.flush()?;
            }
            return Ok(Capture::End);
        }
        let until = Instant::now() + patience;
        loop {
            let tick = self.line.ticks();
            if !self.wait(until) {
                return Ok(Capture::Nothing);
            }
            let mut truth = self.line.advance();
            if self.options.triggers == Triggers::Only && truth.part.is_none() {
                if tick.is_multiple_of(256) && Instant::now() > until {
                    return Ok(Capture::Nothing);
                }
                continue;
            }
            truth.frame = self.captured;
            self.captured += 1;
            let frame = self.frame(&truth, tick);
            if let Some(writer) = &mut self.truth {
                writer.put(&truth)?;
            }
            return Ok(Capture::Frame(Arc::new(frame)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn camera(text: &str) -> SimCamera {
        SimCamera::open(&SimOptions::parse(text).unwrap(), "line".into()).unwrap()
    }

    fn frames(camera: &mut SimCamera) -> Vec<Arc<Frame>> {
        let mut frames = Vec::new();
        loop {
            match camera.next(Duration::from_secs(1)).unwrap() {
                Capture::Frame(frame) => frames.push(frame),
                Capture::End => return frames,
                other => panic!("found {other:?}"),
            }
        }
    }

    #[test]
    fn frames_are_numbered_whole_and_end_as_asked() {
        let mut camera = camera("sim:?size=320x192&fast&frames=70&triggers");
        let info = camera.info();
        assert!(info.triggers && info.related_frames && info.kind == SourceKind::Live);
        let frames = frames(&mut camera);
        assert_eq!(frames.len(), 70);
        for (number, frame) in frames.iter().enumerate() {
            assert_eq!(frame.number, number as u64);
            assert!(frame.picture.is_whole());
        }
        assert!(frames.iter().any(|frame| frame.part.is_some()));
        assert!(frames.iter().any(|frame| frame.part.is_none()));
        let seconds = |index: usize| frames[index].captured_at.unwrap();
        assert_eq!(seconds(60).duration_since(seconds(0)).unwrap().as_millis(), 2000);
    }

    #[test]
    fn a_triggered_camera_gives_one_frame_a_part_and_the_truth_beside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("truth.jsonl");
        let text = format!("sim:?size=320x192&fast&frames=12&triggers=only&truth={}", path.display());
        let frames = frames(&mut camera(&text));
        let truth = std::fs::read_to_string(&path).unwrap();
        let truth: Vec<FrameTruth> = truth.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((frames.len(), truth.len()), (12, 12));
        for (frame, truth) in frames.iter().zip(&truth) {
            assert_eq!(frame.number, truth.frame);
            assert_eq!(frame.part.as_ref().unwrap().id, truth.part.as_ref().unwrap().id);
        }
    }

    #[test]
    fn a_paced_camera_keeps_its_rate_and_honours_patience() {
        let mut camera = camera("sim:?size=160x96&fps=50&frames=6");
        let began = Instant::now();
        let mut nothing = 0;
        let mut taken = 0;
        loop {
            match camera.next(Duration::from_millis(4)).unwrap() {
                Capture::Frame(_) => taken += 1,
                Capture::Nothing => nothing += 1,
                Capture::End => break,
                other => panic!("found {other:?}"),
            }
        }
        assert_eq!(taken, 6);
        assert!(nothing > 0);
        assert!(began.elapsed() >= Duration::from_millis(95), "{:?}", began.elapsed());
    }

    #[test]
    fn a_truth_file_that_cannot_be_created_is_an_output_error() {
        let options = SimOptions::parse("sim:?truth=/dev/null/truth.jsonl").unwrap();
        let error = SimCamera::open(&options, "line".into()).unwrap_err();
        assert_eq!(error.kind().exit_code(), 11);
    }
}
