//! MJPEG over HTTP. A thread reads the socket and keeps the newest whole picture; halves, damaged and overtaken ones are
//! dropped and counted. A server that stops sending is lost after the silence limit.

mod parts;

use super::jpeg::{self, Ending};
use super::spec::Memory;
use super::{Camera, Capture, CaptureLosses, SourceInfo, SourceKind, pictures};
use crate::error::{Error, Result};
use crate::frame::{Frame, Picture, PixelFormat, PixelPool, StreamName};
use crate::units::SizePx;
use parts::Parts;
use std::io::Read;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// See the module.
pub(crate) struct HttpCamera {
    inbox: Arc<Inbox>,
    stream: StreamName,
    memory: Arc<Memory>,
    pool: Arc<PixelPool>,
    /// Address without user name and password.
    place: String,
    size: Option<SizePx>,
    silence: Duration,
    last_good: Instant,
    losses: CaptureLosses,
    gap: u64,
}

/// Where the reading thread leaves what arrived.
#[derive(Debug, Default)]
struct Inbox {
    content: Mutex<Content>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Content {
    newest: Option<Arrival>,
    overtaken: u64,
    /// Why nothing more will come.
    ended: Option<Error>,
    /// Nobody reads any more.
    left: bool,
}

#[derive(Debug)]
struct Arrival {
    bytes: Vec<u8>,
    arrived: Instant,
    captured_at: SystemTime,
}

impl Inbox {
    /// The content, also after a panic of the other side, which leaves it whole.
    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpCamera {
    /// Connects and waits for the answer's header.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Source`] when there is no answer in time, an error status, or no MJPEG.
    pub(crate) fn open(address: &str, silence: Duration, stream: StreamName, memory: Arc<Memory>) -> Result<Self> {
        let place = without_password(address);
        let (parts, body) = connect(address, silence).map_err(|error| error.at(&place))?;
        let inbox = Arc::new(Inbox::default());
        let theirs = Arc::clone(&inbox);
        std::thread::Builder::new()
            .name(format!("http {stream}"))
            .spawn(move || receive(parts, body, &theirs))
            .map_err(|error| Error::unexpected("no thread can be started").because(error))?;
        Ok(HttpCamera {
            inbox,
            stream,
            memory,
            pool: PixelPool::new(),
            place,
            size: None,
            silence,
            last_good: Instant::now(),
            losses: CaptureLosses::default(),
            gap: 0,
        })
    }

    /// Waits for something to arrive; `None` when nothing did.
    fn arrival(&mut self, patience: Duration) -> Result<Option<Arrival>> {
        let until = Instant::now() + patience;
        let mut content = self.inbox.lock();
        loop {
            let overtaken = std::mem::take(&mut content.overtaken);
            self.losses.missed += overtaken;
            self.gap += overtaken;
            if let Some(arrival) = content.newest.take() {
                return Ok(Some(arrival));
            }
            if let Some(error) = content.ended.take() {
                return Err(error.at(&self.place));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            content = match self.inbox.changed.wait_timeout(content, left) {
                Ok((content, _)) => content,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<Picture> {
        let (size, pixels, _) = jpeg::decode_rgb(bytes, Ending::Marked, pictures::MAX_PICTURE_PIXELS, |size| {
            self.pool.take(size.pixels() * 3)
        })?;
        let stride_bytes = PixelFormat::Rgb8.row_bytes(size.width_px);
        Ok(Picture { size, stride_bytes, format: PixelFormat::Rgb8, pixels })
    }
}

impl Camera for HttpCamera {
    fn info(&self) -> SourceInfo {
        SourceInfo {
            description: format!("{}: MJPEG over HTTP", self.place),
            kind: SourceKind::Live,
            related_frames: true,
            triggers: false,
            frames: None,
        }
    }

    fn next(&mut self, patience: Duration) -> Result<Capture> {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Some(arrival) = self.arrival(left)? else {
                if self.last_good.elapsed() >= self.silence {
                    return Err(silent(self.silence).at(&self.place));
                }
                return Ok(Capture::Nothing);
            };
            let picture = match self.decode(&arrival.bytes) {
                Ok(picture) => picture,
                Err(error) => {
                    self.losses.damaged += 1;
                    self.gap += 1;
                    log::debug!("{}: a picture is dropped: {}", self.stream, error.message());
                    if self.last_good.elapsed() >= self.silence {
                        return Err(silent(self.silence).at(&self.place));
                    }
                    continue;
                }
            };
            let first = *self.size.get_or_insert(picture.size);
            if first != picture.size {
                return Err(Error::source_failed(format!(
                    "found a picture of {} in the running stream, expected {first}",
                    picture.size
                ))
                .at(&self.place));
            }
            self.last_good = Instant::now();
            let number = self.memory.take_numbers(std::mem::take(&mut self.gap) + 1);
            return Ok(Capture::Frame(Arc::new(Frame {
                stream: Arc::clone(&self.stream),
                number,
                captured_at: Some(arrival.captured_at),
                arrived: arrival.arrived,
                source: None,
                part: None,
                picture,
            })));
        }
    }

    fn losses(&self) -> CaptureLosses {
        self.losses
    }
}

impl Drop for HttpCamera {
    fn drop(&mut self) {
        self.inbox.lock().left = true;
    }
}

fn silent(silence: Duration) -> Error {
    Error::source_failed(format!("found no whole picture for {} s, expected one", silence.as_secs_f64()))
        .hint("check network and camera; `--silence-ms` sets how long is waited")
}

fn connect(address: &str, silence: Duration) -> Result<(Parts, ureq::BodyReader<'static>)> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .proxy(None)
        .max_redirects(3)
        .timeout_resolve(Some(silence))
        .timeout_connect(Some(silence))
        .timeout_recv_response(Some(silence))
        .timeout_per_read(Some(silence))
        .user_agent("edge-trt")
        .build()
        .into();
    let response = agent.get(address).call().map_err(|error| match error {
        ureq::Error::StatusCode(401 | 403) => Error::source_failed("the camera refuses the user name or password")
            .hint("write them into the address: `http://USER:PASSWORD@HOST/PATH` (Basic authentication)"),
        ureq::Error::StatusCode(code) => {
            Error::source_failed(format!("the camera answers with HTTP status {code}, expected 200"))
                .hint("the path of the stream is in the camera's manual")
        }
        ureq::Error::Timeout(_) => {
            Error::source_failed(format!("the camera does not answer within {} s", silence.as_secs_f64()))
                .hint("check address and network; what listens there may not speak HTTP")
        }
        other => Error::source_failed("the camera cannot be reached").because(other),
    })?;
    let content_type = response.headers().get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let parts = Parts::new(content_type)?;
    Ok((parts, response.into_body().into_with_config().limit(u64::MAX).reader()))
}

/// Reads until the stream ends or nobody takes the pictures any more.
fn receive(mut parts: Parts, mut body: impl Read, inbox: &Inbox) {
    let mut piece = vec![0; 64 << 10];
    let ended = loop {
        let length = match body.read(&mut piece) {
            Ok(0) => break Error::source_failed("the camera closed the stream"),
            Ok(length) => length,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => break Error::source_failed("the stream broke off").because(error),
        };
        let arrived = Instant::now();
        parts.push(&piece[..length]);
        let mut whole = Vec::new();
        let taken = loop {
            match parts.next_part() {
                Ok(Some(bytes)) => whole.push(bytes),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let mut content = inbox.lock();
        if content.left {
            return;
        }
        for bytes in whole {
            let arrival = Arrival { bytes, arrived, captured_at: SystemTime::now() };
            content.overtaken += u64::from(content.newest.replace(arrival).is_some());
        }
        drop(content);
        inbox.changed.notify_one();
        match taken {
            Err(error) => break error,
            Ok(()) if parts.is_closed() => break Error::source_failed("the camera ended the stream"),
            Ok(()) => {}
        }
    };
    inbox.lock().ended = Some(ended);
    inbox.changed.notify_one();
}

/// The address as it may be shown.
fn without_password(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let authority_end = rest.find(['/', '?']).unwrap_or(rest.len());
    match rest[..authority_end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(without_password("http://u:p@cam:80/a@b"), "http://cam:80/a@b");
        assert_eq!(without_password("http://u:p@w@cam/x"), "http://cam/x");
        assert_eq!(without_password("http://cam/a@b"), "http://cam/a@b");
    }
}
