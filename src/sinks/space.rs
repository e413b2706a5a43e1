//! Leaves room on the disk: writing stops below a least free space and goes on when space is back.

use crate::ffi::storage::{Space, space};
use crate::units::Bytes;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Least free space: this, or 5 % of the file system where that is less.
pub const LEAST_FREE: Bytes = Bytes::gib(1);

const ASK_EVERY: Duration = Duration::from_millis(500);

/// Whether there is room to write, asked of the file system at most twice a second.
#[derive(Debug)]
pub struct SpaceWatch {
    folder: PathBuf,
    asked: Option<Instant>,
    room: bool,
}

/// What [`SpaceWatch::room`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// There is room.
    Enough,
    /// The file system is nearly full: write nothing.
    Low,
}

impl SpaceWatch {
    /// Watches the file system that holds `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        SpaceWatch { folder: folder.into(), asked: None, room: true }
    }

    /// Whether there is room now. A change is written to the log. A file system that does not answer counts as having
    /// room: the write itself will tell.
    pub fn room(&mut self) -> Room {
        if self.asked.is_none_or(|asked| asked.elapsed() >= ASK_EVERY) {
            self.asked = Some(Instant::now());
            if let Ok(found) = space(&self.folder) {
                self.judge(found);
            }
        }
        if self.room { Room::Enough } else { Room::Low }
    }

    /// A write failed because the file system is full: no room until it is asked again.
    pub fn is_full(&mut self) {
        self.asked = Some(Instant::now());
        self.set(false, None);
    }

    /// Stops below the limit, goes on at a tenth above it, so that the edge does not flicker.
    fn judge(&mut self, found: Space) {
        let limit = LEAST_FREE.0.min(found.total_bytes / 20);
        let needed = if self.room { limit } else { limit + limit / 10 };
        self.set(found.free_bytes >= needed && found.free_bytes > 0, Some((found, limit)));
    }

    fn set(&mut self, room: bool, found: Option<(Space, u64)>) {
        if room == self.room {
            return;
        }
        self.room = room;
        let folder = self.folder.display();
        match (room, found) {
            (true, _) => log::info!("{folder}: there is space again, writing goes on"),
            (false, Some((space, limit))) => log::warn!(
                "{folder}: {} free, at least {} are to stay free: nothing more is written, results are counted as dropped",
                Bytes(space.free_bytes),
                Bytes(limit)
            ),
            (false, None) => log::warn!("{folder}: the disk is full: results are counted as dropped"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_below_the_limit_and_resumes_a_tenth_above() {
        let mut watch = SpaceWatch::new("/");
        let total_bytes = Bytes::gib(100).0;
        for (free, room) in [
            (Bytes::gib(2), true),
            (Bytes::gib(1), true),
            (Bytes(Bytes::gib(1).0 - 1), false),
            (Bytes::gib(1), false),
            (Bytes::mib(1200), true),
        ] {
            watch.judge(Space { free_bytes: free.0, total_bytes });
            assert_eq!(watch.room, room, "{free}");
        }
    }

    #[test]
    fn a_small_file_system_keeps_a_twentieth() {
        let mut watch = SpaceWatch::new("/");
        let total_bytes = Bytes::mib(100).0;
        watch.judge(Space { free_bytes: Bytes::mib(6).0, total_bytes });
        assert!(watch.room);
        watch.judge(Space { free_bytes: Bytes::mib(4).0, total_bytes });
        assert!(!watch.room);
    }
}
