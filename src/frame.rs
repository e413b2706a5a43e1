//! Frames: pixels with their layout, the stream they came from and when they were captured.

use crate::error::{Error, Result};
use crate::units::SizePx;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

/// The name of a stream, unique within a process, cheap to clone.
pub type StreamName = Arc<str>;

/// How the bytes of a frame are to be read. Strides are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PixelFormat {
    /// 3 bytes a pixel: red, green, blue.
    Rgb8,
    /// 3 bytes a pixel: blue, green, red.
    Bgr8,
    /// 1 byte a pixel.
    Gray8,
    /// A luma plane, then an interleaved UV plane of half width and half height, both with the frame's stride.
    Nv12,
    /// 2 bytes a pixel: Y0 U Y1 V.
    Yuyv,
    /// 2 bytes a pixel: U Y0 V Y1.
    Uyvy,
}

impl PixelFormat {
    /// Bytes of one row without padding, for `width_px` pixels (the luma plane for NV12).
    pub fn row_bytes(self, width_px: u32) -> usize {
        let width = crate::units::index(width_px);
        match self {
            PixelFormat::Rgb8 | PixelFormat::Bgr8 => width * 3,
            PixelFormat::Gray8 | PixelFormat::Nv12 => width,
            PixelFormat::Yuyv | PixelFormat::Uyvy => width.div_ceil(2) * 4,
        }
    }

    /// Bytes that a picture of `size` with `stride_bytes` a row needs.
    pub fn picture_bytes(self, size: SizePx, stride_bytes: usize) -> usize {
        let height = crate::units::index(size.height_px);
        match self {
            PixelFormat::Nv12 => stride_bytes * (height + height.div_ceil(2)),
            _ => stride_bytes * height,
        }
    }
}

/// Bytes that go back to their pool when dropped, so that the frame path allocates nothing after warmup.
pub struct PixelBuffer {
    bytes: Vec<u8>,
    home: Option<Arc<PixelPool>>,
}

impl PixelBuffer {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, to be filled by the source.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl From<Vec<u8>> for PixelBuffer {
    fn from(bytes: Vec<u8>) -> Self {
        PixelBuffer { bytes, home: None }
    }
}

impl AsMut<[u8]> for PixelBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for PixelBuffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.put(std::mem::take(&mut self.bytes));
        }
    }
}

impl fmt::Debug for PixelBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PixelBuffer({} bytes)", self.bytes.len())
    }
}

/// A small store of pixel buffers of one camera.
#[derive(Debug, Default)]
pub struct PixelPool {
    free: Mutex<Vec<Vec<u8>>>,
}

impl PixelPool {
    const KEPT: usize = 16;

    /// An empty pool.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A buffer of `length_bytes`, reused when one lies ready; its content is unspecified.
    pub fn take(self: &Arc<Self>, length_bytes: usize) -> PixelBuffer {
        let mut bytes = match self.free.lock() {
            Ok(mut free) => free.pop().unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        bytes.resize(length_bytes, 0);
        PixelBuffer { bytes, home: Some(Arc::clone(self)) }
    }

    fn put(&self, bytes: Vec<u8>) {
        if let Ok(mut free) = self.free.lock()
            && free.len() < Self::KEPT
        {
            free.push(bytes);
        }
    }
}

/// One picture in memory.
#[derive(Debug)]
pub struct Picture {
    /// Size in pixels.
    pub size: SizePx,
    /// Bytes from one row to the next.
    pub stride_bytes: usize,
    /// How the bytes are to be read.
    pub format: PixelFormat,
    /// At least [`PixelFormat::picture_bytes`] bytes.
    pub pixels: PixelBuffer,
}

impl Picture {
    /// A tightly packed RGB picture; `pixels` holds `3 × width × height` bytes.
    pub fn rgb(size: SizePx, pixels: Vec<u8>) -> Self {
        Picture {
            size,
            stride_bytes: PixelFormat::Rgb8.row_bytes(size.width_px),
            format: PixelFormat::Rgb8,
            pixels: pixels.into(),
        }
    }

    /// Refuses a picture that does not hold all the rows that it describes.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`].
    pub fn check_whole(&self) -> Result<()> {
        if self.is_whole() {
            return Ok(());
        }
        Err(Error::refused(format!(
            "found a {:?} picture of {} with {} bytes and rows of {} bytes, expected {} bytes and rows of at least {}",
            self.format,
            self.size,
            self.pixels.as_slice().len(),
            self.stride_bytes,
            self.format.picture_bytes(self.size, self.stride_bytes),
            self.format.row_bytes(self.size.width_px),
        )))
    }

    /// Whether the buffer holds all rows.
    pub fn is_whole(&self) -> bool {
        self.size.width_px > 0
            && self.size.height_px > 0
            && self.stride_bytes >= self.format.row_bytes(self.size.width_px)
            && self.pixels.as_slice().len() >= self.format.picture_bytes(self.size, self.stride_bytes)
    }
}

/// A trigger's part: one id, exactly one decision.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PartTag {
    /// The id given by the trigger, or a running number.
    pub id: Arc<str>,
    /// When the answer is due; later answers are `not_inspected`.
    pub deadline: Option<Instant>,
}

/// A picture with where and when it was taken. Frames are immutable and shared by `Arc` after capture.
#[derive(Debug)]
pub struct Frame {
    /// The stream it belongs to.
    pub stream: StreamName,
    /// The capture number within the stream, from 0; gaps are drops.
    pub number: u64,
    /// Wall-clock capture time; `None` for files.
    pub captured_at: Option<SystemTime>,
    /// Monotonic arrival time; `age` is counted from here.
    pub arrived: Instant,
    /// File name or address of the picture, where it has one.
    pub source: Option<Arc<str>>,
    /// The part this frame was taken for.
    pub part: Option<PartTag>,
    /// The pixels.
    pub picture: Picture,
}

/// Identifies a frame; travels with the buffers through the engine and is compared on return.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FrameTag {
    /// The stream.
    pub stream: StreamName,
    /// The capture number.
    pub number: u64,
}

impl Frame {
    /// A frame that arrives now, from no file, for no part.
    pub fn new(stream: impl Into<StreamName>, number: u64, picture: Picture) -> Self {
        Frame {
            stream: stream.into(),
            number,
            captured_at: None,
            arrived: Instant::now(),
            source: None,
            part: None,
            picture,
        }
    }

    /// The identity of this frame.
    pub fn tag(&self) -> FrameTag {
        FrameTag { stream: Arc::clone(&self.stream), number: self.number }
    }
}
