//! The HTTP side: metrics, health, the engineer's page, the operator's page, triggers.
//!
//! It runs in one thread of its own on one small runtime. Rows reach it over the [`Board`]; triggers leave it through a
//! bounded channel that is never waited for. Nothing here can hold up a frame.

mod board;
mod door;
mod incident;
mod preview;
mod products;
mod reload;
mod routes;
mod snapshot;

pub use board::{Board, BoardSink, DeviceState, DeviceView, IncidentNote, Phase, StreamSetup};
pub use products::{Changed, ProductPlace, Products};
pub use reload::{ReloadEnd, ReloadRoom, ReloadState, ReloadView};
pub use snapshot::Limits;

use crate::error::{Error, Result};
use crate::frame::StreamName;
use crate::telemetry::{Labels, Metric, Telemetry};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot};

/// `--listen`: an address, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listen {
    /// No HTTP server.
    None,
    /// An address; port 0 takes a free one.
    Address(SocketAddr),
}

impl Default for Listen {
    fn default() -> Self {
        Listen::Address(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)))
    }
}

impl FromStr for Listen {
    type Err = Error;

    /// `none`, a port, or an address with a port (`0.0.0.0:8080`, `[::1]:8080`, `localhost:8080`).
    fn from_str(text: &str) -> Result<Self> {
        if text == "none" {
            return Ok(Listen::None);
        }
        let bare = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')).unwrap_or(text);
        if let Ok(port) = bare.parse::<u16>() {
            return Ok(Listen::Address(SocketAddr::from((Ipv4Addr::LOCALHOST, port))));
        }
        text.parse().map(Listen::Address).map_err(|_| {
            Error::usage(format!("`{text}` is no address to listen on"))
                .hint("write `127.0.0.1:8080`, `0.0.0.0:8080` with a token, a port, or `none`")
        })
    }
}

/// A trigger that came over HTTP.
#[derive(Debug, Clone)]
pub struct Trigger {
    /// The stream, one of those the board knows.
    pub stream: StreamName,
    /// The part's id: the caller's, or a running one.
    pub part: Arc<str>,
    /// When the request was read; deadlines count from here.
    pub received: Instant,
}

/// What may be asked of the run over HTTP, with the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Look at the bundle's file.
    Reload,
    /// Go back to the last bundle that worked.
    Rollback,
    /// Record the next so many frames of every stream.
    DeepLog(u32),
    /// Inspect another product from now on.
    Product {
        /// Its id, one of those that the board knows.
        product: Arc<str>,
        /// When the request was read.
        asked: Instant,
    },
}

/// What the server needs to know.
#[derive(Debug, Clone, Default)]
pub struct HttpOptions {
    /// Where to listen.
    pub listen: Listen,
    /// Needed for everything but `/livez` and `/readyz`; at least 8 characters of letters, digits, `-`, `_`, `.`.
    pub token: Option<String>,
    /// No `POST`.
    pub read_only: bool,
    /// After which silence something counts as failed.
    pub limits: Limits,
    /// Where triggers go; `None` when this run takes none. A full channel answers 503.
    pub triggers: Option<SyncSender<Trigger>>,
    /// Where commands go; `None` when this run takes none. They are only taken when a token is set.
    pub commands: Option<SyncSender<Command>>,
}

/// Connections at a time; further ones are closed at once.
const MOST_CONNECTIONS: usize = 64;
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
const HEADER_BYTES: usize = 16 * 1024;
const LEAST_TOKEN: usize = 8;

