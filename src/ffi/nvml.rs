//! NVIDIA's management library, where a driver brings it: temperature, clocks, throttling and memory errors of discrete GPUs.

mod session;

pub use session::{Event, Gpu, Held, Session};

use libloading::Library;
use serde::Serialize;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::path::Path;

/// `nvmlReturn_t`; 0 is success.
type Code = c_int;
/// `nvmlDevice_t`.
type Device = *mut c_void;

/// Most devices asked.
const MOST_DEVICES: u32 = 64;
/// `NVML_CLOCK_SM`, `NVML_CLOCK_MEM`.
const CLOCKS: [c_uint; 2] = [1, 2];
/// Reasons for lower clocks that are no trouble: idle, clocks set by an application or by its user, display.
const HARMLESS: c_ulonglong = 0x1 | 0x2 | 0x100;
/// Bits of `nvmlClocksThrottleReason…` and what they mean.
const REASONS: [(c_ulonglong, &str); 6] = [
    (0x4, "power limit"),
    (0x8, "hardware slowdown"),
    (0x10, "clocks of a group in step"),
    (0x20, "temperature (software)"),
    (0x40, "temperature (hardware)"),
    (0x80, "power brake"),
];

/// What one GPU says of itself; `None` where it does not tell.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub struct GpuHealth {
    /// Product name.
    pub name: String,
    /// Of the chip.
    pub temperature_celsius: Option<u32>,
    /// Multiprocessor clock now.
    pub clock_mhz: Option<u32>,
    /// Highest multiprocessor clock.
    pub highest_clock_mhz: Option<u32>,
    /// Memory clock now.
    pub memory_clock_mhz: Option<u32>,
    /// Why the clocks are held down, other than for want of work.
    pub throttled_by: Option<Vec<String>>,
    /// Power drawn now.
    pub power_watts: Option<f64>,
    /// Most power it may draw.
    pub power_limit_watts: Option<f64>,
    /// Memory errors that could not be corrected, since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
    /// Memory errors that were corrected, since the driver was loaded.
    pub ecc_corrected: Option<u64>,
}

/// The health of all GPUs, or why it cannot be told.
///
/// # Errors
/// A sentence: no library, or one that does not answer.
pub fn health() -> Result<Vec<GpuHealth>, String> {
    health_of(Path::new("libnvidia-ml.so.1"))
}

fn open(path: &Path) -> Result<Nvml, String> {
    // SAFETY: loading runs the library's initialisers, which have no preconditions.
    let library = unsafe { Library::new(path) }.map_err(|error| {
        use std::error::Error as _;
        error.source().map_or_else(|| error.to_string(), ToString::to_string)
    })?;
    let library = Nvml { library };
    library.check("nvmlInit_v2", |symbol| {
        // SAFETY: `nvmlReturn_t nvmlInit_v2(void)`.
        unsafe { library.get::<unsafe extern "C" fn() -> Code>(symbol).map(|call| call()) }
    })?;
    Ok(library)
}

fn health_of(path: &Path) -> Result<Vec<GpuHealth>, String> {
    let library = open(path)?;
    let found = library.devices();
    library.check("nvmlShutdown", |symbol| {
        // SAFETY: `nvmlReturn_t nvmlShutdown(void)`; no handle is used after it.
        unsafe { library.get::<unsafe extern "C" fn() -> Code>(symbol).map(|call| call()) }
    })?;
    found
}

struct Nvml {
    library: Library,
}

impl Nvml {
    /// # Safety
    /// `F` is the type of the function called `name`.
    unsafe fn get<F: Copy>(&self, name: &str) -> Option<F> {
        // SAFETY: the caller vouches for the type; the pointer is used while `self` lives.
        unsafe { self.library.get::<F>(name.as_bytes()) }.ok().map(|found| *found)
    }

    fn check(&self, name: &str, call: impl FnOnce(&str) -> Option<Code>) -> Result<(), String> {
        match call(name) {
            Some(0) => Ok(()),
            Some(code) => Err(format!("`{name}` gave code {code}")),
            None => Err(format!("the library has no `{name}`")),
        }
    }

    fn devices(&self) -> Result<Vec<GpuHealth>, String> {
        let mut count: c_uint = 0;
        self.check("nvmlDeviceGetCount_v2", |symbol| {
            // SAFETY: `nvmlReturn_t nvmlDeviceGetCount_v2(unsigned*)` writes one number.
            unsafe { self.get::<unsafe extern "C" fn(*mut c_uint) -> Code>(symbol).map(|call| call(&raw mut count)) }
        })?;
        (0..count.min(MOST_DEVICES)).map(|ordinal| self.device(ordinal)).collect()
    }

    fn device(&self, ordinal: c_uint) -> Result<GpuHealth, String> {
        let mut device: Device = std::ptr::null_mut();
        self.check("nvmlDeviceGetHandleByIndex_v2", |symbol| {
            type Call = unsafe extern "C" fn(c_uint, *mut Device) -> Code;
            // SAFETY: `nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned, nvmlDevice_t*)` writes one handle.
            unsafe { self.get::<Call>(symbol).map(|call| call(ordinal, &raw mut device)) }
        })?;
        Ok(self.health(device))
    }

