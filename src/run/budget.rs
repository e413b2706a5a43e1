//! Several engines on one device: whether they fit together, and what would when they do not.

use crate::bundle::Bundle;
use crate::error::{Error, ErrorKind, Result};
use crate::run::source::EngineSource;
use crate::units::Bytes;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What one engine takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    /// Name of the bundle.
    pub(super) name: String,
    /// What it takes, as planned or as measured.
    pub(super) bytes: Bytes,
}

/// Whether there is room for one engine more.
#[derive(Debug)]
pub(super) enum Room {
    /// Beside all that are loaded.
    Beside,
    /// Only in place of the running one; why.
    InPlace(Error),
    /// Not even then; why.
    None(Error),
}

/// Whether `new` fits beside `running` and all `others` on the same device.
pub(super) fn beside(running: &Claim, others: &[Claim], new: &Claim, budget: Bytes) -> Room {
    let all: Vec<Claim> = [running].into_iter().chain(others).chain([new]).cloned().collect();
    let Err(error) = together(&all, budget) else { return Room::Beside };
    match together(&all[1..], budget) {
        Ok(()) => Room::InPlace(error),
        Err(error) => Room::None(error),
    }
}

/// What the engines of a run take at present: the reload of one bundle counts those of the others.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// By number of the engine.
    engines: Mutex<BTreeMap<usize, Entry>>,
}

#[derive(Debug, Default)]
struct Entry {
    device: usize,
    /// What it takes there with all that stands beside it.
    claims: Vec<Claim>,
    /// What is being loaded beside it.
    coming: Option<Claim>,
}

impl Books {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Entry>> {
        self.engines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What engine number `engine` takes on `device` from now on; nothing is coming any more.
    pub(super) fn set(&self, engine: usize, device: usize, claims: Vec<Claim>) {
        self.lock().insert(engine, Entry { device, claims, coming: None });
    }

    /// What all engines but this one take on `device`, with what is coming.
    pub(super) fn others(&self, engine: usize, device: usize) -> Vec<Claim> {
        others(&self.lock(), engine, device)
    }

    /// Takes room for `new` beside what engine number `engine` has: `running` and what stands beside it. Two bundles that are
    /// asked for at once cannot both take the same room.
    pub(super) fn reserve(
        &self,
        (engine, device): (usize, usize),
        (running, beside_it): (&Claim, &[Claim]),
        new: &Claim,
        budget: Bytes,
    ) -> Room {
        let mut books = self.lock();
        let others = [beside_it, &others(&books, engine, device)].concat();
        let room = beside(running, &others, new, budget);
        if matches!(room, Room::Beside) {
            books.entry(engine).or_default().coming = Some(new.clone());
        }
        room
    }
}

fn others(books: &BTreeMap<usize, Entry>, engine: usize, device: usize) -> Vec<Claim> {
    let others = books.iter().filter(|(number, entry)| **number != engine && entry.device == device);
    others.flat_map(|(_, entry)| entry.claims.iter().chain(&entry.coming)).cloned().collect()
}

/// The smallest budget of any of `bundles` on any device that may come to serve; `None` where none is known beforehand.
pub(super) fn smallest<'a>(bundles: impl Iterator<Item = &'a Bundle>, source: &dyn EngineSource) -> Option<Bytes> {
    let on_each = |bundle| (0..source.devices()).filter_map(move |device| source.budget(bundle, device));
    bundles.flat_map(on_each).min()
}

/// Whether all of `claims` fit into `budget` at once.
///
/// # Errors
/// [`ErrorKind::Budget`] with every claim, and those that fit together, taken in their order.
pub(super) fn together(claims: &[Claim], budget: Bytes) -> Result<()> {
    let total = claims.iter().fold(0_u64, |sum, claim| sum.saturating_add(claim.bytes.0));
    if total <= budget.0 {
        return Ok(());
    }
    let mut left = budget.0;
    let mut fitting: Vec<String> = Vec::new();
    for claim in claims {
        if claim.bytes.0 <= left {
            left -= claim.bytes.0;
            fitting.push(format!("`{}`", claim.name));
        }
    }
    let each: Vec<String> = claims.iter().map(|claim| format!("`{}` {}", claim.name, claim.bytes)).collect();
    let fitting = if fitting.is_empty() { "none alone".to_owned() } else { fitting.join(", ") };
    Err(Error::new(
        ErrorKind::Budget,
        format!("{} bundles take {} together, the budget is {budget}: {}", claims.len(), Bytes(total), each.join(", ")),
    )
    .hint(format!(
        "what fits: {fitting}; smaller inputs or models take less; `--gpu-budget` raises the limit of a GPU"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str, mib: u64) -> Claim {
        Claim { name: name.into(), bytes: Bytes::mib(mib) }
    }

    #[test]
    fn what_fits_is_taken_and_what_does_not_is_listed() {
        let claims = [claim("a", 300), claim("b", 500), claim("c", 200)];
        together(&claims, Bytes::mib(1000)).unwrap();
        together(&[], Bytes(0)).unwrap();
        let error = together(&claims, Bytes::mib(600)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Budget);
        let text = error.to_string();
        for part in ["3 bundles take 1000", "600", "`b` 500", "what fits: `a`, `c`"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(together(&claims, Bytes::mib(1)).unwrap_err().to_string().contains("none alone"));
    }

    #[test]
    fn room_for_one_more_beside_in_place_or_not_at_all() {
        let (running, others) = (claim("old", 300), [claim("label", 200)]);
        let room = |new: u64| beside(&running, &others, &claim("new", new), Bytes::mib(900));
        assert!(matches!(room(400), Room::Beside));
        let Room::InPlace(error) = room(401) else { panic!() };
        assert!(error.message().contains("3 bundles take 901"), "{error}");
        let Room::None(error) = room(701) else { panic!() };
        assert!(error.message().contains("2 bundles take 901"), "{error}");
    }

    #[test]
    fn the_books_tell_what_others_take_on_one_device() {
        let books = Books::default();
        books.set(0, 0, vec![claim("a", 1)]);
        books.set(1, 0, vec![claim("b", 2), claim("c", 3)]);
        books.set(2, 1, vec![claim("d", 4)]);
        assert_eq!(books.others(0, 0), [claim("b", 2), claim("c", 3)]);
        assert_eq!(books.others(2, 1), []);
        books.set(1, 1, vec![claim("b", 2)]);
        assert_eq!(books.others(0, 0), []);
    }

    #[test]
    fn two_bundles_that_come_at_once_do_not_take_the_same_room() {
        let books = Books::default();
        books.set(0, 0, vec![claim("a", 300)]);
        books.set(1, 0, vec![claim("b", 300)]);
        let reserve = |engine, running: &str| {
            books.reserve((engine, 0), (&claim(running, 300), &[]), &claim("new", 300), Bytes::mib(1000))
        };
        assert!(matches!(reserve(0, "a"), Room::Beside));
        assert!(matches!(reserve(1, "b"), Room::InPlace(_)), "the room is taken, although nothing is loaded yet");
        books.set(0, 0, vec![claim("new", 300)]);
        assert!(matches!(reserve(1, "b"), Room::Beside), "the one before is gone");
    }
}
