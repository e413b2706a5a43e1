//! Shadow: both engines answer the same frames, and the new one's answers are only compared.

use super::{ReloadOptions, Stage};
use crate::bundle::golden::hard_fault;
use crate::bundle::manifest::{Manifest, ReloadRules};
use crate::detections::{Detection, Detector};
use crate::error::{Error, Result};
use crate::frame::Frame;
use crate::run::inspector::Inspector;
use crate::run::ready::{self, Ready};
use crate::run::service::{Service, short};
use crate::units::{float64, length};
use std::sync::Arc;
use std::time::Instant;

/// A new engine that answers beside the old one.
pub(super) struct Shadow {
    ready: Ready,
    detector: Detector,
    boxes: Vec<Detection>,
    frames: u64,
    agreement: f64,
    since: Instant,
    /// Frames that are wanted; 0 for a rollback, which only waits for a moment without parts.
    wanted: u64,
    /// Only waits for the batches in flight.
    pub(super) holds: bool,
}

impl Service<'_> {
    pub(super) fn begin_shadow(&mut self, ready: Ready) {
        let manifest = ready.bundle.manifest();
        match Detector::new(&manifest.thresholds, &manifest.classes) {
            Ok(detector) => {
                let rules = self.rules_of(manifest);
                let wanted = if self.rolling_back { 0 } else { rules.shadow_frames };
                self.keep_books(Some(&ready.bundle));
                let boxes = Vec::with_capacity(300);
                let (frames, agreement, since, holds) = (0, 0.0, Instant::now(), false);
                self.reloader.stage =
                    Stage::Shadow(Box::new(Shadow { ready, detector, boxes, frames, agreement, since, wanted, holds }));
            }
            Err(error) => self.refuse(Some(ready.bundle.id().to_owned()), &error),
        }
    }

    /// What the bundle's recipe asks of the shadow, or what this run is set to.
    fn rules_of(&self, manifest: &Manifest) -> ReloadRules {
        let ReloadOptions { shadow_frames, agreement, .. } = self.options.service.reload;
        manifest.reload.unwrap_or(ReloadRules { shadow_frames, agreement })
    }

    /// Both engines answer this frame; the new one's answer is only compared.
    pub(in crate::run) fn shadow(&mut self, frame: &Arc<Frame>, judged: &[Detection]) {
        let Stage::Shadow(shadow) = &mut self.reloader.stage else { return };
        if shadow.frames >= shadow.wanted {
            return;
        }
        let board = &self.board;
        let answered = shadow.ready.host.call(Arc::clone(frame), None, shadow.ready.call_limit, &|| board.heartbeat());
        let compared = answered.map_err(ready::error_of).and_then(|inference| {
            let layout = &shadow.ready.host.info().layout;
            if let Some(fault) = hard_fault(&inference.stats, layout) {
                return Err(Error::refused(format!("the network's output is faulty: {fault}")));
            }
            shadow.detector.detect(&inference.candidates, &inference.letterbox, layout, &mut shadow.boxes);
            shadow.ready.host.recycle(inference);
            Ok(agreement(judged, &shadow.boxes))
        });
        match compared {
            Ok(agreement) => {
                shadow.frames += 1;
                shadow.agreement += agreement;
            }
            Err(error) => {
                let id = shadow.ready.bundle.id().to_owned();
                self.reloader.stage = Stage::Idle;
                self.refuse(Some(id), &error);
            }
        }
    }

    pub(super) fn look_at_shadow(&mut self, inspector: &mut Inspector, mut shadow: Box<Shadow>) -> Result<()> {
        let limits = &self.options.service.reload;
        let over = shadow.frames >= shadow.wanted || shadow.since.elapsed() >= limits.shadow_limit;
        // A part is answered by the engine that was there when it came.
        let may_swap = over && self.clerk.open_parts() == 0;
        shadow.holds = may_swap && inspector.in_flight() > 0;
        if !may_swap || shadow.holds {
            self.reloader.stage = Stage::Shadow(shadow);
            return Ok(());
        }
        let mean = if shadow.frames == 0 { 1.0 } else { shadow.agreement / float64(shadow.frames) };
        let id = shadow.ready.bundle.id().to_owned();
        let least = self.rules_of(shadow.ready.bundle.manifest()).agreement;
        if mean < least {
            let message = format!(
                "on {} frames the boxes of bundle {} agree to {mean:.2} with the running one's, expected at least {least:.2}",
                shadow.frames,
                short(&id),
            );
            self.refuse(Some(id), &Error::refused(message));
            return Ok(());
        }
        log::info!("reload: agreement {mean:.2} on {} frames", shadow.frames);
        self.swap(inspector, shadow.ready)
    }
}

/// Share of boxes that have a partner of the same class in the other answer: 2 × pairs ÷ boxes in both; 1 when both are empty.
fn agreement(these: &[Detection], those: &[Detection]) -> f64 {
    if these.is_empty() && those.is_empty() {
        return 1.0;
    }
    let mut taken = vec![false; those.len()];
    let mut pairs = 0_u32;
    for this in these {
        let best = (0..those.len())
            .filter(|&at| !taken[at] && those[at].class_id == this.class_id)
            .map(|at| (at, those[at].edges.iou(&this.edges)))
            .filter(|(_, iou)| *iou >= 0.5)
            .max_by(|left, right| left.1.total_cmp(&right.1));
        if let Some((at, _)) = best {
            taken[at] = true;
            pairs += 1;
        }
    }
    2.0 * f64::from(pairs) / length(these.len() + those.len())
}
