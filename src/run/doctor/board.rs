//! What the system's files say of the machine: memory, power mode, clocks, temperatures, throttling.

use crate::units::Bytes;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Longest system file that is read.
const MOST_BYTES: u64 = 1 << 20;

/// The machine as its system files describe it; `None` and empty lists where they do not tell.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub struct Board {
    /// Product name, from the device tree.
    pub model: Option<String>,
    /// CPU architecture of this program.
    pub architecture: &'static str,
    /// Kernel release.
    pub kernel: Option<String>,
    /// NVIDIA's Linux for Jetson, first line of `/etc/nv_tegra_release`.
    pub jetson_release: Option<String>,
    /// NVIDIA's kernel module.
    pub kernel_module: Option<String>,
    /// `MemAvailable`.
    pub memory_available: Option<Bytes>,
    /// `MemTotal`.
    pub memory_total: Option<Bytes>,
    /// Jetson's power mode, as in `0 (15W)`.
    pub power_mode: Option<String>,
    /// Clocks now and at most.
    pub clocks: Vec<Clock>,
    /// Temperatures.
    pub temperatures: Vec<Temperature>,
    /// What holds the clocks down now, and how often over-current did so far.
    pub throttling: Vec<String>,
}

/// A clock.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Clock {
    /// As in `cpu0` or `17000000.gpu`.
    pub name: String,
    /// Now.
    pub now_mhz: f64,
    /// The most that is allowed.
    pub most_mhz: Option<f64>,
}

/// A temperature.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Temperature {
    /// As in `gpu-thermal`.
    pub name: String,
    /// Now.
    pub celsius: f64,
}

/// Reads the files below `root`.
pub(super) fn look(root: &Path) -> Board {
    let memory = text(&root.join("proc/meminfo")).unwrap_or_default();
    let kib = |key: &str| {
        let line = memory.lines().find_map(|line| line.strip_prefix(key))?;
        let number: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(Bytes(number.checked_mul(1024)?))
    };
    Board {
        model: text(&root.join("proc/device-tree/model")),
        architecture: std::env::consts::ARCH,
        kernel: text(&root.join("proc/sys/kernel/osrelease")),
        jetson_release: text(&root.join("etc/nv_tegra_release"))
            .and_then(|text| text.lines().next().map(|line| line.trim_start_matches(['#', ' ']).to_owned())),
        kernel_module: text(&root.join("proc/driver/nvidia/version")).and_then(|text| {
            text.lines().next().map(|line| line.trim_start_matches("NVRM version:").trim().to_owned())
        }),
        memory_available: kib("MemAvailable:"),
        memory_total: kib("MemTotal:"),
        power_mode: power_mode(root),
        clocks: clocks(root),
        temperatures: temperatures(root),
        throttling: throttling(root),
    }
}

/// A small file's text without the ends; `None` when it is not there, empty or not text.
fn text(path: &Path) -> Option<String> {
    use std::io::Read;
    let mut text = String::new();
    fs::File::open(path).ok()?.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    let text = text.trim_matches(['\0', '\n', ' ', '\t']).to_owned();
    (!text.is_empty()).then_some(text)
}

fn number(path: &Path) -> Option<f64> {
    text(path)?.parse().ok()
}

/// Names of the entries of a folder that begin with `beginning`, sorted.
fn entries(folder: &Path, beginning: &str) -> Vec<String> {
    let Ok(found) = fs::read_dir(folder) else { return vec![] };
    let mut names: Vec<String> = found
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(beginning))
        .collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    names
}

/// The mode in `/var/lib/nvpmodel/status` (`pmode:0002`) with its name from `/etc/nvpmodel.conf`.
fn power_mode(root: &Path) -> Option<String> {
    let status = text(&root.join("var/lib/nvpmodel/status"))?;
    let mode: u32 = status.split("pmode:").nth(1)?.split_whitespace().next()?.parse().ok()?;
    let config = text(&root.join("etc/nvpmodel.conf")).unwrap_or_default();
    let name = config.lines().filter(|line| line.contains("POWER_MODEL")).find_map(|line| {
        let field = |key: &str| Some(line.split(key).nth(1)?.split_whitespace().next()?.trim_end_matches('>'));
        (field(" ID=")?.parse() == Ok(mode)).then(|| field(" NAME="))?
    });
    Some(name.map_or_else(|| mode.to_string(), |name| format!("{mode} ({name})")))
}

fn clocks(root: &Path) -> Vec<Clock> {
    let mut found = vec![];
    let cpus = root.join("sys/devices/system/cpu/cpufreq");
    for name in entries(&cpus, "policy") {
        let folder = cpus.join(&name);
        if let Some(now_khz) = number(&folder.join("scaling_cur_freq")) {
            let most_mhz = number(&folder.join("scaling_max_freq")).map(|most_khz| most_khz / 1e3);
            found.push(Clock { name: name.replace("policy", "cpu"), now_mhz: now_khz / 1e3, most_mhz });
        }
    }
    let others = root.join("sys/class/devfreq");
    for name in entries(&others, "") {
        let folder = others.join(&name);
        if let Some(now_hz) = number(&folder.join("cur_freq")) {
            let most_mhz = number(&folder.join("max_freq")).map(|most_hz| most_hz / 1e6);
            found.push(Clock { name, now_mhz: now_hz / 1e6, most_mhz });
        }
    }
    found
}

fn temperatures(root: &Path) -> Vec<Temperature> {
    let zones = root.join("sys/class/thermal");
    let zone = |name: String| {
        let folder = zones.join(&name);
        let celsius = number(&folder.join("temp"))? / 1000.0;
        // A sensor that is switched off answers −256.
        (celsius > -100.0).then(|| Temperature { name: text(&folder.join("type")).unwrap_or(name), celsius })
    };
    entries(&zones, "thermal_zone").into_iter().filter_map(zone).collect()
}

fn throttling(root: &Path) -> Vec<String> {
    let mut found = vec![];
    let thermal = root.join("sys/class/thermal");
    for name in entries(&thermal, "cooling_device") {
        let folder = thermal.join(&name);
        let kind = text(&folder.join("type")).unwrap_or(name);
        let fan = kind.contains("fan");
        if let Some(state) = number(&folder.join("cur_state")).filter(|&state| state > 0.0 && !fan) {
            found.push(format!("{kind} is at cooling step {state}"));
        }
    }
    let monitors = root.join("sys/class/hwmon");
    for name in entries(&monitors, "hwmon") {
        let folder = monitors.join(&name);
        for counter in entries(&folder, "oc") {
            if let Some(events) =
                number(&folder.join(&counter)).filter(|&events| events > 0.0 && counter.ends_with("_event_cnt"))
            {
                found.push(format!("over-current {counter}: {events} events since the start"));
            }
        }
    }
    found
}
