//! Takes the parts out of a `multipart/x-mixed-replace` body as it arrives, in pieces of any length.

use crate::error::{Error, Result};

/// A part of more bytes is refused.
const MOST_PART_BYTES: usize = 64 << 20;
/// Headers of a part of more bytes are refused.
const MOST_HEADER_BYTES: usize = 16 << 10;

/// What has arrived and not been taken yet.
#[derive(Debug)]
pub(super) struct Parts {
    buffer: Vec<u8>,
    delimiter: Vec<u8>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before a delimiter line; what comes before it is left out.
    Delimiter,
    /// Within the headers of a part.
    Headers,
    /// Within a part of known length, bytes.
    Counted(usize),
    /// Within a part that ends at the next delimiter; searched up to this byte.
    Open(usize),
    /// The closing delimiter came.
    Closed,
}

impl Parts {
    /// For a body with this content type.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Source`] when it is no multipart type or names no boundary.
    pub(super) fn new(content_type: &str) -> Result<Self> {
        let mut items = content_type.split(';').map(str::trim);
        let kind = items.next().unwrap_or_default().to_ascii_lowercase();
        if !kind.starts_with("multipart/") {
            return Err(Error::source_failed(format!(
                "found content of type `{kind}`, expected MJPEG (multipart/x-mixed-replace)"
            ))
            .hint("name the address of the stream, not of a page or a snapshot; the camera's manual has it"));
        }
        let boundary = items.find_map(|item| {
            let (key, value) = item.split_once('=')?;
            key.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"'))
        });
        // Some cameras count the dashes of the delimiter to its name.
        let boundary = boundary.map(|boundary| boundary.trim_start_matches('-')).unwrap_or_default();
        if boundary.is_empty() {
            return Err(Error::source_failed("the stream names no boundary between its pictures"));
        }
        let delimiter = format!("--{boundary}").into_bytes();
        Ok(Parts { buffer: Vec::new(), delimiter, state: State::Delimiter })
    }

    /// Adds what has arrived.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Whether the sender closed the stream.
    pub(super) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// The next whole part; `None` when more must arrive first.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Source`] when a part or its headers are too long.
    pub(super) fn next_part(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            match self.state {
                State::Closed => return Ok(None),
                State::Delimiter => {
                    if !self.pass_delimiter() {
                        return Ok(None);
                    }
                }
                State::Headers => {
                    if !self.pass_headers()? {
                        return Ok(None);
                    }
                }
                State::Counted(length) => {
                    if self.buffer.len() < length {
                        return Ok(None);
                    }
                    self.state = State::Delimiter;
                    return Ok(Some(self.take(length)));
                }
                State::Open(searched) => {
                    let Some(end) = find(&self.buffer, &self.delimiter, searched) else {
                        if self.buffer.len() > MOST_PART_BYTES {
                            return Err(too_long());
                        }
                        self.state = State::Open(self.buffer.len().saturating_sub(self.delimiter.len()));
                        return Ok(None);
                    };
                    self.state = State::Delimiter;
                    let mut part = self.take(end);
                    for ending in [b'\n', b'\r'] {
                        part.pop_if(|last| *last == ending);
                    }
                    return Ok(Some(part));
                }
            }
        }
    }

    fn take(&mut self, length: usize) -> Vec<u8> {
        let rest = self.buffer.split_off(length);
        std::mem::replace(&mut self.buffer, rest)
    }

    /// Goes over the next delimiter line; `false` when it has not arrived whole.
    fn pass_delimiter(&mut self) -> bool {
        let Some(start) = find(&self.buffer, &self.delimiter, 0) else {
            let kept = self.delimiter.len().min(self.buffer.len());
            self.buffer.drain(..self.buffer.len() - kept);
            return false;
        };
        let after = start + self.delimiter.len();
        if self.buffer[after..].starts_with(b"--") {
            self.state = State::Closed;
            return false;
        }
        let Some(line_end) = self.buffer[after..].iter().position(|&byte| byte == b'\n') else {
            self.buffer.drain(..start);
            return false;
        };
        self.buffer.drain(..=after + line_end);
        self.state = State::Headers;
        true
    }

    /// Reads the headers of a part; `false` when they have not arrived whole.
    fn pass_headers(&mut self) -> Result<bool> {
        let mut length = None;
        let mut position = 0;
        while let Some(line_end) = self.buffer[position..].iter().position(|&byte| byte == b'\n') {
            let line = String::from_utf8_lossy(&self.buffer[position..position + line_end]).trim().to_owned();
            position += line_end + 1;
            if line.is_empty() {
                self.buffer.drain(..position);
                self.state = length.map_or(State::Open(0), State::Counted);
                return if length.is_some_and(|length| length > MOST_PART_BYTES) { Err(too_long()) } else { Ok(true) };
            }
            if let Some((key, value)) = line.split_once(':')
                && key.trim().eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().ok().filter(|&length: &usize| length > 0);
            }
        }
        if self.buffer.len() > MOST_HEADER_BYTES {
            return Err(Error::source_failed("found a part whose headers do not end"));
        }
        Ok(false)
    }
}

fn too_long() -> Error {
    Error::source_failed(format!("found a picture of more than {} MiB", MOST_PART_BYTES >> 20))
}

fn find(bytes: &[u8], wanted: &[u8], from: usize) -> Option<usize> {
    let found = bytes.get(from..)?.windows(wanted.len()).position(|window| window == wanted)?;
    Some(from + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes the parts with the body arriving in pieces of `piece` bytes.
    fn parts(content_type: &str, body: &[u8], piece: usize) -> Vec<Vec<u8>> {
        let mut parts = Parts::new(content_type).unwrap();
        let mut found = Vec::new();
        for chunk in body.chunks(piece) {
            parts.push(chunk);
            while let Some(part) = parts.next_part().unwrap() {
                found.push(part);
            }
        }
        found
    }

    #[test]
    fn counted_and_open_parts_in_pieces_of_any_length() {
        let counted = b"junk\r\n--b\r\nContent-Type: image/jpeg\r\ncontent-length: 7\r\n\r\n\xff--b\n\n1\r\n--b\r\nContent-Length: 1\r\n\r\n2\r\n--b--";
        let open =
            b"--b\r\nContent-Type: image/jpeg\r\n\r\none\r\n--b\r\n\r\ntw\ro\r\n--b\nX: y\n\nthree\n--b\r\n\r\nhalf";
        for piece in 1..40 {
            let found = parts("multipart/x-mixed-replace; boundary=b", counted, piece);
            assert_eq!(found, [b"\xff--b\n\n1".to_vec(), b"2".to_vec()], "{piece}");
            let found = parts("Multipart/X-Mixed-Replace;boundary=\"--b\"", open, piece);
            assert_eq!(found, [b"one".to_vec(), b"tw\ro".to_vec(), b"three".to_vec()], "{piece}");
        }
    }

    #[test]
    fn wrong_types_and_endless_headers_are_errors() {
        for wrong in ["image/jpeg", "text/html; charset=utf-8", "multipart/x-mixed-replace", "multipart/x; boundary="] {
            assert!(Parts::new(wrong).is_err(), "{wrong}");
        }
        let mut endless = Parts::new("multipart/x; boundary=b").unwrap();
        endless.push(b"--b\r\n");
        endless.push(&[b'x'; MOST_HEADER_BYTES + 1]);
        assert!(endless.next_part().is_err());
        let mut huge = Parts::new("multipart/x; boundary=b").unwrap();
        huge.push(b"--b\r\nContent-Length: 99999999999\r\n\r\n");
        assert!(huge.next_part().is_err());
    }
}
