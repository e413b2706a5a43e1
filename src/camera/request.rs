//! What is asked of a camera: mode and controls. One struct serves flags, `edge.toml` and the V4L2 code.

use crate::error::{Error, Result};
use crate::units::SizePx;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Mode and controls asked of a camera; what is not given is left as the camera has it.
///
/// The same names serve as keys of `[stream.camera]` in `edge.toml` (`rate_fps = 30`) and, with dashes, as flags
/// (`--rate-fps 30`).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct CameraRequest {
    /// Picture size, px, as `1280x720`; without it the camera's current size
    #[arg(long, value_name = "WxH")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_px: Option<RequestedSize>,
    /// Frames a second; without it the camera's current rate
    #[arg(long, value_name = "FPS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_fps: Option<f64>,
    /// Pixel format; without it MJPG above 640×480, else an uncompressed one
    #[arg(long, value_name = "FORMAT", value_parser = parse::<CameraFormat>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pixel_format: Option<CameraFormat>,
    /// Exposure time in µs (the camera rounds to 100 µs), or `auto`
    #[arg(long, value_name = "US|auto")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exposure_us: Option<AutoOr>,
    /// Gain in the camera's own steps, or `auto`
    #[arg(long, value_name = "STEPS|auto")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<AutoOr>,
    /// White balance as colour temperature in K, or `auto`
    #[arg(long, value_name = "K|auto")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub white_balance_k: Option<AutoOr>,
    /// Focus in the camera's own steps, or `auto`
    #[arg(long, value_name = "STEPS|auto")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub focus: Option<AutoOr>,
    /// Power-line frequency against flicker: `off`, `50`, `60` or `auto`
    #[arg(long, value_name = "HZ", value_parser = parse::<PowerLine>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_line_hz: Option<PowerLine>,
    /// Brightness in the camera's own steps
    #[arg(long, value_name = "STEPS", allow_negative_numbers = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brightness: Option<i32>,
    /// Contrast in the camera's own steps
    #[arg(long, value_name = "STEPS", allow_negative_numbers = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contrast: Option<i32>,
    /// Saturation in the camera's own steps
    #[arg(long, value_name = "STEPS", allow_negative_numbers = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saturation: Option<i32>,
    /// Sharpness in the camera's own steps
    #[arg(long, value_name = "STEPS", allow_negative_numbers = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharpness: Option<i32>,
    /// Back-light compensation in the camera's own steps
    #[arg(long, value_name = "STEPS", allow_negative_numbers = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backlight_compensation: Option<i32>,
    /// The camera counts as lost after this many milliseconds without a picture (5000 unless given)
    #[arg(long, value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silence_ms: Option<u64>,
}

impl CameraRequest {
    /// How long a camera may give no picture before it counts as lost.
    pub fn silence(&self) -> Duration {
        Duration::from_millis(self.silence_ms.unwrap_or(5000))
    }

    /// Whether nothing but the silence limit is asked for.
    pub fn is_empty(&self) -> bool {
        *self == CameraRequest { silence_ms: self.silence_ms, ..CameraRequest::default() }
    }

    /// Checks ranges that need no camera.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] naming the key.
    pub fn check(&self) -> Result<()> {
        if let Some(rate_fps) = self.rate_fps
            && !(rate_fps > 0.0 && rate_fps <= 10_000.0)
        {
            return Err(Error::usage(format!("found rate_fps {rate_fps}, expected above 0 and at most 10000")));
        }
        if self.silence_ms == Some(0) {
            return Err(Error::usage("found silence_ms 0, expected at least 1"));
        }
        Ok(())
    }
}

fn parse<T: FromStr<Err = Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: Error| error.message().to_owned())
}

/// A picture size typed as `1280x720`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RequestedSize(pub SizePx);

impl FromStr for RequestedSize {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad =
            || Error::usage(format!("`{text}` is not a picture size, expected width x height in px, like `1280x720`"));
        let (width, height) = text.trim().split_once(['x', 'X', '×', '*']).ok_or_else(bad)?;
        let width_px: u32 = width.trim().parse().map_err(|_| bad())?;
        let height_px: u32 = height.trim().parse().map_err(|_| bad())?;
        if !(1..=65_535).contains(&width_px) || !(1..=65_535).contains(&height_px) {
            return Err(bad());
        }
        Ok(RequestedSize(SizePx::new(width_px, height_px)))
    }
}

impl TryFrom<String> for RequestedSize {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<RequestedSize> for String {
    fn from(size: RequestedSize) -> Self {
        format!("{}x{}", size.0.width_px, size.0.height_px)
    }
}

/// A pixel format that a camera can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CameraFormat {
    /// Motion JPEG: one JPEG a frame.
    Mjpg,
    /// 4:2:2, Y0 U Y1 V.
    Yuyv,
    /// 4:2:2, U Y0 V Y1.
    Uyvy,
    /// 4:2:0, a luma plane and an interleaved chroma plane.
    Nv12,
    /// 8-bit luma alone.
    Grey,
}

impl CameraFormat {
    /// Every format, in the order of preference up to 640×480.
    pub const ALL: [CameraFormat; 5] =
        [CameraFormat::Yuyv, CameraFormat::Uyvy, CameraFormat::Nv12, CameraFormat::Mjpg, CameraFormat::Grey];

