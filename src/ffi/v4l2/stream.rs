//! Mapped buffers of a device that streams.

use super::{Device, sys, zeroed};
use crate::units::index;
use std::io;
use std::ptr::NonNull;
use std::time::Duration;

/// What the driver says of a filled buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filled {
    /// The driver's count of frames; gaps are frames it could not deliver.
    pub sequence: u32,
    /// The driver marks the data as damaged.
    pub damaged: bool,
    /// Time since the frame was captured, where the driver stamps with the monotonic clock.
    pub age: Option<Duration>,
}

/// A device that streams into mapped buffers. Dropping it stops the stream, unmaps the buffers and closes the device.
#[derive(Debug)]
pub struct Stream {
    buffers: Vec<Mapping>,
    streaming: bool,
    /// Declared last, so that it is closed after the buffers are unmapped.
    device: Device,
}

// SAFETY: the mappings belong to this value alone and are reached only through `&mut self`; a device descriptor may be
// used from any thread.
unsafe impl Send for Stream {}

/// One mapped buffer of the driver.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    length_bytes: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: start and length are those of a successful `mmap`, unmapped once, and no slice of it outlives the
        // borrow of the stream that owns this mapping.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length_bytes) };
    }
}

impl Stream {
    /// Maps `wanted_buffers` buffers (the driver may give others), queues them and starts the stream.
    ///
    /// # Errors
    /// Those of the calls; `ENOSPC` when the USB bus cannot carry this mode, `EBUSY` when another program streams.
    pub fn start(device: Device, wanted_buffers: u32) -> io::Result<Stream> {
        let mut request = sys::RequestBuffers {
            count: wanted_buffers,
            kind: sys::VIDEO_CAPTURE,
            memory: sys::MEMORY_MMAP,
            ..zeroed()
        };
        device.call(sys::REQBUFS, &mut request)?;
        if request.count < 2 {
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, "the driver gave fewer than 2 buffers"));
        }
        let mut stream = Stream { buffers: Vec::with_capacity(index(request.count)), streaming: false, device };
        for number in 0..request.count {
            let mapping = stream.map(number)?;
            stream.buffers.push(mapping);
            stream.queue(number)?;
        }
        let mut kind = sys::VIDEO_CAPTURE.cast_signed();
        stream.device.call(sys::STREAMON, &mut kind)?;
        stream.streaming = true;
        Ok(stream)
    }

    fn map(&self, number: u32) -> io::Result<Mapping> {
        let mut buffer = blank(number);
        self.device.call(sys::QUERYBUF, &mut buffer)?;
        let length_bytes = index(buffer.length);
        // SAFETY: a new mapping at an address of the kernel's choice; offset and length are those that the driver gave
        // for this buffer, and the result is checked below.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                self.device.descriptor,
                buffer.offset.into(),
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(start.cast()) {
            Some(start) => Ok(Mapping { start, length_bytes }),
            None => Err(io::Error::other("a buffer was mapped at address 0")),
        }
    }

    fn queue(&self, number: u32) -> io::Result<()> {
        self.device.call(sys::QBUF, &mut blank(number))
    }

    /// [Waits](https://docs.kernel.org/userspace-api/media/v4l/func-poll.html) at most `patience` for a filled buffer; gives
    /// whether one may be there.
    ///
    /// # Errors
    /// Those of `poll`; a device that is gone is told by [`Stream::take`].
    pub fn wait(&self, patience: Duration) -> io::Result<bool> {
        let mut watched = libc::pollfd { fd: self.device.descriptor, events: libc::POLLIN, revents: 0 };
        let patience_ms = libc::c_int::try_from(patience.as_micros().div_ceil(1000)).unwrap_or(libc::c_int::MAX);
        // SAFETY: `watched` is one valid, writable entry, and the count says one.
        match unsafe { libc::poll(&mut watched, 1, patience_ms) } {
            0 => Ok(false),
            status if status > 0 => Ok(true),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
                error => Err(error),
            },
        }
    }

    /// Takes a filled buffer, shows its bytes to `look` and gives it back to the driver; `None` when none is filled.
    ///
    /// # Errors
    /// `ENODEV` and `EIO` when the device is gone.
    pub fn take<R>(&mut self, look: impl FnOnce(Filled, &[u8]) -> R) -> io::Result<Option<R>> {
        let mut buffer = blank(0);
        match self.device.call(sys::DQBUF, &mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            other => other?,
        }
        let Some(mapping) = self.buffers.get(index(buffer.index)) else {
            return Err(io::Error::other(format!("the driver names buffer {}, which it never gave", buffer.index)));
        };
        let used_bytes = index(buffer.bytes_used).min(mapping.length_bytes);
        // SAFETY: the driver has handed the buffer over (DQBUF) and does not write to it before QBUF below; the mapping is
        // at least `used_bytes` long and lives as long as `self`, which stays borrowed while the slice does.
        let bytes = unsafe { std::slice::from_raw_parts(mapping.start.as_ptr(), used_bytes) };
        let filled =
            Filled { sequence: buffer.sequence, damaged: buffer.flags & sys::BUFFER_ERROR != 0, age: age(&buffer) };
        let result = look(filled, bytes);
        self.queue(buffer.index)?;
        Ok(Some(result))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.streaming {
            let mut kind = sys::VIDEO_CAPTURE.cast_signed();
            // A device that is gone answers with an error here, which changes nothing.
            drop(self.device.call(sys::STREAMOFF, &mut kind));
        }
    }
}

fn blank(number: u32) -> sys::Buffer {
    sys::Buffer { index: number, kind: sys::VIDEO_CAPTURE, memory: sys::MEMORY_MMAP, ..zeroed() }
}

fn age(buffer: &sys::Buffer) -> Option<Duration> {
    if buffer.flags & sys::TIMESTAMP_MASK != sys::TIMESTAMP_MONOTONIC {
        return None;
    }
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable memory of the size that the call fills.
    if unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) } != 0 {
        return None;
    }
    let seconds = |whole: i64, micros: i64| {
        Some(Duration::from_secs(u64::try_from(whole).ok()?) + Duration::from_micros(u64::try_from(micros).ok()?))
    };
    seconds(now.tv_sec, now.tv_nsec / 1000)?.checked_sub(seconds(buffer.timestamp.tv_sec, buffer.timestamp.tv_usec)?)
}
