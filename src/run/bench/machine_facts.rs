//! What a figure is worth nothing without: machine, versions, clocks, power mode.

use std::process::Command;

/// Lines `what: value` of everything that this machine tells.
pub(super) fn read() -> Vec<(String, String)> {
    let mut facts = vec![("edge-run".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty()) {
            facts.push((name.to_owned(), value));
        }
    };
    add("CPU", first_line_of("/proc/cpuinfo", "model name"));
    add("cores", std::thread::available_parallelism().ok().map(|cores| cores.to_string()));
    add("kernel", std::fs::read_to_string("/proc/sys/kernel/osrelease").ok());
    add("board", std::fs::read_to_string("/proc/device-tree/model").ok());
    add(
        "GPU now (clocks SM, memory; power; state; temperature)",
        output_of(
            "nvidia-smi",
            &[
                "--query-gpu=driver_version,clocks.sm,clocks.mem,power.draw,pstate,temperature.gpu",
                "--format=csv,noheader",
            ],
        ),
    );
    add("power mode", output_of("nvpmodel", &["-q"]).map(|text| text.replace('\n', " ")));
    facts
}

fn first_line_of(file: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// CPU time of this process so far, all threads, ms; 0 where `/proc` does not say.
pub(super) fn process_cpu_ms() -> f64 {
    const TICK_MS: f64 = 10.0;
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| fields.get(field).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) * TICK_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_grows_with_work() {
        let before = process_cpu_ms();
        let since = std::time::Instant::now();
        let mut sum = 0_u64;
        while since.elapsed().as_millis() < 400 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(process_cpu_ms() > before, "{sum}");
        assert!(read().iter().any(|(name, _)| name == "cores"));
    }
}
