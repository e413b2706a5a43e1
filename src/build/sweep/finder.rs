//! The best batch: doubled until the memory no longer grows in a line or a picture takes longer, then one step back.

use crate::error::{Error, Result};
use crate::units::Bytes;
use serde::Serialize;

/// A picture may take this much longer than at the batch before: less is noise.
const NOISE: f64 = 1.02;
/// Memory a further picture may be this much above the first doubling's.
const LINE: u64 = 125;

/// What was measured at one batch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Step {
    /// Pictures a run.
    pub batch: u32,
    /// Time of a run, divided by its pictures.
    pub ms_a_picture: f64,
    /// Memory in use.
    pub memory: Bytes,
}

/// Why the doubling ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "why")]
pub enum Ended {
    /// The largest batch was reached.
    Largest,
    /// A picture takes longer than at the batch before.
    LatencyRises,
    /// The memory grew by more than the earlier steps had it.
    GrowthLeftTheLine,
    /// The next batch cannot run.
    CannotRun {
        /// Its batch.
        batch: u32,
        /// Why.
        reason: String,
    },
}

/// How the best batch was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchSearch {
    /// What was measured, in order.
    pub steps: Vec<Step>,
    /// The best batch; `None` when not even the first could run.
    pub best: Option<u32>,
    /// Why it ended.
    pub ended: Ended,
}

/// Doubles the batch from 1 to at most `most`, measuring each with `measure`.
///
/// # Errors
/// What `refusal` does not take for a reason.
pub(super) fn find(
    most: u32,
    measure: &mut dyn FnMut(u32) -> Result<Step>,
    refusal: &dyn Fn(Error) -> Result<String>,
) -> Result<BatchSearch> {
    let mut steps: Vec<Step> = Vec::new();
    let mut batch = 1_u32;
    let ended = loop {
        if batch > most {
            break Ended::Largest;
        }
        match measure(batch) {
            Ok(step) => steps.push(step),
            Err(error) => break Ended::CannotRun { batch, reason: refusal(error)? },
        }
        if let Some(ended) = stepped_too_far(&steps) {
            let best = steps.iter().rev().nth(1).map(|step| step.batch);
            return Ok(BatchSearch { steps, best, ended });
        }
        batch = batch.saturating_mul(2);
    };
    Ok(BatchSearch { best: steps.last().map(|step| step.batch), steps, ended })
}

/// Whether the last step went too far.
fn stepped_too_far(steps: &[Step]) -> Option<Ended> {
    let [.., before, last] = steps else { return None };
    if last.ms_a_picture > before.ms_a_picture * NOISE {
        return Some(Ended::LatencyRises);
    }
    let [first, second, third, ..] = steps else { return None };
    // Memory of a further picture, as the first doubling had it; rounding of small networks is no growth.
    let a_picture = second.memory.0.saturating_sub(first.memory.0) / u64::from(second.batch - first.batch).max(1);
    let allowed = u64::from(last.batch - before.batch).saturating_mul(a_picture).saturating_mul(LINE) / 100;
    let grown = last.memory.0.saturating_sub(before.memory.0);
    (third.batch <= last.batch && grown > allowed.saturating_add(Bytes::mib(1).0)).then_some(Ended::GrowthLeftTheLine)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(most: u32, ms: &[f64], mib: &[u64]) -> BatchSearch {
        let mut measure = |batch: u32| {
            let at = usize::try_from(batch.trailing_zeros()).unwrap();
            let (Some(&ms_a_picture), Some(&memory)) = (ms.get(at), mib.get(at)) else {
                return Err(Error::new(crate::ErrorKind::Budget, "too large"));
            };
            Ok(Step { batch, ms_a_picture, memory: Bytes::mib(memory) })
        };
        find(most, &mut measure, &|error| Ok(error.message().to_owned())).unwrap()
    }

    #[test]
    fn it_steps_back_when_a_picture_takes_longer() {
        let search = found(32, &[1.0, 0.8, 0.7, 0.75, 0.7], &[10, 20, 40, 80, 160]);
        assert_eq!((search.best, search.ended, search.steps.len()), (Some(4), Ended::LatencyRises, 4));
        // Within the noise the doubling goes on.
        assert_eq!(found(8, &[1.0, 1.01, 1.02, 1.0], &[10, 20, 40, 80]).best, Some(8));
    }

    #[test]
    fn it_steps_back_when_the_memory_leaves_the_line() {
        let search = found(32, &[1.0, 0.9, 0.8, 0.7, 0.6], &[100, 110, 130, 230, 270]);
        assert_eq!((search.best, search.ended), (Some(4), Ended::GrowthLeftTheLine));
        assert_eq!(found(8, &[1.0, 0.9, 0.8, 0.7], &[100, 110, 130, 170]).ended, Ended::Largest);
    }

    #[test]
    fn it_ends_where_nothing_larger_runs() {
        let search = found(32, &[1.0, 0.9], &[10, 20]);
        assert_eq!(search.best, Some(2));
        assert_eq!(search.ended, Ended::CannotRun { batch: 4, reason: "too large".to_owned() });
        assert_eq!(found(32, &[], &[]).best, None);
        let first = found(1, &[1.0], &[10]);
        assert_eq!((first.best, first.ended), (Some(1), Ended::Largest));
    }

    #[test]
    fn a_defect_is_no_reason() {
        let mut measure = |_| Err(Error::unexpected("broken"));
        assert!(find(4, &mut measure, &super::super::reason).is_err());
    }
}
