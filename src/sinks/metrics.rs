//! The sink that counts rows for `/metrics`. Handles are kept from row to row: nothing is looked up twice.

use super::Sink;
use super::row::Row;
use crate::decision::Decision;
use crate::error::Result;
use crate::frame::StreamName;
use crate::guard::{Reason, Trust, reasons};
use crate::telemetry::{Counter, Gauge, Histogram, Labels, Metric, Telemetry};
use crate::units::{count, float64};
use std::sync::Arc;
use std::time::SystemTime;

/// Counts results, reasons, decisions, ages, timings and memory.
pub struct RowMetrics {
    telemetry: Arc<Telemetry>,
    streams: Vec<StreamMetrics>,
    engines: Vec<EngineMetrics>,
}

struct StreamMetrics {
    name: StreamName,
    /// The engine that answered its last row.
    engine: String,
    trust: [Counter; 3],
    decisions: [Counter; 3],
    detections: Counter,
    age: Histogram,
    reasons: Vec<(Reason, Counter)>,
    observed: Vec<(Reason, Counter)>,
}

struct EngineMetrics {
    label: String,
    stages: [Histogram; 4],
    memory: [Gauge; 3],
    errors: Counter,
    proof_timestamp: Gauge,
}

impl RowMetrics {
    /// Counts into `telemetry`.
    pub fn new(telemetry: Arc<Telemetry>) -> Self {
        RowMetrics { telemetry, streams: Vec::new(), engines: Vec::new() }
    }

    fn stream(&mut self, name: &StreamName) -> &mut StreamMetrics {
        let position = self.streams.iter().position(|stream| stream.name == *name).unwrap_or_else(|| {
            self.streams.push(StreamMetrics::new(&self.telemetry, name));
            self.streams.len() - 1
        });
        &mut self.streams[position]
    }

    fn engine(&mut self, label: &str) -> &EngineMetrics {
        let position = self.engines.iter().position(|engine| engine.label == label).unwrap_or_else(|| {
            self.engines.push(EngineMetrics::new(&self.telemetry, label));
            self.engines.len() - 1
        });
        &self.engines[position]
    }
}

impl StreamMetrics {
    fn new(telemetry: &Telemetry, name: &StreamName) -> Self {
        let counter = |metric| telemetry.counter(metric, Labels::stream(name));
        StreamMetrics {
            name: Arc::clone(name),
            engine: String::new(),
            trust: [Metric::ResultsTrusted, Metric::ResultsSuspect, Metric::ResultsFault].map(counter),
            decisions: [Metric::DecisionsPass, Metric::DecisionsReject, Metric::DecisionsNotInspected].map(counter),
            detections: counter(Metric::Detections),
            age: telemetry.histogram(Metric::ResultAge, Labels::stream(name)),
            // From zero on: a counter that appears with its first event is seen by no `increase()`.
            reasons: reasons()
                .map(|reason| (reason, counter_of(telemetry, Metric::GuardReasons, name, reason)))
                .collect(),
            observed: Vec::new(),
        }
    }
}

impl EngineMetrics {
    fn new(telemetry: &Telemetry, label: &str) -> Self {
        let labels = Labels::engine(label);
        EngineMetrics {
            label: label.to_owned(),
            stages: [Metric::Preprocess, Metric::Transfer, Metric::Inference, Metric::Postprocess]
                .map(|metric| telemetry.histogram(metric, labels)),
            memory: [Metric::MemoryAllocated, Metric::MemoryPeak, Metric::MemoryReserved]
                .map(|metric| telemetry.gauge(metric, labels)),
            errors: telemetry.counter(Metric::EngineErrors, labels),
            proof_timestamp: telemetry.gauge(Metric::ProofTimestamp, labels),
        }
    }
}

fn counter_of(telemetry: &Telemetry, metric: Metric, stream: &str, reason: Reason) -> Counter {
    telemetry.counter(metric, Labels::stream(stream).because(reason.name()))
}

fn count_reasons(
    telemetry: &Telemetry,
    metric: Metric,
    stream: &str,
    seen: &[Reason],
    kept: &mut Vec<(Reason, Counter)>,
) {
    for reason in seen {
        match kept.iter().find(|(known, _)| known == reason) {
            Some((_, counter)) => counter.increment(),
            None => {
                let counter = counter_of(telemetry, metric, stream, *reason);
                counter.increment();
                kept.push((*reason, counter));
            }
        }
    }
}

