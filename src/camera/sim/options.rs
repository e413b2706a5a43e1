//! The text after `sim:` as checked options.

use super::script::Script;
use crate::error::{Error, Result};
use crate::units::SizePx;
use std::path::PathBuf;

/// Which frames the simulated camera hands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Triggers {
    /// Every frame, none of them belongs to a part.
    #[default]
    Off,
    /// Every frame; the one that shows a part at the inspection position carries the part's id.
    Mark,
    /// Only the frames of parts at the inspection position, as a camera wired to a light barrier.
    Only,
}

/// Options of the simulated line, from the source text `sim:?seed=7&fps=30&script=day`.
#[derive(Debug, Clone, PartialEq)]
pub struct SimOptions {
    /// Equal seeds give equal frames. Key `seed`, default 1.
    pub seed: u64,
    /// Frames a second, 5 to 240. Key `fps`, default 30.
    pub fps: f32,
    /// Picture size in pixels, 160×96 to 4096×3072. Key `size=640x384`.
    pub size: SizePx,
    /// What happens when. Key `script`: `clean`, `day`, `training` or a TOML file. Default `clean`.
    pub script: Script,
    /// Frames come as fast as they are taken; capture times still follow `fps`. Key `fast`.
    pub fast: bool,
    /// Key `triggers` (mark) or `triggers=only`.
    pub triggers: Triggers,
    /// Ends after this many frames. Key `frames`.
    pub frames: Option<u64>,
    /// Share of defective parts, 0 to 1; overrides the script's. Key `defects`.
    pub defects: Option<f32>,
    /// Truth is written here, one JSON line a frame. Key `truth`.
    pub truth: Option<PathBuf>,
}

impl Default for SimOptions {
    fn default() -> Self {
        SimOptions {
            seed: 1,
            fps: 30.0,
            size: SizePx::new(640, 384),
            script: Script::clean(),
            fast: false,
            triggers: Triggers::Off,
            frames: None,
            defects: None,
            truth: None,
        }
    }
}

const KEYS: &str = "seed, fps, size, script, fast, triggers, frames, defects, truth";

impl SimOptions {
    /// Reads a source text: `sim:`, `sim:?key=value&key`, or only the part behind `sim:`; the `?` may be left out.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for an unknown key, a key given twice or a value out of range, and whatever a script
    /// file gives.
    pub fn parse(text: &str) -> Result<Self> {
        Self::parse_query(text).map_err(|error| error.hint("see docs/simulated-line.md for what each key does"))
    }

    fn parse_query(text: &str) -> Result<Self> {
        let query = text.strip_prefix("sim:").unwrap_or(text);
        let query = query.strip_prefix('?').unwrap_or(query);
        let mut options = SimOptions::default();
        let mut seen = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').map_or((pair, None), |(key, value)| (key, Some(value)));
            if seen.contains(&key) {
                return Err(
                    Error::usage(format!("found `{key}` twice, expected it once")).at(format!("source `{text}`"))
                );
            }
            seen.push(key);
            options.set(key, value).map_err(|error| error.at(format!("source `{text}`, key `{key}`")))?;
        }
        options.check().map_err(|error| error.at(format!("source `{text}`")))?;
        Ok(options)
    }

    fn set(&mut self, key: &str, value: Option<&str>) -> Result<()> {
        match key {
            "seed" => self.seed = number(value, "a whole number")?,
            "fps" => self.fps = number(value, "frames a second, 5 to 240")?,
            "size" => self.size = size(value)?,
            "script" => self.script = Script::named_or_file(value.unwrap_or_default())?,
            "fast" => self.fast = flag(value)?,
            "triggers" => {
                self.triggers = match value {
                    None | Some("mark") => Triggers::Mark,
                    Some("only") => Triggers::Only,
                    Some("off") => Triggers::Off,
                    Some(other) => return Err(wrong(other, "`mark`, `only` or `off`")),
                }
            }
            "frames" => self.frames = Some(number(value, "a number of frames")?),
            "defects" => self.defects = Some(number(value, "a share from 0 to 1")?),
            "truth" => match value {
                Some(path) if !path.is_empty() => self.truth = Some(PathBuf::from(path)),
                _ => return Err(wrong("", "a file name")),
            },
            _ => {
                return Err(Error::usage(format!("found key `{key}`, expected one of {KEYS}")));
            }
        }
        Ok(())
    }

    /// Whether the values go together; [`SimOptions::parse`] has already asked.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] with the value found and the range expected.
    pub fn check(&self) -> Result<()> {
        let SizePx { width_px, height_px } = self.size;
        if !(160..=4096).contains(&width_px) || !(96..=3072).contains(&height_px) {
            return Err(Error::usage(format!("found size {}, expected 160×96 to 4096×3072", self.size)));
        }
        if width_px < height_px {
            return Err(Error::usage(format!("found size {}, expected a picture at least as wide as high", self.size)));
        }
        if !(5.0..=240.0).contains(&self.fps) {
            return Err(Error::usage(format!("found fps {}, expected 5 to 240", self.fps)));
        }
        if let Some(share) = self.defects
            && !(0.0..=1.0).contains(&share)
        {
            return Err(Error::usage(format!("found defects {share}, expected a share from 0 to 1")));
        }
        Ok(())
    }
}

