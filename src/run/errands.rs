//! What goes on beside the loops over captures until the run ends, each on a thread of its own: deadlines of parts, triggers
//! and commands that came over HTTP, baselines.

use super::Shared;
use super::blank::Blank;
use super::teller::RowSender;
use crate::guard::Reason;
use crate::sinks::http::{Command, Trigger};
use crate::telemetry::{Labels, Metric};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

impl Shared<'_> {
    /// Saves baselines beside the frame path, and answers who accepts one.
    pub(super) fn keep_baselines(&self) {
        const EVERY: Duration = Duration::from_millis(500);
        loop {
            let ended = self.stop.sleep(EVERY);
            self.baselines.answer_request();
            self.baselines.save();
            if ended {
                break;
            }
        }
    }

    /// Opens a part for each trigger that came over HTTP.
    pub(super) fn take_triggers(&self, triggers: &Receiver<Trigger>) {
        const PATIENCE: Duration = Duration::from_millis(100);
        while !self.stop.is_raised() {
            let Ok(trigger) = triggers.recv_timeout(PATIENCE) else { continue };
            let opened = self.clerk.trigger(Some(&trigger.stream), Some(&trigger.part), trigger.received);
            if let Err(error) = opened {
                log::warn!("trigger of stream {}, part `{}` refused: {error}", trigger.stream, trigger.part);
                self.telemetry.count(Metric::TriggersRefused, Labels::reason("part_id"));
            }
        }
    }

    /// Hands commands that came over HTTP to the service.
    pub(super) fn take_commands(&self, commands: &Receiver<Command>) {
        const PATIENCE: Duration = Duration::from_millis(100);
        let door = &self.options.service.reload.door;
        let products = &self.options.service.products.door;
        while !self.stop.is_raised() {
            match commands.recv_timeout(PATIENCE) {
                Ok(Command::Reload) => door.ask(),
                Ok(Command::Rollback) => door.ask_rollback(),
                Ok(Command::DeepLog(frames)) => {
                    if !self.recorder.ask(frames) {
                        log::warn!("a deep log was asked for, and none can be kept now");
                    }
                }
                Ok(Command::Product { product, asked }) => products.ask(product, asked),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    }

    /// Answers parts whose deadline has passed.
    pub(super) fn watch_deadlines(&self, rows: &RowSender, blank: &Blank) {
        const EVERY: Duration = Duration::from_millis(10);
        while !self.stop.sleep(EVERY) {
            for unanswered in self.clerk.expire(Instant::now()) {
                rows.put(blank.row(unanswered.stream, Some(unanswered.decided), Reason::Late), true);
            }
        }
    }
}
