//! SHA-256 as lower-case hex.

use sha2::{Digest, Sha256};

/// SHA-256 of `bytes`, lower-case hex.
pub fn sha256(bytes: &[u8]) -> String {
    let mut running = RunningHash::default();
    running.update(bytes);
    running.finish()
}

/// SHA-256 of bytes that come in pieces.
#[derive(Debug, Default, Clone)]
pub struct RunningHash(Sha256);

impl RunningHash {
    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash, lower-case hex.
    pub fn finish(self) -> String {
        use std::fmt::Write;
        self.0.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
            let _infallible = write!(text, "{byte:02x}");
            text
        })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn known_value() {
        assert_eq!(super::sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
