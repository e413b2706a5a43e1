//! What the service tells the recorder: alarms, steps of the ladder, and how it ended.

use super::super::writer::Note;
use super::words::{note_of, reason_of};
use super::{Log, Recorder, State};
use crate::error::Error;
use crate::guard::ladder::{Cause, Step};
use crate::units::milliseconds;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Recorder {
    /// The service has a fault before it and climbs the ladder from here.
    pub(crate) fn alarm(&self, cause: Option<Cause>, what: &str) {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(log) = self.log(state) else { return };
        log.event("alarm", what);
        if log.open.as_ref().is_some_and(|open| open.over) {
            self.close(state, self.engine, false);
        }
        match &mut state.engines[self.engine].open {
            Some(open) => what.clone_into(&mut open.report.what),
            None => {
                let frames = state.options.frames_after;
                self.open(state, self.engine, reason_of(cause), what, (None, true), frames);
            }
        }
        let Some(open) = &mut state.engines[self.engine].open else { return };
        open.ends_with = None;
        self.tell(state);
    }

    /// What is known by now goes to the page and to the disk: the next step may be the last thing that this process does.
    fn tell(&self, state: &State) {
        let Some(Log { open: Some(open), events, .. }) = state.engines.get(self.engine) else { return };
        self.shared.board.note_incident(note_of(&open.report, false));
        if let Some(writer) = &state.writer {
            let mut report = open.report.clone();
            report.events.extend(events.iter().cloned());
            writer.tell(Note::Update(Box::new(report)));
        }
    }

    /// A step was taken.
    pub(crate) fn step(&self, step: Step) {
        let mut state = self.lock();
        let Some(log) = self.log(&mut state) else { return };
        log.event("step", step.name());
        let Some(open) = &mut log.open else { return };
        open.report.steps.push(step.name().to_owned());
        self.tell(&state);
    }

    /// The known answers come out right again.
    pub(crate) fn recovered(&self, steps: &[Step], took: Duration) {
        let mut state = self.lock();
        let Some(log) = self.log(&mut state) else { return };
        log.event("recovered", &format!("after {:.2} s", took.as_secs_f64()));
        let Some(open) = &mut log.open else { return };
        open.over = true;
        open.report.steps = steps.iter().map(|step| step.name().to_owned()).collect();
        open.report.recovered_after_ms = Some(milliseconds(took));
        self.tell(&state);
    }

    /// The run ends, because of `error` when there is one. What is open is written as far as it goes.
    pub(crate) fn finish(&self, error: Option<&Error>) {
        let mut state = self.lock();
        if let Some(error) = error {
            let text = format!("exit {}: {}", error.kind().exit_code(), error.message());
            for log in &mut state.engines {
                log.event("gave_up", &text);
                if let Some(open) = log.open.as_mut().filter(|open| !open.over) {
                    open.report.ended = Some(text.clone());
                }
            }
        }
        let state = &mut *state;
        (0..state.engines.len()).for_each(|engine| self.close(state, engine, true));
        self.shared.records.store(false, Ordering::Relaxed);
        if state.recorded > 0 {
            let each_us = state.spent.as_secs_f64() * 1e6 / crate::units::float64(state.recorded);
            log::info!("deep log: {each_us:.2} µs a frame over {} frames", state.recorded);
        }
        if let Some(writer) = state.writer.take() {
            writer.finish();
        }
    }
}
