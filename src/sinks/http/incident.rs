//! The details of an incident, read from the folder that the run writes them to. Names are checked before they touch the
//! disk; the page puts them together.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::path::Path;

/// Longest file that is served.
const MOST_BYTES: u64 = 64 << 20;

/// Whether `id` can be the name of an incident.
fn is_id(id: &str) -> bool {
    (1..=80).contains(&id.len())
        && id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// The kind of the file `name` of an incident; `None` for a name that no incident has.
fn kind(name: &str) -> Option<&'static str> {
    match name {
        "incident.json" | "manifest.json" => Some("application/json"),
        "frames.jsonl" => Some("application/x-ndjson; charset=utf-8"),
        _ => {
            let stem = name.strip_prefix("pictures/")?.strip_suffix(".png")?;
            let plain = (6..=12).contains(&stem.len()) && stem.bytes().all(|byte| byte.is_ascii_digit());
            plain.then_some("image/png")
        }
    }
}

/// The answer for file `name` of incident `id` in `folder`; reads the disk off the runtime's own thread.
pub(super) async fn file(folder: Option<&Path>, id: &str, name: &str) -> Response {
    let missing = || (StatusCode::NOT_FOUND, "no such incident, or it is still being written\n").into_response();
    let (Some(folder), true, Some(kind)) = (folder, is_id(id), kind(name)) else { return missing() };
    let path = folder.join(id).join(name);
    let read = move || {
        std::fs::metadata(&path).ok().filter(|about| about.is_file() && about.len() <= MOST_BYTES)?;
        std::fs::read(&path).ok()
    };
    match tokio::task::spawn_blocking(read).await.ok().flatten() {
        Some(bytes) => ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], bytes).into_response(),
        None => missing(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_name_is_read() {
        for good in ["incident.json", "manifest.json", "frames.jsonl", "pictures/000012.png"] {
            assert!(kind(good).is_some(), "{good}");
        }
        for bad in ["", "..", "lock", "pictures/../../lock", "pictures/1.png", "pictures/000012.png/", "/etc/passwd"] {
            assert!(kind(bad).is_none(), "{bad}");
        }
        for bad in ["", "..", ".20260101T000000Z-001-nan.part", "a/b", "a.b", &"a".repeat(81)] {
            assert!(!is_id(bad), "{bad}");
        }
        assert!(is_id("20260101T000000Z-001-nan"));
    }
}