/// The running server; dropped, it stops.
pub struct Server {
    address: SocketAddr,
    guarded: bool,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens and answers from now on; `Ok(None)` for [`Listen::None`].
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for an address beyond loopback without a token or read-only, or a token that is too
    /// short; [`crate::ErrorKind::Output`] when the port is taken or may not be used.
    pub fn start(options: HttpOptions, board: Arc<Board>, telemetry: Arc<Telemetry>) -> Result<Option<Self>> {
        let Listen::Address(wanted) = options.listen else { return Ok(None) };
        check_options(&options, wanted)?;
        let listener = TcpListener::bind(wanted).map_err(|why| cannot_listen(wanted, why))?;
        let address = listener.local_addr().map_err(|why| cannot_listen(wanted, why))?;
        listener.set_nonblocking(true).map_err(|why| cannot_listen(wanted, why))?;
        let (stop, stopped) = oneshot::channel();
        let guarded = options.token.is_some();
        let app = routes::App::new(options, address.ip().is_loopback(), board, telemetry);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(1)
            .thread_name("http-preview")
            .build()
            .map_err(|why| Error::unexpected("the HTTP runtime does not start").because(why))?;
        let work = move || {
            runtime.block_on(serve(listener, app, stopped));
            runtime.shutdown_timeout(Duration::from_millis(300));
        };
        let thread = std::thread::Builder::new()
            .name("http".to_owned())
            .spawn(work)
            .map_err(|why| Error::unexpected("the HTTP thread does not start").because(why))?;
        Ok(Some(Server { address, guarded, stop: Some(stop), thread: Some(thread) }))
    }

    /// Where it listens; the real port when port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The lines for the start of a run: the addresses, and how to open them from elsewhere.
    pub fn start_lines(&self) -> Vec<String> {
        let port = self.address.port();
        let token = if self.guarded { "?token=TOKEN" } else { "" };
        if self.address.ip().is_loopback() {
            return vec![
                format!("page: http://{}/{token} (operator: http://{}/line{token})", self.address, self.address),
                format!(
                    "from another machine: ssh -L {port}:{} USER@{}, then open http://localhost:{port}/{token}",
                    self.address,
                    host_name()
                ),
            ];
        }
        let host = if self.address.ip().is_unspecified() { host_name() } else { host_text(self.address.ip()) };
        vec![format!("page: http://{host}:{port}/{token} (operator: http://{host}:{port}/line{token})")]
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn check_options(options: &HttpOptions, wanted: SocketAddr) -> Result<()> {
    if let Some(token) = &options.token {
        let is_plain = token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if token.len() < LEAST_TOKEN || !is_plain {
            return Err(Error::usage(format!(
                "found a token of {} characters, expected at least {LEAST_TOKEN} letters, digits, `-`, `_` or `.`",
                token.chars().count()
            ))
            .hint("make one with `openssl rand -hex 16`"));
        }
    } else if !wanted.ip().is_loopback() && !options.read_only {
        return Err(Error::usage(format!("`{wanted}` can be reached from other machines, and no token is set"))
            .at("--listen")
            .hint("give a token, or `--read-only` to show pages to everybody and take no triggers"));
    }
    Ok(())
}

fn cannot_listen(address: SocketAddr, why: std::io::Error) -> Error {
    let hint = match why.kind() {
        ErrorKind::AddrInUse => format!(
            "another program listens there, perhaps another edge-run: take `--listen {}` or `--listen none`",
            SocketAddr::new(address.ip(), address.port().checked_add(1).unwrap_or(8080))
        ),
        ErrorKind::PermissionDenied => "ports below 1024 need rights: take `--listen 127.0.0.1:8080`".to_owned(),
        ErrorKind::AddrNotAvailable => "this machine does not have that address: see `ip address`".to_owned(),
        _ => "take another address with `--listen`, or `--listen none`".to_owned(),
    };
    let message = match why.kind() {
        ErrorKind::AddrInUse => "the port is taken",
        _ => "the address cannot be listened on",
    };
    Error::output(message).because(why).at(address).hint(hint)
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "THIS-MACHINE".to_owned() } else { name.trim().to_owned() }
}

fn host_text(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// Takes connections until told to stop.
async fn serve(listener: TcpListener, app: Arc<routes::App>, mut stopped: oneshot::Receiver<()>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(why) => {
            log::error!("http: {why}");
            return;
        }
    };
    let seats = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = &mut stopped => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(why) => {
                log::warn!("http: {why}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(seat) = Arc::clone(&seats).try_acquire_owned() else {
            app.telemetry.count(Metric::HttpRefused, Labels::reason("too_many_connections"));
            continue;
        };
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(routes::router(&app, peer.ip()));
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .max_buf_size(HEADER_BYTES)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(why) = connection.await {
                log::debug!("http: {peer}: {why}");
            }
            drop(seat);
        });
    }
}

#[cfg(test)]
mod tests;
