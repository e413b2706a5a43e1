//! What the user types after `--source` and `--camera`, checked as far as that is possible without touching anything.

use super::SourceKind;
use super::request::CameraRequest;
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Where pictures come from.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Place {
    /// A V4L2 device node, or a stable link to one.
    Device(PathBuf),
    /// A folder or a single picture; which of them is found out when it is opened.
    Path(PathBuf),
    /// All pictures that match a pattern.
    Glob(String),
    /// A folder that plays a live camera.
    Replay(ReplayOptions),
    /// The simulated line; the text after `sim:`.
    Sim(String),
    /// MJPEG over HTTP; the whole address.
    Http(String),
}

/// A folder as a live camera: `replay:DIR?loop&shuffle=SEED&fps=30`.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayOptions {
    /// The folder.
    pub folder: PathBuf,
    /// Starts again after the last picture.
    pub endless: bool,
    /// Shuffles with this seed, anew in every round; `None`: by name.
    pub shuffle_seed: Option<u64>,
    /// Pictures a second.
    pub rate_fps: f64,
}

/// A source as typed, with what is asked of it. Parse one for each stream: clones share what is remembered between
/// openings (stable path, capture numbers).
#[derive(Debug, Clone)]
pub struct SourceSpec {
    /// Where pictures come from.
    pub place: Place,
    /// Mode and controls asked of a camera.
    pub request: CameraRequest,
    pub(crate) memory: Arc<Memory>,
}

/// What outlives a source that was lost, so that re-opening finds the same camera and numbers go on.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The link by which a device is opened after the first time.
    pub(crate) stable_path: OnceLock<PathBuf>,
    /// Which camera was found the first time.
    pub(crate) identity: OnceLock<String>,
    next_number: AtomicU64,
}

impl Memory {
    /// Takes `count` capture numbers and gives the last of them; more than 1 leaves a gap, which means drops.
    pub(crate) fn take_numbers(&self, count: u64) -> u64 {
        self.next_number.fetch_add(count, Ordering::Relaxed) + count.saturating_sub(1)
    }
}

const VIDEO_EXTENSIONS: [&str; 12] =
    ["mp4", "avi", "mkv", "mov", "webm", "m4v", "mpg", "mpeg", "ts", "wmv", "h264", "h265"];

impl SourceSpec {
    /// A source from its place, with nothing asked of it.
    pub fn new(place: Place) -> Self {
        SourceSpec { place, request: CameraRequest::default(), memory: Arc::default() }
    }

    /// Reads the text of `--source`: a number or `/dev/…` (camera), a folder, a picture, a pattern, `replay:…`, `sim:…`,
    /// `http://…`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for an empty text, unknown options, and for video files, RTSP and GStreamer, which
    /// need a feature that this build lacks.
    pub fn parse(text: &str) -> Result<SourceSpec> {
        parse_place(text).map(SourceSpec::new).map_err(|error| error.at(format!("source `{text}`")))
    }

    /// Reads the text of `--camera`: as [`SourceSpec::parse`], but a plain path is always a device, so that a folder or
    /// a file there is refused when opened.
    ///
    /// # Errors
    /// As [`SourceSpec::parse`].
    pub fn parse_camera(text: &str) -> Result<SourceSpec> {
        let mut spec = SourceSpec::parse(text)?;
        spec.place = match spec.place {
            Place::Path(path) => Place::Device(path),
            Place::Glob(pattern) => Place::Device(pattern.into()),
            other => other,
        };
        Ok(spec)
    }

    /// The same source with `request` asked of it.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] when a value is out of range or the source has no camera controls.
    pub fn with_request(mut self, request: CameraRequest) -> Result<SourceSpec> {
        request.check()?;
        if !matches!(self.place, Place::Device(_)) && !request.is_empty() {
            return Err(Error::usage("camera settings are given, but the source is not a V4L2 camera")
                .hint("leave size, rate, format and controls out, or name a camera such as `0` or `/dev/video0`"));
        }
        self.request = request;
        Ok(self)
    }

