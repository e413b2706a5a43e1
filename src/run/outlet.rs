//! Where results go in this run: the sinks that flags and configuration ask for, and the HTTP server.

use crate::error::Result;
use crate::run::Say;
use crate::sinks::Sink;
use crate::sinks::http::{Board, Command, HttpOptions, Server, Trigger};
use crate::sinks::json::{JsonLines, Keeping, Rotation};
use crate::sinks::metrics::RowMetrics;
use crate::sinks::save::{AnnotatedPictures, SaveFormat, SaveOptions};
use crate::sinks::terminal::{TerminalLine, TerminalMode};
use crate::telemetry::Telemetry;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

/// Triggers that may wait between the HTTP server and the clerk; more are answered with 503.
const WAITING_TRIGGERS: usize = 256;

/// Where results go.
#[derive(Debug, Clone, Default)]
pub struct OutputOptions {
    /// JSON lines; `-` is standard output.
    pub file: Option<PathBuf>,
    /// Folder for annotated pictures.
    pub save: Option<PathBuf>,
    /// The pages and `/metrics`; `None` has none.
    pub http: Option<HttpOptions>,
    /// Live figures on standard error.
    pub terminal: bool,
}

/// Opened sinks and server.
pub(super) struct Outlet {
    pub(super) sinks: Vec<Box<dyn Sink>>,
    pub(super) server: Option<Server>,
    pub(super) triggers: Option<Receiver<Trigger>>,
    pub(super) commands: Option<Receiver<Command>>,
}

impl Outlet {
    /// Opens everything that can fail before the first frame: files, folders, the port.
    pub(super) fn open(
        options: &OutputOptions,
        live: bool,
        triggered: bool,
        board: &Arc<Board>,
        telemetry: &Arc<Telemetry>,
        say: Say<'_>,
    ) -> Result<Self> {
        let mut sinks: Vec<Box<dyn Sink>> =
            vec![Box::new(board.sink()), Box::new(RowMetrics::new(Arc::clone(telemetry)))];
        if let Some(file) = &options.file {
            let keeping = if live { Keeping::Appended(Rotation::default()) } else { Keeping::Whole };
            sinks.push(Box::new(JsonLines::open(file, keeping, telemetry)?));
        }
        if let Some(folder) = &options.save {
            let how = SaveOptions { format: SaveFormat::default(), every: !live };
            sinks.push(Box::new(AnnotatedPictures::open(folder, how, Arc::clone(telemetry))?));
        }
        if options.terminal {
            let mode = TerminalMode::fitting(std::io::stderr().is_terminal(), std::env::var_os("CI").is_some());
            sinks.push(Box::new(TerminalLine::new(Box::new(std::io::stderr()), mode, Arc::clone(telemetry))));
        }
        let mut triggers = None;
        let mut commands = None;
        let server = match &options.http {
            Some(http) => {
                let mut http = http.clone();
                let (sender, receiver) = sync_channel(1);
                http.commands = Some(sender);
                commands = Some(receiver);
                if triggered {
                    let (sender, receiver) = sync_channel(WAITING_TRIGGERS);
                    http.triggers = Some(sender);
                    triggers = Some(receiver);
                }
                Server::start(http, Arc::clone(board), Arc::clone(telemetry))?
            }
            None => None,
        };
        for line in server.iter().flat_map(Server::start_lines) {
            say(&line);
        }
        Ok(Outlet { sinks, server, triggers, commands })
    }
}