    /// The name as typed in flags and configuration.
    pub const fn name(self) -> &'static str {
        match self {
            CameraFormat::Mjpg => "mjpg",
            CameraFormat::Yuyv => "yuyv",
            CameraFormat::Uyvy => "uyvy",
            CameraFormat::Nv12 => "nv12",
            CameraFormat::Grey => "grey",
        }
    }
}

impl fmt::Display for CameraFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CameraFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let lower = text.trim().to_ascii_lowercase();
        Ok(match lower.as_str() {
            "mjpg" | "mjpeg" => CameraFormat::Mjpg,
            "yuyv" | "yuy2" => CameraFormat::Yuyv,
            "uyvy" => CameraFormat::Uyvy,
            "nv12" => CameraFormat::Nv12,
            "grey" | "gray" => CameraFormat::Grey,
            _ => {
                return Err(Error::usage(format!(
                    "found pixel format `{text}`, expected mjpg, yuyv, uyvy, nv12 or grey"
                ))
                .hint("raw Bayer formats come through the CSI source, not through this one"));
            }
        })
    }
}

/// A control that the camera steers itself, or a fixed value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "NumberOrText", into = "NumberOrText")]
pub enum AutoOr {
    /// The camera steers it.
    Auto,
    /// A fixed value in the unit that the key names.
    Value(i32),
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(i64),
    Text(String),
}

impl TryFrom<NumberOrText> for AutoOr {
    type Error = Error;

    fn try_from(value: NumberOrText) -> Result<Self> {
        match value {
            NumberOrText::Number(number) => number.to_string().parse(),
            NumberOrText::Text(text) => text.parse(),
        }
    }
}

impl From<AutoOr> for NumberOrText {
    fn from(value: AutoOr) -> Self {
        match value {
            AutoOr::Auto => NumberOrText::Text("auto".to_owned()),
            AutoOr::Value(number) => NumberOrText::Number(number.into()),
        }
    }
}

impl FromStr for AutoOr {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.trim() {
            "auto" => Ok(AutoOr::Auto),
            number => match number.parse::<i32>() {
                Ok(value) if value >= 0 => Ok(AutoOr::Value(value)),
                _ => Err(Error::usage(format!("found `{text}`, expected `auto` or a whole number from 0"))),
            },
        }
    }
}

/// Power-line frequency that exposure is aligned with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "NumberOrText", into = "NumberOrText")]
pub enum PowerLine {
    /// No alignment.
    Off,
    /// 50 Hz.
    Hz50,
    /// 60 Hz.
    Hz60,
    /// The camera finds out.
    Auto,
}

impl FromStr for PowerLine {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text.trim() {
            "off" | "0" => PowerLine::Off,
            "50" => PowerLine::Hz50,
            "60" => PowerLine::Hz60,
            "auto" => PowerLine::Auto,
            _ => {
                return Err(Error::usage(format!("found power-line frequency `{text}`, expected off, 50, 60 or auto")));
            }
        })
    }
}

impl TryFrom<NumberOrText> for PowerLine {
    type Error = Error;

    fn try_from(value: NumberOrText) -> Result<Self> {
        match value {
            NumberOrText::Number(number) => number.to_string().parse(),
            NumberOrText::Text(text) => text.parse(),
        }
    }
}

impl From<PowerLine> for NumberOrText {
    fn from(value: PowerLine) -> Self {
        match value {
            PowerLine::Off => NumberOrText::Text("off".to_owned()),
            PowerLine::Hz50 => NumberOrText::Number(50),
            PowerLine::Hz60 => NumberOrText::Number(60),
            PowerLine::Auto => NumberOrText::Text("auto".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        request: CameraRequest,
    }

    #[test]
    fn keys_and_flags_give_the_same_request() {
        let keys: CameraRequest = toml::from_str(
            "size_px = \"1280x720\"\nrate_fps = 29.97\npixel_format = \"mjpg\"\nexposure_us = 5000\ngain = \"auto\"\n\
             white_balance_k = 4600\nfocus = 0\npower_line_hz = 50\nbrightness = -3\nsilence_ms = 2000",
        )
        .unwrap();
        let flags = Program::try_parse_from([
            "p",
            "--size-px",
            "1280x720",
            "--rate-fps",
            "29.97",
            "--pixel-format",
            "MJPEG",
            "--exposure-us",
            "5000",
            "--gain",
            "auto",
            "--white-balance-k",
            "4600",
            "--focus",
            "0",
            "--power-line-hz",
            "50",
            "--brightness",
            "-3",
            "--silence-ms",
            "2000",
        ])
        .unwrap();
        assert_eq!(keys, flags.request);
        assert_eq!(toml::from_str::<CameraRequest>(&toml::to_string(&keys).unwrap()).unwrap(), keys);
        keys.check().unwrap();
    }

    #[test]
    fn bad_values_and_unknown_keys_are_errors() {
        for bad in [
            "size_px = \"1280\"",
            "size_px = \"0x5\"",
            "size_px = \"99999x5\"",
            "exposure = 5",
            "exposure_us = -1",
            "exposure_us = 99999999999",
            "gain = \"full\"",
            "power_line_hz = 55",
            "pixel_format = \"rggb\"",
        ] {
            assert!(toml::from_str::<CameraRequest>(bad).is_err(), "{bad}");
        }
        for bad in ["rate_fps = 0", "rate_fps = -1", "rate_fps = nan", "silence_ms = 0"] {
            assert!(toml::from_str::<CameraRequest>(bad).unwrap().check().is_err(), "{bad}");
        }
    }
}
