//! Counters, gauges and histograms, and their text form for Prometheus.
//!
//! Names stand in one enum, [`Metric`]. Labels are few and bounded: after [`MOST_SERIES`] label sets of one metric, further
//! ones are counted together under `other`. A handle ([`Counter`], [`Gauge`], [`Histogram`]) is an atomic behind an `Arc`:
//! using it takes no lock and allocates nothing, so it is fit for the frame path; fetching one takes a lock.

mod metric;

pub use metric::{Kind, Metric};

use crate::units;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Label sets that one metric may have.
pub const MOST_SERIES: usize = 256;

/// Upper bounds of the histogram buckets, seconds.
pub const BUCKETS_SECONDS: [f64; 15] =
    [0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.033, 0.05, 0.066, 0.1, 0.2, 0.4, 1.0, 2.0, 5.0];

/// The labels of one series. Labels that the metric does not carry are ignored; missing ones read `none`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Labels<'a> {
    /// The stream.
    pub stream: Option<&'a str>,
    /// The engine, by the name of its bundle.
    pub engine: Option<&'a str>,
    /// The reason, from a fixed list.
    pub reason: Option<&'a str>,
}

impl<'a> Labels<'a> {
    /// No labels.
    pub const NONE: Labels<'static> = Labels { stream: None, engine: None, reason: None };

    /// The label `stream`.
    pub const fn stream(name: &'a str) -> Self {
        Labels { stream: Some(name), engine: None, reason: None }
    }

    /// The label `engine`.
    pub const fn engine(name: &'a str) -> Self {
        Labels { stream: None, engine: Some(name), reason: None }
    }

    /// The label `reason`.
    pub const fn reason(name: &'a str) -> Self {
        Labels { stream: None, engine: None, reason: Some(name) }
    }

    /// Adds the label `reason`.
    #[must_use]
    pub const fn because(self, reason: &'a str) -> Self {
        Labels { reason: Some(reason), ..self }
    }

    fn values(self, metric: Metric) -> [&'a str; 3] {
        let mut values = [""; 3];
        for (value, name) in values.iter_mut().zip(metric.labels()) {
            let given = match *name {
                "stream" => self.stream,
                "engine" => self.engine,
                _ => self.reason,
            };
            *value = given.unwrap_or("none");
        }
        values
    }
}

/// A count that only grows.
#[derive(Debug, Clone, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    /// The count so far.
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A value that goes up and down.
#[derive(Debug, Clone, Default)]
pub struct Gauge(Arc<AtomicU64>);

impl Gauge {
    /// Sets the value, in the unit of the metric's name.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Relaxed);
    }

    /// The present value.
    pub fn value(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }
}

#[derive(Debug, Default)]
struct Buckets {
    counts: [AtomicU64; BUCKETS_SECONDS.len() + 1],
    sum_nanoseconds: AtomicU64,
}

/// Observations of a duration in fixed buckets.
#[derive(Debug, Clone, Default)]
pub struct Histogram(Arc<Buckets>);

impl Histogram {
    /// Records one duration, milliseconds (as all timings inside the program); negative and non-finite ones count as 0.
    pub fn observe_ms(&self, value_ms: f64) {
        let seconds = if value_ms.is_finite() { value_ms.max(0.0) / 1e3 } else { 0.0 };
        let bucket = BUCKETS_SECONDS.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKETS_SECONDS.len());
        self.0.counts[bucket].fetch_add(1, Relaxed);
        self.0.sum_nanoseconds.fetch_add((seconds * 1e9) as u64, Relaxed);
    }

    /// Observations so far.
    pub fn count(&self) -> u64 {
        self.0.counts.iter().map(|count| count.load(Relaxed)).sum()
    }
}

#[derive(Debug, Clone)]
enum Cell {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
}

impl Cell {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Counter => Cell::Counter(Counter::default()),
            Kind::Gauge => Cell::Gauge(Gauge::default()),
            Kind::Histogram => Cell::Histogram(Histogram::default()),
        }
    }
}

type Series = BTreeMap<[Box<str>; 3], Cell>;

/// All metrics of the process, shared by `Arc`.
#[derive(Debug)]
pub struct Telemetry {
    series: Mutex<BTreeMap<Metric, Series>>,
    started: Instant,
}

impl Default for Telemetry {
    fn default() -> Self {
        Telemetry { series: Mutex::default(), started: Instant::now() }
    }
}

impl Telemetry {
    /// Empty telemetry; uptime is counted from here.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The counter of `metric` with these labels, made at 0 on first use. A metric of another kind gives a counter that
    /// nobody reads, and an error in the log.
    pub fn counter(&self, metric: Metric, labels: Labels<'_>) -> Counter {
        match self.cell(metric, labels) {
            Cell::Counter(counter) => counter,
            _ => detached(metric, Kind::Counter),
        }
    }

