//! What the GPUs say of themselves while a line runs: memory and who holds it, heat, throttling, memory errors, Xid messages.
//!
//! The driver is asked on a thread of its own, once a second: a driver that hangs must not hold a frame up. The run reads
//! the last figures.

use crate::ffi::cuda::{Driver, pci_address};
use crate::ffi::nvml::{Event, Gpu, Held, Session};
use crate::units::Bytes;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// How often the driver is asked.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How long a wait for events lasts before the thread looks up.
const LOOK_UP_MS: u32 = 100;
/// How often, and after which pause, the list of processes is asked for again.
const ASKED_AGAIN: u32 = 3;
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Processes named at most.
const MOST_HOLDERS: usize = 8;
/// Xid messages kept at most.
const MOST_XIDS: usize = 64;

/// A process that holds memory of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub process: u32,
    /// Its name; empty when it is of another container.
    pub name: String,
    /// What it holds; `None` where the driver does not tell.
    pub bytes: Option<Bytes>,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = if self.name.is_empty() { "a process of another container" } else { &self.name };
        write!(f, "`{name}` (process {}", self.process)?;
        match self.bytes {
            Some(bytes) => write!(f, ", {bytes})"),
            None => f.write_str(")"),
        }
    }
}

/// What is known of one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceFigures {
    /// Memory in use by all programs.
    pub used: Bytes,
    /// Memory in all.
    pub total: Bytes,
    /// What this process holds of it.
    pub own: Option<Bytes>,
    /// Who holds it, largest first, this process left out.
    pub holders: Vec<Holder>,
    /// Of the chip.
    pub temperature_celsius: Option<u32>,
    /// Why clocks are held down.
    pub throttled_by: Vec<String>,
    /// Memory errors that could not be corrected, since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
    /// Xid messages since the watch began, in order.
    pub xids: Vec<u64>,
    /// Double-bit errors reported as events since the watch began.
    pub double_bit_events: u64,
}

/// The GPUs of a run under watch; nothing where there is no management library (Jetson: the machine's memory is the GPU's).
#[derive(Default)]
pub struct GpuWatch {
    started: OnceLock<Watched>,
}

impl std::fmt::Debug for GpuWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GpuWatch").field("started", &self.started.get().is_some()).finish()
    }
}

struct Watched {
    /// To be asked at once, by whoever may wait.
    asked: Option<(Session, Vec<Option<Gpu>>)>,
    figures: Arc<Mutex<Vec<Option<DeviceFigures>>>>,
    over: Arc<AtomicBool>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
    }
}

impl GpuWatch {
    /// Watches the GPUs with these CUDA ordinals; once.
    pub fn begin(&self, ordinals: Vec<u32>) {
        self.started.get_or_init(|| match watch(&ordinals) {
            Ok(watched) => watched,
            Err(why) => {
                log::info!("the GPUs' memory and health are not watched: {why}");
                Watched { asked: None, figures: Arc::default(), over: Arc::default() }
            }
        });
    }

    /// Memory in use by all programs, and in all; asks the driver now.
    pub fn memory(&self, device: usize) -> Option<(Bytes, Bytes)> {
        let (session, gpus) = self.started.get()?.asked.as_ref()?;
        let (used, total) = session.memory((*gpus.get(device)?)?)?;
        Some((Bytes(used), Bytes(total)))
    }

    /// The last figures.
    pub fn figures(&self, device: usize) -> Option<DeviceFigures> {
        lock(&self.started.get()?.figures).get(device)?.clone()
    }
}

fn lock(figures: &Mutex<Vec<Option<DeviceFigures>>>) -> MutexGuard<'_, Vec<Option<DeviceFigures>>> {
    figures.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch(ordinals: &[u32]) -> Result<Watched, String> {
    let driver = Driver::load().map_err(|error| error.message().to_owned())?;
    let addresses: Vec<Option<String>> = ordinals.iter().map(|ordinal| pci_address(driver, *ordinal).ok()).collect();
    let gpus_of = |session: &Session| -> Vec<Option<Gpu>> {
        addresses.iter().map(|address| session.gpu(address.as_deref()?).ok()).collect()
    };
    let (asked, watching) = (Session::open()?, Session::open()?);
    let gpus = gpus_of(&asked);
    let figures = Arc::new(Mutex::new(vec![None; ordinals.len()]));
    let over = Arc::new(AtomicBool::new(false));
    let mut watcher = Watcher {
        gpus: gpus_of(&watching),
        session: watching,
        figures: Arc::clone(&figures),
        over: Arc::clone(&over),
        own: std::process::id(),
    };
    watcher.ask();
    std::thread::Builder::new()
        .name("gpu watch".into())
        .spawn(move || watcher.run())
        .map_err(|error| format!("no thread to be had: {error}"))?;
    Ok(Watched { asked: Some((asked, gpus)), figures, over })
}

