//! What the run must act on, read off one answer: its verdict, what went wrong with the call, and its echo.

use crate::error::ErrorKind;
use crate::frame::Frame;
use crate::guard::ladder::Cause;
use crate::guard::{Reason, Severity, Side, Verdict};
use crate::run::host::Trouble;
use std::sync::Arc;

/// Something about the engine that the run must act on.
#[derive(Debug)]
pub struct Alarm {
    /// What climbs the ladder; `None` for a suspicion, which only asks for a proof.
    pub cause: Option<Cause>,
    /// What was seen, for people.
    pub what: String,
    /// The frame it was seen on, for the first step.
    pub frame: Option<Arc<Frame>>,
    /// A call has not come back yet.
    pub stuck: bool,
}

impl Alarm {
    /// The gravest thing that this answer shows, if any.
    pub(super) fn of(
        verdict: &Verdict,
        frame: &Arc<Frame>,
        trouble: Option<Trouble>,
        echo_differs: Option<String>,
    ) -> Option<Alarm> {
        let place = format!("stream {}, frame {}", frame.stream, frame.number);
        let alarm = |cause, what: String, stuck| {
            Some(Alarm { cause, what: format!("{place}: {what}"), frame: Some(Arc::clone(frame)), stuck })
        };
        match trouble {
            Some(Trouble::Stuck(limit)) => {
                return alarm(Some(Cause::Slow), format!("the engine has not answered within {limit:.1?}"), true);
            }
            Some(Trouble::Failed(error)) => {
                log::error!("{place}: {error}");
                return match error.kind() {
                    ErrorKind::Device => alarm(Some(Cause::DeviceLost), error.message().to_owned(), false),
                    // The picture does not match its own description: not the engine's fault.
                    ErrorKind::Refused => None,
                    _ => alarm(Some(Cause::Answer), error.message().to_owned(), false),
                };
            }
            Some(Trouble::GivenUp) => return None,
            None => {}
        }
        if let Some(what) = echo_differs {
            return alarm(Some(Cause::Proof), what, false);
        }
        let not_of_the_run = |reason: &Reason| !matches!(reason, Reason::Late | Reason::Changeover);
        let of_engine = |reason: &&Reason| reason.side() == Side::Engine && not_of_the_run(reason);
        let first =
            verdict.reasons.iter().filter(of_engine).min_by_key(|reason| reason.severity() != Severity::Hard)?;
        let cause = (first.severity() == Severity::Hard).then_some(Cause::Answer);
        alarm(cause, first.name().to_owned(), false)
    }
}