fn number<T: std::str::FromStr>(value: Option<&str>, expected: &str) -> Result<T> {
    let value = value.unwrap_or_default();
    value.parse().map_err(|_| wrong(value, expected))
}

fn flag(value: Option<&str>) -> Result<bool> {
    match value {
        None | Some("true" | "1") => Ok(true),
        Some("false" | "0") => Ok(false),
        Some(other) => Err(wrong(other, "no value, `true` or `false`")),
    }
}

fn size(value: Option<&str>) -> Result<SizePx> {
    let value = value.unwrap_or_default();
    let expected = "width x height in pixels, as in 640x384";
    let (width, height) = value.split_once(['x', '×']).ok_or_else(|| wrong(value, expected))?;
    let side = |text: &str| text.parse().map_err(|_| wrong(value, expected));
    Ok(SizePx::new(side(width)?, side(height)?))
}

fn wrong(found: &str, expected: &str) -> Error {
    Error::usage(format!("found `{found}`, expected {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read() {
        let options = SimOptions::parse(
            "sim:?seed=7&fps=25&size=800x480&script=day&fast&triggers=only&frames=9&defects=0.5&truth=t.jsonl",
        )
        .unwrap();
        assert_eq!(options.seed, 7);
        assert_eq!(options.fps, 25.0);
        assert_eq!(options.size, SizePx::new(800, 480));
        assert_eq!(options.script.name, "day");
        assert!(options.fast);
        assert_eq!(options.triggers, Triggers::Only);
        assert_eq!(options.frames, Some(9));
        assert_eq!(options.defects, Some(0.5));
        assert_eq!(options.truth, Some(PathBuf::from("t.jsonl")));
        assert_eq!(SimOptions::parse("sim:").unwrap(), SimOptions::default());
        assert_eq!(SimOptions::parse("sim:seed=1").unwrap(), SimOptions::default());
        assert_eq!(SimOptions::parse("").unwrap(), SimOptions::default());
    }

    #[test]
    fn bad_text_is_one_clear_error() {
        for bad in [
            "sim:7",
            "sim:?sed=7",
            "sim:?seed",
            "sim:?seed=-1",
            "sim:?seed=1&seed=2",
            "sim:?fps=0",
            "sim:?fps=nan",
            "sim:?size=640",
            "sim:?size=0x0",
            "sim:?size=384x640",
            "sim:?script=nowhere",
            "sim:?script=",
            "sim:?triggers=yes",
            "sim:?defects=1.5",
            "sim:?truth=",
            "sim:?fast=maybe",
        ] {
            let error = SimOptions::parse(bad).expect_err(bad);
            assert_eq!(error.kind().exit_code(), 2, "{bad}: {error}");
            assert!(error.message().contains("expected"), "{bad}: {error}");
            assert!(error.place().is_some(), "{bad}");
        }
    }
}
