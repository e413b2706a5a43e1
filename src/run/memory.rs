//! The memory watch in service: this machine's memory, the device's, and this process's own growth.

use crate::guard::memory::{GrowthWatch, MemoryAlarm, MemoryLimits, MemoryNews};
use crate::run::gpu_watch::{DeviceFigures, Holder};
use crate::run::source::EngineSource;
use crate::telemetry::{Labels, Metric, Telemetry, resident_bytes};
use crate::units::{Bytes, float64};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Xid messages after which a device is not to be used: uncorrected memory errors, off the bus, broken links and processors.
const BROKEN: [u64; 12] = [48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140];

/// What a look has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum News {
    /// Memory is short, of the machine or of the device that serves.
    Short,
    /// The driver of the device that serves reports something that may have spoiled answers.
    Doubt(String),
    /// A device is not to be used any more.
    Broken {
        /// Which.
        device: usize,
        /// Why.
        what: String,
    },
}

/// Watches memory.
pub(super) struct MemoryWatch {
    machine: MemoryAlarm,
    devices: Vec<DeviceWatch>,
    growth: GrowthWatch,
    looked: Option<Instant>,
    telemetry: Arc<Telemetry>,
}

/// What is remembered of one device.
struct DeviceWatch {
    /// `device`, or `device 1` where there are several.
    kind: String,
    label: String,
    alarm: MemoryAlarm,
    ecc_uncorrected: Option<u64>,
    double_bit_events: u64,
    xids: usize,
    throttled: bool,
    /// An alarm stands and nobody could tell yet who takes the memory.
    unnamed: bool,
}

impl MemoryWatch {
    /// Watches the machine and the devices with these labels.
    pub(super) fn new(limits: MemoryLimits, telemetry: Arc<Telemetry>, labels: Vec<String>) -> Self {
        let several = labels.len() > 1;
        let device = |label: String| DeviceWatch {
            kind: if several { format!("device {label}") } else { "device".to_owned() },
            label,
            alarm: MemoryAlarm::new(limits),
            ecc_uncorrected: None,
            double_bit_events: 0,
            xids: 0,
            throttled: false,
            unnamed: false,
        };
        MemoryWatch {
            machine: MemoryAlarm::new(limits),
            devices: labels.into_iter().map(device).collect(),
            growth: GrowthWatch::new(limits, Instant::now()),
            looked: None,
            telemetry,
        }
    }

    /// Whether an alarm stands or a device has less than the margin free, and which: nothing that needs more memory may be
    /// started.
    pub(super) fn alarm(&self) -> Option<&str> {
        if self.machine.stands() {
            return Some("machine");
        }
        self.devices
            .iter()
            .find(|device| device.alarm.stands() || !device.alarm.has_margin())
            .map(|device| device.kind.as_str())
    }

    /// Looks at the figures, at most once a second; `serving` is the device that answers.
    pub(super) fn look(&mut self, source: &dyn EngineSource, serving: usize) -> Vec<News> {
        let mut news = Vec::new();
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return news;
        }
        self.looked = Some(Instant::now());
        if let Some(grown) = resident_bytes().and_then(|own| self.growth.look(Bytes(own), Instant::now())) {
            log::error!(
                "memory: this process has grown by {grown} without a pause; it will run out in time: report this"
            );
            self.telemetry.count(Metric::MemoryAlarms, Labels::reason("growth"));
        }
        if let Some((used, total)) = machine() {
            let who = || largest().map(|who| format!("; most of it is taken by {who}")).unwrap_or_default();
            if told(&mut self.machine, "machine", (used, total), who, &self.telemetry) {
                news.push(News::Short);
            }
        }
        for (index, device) in self.devices.iter_mut().enumerate() {
            let Some(figures) = source.device_figures(index) else { continue };
            let who = || who_holds(&figures);
            let short = told(&mut device.alarm, &device.kind, (figures.used, figures.total), who, &self.telemetry);
            if let Some(holder) = device.named_late(short, &figures) {
                log::error!("memory: most of the {}'s memory is taken by {holder}", device.kind);
            }
            if short && index == serving {
                news.push(News::Short);
            }
            device.look(index, &figures, index == serving, &self.telemetry, &mut news);
        }
        news
    }
}

