//! The routes and their answers.

use super::board::Board;
use super::door::{COOKIE, Door, Refusal, query_token};
use super::incident;
use super::preview::Previews;
use super::snapshot::{Limits, Snapshot};
use super::{Command, HttpOptions, Trigger, products, reload};
use crate::guard::Reason;
use crate::telemetry::{Labels, Metric, Telemetry};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const BODY_BYTES: usize = 4096;
const EVENT_EVERY: Duration = Duration::from_millis(200);
/// A reader that has gone away silently gives its seat back after this; browsers come again by themselves.
const EVENTS_FOR: Duration = Duration::from_secs(600);
const SNAPSHOT_KEPT: Duration = Duration::from_millis(100);
const LONGEST_PART: usize = 128;

/// Nothing is fetched from elsewhere, nothing runs that is not in these files, nobody frames these pages.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What all requests share.
pub(super) struct App {
    pub(super) board: Arc<Board>,
    pub(super) telemetry: Arc<Telemetry>,
    door: Door,
    limits: Limits,
    triggers: Option<SyncSender<Trigger>>,
    pub(super) commands: Option<SyncSender<Command>>,
    parts: AtomicU64,
    previews: Previews,
    /// The last snapshot as JSON, so that many readers cost no more than one.
    snapshot: Mutex<Option<(Instant, bool, Arc<str>)>>,
    /// Engines that metrics have named so far: a changeover or a reload may name others.
    engines: Mutex<BTreeSet<String>>,
}

impl App {
    pub(super) fn new(options: HttpOptions, loopback: bool, board: Arc<Board>, telemetry: Arc<Telemetry>) -> Arc<Self> {
        let door = Door::new(options.token.as_deref(), options.read_only, loopback, Arc::clone(&telemetry));
        Arc::new(App {
            previews: Previews::new(board.slots.len()),
            board,
            telemetry,
            door,
            limits: options.limits,
            triggers: options.triggers,
            commands: options.commands.filter(|_| options.token.is_some()),
            parts: AtomicU64::new(0),
            snapshot: Mutex::new(None),
            engines: Mutex::default(),
        })
    }

    fn look(&self) -> Snapshot {
        let mut snapshot = Snapshot::take(&self.board, &self.telemetry, &self.limits);
        snapshot.products.commands = self.commands.is_some();
        snapshot
    }

    /// Whether everything is well, and the snapshot as JSON; at most a tenth of a second old.
    fn told(&self) -> (bool, Arc<str>) {
        let mut kept = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, healthy, text)) = &*kept
            && at.elapsed() < SNAPSHOT_KEPT
        {
            return (*healthy, Arc::clone(text));
        }
        let snapshot = self.look();
        let healthy = snapshot.healthy();
        let text: Arc<str> = serde_json::to_string(&snapshot).unwrap_or_default().into();
        *kept = Some((Instant::now(), healthy, Arc::clone(&text)));
        (healthy, text)
    }
}

#[derive(Clone, Copy)]
struct Peer(IpAddr);

