//! V4L2 cameras: opens the node, negotiates the mode, sets controls, streams through mapped buffers.
//!
//! Damaged and short pictures are dropped and counted, never shown. A camera that is gone, silent or gives nothing but
//! damaged pictures is lost: the caller drops it and opens it again, by its stable link, with everything set anew.

mod controls;
mod explain;
mod mode;
mod stable;

use super::jpeg::{self, Ending};
use super::request::{CameraFormat, CameraRequest};
use super::spec::Memory;
use super::{Camera, Capture, CaptureLosses, SourceInfo, SourceKind, pictures};
use crate::error::{Error, Result};
use crate::ffi::v4l2::{Device, Filled, SetFormat, Stream, capability};
use crate::frame::{Frame, Picture, PixelFormat, PixelPool, StreamName};
use crate::units::{SizePx, index};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const BUFFERS: u32 = 4;

/// See the module.
pub(crate) struct V4l2Camera {
    stream: Stream,
    reader: Reader,
    name: StreamName,
    memory: Arc<Memory>,
    description: String,
    silence: Duration,
    last_good: Instant,
    last_sequence: Option<u32>,
    losses: CaptureLosses,
    /// Frames lost since the last good one.
    gap: u64,
}

impl V4l2Camera {
    /// Opens `path`, or the stable link that an earlier opening left in `memory`, and starts the stream.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Source`] when it is missing, no camera, busy or refuses what is asked;
    /// [`crate::ErrorKind::MachineLacks`] when this user may not open it.
    pub(crate) fn open(
        path: &Path,
        request: &CameraRequest,
        name: StreamName,
        memory: Arc<Memory>,
    ) -> Result<V4l2Camera> {
        let path = memory.stable_path.get().map_or(path, PathBuf::as_path);
        Self::open_at(path, request, name, Arc::clone(&memory)).map_err(|error| error.at(path.display()))
    }

    fn open_at(path: &Path, request: &CameraRequest, name: StreamName, memory: Arc<Memory>) -> Result<V4l2Camera> {
        let device = Device::open(path).map_err(|error| explain::open_failed(path, error))?;
        let found = device.capability().map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV | libc::EIO) => explain::lost(error),
            _ => explain::not_a_camera(path),
        })?;
        if found.flags & capability::VIDEO_CAPTURE == 0 || found.flags & capability::STREAMING == 0 {
            return Err(explain::lacks_capture(&found));
        }
        if memory.stable_path.get().is_none()
            && let Some(link) = stable::link(path, Path::new("/dev/v4l"), Path::new("/sys/class/video4linux"))
        {
            log::info!("{name}: {} is opened as {} from now on", path.display(), link.display());
            drop(memory.stable_path.set(link));
        }
        check_identity(&memory, &found)?;
        let (format, kind, rate_fps) = negotiate(&device, path, request)?;
        let applied = controls::apply(&device, request)?;
        if applied.exposes_by_itself == Some(true) {
            log::warn!("{name}: automatic exposure is on, so brightness changes by itself; `--exposure-us` fixes it");
        }
        let description = describe(path, &found, (format.size, kind, rate_fps), &applied);
        let stream =
            Stream::start(device, BUFFERS).map_err(|error| explain::setup_failed(path, "start the stream", error))?;
        Ok(V4l2Camera {
            stream,
            reader: Reader { kind, format, pool: PixelPool::new() },
            name,
            memory,
            description,
            silence: request.silence(),
            last_good: Instant::now(),
            last_sequence: None,
            losses: CaptureLosses::default(),
            gap: 0,
        })
    }

    fn frame(&mut self, filled: Filled, picture: Picture) -> Capture {
        let number = self.memory.take_numbers(self.gap + 1);
        self.gap = 0;
        let now = Instant::now();
        let age = filled.age.filter(|age| *age < Duration::from_secs(10)).unwrap_or_default();
        Capture::Frame(Arc::new(Frame {
            stream: Arc::clone(&self.name),
            number,
            captured_at: Some(SystemTime::now() - age),
            arrived: now.checked_sub(age).unwrap_or(now),
            source: None,
            part: None,
            picture,
        }))
    }

    fn count_missed(&mut self, sequence: u32) {
        if let Some(last) = self.last_sequence {
            let step = sequence.wrapping_sub(last);
            // A driver that starts counting anew has missed nothing that can be told.
            if step > 1 && step < u32::MAX / 2 {
                self.losses.missed += u64::from(step - 1);
                self.gap += u64::from(step - 1);
            }
        }
        self.last_sequence = Some(sequence);
    }

    fn silent(&self, damaged_since: u64) -> Error {
        let seconds = self.silence.as_secs_f64();
        let message = match damaged_since {
            0 => format!("found no picture for {seconds} s, expected one"),
            number => format!("found {number} damaged pictures and no whole one for {seconds} s"),
        };
        Error::source_failed(message).hint("check cable and hub; `--silence-ms` sets how long is waited")
    }
}

