//! Finding, opening and asking the driver; its functions and error codes.

use crate::error::{Error, ErrorKind, Result};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::path::Path;
use std::sync::OnceLock;

/// `CUresult` as a number: a newer driver may return codes that no header of ours knows.
pub(super) type Code = c_int;
/// `CUcontext`, `CUstream`, `CUevent`, `CUgraph`, `CUgraphExec`.
pub(super) type Handle = *mut c_void;
/// `CUdeviceptr`.
pub(super) type DeviceAddress = u64;

/// Oldest CUDA version whose functions are used: JetPack 5.
const OLDEST: DriverVersion = DriverVersion(11_040);
const LIBRARY_NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// The CUDA version that a driver speaks, as in 12.6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DriverVersion(i32);

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

/// Declares the table of driver functions: field, exported symbol, signature.
macro_rules! driver_functions {
    ($($name:ident = $symbol:literal fn($($argument:ty),*);)*) => {
        /// The driver's functions. Each returns a [`Code`].
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> Code,)*
        }

        impl Functions {
            /// Looks every function up; the name of the first that is missing.
            fn look_up(library: &libloading::Library) -> std::result::Result<Self, &'static str> {
                Ok(Functions {
                    $($name: {
                        type Function = unsafe extern "C" fn($($argument),*) -> Code;
                        // SAFETY: the signature is that of NVIDIA's driver API reference for this symbol, which a driver keeps:
                        // changed functions get a new suffix (`_v2`).
                        let found = unsafe { library.get::<Function>(concat!($symbol, "\0").as_bytes()) };
                        *found.map_err(|_| $symbol)?
                    },)*
                })
            }
        }
    };
}

