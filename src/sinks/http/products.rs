//! `GET /products` and `POST /product`: what the line may inspect, and the change to another product.

use super::Command;
use super::board::Board;
use super::routes::App;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::mpsc::TrySendError;
use std::time::{Duration, Instant};

/// A request waits no longer for the end of a changeover; it goes on all the same.
const WAIT_FOR: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// One product as the pages see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProductPlace {
    /// Its id.
    pub id: Arc<str>,
    /// Name of its bundle.
    pub bundle: String,
    /// Id of its bundle.
    pub sha256: String,
}

/// How the last changeover ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Changed {
    /// The product that was asked for.
    pub product: Arc<str>,
    /// From the request to the first frame that may be inspected, ms.
    pub took_ms: f64,
    /// What went wrong on the way; the product is the right one and the line has recovered.
    pub trouble: Option<String>,
}

/// What the line may inspect.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Products {
    /// The product that is inspected; `None` without products.
    pub active: Option<Arc<str>>,
    /// The product that was asked for and is not inspected yet.
    pub wanted: Option<Arc<str>>,
    /// All of them, in the order of the configuration.
    pub known: Vec<ProductPlace>,
    /// Changeovers that have ended.
    pub changes: u64,
    /// The last one.
    pub last: Option<Changed>,
}

impl Products {
    /// The product with this id.
    ///
    /// # Errors
    /// A line for people that names the known ones.
    pub fn find(&self, id: &str) -> Result<Arc<str>, String> {
        let found = self.known.iter().find(|place| *place.id == *id);
        found.map(|place| Arc::clone(&place.id)).ok_or_else(|| format!("found product `{id}`, {}", self.expected()))
    }

    fn expected(&self) -> String {
        let ids: Vec<String> = self.known.iter().map(|place| format!("`{}`", place.id)).collect();
        format!("expected one of: {}", ids.join(", "))
    }
}

pub(super) async fn products(State(app): State<Arc<App>>) -> Response {
    json(StatusCode::OK, &app.board.change_products(|products| products.clone()))
}

/// `{"id":"line-a"}`, or the same as a query.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ProductBody {
    id: Option<String>,
    #[serde(skip_serializing)]
    token: Option<String>,
}

/// Changes over to another product and answers when it is inspected.
pub(super) async fn product(
    State(app): State<Arc<App>>,
    query: Result<Query<ProductBody>, axum::extract::rejection::QueryRejection>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let asked = Instant::now();
    let wanted = asked_for(query.ok().map(|query| query.0), &headers, &body);
    match wanted.and_then(|id| send(&app, id.as_deref(), asked)) {
        Ok((id, changes)) => ended(&app.board, &id, changes, asked).await,
        Err((status, text)) => (status, format!("{text}\n")).into_response(),
    }
}

type Refused = (StatusCode, String);

fn asked_for(query: Option<ProductBody>, headers: &HeaderMap, body: &[u8]) -> Result<Option<String>, Refused> {
    if body.is_empty() {
        let text = || "expected `id` alone in the query".to_owned();
        return query.map(|query| query.id).ok_or_else(|| (StatusCode::BAD_REQUEST, text()));
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("application/json") {
        let text = "expected the header `Content-Type: application/json`";
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, text.to_owned()));
    }
    let asked: Result<ProductBody, _> = serde_json::from_slice(body);
    asked
        .map(|asked| asked.id)
        .map_err(|_| (StatusCode::BAD_REQUEST, r#"expected a body like {"id":"line-a"}"#.to_owned()))
}

/// The product's id, and how many changeovers had ended before.
fn send(app: &App, id: Option<&str>, asked: Instant) -> Result<(Arc<str>, u64), Refused> {
    let Some(commands) = &app.commands else {
        let text = "this run takes no commands: start it with `--token-file FILE`";
        return Err((StatusCode::FORBIDDEN, text.to_owned()));
    };
    let found = app.board.change_products(|products| {
        if products.known.is_empty() {
            let text = "this run has no products: `edge-run config example` shows how `[[product]]` is written";
            return Err((StatusCode::NOT_FOUND, text.to_owned()));
        }
        let id = id.ok_or_else(|| (StatusCode::BAD_REQUEST, format!("found no `id`, {}", products.expected())))?;
        let id = products.find(id).map_err(|text| (StatusCode::NOT_FOUND, text))?;
        Ok((id, products.changes))
    });
    let (product, changes) = found?;
    match commands.try_send(Command::Product { product: Arc::clone(&product), asked }) {
        Ok(()) => Ok((product, changes)),
        Err(TrySendError::Full(_)) => Err((StatusCode::SERVICE_UNAVAILABLE, "the run is busy: ask again".to_owned())),
        Err(TrySendError::Disconnected(_)) => Err((StatusCode::SERVICE_UNAVAILABLE, "the run is ending".to_owned())),
    }
}

async fn ended(board: &Board, id: &Arc<str>, changes: u64, asked: Instant) -> Response {
    while asked.elapsed() < WAIT_FOR {
        let last = board.change_products(|products| products.last.clone().filter(|_| products.changes > changes));
        match last {
            Some(last) if last.product == *id => return json(StatusCode::OK, &last),
            Some(last) => {
                let text = format!("another request came between: the product is `{}`\n", last.product);
                return (StatusCode::CONFLICT, text).into_response();
            }
            None => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
    json(StatusCode::ACCEPTED, &serde_json::json!({ "product": &**id, "took_ms": null }))
}

fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let text = serde_json::to_string(value).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], format!("{text}\n")).into_response()
}