    /// Live or files; known before opening.
    pub fn kind(&self) -> SourceKind {
        match self.place {
            Place::Path(_) | Place::Glob(_) => SourceKind::Files,
            Place::Device(_) | Place::Replay(_) | Place::Sim(_) | Place::Http(_) => SourceKind::Live,
        }
    }
}

fn parse_place(text: &str) -> Result<Place> {
    if text.is_empty() {
        return Err(Error::usage("the source is empty").hint(WAYS));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let number: u16 =
            text.parse().map_err(|_| Error::usage(format!("found camera number {text}, expected at most 65535")))?;
        return Ok(Place::Device(format!("/dev/video{number}").into()));
    }
    if let Some(rest) = text.strip_prefix("replay:") {
        return parse_replay(rest).map(Place::Replay);
    }
    if let Some(rest) = text.strip_prefix("sim:") {
        super::sim::SimOptions::parse(rest)?;
        return Ok(Place::Sim(rest.to_owned()));
    }
    if text == "sim" {
        return Ok(Place::Sim(String::new()));
    }
    if let Some(place) = parse_scheme(text)? {
        return Ok(place);
    }
    let path = Path::new(text);
    // Shared memory lies below /dev, but holds ordinary folders.
    if path.starts_with("/dev") && !path.starts_with("/dev/shm") {
        return Ok(Place::Device(path.to_owned()));
    }
    if text.contains(['*', '?', '[']) && !path.exists() {
        glob::Pattern::new(text).map_err(|error| Error::usage("the pattern cannot be read").because(error))?;
        return Ok(Place::Glob(text.to_owned()));
    }
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    if extension.is_some_and(|extension| VIDEO_EXTENSIONS.contains(&extension.as_str())) && !path.is_dir() {
        return Err(
            later("video files").hint("extract pictures first (`ffmpeg -i FILE DIR/%06d.png`) and name the folder")
        );
    }
    Ok(Place::Path(path.to_owned()))
}

const WAYS: &str = "name a camera (`0`, `/dev/video0`), a folder, a picture, a pattern (`'in/*.png'`), `replay:DIR`, \
                    `sim:` or `http://HOST/PATH`";

fn later(what: &str) -> Error {
    Error::usage(format!("{what} need the feature `opencv`, which this build lacks"))
}

fn parse_scheme(text: &str) -> Result<Option<Place>> {
    let lower = text.to_ascii_lowercase();
    if lower.starts_with("http://") {
        return Ok(Some(Place::Http(text.to_owned())));
    }
    if lower.starts_with("https://") {
        return Err(Error::usage("`https://` is not supported, expected `http://`")
            .hint("cameras on the plant network serve MJPEG over plain HTTP; put a TLS proxy in front otherwise"));
    }
    if lower.starts_with("rtsp://") || lower.starts_with("rtsps://") {
        return Err(later("RTSP streams").hint("most IP cameras also serve MJPEG: name that address as `http://…`"));
    }
    if lower.starts_with("gst:") {
        return Err(Error::usage("GStreamer pipelines need the feature `gstreamer`, which this build lacks"));
    }
    match text.split_once("://") {
        Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            Err(Error::usage(format!("found the scheme `{scheme}://`, which is not known")).hint(WAYS))
        }
        _ => Ok(None),
    }
}

fn parse_replay(text: &str) -> Result<ReplayOptions> {
    let (folder, query) = text.rsplit_once('?').unwrap_or((text, ""));
    if folder.is_empty() {
        return Err(Error::usage("`replay:` names no folder").hint("write it like `replay:DIR?loop&fps=30`"));
    }
    let mut options = ReplayOptions { folder: folder.into(), endless: false, shuffle_seed: None, rate_fps: 30.0 };
    for item in query.split('&').filter(|item| !item.is_empty()) {
        let (key, value) = item.split_once('=').map_or((item, None), |(key, value)| (key, Some(value)));
        match (key, value) {
            ("loop", None) => options.endless = true,
            ("shuffle", Some(seed)) => {
                let seed = seed.parse().map_err(|_| bad_option(item, "shuffle=SEED with a whole number"))?;
                options.shuffle_seed = Some(seed);
            }
            ("fps", Some(rate)) => {
                let rate_fps: f64 = rate.parse().map_err(|_| bad_option(item, "fps=RATE with a number"))?;
                if !(0.001..=1000.0).contains(&rate_fps) {
                    return Err(bad_option(item, "fps between 0.001 and 1000"));
                }
                options.rate_fps = rate_fps;
            }
            _ => return Err(bad_option(item, "loop, shuffle=SEED or fps=RATE")),
        }
    }
    Ok(options)
}

