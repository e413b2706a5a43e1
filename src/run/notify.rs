//! Tells systemd where the run stands (`Type=notify`, `WatchdogSec=`): one datagram a message, no library.

use crate::sinks::http::{Board, Phase};
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The supervisor's socket, when there is one.
#[derive(Debug)]
pub struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog_every: Option<Duration>,
    told: Option<Phase>,
    last_ping: Option<Instant>,
}

impl Notifier {
    /// From `NOTIFY_SOCKET` and `WATCHDOG_USEC`, as systemd sets them; silent without.
    pub fn of_environment() -> Self {
        let every = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok()).map(Duration::from_micros);
        Self::new(std::env::var_os("NOTIFY_SOCKET").as_deref(), every)
    }

    /// For a socket address: a path, or `@NAME` for an abstract one.
    pub fn new(address: Option<&OsStr>, watchdog: Option<Duration>) -> Self {
        let socket = address.and_then(|address| {
            let bytes = address.as_bytes();
            let to = match bytes.strip_prefix(b"@") {
                Some(name) => SocketAddr::from_abstract_name(name),
                None => SocketAddr::from_pathname(address),
            };
            let opened = to.and_then(|to| {
                let socket = UnixDatagram::unbound()?;
                socket.set_nonblocking(true)?;
                Ok((socket, to))
            });
            opened.inspect_err(|error| log::warn!("the supervisor's socket cannot be used: {error}")).ok()
        });
        // Twice as often as asked, so that one late message is not the end.
        Notifier { socket, watchdog_every: watchdog.map(|every| every / 2), told: None, last_ping: None }
    }

    /// Called several times a second: tells a change of phase, and that the run is alive while its loop moves.
    pub fn look(&mut self, board: &Board, alive_within: Duration) {
        if self.socket.is_none() {
            return;
        }
        let phase = board.phase();
        if self.told != Some(phase) {
            match phase {
                Phase::Ready if self.told_ready() => self.send("STATUS=ready"),
                Phase::Ready => self.send("READY=1\nSTATUS=ready"),
                Phase::Fault => self.send("STATUS=fault: the engine is not to be believed, recovery is under way"),
                Phase::ChangingOver => self.send("STATUS=changing over to another product"),
                Phase::Reloading => self.send("STATUS=standing still while another bundle is loaded"),
                Phase::Stopping => self.send("STOPPING=1"),
                _ => self.send("STATUS=starting"),
            }
            self.told = Some(phase);
        }
        let due = self.watchdog_every.is_some_and(|every| self.last_ping.is_none_or(|last| last.elapsed() >= every));
        if due && Duration::from_millis(board.heartbeat_age_ms()) <= alive_within {
            self.send("WATCHDOG=1");
            self.last_ping = Some(Instant::now());
        }
    }

    fn told_ready(&self) -> bool {
        matches!(self.told, Some(Phase::Fault | Phase::ChangingOver | Phase::Reloading))
    }

    fn send(&self, message: &str) {
        if let Some((socket, to)) = &self.socket
            && let Err(error) = socket.send_to_addr(message.as_bytes(), to)
        {
            log::debug!("the supervisor does not listen: {error}");
        }
    }
}

/// The thread that tells the supervisor; dropped, it ends.
#[derive(Debug)]
pub struct Supervised {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Supervised {
    /// The run's loop must have moved within this time for the supervisor to hear that it lives.
    const ALIVE_WITHIN: Duration = Duration::from_secs(10);

    /// Starts telling, when there is a supervisor and the run is `live`.
    pub fn start(board: &Arc<Board>, live: bool) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let mut notifier = Notifier::of_environment();
        let thread = (live && notifier.socket.is_some()).then(|| {
            let (board, over) = (Arc::clone(board), Arc::clone(&over));
            std::thread::Builder::new().name("supervisor".into()).spawn(move || {
                while !over.load(Ordering::Acquire) {
                    notifier.look(&board, Self::ALIVE_WITHIN);
                    std::thread::sleep(Duration::from_millis(50));
                }
                notifier.look(&board, Self::ALIVE_WITHIN);
            })
        });
        Supervised { over, thread: thread.and_then(Result::ok) }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_and_pings_arrive_and_a_loop_that_stands_still_gets_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let supervisor = UnixDatagram::bind(&path).unwrap();
        supervisor.set_nonblocking(true).unwrap();
        let received = || {
            let mut bytes = [0; 256];
            let mut all = Vec::new();
            while let Ok(length) = supervisor.recv(&mut bytes) {
                all.push(String::from_utf8(bytes[..length].to_vec()).unwrap());
            }
            all
        };
        let board = Board::new(vec![]);
        let mut notifier = Notifier::new(Some(path.as_os_str()), Some(Duration::from_millis(2)));
        board.heartbeat();
        notifier.look(&board, Duration::from_secs(5));
        assert_eq!(received(), ["STATUS=starting", "WATCHDOG=1"]);
        board.set_phase(Phase::Ready);
        std::thread::sleep(Duration::from_millis(5));
        notifier.look(&board, Duration::from_secs(5));
        assert_eq!(received(), ["READY=1\nSTATUS=ready", "WATCHDOG=1"]);
        std::thread::sleep(Duration::from_millis(20));
        notifier.look(&board, Duration::from_millis(5));
        assert!(received().is_empty(), "the loop has not moved for longer than allowed");
        board.set_phase(Phase::Fault);
        board.heartbeat();
        notifier.look(&board, Duration::from_secs(5));
        board.set_phase(Phase::Ready);
        notifier.look(&board, Duration::from_secs(5));
        let told = received();
        assert!(told[0].starts_with("STATUS=fault") && told.last().unwrap() == "STATUS=ready", "{told:?}");
    }

    #[test]
    fn without_a_socket_it_is_silent() {
        Notifier::new(None, None).look(&Board::new(vec![]), Duration::from_secs(1));
        Notifier::new(Some(OsStr::new("/nowhere/at/all")), None).look(&Board::new(vec![]), Duration::from_secs(1));
    }
}