impl DeviceWatch {
    /// The program that takes most of the memory, where the alarm's own line could not name it: the driver books a large
    /// allocation to its process late. `began`: the alarm has begun with this look.
    fn named_late<'a>(&mut self, began: bool, figures: &'a DeviceFigures) -> Option<&'a Holder> {
        let holder = largest_holder(figures);
        let late = holder.filter(|_| self.unnamed && !began && self.alarm.stands());
        self.unnamed = self.alarm.stands() && (self.unnamed || began) && holder.is_none();
        late
    }

    /// Heat, throttling, memory errors and messages of the driver.
    fn look(
        &mut self,
        index: usize,
        figures: &DeviceFigures,
        serving: bool,
        telemetry: &Telemetry,
        news: &mut Vec<News>,
    ) {
        if let Some(celsius) = figures.temperature_celsius {
            telemetry.gauge(Metric::DeviceTemperature, Labels::reason(&self.kind)).set(f64::from(celsius));
        }
        let throttled = !figures.throttled_by.is_empty();
        if throttled != std::mem::replace(&mut self.throttled, throttled) {
            match throttled {
                true => log::warn!("device {}: clocks are held down: {}", self.label, figures.throttled_by.join(", ")),
                false => log::info!("device {}: clocks are free again", self.label),
            }
        }
        let mut errors = figures.double_bit_events.saturating_sub(self.double_bit_events);
        self.double_bit_events = figures.double_bit_events;
        if let Some(now) = figures.ecc_uncorrected {
            let before = self.ecc_uncorrected.replace(now);
            errors = errors.max(now.saturating_sub(before.unwrap_or(now)));
        }
        if errors > 0 {
            telemetry.count(Metric::DeviceErrors, Labels::reason("ecc_uncorrected"));
            news.push(self.broken(index, &format!("{errors} memory errors that could not be corrected")));
        }
        let new = figures.xids.get(self.xids..).unwrap_or_default();
        self.xids = figures.xids.len();
        for xid in new {
            telemetry.count(Metric::DeviceErrors, Labels::reason("xid"));
            let what = format!("the driver reports Xid {xid}");
            if BROKEN.contains(xid) {
                news.push(self.broken(index, &what));
                continue;
            }
            log::warn!("device {}: {what}", self.label);
            if serving {
                news.push(News::Doubt(format!("device {}: {what}", self.label)));
            }
        }
    }

    fn broken(&self, device: usize, what: &str) -> News {
        let what = format!("device {}: {what}", self.label);
        log::error!("{what}");
        News::Broken { device, what }
    }
}

/// Figures to metrics and log; whether an alarm has begun just now.
fn told(
    alarm: &mut MemoryAlarm,
    kind: &str,
    (used, total): (Bytes, Bytes),
    who: impl Fn() -> String,
    telemetry: &Telemetry,
) -> bool {
    let labels = Labels::reason(kind);
    telemetry.gauge(Metric::MemoryUsed, labels).set(float64(used.0));
    telemetry.gauge(Metric::MemoryTotal, labels).set(float64(total.0));
    match alarm.look(used, total) {
        Some(MemoryNews::Alarm) => {
            telemetry.count(Metric::MemoryAlarms, labels);
            log::error!(
                "memory: {used} of {total} of the {kind}'s memory in use{}; bundles are not reloaded until it is free again",
                who()
            );
            true
        }
        Some(MemoryNews::Clear) => {
            log::warn!("memory: {used} of {total} of the {kind}'s memory in use: enough again");
            false
        }
        None => false,
    }
}

/// Who holds a device's memory, as far as its driver tells.
fn who_holds(figures: &DeviceFigures) -> String {
    let own = figures.own.map_or_else(String::new, |own| format!(", {own} of it by this process"));
    match largest_holder(figures) {
        Some(holder) => format!("{own}; most of the rest is taken by {holder}"),
        None => own,
    }
}

/// The program with the most of a device's memory, unless the driver books so little to it that it cannot be the reason.
fn largest_holder(figures: &DeviceFigures) -> Option<&Holder> {
    let much = |holder: &&Holder| holder.bytes.is_none_or(|bytes| bytes.0 >= figures.total.0 / 20);
    figures.holders.first().filter(much)
}