driver_functions! {
    init = "cuInit" fn(c_uint);
    version = "cuDriverGetVersion" fn(*mut c_int);
    error_name = "cuGetErrorName" fn(Code, *mut *const c_char);
    error_text = "cuGetErrorString" fn(Code, *mut *const c_char);
    device_count = "cuDeviceGetCount" fn(*mut c_int);
    device = "cuDeviceGet" fn(*mut c_int, c_int);
    device_name = "cuDeviceGetName" fn(*mut c_char, c_int, c_int);
    device_attribute = "cuDeviceGetAttribute" fn(*mut c_int, c_int, c_int);
    device_memory = "cuDeviceTotalMem_v2" fn(*mut usize, c_int);
    context_flags = "cuDevicePrimaryCtxSetFlags_v2" fn(c_int, c_uint);
    context_retain = "cuDevicePrimaryCtxRetain" fn(*mut Handle, c_int);
    context_release = "cuDevicePrimaryCtxRelease_v2" fn(c_int);
    context_current = "cuCtxSetCurrent" fn(Handle);
    context_wait = "cuCtxSynchronize" fn();
    memory_info = "cuMemGetInfo_v2" fn(*mut usize, *mut usize);
    memory_allocate = "cuMemAlloc_v2" fn(*mut DeviceAddress, usize);
    memory_free = "cuMemFree_v2" fn(DeviceAddress);
    host_allocate = "cuMemHostAlloc" fn(*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost" fn(*mut c_void);
    copy_to_device = "cuMemcpyHtoDAsync_v2" fn(DeviceAddress, *const c_void, usize, Handle);
    copy_to_host = "cuMemcpyDtoHAsync_v2" fn(*mut c_void, DeviceAddress, usize, Handle);
    fill = "cuMemsetD8Async" fn(DeviceAddress, u8, usize, Handle);
    stream_create = "cuStreamCreate" fn(*mut Handle, c_uint);
    stream_wait = "cuStreamSynchronize" fn(Handle);
    stream_wait_event = "cuStreamWaitEvent" fn(Handle, Handle, c_uint);
    stream_destroy = "cuStreamDestroy_v2" fn(Handle);
    capture_begin = "cuStreamBeginCapture_v2" fn(Handle, c_uint);
    capture_end = "cuStreamEndCapture" fn(Handle, *mut Handle);
    event_create = "cuEventCreate" fn(*mut Handle, c_uint);
    event_record = "cuEventRecord" fn(Handle, Handle);
    event_record_flags = "cuEventRecordWithFlags" fn(Handle, Handle, c_uint);
    event_wait = "cuEventSynchronize" fn(Handle);
    event_query = "cuEventQuery" fn(Handle);
    event_elapsed = "cuEventElapsedTime" fn(*mut f32, Handle, Handle);
    event_destroy = "cuEventDestroy_v2" fn(Handle);
    graph_instantiate = "cuGraphInstantiateWithFlags" fn(*mut Handle, Handle, u64);
    graph_launch = "cuGraphLaunch" fn(Handle, Handle);
    graph_exec_destroy = "cuGraphExecDestroy" fn(Handle);
    graph_destroy = "cuGraphDestroy" fn(Handle);
    module_load = "cuModuleLoadData" fn(*mut Handle, *const c_void);
    module_function = "cuModuleGetFunction" fn(*mut Handle, Handle, *const c_char);
    module_unload = "cuModuleUnload" fn(Handle);
    kernel_launch = "cuLaunchKernel" fn(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
}

/// A CUDA driver that has answered `cuInit`. Never unloaded.
pub struct Driver {
    pub(super) functions: Functions,
    version: DriverVersion,
    device_count: i32,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("version", &self.version).field("devices", &self.device_count).finish()
    }
}

/// Why there is no driver; kept for the life of the process and turned into an [`Error`] each time.
#[derive(Debug, Clone)]
struct Missing {
    message: String,
    hint: &'static str,
}

impl Missing {
    fn error(&self) -> Error {
        Error::machine_lacks(self.message.clone()).at("CUDA driver").hint(self.hint)
    }
}

impl Driver {
    /// This machine's driver, with at least one device. Opens it at the first call; later calls cost nothing.
    ///
    /// # Errors
    /// [`ErrorKind::MachineLacks`]: no library (with the names tried), a missing function, a driver that does not start, one
    /// older than CUDA 11.4, no device.
    pub fn load() -> Result<&'static Driver> {
        static DRIVER: OnceLock<std::result::Result<Driver, Missing>> = OnceLock::new();
        let found = DRIVER.get_or_init(|| Driver::open(&LIBRARY_NAMES.map(Path::new)));
        found.as_ref().map_err(Missing::error)
    }

    /// Opens the first of these libraries that exists.
    fn open(names: &[&Path]) -> std::result::Result<Driver, Missing> {
        let mut tried = vec![];
        let library = names.iter().find_map(|name| {
            // SAFETY: loading runs the driver's initialisers, which have no preconditions; it is never unloaded (leaked below).
            unsafe { libloading::Library::new(*name) }
                .map_err(|error| tried.push(format!("`{}`: {}", name.display(), cause(&error))))
                .ok()
        });
        let Some(library) = library else {
            return Err(Missing {
                message: format!("found no CUDA driver, tried {}", tried.join("; ")),
                hint: "install NVIDIA's driver (on a Jetson it is part of JetPack); inside a container start it with the NVIDIA \
                       runtime",
            });
        };
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        let functions = Functions::look_up(library).map_err(|symbol| Missing {
            message: format!("found a CUDA driver without `{symbol}`, expected CUDA {OLDEST} or newer"),
            hint: "update NVIDIA's driver",
        })?;
        Driver { functions, version: DriverVersion(0), device_count: 0 }.start()
    }

    fn start(mut self) -> std::result::Result<Driver, Missing> {
        // SAFETY: `cuInit` may be called at any time, from any thread.
        let code = unsafe { (self.functions.init)(0) };
        if code != 0 {
            return Err(Missing {
                message: format!("found a CUDA driver that does not start: {}", self.describe(code)),
                hint: "check `nvidia-smi`; a driver and kernel module of different versions need a reboot",
            });
        }
        // SAFETY: each writes one number to where it is told.
        let (version, devices) = unsafe {
            (
                (self.functions.version)(&raw mut self.version.0),
                (self.functions.device_count)(&raw mut self.device_count),
            )
        };
        if version != 0 || devices != 0 {
            return Err(Missing {
                message: format!("found a CUDA driver that does not answer: {}", self.describe(version.max(devices))),
                hint: "check `nvidia-smi`",
            });
        }
        if self.version < OLDEST {
            return Err(Missing {
                message: format!("found a driver for CUDA {}, expected {OLDEST} or newer", self.version),
                hint: "update NVIDIA's driver (JetPack 5 or newer on a Jetson)",
            });
        }
        if self.device_count < 1 {
            return Err(Missing {
                message: "found a CUDA driver with 0 devices, expected at least 1".to_owned(),
                hint: "check `nvidia-smi` and `CUDA_VISIBLE_DEVICES`",
            });
        }
        Ok(self)
    }

    /// The CUDA version that the driver speaks.
    pub fn version(&self) -> DriverVersion {
        self.version
    }

    /// Number of devices, at least 1.
    pub fn device_count(&self) -> u32 {
        u32::try_from(self.device_count).unwrap_or(0)
    }

    /// `Ok` for code 0, else an error that names the call, the code's name and what it means.
    pub(super) fn check(&self, call: &str, code: Code) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(self.failed(call, code)) }
    }

    fn failed(&self, call: &str, code: Code) -> Error {
        let error = Error::new(kind_of(code), format!("`{call}` gave {}", self.describe(code)));
        match kind_of(code) {
            ErrorKind::Budget => error.hint("free GPU memory, or use a smaller batch, input or model"),
            ErrorKind::Device => {
                error.hint("a restart helps when the GPU itself is well; see `dmesg` for Xid messages")
            }
            _ => error,
        }
    }

    /// `CUDA_ERROR_NAME (code): text`, as far as the driver knows the code.
    fn describe(&self, code: Code) -> String {
        let text = |function: unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
            let mut text: *const c_char = std::ptr::null();
            // SAFETY: writes a pointer to a constant string of the driver, or leaves it null.
            let known = unsafe { function(code, &raw mut text) };
            // SAFETY: the driver's strings end in 0 and live as long as the driver, which is never unloaded.
            (known == 0 && !text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        let name = text(self.functions.error_name).unwrap_or_else(|| "an unknown error".to_owned());
        let meaning = text(self.functions.error_text).map(|text| format!(": {text}")).unwrap_or_default();
        format!("{name} ({code}){meaning}")
    }

    /// A driver from a file, for tests.
    #[cfg(test)]
    pub(crate) fn from_file(path: &Path) -> Result<&'static Driver> {
        Driver::open(&[path]).map(|driver| &*Box::leak(Box::new(driver))).map_err(|missing| missing.error())
    }
}

