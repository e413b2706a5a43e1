//! A file that is looked at without reading it: changed, and at rest since?

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// What is known of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileMark {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: Option<SystemTime>,
}

impl FileMark {
    fn of(path: &Path) -> Option<FileMark> {
        let about = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some(FileMark { device: about.dev(), inode: about.ino(), bytes: about.len(), changed: about.modified().ok() })
    }
}

/// The bundle's file, watched.
pub(super) struct Watching {
    path: PathBuf,
    seen: Option<FileMark>,
    resting: Option<(FileMark, Instant)>,
    looked: Instant,
}

impl Watching {
    pub(super) fn new(path: &Path) -> Self {
        Watching { path: path.to_owned(), seen: FileMark::of(path), resting: None, looked: Instant::now() }
    }

    /// Whether the file has changed and rested since; asked at most ten times a second.
    pub(super) fn has_changed(&mut self, rest: Duration) -> bool {
        if self.looked.elapsed() < rest.min(Duration::from_millis(100)) {
            return false;
        }
        self.looked = Instant::now();
        let Some(mark) = FileMark::of(&self.path).filter(|mark| Some(*mark) != self.seen && mark.bytes > 0) else {
            self.resting = None;
            return false;
        };
        match self.resting {
            Some((resting, since)) if resting == mark => {
                if since.elapsed() < rest {
                    return false;
                }
                self.seen = Some(mark);
                self.resting = None;
                true
            }
            _ => {
                self.resting = Some((mark, Instant::now()));
                false
            }
        }
    }
}
