//! What a build says while it runs: lines, and a bar on a terminal.

use crate::build::watcher::Watcher;
use crate::bundle::gate::GateResult;
use crate::cli::{StopRequest, Terminal};
use crate::error::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Lines and a bar on the terminal.
pub(super) struct Screen<'a> {
    terminal: &'a mut Terminal,
    stop: StopRequest,
    bar: Option<ProgressBar>,
    gate: Option<GateResult>,
}

impl<'a> Screen<'a> {
    pub(super) fn new(terminal: &'a mut Terminal, stop: StopRequest) -> Self {
        Screen { terminal, stop, bar: None, gate: None }
    }

    /// What the accuracy gate measured, passed or not.
    pub(super) fn take_gate(&mut self) -> Option<GateResult> {
        self.gate.take()
    }

    fn without_bar(&mut self, line: impl FnOnce(&mut Terminal)) {
        match &self.bar {
            Some(bar) => bar.suspend(|| line(self.terminal)),
            None => line(self.terminal),
        }
    }
}

impl Watcher for Screen<'_> {
    fn say(&mut self, text: &str) {
        self.without_bar(|terminal| terminal.say(text));
    }

    fn warn(&mut self, text: &str) {
        self.without_bar(|terminal| terminal.warn(text));
    }

    fn step(&mut self, what: &str, done: u64, of: u64) {
        if self.terminal.is_interactive() {
            let bar = self.bar.get_or_insert_with(|| new_bar(what, of));
            bar.set_position(done);
        }
        if done >= of {
            if let Some(bar) = self.bar.take() {
                bar.finish_and_clear();
            }
            self.terminal.say(format_args!("{what}: {of} pictures looked at"));
        }
    }

    fn phase(&mut self, name: &str, done: u64, of: u64) {
        if self.terminal.is_interactive() {
            let bar = self.bar.get_or_insert_with(|| new_bar("compiling", of));
            bar.set_length(of);
            bar.set_position(done);
            bar.set_message(name.to_owned());
        }
    }

    fn phase_done(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn judged(&mut self, result: &GateResult) {
        self.gate = Some(result.clone());
    }

    fn check_stop(&self) -> Result<()> {
        self.stop.check()
    }
}

fn new_bar(what: &str, of: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(of), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len}, {eta} left {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(what.to_owned());
    bar
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
