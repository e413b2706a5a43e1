//! Ids of parts: which one a trigger gets, and for how long none is given twice.

use crate::error::{Error, Result};
use crate::units::count;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// The ids of decided parts, and the next running number.
#[derive(Debug)]
pub(super) struct Ids {
    recent: HashSet<Arc<str>>,
    in_order: VecDeque<Arc<str>>,
    next_number: u64,
}

impl Ids {
    /// Ids that are remembered.
    pub(super) const REMEMBERED: usize = 16_384;
    /// The longest id.
    pub(super) const LONGEST_BYTES: usize = 128;

    pub(super) fn new() -> Self {
        Ids { recent: HashSet::new(), in_order: VecDeque::new(), next_number: 1 }
    }

    /// Whether a part of this id was decided of late.
    pub(super) fn is_recent(&self, id: &str) -> bool {
        self.recent.contains(id)
    }

    /// A part of this id is decided; the oldest one remembered may come again.
    pub(super) fn remember(&mut self, id: Arc<str>) {
        if self.in_order.len() >= Self::REMEMBERED
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.recent.remove(&oldest);
        }
        self.recent.insert(Arc::clone(&id));
        self.in_order.push_back(id);
    }

    /// The id for a new part, and whether it is another one than `asked`, which a recent part had. Without one, a running
    /// number. `is_open` knows the parts that wait.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for an id that is open, empty, too long or holds control characters.
    pub(super) fn choose(&mut self, asked: Option<&str>, is_open: impl Fn(&str) -> bool) -> Result<(Arc<str>, bool)> {
        let Some(id) = asked else { return Ok((self.running_number(is_open), false)) };
        check(id)?;
        if is_open(id) {
            return Err(Error::usage(format!("part `{id}` is still open, expected an id of its own for each trigger"))
                .hint("wait for its decision, or leave the id out to get a running number"));
        }
        if !self.is_recent(id) {
            return Ok((id.into(), false));
        }
        let mut suffix = 2_u64;
        loop {
            let renamed = format!("{id}#{suffix}");
            if !is_open(&renamed) && !self.is_recent(&renamed) {
                return Ok((renamed.into(), true));
            }
            suffix += 1;
        }
    }

    fn running_number(&mut self, is_open: impl Fn(&str) -> bool) -> Arc<str> {
        loop {
            let id = self.next_number.to_string();
            self.next_number += 1;
            if !is_open(&id) && !self.is_recent(&id) {
                return id.into();
            }
        }
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        assert_eq!(self.recent.len(), self.in_order.len());
        self.recent.len()
    }
}

fn check(id: &str) -> Result<()> {
    let problem = if id.is_empty() {
        "an empty part id".to_owned()
    } else if id.len() > Ids::LONGEST_BYTES {
        format!("a part id of {} bytes", count(id.len()))
    } else if id.chars().any(char::is_control) {
        "a control character in the part id".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::usage(format!("found {problem}, expected 1 to {} bytes of text", Ids::LONGEST_BYTES))
        .hint("leave the id out to get a running number"))
}