/// The loader's own words.
fn cause(error: &libloading::Error) -> String {
    use std::error::Error as _;
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// What a driver's code means for whoever supervises the program.
fn kind_of(code: Code) -> ErrorKind {
    match code {
        2 => ErrorKind::Budget,                                                     // out of memory
        34 | 35 | 36 | 46 | 100 | 101 | 102 | 803 | 804 => ErrorKind::MachineLacks, // stub, driver too old, busy, no device
        209 | 218 | 222 | 223 => ErrorKind::Refused,                                // no code for this device
        1 | 201 | 400 | 401 => ErrorKind::Unexpected,                               // a defect of ours
        _ => ErrorKind::Device,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine without a driver gets an answer, not a panic.
    #[test]
    fn a_missing_driver_names_what_was_tried() {
        let error = Driver::open(&[Path::new("libno_such_driver.so.1")]).unwrap_err().error();
        assert_eq!(error.kind(), ErrorKind::MachineLacks);
        assert!(error.message().contains("`libno_such_driver.so.1`"), "{error}");
        let _ = Driver::load();
    }

    #[test]
    fn a_library_without_the_functions_is_refused_with_the_first_missing_name() {
        let error = Driver::open(&[Path::new("libc.so.6")]).unwrap_err().error();
        assert!(error.message().contains("without `cuInit`"), "{error}");
    }
}