    /// The gauge of `metric` with these labels; otherwise as [`Telemetry::counter`].
    pub fn gauge(&self, metric: Metric, labels: Labels<'_>) -> Gauge {
        match self.cell(metric, labels) {
            Cell::Gauge(gauge) => gauge,
            _ => detached(metric, Kind::Gauge),
        }
    }

    /// The histogram of `metric` with these labels; otherwise as [`Telemetry::counter`].
    pub fn histogram(&self, metric: Metric, labels: Labels<'_>) -> Histogram {
        match self.cell(metric, labels) {
            Cell::Histogram(histogram) => histogram,
            _ => detached(metric, Kind::Histogram),
        }
    }

    /// Adds one to a counter; for rare events. On the frame path keep the handle of [`Telemetry::counter`].
    pub fn count(&self, metric: Metric, labels: Labels<'_>) {
        self.counter(metric, labels).increment();
    }

    /// The sum of a counter over all its series whose labels agree with those given in `labels`.
    pub fn total(&self, metric: Metric, labels: Labels<'_>) -> u64 {
        let asked = [("stream", labels.stream), ("engine", labels.engine), ("reason", labels.reason)];
        let agrees = |values: &[Box<str>; 3]| {
            metric.labels().iter().zip(values).all(|(name, value)| {
                asked
                    .iter()
                    .all(|(asked_name, asked)| asked_name != name || asked.is_none_or(|asked| asked == &**value))
            })
        };
        let all = self.lock();
        let series = all.get(&metric).into_iter().flatten().filter(|(values, _)| agrees(values));
        series.map(|(_, cell)| if let Cell::Counter(counter) = cell { counter.value() } else { 0 }).sum()
    }

    /// Drops what gauges say of this engine: it does not answer any more, and what it was like would stand there for ever.
    pub fn forget_engine(&self, label: &str) {
        for (metric, series) in self.lock().iter_mut().filter(|(metric, _)| metric.kind() == Kind::Gauge) {
            if let Some(place) = metric.labels().iter().position(|name| *name == "engine") {
                series.retain(|values, _| *values[place] != *label);
            }
        }
    }

    /// Everything in Prometheus' text format, version 0.0.4. Metrics without a series are left out.
    pub fn to_prometheus(&self) -> String {
        self.gauge(Metric::Uptime, Labels::NONE).set(self.started.elapsed().as_secs_f64());
        if let Some(bytes) = resident_bytes() {
            self.gauge(Metric::ProcessResident, Labels::NONE).set(units::float64(bytes));
        }
        let snapshot = self.lock().clone();
        let mut text = String::with_capacity(8192);
        for (metric, series) in &snapshot {
            let _ = writeln!(text, "# HELP {} {}", metric.name(), metric.help());
            let _ = writeln!(text, "# TYPE {} {}", metric.name(), metric.kind().word());
            for (values, cell) in series {
                write_series(&mut text, *metric, values, cell);
            }
        }
        text
    }

    fn cell(&self, metric: Metric, labels: Labels<'_>) -> Cell {
        let mut all = self.lock();
        let series = all.entry(metric).or_default();
        let mut key = labels.values(metric).map(Box::<str>::from);
        if !series.contains_key(&key) && series.len() >= MOST_SERIES {
            for (value, _) in key.iter_mut().zip(metric.labels()) {
                *value = "other".into();
            }
        }
        series.entry(key).or_insert_with(|| Cell::new(metric.kind())).clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Metric, Series>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn detached<T: Default>(metric: Metric, asked: Kind) -> T {
    log::error!("metric {} is a {}, asked for as a {}", metric.name(), metric.kind().word(), asked.word());
    T::default()
}

fn write_series(text: &mut String, metric: Metric, values: &[Box<str>; 3], cell: &Cell) {
    match cell {
        Cell::Counter(counter) => {
            let labels = LabelText { metric, values, bound: None };
            let _ = writeln!(text, "{}{labels} {}", metric.name(), counter.value());
        }
        Cell::Gauge(gauge) => {
            let labels = LabelText { metric, values, bound: None };
            let _ = writeln!(text, "{}{labels} {}", metric.name(), gauge.value());
        }
        Cell::Histogram(histogram) => write_histogram(text, metric, values, &histogram.0),
    }
}

fn write_histogram(text: &mut String, metric: Metric, values: &[Box<str>; 3], buckets: &Buckets) {
    let name = metric.name();
    let mut cumulated = 0;
    for (index, count) in buckets.counts.iter().enumerate() {
        cumulated += count.load(Relaxed);
        let labels = LabelText { metric, values, bound: Some(BUCKETS_SECONDS.get(index).copied()) };
        let _ = writeln!(text, "{name}_bucket{labels} {cumulated}");
    }
    let labels = LabelText { metric, values, bound: None };
    let sum = units::float64(buckets.sum_nanoseconds.load(Relaxed)) / 1e9;
    let _ = writeln!(text, "{name}_sum{labels} {sum}");
    let _ = writeln!(text, "{name}_count{labels} {cumulated}");
}

/// `{stream="cam0",reason="dark"}`, with quotes, backslashes and line ends escaped; empty without labels.
struct LabelText<'a> {
    metric: Metric,
    values: &'a [Box<str>; 3],
    /// The bucket's bound: `Some(None)` is `+Inf`.
    bound: Option<Option<f64>>,
}

impl std::fmt::Display for LabelText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.metric.labels().is_empty() && self.bound.is_none() {
            return Ok(());
        }
        let mut separator = '{';
        for (name, value) in self.metric.labels().iter().zip(self.values) {
            write!(f, "{separator}{name}=\"")?;
            for character in value.chars() {
                match character {
                    '\\' => f.write_str("\\\\")?,
                    '"' => f.write_str("\\\"")?,
                    '\n' => f.write_str("\\n")?,
                    other => f.write_char(other)?,
                }
            }
            f.write_char('"')?;
            separator = ',';
        }
        match self.bound {
            Some(Some(bound)) => write!(f, "{separator}le=\"{bound}\"}}"),
            Some(None) => write!(f, "{separator}le=\"+Inf\"}}"),
            None => f.write_char('}'),
        }
    }
}

