//! What one engine says of itself: its phase, its heartbeat, its devices.

use crate::sinks::http::reload::ReloadView;
use crate::sinks::http::snapshot::time_text;
use crate::units::index;
use serde::Serialize;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Where the run stands. Only [`Phase::Ready`] makes `/readyz` green.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The bundle is being opened and checked.
    Starting,
    /// The engine runs without its answers being used.
    WarmingUp,
    /// The known answers are being tried.
    Proving,
    /// Warm-up and proof are done.
    Ready,
    /// The engine is not to be believed; recovery is under way.
    Fault,
    /// Another product's engine is being put in and proved.
    ChangingOver,
    /// The engine is gone while another bundle is loaded in its place: there is no room for both.
    Reloading,
    /// The run is ending.
    Stopping,
}

const PHASES: [Phase; 8] = [
    Phase::Starting,
    Phase::WarmingUp,
    Phase::Proving,
    Phase::Ready,
    Phase::Fault,
    Phase::ChangingOver,
    Phase::Reloading,
    Phase::Stopping,
];

/// Where one engine stands, and when its thread last moved.
#[derive(Debug, Default)]
pub(super) struct EngineSigns {
    heartbeat: AtomicU64,
    phase: AtomicU8,
    /// What pages and metrics call it; empty until it is known.
    label: Mutex<String>,
    devices: Mutex<Vec<DeviceView>>,
    reload: Mutex<ReloadView>,
}

impl EngineSigns {
    /// The heartbeat of an engine whose work is done.
    const RETIRED: u64 = u64::MAX;

    pub(super) fn set_phase(&self, phase: Phase) {
        let position = PHASES.iter().position(|known| *known == phase).unwrap_or(0);
        self.phase.store(u8::try_from(position).unwrap_or(0), Relaxed);
    }

    pub(super) fn phase(&self) -> Phase {
        PHASES.get(index(u32::from(self.phase.load(Relaxed)))).copied().unwrap_or(Phase::Starting)
    }

    pub(super) fn beat(&self, now_ms: u64) {
        self.heartbeat.store(now_ms, Relaxed);
    }

    /// It beats no more, and is not missed.
    pub(super) fn retire(&self) {
        self.heartbeat.store(Self::RETIRED, Relaxed);
    }

    pub(super) fn age_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.heartbeat.load(Relaxed))
    }

    /// What pages and metrics call it.
    pub(super) fn label(&self) -> MutexGuard<'_, String> {
        self.label.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its devices, where there are several.
    pub(super) fn devices(&self) -> MutexGuard<'_, Vec<DeviceView>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn reload(&self) -> MutexGuard<'_, ReloadView> {
        self.reload.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One device as the pages show it, where there are several.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceView {
    device: String,
    /// `serving`, `standby`, `loading` or `down`.
    role: &'static str,
    why: Option<String>,
    proved_at: Option<String>,
    used_bytes: Option<u64>,
    total_bytes: Option<u64>,
    own_bytes: Option<u64>,
    temperature_celsius: Option<u32>,
}

/// Memory and heat of a device, as far as its driver tells.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DeviceState {
    /// Memory in use by all programs, bytes.
    pub used_bytes: Option<u64>,
    /// Memory in all, bytes.
    pub total_bytes: Option<u64>,
    /// What this process holds of it, bytes.
    pub own_bytes: Option<u64>,
    /// Temperature of the chip.
    pub temperature_celsius: Option<u32>,
}

impl DeviceView {
    /// The device `device` in `role` (`serving`, `standby`, `loading`, `down`), `why` it is down, and when it was last proved.
    pub fn new(
        device: String,
        role: &'static str,
        why: Option<String>,
        proved_at: Option<SystemTime>,
        state: DeviceState,
    ) -> Self {
        DeviceView {
            device,
            role,
            why,
            proved_at: time_text(proved_at),
            used_bytes: state.used_bytes,
            total_bytes: state.total_bytes,
            own_bytes: state.own_bytes,
            temperature_celsius: state.temperature_celsius,
        }
    }
}
