//! Video capture devices, through libc's `open`, `ioctl`, `mmap`, `poll`, `munmap` and `close` and nothing else, so that a
//! preloaded library can stand in for the kernel.
//!
//! Three layers: [`sys`] (structures and numbers), one thin method a call on [`Device`], and [`Stream`], which owns the
//! mapped buffers. [The calls](https://docs.kernel.org/userspace-api/media/v4l/user-func.html) in the kernel's manual.

mod stream;
mod sys;

pub use stream::{Filled, Stream};

use crate::units::SizePx;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use sys::Plain;

/// Four characters that name a pixel format.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FourCc(pub u32);

impl FourCc {
    /// From its four characters.
    pub const fn new(text: &[u8; 4]) -> Self {
        FourCc(u32::from_le_bytes(*text))
    }
}

impl std::fmt::Display for FourCc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text: String = self.0.to_le_bytes().iter().map(|&byte| char::from(byte)).collect();
        f.write_str(text.trim_end())
    }
}

impl std::fmt::Debug for FourCc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FourCc({self})")
    }
}

/// What a device node says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capability {
    /// The driver, such as `uvcvideo`.
    pub driver: String,
    /// The camera's name.
    pub card: String,
    /// Where it is plugged in.
    pub bus_info: String,
    /// What this node can do: bits `V4L2_CAP_…`.
    pub flags: u32,
}

/// Bits of [`Capability::flags`].
pub mod capability {
    /// Gives pictures, one plane a picture.
    pub const VIDEO_CAPTURE: u32 = 0x1;
    /// Takes pictures (loopback, display).
    pub const VIDEO_OUTPUT: u32 = 0x2;
    /// Gives pictures of several planes (ISP and CSI nodes).
    pub const VIDEO_CAPTURE_MPLANE: u32 = 0x1000;
    /// Encodes or decodes.
    pub const VIDEO_M2M: u32 = 0x8000;
    /// Encodes or decodes pictures of several planes.
    pub const VIDEO_M2M_MPLANE: u32 = 0x4000;
    /// Gives data about pictures, no pictures.
    pub const META_CAPTURE: u32 = 0x0080_0000;
    /// Hands out mapped buffers.
    pub const STREAMING: u32 = 0x0400_0000;
}

/// The picture format that is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetFormat {
    /// Size, px.
    pub size: SizePx,
    /// Pixel format.
    pub fourcc: FourCc,
    /// Bytes from one row to the next; 0 for compressed formats.
    pub stride_bytes: u32,
    /// Bytes that a picture takes at most.
    pub image_bytes: u32,
}

/// One size or a range of sizes that a device offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferedSize {
    /// This size.
    Exactly(SizePx),
    /// From `least` to `most` in steps.
    Range {
        /// Smallest size.
        least: SizePx,
        /// Largest size.
        most: SizePx,
        /// Steps in both directions, px.
        step: SizePx,
    },
}

/// Time from one frame to the next, in seconds as a fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// Numerator, s.
    pub numerator: u32,
    /// Denominator.
    pub denominator: u32,
}

impl Interval {
    /// Frames a second; 0 when the device does not say.
    pub fn rate_fps(self) -> f64 {
        if self.numerator == 0 { 0.0 } else { f64::from(self.denominator) / f64::from(self.numerator) }
    }
}

/// Intervals that a device offers for one format and size, as frames a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OfferedRate {
    /// This rate.
    Exactly(f64),
    /// Any rate between the two.
    Between(f64, f64),
}

/// A control of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlRange {
    /// The driver's name for it.
    pub name: String,
    /// Lowest value.
    pub minimum: i32,
    /// Highest value.
    pub maximum: i32,
    /// Step between values.
    pub step: i32,
}

/// An open device node.
#[derive(Debug)]
pub struct Device {
    descriptor: libc::c_int,
}