struct Watcher {
    session: Session,
    gpus: Vec<Option<Gpu>>,
    figures: Arc<Mutex<Vec<Option<DeviceFigures>>>>,
    over: Arc<AtomicBool>,
    own: u32,
}

impl Watcher {
    fn run(mut self) {
        let mut asked = std::time::Instant::now();
        while !self.over.load(Ordering::Acquire) {
            let waiting = std::time::Instant::now();
            match self.session.next_event(LOOK_UP_MS) {
                Some(event) => self.note(event),
                // Without events the call comes back at once.
                None => {
                    std::thread::sleep(Duration::from_millis(u64::from(LOOK_UP_MS)).saturating_sub(waiting.elapsed()))
                }
            }
            if asked.elapsed() >= ASK_EVERY {
                asked = std::time::Instant::now();
                self.ask();
            }
        }
    }

    fn ask(&mut self) {
        for (place, gpu) in self.gpus.iter().enumerate() {
            let Some(gpu) = gpu else { continue };
            let Some((used, total)) = self.session.memory(*gpu) else { continue };
            let held = self.holders(*gpu, used, total);
            let health = self.session.health(*gpu);
            let own = held.iter().find(|held| held.process == self.own).and_then(|held| held.bytes).map(Bytes);
            let others = held.into_iter().filter(|held| held.process != self.own).take(MOST_HOLDERS);
            let holders = others
                .map(|held| Holder { process: held.process, name: name_of(held.process), bytes: held.bytes.map(Bytes) })
                .collect();
            let mut all = lock(&self.figures);
            let Some(slot) = all.get_mut(place) else { continue };
            let before = slot.take().unwrap_or_default();
            *slot = Some(DeviceFigures {
                used: Bytes(used),
                total: Bytes(total),
                own,
                holders,
                temperature_celsius: health.temperature_celsius,
                throttled_by: health.throttled_by.unwrap_or_default(),
                ecc_uncorrected: health.ecc_uncorrected,
                ..before
            });
        }
    }

    /// The driver books a large allocation to its process a moment after it has given it: asked again, a few times, while
    /// much more is in use than the processes account for.
    fn holders(&self, gpu: Gpu, used: u64, total: u64) -> Vec<Held> {
        let mut held = self.session.processes(gpu);
        for _ in 0..ASKED_AGAIN {
            let booked: u64 = held.iter().filter_map(|held| held.bytes).sum();
            if used.saturating_sub(booked) < total / 20 {
                break;
            }
            std::thread::sleep(ASK_AGAIN_AFTER);
            held = self.session.processes(gpu);
        }
        held
    }

    fn note(&mut self, event: Event) {
        let of = match event {
            Event::Xid(gpu, _) | Event::DoubleBit(gpu) => gpu,
        };
        let known = self.gpus.contains(&Some(of));
        let mut all = lock(&self.figures);
        for (gpu, slot) in self.gpus.iter().zip(all.iter_mut()) {
            // An event of a handle that is not known here is held against all.
            if known && *gpu != Some(of) {
                continue;
            }
            let figures = slot.get_or_insert_with(DeviceFigures::default);
            match event {
                Event::Xid(_, number) if figures.xids.len() < MOST_XIDS => figures.xids.push(number),
                Event::Xid(..) => {}
                Event::DoubleBit(_) => figures.double_bit_events += 1,
            }
        }
    }
}

fn name_of(process: u32) -> String {
    std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_gpu_there_are_no_figures() {
        let watch = GpuWatch::default();
        assert_eq!((watch.memory(0), watch.figures(0)), (None, None));
        watch.begin(vec![60_000]);
        assert_eq!((watch.memory(0), watch.figures(0)), (None, None));
    }

    #[test]
    fn a_holder_is_named() {
        let own = std::process::id();
        let holder = Holder { process: own, name: name_of(own), bytes: Some(Bytes::gib(2)) };
        assert!(holder.to_string().contains(&format!("(process {own}, 2.0 GiB)")), "{holder}");
        let holder = Holder { process: 4_000_000, name: name_of(4_000_000), bytes: None };
        assert_eq!(holder.to_string(), "`a process of another container` (process 4000000)");
    }
}