/// Resident memory of this process; `None` where `/proc` does not tell.
pub fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_is_what_prometheus_reads() {
        let telemetry = Telemetry::default();
        telemetry.counter(Metric::FramesDropped, Labels::stream("a\"b\\c\nd").because("newer")).add(3);
        telemetry.gauge(Metric::EngineReady, Labels::engine("line1")).set(1.0);
        let histogram = telemetry.histogram(Metric::ResultAge, Labels::stream("cam0"));
        histogram.observe_ms(3.0);
        histogram.observe_ms(60_000.0);
        histogram.observe_ms(f64::NAN);
        let text = telemetry.to_prometheus();
        for line in [
            "# TYPE edge_frames_dropped_total counter",
            r#"edge_frames_dropped_total{stream="a\"b\\c\nd",reason="newer"} 3"#,
            r#"edge_engine_ready{engine="line1"} 1"#,
            r#"edge_result_age_seconds_bucket{stream="cam0",le="0.0005"} 1"#,
            r#"edge_result_age_seconds_bucket{stream="cam0",le="0.004"} 2"#,
            r#"edge_result_age_seconds_bucket{stream="cam0",le="+Inf"} 3"#,
            r#"edge_result_age_seconds_count{stream="cam0"} 3"#,
            r#"edge_result_age_seconds_sum{stream="cam0"} 60.003"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nin\n{text}");
        }
        assert!(
            text.lines()
                .all(|line| line.starts_with("# ")
                    || line.rsplit_once(' ').is_some_and(|(_, v)| v.parse::<f64>().is_ok()))
        );
    }

    #[test]
    fn label_sets_are_bounded() {
        let telemetry = Telemetry::default();
        for stream in 0..2 * MOST_SERIES {
            telemetry.count(Metric::FramesCaptured, Labels::stream(&stream.to_string()));
        }
        let text = telemetry.to_prometheus();
        let series = text.lines().filter(|line| line.starts_with("edge_frames_captured_total{")).count();
        assert_eq!(series, MOST_SERIES + 1);
        assert!(text.contains("edge_frames_captured_total{stream=\"other\"} 256"));
        assert_eq!(telemetry.total(Metric::FramesCaptured, Labels::NONE), 512);
    }

    #[test]
    fn of_an_engine_that_is_gone_counters_stay_and_gauges_do_not() {
        let telemetry = Telemetry::default();
        for engine in ["old", "new"] {
            telemetry.gauge(Metric::EngineReady, Labels::engine(engine)).set(0.0);
            telemetry.count(Metric::ProofsPassed, Labels::engine(engine));
        }
        telemetry.forget_engine("old");
        let text = telemetry.to_prometheus();
        assert!(
            !text.contains("edge_engine_ready{engine=\"old\"}") && text.contains("edge_engine_ready{engine=\"new\"}")
        );
        assert!(text.contains("edge_proofs_passed_total{engine=\"old\"} 1"));
    }

    #[test]
    fn a_handle_of_the_wrong_kind_harms_nothing() {
        let telemetry = Telemetry::default();
        telemetry.gauge(Metric::FramesCaptured, Labels::NONE).set(7.0);
        assert!(telemetry.to_prometheus().contains("edge_frames_captured_total{stream=\"none\"} 0"));
    }
}
