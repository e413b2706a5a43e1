//! A camera that goes wrong by the plan.

use super::{FaultKind, Injector};
use crate::camera::{Camera, Capture, CaptureLosses, SourceInfo};
use crate::error::{Error, Result};
use crate::frame::{Frame, PixelBuffer};
use std::sync::Arc;
use std::time::Duration;

pub(super) struct FaultyCamera {
    inner: Box<dyn Camera>,
    injector: Arc<Injector>,
    last: Option<Arc<Frame>>,
    captured: u64,
}

impl FaultyCamera {
    pub(super) fn over(inner: Box<dyn Camera>, injector: &Arc<Injector>) -> Self {
        FaultyCamera { inner, injector: Arc::clone(injector), last: None, captured: 0 }
    }

    fn with_pixels(frame: &Frame, pixels: PixelBuffer) -> Arc<Frame> {
        Arc::new(Frame {
            stream: Arc::clone(&frame.stream),
            number: frame.number,
            captured_at: frame.captured_at,
            arrived: frame.arrived,
            source: frame.source.clone(),
            part: frame.part.clone(),
            picture: crate::frame::Picture {
                size: frame.picture.size,
                stride_bytes: frame.picture.stride_bytes,
                format: frame.picture.format,
                pixels,
            },
        })
    }
}

impl Camera for FaultyCamera {
    fn info(&self) -> SourceInfo {
        self.inner.info()
    }

    fn next(&mut self, patience: Duration) -> Result<Capture> {
        let captured = self.inner.next(patience)?;
        let Capture::Frame(frame) = captured else { return Ok(captured) };
        self.captured += 1;
        let mut shown = Arc::clone(&frame);
        let mut spoiled = false;
        for fault in self.injector.active(true, self.captured, 1, None) {
            let old = self.last.as_ref().map(|last| last.picture.pixels.as_slice().to_vec());
            match (fault.kind, old) {
                (FaultKind::Vanish, _) => return Err(Error::source_failed("the camera is gone (injected)")),
                (FaultKind::CameraStuck, _) => std::thread::sleep(Duration::from_secs_f64(fault.amount)),
                (FaultKind::Freeze, Some(old)) => {
                    shown = Self::with_pixels(&frame, old.into());
                    spoiled = true;
                }
                (FaultKind::Tear, Some(old)) => {
                    let mut pixels = frame.picture.pixels.as_slice().to_vec();
                    let half = pixels.len() / 2;
                    pixels[half..].copy_from_slice(&old[half..]);
                    shown = Self::with_pixels(&frame, pixels.into());
                    spoiled = true;
                }
                _ => {}
            }
        }
        if !spoiled {
            self.last = Some(frame);
        }
        Ok(Capture::Frame(shown))
    }

    fn losses(&self) -> CaptureLosses {
        self.inner.losses()
    }
}