/// This machine's memory: in use and in all.
pub(super) fn machine() -> Option<(Bytes, Bytes)> {
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
    use crate::bundle::Bundle;
    use crate::engine::Engine;
    use crate::error::{Error, Result};
    use std::sync::Mutex;

    struct Told(Mutex<DeviceFigures>);

    impl EngineSource for Told {
        fn load(&self, _: &Bundle, _: f32, _: usize) -> Result<Box<dyn Engine>> {
            Err(Error::refused("no engine"))
        }
        fn device_figures(&self, device: usize) -> Option<DeviceFigures> {
            (device == 1).then(|| self.0.lock().unwrap().clone())
        }
    }

    fn look(change: impl Fn(&mut DeviceFigures), serving: usize) -> Vec<News> {
        let labels = vec!["0".to_owned(), "1".to_owned()];
        let limits = MemoryLimits { alarm_share: 2.0, ..MemoryLimits::default() };
        let mut watch = MemoryWatch::new(limits, Telemetry::new(), labels);
        watch.devices[1].alarm = MemoryAlarm::new(MemoryLimits::default());
        let begin = DeviceFigures { total: Bytes::gib(8), ecc_uncorrected: Some(3), ..DeviceFigures::default() };
        let told = Told(Mutex::new(begin));
        assert_eq!(watch.look(&told, serving), [], "what was there before is no news");
        change(&mut told.0.lock().unwrap());
        assert_eq!(watch.look(&told, serving), [], "not yet");
        watch.looked = None;
        let news = watch.look(&told, serving);
        watch.looked = None;
        assert_eq!(watch.look(&told, serving), [], "once");
        news
    }

    #[test]
    fn device_errors_are_faults_and_other_messages_ask_for_a_proof() {
        let broken = |what: &str| News::Broken { device: 1, what: format!("device 1: {what}") };
        let ecc = look(|figures| figures.ecc_uncorrected = Some(5), 1);
        assert_eq!(ecc, [broken("2 memory errors that could not be corrected")]);
        let event = look(|figures| figures.double_bit_events = 1, 1);
        assert_eq!(event, [broken("1 memory errors that could not be corrected")]);
        assert_eq!(look(|figures| figures.xids = vec![79], 0), [broken("the driver reports Xid 79")]);
        let doubt = News::Doubt("device 1: the driver reports Xid 31".into());
        assert_eq!(look(|figures| figures.xids = vec![31], 1), [doubt]);
        assert_eq!(look(|figures| figures.xids = vec![31], 0), [], "of a device that only stands by");
        assert_eq!(look(|figures| figures.used = Bytes::gib(7), 1), [News::Short]);
        assert_eq!(look(|figures| figures.used = Bytes::gib(7), 0), []);
        assert_eq!(look(|figures| figures.ecc_uncorrected = None, 1), []);
    }

    #[test]
    fn who_takes_the_memory_is_named() {
        let holder = Holder { process: 42, name: "hog".into(), bytes: Some(Bytes::gib(6)) };
        let (own, total) = (Some(Bytes::gib(1)), Bytes::gib(8));
        let figures = DeviceFigures { own, total, holders: vec![holder], ..DeviceFigures::default() };
        let text = who_holds(&figures);
        assert_eq!(text, ", 1.0 GiB of it by this process; most of the rest is taken by `hog` (process 42, 6.0 GiB)");
        assert_eq!(who_holds(&DeviceFigures::default()), "");
    }

    /// Seen on an H200: the list held 14 MiB of a program that had just taken 138 GiB, or nothing of it.
    #[test]
    fn who_takes_the_memory_is_named_when_the_driver_knows_it() {
        let labels = vec!["0".to_owned()];
        let mut device = MemoryWatch::new(MemoryLimits::default(), Telemetry::new(), labels).devices.remove(0);
        let total = Bytes::gib(8);
        let held = |bytes| {
            let holder = Holder { process: 42, name: "hog".into(), bytes: Some(bytes) };
            DeviceFigures { total, holders: vec![holder], ..DeviceFigures::default() }
        };
        let (nothing, little, much) =
            (DeviceFigures { total, ..DeviceFigures::default() }, held(Bytes::mib(14)), held(Bytes::gib(6)));
        assert_eq!(who_holds(&little), "", "so little is not the reason");
        assert_eq!(device.named_late(false, &much), None, "no alarm");
        device.alarm.look(Bytes::gib(8), total);
        for early in [&nothing, &little] {
            assert_eq!(device.named_late(true, early), None);
            assert_eq!(device.named_late(false, early), None);
            assert_eq!(device.named_late(false, &much), much.holders.first());
            assert_eq!(device.named_late(false, &much), None, "once");
        }
        assert_eq!(device.named_late(true, &much), None, "the alarm's own line names it");
        assert_eq!(device.named_late(false, &much), None);
    }

    #[test]
    fn figures_of_this_machine_are_read() {
        let (used, total) = machine().unwrap();
        assert!(used < total && total > Bytes::mib(64), "{used} of {total}");
        assert!(largest().unwrap().contains("process "));
        assert_eq!(parse_meminfo("MemTotal:  100 kB\nMemFree: 1 kB\nMemAvailable:   40 kB\n"), Some((40960, 102400)));
        assert_eq!(parse_meminfo("MemTotal: 100 kB\n"), None);
    }
}
