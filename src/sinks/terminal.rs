//! The terminal line: one line a stream with live figures. Redrawn in place on a terminal, plain lines elsewhere, quiet in
//! CI.

use super::Sink;
use super::row::Row;
use crate::decision::Decision;
use crate::error::Result;
use crate::frame::StreamName;
use crate::guard::Trust;
use crate::telemetry::{Labels, Metric, Telemetry};
use crate::units::{float64, milliseconds};
use std::fmt::Write as _;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How figures are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminalMode {
    /// On a terminal: redrawn in place, twice a second.
    Redrawn,
    /// In a log: a plain line a stream every ten seconds.
    Plain,
    /// In CI or with `--quiet`: one line a stream at the end.
    Quiet,
}

impl TerminalMode {
    /// What fits the surroundings: `is_terminal` of the writer, and whether `CI` is set in the environment.
    pub fn fitting(is_terminal: bool, in_ci: bool) -> Self {
        match (is_terminal, in_ci) {
            (_, true) => TerminalMode::Quiet,
            (true, false) => TerminalMode::Redrawn,
            (false, false) => TerminalMode::Plain,
        }
    }

    fn every(self) -> Option<Duration> {
        match self {
            TerminalMode::Redrawn => Some(Duration::from_millis(500)),
            TerminalMode::Plain => Some(Duration::from_secs(10)),
            TerminalMode::Quiet => None,
        }
    }
}

const AGES_KEPT: usize = 256;

/// The sink for people at a terminal. A writer that fails is not written to again: figures are no reason to stop.
pub struct TerminalLine {
    writer: Option<Box<dyn Write + Send>>,
    mode: TerminalMode,
    telemetry: Arc<Telemetry>,
    streams: Vec<Figures>,
    shown: Instant,
    lines_up: usize,
    text: String,
    finished: bool,
}

struct Figures {
    stream: StreamName,
    started: Instant,
    ages_ms: Vec<f64>,
    next: usize,
    rows: u64,
    rows_shown: u64,
    trust: [u64; 3],
    decisions: [u64; 3],
    has_rule: bool,
}

impl TerminalLine {
    /// Figures for people, written to `writer` (standard error in the programs).
    pub fn new(writer: Box<dyn Write + Send>, mode: TerminalMode, telemetry: Arc<Telemetry>) -> Self {
        TerminalLine {
            writer: Some(writer),
            mode,
            telemetry,
            streams: Vec::new(),
            shown: Instant::now(),
            lines_up: 0,
            text: String::new(),
            finished: false,
        }
    }

    fn show(&mut self, now: Instant, whole_run: bool) {
        let seconds = now.saturating_duration_since(self.shown).as_secs_f64();
        self.shown = now;
        self.text.clear();
        if self.lines_up > 0 {
            let _ = write!(self.text, "\x1b[{}A", self.lines_up);
        }
        for figures in &mut self.streams {
            let dropped = self.telemetry.total(Metric::FramesDropped, Labels::stream(&figures.stream));
            figures.write(&mut self.text, if whole_run { None } else { Some(seconds) }, now, dropped);
            self.text.push_str(if self.mode == TerminalMode::Redrawn { "\x1b[K\n" } else { "\n" });
        }
        self.lines_up = if self.mode == TerminalMode::Redrawn { self.streams.len() } else { 0 };
        let written =
            self.writer.as_mut().map(|writer| writer.write_all(self.text.as_bytes()).and_then(|()| writer.flush()));
        if let Some(Err(_)) = written {
            self.writer = None;
        }
    }
}

impl Figures {
    fn new(stream: &StreamName, now: Instant) -> Self {
        Figures {
            stream: Arc::clone(stream),
            started: now,
            ages_ms: Vec::with_capacity(AGES_KEPT),
            next: 0,
            rows: 0,
            rows_shown: 0,
            trust: [0; 3],
            decisions: [0; 3],
            has_rule: false,
        }
    }

    fn take(&mut self, row: &Row) {
        self.rows += 1;
        if self.ages_ms.len() < AGES_KEPT {
            self.ages_ms.push(row.age_ms);
        } else {
            self.ages_ms[self.next] = row.age_ms;
            self.next = (self.next + 1) % AGES_KEPT;
        }
        match row.trust {
            Trust::Trusted => self.trust[0] += 1,
            Trust::Suspect => self.trust[1] += 1,
            Trust::Fault => self.trust[2] += 1,
        }
        self.has_rule |= row.decision.is_some();
        match row.decision {
            Some(Decision::Pass) => self.decisions[0] += 1,
            Some(Decision::Reject) => self.decisions[1] += 1,
            Some(Decision::NotInspected) => self.decisions[2] += 1,
            None => {}
        }
    }

