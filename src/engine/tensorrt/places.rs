//! Which batch lies in which lane: as many runs as there are lanes, and one batch more whose pictures are copied ahead.

use crate::error::{Error, Result};
use std::collections::VecDeque;

/// Where a batch that begins goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begins {
    /// Its run starts now, in this idle lane.
    Run(usize),
    /// Its pictures are copied while this lane runs; its own run starts when that one's answers are out.
    Ahead(usize),
}

/// The batches in flight, each known by the place that whoever began it gave it.
#[derive(Debug)]
pub(super) struct Places {
    lanes: usize,
    /// Lanes in which nothing runs; the one that has been idle for longest comes first, so that all are proved in turn.
    idle: VecDeque<usize>,
    /// Batches beyond one a lane.
    spare: usize,
    /// Place and lane, in the order in which they began.
    running: VecDeque<(usize, usize)>,
    ahead: VecDeque<(usize, usize)>,
    /// Batches whose run could not be started.
    failed: Vec<(usize, Error)>,
}

impl Places {
    /// For `lanes` lanes; `ahead`: they hold two staging memories each.
    pub(super) fn new(lanes: usize, ahead: bool) -> Places {
        let spare = usize::from(ahead);
        let idle = (0..lanes).collect();
        Places { lanes, idle, spare, running: VecDeque::new(), ahead: VecDeque::new(), failed: vec![] }
    }

    /// Batches that can be in flight at once.
    pub(super) fn count(&self) -> usize {
        self.lanes + self.spare
    }

    /// Where the batch at `place` goes; [`Places::began`] says that it went there.
    ///
    /// # Errors
    /// The place is taken, or all are.
    pub(super) fn begins(&self, place: usize) -> Result<Begins> {
        let taken = self.running.iter().chain(&self.ahead).any(|(taken, _)| *taken == place);
        if taken || self.failed.iter().any(|(taken, _)| *taken == place) {
            return Err(Error::unexpected(format!("found a batch in flight at place {place}, expected none")));
        }
        if let Some(&idle) = self.idle.front() {
            return Ok(Begins::Run(idle));
        }
        let next = self.running.iter().map(|(_, lane)| *lane).find(|lane| self.ahead.iter().all(|(_, of)| of != lane));
        match next {
            Some(lane) if self.ahead.len() < self.spare => Ok(Begins::Ahead(lane)),
            _ => Err(Error::unexpected(format!("found {} batches in flight, expected fewer", self.count()))),
        }
    }

    /// The batch at `place` went where [`Places::begins`] said.
    pub(super) fn began(&mut self, place: usize, begins: Begins) {
        match begins {
            Begins::Run(lane) => {
                self.idle.retain(|idle| *idle != lane);
                self.running.push_back((place, lane));
            }
            Begins::Ahead(lane) => self.ahead.push_back((place, lane)),
        }
    }

    /// The lane of the run at `place`, whose answers are taken out now.
    ///
    /// # Errors
    /// Its run could not be started; none runs there; or an earlier one in its lane must be finished first.
    pub(super) fn finishes(&mut self, place: usize) -> Result<usize> {
        if let Some(at) = self.failed.iter().position(|(failed, _)| *failed == place) {
            return Err(self.failed.swap_remove(at).1);
        }
        let Some(at) = self.running.iter().position(|(runs, _)| *runs == place) else {
            return Err(Error::unexpected(format!("found no run at place {place}, expected the first that began")));
        };
        self.running.remove(at).map(|(_, lane)| lane).ok_or_else(|| Error::unexpected("found no run"))
    }

    /// Starts what was copied ahead for `lane`, in which nothing runs any more.
    pub(super) fn goes_on(&mut self, lane: usize, submit: impl FnOnce() -> Result<()>) {
        let waits = self.ahead.iter().position(|(_, of)| *of == lane).and_then(|at| self.ahead.remove(at));
        match waits.map(|(place, _)| (place, submit())) {
            Some((place, Ok(()))) => return self.running.push_back((place, lane)),
            Some((place, Err(error))) => self.failed.push((place, error)),
            None => {}
        }
        self.idle.push_back(lane);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(places: &mut Places, place: usize) -> Begins {
        let begins = places.begins(place).unwrap();
        places.began(place, begins);
        begins
    }

    #[test]
    fn with_every_lane_in_flight_one_more_batch_is_copied_ahead_and_runs_next() {
        let mut places = Places::new(2, true);
        assert_eq!(places.count(), 3);
        assert_eq!((begin(&mut places, 2), begin(&mut places, 1)), (Begins::Run(0), Begins::Run(1)));
        assert_eq!(begin(&mut places, 0), Begins::Ahead(0), "behind the run that ends first");
        assert!(places.begins(3).is_err(), "no more than that");
        assert!(places.finishes(0).is_err(), "its run has not begun");
        for (ends, lane, next) in [(2, 0, 0), (1, 1, 1), (0, 0, 0)] {
            assert_eq!(places.finishes(ends).unwrap(), lane);
            let mut started = false;
            places.goes_on(lane, || {
                started = true;
                Ok(())
            });
            assert!(started);
            assert_eq!(begin(&mut places, ends), Begins::Ahead(1 - next), "place {ends} again");
        }
    }

    #[test]
    fn without_a_second_staging_memory_there_is_one_batch_a_lane() {
        let mut places = Places::new(2, false);
        assert_eq!(places.count(), 2);
        assert_eq!((begin(&mut places, 0), begin(&mut places, 1)), (Begins::Run(0), Begins::Run(1)));
        assert!(places.begins(2).is_err());
        assert!(places.begins(1).is_err(), "taken");
        assert_eq!(places.finishes(0).unwrap(), 0);
        places.goes_on(0, || Err(Error::unexpected("nothing was copied ahead")));
        assert_eq!(begin(&mut places, 0), Begins::Run(0));
        for place in [0, 1] {
            let lane = places.finishes(place).unwrap();
            places.goes_on(lane, || Ok(()));
        }
        let mut used = vec![];
        for _ in 0..4 {
            let Begins::Run(lane) = begin(&mut places, 0) else { panic!("nothing is in flight") };
            used.push(lane);
            places.finishes(0).unwrap();
            places.goes_on(lane, || Ok(()));
        }
        assert_eq!(used, [0, 1, 0, 1], "runs made alone take the lanes in turn");
    }

    #[test]
    fn a_run_that_cannot_start_fails_its_own_batch_and_no_other() {
        let mut places = Places::new(1, true);
        assert_eq!((begin(&mut places, 0), begin(&mut places, 1)), (Begins::Run(0), Begins::Ahead(0)));
        assert_eq!(places.finishes(0).unwrap(), 0);
        places.goes_on(0, || Err(Error::new(crate::ErrorKind::Device, "device lost")));
        assert!(places.begins(1).is_err(), "its error has not been told");
        assert_eq!(places.finishes(1).unwrap_err().message(), "device lost");
        assert!(places.finishes(1).is_err());
        assert_eq!(begin(&mut places, 1), Begins::Run(0));
    }
}