/// The router for one connection.
pub(super) fn router(app: &Arc<App>, peer: IpAddr) -> Router {
    Router::new()
        .route("/", get(|| page(include_str!("pages/engineer.html"), "text/html; charset=utf-8")))
        .route("/line", get(|| page(include_str!("pages/line.html"), "text/html; charset=utf-8")))
        .route("/style.css", get(|| page(include_str!("pages/style.css"), "text/css; charset=utf-8")))
        .route("/causes.js", get(causes))
        .route("/words.js", get(|| page(include_str!("pages/words.js"), "text/javascript; charset=utf-8")))
        .route("/engineer.js", get(|| page(include_str!("pages/engineer.js"), "text/javascript; charset=utf-8")))
        .route("/incident", get(|| page(include_str!("pages/incident.html"), "text/html; charset=utf-8")))
        .route("/incident.js", get(|| page(include_str!("pages/incident.js"), "text/javascript; charset=utf-8")))
        .route("/incidents/{id}/{*file}", get(incident_file))
        .route("/line.js", get(|| page(include_str!("pages/line.js"), "text/javascript; charset=utf-8")))
        .route("/metrics", get(metrics))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/healthz", get(healthz))
        .route("/events", get(events))
        .route("/preview/{stream}", get(preview))
        .route("/trigger", post(trigger))
        .route("/products", get(products::products))
        .route("/product", post(products::product))
        .route("/reload", get(reload::reloads).post(|app, query| reload::ask(app, query, Command::Reload)))
        .route("/rollback", post(|app, query| reload::ask(app, query, Command::Rollback)))
        .route("/deep-log", post(deep_log))
        .fallback(|| async {
            (StatusCode::NOT_FOUND, "no such page; there are / /line /incident /metrics /livez /readyz /healthz\n")
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(from_fn_with_state(Arc::clone(app), come_in))
        .layer(axum::Extension(Peer(peer)))
        .with_state(Arc::clone(app))
}

/// The door, the cookie for the token, and the headers that every answer carries.
async fn come_in(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.0);
    let admitted = app.door.check(peer, request.method(), request.uri(), request.headers(), Instant::now());
    let mut response = match admitted {
        Err((status, text)) => (status, format!("{text}\n")).into_response(),
        Ok(()) => match query_token(request.uri()) {
            Some(token) if request.method() == Method::GET && matches!(request.uri().path(), "/" | "/line") => {
                keep_token(&token, request.uri().path())
            }
            _ => next.run(request).await,
        },
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The token moves from the address into a cookie, so that it stays out of histories and scripts.
fn keep_token(token: &str, path: &str) -> Response {
    let cookie = format!("{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age=31536000");
    (StatusCode::SEE_OTHER, [(header::LOCATION, path.to_owned()), (header::SET_COOKIE, cookie)]).into_response()
}

async fn page(text: &'static str, kind: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind)], text)
}

/// The guard's texts for every reason, as the pages read them.
async fn causes() -> impl IntoResponse {
    let texts = |of: fn(Reason) -> [&'static str; 2]| -> serde_json::Map<String, serde_json::Value> {
        Reason::all().map(|reason| (reason.name().to_owned(), serde_json::json!(of(reason)))).collect()
    };
    let english = texts(|reason| [reason.english().seen, reason.english().what_to_do]);
    let chinese = texts(|reason| [reason.chinese().seen, reason.chinese().what_to_do]);
    let all = serde_json::json!({ "en": english, "zh": chinese });
    let script = format!("\"use strict\";\nconst guardCauses = {all};\n");
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], script)
}

async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    let snapshot = app.look();
    let telemetry = &app.telemetry;
    let mut engines = app.engines.lock().unwrap_or_else(PoisonError::into_inner);
    engines.extend(snapshot.engines.iter().map(|engine| engine.label().to_owned()));
    let answers = |label: &String| snapshot.engines.iter().any(|engine| engine.label() == *label);
    engines.iter().filter(|label| !answers(label)).for_each(|gone| telemetry.forget_engine(gone));
    drop(engines);
    for engine in &snapshot.engines {
        let labels = Labels::engine(engine.label());
        telemetry.gauge(Metric::EngineReady, labels).set(if engine.ready { 1.0 } else { 0.0 });
        let heartbeat_age = Duration::from_millis(engine.heartbeat_age_ms);
        telemetry.gauge(Metric::EngineHeartbeatAge, labels).set(heartbeat_age.as_secs_f64());
    }
    for stream in &snapshot.streams {
        if let Some(age_ms) = stream.frame_age_ms {
            telemetry.gauge(Metric::LastFrameAge, Labels::stream(&stream.name)).set(age_ms / 1e3);
        }
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], telemetry.to_prometheus())
}

async fn livez(State(app): State<Arc<App>>) -> impl IntoResponse {
    let engine = app.look().engine;
    if engine.answering {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        let text = format!("the engine's thread has not moved for {} ms\n", engine.heartbeat_age_ms);
        (StatusCode::SERVICE_UNAVAILABLE, text)
    }
}

async fn readyz(State(app): State<Arc<App>>) -> impl IntoResponse {
    let snapshot = app.look();
    if snapshot.ready {
        (StatusCode::OK, "ready\n".to_owned())
    } else {
        let phase = serde_json::to_string(&snapshot.phase).unwrap_or_default();
        (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", phase.trim_matches('"')))
    }
}

async fn healthz(State(app): State<Arc<App>>) -> impl IntoResponse {
    let (healthy, text) = app.told();
    let status = if healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, [(header::CONTENT_TYPE, "application/json")], text.to_string())
}

/// The snapshot, five times a second.
async fn events(State(app): State<Arc<App>>) -> impl IntoResponse {
    let end = tokio::time::Instant::now() + EVENTS_FOR;
    let clock = tokio::time::interval(EVENT_EVERY);
    Sse::new(stream::unfold((app, clock), move |(app, mut clock)| async move {
        if clock.tick().await > end {
            return None;
        }
        let (_, text) = app.told();
        Some((Ok::<_, Infallible>(Event::default().data(&*text)), (app, clock)))
    }))
}

async fn preview(State(app): State<Arc<App>>, Path(name): Path<String>) -> Response {
    let name = name.strip_suffix(".jpg").unwrap_or(&name);
    let Some(position) = app.board.slots.iter().position(|slot| *slot.setup.name == *name) else {
        return (StatusCode::NOT_FOUND, "no such stream\n").into_response();
    };
    match app.previews.picture(&app.board, position, app.limits.stale_after).await {
        Some(picture) => {
            let number = picture.number.to_string();
            let kind = "image/jpeg".to_owned();
            let headers = [(header::CONTENT_TYPE, kind), (header::HeaderName::from_static("x-frame"), number)];
            (headers, picture.jpeg).into_response()
        }
        None => (StatusCode::NOT_FOUND, "no present picture\n").into_response(),
    }
}

async fn incident_file(State(app): State<Arc<App>>, Path((id, file)): Path<(String, String)>) -> Response {
    incident::file(app.board.incident_folder.get().map(PathBuf::as_path), &id, &file).await
}