    /// `cam0  29.9 fps  age p50 21 p99 33 ms  trusted 900 suspect 3 fault 0  pass 10 reject 1 not inspected 0  dropped 4`;
    /// `seconds` since the last line, or `None` for the whole run.
    fn write(&mut self, text: &mut String, seconds: Option<f64>, now: Instant, dropped: u64) {
        let mut sorted = [0.0; AGES_KEPT];
        let sorted = &mut sorted[..self.ages_ms.len()];
        sorted.copy_from_slice(&self.ages_ms);
        sorted.sort_by(f64::total_cmp);
        let at = |share: usize| {
            sorted.get((sorted.len() * share / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
        };
        let (rows, seconds) = match seconds {
            Some(seconds) => (self.rows - self.rows_shown, seconds),
            None => (self.rows, milliseconds(now.saturating_duration_since(self.started)) / 1e3),
        };
        self.rows_shown = self.rows;
        let fps = if seconds > 0.0 { float64(rows) / seconds } else { 0.0 };
        let [trusted, suspect, fault] = self.trust;
        let stream = self.stream.replace(char::is_control, "?");
        let _ = write!(
            text,
            "{stream}  {fps:.1} fps  age p50 {:.0} p99 {:.0} ms  trusted {trusted} suspect {suspect} fault {fault}",
            at(50),
            at(99)
        );
        if self.has_rule {
            let [pass, reject, not_inspected] = self.decisions;
            let _ = write!(text, "  pass {pass} reject {reject} not inspected {not_inspected}");
        }
        let _ = write!(text, "  dropped {dropped}");
    }
}

impl Sink for TerminalLine {
    fn put(&mut self, row: &Row) -> Result<()> {
        let now = Instant::now();
        let position = self.streams.iter().position(|known| known.stream == row.stream).unwrap_or_else(|| {
            self.streams.push(Figures::new(&row.stream, now));
            self.streams.len() - 1
        });
        self.streams[position].take(row);
        if self.mode.every().is_some_and(|every| now.saturating_duration_since(self.shown) >= every) {
            self.show(now, false);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.finished, true) {
            self.show(Instant::now(), true);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sinks::row::tests::row;
    use std::sync::Mutex;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn run(mode: TerminalMode) -> String {
        let out = Shared::default();
        let telemetry = Telemetry::new();
        telemetry.counter(Metric::FramesDropped, Labels::stream("cam0").because("newer")).add(4);
        let mut sink = TerminalLine::new(Box::new(out.clone()), mode, telemetry);
        sink.put(&row()).unwrap();
        sink.shown -= Duration::from_secs(1);
        sink.put(&Row { trust: Trust::Fault, decision: Some(Decision::NotInspected), ..row() }).unwrap();
        sink.put(&Row { stream: "cam\x1b[2J".into(), decision: None, ..row() }).unwrap();
        sink.finish().unwrap();
        sink.finish().unwrap();
        let text = out.0.lock().unwrap().clone();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn quiet_says_one_line_a_stream_at_the_end() {
        let text = run(TerminalMode::Quiet);
        assert_eq!(text.lines().count(), 2, "{text}");
        let line = text.lines().next().unwrap();
        assert!(line.starts_with("cam0  "), "{line}");
        let end = "age p50 101 p99 101 ms  trusted 1 suspect 0 fault 1  pass 0 reject 1 not inspected 1  dropped 4";
        assert!(line.ends_with(end), "{line}");
        assert!(text.lines().nth(1).unwrap().starts_with("cam?[2J"), "control characters do not reach the terminal");
    }

    #[test]
    fn a_terminal_is_redrawn_and_a_log_is_not() {
        let redrawn = run(TerminalMode::Redrawn);
        assert!(redrawn.contains("\x1b[1A"), "{redrawn:?}");
        assert!(!run(TerminalMode::Plain).contains('\x1b'));
    }

    #[test]
    fn the_mode_fits_the_surroundings() {
        assert_eq!(TerminalMode::fitting(true, false), TerminalMode::Redrawn);
        assert_eq!(TerminalMode::fitting(false, false), TerminalMode::Plain);
        assert_eq!(TerminalMode::fitting(true, true), TerminalMode::Quiet);
    }
}
