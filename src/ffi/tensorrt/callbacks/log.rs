//! `ILogger`: one a process and layout, never freed, forwards to `log` and to whoever collects.

use super::{Callback, Shape, address, destructor, guarded, lock, logger_is_versioned, versioned_prefix};
use crate::ffi::tensorrt::sys::Object;
use crate::ffi::tensorrt::version::Family;
use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// `ILogger::Severity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// `kINTERNAL_ERROR`.
    InternalError,
    /// `kERROR`.
    Error,
    /// `kWARNING`.
    Warning,
    /// `kINFO`.
    Info,
    /// `kVERBOSE`.
    Verbose,
}

impl Severity {
    fn of(value: i32) -> Severity {
        match value {
            0 => Severity::InternalError,
            1 => Severity::Error,
            2 => Severity::Warning,
            3 => Severity::Info,
            _ => Severity::Verbose,
        }
    }

    fn level(self) -> ::log::Level {
        match self {
            Severity::InternalError | Severity::Error => ::log::Level::Error,
            Severity::Warning => ::log::Level::Warn,
            Severity::Info => ::log::Level::Debug,
            Severity::Verbose => ::log::Level::Trace,
        }
    }
}

/// Messages that differ in numbers alone, counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoldedLine {
    /// The severity of all of them.
    pub severity: Severity,
    /// The first of them.
    pub text: String,
    /// How many there were.
    pub count: u64,
}

/// `text`, and ` (N times)` when there were several.
impl std::fmt::Display for FoldedLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)?;
        if self.count > 1 { write!(f, " ({} times alike)", self.count) } else { Ok(()) }
    }
}

/// Distinct lines kept by a collector; more are counted in the last one.
const MOST_LINES: usize = 200;

#[derive(Default)]
struct Folded {
    lines: Vec<FoldedLine>,
    by_pattern: HashMap<(Severity, String), usize>,
}

impl Folded {
    fn add(&mut self, severity: Severity, text: &str) {
        let key = (severity, pattern(text));
        if let Some(line) = self.by_pattern.get(&key).and_then(|&index| self.lines.get_mut(index)) {
            line.count += 1;
        } else if self.lines.len() < MOST_LINES {
            self.by_pattern.insert(key, self.lines.len());
            self.lines.push(FoldedLine { severity, text: text.to_owned(), count: 1 });
        } else if let Some(last) = self.lines.last_mut() {
            last.count += 1;
        }
    }
}

/// The text with every run of digits replaced, so that lines which differ in sizes and addresses alone are alike.
fn pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if !c.is_ascii_digit() {
            pattern.push(c);
        } else if !pattern.ends_with('#') {
            pattern.push('#');
        }
    }
    pattern
}

static COLLECTORS: Mutex<Vec<Weak<Mutex<Folded>>>> = Mutex::new(Vec::new());

/// Collects warnings and errors of every TensorRT object in the process until it is dropped.
pub struct LogCollector(Arc<Mutex<Folded>>);

impl LogCollector {
    /// What was said so far, folded, in the order of first appearance.
    pub fn lines(&self) -> Vec<FoldedLine> {
        lock(&self.0).lines.clone()
    }
}

/// Starts collecting. TensorRT has one logger a process, so two builds at the same time see each other's lines.
pub fn collect_log() -> LogCollector {
    let collector = LogCollector(Arc::default());
    let mut collectors = lock(&COLLECTORS);
    collectors.retain(|weak| weak.strong_count() > 0);
    collectors.push(Arc::downgrade(&collector.0));
    collector
}

/// The process's logger in the layout of `family`.
pub(in super::super) fn logger(family: Family) -> Object {
    static PLAIN: OnceLock<Callback<()>> = OnceLock::new();
    static VERSIONED: OnceLock<Callback<()>> = OnceLock::new();
    let object = if logger_is_versioned(family) {
        VERSIONED.get_or_init(|| {
            let mut slots = versioned_prefix::<()>().to_vec();
            slots.push(address!(log));
            // SAFETY: the order of TensorRT 11 and RTX 1.5: the versioned interface's four, then `log`.
            unsafe { Callback::new(c"ILogger", &slots, ()) }
        })
    } else {
        PLAIN.get_or_init(|| {
            let slots = [address!(log), address!(destructor), address!(destructor)];
            // SAFETY: the order of TensorRT 8, 10 and RTX 1.3: `log`, then the two destructors.
            unsafe { Callback::new(c"ILogger", &slots, ()) }
        })
    };
    object.object()
}

unsafe extern "C" fn log(_: *const Shape<()>, severity: i32, text: *const c_char) {
    guarded((), || {
        let severity = Severity::of(severity);
        let wanted = severity <= Severity::Warning || ::log::log_enabled!(target: "tensorrt", severity.level());
        if !wanted || text.is_null() {
            return;
        }
        // SAFETY: not null; TensorRT passes a string that ends in 0 and lives during the call.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        let collectors: Vec<_> = lock(&COLLECTORS).iter().filter_map(Weak::upgrade).collect();
        let level = if collectors.is_empty() { severity.level() } else { severity.level().max(::log::Level::Debug) };
        ::log::log!(target: "tensorrt", level, "{text}");
        if severity <= Severity::Warning {
            for collector in collectors {
                lock(&collector).add(severity, &text);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_differ_in_numbers_alone_are_counted() {
        let mut folded = Folded::default();
        for bytes in [100, 2_000, 30] {
            folded.add(Severity::Warning, &format!("tactic 0x{bytes} needs {bytes} MiB, 12 free"));
        }
        folded.add(Severity::Warning, "another");
        folded.add(Severity::Error, "another");
        let said: Vec<_> = folded.lines.iter().map(ToString::to_string).collect();
        assert_eq!(said, ["tactic 0x100 needs 100 MiB, 12 free (3 times alike)", "another", "another"]);
    }

    #[test]
    fn distinct_lines_are_bounded_and_none_goes_uncounted() {
        let mut folded = Folded::default();
        for letter in 0..1000_u32 {
            folded.add(Severity::Warning, &"x".repeat(letter as usize));
        }
        assert_eq!(folded.lines.len(), MOST_LINES);
        assert_eq!(folded.lines.iter().map(|line| line.count).sum::<u64>(), 1000);
    }
}