impl Device {
    /// [Opens](https://docs.kernel.org/userspace-api/media/v4l/func-open.html) a node for reading and writing, without
    /// blocking calls.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open(path: &Path) -> io::Result<Device> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: `path` is a C string that outlives the call.
        let descriptor = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC) };
        if descriptor < 0 { Err(io::Error::last_os_error()) } else { Ok(Device { descriptor }) }
    }

    fn call<T: Plain>(&self, request: libc::c_ulong, argument: &mut T) -> io::Result<()> {
        loop {
            // SAFETY: `Plain` promises the kernel's layout, and each request number is made from the size of the type it
            // is used with (callers below pair them), so the kernel reads and writes within `argument`.
            let status = unsafe { libc::ioctl(self.descriptor, request as _, std::ptr::from_mut(argument)) };
            if status >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// [`VIDIOC_QUERYCAP`](https://docs.kernel.org/userspace-api/media/v4l/vidioc-querycap.html).
    ///
    /// # Errors
    /// `ENOTTY` and `EINVAL` mean that this is no video device.
    pub fn capability(&self) -> io::Result<Capability> {
        let mut found = zeroed::<sys::Capability>();
        self.call(sys::QUERYCAP, &mut found)?;
        let flags = if found.capabilities & sys::CAP_DEVICE_CAPS != 0 { found.device_caps } else { found.capabilities };
        Ok(Capability { driver: text(&found.driver), card: text(&found.card), bus_info: text(&found.bus_info), flags })
    }

    /// All pixel formats, by [`VIDIOC_ENUM_FMT`](https://docs.kernel.org/userspace-api/media/v4l/vidioc-enum-fmt.html).
    ///
    /// # Errors
    /// Those of the call, except `EINVAL`, which ends the list.
    pub fn formats(&self) -> io::Result<Vec<FourCc>> {
        enumerate(|index| {
            let mut item = sys::FormatDescription { index, kind: sys::VIDEO_CAPTURE, ..zeroed() };
            self.call(sys::ENUM_FMT, &mut item).map(|()| FourCc(item.pixel_format))
        })
    }

    /// All sizes of a format; empty when the driver does not list them.
    ///
    /// # Errors
    /// Those of [the call](https://docs.kernel.org/userspace-api/media/v4l/vidioc-enum-framesizes.html).
    pub fn sizes(&self, fourcc: FourCc) -> io::Result<Vec<OfferedSize>> {
        enumerate(|index| {
            let mut item = sys::FrameSize { index, pixel_format: fourcc.0, ..zeroed() };
            self.call(sys::ENUM_FRAMESIZES, &mut item)?;
            let [first, second, step_x, least_y, most_y, step_y] = item.values;
            Ok(if item.kind == sys::DISCRETE {
                OfferedSize::Exactly(SizePx::new(first, second))
            } else {
                OfferedSize::Range {
                    least: SizePx::new(first, least_y),
                    most: SizePx::new(second, most_y),
                    step: SizePx::new(step_x.max(1), step_y.max(1)),
                }
            })
        })
    }

    /// All rates of a format at a size; empty when the driver does not list them.
    ///
    /// # Errors
    /// Those of [the call](https://docs.kernel.org/userspace-api/media/v4l/vidioc-enum-frameintervals.html).
    pub fn rates(&self, fourcc: FourCc, size: SizePx) -> io::Result<Vec<OfferedRate>> {
        enumerate(|index| {
            let mut item = sys::FrameInterval {
                index,
                pixel_format: fourcc.0,
                width: size.width_px,
                height: size.height_px,
                ..zeroed()
            };
            self.call(sys::ENUM_FRAMEINTERVALS, &mut item)?;
            let [first, second, _] = item.values.map(|fraction| interval(fraction).rate_fps());
            Ok(if item.kind == sys::DISCRETE {
                OfferedRate::Exactly(first)
            } else {
                OfferedRate::Between(second, first)
            })
        })
    }

    /// The format in force ([`VIDIOC_G_FMT`](https://docs.kernel.org/userspace-api/media/v4l/vidioc-g-fmt.html)).
    ///
    /// # Errors
    /// Those of the call.
    pub fn format(&self) -> io::Result<SetFormat> {
        let mut format = sys::Format { kind: sys::VIDEO_CAPTURE, ..zeroed() };
        self.call(sys::G_FMT, &mut format)?;
        Ok(set_format(&format.pix))
    }

    /// Asks for a format and gives what the driver made of it.
    ///
    /// # Errors
    /// Those of the call; `EBUSY` when another program streams.
    pub fn set_format(&self, size: SizePx, fourcc: FourCc) -> io::Result<SetFormat> {
        let mut format = sys::Format { kind: sys::VIDEO_CAPTURE, ..zeroed() };
        format.pix.width = size.width_px;
        format.pix.height = size.height_px;
        format.pix.pixel_format = fourcc.0;
        format.pix.field = sys::FIELD_NONE;
        self.call(sys::S_FMT, &mut format)?;
        Ok(set_format(&format.pix))
    }

    /// The frame interval in force ([`VIDIOC_G_PARM`](https://docs.kernel.org/userspace-api/media/v4l/vidioc-g-parm.html)).
    ///
    /// # Errors
    /// Those of the call; `ENOTTY` when the device has no rate.
    pub fn interval(&self) -> io::Result<Interval> {
        let mut parameters = sys::StreamParameters { kind: sys::VIDEO_CAPTURE, ..zeroed() };
        self.call(sys::G_PARM, &mut parameters)?;
        Ok(interval(parameters.time_per_frame))
    }

    /// Asks for a frame interval and gives what the driver made of it.
    ///
    /// # Errors
    /// As [`Device::interval`].
    pub fn set_interval(&self, wanted: Interval) -> io::Result<Interval> {
        let mut parameters = sys::StreamParameters { kind: sys::VIDEO_CAPTURE, ..zeroed() };
        parameters.time_per_frame = sys::Fraction { numerator: wanted.numerator, denominator: wanted.denominator };
        self.call(sys::S_PARM, &mut parameters)?;
        Ok(interval(parameters.time_per_frame))
    }

    /// A control's range; `None` when the device lacks it
    /// ([`VIDIOC_QUERYCTRL`](https://docs.kernel.org/userspace-api/media/v4l/vidioc-queryctrl.html)).
    ///
    /// # Errors
    /// Those of the call, except `EINVAL` and `ENOTTY`.
    pub fn control_range(&self, id: u32) -> io::Result<Option<ControlRange>> {
        let mut query = sys::QueryControl { id, ..zeroed() };
        match self.call(sys::QUERYCTRL, &mut query) {
            Ok(()) if query.flags & sys::CONTROL_DISABLED != 0 => Ok(None),
            Ok(()) => Ok(Some(ControlRange {
                name: text(&query.name),
                minimum: query.minimum,
                maximum: query.maximum,
                step: query.step.max(1),
            })),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOTTY)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A control's value ([`VIDIOC_G_CTRL`](https://docs.kernel.org/userspace-api/media/v4l/vidioc-g-ctrl.html)).
    ///
    /// # Errors
    /// Those of the call.
    pub fn control(&self, id: u32) -> io::Result<i32> {
        let mut control = sys::Control { id, value: 0 };
        self.call(sys::G_CTRL, &mut control)?;
        Ok(control.value)
    }

    /// Sets a control.
    ///
    /// # Errors
    /// Those of the call; `ERANGE` and `EINVAL` for a value that the device refuses.
    pub fn set_control(&self, id: u32, value: i32) -> io::Result<()> {
        self.call(sys::S_CTRL, &mut sys::Control { id, value })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: the descriptor came from `open`, belongs to this value alone and is closed once.
        unsafe { libc::close(self.descriptor) };
    }
}

/// A value with every bit 0.
fn zeroed<T: Plain>() -> T {
    // SAFETY: `Plain` promises that every bit pattern is valid, so the one of zeros is.
    unsafe { std::mem::zeroed() }
}

fn enumerate<T>(mut item: impl FnMut(u32) -> io::Result<T>) -> io::Result<Vec<T>> {
    const MOST_ITEMS: u32 = 512;
    let mut items = Vec::new();
    for index in 0..MOST_ITEMS {
        match item(index) {
            Ok(found) => items.push(found),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOTTY)) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(items)
}

fn interval(fraction: sys::Fraction) -> Interval {
    Interval { numerator: fraction.numerator, denominator: fraction.denominator }
}

fn set_format(pix: &sys::PixFormat) -> SetFormat {
    SetFormat {
        size: SizePx::new(pix.width, pix.height),
        fourcc: FourCc(pix.pixel_format),
        stride_bytes: pix.bytes_per_line,
        image_bytes: pix.size_image,
    }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
}
