//! Sets what is asked of a camera, reads it back and says both.

use crate::camera::request::{AutoOr, CameraRequest, PowerLine};
use crate::error::{Error, Result};
use crate::ffi::v4l2::Device;

/// Control ids of the kernel (`V4L2_CID_…`).
mod id {
    pub(super) const BRIGHTNESS: u32 = 0x0098_0900;
    pub(super) const CONTRAST: u32 = 0x0098_0901;
    pub(super) const SATURATION: u32 = 0x0098_0902;
    pub(super) const AUTO_WHITE_BALANCE: u32 = 0x0098_090c;
    pub(super) const AUTO_GAIN: u32 = 0x0098_0912;
    pub(super) const GAIN: u32 = 0x0098_0913;
    pub(super) const POWER_LINE: u32 = 0x0098_0918;
    pub(super) const WHITE_BALANCE_K: u32 = 0x0098_091a;
    pub(super) const SHARPNESS: u32 = 0x0098_091b;
    pub(super) const BACKLIGHT: u32 = 0x0098_091c;
    pub(super) const EXPOSURE_MODE: u32 = 0x009a_0901;
    pub(super) const EXPOSURE_100US: u32 = 0x009a_0902;
    pub(super) const EXPOSURE_MAY_SLOW_DOWN: u32 = 0x009a_0903;
    pub(super) const FOCUS: u32 = 0x009a_090a;
    pub(super) const AUTO_FOCUS: u32 = 0x009a_090c;
}

const EXPOSURE_AUTO: i32 = 0;
const EXPOSURE_MANUAL: i32 = 1;
const EXPOSURE_APERTURE_PRIORITY: i32 = 3;

/// What the kernel calls are needed for; a table in tests.
pub(super) trait Controls {
    /// Lowest, highest value and step; `None` when the camera lacks the control.
    fn range(&self, id: u32) -> std::io::Result<Option<(i32, i32, i32)>>;
    /// Reads it.
    fn value(&self, id: u32) -> std::io::Result<i32>;
    /// Sets it.
    fn set(&self, id: u32, value: i32) -> std::io::Result<()>;
}

impl Controls for Device {
    fn range(&self, id: u32) -> std::io::Result<Option<(i32, i32, i32)>> {
        Ok(self.control_range(id)?.map(|range| (range.minimum, range.maximum, range.step)))
    }

    fn value(&self, id: u32) -> std::io::Result<i32> {
        self.control(id)
    }

    fn set(&self, id: u32, value: i32) -> std::io::Result<()> {
        self.set_control(id, value)
    }
}

/// What was set, and whether the camera exposes by itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Applied {
    /// One entry a control: `exposure 5000 µs`.
    pub(super) said: Vec<String>,
    /// `None` when the camera does not say.
    pub(super) exposes_by_itself: Option<bool>,
}

/// Sets everything in `request` and reads it back.
///
/// # Errors
/// [`crate::ErrorKind::Source`] when the camera lacks a control, a value is outside its range, or the camera does not
/// keep what was set.
pub(super) fn apply(camera: &dyn Controls, request: &CameraRequest) -> Result<Applied> {
    let mut setter = Setter { camera, said: Vec::new() };
    setter.exposure(request.exposure_us)?;
    setter.switched("gain", request.gain, id::AUTO_GAIN, id::GAIN)?;
    setter.switched("white_balance_k", request.white_balance_k, id::AUTO_WHITE_BALANCE, id::WHITE_BALANCE_K)?;
    setter.switched("focus", request.focus, id::AUTO_FOCUS, id::FOCUS)?;
    setter.power_line(request.power_line_hz)?;
    for (key, id, value) in [
        ("brightness", id::BRIGHTNESS, request.brightness),
        ("contrast", id::CONTRAST, request.contrast),
        ("saturation", id::SATURATION, request.saturation),
        ("sharpness", id::SHARPNESS, request.sharpness),
        ("backlight_compensation", id::BACKLIGHT, request.backlight_compensation),
    ] {
        if let Some(value) = value {
            let kept = setter.number(key, id, value)?;
            setter.said.push(format!("{key} {kept}"));
        }
    }
    let exposes_by_itself = match camera.range(id::EXPOSURE_MODE) {
        Ok(Some(_)) => camera.value(id::EXPOSURE_MODE).ok().map(|mode| mode != EXPOSURE_MANUAL),
        _ => None,
    };
    Ok(Applied { said: setter.said, exposes_by_itself })
}

