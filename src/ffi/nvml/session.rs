//! The management library held open: figures of one GPU while a line runs. Every call is safe from any thread.

use super::{Code, Device, GpuHealth, Nvml, open};
use std::ffi::{CString, c_char, c_uint, c_ulonglong, c_void};
use std::path::Path;

/// `NVML_ERROR_TIMEOUT`: no event within the time.
const TIMED_OUT: Code = 10;
/// `nvmlEventTypeDoubleBitEccError`, `nvmlEventTypeXidCriticalError`.
const EVENTS: c_ulonglong = 0x2 | 0x8;
const XID: c_ulonglong = 0x8;
/// Most processes listed for one GPU.
const MOST_PROCESSES: usize = 256;

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlProcessInfo_t` of the functions with `_v2` and `_v3`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Process {
    number: c_uint,
    used: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// `nvmlEventData_t`.
#[repr(C)]
struct EventData {
    device: Device,
    kind: c_ulonglong,
    data: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// One GPU of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gpu(Device);

// SAFETY: a handle is a number for the library, which is documented to be safe from all threads; it is valid until the library
// is shut down, and a session never shuts it down.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

/// Memory that one process holds on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Number of the process.
    pub process: u32,
    /// Bytes; `None` where the driver does not tell.
    pub bytes: Option<u64>,
}

/// What a GPU has reported by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// An Xid message of the driver, with its number.
    Xid(Gpu, u64),
    /// A memory error that could not be corrected.
    DoubleBit(Gpu),
}

/// The library, open until the process ends.
pub struct Session {
    library: Nvml,
    events: *mut c_void,
}

// SAFETY: the library is safe from all threads; `events` is a handle of it, waited on by one thread at a time (`&mut self`).
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}

impl Session {
    /// Opens the driver's library.
    ///
    /// # Errors
    /// A sentence: no library, or one that does not answer.
    pub fn open() -> Result<Session, String> {
        Session::of(Path::new("libnvidia-ml.so.1"))
    }

    fn of(path: &Path) -> Result<Session, String> {
        let library = open(path)?;
        let mut events = std::ptr::null_mut();
        // Without events the figures are still worth having.
        // SAFETY: `nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t*)` writes one handle.
        let _code = unsafe {
            library
                .get::<unsafe extern "C" fn(*mut *mut c_void) -> Code>("nvmlEventSetCreate")
                .map(|call| call(&raw mut events))
        };
        Ok(Session { library, events })
    }

    /// The GPU at a PCI address, as in `00000000:3B:00.0`, with its events watched where it can be.
    ///
    /// # Errors
    /// A sentence: there is none.
    pub fn gpu(&self, address: &str) -> Result<Gpu, String> {
        let text = CString::new(address).map_err(|_| "the address holds a 0".to_owned())?;
        let mut device: Device = std::ptr::null_mut();
        self.library.check("nvmlDeviceGetHandleByPciBusId_v2", |symbol| {
            type Call = unsafe extern "C" fn(*const c_char, *mut Device) -> Code;
            // SAFETY: `nvmlReturn_t f(const char*, nvmlDevice_t*)` reads a text that ends in 0 and writes one handle.
            unsafe { self.library.get::<Call>(symbol).map(|call| call(text.as_ptr(), &raw mut device)) }
        })?;
        if !self.events.is_null() {
            type Call = unsafe extern "C" fn(Device, c_ulonglong, *mut c_void) -> Code;
            // SAFETY: `nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t, unsigned long long, nvmlEventSet_t)`.
            let _code = unsafe {
                self.library.get::<Call>("nvmlDeviceRegisterEvents").map(|call| call(device, EVENTS, self.events))
            };
        }
        Ok(Gpu(device))
    }

    /// Memory in use by all programs, and in all, bytes.
    pub fn memory(&self, gpu: Gpu) -> Option<(u64, u64)> {
        type Call = unsafe extern "C" fn(Device, *mut Memory) -> Code;
        let mut memory = Memory::default();
        // SAFETY: `nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t, nvmlMemory_t*)` writes one `nvmlMemory_t`.
        let code =
            unsafe { self.library.get::<Call>("nvmlDeviceGetMemoryInfo").map(|call| call(gpu.0, &raw mut memory)) };
        (code == Some(0)).then_some((memory.used, memory.total))
    }

    /// The processes that hold memory of the GPU, largest first. Inside a container a driver may list none.
    pub fn processes(&self, gpu: Gpu) -> Vec<Held> {
        let mut all = self.processes_of(gpu, "nvmlDeviceGetComputeRunningProcesses");
        for held in self.processes_of(gpu, "nvmlDeviceGetGraphicsRunningProcesses") {
            if all.iter().all(|known: &Held| known.process != held.process) {
                all.push(held);
            }
        }
        all.sort_by_key(|held| std::cmp::Reverse(held.bytes));
        all
    }

    fn processes_of(&self, gpu: Gpu, name: &str) -> Vec<Held> {
        type Call = unsafe extern "C" fn(Device, *mut c_uint, *mut Process) -> Code;
        let mut found = vec![Process::default(); MOST_PROCESSES];
        for version in ["_v3", "_v2"] {
            let mut count = crate::units::count32(found.len());
            // SAFETY: `nvmlReturn_t f(nvmlDevice_t, unsigned*, nvmlProcessInfo_t*)` writes at most as many entries as the count
            // says; entries of both versions have this layout.
            let code = unsafe {
                self.library
                    .get::<Call>(&format!("{name}{version}"))
                    .map(|call| call(gpu.0, &raw mut count, found.as_mut_ptr()))
            };
            if code == Some(0) {
                found.truncate(crate::units::index(count));
                let held = |process: Process| Held {
                    process: process.number,
                    bytes: (process.used != c_ulonglong::MAX).then_some(process.used),
                };
                return found.into_iter().map(held).collect();
            }
        }
        Vec::new()
    }

    /// Temperature, clocks, throttling and memory errors.
    pub fn health(&self, gpu: Gpu) -> GpuHealth {
        self.library.health(gpu.0)
    }

    /// Waits at most `limit_ms` for something that a GPU reports by itself.
    pub fn next_event(&mut self, limit_ms: u32) -> Option<Event> {
        type Call = unsafe extern "C" fn(*mut c_void, *mut EventData, c_uint) -> Code;
        if self.events.is_null() {
            return None;
        }
        let mut data =
            EventData { device: std::ptr::null_mut(), kind: 0, data: 0, gpu_instance: 0, compute_instance: 0 };
        // SAFETY: `nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t, nvmlEventData_t*, unsigned)` writes one `nvmlEventData_t`.
        let code = unsafe {
            self.library
                .get::<Call>("nvmlEventSetWait_v2")
                .map_or(TIMED_OUT, |call| call(self.events, &raw mut data, limit_ms))
        };
        match code {
            0 if data.kind == XID => Some(Event::Xid(Gpu(data.device), data.data)),
            0 => Some(Event::DoubleBit(Gpu(data.device))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> (tempfile::TempDir, Session) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libnvidia-ml.so.1");
        crate::ffi::cuda::double::compile("nvml.c", &path, &[]);
        let session = Session::of(&path).unwrap();
        (folder, session)
    }

    #[test]
    fn figures_processes_and_events_are_read() {
        let (_folder, mut session) = session();
        let gpu = session.gpu("00000000:3B:00.0").unwrap();
        assert!(session.gpu("00000000:FF:00.0").unwrap_err().contains("gave code 6"));
        assert_eq!(session.memory(gpu), Some((3 << 30, 8 << 30)));
        let held = session.processes(gpu);
        assert_eq!(held[0], Held { process: 42, bytes: Some(2 << 30) });
        assert_eq!(held[1], Held { process: 7, bytes: Some(1 << 20) });
        assert_eq!(held[2], Held { process: 9, bytes: None });
        let health = session.health(gpu);
        assert_eq!((health.temperature_celsius, health.ecc_uncorrected), (Some(61), Some(2)));
        assert_eq!(session.next_event(0), Some(Event::Xid(gpu, 79)));
        assert_eq!(session.next_event(0), Some(Event::DoubleBit(gpu)));
        assert_eq!(session.next_event(0), None);
    }

    #[test]
    fn a_library_without_events_still_tells_figures() {
        assert!(Session::of(Path::new("libno_such.so.1")).is_err());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libnvidia-ml.so.1");
        crate::ffi::cuda::double::compile("nvml.c", &path, &["NO_EVENTS"]);
        let mut session = Session::of(&path).unwrap();
        let gpu = session.gpu("00000000:3B:00.0").unwrap();
        assert_eq!((session.memory(gpu), session.next_event(0)), (Some((3 << 30, 8 << 30)), None));
    }
}
