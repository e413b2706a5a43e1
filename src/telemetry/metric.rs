//! The names of all metrics: the one list that code, documentation and dashboards go by.

/// Whether a metric counts, shows or distributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, from 0 at start.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts observations in fixed buckets, in seconds.
    Histogram,
}

impl Kind {
    /// The word in the `# TYPE` line.
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

macro_rules! metrics {
    ($($variant:ident, $name:literal, $kind:ident, [$($label:literal),*], $help:literal;)*) => {
        /// Every metric of this program.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Metric {
            $(#[doc = $help] $variant,)*
        }

        impl Metric {
            /// All of them, in the order of `docs/metrics.md`.
            pub const ALL: &'static [Metric] = &[$(Metric::$variant),*];

            /// The name with its unit, as Prometheus sees it.
            pub const fn name(self) -> &'static str {
                match self { $(Metric::$variant => $name,)* }
            }

            /// Counter, gauge or histogram.
            pub const fn kind(self) -> Kind {
                match self { $(Metric::$variant => Kind::$kind,)* }
            }

            /// The labels it carries: some of `stream`, `engine`, `reason`.
            pub const fn labels(self) -> &'static [&'static str] {
                match self { $(Metric::$variant => &[$($label),*],)* }
            }

            /// What it says, in one line.
            pub const fn help(self) -> &'static str {
                match self { $(Metric::$variant => $help,)* }
            }
        }
    };
}

