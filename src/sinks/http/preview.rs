//! Pictures for the pages: encoded only while somebody asks, at most five times a second a stream, off the frame path.

use super::board::Board;
use crate::sinks::draw;
use crate::units::index;
use axum::body::Bytes;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const ENCODED_EVERY: Duration = Duration::from_millis(180);
const MOST_WIDTH_PX: u32 = 960;
const QUALITY: u8 = 75;

/// One encoded picture with its capture number.
#[derive(Debug, Clone)]
pub(super) struct Encoded {
    pub(super) number: u64,
    pub(super) jpeg: Bytes,
}

type Kept = Mutex<Option<(Instant, Encoded)>>;

pub(super) struct Previews {
    kept: Vec<Arc<Kept>>,
    /// One encoder at a time, whatever the number of readers.
    turn: tokio::sync::Mutex<()>,
}

impl Previews {
    pub(super) fn new(streams: usize) -> Self {
        Previews { kept: (0..streams).map(|_| Arc::default()).collect(), turn: tokio::sync::Mutex::new(()) }
    }

    /// The present picture of a stream with its boxes; `None` when there is none, or none younger than `stale_after`.
    pub(super) async fn picture(&self, board: &Board, position: usize, stale_after: Duration) -> Option<Encoded> {
        let slot = board.slots.get(position)?;
        let kept = self.kept.get(position)?;
        let _turn = self.turn.lock().await;
        let (number, frame, drawing) = {
            let latest = slot.lock();
            let stale = slot.setup.continuous && latest.answered.is_none_or(|at| at.elapsed() > stale_after);
            if stale || latest.lost.is_some() {
                return None;
            }
            let frame = Arc::clone(latest.frame.as_ref()?);
            let classes = latest.engine.as_ref().map(|stamp| Arc::clone(&stamp.classes)).unwrap_or_default();
            (latest.number, frame, draw::Drawing { detections: latest.detections.clone(), classes, banner: None })
        };
        if let Some((at, encoded)) = &*kept.lock().unwrap_or_else(PoisonError::into_inner)
            && (encoded.number == number || at.elapsed() < ENCODED_EVERY)
        {
            return Some(encoded.clone());
        }
        let encode = move || draw::jpeg(&frame.picture, &drawing, index(MOST_WIDTH_PX), QUALITY);
        let jpeg = tokio::task::spawn_blocking(encode).await.ok()?;
        match jpeg {
            Ok(jpeg) => {
                let encoded = Encoded { number, jpeg: Bytes::from(jpeg) };
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), encoded.clone()));
                Some(encoded)
            }
            Err(why) => {
                log::debug!("preview of {}: {why}", slot.setup.name);
                None
            }
        }
    }
}
