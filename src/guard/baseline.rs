//! Baselines: what good frames of one stream and one product look like on this line.
//!
//! The **anchor** is fixed: the reference in the bundle, or, where it has none, the first good frames of the line, or what a
//! person has accepted. The **rolling** one is the last whole block of good frames. An answer must fit both: the anchor
//! sees a slow drift that the rolling one follows, the rolling one a sudden change that a wide anchor allows. Neither
//! excuses what the other sees, and nothing but a person's `accept` ever moves an anchor.

use super::Reference;
use super::picture::PictureStats;
use super::reference::ReferenceBuilder;
use crate::detections::Detection;
use crate::error::{Error, Result};
use crate::units::{count32, index, round_px};
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// What soft checks may do. Hard checks act in both modes, from the first frame on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GuardMode {
    /// They act as soon as there is a reference.
    #[default]
    Act,
    /// They only observe.
    Observe,
}

impl FromStr for GuardMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "act" => Ok(GuardMode::Act),
            "observe" => Ok(GuardMode::Observe),
            _ => Err(Error::usage(format!("found `{text}`, expected act or observe"))),
        }
    }
}

/// Whether soft checks act on a stream, as the page says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(tag = "soft_checks", rename_all = "snake_case")]
pub enum Standing {
    /// They act.
    #[default]
    Act,
    /// They observe while a reference is learnt.
    Learn {
        /// Good frames so far.
        good: u32,
        /// Good frames that make a reference.
        wanted: u32,
    },
    /// They only observe: asked for, or there is no reference and none can be learnt.
    Observe,
}

/// Where an anchor came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnchorFrom {
    /// The first good frames of this line, because the bundle has no reference.
    Learnt,
    /// `edge-run baseline accept`.
    Accepted,
}

/// Distributions of a block of good frames, and when it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// When the block ended, RFC 3339.
    pub at: String,
    /// The distributions.
    pub reference: Reference,
}

/// An anchor that does not come from the bundle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anchor {
    /// Where it came from.
    pub from: AnchorFrom,
    /// When it was made, RFC 3339.
    pub at: String,
    /// The distributions.
    pub reference: Reference,
}

/// What is kept for one stream, one product and one bundle.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Baseline {
    /// Learnt or accepted; without one, the bundle's reference is the anchor.
    pub anchor: Option<Anchor>,
    /// The last whole block of good frames.
    pub rolling: Option<Block>,
}

/// A baseline in use: shared by every guard of the stream and by whoever saves it.
#[derive(Debug, Default)]
pub struct Record {
    baseline: Mutex<Baseline>,
    changes: AtomicU64,
}

impl Record {
    /// A record that begins with `baseline`.
    pub fn of(baseline: Baseline) -> Arc<Self> {
        Arc::new(Record { baseline: Mutex::new(baseline), changes: AtomicU64::new(0) })
    }

    fn lock(&self) -> MutexGuard<'_, Baseline> {
        self.baseline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often it has changed; to be compared with an earlier value.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The baseline as it is now.
    pub fn baseline(&self) -> Baseline {
        self.lock().clone()
    }

    /// A block of good frames is whole: it becomes the rolling baseline, and the anchor when there is none and one `is_wanted`.
    pub(super) fn block_done(&self, reference: Reference, is_wanted: bool) {
        let at = text(SystemTime::now());
        let mut baseline = self.lock();
        if is_wanted && baseline.anchor.is_none() {
            let anchor = Anchor { from: AnchorFrom::Learnt, at: at.clone(), reference: reference.clone() };
            baseline.anchor = Some(anchor);
        }
        baseline.rolling = Some(Block { at, reference });
        drop(baseline);
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// The rolling baseline becomes the anchor. The new anchor and the one before.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] when there is no whole block of good frames yet.
    pub fn accept(&self) -> Result<(Anchor, Option<Anchor>)> {
        let mut baseline = self.lock();
        let accepted = baseline.accept()?;
        drop(baseline);
        self.changes.fetch_add(1, Ordering::AcqRel);
        Ok(accepted)
    }
}

impl Baseline {
    /// As [`Record::accept`].
    ///
    /// # Errors
    /// As [`Record::accept`].
    pub fn accept(&mut self) -> Result<(Anchor, Option<Anchor>)> {
        let Some(rolling) = &self.rolling else {
            return Err(Error::usage("found no whole block of good frames yet, expected one to accept")
                .hint("let the line run on good parts until `edge-run baseline show` lists a rolling baseline"));
        };
        let (from, at) = (AnchorFrom::Accepted, text(SystemTime::now()));
        let anchor = Anchor { from, at, reference: rolling.reference.clone() };
        let before = self.anchor.replace(anchor.clone());
        Ok((anchor, before))
    }
}

fn text(time: SystemTime) -> String {
    OffsetDateTime::from(time).format(&Rfc3339).unwrap_or_default()
}

/// Boxes of a block whose single scores and edges are kept.
const MOST_BOXES: usize = 16_384;

/// Collects good frames into blocks. Allocates nothing between the ends of blocks.
#[derive(Debug)]
pub(super) struct Learner {
    builder: ReferenceBuilder,
    wanted: u64,
}

impl Learner {
    /// Blocks of `frames` frames; `None` for 0.
    pub(super) fn new(frames: f64, classes: usize) -> Option<Self> {
        let wanted = round_px(frames);
        let builder = || ReferenceBuilder::bounded(index(wanted.min(100_000)), MOST_BOXES, classes);
        (wanted > 0).then(|| Learner { builder: builder(), wanted: u64::from(wanted) })
    }

    /// Good frames in the present block, and how many make one.
    pub(super) fn progress(&self) -> (u32, u32) {
        let number = |frames: u64| count32(usize::try_from(frames).unwrap_or(usize::MAX));
        (number(self.builder.pictures()), number(self.wanted))
    }

    /// A good frame; the block's distributions when it is whole.
    pub(super) fn take(&mut self, stats: &PictureStats, boxes: &[Detection]) -> Option<Reference> {
        self.builder.add(stats, boxes, stats.size);
        if self.builder.pictures() < self.wanted {
            return None;
        }
        let reference = self.builder.finish();
        self.builder.clear();
        Some(reference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_block_is_the_anchor_where_one_is_wanted_and_later_ones_only_roll() {
        let block = |pictures| Reference { pictures, ..Reference::default() };
        let record = Record::of(Baseline::default());
        assert!(record.accept().unwrap_err().message().contains("no whole block"));
        record.block_done(block(1), true);
        record.block_done(block(2), true);
        let baseline = record.baseline();
        assert_eq!(
            baseline.anchor.as_ref().map(|anchor| (anchor.from, anchor.reference.pictures)),
            Some((AnchorFrom::Learnt, 1))
        );
        assert_eq!(baseline.rolling.unwrap().reference.pictures, 2);
        let (now, before) = record.accept().unwrap();
        assert_eq!(
            (now.from, now.reference.pictures, before.unwrap().reference.pictures),
            (AnchorFrom::Accepted, 2, 1)
        );
        record.block_done(block(3), true);
        assert_eq!(record.baseline().anchor.unwrap().reference.pictures, 2);
        assert_eq!(record.changes(), 4);
        let with_bundle = Record::of(Baseline::default());
        with_bundle.block_done(block(1), false);
        assert_eq!(with_bundle.baseline().anchor, None);
    }

    #[test]
    fn modes_are_two_words() {
        assert_eq!("observe".parse::<GuardMode>().unwrap(), GuardMode::Observe);
        assert!("off".parse::<GuardMode>().unwrap_err().message().contains("expected act or observe"));
    }
}