impl Sink for RowMetrics {
    fn put(&mut self, row: &Row) -> Result<()> {
        let telemetry = Arc::clone(&self.telemetry);
        let stream = self.stream(&row.stream);
        match row.trust {
            Trust::Trusted => stream.trust[0].increment(),
            Trust::Suspect => stream.trust[1].increment(),
            Trust::Fault => stream.trust[2].increment(),
        }
        match row.decision {
            Some(Decision::Pass) => stream.decisions[0].increment(),
            Some(Decision::Reject) => stream.decisions[1].increment(),
            Some(Decision::NotInspected) => stream.decisions[2].increment(),
            None => {}
        }
        stream.detections.add(count(row.usable_detections().map_or(0, <[_]>::len)));
        stream.age.observe_ms(row.age_ms);
        count_reasons(&telemetry, Metric::GuardReasons, &row.stream, &row.reasons, &mut stream.reasons);
        count_reasons(&telemetry, Metric::GuardObserved, &row.stream, &row.observed, &mut stream.observed);
        if stream.engine != row.engine.label() {
            // Handles of an engine that is gone may be of series that are gone.
            let before = std::mem::replace(&mut stream.engine, row.engine.label().to_owned());
            self.engines.retain(|engine| engine.label != before);
        }
        let engine = self.engine(row.engine.label());
        if row.reasons.contains(&Reason::EngineError) {
            engine.errors.increment();
        } else if row.timings.inference_ms > 0.0 {
            let timings = &row.timings;
            let stages = [timings.preprocess_ms, timings.transfer_ms, timings.inference_ms, timings.postprocess_ms];
            engine.stages.iter().zip(stages).for_each(|(stage, time_ms)| stage.observe_ms(time_ms));
        }
        let figures = [row.memory.allocated, row.memory.peak, row.memory.reserved];
        engine.memory.iter().zip(figures).for_each(|(gauge, bytes)| gauge.set(float64(bytes.0)));
        if let Some(Ok(since)) = row.proved_at.map(|at| at.duration_since(SystemTime::UNIX_EPOCH)) {
            engine.proof_timestamp.set(since.as_secs_f64());
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sinks::row::tests::row;

    #[test]
    fn an_engine_that_comes_back_is_told_of_again() {
        let telemetry = Telemetry::new();
        let mut sink = RowMetrics::new(Arc::clone(&telemetry));
        let of = |name: &str| {
            let stamp = crate::sinks::row::EngineStamp { bundle: name.into(), ..(*row().engine).clone() };
            Row { engine: Arc::new(stamp), ..row() }
        };
        sink.put(&of("a")).unwrap();
        sink.put(&of("b")).unwrap();
        telemetry.forget_engine("a");
        let told = |name: &str| {
            let series = format!("edge_memory_peak_bytes{{engine=\"{name}\"}} 20");
            telemetry.to_prometheus().lines().any(|line| line == series)
        };
        assert!(!told("a") && told("b"));
        sink.put(&of("a")).unwrap();
        assert!(told("a"));
    }

    #[test]
    fn every_row_is_counted_once() {
        let telemetry = Telemetry::new();
        let mut sink = RowMetrics::new(Arc::clone(&telemetry));
        sink.put(&row()).unwrap();
        sink.put(&Row { trust: Trust::Suspect, observed: vec![Reason::Blurred], decision: None, ..row() }).unwrap();
        let fault = Row {
            trust: Trust::Fault,
            reasons: vec![Reason::Nan, Reason::Dark],
            decision: Some(Decision::NotInspected),
            ..row()
        };
        sink.put(&fault).unwrap();
        sink.put(&fault).unwrap();
        let total = |metric, labels| telemetry.total(metric, labels);
        let stream = Labels::stream("cam0");
        assert_eq!(total(Metric::ResultsTrusted, stream), 1);
        assert_eq!(total(Metric::ResultsSuspect, stream), 1);
        assert_eq!(total(Metric::ResultsFault, stream), 2);
        assert_eq!(total(Metric::DecisionsReject, stream), 1);
        assert_eq!(total(Metric::DecisionsNotInspected, stream), 2);
        assert_eq!(total(Metric::DecisionsPass, Labels::NONE), 0);
        assert_eq!(total(Metric::GuardReasons, stream.because("nan")), 2);
        assert_eq!(total(Metric::GuardReasons, Labels::NONE), 4);
        let from_zero = "edge_guard_reasons_total{stream=\"cam0\",reason=\"frozen\"} 0";
        assert!(telemetry.to_prometheus().contains(from_zero), "{}", telemetry.to_prometheus());
        assert_eq!(total(Metric::GuardObserved, stream.because("blurred")), 1);
        assert_eq!(total(Metric::Detections, stream), 2, "boxes of a fault do not count");
        assert!(telemetry.to_prometheus().contains("edge_memory_peak_bytes{engine=\"line1\"} 20"));
        let labelled = crate::sinks::row::EngineStamp { label: Some("left".into()), ..(*row().engine).clone() };
        sink.put(&Row { engine: Arc::new(labelled), ..row() }).unwrap();
        let text = telemetry.to_prometheus();
        let series = text.lines().filter(|line| line.starts_with("edge_memory_peak_bytes{")).collect::<Vec<_>>();
        assert_eq!(series.len(), 2, "two engines whose bundles have one name: {series:?}");
    }
}
