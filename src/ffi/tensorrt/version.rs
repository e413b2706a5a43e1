//! TensorRT's version number and the binary family it selects.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The version of a loaded library, as `getInferLibVersion()` gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    /// As in the 10 of 10.3.0.
    pub major: u16,
    /// As in the 3 of 10.3.0.
    pub minor: u16,
    /// As in the 0 of 10.3.0.
    pub patch: u16,
}

impl Version {
    /// Reads the number: up to TensorRT 9 `major × 1000 + minor × 100 + patch`, later and TensorRT-RTX `major × 10000 + …`.
    pub fn from_number(number: i32) -> Option<Version> {
        let number = u16::try_from(number % 10_000).ok().zip(u16::try_from(number / 10_000).ok());
        let (low, high) = number?;
        Some(match high {
            0 => Version { major: low / 1000, minor: low / 100 % 10, patch: low % 100 },
            major => Version { major, minor: low / 100, patch: low % 100 },
        })
    }

    /// The number that [`Version::from_number`] reads.
    pub fn number(self) -> i32 {
        let (major, low) = (i32::from(self.major), i32::from(self.minor) * 100 + i32::from(self.patch));
        if (2..10).contains(&self.major) { major * 1000 + low } else { major * 10_000 + low }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Libraries with the same virtual tables. TensorRT-RTX changed its tables in 1.5 inside the same file name, so the family is
/// chosen by version, never by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// TensorRT 8.5 and 8.6 (JetPack 5).
    TensorRt8,
    /// TensorRT 10 (JetPack 6, PCs).
    TensorRt10,
    /// TensorRT 11.
    TensorRt11,
    /// TensorRT-RTX 1.3 and 1.4.
    Rtx13,
    /// TensorRT-RTX 1.5 and newer.
    Rtx15,
}

impl Family {
    /// All families, in the order of the columns of the slot table.
    pub const ALL: [Family; 5] =
        [Family::TensorRt8, Family::TensorRt10, Family::TensorRt11, Family::Rtx13, Family::Rtx15];

    /// The family of a version.
    ///
    /// # Errors
    /// [`crate::ErrorKind::MachineLacks`] for a version that is too old or whose tables are not known.
    pub fn of(version: Version) -> Result<Family> {
        match (version.major, version.minor) {
            (8, 5..) => Ok(Family::TensorRt8),
            (10, _) => Ok(Family::TensorRt10),
            (11, _) => Ok(Family::TensorRt11),
            (1, 3..=4) => Ok(Family::Rtx13),
            (1, 5..) => Ok(Family::Rtx15),
            (1, _) => Err(unsupported(version, "TensorRT-RTX 1.3 or newer")),
            (major, _) if major < 10 => Err(unsupported(version, "TensorRT 8.5, 8.6, 10 or 11")),
            _ => Err(unsupported(version, "TensorRT 8.5, 8.6, 10 or 11, whose binary layout is known")),
        }
    }

    /// The flavour that a user asks for.
    pub fn flavour(self) -> Flavour {
        match self {
            Family::TensorRt8 => Flavour::Trt8,
            Family::TensorRt10 => Flavour::Trt10,
            Family::TensorRt11 => Flavour::Trt11,
            Family::Rtx13 | Family::Rtx15 => Flavour::Rtx,
        }
    }

    /// Column of the slot table.
    pub(super) fn column(self) -> usize {
        match self {
            Family::TensorRt8 => 0,
            Family::TensorRt10 => 1,
            Family::TensorRt11 => 2,
            Family::Rtx13 => 3,
            Family::Rtx15 => 4,
        }
    }
}

fn unsupported(version: Version, wanted: &str) -> Error {
    Error::machine_lacks(format!("found version {version}, expected {wanted}"))
}

/// The TensorRT family that a user names: `trt8`, `trt10`, `trt11` or `rtx`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavour {
    /// TensorRT 8.5 or 8.6.
    Trt8,
    /// TensorRT 10.
    Trt10,
    /// TensorRT 11.
    Trt11,
    /// TensorRT-RTX 1.3 or newer.
    Rtx,
}

impl Flavour {
    /// All flavours.
    pub const ALL: [Flavour; 4] = [Flavour::Trt8, Flavour::Trt10, Flavour::Trt11, Flavour::Rtx];

    /// The name that flags and platform files use.
    pub fn name(self) -> &'static str {
        match self {
            Flavour::Trt8 => "trt8",
            Flavour::Trt10 => "trt10",
            Flavour::Trt11 => "trt11",
            Flavour::Rtx => "rtx",
        }
    }

    /// The product's name for people.
    pub fn product(self) -> &'static str {
        match self {
            Flavour::Trt8 => "TensorRT 8",
            Flavour::Trt10 => "TensorRT 10",
            Flavour::Trt11 => "TensorRT 11",
            Flavour::Rtx => "TensorRT-RTX",
        }
    }

    /// Whether plans can be built without a GPU, for compute capabilities that are not this machine's.
    pub fn builds_without_gpu(self) -> bool {
        self == Flavour::Rtx
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Flavour {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Flavour::ALL
            .into_iter()
            .find(|flavour| flavour.name() == text)
            .ok_or_else(|| Error::usage(format!("found flavour `{text}`, expected `trt8`, `trt10`, `trt11` or `rtx`")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_both_schemes_are_read() {
        for (number, text) in [
            (8503, "8.5.3"),
            (8601, "8.6.1"),
            (100_000, "10.0.0"),
            (101_501, "10.15.1"),
            (10_701, "1.7.1"),
            (110_400, "11.4.0"),
        ] {
            let version = Version::from_number(number).unwrap();
            assert_eq!(version.to_string(), text);
            assert_eq!(version.number(), number, "{text}");
        }
        assert_eq!(Version::from_number(-1), None);
        assert_eq!(Version::from_number(i32::MIN), None);
        assert!(Version::from_number(i32::MAX).is_none_or(|version| Family::of(version).is_err()));
    }

    #[test]
    fn families_are_chosen_by_version_and_unknown_ones_refused() {
        let family = |number| Family::of(Version::from_number(number).unwrap());
        assert_eq!(family(8502).unwrap(), Family::TensorRt8);
        assert_eq!(family(10_400).unwrap(), Family::Rtx13);
        assert_eq!(family(10_500).unwrap(), Family::Rtx15);
        assert_eq!(family(100_300).unwrap(), Family::TensorRt10);
        assert_eq!(family(110_400).unwrap(), Family::TensorRt11);
        for (number, found) in [(8403, "8.4.3"), (9300, "9.3.0"), (10_200, "1.2.0"), (120_000, "12.0.0"), (0, "0.0.0")]
        {
            let error = family(number).unwrap_err();
            assert_eq!(error.kind().exit_code(), 10);
            assert!(error.message().contains(&format!("found version {found}")), "{error}");
        }
    }
}