metrics! {
    FramesCaptured, "edge_frames_captured_total", Counter, ["stream"], "Frames that the source delivered.";
    FramesDropped, "edge_frames_dropped_total", Counter, ["stream", "reason"], "Frames that were captured and never answered, by reason.";
    SourceReopened, "edge_source_reopened_total", Counter, ["stream", "reason"], "Times a lost source was opened again, by the reason of the loss.";
    LastFrameAge, "edge_last_frame_age_seconds", Gauge, ["stream"], "Time since the last frame of the stream arrived.";
    ResultsTrusted, "edge_results_trusted_total", Counter, ["stream"], "Results that the guard trusts.";
    ResultsSuspect, "edge_results_suspect_total", Counter, ["stream"], "Results that a soft check speaks against.";
    ResultsFault, "edge_results_fault_total", Counter, ["stream"], "Results without a usable answer: a hard check fired, or there was no picture.";
    GuardReasons, "edge_guard_reasons_total", Counter, ["stream", "reason"], "Checks that fired, by reason; one result may carry several.";
    GuardObserved, "edge_guard_observed_total", Counter, ["stream", "reason"], "Soft checks that saw something while they only observe.";
    Detections, "edge_detections_total", Counter, ["stream"], "Boxes reported.";
    DecisionsPass, "edge_decisions_pass_total", Counter, ["stream"], "Parts that passed.";
    DecisionsReject, "edge_decisions_reject_total", Counter, ["stream"], "Parts that were rejected.";
    DecisionsNotInspected, "edge_decisions_not_inspected_total", Counter, ["stream"], "Parts without a timely, trusted answer.";
    Triggers, "edge_triggers_total", Counter, ["stream"], "Triggers taken.";
    TriggersRefused, "edge_triggers_refused_total", Counter, ["reason"], "Triggers refused, by reason.";
    ResultAge, "edge_result_age_seconds", Histogram, ["stream"], "From arrival of a frame to its result.";
    FrameWait, "edge_frame_wait_seconds", Histogram, ["stream"], "From arrival of a frame to the moment its batch was closed.";
    Batches, "edge_batches_total", Counter, ["engine", "reason"], "Batches given to the engine, by why they were closed: full, complete (nothing more to be expected), deadline.";
    BatchFrames, "edge_batch_frames_total", Counter, ["engine"], "Frames in those batches.";
    BatchFill, "edge_batch_fill_ratio", Gauge, ["engine"], "Share of the engine's slots that held a frame in the last batches, 0 to 1.";
    Preprocess, "edge_preprocess_seconds", Histogram, ["engine"], "Letterbox, colour and number format.";
    Transfer, "edge_transfer_seconds", Histogram, ["engine"], "Copies to and from the device.";
    Inference, "edge_inference_seconds", Histogram, ["engine"], "The network alone.";
    Postprocess, "edge_postprocess_seconds", Histogram, ["engine"], "Threshold, arg-max and statistics.";
    EngineReady, "edge_engine_ready", Gauge, ["engine"], "1 when warm-up and proof are done and no fault stands, else 0.";
    EngineHeartbeatAge, "edge_engine_heartbeat_age_seconds", Gauge, ["engine"], "Time since the engine's thread last moved.";
    EngineErrors, "edge_engine_errors_total", Counter, ["engine"], "Runs of the engine that ended in an error.";
    ProofsPassed, "edge_proofs_passed_total", Counter, ["engine"], "Times the known answers came out right.";
    ProofsFailed, "edge_proofs_failed_total", Counter, ["engine"], "Times the known answers came out wrong.";
    ProofTimestamp, "edge_proof_timestamp_seconds", Gauge, ["engine"], "When the known answers last came out right, Unix time.";
    ProofsBeforeFrame, "edge_proofs_before_frame_total", Counter, ["engine"], "Known answers asked for although a frame was waiting, because the proof was late.";
    ProofInterval, "edge_proof_interval_seconds", Gauge, ["engine"], "Time between two proofs at present.";
    ResultsUnproven, "edge_results_unproven_total", Counter, [], "Results between the last good proof and a failed one, or the end of their engine.";
    RecoverySteps, "edge_recovery_steps_total", Counter, ["engine", "reason"], "Steps taken on the recovery ladder, by step.";
    Recovery, "edge_recovery_seconds", Histogram, ["engine"], "From a fault of the engine to the proof that it is over.";
    MemoryUsed, "edge_memory_used_bytes", Gauge, ["reason"], "Memory in use by all programs, of the machine and of each device.";
    MemoryTotal, "edge_memory_total_bytes", Gauge, ["reason"], "Memory in all, of the machine and of each device.";
    MemoryAlarms, "edge_memory_alarms_total", Counter, ["reason"], "Alarms of the memory watch: machine, each device, or growth of this process.";
    StandbysReady, "edge_standbys_ready", Gauge, ["engine"], "Engines that stand by on other devices, warm and proved.";
    StandbyProofs, "edge_standby_proofs_total", Counter, ["reason"], "Known answers asked of engines that stand by: passed, failed.";
    DeviceChanges, "edge_device_changes_total", Counter, ["reason"], "Times another device went on, by the device that did.";
    DeviceErrors, "edge_device_errors_total", Counter, ["reason"], "What the driver reports of devices: ecc_uncorrected, xid.";
    DeviceTemperature, "edge_device_temperature_celsius", Gauge, ["reason"], "Temperature of the chip, by device.";
    Reloads, "edge_reloads_total", Counter, ["engine", "reason"], "Requests for another bundle, by how they ended: swapped, unchanged, refused, does_not_fit, rolled_back.";
    ReloadGap, "edge_reload_gap_seconds", Histogram, ["engine"], "Time the line stood still for a bundle that did not fit beside the running one.";
    ReloadRoom, "edge_reload_room_bytes", Gauge, ["engine"], "What the budget leaves beside all engines; a bundle that takes more is not loaded beside the running one.";
    Changeovers, "edge_changeovers_total", Counter, ["reason"], "Changes to another product, by how they ended: changed, with_trouble.";
    MemoryAllocated, "edge_memory_allocated_bytes", Gauge, ["engine"], "Memory of the engine in use.";
    MemoryPeak, "edge_memory_peak_bytes", Gauge, ["engine"], "Highest use of memory by the engine.";
    MemoryReserved, "edge_memory_reserved_bytes", Gauge, ["engine"], "Memory that the plan reserves for the engine.";
    ProcessResident, "edge_process_resident_bytes", Gauge, [], "Resident memory of this process.";
    OutputRowsWritten, "edge_output_rows_written_total", Counter, [], "Result lines written.";
    OutputRowsDropped, "edge_output_rows_dropped_total", Counter, ["reason"], "Result lines that could not be kept, by reason.";
    PicturesSaved, "edge_pictures_saved_total", Counter, ["stream"], "Annotated pictures written.";
    PicturesDropped, "edge_pictures_dropped_total", Counter, ["stream", "reason"], "Annotated pictures that could not be kept, by reason.";
    Incidents, "edge_incidents_total", Counter, ["reason"], "Incidents recorded, by the reason seen first; `asked` is a log that was asked for.";
    IncidentFrames, "edge_incident_frames_written_total", Counter, [], "Frames written down with incidents.";
    IncidentFramesDropped, "edge_incident_frames_dropped_total", Counter, ["reason"], "Frames or pictures of incidents that could not be kept, by reason.";
    IncidentsRemoved, "edge_incidents_removed_total", Counter, [], "Incidents removed to make room for newer ones.";
    IncidentsUsed, "edge_incidents_bytes", Gauge, [], "Room that incidents take on the disk.";
    HttpRefused, "edge_http_refused_total", Counter, ["reason"], "HTTP connections and requests refused, by reason.";
    Uptime, "edge_uptime_seconds", Gauge, [], "Time since this process started its work.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_follow_the_rules() {
        let mut seen = BTreeSet::new();
        for metric in Metric::ALL {
            let name = metric.name();
            assert!(seen.insert(name), "{name} is there twice");
            assert!(name.starts_with("edge_"), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
            assert!(metric.help().ends_with('.'), "{name}: {}", metric.help());
            let unit_fits = match metric.kind() {
                Kind::Counter => name.ends_with("_total"),
                Kind::Gauge => {
                    ["_seconds", "_bytes", "_celsius", "_ready", "_ratio"].iter().any(|unit| name.ends_with(unit))
                }
                Kind::Histogram => name.ends_with("_seconds"),
            };
            assert!(unit_fits, "{name} as {:?}", metric.kind());
            for label in metric.labels() {
                assert!(["stream", "engine", "reason"].contains(label), "{name}: label {label}");
            }
            if name.contains("dropped") {
                assert!(metric.labels().contains(&"reason"), "{name}: every drop has a reason");
            }
        }
    }

    #[test]
    fn the_documentation_lists_exactly_these() {
        let text = include_str!("../../docs/metrics.md");
        let documented: Vec<&str> =
            text.lines().filter(|line| line.starts_with("| `edge_") && line.split(" | ").count() == 4).collect();
        let expected: Vec<String> = Metric::ALL.iter().map(|metric| documentation_line(*metric)).collect();
        assert_eq!(
            documented, expected,
            "docs/metrics.md and the list in code differ; expected lines are on the right"
        );
    }

    fn documentation_line(metric: Metric) -> String {
        let labels: Vec<String> = metric.labels().iter().map(|label| format!("`{label}`")).collect();
        format!("| `{}` | {} | {} | {} |", metric.name(), metric.kind().word(), labels.join(", "), metric.help())
    }
}
