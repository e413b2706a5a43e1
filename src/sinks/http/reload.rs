//! `GET /reload` and `POST /reload`: whether another bundle fits beside the running one, and how the last one fared.

use super::Command;
use super::board::Board;
use super::routes::App;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest that a request waits for the end of what it asks for, seconds.
const LONGEST_WAIT_S: u64 = 600;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What the reloader is at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReloadState {
    /// Nothing.
    #[default]
    Idle,
    /// A bundle is loaded and proved beside the running one.
    Loading,
    /// Both answer the same frames.
    Shadow,
    /// The line stands still, or is about to: the new bundle takes the place of the running one before it is proved.
    Gap,
    /// The new one answers, and the one before comes back when it faults.
    Probation,
}

/// How another bundle of the running one's size would be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReloadRoom {
    /// Beside the running one.
    Beside,
    /// In place of it: the line stands still meanwhile.
    Gap,
    /// Not at all.
    Refused,
}

/// How a request for another bundle ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ReloadEnd {
    /// `swapped`, `unchanged`, `refused`, `does_not_fit` or `rolled_back`.
    pub how: &'static str,
    /// Why, where it was not taken.
    pub why: Option<String>,
    /// How long the line stood still for it, ms.
    pub gap_ms: Option<f64>,
    /// When, RFC 3339.
    pub at: Option<String>,
}

/// The reloads of one engine.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ReloadView {
    /// What the reloader is at.
    pub state: ReloadState,
    /// How another bundle would be taken; `None` where that is not known beforehand.
    pub room: Option<ReloadRoom>,
    /// The same for people, where it would not be taken beside.
    pub said: Option<String>,
    /// Requests that have ended.
    pub ended: u64,
    /// The last one.
    pub last: Option<ReloadEnd>,
}

impl ReloadView {
    /// A request has ended now.
    pub fn note(&mut self, end: ReloadEnd) {
        self.ended += 1;
        self.last = Some(ReloadEnd { at: super::snapshot::time_text(Some(std::time::SystemTime::now())), ..end });
    }
}

#[derive(Debug, Serialize)]
struct Named {
    engine: Option<String>,
    #[serde(flatten)]
    reload: ReloadView,
}

fn all(board: &Board) -> Vec<Named> {
    let named = |own: Arc<Board>| Named {
        engine: own.engine_name(),
        reload: own.reloads().into_iter().next().unwrap_or_default(),
    };
    board.by_engine().map(named).collect()
}

/// One entry an engine.
pub(super) async fn reloads(State(app): State<Arc<App>>) -> Response {
    json(StatusCode::OK, &all(&app.board))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ReloadQuery {
    /// Answer when it has ended, at the latest after so many seconds.
    wait: Option<u64>,
    #[serde(rename = "token")]
    _token: Option<String>,
}

/// Asks for another bundle, or for the one before; answers at once, or with `wait` when it has ended.
pub(super) async fn ask(
    app: State<Arc<App>>,
    query: Result<Query<ReloadQuery>, axum::extract::rejection::QueryRejection>,
    command: Command,
) -> Response {
    let wait = query.map(|query| query.wait.unwrap_or(0));
    let Some(wait_s) = wait.ok().filter(|wait_s| *wait_s <= LONGEST_WAIT_S) else {
        return (StatusCode::BAD_REQUEST, "expected `wait` alone in the query, 0 to 600 seconds\n").into_response();
    };
    let before: Vec<u64> = app.board.reloads().iter().map(|reload| reload.ended).collect();
    let board = Arc::clone(&app.board);
    match super::routes::command(app, command).await {
        (StatusCode::ACCEPTED, _) if wait_s > 0 => ended(&board, &before, Duration::from_secs(wait_s)).await,
        (StatusCode::ACCEPTED, _) => (StatusCode::ACCEPTED, at_once(&board)).into_response(),
        refused => refused.into_response(),
    }
}

/// What is known before it has begun: whether the line will stand still.
fn at_once(board: &Board) -> String {
    let mut text = "asked; `GET /reload`, the log and edge_reloads_total say how it ends\n".to_owned();
    for said in board.reloads().into_iter().filter_map(|reload| reload.said) {
        text.push_str(&said);
        text.push('\n');
    }
    text
}

async fn ended(board: &Board, before: &[u64], wait: Duration) -> Response {
    let since = Instant::now();
    loop {
        let reloads = board.reloads();
        let over = reloads.iter().zip(before).all(|(now, before)| now.ended > *before);
        if over || since.elapsed() > wait {
            let taken = |how: &str| matches!(how, "swapped" | "unchanged" | "rolled_back");
            let refused = reloads.iter().any(|now| now.last.as_ref().is_some_and(|last| !taken(last.how)));
            let status = match (over, refused) {
                (false, _) => StatusCode::ACCEPTED,
                (true, true) => StatusCode::CONFLICT,
                (true, false) => StatusCode::OK,
            };
            return json(status, &all(board));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let text = serde_json::to_string(value).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], format!("{text}\n")).into_response()
}