impl Camera for V4l2Camera {
    fn info(&self) -> SourceInfo {
        SourceInfo {
            description: self.description.clone(),
            kind: SourceKind::Live,
            related_frames: true,
            triggers: false,
            frames: None,
        }
    }

    fn next(&mut self, patience: Duration) -> Result<Capture> {
        let until = Instant::now() + patience;
        loop {
            let reader = &self.reader;
            let taken = self.stream.take(|filled, bytes| (filled, reader.read(filled, bytes)));
            let taken = taken.map_err(explain::lost)?;
            let nothing = taken.is_none();
            match taken {
                Some((filled, Ok(picture))) => {
                    self.count_missed(filled.sequence);
                    self.last_good = Instant::now();
                    return Ok(self.frame(filled, picture));
                }
                Some((filled, Err(why))) => {
                    self.count_missed(filled.sequence);
                    self.losses.damaged += 1;
                    self.gap += 1;
                    log::debug!("{}: picture {} is dropped: {}", self.name, filled.sequence, why.message());
                }
                None => {}
            }
            let now = Instant::now();
            let silence_ends = self.last_good + self.silence;
            if now >= silence_ends {
                return Err(self.silent(self.gap.min(self.losses.damaged)));
            }
            if now >= until {
                return Ok(Capture::Nothing);
            }
            if nothing {
                let ready = self.stream.wait(until.min(silence_ends) - now).map_err(explain::lost)?;
                // A driver in an error state says "ready" at once and gives nothing.
                if ready && Instant::now() - now < Duration::from_micros(200) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }

    fn losses(&self) -> CaptureLosses {
        self.losses
    }
}

/// Turns a driver's buffer into a picture.
struct Reader {
    kind: CameraFormat,
    format: SetFormat,
    pool: Arc<PixelPool>,
}

impl Reader {
    fn read(&self, filled: Filled, bytes: &[u8]) -> Result<Picture> {
        let size = self.format.size;
        if filled.damaged {
            return Err(Error::source_failed("the driver marks it as damaged"));
        }
        let format = match self.kind {
            CameraFormat::Mjpg => return self.read_jpeg(bytes),
            CameraFormat::Yuyv => PixelFormat::Yuyv,
            CameraFormat::Uyvy => PixelFormat::Uyvy,
            CameraFormat::Nv12 => PixelFormat::Nv12,
            CameraFormat::Grey => PixelFormat::Gray8,
        };
        let stride_bytes = index(self.format.stride_bytes).max(format.row_bytes(size.width_px));
        let needed_bytes = format.picture_bytes(size, stride_bytes);
        let Some(bytes) = bytes.get(..needed_bytes) else {
            return Err(Error::source_failed(format!("found {} bytes, expected {needed_bytes}", bytes.len())));
        };
        let mut pixels = self.pool.take(needed_bytes);
        pixels.as_mut_slice().copy_from_slice(bytes);
        Ok(Picture { size, stride_bytes, format, pixels })
    }

    fn read_jpeg(&self, bytes: &[u8]) -> Result<Picture> {
        let (size, pixels, _) = jpeg::decode_rgb(bytes, Ending::Open, pictures::MAX_PICTURE_PIXELS, |size| {
            self.pool.take(size.pixels() * 3)
        })?;
        if size != self.format.size {
            return Err(Error::source_failed(format!("found a picture of {size}, expected {}", self.format.size)));
        }
        Ok(Picture {
            size,
            stride_bytes: PixelFormat::Rgb8.row_bytes(size.width_px),
            format: PixelFormat::Rgb8,
            pixels,
        })
    }
}

/// Refuses another camera under the same name: boxes of the wrong station would look right.
fn check_identity(memory: &Memory, found: &crate::ffi::v4l2::Capability) -> Result<()> {
    let identity = match memory.stable_path.get() {
        Some(_) => format!("`{}`", found.card),
        None => format!("`{}` at {}", found.card, found.bus_info),
    };
    let first = memory.identity.get_or_init(|| identity.clone());
    if *first == identity { Ok(()) } else { Err(explain::another_camera(&identity, first)) }
}

/// Sets format, size and rate, and checks what the driver made of them; gives the rate where the camera says it.
fn negotiate(device: &Device, path: &Path, request: &CameraRequest) -> Result<(SetFormat, CameraFormat, Option<f64>)> {
    let failed = |step: &'static str| move |error| explain::setup_failed(path, step, error);
    let current = device.format().map_err(failed("tell its mode"))?;
    let size = request.size_px.map_or(current.size, |size| size.0);
    let (mut offers, mut others) = (Vec::new(), Vec::new());
    for fourcc in device.formats().map_err(failed("list its pixel formats"))? {
        match mode::known(fourcc) {
            Some(format) => offers.push(mode::Offer {
                format,
                fourcc,
                sizes: device.sizes(fourcc).map_err(failed("list its sizes"))?,
                rates: device.rates(fourcc, size).map_err(failed("list its rates"))?,
            }),
            None => others.push(fourcc),
        }
    }
    let chosen = mode::choose(&offers, &others, request.pixel_format, size, request.rate_fps)?;
    let set = device.set_format(size, chosen.fourcc).map_err(failed("set its mode"))?;
    if set.size != size || set.fourcc != chosen.fourcc {
        return Err(Error::source_failed(format!(
            "the camera gives {} {}, expected {size} {}",
            set.size, set.fourcc, chosen.fourcc
        )));
    }
    let rate_fps = match request.rate_fps {
        None => device.interval().ok().map(|interval| interval.rate_fps()),
        Some(wanted_fps) => {
            let interval = device.set_interval(mode::interval(wanted_fps)).map_err(failed("set its rate"))?;
            let found_fps = interval.rate_fps();
            if !mode::is_near(found_fps, wanted_fps) {
                return Err(Error::source_failed(format!(
                    "the camera gives {found_fps:.2} frames/s, expected {wanted_fps}"
                ))
                .hint("ask for another rate, size or pixel format (`--pixel-format mjpg` is the fastest)"));
            }
            Some(found_fps)
        }
    };
    Ok((set, chosen.format, rate_fps.filter(|rate_fps| *rate_fps > 0.0)))
}

fn describe(
    path: &Path,
    found: &crate::ffi::v4l2::Capability,
    (size, kind, rate_fps): (SizePx, CameraFormat, Option<f64>),
    applied: &controls::Applied,
) -> String {
    let mut text = format!("{} `{}` at {}: {size} {kind}", path.display(), found.card, found.bus_info);
    if let Some(rate_fps) = rate_fps {
        text += &format!(", {} frames/s", (rate_fps * 100.0).round() / 100.0);
    }
    text += match applied.exposes_by_itself {
        Some(true) => ", automatic exposure",
        Some(false) => ", fixed exposure",
        None => "",
    };
    if !applied.said.is_empty() {
        text += &format!("; set {}", applied.said.join(", "));
    }
    text
}