    fn health(&self, device: Device) -> GpuHealth {
        let milli = |value: u32| f64::from(value) / 1000.0;
        GpuHealth {
            name: self.name(device),
            temperature_celsius: self.selected(device, "nvmlDeviceGetTemperature", 0),
            clock_mhz: self.selected(device, "nvmlDeviceGetClockInfo", CLOCKS[0]),
            highest_clock_mhz: self.selected(device, "nvmlDeviceGetMaxClockInfo", CLOCKS[0]),
            memory_clock_mhz: self.selected(device, "nvmlDeviceGetClockInfo", CLOCKS[1]),
            throttled_by: self.throttled_by(device),
            power_watts: self.number(device, "nvmlDeviceGetPowerUsage").map(milli),
            power_limit_watts: self.number(device, "nvmlDeviceGetEnforcedPowerLimit").map(milli),
            ecc_uncorrected: self.ecc(device, 1),
            ecc_corrected: self.ecc(device, 0),
        }
    }

    fn name(&self, device: Device) -> String {
        type Call = unsafe extern "C" fn(Device, *mut c_char, c_uint) -> Code;
        let mut text: [c_char; 128] = [0; 128];
        // SAFETY: `nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t, char*, unsigned)` writes at most 127 bytes and a final 0.
        let code = unsafe { self.get::<Call>("nvmlDeviceGetName").map(|call| call(device, text.as_mut_ptr(), 127)) };
        if code != Some(0) {
            return String::new();
        }
        // SAFETY: the last byte was never written and is 0.
        unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned()
    }

    /// Calls that write one number.
    fn number(&self, device: Device, name: &str) -> Option<u32> {
        type Call = unsafe extern "C" fn(Device, *mut c_uint) -> Code;
        let mut value: c_uint = 0;
        // SAFETY: callers name functions of the form `nvmlReturn_t f(nvmlDevice_t, unsigned*)`.
        let code = unsafe { self.get::<Call>(name).map(|call| call(device, &raw mut value)) };
        (code == Some(0)).then_some(value)
    }

    /// Calls that take a selector and write one number.
    fn selected(&self, device: Device, name: &str, which: c_uint) -> Option<u32> {
        type Call = unsafe extern "C" fn(Device, c_uint, *mut c_uint) -> Code;
        let mut value: c_uint = 0;
        // SAFETY: callers name functions of the form `nvmlReturn_t f(nvmlDevice_t, enum, unsigned*)`.
        let code = unsafe { self.get::<Call>(name).map(|call| call(device, which, &raw mut value)) };
        (code == Some(0)).then_some(value)
    }

    fn throttled_by(&self, device: Device) -> Option<Vec<String>> {
        type Call = unsafe extern "C" fn(Device, *mut c_ulonglong) -> Code;
        let mut bits: c_ulonglong = 0;
        let name = "nvmlDeviceGetCurrentClocksThrottleReasons";
        // SAFETY: `nvmlReturn_t f(nvmlDevice_t, unsigned long long*)` writes one number.
        let code = unsafe { self.get::<Call>(name).map(|call| call(device, &raw mut bits)) };
        (code == Some(0)).then(|| reasons(bits))
    }

    /// `kind` 0: corrected, 1: uncorrected; counted since the driver was loaded.
    fn ecc(&self, device: Device, kind: c_uint) -> Option<u64> {
        type Call = unsafe extern "C" fn(Device, c_uint, c_uint, *mut c_ulonglong) -> Code;
        const VOLATILE: c_uint = 0;
        let mut errors: c_ulonglong = 0;
        let name = "nvmlDeviceGetTotalEccErrors";
        // SAFETY: `nvmlReturn_t f(nvmlDevice_t, enum, enum, unsigned long long*)` writes one number.
        let code = unsafe { self.get::<Call>(name).map(|call| call(device, kind, VOLATILE, &raw mut errors)) };
        (code == Some(0)).then_some(errors)
    }
}

fn reasons(bits: c_ulonglong) -> Vec<String> {
    let known = REASONS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, text)| (*text).to_owned());
    let rest = REASONS.iter().fold(bits & !HARMLESS, |rest, (bit, _)| rest & !bit);
    known.chain((rest != 0).then(|| format!("reason {rest:#x}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_wrong_library_is_a_sentence() {
        assert!(health_of(Path::new("libno_such_management.so.1")).unwrap_err().contains("libno_such_management"));
        assert_eq!(health_of(Path::new("libc.so.6")).unwrap_err(), "the library has no `nvmlInit_v2`");
    }

    #[test]
    fn reasons_are_told_and_idle_is_none() {
        assert_eq!(reasons(0x1), Vec::<String>::new());
        assert_eq!(reasons(0x40 | 0x4 | 0x1), ["power limit", "temperature (hardware)"]);
        assert_eq!(reasons(0x1000), ["reason 0x1000"]);
    }
}
