//! A folder that plays a live camera: paced, endless on wish, shuffled by seed, one round like any other.

use super::files::{self, PictureList};
use super::spec::{Memory, ReplayOptions};
use super::{Camera, Capture, SourceInfo, SourceKind};
use crate::error::Result;
use crate::frame::StreamName;
use crate::units::count;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// See the module.
#[derive(Debug)]
pub(crate) struct ReplaySource {
    stream: StreamName,
    memory: Arc<Memory>,
    options: ReplayOptions,
    list: PictureList,
    order: Vec<usize>,
    position: usize,
    round: u64,
    period: Duration,
    due: Instant,
}

impl ReplaySource {
    /// Lists the folder; pictures are decoded when they are due.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Source`] when the folder is missing, unreadable or without pictures.
    pub(crate) fn open(options: &ReplayOptions, stream: StreamName, memory: Arc<Memory>) -> Result<Self> {
        let list = PictureList::of_folder(&options.folder)?;
        let mut source = ReplaySource {
            stream,
            memory,
            options: options.clone(),
            order: (0..list.paths.len()).collect(),
            list,
            position: 0,
            round: 0,
            period: Duration::from_secs_f64(1.0 / options.rate_fps),
            due: Instant::now(),
        };
        source.shuffle();
        Ok(source)
    }

    /// Fisher and Yates, with a generator seeded by seed and round.
    fn shuffle(&mut self) {
        let Some(seed) = self.options.shuffle_seed else { return };
        let mut state = seed.wrapping_add(self.round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for last in (1..self.order.len()).rev() {
            let chosen = split_mix(&mut state) % (count(last) + 1);
            self.order.swap(last, usize::try_from(chosen).unwrap_or(last));
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(super) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *state;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Camera for ReplaySource {
    fn info(&self) -> SourceInfo {
        let pictures = self.list.paths.len();
        let order = match self.options.shuffle_seed {
            Some(seed) => format!("shuffled by seed {seed}"),
            None => "by name".to_owned(),
        };
        let endless = if self.options.endless { ", endless" } else { "" };
        SourceInfo {
            description: format!(
                "replay of {}: {pictures} pictures at {} frames/s, {order}{endless}",
                self.options.folder.display(),
                self.options.rate_fps
            ),
            kind: SourceKind::Live,
            related_frames: false,
            triggers: false,
            frames: if self.options.endless { None } else { Some(count(pictures)) },
        }
    }

    fn next(&mut self, patience: Duration) -> Result<Capture> {
        if self.position == self.order.len() {
            if !self.options.endless {
                return Ok(Capture::End);
            }
            self.position = 0;
            self.round += 1;
            self.shuffle();
        }
        let wait = self.due.saturating_duration_since(Instant::now());
        if wait > patience {
            std::thread::sleep(patience);
            return Ok(Capture::Nothing);
        }
        std::thread::sleep(wait);
        let now = Instant::now();
        // A reader that is late by more than a period does not get a burst afterwards: a camera would not give one.
        self.due = if now > self.due + self.period { now + self.period } else { self.due + self.period };
        let index = self.order[self.position];
        self.position += 1;
        Ok(files::capture(&self.list, index, &self.stream, &self.memory, Some(SystemTime::now())))
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
