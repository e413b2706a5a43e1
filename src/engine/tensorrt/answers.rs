//! Answers of a lane → candidates and statistics.

use crate::engine::{Candidate, Candidates, OutputStats};
use crate::error::Result;
use crate::ffi::lane::{Answer, AnswerBox, Lane};
use crate::units::{float64, narrow};

/// Reads the answer of `slot` into `candidates` and gives the statistics.
///
/// # Errors
/// What the lane reports.
pub(super) fn read(lane: &mut Lane, slot: u32, rest_fetched: &mut bool, into: &mut Candidates) -> Result<OutputStats> {
    let answer = lane.answer(slot)?;
    into.boxes.clear();
    into.boxes.extend(answer.front().map(candidate));
    into.overflow = u64::from(answer.overflow);
    let stats = stats_of(&answer);
    let behind = answer.behind();
    if behind > 0 {
        if !*rest_fetched {
            lane.fetch_rest()?;
            *rest_fetched = true;
        }
        for number in 0..behind {
            into.boxes.push(candidate(lane.rest_box(slot, number)?));
        }
    }
    Ok(stats)
}

fn candidate(found: AnswerBox) -> Candidate {
    Candidate { anchor: found.anchor, class_id: found.class_id, score: found.score, edges: found.edges.into() }
}

fn stats_of(answer: &Answer<'_>) -> OutputStats {
    let any = answer.best_scores > 0;
    OutputStats {
        values: answer.values.into(),
        nan: answer.nan.into(),
        infinite: answer.infinite.into(),
        all_zero: answer.any_bit == 0 && answer.values > 0,
        scores_out_of_range: answer.scores_out_of_range.into(),
        class_ids_out_of_range: answer.class_ids_out_of_range.into(),
        counts_out_of_range: answer.counts_out_of_range.into(),
        minimum_score: if any { answer.minimum_score } else { 0.0 },
        maximum_score: if any { answer.maximum_score } else { 0.0 },
        mean_score: if any { narrow(answer.sum / float64(answer.best_scores.into())) } else { 0.0 },
        boxes_before_nms: answer.boxes_before_nms.into(),
    }
}