/// `frames`: how many frames of every stream are to be recorded.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeepLogQuery {
    frames: Option<u32>,
    #[serde(rename = "token")]
    _token: Option<String>,
}

/// Most frames that one request may ask for, and how many are recorded when it does not say.
const MOST_FRAMES: u32 = 1000;
const USUAL_FRAMES: u32 = 100;

async fn deep_log(
    app: State<Arc<App>>,
    query: Result<Query<DeepLogQuery>, axum::extract::rejection::QueryRejection>,
) -> (StatusCode, &'static str) {
    let frames = query.ok().map(|query| query.frames.unwrap_or(USUAL_FRAMES));
    match frames.filter(|frames| (1..=MOST_FRAMES).contains(frames)) {
        None => (StatusCode::BAD_REQUEST, "expected `frames` from 1 to 1000 in the query\n"),
        Some(_) if app.board.incident_folder.get().is_none() => {
            (StatusCode::CONFLICT, "this run keeps no incidents: start it with `--state DIR`\n")
        }
        Some(frames) => match command(app, Command::DeepLog(frames)).await {
            (StatusCode::ACCEPTED, _) => {
                (StatusCode::ACCEPTED, "asked; `edge-run incident list` shows it when it is whole\n")
            }
            other => other,
        },
    }
}

/// Hands a command on; how it ends is in the log and in `edge_reloads_total`.
pub(super) async fn command(State(app): State<Arc<App>>, command: Command) -> (StatusCode, &'static str) {
    match app.commands.as_ref().map(|commands| commands.try_send(command)) {
        None => (StatusCode::FORBIDDEN, "this run takes no commands: start it with `--token-file FILE`\n"),
        Some(Ok(())) => (StatusCode::ACCEPTED, "asked; the log and edge_reloads_total say how it ends\n"),
        Some(Err(_)) => (StatusCode::SERVICE_UNAVAILABLE, "the run is busy or ending: ask again\n"),
    }
}

/// `{"stream":"cam0","part":"A-17"}`, or the same as a query. With one stream its name may be left out; without a part a
/// running id is given.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TriggerBody {
    stream: Option<String>,
    part: Option<String>,
    #[serde(skip_serializing)]
    token: Option<String>,
}

async fn trigger(
    State(app): State<Arc<App>>,
    query: Result<Query<TriggerBody>, axum::extract::rejection::QueryRejection>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    match take_trigger(&app, query.map(|query| query.0).ok(), &headers, &body) {
        Ok(trigger) => {
            app.telemetry.count(Metric::Triggers, Labels::stream(&trigger.stream));
            let answer = serde_json::json!({ "stream": &*trigger.stream, "part": &*trigger.part });
            (StatusCode::ACCEPTED, [(header::CONTENT_TYPE, "application/json")], format!("{answer}\n")).into_response()
        }
        Err((reason, (status, text))) => {
            app.telemetry.count(Metric::TriggersRefused, Labels::reason(reason));
            (status, format!("{text}\n")).into_response()
        }
    }
}

fn take_trigger(
    app: &App,
    query: Option<TriggerBody>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Trigger, (&'static str, Refusal)> {
    let bad = |text| ("bad_request", (StatusCode::BAD_REQUEST, text));
    let asked = if body.is_empty() {
        query.ok_or(bad("expected `stream` and `part` in the query"))?
    } else {
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("application/json") {
            let text = "expected the header `Content-Type: application/json`";
            return Err(("bad_request", (StatusCode::UNSUPPORTED_MEDIA_TYPE, text)));
        }
        serde_json::from_slice(body).map_err(|_| bad(r#"expected a body like {"stream":"cam0","part":"A-17"}"#))?
    };
    let Some(channel) = &app.triggers else {
        return Err(("not_taken", (StatusCode::CONFLICT, "this run takes no triggers over HTTP")));
    };
    let streams = &app.board.slots;
    let slot = match (&asked.stream, &streams[..]) {
        (Some(name), _) => app.board.slot(name),
        (None, [only]) => Some(only),
        (None, _) => return Err(bad("several streams: name one with `stream`")),
    };
    let Some(slot) = slot else {
        return Err(("unknown_stream", (StatusCode::NOT_FOUND, "no such stream; /healthz lists them")));
    };
    let part = match asked.part {
        Some(part) if part.is_empty() || part.len() > LONGEST_PART || part.chars().any(char::is_control) => {
            return Err(bad("expected a part id of 1 to 128 characters"));
        }
        Some(part) => part,
        None => format!("http-{}", app.parts.fetch_add(1, Relaxed) + 1),
    };
    let trigger = Trigger { stream: Arc::clone(&slot.setup.name), part: part.into(), received: Instant::now() };
    match channel.try_send(trigger.clone()) {
        Ok(()) => Ok(trigger),
        Err(TrySendError::Full(_)) => {
            Err(("queue_full", (StatusCode::SERVICE_UNAVAILABLE, "too many triggers are waiting: send it again")))
        }
        Err(TrySendError::Disconnected(_)) => Err(("stopping", (StatusCode::SERVICE_UNAVAILABLE, "the run is ending"))),
    }
}
