//! The memory watch in service: this machine's memory, the device's, and this process's own growth.

use crate::guard::memory::{GrowthWatch, MemoryAlarm, MemoryLimits, MemoryNews};
use crate::run::source::EngineSource;
use crate::telemetry::{Labels, Metric, Telemetry, resident_bytes};
use crate::units::{Bytes, float64};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the watch looks at, one alarm each.
const KINDS: [&str; 2] = ["machine", "device"];
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Watches memory.
pub(super) struct MemoryWatch {
    alarms: [MemoryAlarm; KINDS.len()],
    growth: GrowthWatch,
    looked: Option<Instant>,
    telemetry: Arc<Telemetry>,
}

impl MemoryWatch {
    pub(super) fn new(limits: MemoryLimits, telemetry: Arc<Telemetry>) -> Self {
        let alarm = MemoryAlarm::new(limits);
        let growth = GrowthWatch::new(limits, Instant::now());
        MemoryWatch { alarms: [alarm.clone(), alarm], growth, looked: None, telemetry }
    }

    /// Whether an alarm stands, and for what: nothing that needs more memory may be started.
    pub(super) fn alarm(&self) -> Option<&'static str> {
        KINDS.iter().zip(&self.alarms).find(|(_, alarm)| alarm.stands()).map(|(kind, _)| *kind)
    }

    /// Looks at the figures, at most once a second; whether an alarm has begun just now.
    pub(super) fn look(&mut self, source: &dyn EngineSource, device: usize) -> bool {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return false;
        }
        self.looked = Some(Instant::now());
        if let Some(grown) = resident_bytes().and_then(|own| self.growth.look(Bytes(own), Instant::now())) {
            log::error!(
                "memory: this process has grown by {grown} without a pause; it will run out in time: report this"
            );
            self.telemetry.count(Metric::MemoryAlarms, Labels::reason("growth"));
        }
        let figures = [machine(), source.device_memory(device)];
        let mut begun = false;
        for ((kind, alarm), figures) in KINDS.into_iter().zip(&mut self.alarms).zip(figures) {
            let Some((used, total)) = figures else { continue };
            let labels = Labels::reason(kind);
            self.telemetry.gauge(Metric::MemoryUsed, labels).set(float64(used.0));
            self.telemetry.gauge(Metric::MemoryTotal, labels).set(float64(total.0));
            match alarm.look(used, total) {
                Some(MemoryNews::Alarm) => {
                    begun = true;
                    self.telemetry.count(Metric::MemoryAlarms, labels);
                    let who =
                        largest().map_or_else(String::new, |who| format!("; most of this machine's is taken by {who}"));
                    log::error!(
                        "memory: {used} of {total} of the {kind}'s memory in use{who}; bundles are not reloaded until it is free again"
                    );
                }
                Some(MemoryNews::Clear) => {
                    log::warn!("memory: {used} of {total} of the {kind}'s memory in use: enough again")
                }
                None => {}
            }
        }
        begun
    }
}

/// This machine's memory: in use and in all.
fn machine() -> Option<(Bytes, Bytes)> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let (available, total) = parse_meminfo(&text)?;
    Some((Bytes(total.saturating_sub(available)), Bytes(total)))
}

fn parse_meminfo(text: &str) -> Option<(u64, u64)> {
    let bytes = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
    };
    Some((bytes("MemAvailable:")?, bytes("MemTotal:")?))
}

/// The process with the largest resident memory: name, number and size.
fn largest() -> Option<String> {
    let page_bytes = 4096;
    let mut most: Option<(u64, String, String)> = None;
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let statm = std::fs::read_to_string(entry.path().join("statm")).unwrap_or_default();
        let resident = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * page_bytes;
        if most.as_ref().is_none_or(|(largest, _, _)| resident > *largest) {
            let command = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            most = Some((resident, command.trim().to_owned(), name));
        }
    }
    most.map(|(resident, command, number)| format!("`{command}` (process {number}, {})", Bytes(resident)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_this_machine_are_read() {
        let (used, total) = machine().unwrap();
        assert!(used < total && total > Bytes::mib(64), "{used} of {total}");
        assert!(largest().unwrap().contains("process "));
        assert_eq!(parse_meminfo("MemTotal:  100 kB\nMemFree: 1 kB\nMemAvailable:   40 kB\n"), Some((40960, 102400)));
        assert_eq!(parse_meminfo("MemTotal: 100 kB\n"), None);
    }
}
