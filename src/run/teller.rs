//! The sink thread: takes finished rows and hands them to every sink in turn, so that no sink can block the engine.

use crate::error::Error;
use crate::run::stop::{StopFlag, StopReason};
use crate::sinks::Sink;
use crate::sinks::row::Row;
use crate::telemetry::{Labels, Metric, Telemetry};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Rows that may wait for the sinks.
const WAITING_ROWS: usize = 512;

/// The near end: engine thread and clerk put rows in.
#[derive(Clone)]
pub(super) struct RowSender {
    sender: SyncSender<Row>,
    telemetry: Arc<Telemetry>,
}

impl RowSender {
    /// Hands a row over. With `patient` (files: nothing may be left out) this waits for room; else a row that finds no
    /// room is dropped and counted, because sinks never hold up a live line.
    pub(super) fn put(&self, row: Row, patient: bool) {
        if patient {
            // The teller outlives every sender; when it is gone the run is failing and says why itself.
            let _ = self.sender.send(row);
        } else if let Err(TrySendError::Full(row)) = self.sender.try_send(row) {
            log::debug!("stream {}: a row found no room", row.stream);
            self.telemetry.count(Metric::OutputRowsDropped, Labels::reason("sinks_busy"));
        }
    }
}

/// The sink thread; joined at the end of a run.
pub(super) struct Teller {
    thread: JoinHandle<Vec<Error>>,
}

impl Teller {
    /// Starts the thread. An error of a sink whose loss ends the run raises `stop`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unexpected`] when no thread can be had.
    pub(super) fn start(
        sinks: Vec<Box<dyn Sink>>,
        telemetry: Arc<Telemetry>,
        stop: StopFlag,
    ) -> crate::Result<(RowSender, Teller)> {
        let (sender, receiver) = sync_channel(WAITING_ROWS);
        let thread = std::thread::Builder::new()
            .name("sinks".into())
            .spawn(move || tell(&receiver, sinks, &stop))
            .map_err(|error| Error::unexpected("the sink thread cannot be started").because(error))?;
        Ok((RowSender { sender, telemetry }, Teller { thread }))
    }

    /// Waits until every row is told and flushed; returns what went wrong. All senders must be gone by then.
    pub(super) fn finish(self) -> Vec<Error> {
        self.thread.join().unwrap_or_else(|_| vec![Error::unexpected("the sink thread ended early")])
    }
}

fn tell(receiver: &Receiver<Row>, mut sinks: Vec<Box<dyn Sink>>, stop: &StopFlag) -> Vec<Error> {
    const FLUSH_EVERY: Duration = Duration::from_millis(200);
    let mut errors = Vec::new();
    loop {
        match receiver.recv_timeout(FLUSH_EVERY) {
            Ok(row) => on_all(&mut sinks, &mut errors, stop, |sink| sink.put(&row)),
            Err(RecvTimeoutError::Timeout) => on_all(&mut sinks, &mut errors, stop, |sink| sink.flush()),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    // An interrupted or failed run leaves no file that looks whole: `finish` is what gives files their names.
    let whole = matches!(stop.reason(), None | Some(StopReason::Done));
    on_all(&mut sinks, &mut errors, stop, |sink| if whole { sink.finish() } else { sink.flush() });
    errors
}

/// A sink that fails is taken out after its first error; the run stops, because results that nobody gets are no results.
fn on_all(
    sinks: &mut Vec<Box<dyn Sink>>,
    errors: &mut Vec<Error>,
    stop: &StopFlag,
    mut action: impl FnMut(&mut dyn Sink) -> crate::Result<()>,
) {
    sinks.retain_mut(|sink| match action(sink.as_mut()) {
        Ok(()) => true,
        Err(error) => {
            // The first one ends the run and is told by the program itself.
            if !errors.is_empty() {
                log::error!("{error}");
            }
            errors.push(error);
            stop.raise(StopReason::Failed);
            false
        }
    });
}
