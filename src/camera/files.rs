//! Folders, patterns and single pictures: whole, in order of their names, each exactly once.

use super::spec::Memory;
use super::{Camera, Capture, SourceInfo, SourceKind, pictures};
use crate::error::{Error, Result};
use crate::frame::{Frame, StreamName};
use crate::units::count;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Pictures found under one place, sorted by name.
#[derive(Debug)]
pub(crate) struct PictureList {
    /// Paths of the pictures.
    pub(crate) paths: Vec<PathBuf>,
    /// Whether all lie in one folder, so that their names tell them apart.
    one_folder: bool,
}

impl PictureList {
    /// All pictures directly in `folder`; other files are left out and counted in the log.
    pub(crate) fn of_folder(folder: &Path) -> Result<Self> {
        let place = || folder.display();
        let unreadable =
            |error: std::io::Error| Error::source_failed("the folder cannot be read").because(error).at(place());
        let (mut paths, mut left_out) = (Vec::new(), 0u64);
        for entry in std::fs::read_dir(folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if is_picture_name(&path) && !path.is_dir() {
                paths.push(path);
            } else {
                left_out += 1;
            }
        }
        if left_out > 0 {
            log::info!("{}: {left_out} entries are no pictures and are left out", folder.display());
        }
        if paths.is_empty() {
            return Err(Error::source_failed(format!("found no picture among {left_out} entries of the folder"))
                .at(place())
                .hint("pictures end in .jpg, .png, .bmp or .tif; folders within the folder are not searched"));
        }
        paths.sort();
        Ok(PictureList { paths, one_folder: true })
    }

    fn of_pattern(pattern: &str) -> Result<Self> {
        let matches = glob::glob(pattern).map_err(|error| Error::usage("the pattern cannot be read").because(error))?;
        let (mut paths, mut left_out) = (Vec::new(), 0u64);
        for found in matches {
            let path = found.map_err(|error| Error::source_failed("the pattern cannot be followed").because(error))?;
            if is_picture_name(&path) && !path.is_dir() {
                paths.push(path);
            } else {
                left_out += 1;
            }
        }
        if left_out > 0 {
            log::info!("{pattern}: {left_out} matches are no pictures and are left out");
        }
        if paths.is_empty() {
            return Err(Error::source_failed(format!("no picture matches the pattern, {left_out} other entries do")));
        }
        paths.sort();
        let one_folder = paths.iter().all(|path| path.parent() == paths[0].parent());
        Ok(PictureList { paths, one_folder })
    }

    /// What a picture is called in results: its file name, or its path when names alone are ambiguous.
    pub(crate) fn name(&self, index: usize) -> Arc<str> {
        let path = &self.paths[index];
        match path.file_name() {
            Some(name) if self.one_folder => name.to_string_lossy().into(),
            _ => path.to_string_lossy().into(),
        }
    }
}

fn is_picture_name(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    !hidden && extension.is_some_and(|extension| pictures::PICTURE_EXTENSIONS.contains(&extension.as_str()))
}

/// Pictures from files, each once, then the end.
#[derive(Debug)]
pub(crate) struct FilesSource {
    stream: StreamName,
    memory: Arc<Memory>,
    list: PictureList,
    next: usize,
    place: String,
}

impl FilesSource {
    /// A folder or one picture.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Source`] when it is missing, empty, unreadable, or neither file nor folder.
    pub(crate) fn open_path(path: &Path, stream: StreamName, memory: Arc<Memory>) -> Result<Self> {
        let metadata = std::fs::metadata(path).map_err(|error| {
            let error_text = match error.kind() {
                std::io::ErrorKind::NotFound => "no such picture or folder",
                _ => "the picture or folder cannot be reached",
            };
            let failed = Error::source_failed(error_text).at(path.display());
            if error.kind() == std::io::ErrorKind::NotFound { failed } else { failed.because(error) }
        })?;
        let list = if metadata.is_dir() {
            PictureList::of_folder(path)?
        } else if metadata.is_file() {
            PictureList { paths: vec![path.to_owned()], one_folder: true }
        } else {
            return Err(Error::source_failed("found a device or a pipe, expected a picture or a folder")
                .at(path.display())
                .hint("name cameras by number (`0`) or below /dev"));
        };
        Ok(FilesSource { stream, memory, list, next: 0, place: path.display().to_string() })
    }

    /// All pictures that match `pattern`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Source`] when none does.
    pub(crate) fn open_pattern(pattern: &str, stream: StreamName, memory: Arc<Memory>) -> Result<Self> {
        let list = PictureList::of_pattern(pattern).map_err(|error| error.at(pattern))?;
        Ok(FilesSource { stream, memory, list, next: 0, place: pattern.to_owned() })
    }
}

/// Decodes one picture of a list; `captured_at` is the wall-clock time for sources that play a camera.
pub(crate) fn capture(
    list: &PictureList,
    index: usize,
    stream: &StreamName,
    memory: &Memory,
    captured_at: Option<SystemTime>,
) -> Capture {
    let source = Some(list.name(index));
    let decoded = pictures::decode(&list.paths[index]);
    let number = memory.take_numbers(1);
    match decoded {
        Ok(picture) => Capture::Frame(Arc::new(Frame {
            stream: Arc::clone(stream),
            number,
            captured_at,
            arrived: Instant::now(),
            source,
            part: None,
            picture,
        })),
        Err(error) => {
            log::debug!("{stream}: {}: {}", list.paths[index].display(), error.message());
            Capture::Unreadable { number, captured_at, source, why: one_line(&error) }
        }
    }
}

/// Message and cause, without place and hint.
fn one_line(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{}: {cause}", error.message()).replace('\n', " "),
        None => error.message().replace('\n', " "),
    }
}

impl Camera for FilesSource {
    fn info(&self) -> SourceInfo {
        let pictures = self.list.paths.len();
        SourceInfo {
            description: match pictures {
                1 => format!("{}: one picture", self.place),
                _ => format!("{}: {pictures} pictures, by name", self.place),
            },
            kind: SourceKind::Files,
            related_frames: false,
            triggers: false,
            frames: Some(count(pictures)),
        }
    }

    fn next(&mut self, _patience: Duration) -> Result<Capture> {
        if self.next == self.list.paths.len() {
            return Ok(Capture::End);
        }
        self.next += 1;
        Ok(capture(&self.list, self.next - 1, &self.stream, &self.memory, None))
    }
}
