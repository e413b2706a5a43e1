//! Detections against the truth of the simulated line, the obvious way.

use edge_trt::camera::sim::{FrameTruth, TruthBox};
use edge_trt::detections::Detection;

/// What was right and wrong over all frames, at IoU 0.5.
#[derive(Debug, Default)]
pub(crate) struct Score {
    pub(crate) right: u64,
    pub(crate) missed: u64,
    pub(crate) wrong: u64,
    /// One line for each mistake.
    pub(crate) mistakes: Vec<String>,
}

impl Score {
    /// Adds one frame. Boxes that the picture's edge cuts to less than half are neither asked for nor held against.
    pub(crate) fn add(&mut self, truth: &FrameTruth, detections: &[Detection]) {
        let mut used = vec![false; truth.boxes.len()];
        for found in detections {
            let best = (0..truth.boxes.len())
                .filter(|&index| !used[index] && truth.boxes[index].class_id == found.class_id)
                .map(|index| (index, truth.boxes[index].edges.iou(&found.edges)))
                .max_by(|a, b| a.1.total_cmp(&b.1));
            match best {
                Some((index, iou)) if iou >= 0.5 => {
                    used[index] = true;
                    self.right += u64::from(truth.boxes[index].counts());
                }
                _ if truth.boxes.iter().any(|seen| cut_and_covered(seen, found)) => {}
                _ => {
                    self.wrong += 1;
                    self.mistakes.push(format!("frame {}: nothing at {found:?}", truth.frame));
                }
            }
        }
        for (seen, used) in truth.boxes.iter().zip(used) {
            if seen.counts() && !used {
                self.missed += 1;
                self.mistakes.push(format!("frame {}: not found: {seen:?}", truth.frame));
            }
        }
    }

    pub(crate) fn precision(&self) -> f64 {
        self.right as f64 / (self.right + self.wrong).max(1) as f64
    }

    pub(crate) fn recall(&self) -> f64 {
        self.right as f64 / (self.right + self.missed).max(1) as f64
    }
}

fn cut_and_covered(seen: &TruthBox, found: &Detection) -> bool {
    let both = edge_trt::units::BoxPx::new(
        seen.edges.left_px.max(found.edges.left_px),
        seen.edges.top_px.max(found.edges.top_px),
        seen.edges.right_px.min(found.edges.right_px),
        seen.edges.bottom_px.min(found.edges.bottom_px),
    );
    !seen.counts() && seen.class_id == found.class_id && both.area_px2() > 0.5 * found.edges.area_px2()
}