struct Setter<'a> {
    camera: &'a dyn Controls,
    said: Vec<String>,
}

impl Setter<'_> {
    fn has(&self, id: u32) -> Result<bool> {
        Ok(self.camera.range(id).map_err(|error| failed("a control", &error))?.is_some())
    }

    /// Sets a value and gives the one that the camera keeps: the same, or rounded to its step.
    fn number(&self, key: &str, id: u32, value: i32) -> Result<i32> {
        let range = self.camera.range(id).map_err(|error| failed(key, &error))?;
        let Some((least, most, step)) = range else {
            return Err(Error::source_failed(format!("the camera has no control for `{key}`"))
                .hint(format!("leave `{key}` out, or choose a camera that has it")));
        };
        if value < least || value > most {
            return Err(Error::source_failed(format!("found {key} {value}, expected {least} to {most}")));
        }
        self.camera.set(id, value).map_err(|error| failed(key, &error))?;
        let kept = self.camera.value(id).map_err(|error| failed(key, &error))?;
        if kept.abs_diff(value) >= step.unsigned_abs().max(1) {
            return Err(Error::source_failed(format!("the camera keeps {key} {kept}, expected {value}"))
                .hint("another program may be setting it, or an automatic mode overrides it"));
        }
        if kept != value {
            log::warn!("the camera rounds {key} to {kept}, asked for {value}");
        }
        Ok(kept)
    }

    fn exposure(&mut self, wanted: Option<AutoOr>) -> Result<()> {
        match wanted {
            None => Ok(()),
            Some(AutoOr::Auto) => {
                let priority = self.number("exposure_us", id::EXPOSURE_MODE, EXPOSURE_APERTURE_PRIORITY);
                if priority.is_err() {
                    self.number("exposure_us", id::EXPOSURE_MODE, EXPOSURE_AUTO)?;
                }
                self.said.push("exposure automatic".to_owned());
                Ok(())
            }
            Some(AutoOr::Value(value_us)) => {
                let steps = value_us / 100 + i32::from(value_us % 100 >= 50);
                if steps == 0 {
                    return Err(Error::source_failed(format!("found exposure_us {value_us}, expected at least 50")));
                }
                if self.has(id::EXPOSURE_MODE)? {
                    self.number("exposure_us", id::EXPOSURE_MODE, EXPOSURE_MANUAL)?;
                }
                if self.has(id::EXPOSURE_MAY_SLOW_DOWN)? {
                    self.number("exposure_us", id::EXPOSURE_MAY_SLOW_DOWN, 0)?;
                }
                let kept = self.number("exposure_us in steps of 100 µs,", id::EXPOSURE_100US, steps)?;
                self.said.push(format!("exposure {} µs", i64::from(kept) * 100));
                Ok(())
            }
        }
    }

    /// A value with a switch that lets the camera steer it.
    fn switched(&mut self, key: &str, wanted: Option<AutoOr>, switch: u32, id: u32) -> Result<()> {
        match wanted {
            None => {}
            Some(AutoOr::Auto) => {
                self.number(key, switch, 1)?;
                self.said.push(format!("{key} automatic"));
            }
            Some(AutoOr::Value(value)) => {
                if self.has(switch)? {
                    self.number(key, switch, 0)?;
                }
                let kept = self.number(key, id, value)?;
                self.said.push(format!("{key} {kept}"));
            }
        }
        Ok(())
    }

    fn power_line(&mut self, wanted: Option<PowerLine>) -> Result<()> {
        let (value, said) = match wanted {
            None => return Ok(()),
            Some(PowerLine::Off) => (0, "off"),
            Some(PowerLine::Hz50) => (1, "50 Hz"),
            Some(PowerLine::Hz60) => (2, "60 Hz"),
            Some(PowerLine::Auto) => (3, "automatic"),
        };
        self.number("power_line_hz", id::POWER_LINE, value)?;
        self.said.push(format!("power line {said}"));
        Ok(())
    }
}