fn bad_option(found: &str, expected: &str) -> Error {
    Error::usage(format!("found replay option `{found}`, expected {expected}"))
        .hint("write it like `replay:DIR?loop&shuffle=7&fps=30`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn place(text: &str) -> Place {
        SourceSpec::parse(text).unwrap().place
    }

    #[test]
    fn every_way_to_name_a_source() {
        assert_eq!(place("0"), Place::Device("/dev/video0".into()));
        assert_eq!(place("/dev/v4l/by-id/cam"), Place::Device("/dev/v4l/by-id/cam".into()));
        assert_eq!(place("pictures"), Place::Path("pictures".into()));
        assert_eq!(place("/dev/shm/pictures"), Place::Path("/dev/shm/pictures".into()));
        assert_eq!(place("a/b.PNG"), Place::Path("a/b.PNG".into()));
        assert_eq!(place("in/*.png"), Place::Glob("in/*.png".into()));
        assert_eq!(place("sim:seed=3"), Place::Sim("seed=3".into()));
        assert_eq!(place("sim:"), Place::Sim(String::new()));
        assert_eq!(place("http://cam/mjpg"), Place::Http("http://cam/mjpg".into()));
        assert_eq!(
            place("replay:dir?loop&shuffle=7&fps=12.5"),
            Place::Replay(ReplayOptions { folder: "dir".into(), endless: true, shuffle_seed: Some(7), rate_fps: 12.5 })
        );
        assert_eq!(
            place("replay:dir"),
            Place::Replay(ReplayOptions { folder: "dir".into(), endless: false, shuffle_seed: None, rate_fps: 30.0 })
        );
        assert_eq!(SourceSpec::parse("x").unwrap().kind(), SourceKind::Files);
        assert_eq!(SourceSpec::parse("replay:x").unwrap().kind(), SourceKind::Live);
    }

    #[test]
    fn what_is_not_possible_is_a_usage_error() {
        for bad in [
            "",
            "99999999",
            "rtsp://cam/1",
            "RTSP://cam/1",
            "gst:videotestsrc ! appsink",
            "clip.MP4",
            "https://cam/",
            "ftp://cam/",
            "replay:",
            "replay:d?looop",
            "replay:d?fps=0",
            "replay:d?fps=x",
            "replay:d?shuffle",
            "a[",
        ] {
            let error = SourceSpec::parse(bad).expect_err(bad);
            assert_eq!(error.kind(), ErrorKind::Usage, "{bad}");
            assert!(error.place().unwrap().contains(bad));
        }
        assert!(SourceSpec::parse("rtsp://cam/1").unwrap_err().message().contains("feature `opencv`"));
    }

    #[test]
    fn a_camera_path_is_a_device_even_when_it_is_a_folder() {
        assert_eq!(SourceSpec::parse_camera("some/folder").unwrap().place, Place::Device("some/folder".into()));
        assert_eq!(SourceSpec::parse_camera("sim:").unwrap().place, Place::Sim(String::new()));
    }

    #[test]
    fn camera_settings_are_for_cameras_alone() {
        let request = CameraRequest { rate_fps: Some(30.0), ..CameraRequest::default() };
        assert!(SourceSpec::parse("0").unwrap().with_request(request.clone()).is_ok());
        assert!(SourceSpec::parse("pictures").unwrap().with_request(request).is_err());
        assert!(SourceSpec::parse("pictures").unwrap().with_request(CameraRequest::default()).is_ok());
    }

    #[test]
    fn numbers_go_on_over_openings() {
        let spec = SourceSpec::parse("0").unwrap();
        assert_eq!(spec.memory.take_numbers(1), 0);
        assert_eq!(spec.memory.take_numbers(3), 3);
        assert_eq!(spec.clone().memory.take_numbers(1), 4);
    }
}