fn failed(key: &str, error: &std::io::Error) -> Error {
    Error::source_failed(format!("the camera refuses to set or read {key}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    /// A camera whose exposure follows its mode, and whose gain is stuck when `stuck`.
    struct Table {
        values: RefCell<BTreeMap<u32, (i32, i32, i32, i32)>>,
        stuck: bool,
    }

    fn table(stuck: bool) -> Table {
        let values = [
            (id::EXPOSURE_MODE, (0, 3, 1, 3)),
            (id::EXPOSURE_100US, (3, 2047, 1, 250)),
            (id::EXPOSURE_MAY_SLOW_DOWN, (0, 1, 1, 1)),
            (id::GAIN, (0, 100, 10, 0)),
            (id::POWER_LINE, (0, 2, 1, 2)),
        ];
        Table { values: RefCell::new(values.into()), stuck }
    }

    impl Controls for Table {
        fn range(&self, id: u32) -> std::io::Result<Option<(i32, i32, i32)>> {
            Ok(self.values.borrow().get(&id).map(|&(least, most, step, _)| (least, most, step)))
        }

        fn value(&self, id: u32) -> std::io::Result<i32> {
            self.values.borrow().get(&id).map(|entry| entry.3).ok_or_else(|| std::io::Error::other("none"))
        }

        fn set(&self, id: u32, value: i32) -> std::io::Result<()> {
            if !self.stuck || id != id::GAIN {
                let mut values = self.values.borrow_mut();
                let entry = values.get_mut(&id).ok_or_else(|| std::io::Error::other("none"))?;
                entry.3 = value - value % entry.2;
            }
            Ok(())
        }
    }

    fn request(text: &str) -> CameraRequest {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn exposure_switches_the_automatic_off_first() {
        let camera = table(false);
        assert_eq!(apply(&camera, &CameraRequest::default()).unwrap().exposes_by_itself, Some(true));
        let applied = apply(&camera, &request("exposure_us = 5000\npower_line_hz = 50\ngain = 13")).unwrap();
        assert_eq!(applied.exposes_by_itself, Some(false));
        assert_eq!(applied.said, ["exposure 5000 µs", "gain 10", "power line 50 Hz"]);
        let set = |id| camera.value(id).unwrap();
        assert_eq!((set(id::EXPOSURE_MODE), set(id::EXPOSURE_100US), set(id::EXPOSURE_MAY_SLOW_DOWN)), (1, 50, 0));
        assert_eq!((set(id::GAIN), set(id::POWER_LINE)), (10, 1));
        assert_eq!(apply(&camera, &request("exposure_us = \"auto\"")).unwrap().exposes_by_itself, Some(true));
    }

    #[test]
    fn what_the_camera_lacks_refuses_or_forgets_is_an_error() {
        for (text, word) in [
            ("focus = 3", "no control for `focus`"),
            ("gain = 101", "expected 0 to 100"),
            ("gain = 50", "keeps gain 0, expected 50"),
            ("power_line_hz = \"auto\"", "expected 0 to 2"),
            ("gain = \"auto\"", "no control for `gain`"),
            ("exposure_us = 10", "at least 50"),
        ] {
            let error = apply(&table(true), &request(text)).expect_err(text);
            assert!(error.message().contains(word), "{text}: {error}");
        }
    }
}
