//! The recovery ladder: which step to try next after a fault of the engine. It decides; the run carries out.
//!
//! A *round* starts with a fault and takes each step once, cheapest first. After every step the known answers are asked
//! for; when they come out right, the run goes on, and a fault soon after continues the round at the next step instead of
//! beginning again. A round that is used up is followed by another one after a pause that doubles; after the last round
//! allowed the run gives up.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// One step, cheapest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// Run the frame again.
    RetryFrame,
    /// Run warm-up pictures.
    Rewarm,
    /// Give the execution context up and make a new one from the same bundle.
    NewContext,
    /// Read the bundle again from its file and load it.
    ReloadBundle,
    /// Load the last bundle that worked.
    LastGoodBundle,
    /// Go on with another device.
    StandbyDevice,
}

impl Step {
    /// All steps in their order.
    pub const ALL: [Step; 6] = [
        Step::RetryFrame,
        Step::Rewarm,
        Step::NewContext,
        Step::ReloadBundle,
        Step::LastGoodBundle,
        Step::StandbyDevice,
    ];

    /// The text form in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Step::RetryFrame => "retry_frame",
            Step::Rewarm => "rewarm",
            Step::NewContext => "new_context",
            Step::ReloadBundle => "reload_bundle",
            Step::LastGoodBundle => "last_good_bundle",
            Step::StandbyDevice => "standby_device",
        }
    }

    /// Whether another engine answers after it: a good proof then says nothing of the one before.
    pub const fn replaces_the_engine(self) -> bool {
        !matches!(self, Step::RetryFrame | Step::Rewarm)
    }
}

/// What kind of fault climbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A hard engine-side check fired, or a call ended in an error that may pass.
    Answer,
    /// The known answers came out wrong, or two runs over one frame differ.
    Proof,
    /// A call took longer than its limit and came back since: the context is not to be believed.
    Slow,
    /// The device is lost, or a call never came back: nothing on this device helps.
    DeviceLost,
}

/// What the run is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Take this step after this pause, then ask for all known answers.
    Take {
        /// The step.
        step: Step,
        /// Pause before it.
        pause: Duration,
    },
    /// End the run: a restart of the process is the next step.
    GiveUp,
}

/// Limits of the ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LadderLimits {
    /// Rounds within `window`.
    pub rounds: usize,
    /// The time over which rounds are counted.
    pub window: Duration,
    /// A fault this soon after a step that worked continues the round.
    pub settle: Duration,
    /// Pause before the second round; it doubles with each further one.
    pub pause: Duration,
}

impl Default for LadderLimits {
    fn default() -> Self {
        LadderLimits {
            rounds: 3,
            window: Duration::from_secs(600),
            settle: Duration::from_secs(10),
            pause: Duration::from_secs(1),
        }
    }
}

/// Where the run stands on the ladder.
#[derive(Debug, Clone)]
pub struct Ladder {
    limits: LadderLimits,
    last_good_bundle: bool,
    standby_devices: usize,
    rounds: VecDeque<Instant>,
    /// Index into [`Step::ALL`] of the next step of the open round.
    next: usize,
    /// Standby devices tried in the open round.
    devices_tried: usize,
    last: Option<Step>,
    open: bool,
    worked_at: Option<Instant>,
}

impl Ladder {
    /// A ladder at its foot.
    pub fn new(limits: LadderLimits) -> Self {
        Ladder {
            rounds: VecDeque::with_capacity(limits.rounds + 1),
            limits,
            last_good_bundle: false,
            standby_devices: 0,
            next: 0,
            devices_tried: 0,
            last: None,
            open: false,
            worked_at: None,
        }
    }

    /// Whether there is another bundle that worked, and how many other devices there are, warm or not. In one round each is
    /// tried once.
    pub fn resources(&mut self, last_good_bundle: bool, standby_devices: usize) {
        self.last_good_bundle = last_good_bundle;
        self.standby_devices = standby_devices;
    }

    /// The fault goes on, or a new one has come: what to do.
    pub fn fault(&mut self, cause: Cause, now: Instant) -> Action {
        let settled = self.worked_at.take().is_some_and(|at| now.saturating_duration_since(at) >= self.limits.settle);
        if settled {
            self.open = false;
        }
        let mut pause = Duration::ZERO;
        if !self.open {
            // The round before this one worked: no pause.
            if self.begin_round(now).is_none() {
                return Action::GiveUp;
            }
        }
        self.next = self.next.max(Self::first_step(cause));
        loop {
            match Step::ALL.get(self.next) {
                Some(Step::StandbyDevice) if self.devices_tried < self.standby_devices => {
                    self.devices_tried += 1;
                    self.last = Some(Step::StandbyDevice);
                    return Action::Take { step: Step::StandbyDevice, pause };
                }
                Some(step) => {
                    self.next += 1;
                    if self.is_there(*step) {
                        self.last = Some(*step);
                        return Action::Take { step: *step, pause };
                    }
                }
                // Nothing on this device helps, and no other one is left: another round would change nothing.
                None if cause == Cause::DeviceLost => return Action::GiveUp,
                None => match self.begin_round(now) {
                    Some(before_round) => {
                        pause = before_round;
                        self.next = Self::first_step(cause);
                    }
                    None => return Action::GiveUp,
                },
            }
        }
    }

    /// The step worked: the known answers came out right. Another device begins with a fresh round at its next fault.
    pub fn worked(&mut self, now: Instant) {
        self.worked_at = Some(now);
        self.open &= self.last != Some(Step::StandbyDevice);
    }

    fn first_step(cause: Cause) -> usize {
        let first = match cause {
            Cause::Answer | Cause::Proof => Step::RetryFrame,
            Cause::Slow => Step::NewContext,
            Cause::DeviceLost => Step::StandbyDevice,
        };
        Step::ALL.iter().position(|step| *step == first).unwrap_or(0)
    }

    fn is_there(&self, step: Step) -> bool {
        match step {
            Step::LastGoodBundle => self.last_good_bundle,
            // Taken as often as there are devices, above.
            Step::StandbyDevice => false,
            _ => true,
        }
    }

    /// The pause before the round that begins now; `None` when no more are allowed.
    fn begin_round(&mut self, now: Instant) -> Option<Duration> {
        let window = self.limits.window;
        self.rounds.retain(|begun| now.saturating_duration_since(*begun) < window);
        if self.rounds.len() >= self.limits.rounds {
            return None;
        }
        let before = u32::try_from(self.rounds.len()).unwrap_or(u32::MAX);
        self.rounds.push_back(now);
        self.open = true;
        self.next = 0;
        self.devices_tried = 0;
        Some(self.limits.pause.saturating_mul(2_u32.saturating_pow(before.saturating_sub(1).min(10))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn steps(ladder: &mut Ladder, cause: Cause, now: Instant) -> Vec<Step> {
        let mut taken = Vec::new();
        while let Action::Take { step, .. } = ladder.fault(cause, now) {
            taken.push(step);
        }
        taken
    }

    #[test]
    fn a_fault_that_stays_takes_each_step_once_a_round_and_gives_up_after_three() {
        let mut ladder = Ladder::new(LadderLimits::default());
        let round = [Step::RetryFrame, Step::Rewarm, Step::NewContext, Step::ReloadBundle];
        assert_eq!(steps(&mut ladder, Cause::Answer, Instant::now()), [round, round, round].concat());
        let mut ladder = Ladder::new(LadderLimits::default());
        ladder.resources(true, 1);
        assert_eq!(steps(&mut ladder, Cause::Proof, Instant::now())[..6], Step::ALL);
    }

    #[test]
    fn pauses_double_from_the_second_round_on() {
        let mut ladder = Ladder::new(LadderLimits::default());
        let mut pauses = Vec::new();
        while let Action::Take { pause, step } = ladder.fault(Cause::Answer, Instant::now()) {
            if step == Step::RetryFrame {
                pauses.push(pause);
            }
        }
        assert_eq!(pauses, [Duration::ZERO, SECOND, 2 * SECOND]);
    }

    #[test]
    fn a_fault_soon_after_a_step_that_worked_goes_on_with_the_next_step() {
        let mut ladder = Ladder::new(LadderLimits::default());
        let start = Instant::now();
        assert!(matches!(ladder.fault(Cause::Answer, start), Action::Take { step: Step::RetryFrame, .. }));
        ladder.worked(start);
        assert!(matches!(ladder.fault(Cause::Answer, start + SECOND), Action::Take { step: Step::Rewarm, .. }));
        ladder.worked(start + SECOND);
        let later = start + 20 * SECOND;
        assert!(matches!(ladder.fault(Cause::Answer, later), Action::Take { step: Step::RetryFrame, .. }));
    }

    #[test]
    fn rounds_older_than_ten_minutes_do_not_count() {
        let mut ladder = Ladder::new(LadderLimits::default());
        let mut now = Instant::now();
        for _ in 0..50 {
            assert!(matches!(ladder.fault(Cause::Answer, now), Action::Take { step: Step::RetryFrame, .. }));
            ladder.worked(now);
            now += 250 * SECOND;
        }
        for _ in 0..2 {
            ladder.fault(Cause::Answer, now);
            ladder.worked(now);
            now += 11 * SECOND;
        }
        assert_eq!(ladder.fault(Cause::Answer, now), Action::GiveUp);
    }

    #[test]
    fn a_lost_device_goes_to_the_standby_or_gives_up_at_once() {
        assert_eq!(Ladder::new(LadderLimits::default()).fault(Cause::DeviceLost, Instant::now()), Action::GiveUp);
        let mut ladder = Ladder::new(LadderLimits::default());
        ladder.resources(true, 1);
        assert_eq!(steps(&mut ladder, Cause::DeviceLost, Instant::now()), [Step::StandbyDevice]);
        assert_eq!(steps(&mut Ladder::new(LadderLimits::default()), Cause::Slow, Instant::now())[0], Step::NewContext);
    }

    #[test]
    fn each_standby_is_tried_once_a_round_and_a_new_device_begins_afresh() {
        let now = Instant::now();
        let mut ladder = Ladder::new(LadderLimits::default());
        ladder.resources(false, 3);
        assert_eq!(steps(&mut ladder, Cause::DeviceLost, now), [Step::StandbyDevice; 3]);
        let mut ladder = Ladder::new(LadderLimits::default());
        ladder.resources(false, 1);
        for _ in 0..2 {
            assert!(matches!(ladder.fault(Cause::DeviceLost, now), Action::Take { step: Step::StandbyDevice, .. }));
            ladder.worked(now);
        }
        let Action::Take { step, .. } = ladder.fault(Cause::Answer, now) else { panic!("the third round") };
        assert_eq!(step, Step::RetryFrame, "the engine on the other device begins at the foot");
        ladder.worked(now);
        while let Action::Take { step, .. } = ladder.fault(Cause::Answer, now) {
            if step == Step::StandbyDevice {
                ladder.worked(now);
            }
        }
        assert_eq!(ladder.fault(Cause::DeviceLost, now), Action::GiveUp, "three rounds are used up");
    }

    proptest! {
        /// Whatever comes, at most `rounds` rounds begin within the window, and every round goes up only.
        #[test]
        fn it_always_ends(events in prop::collection::vec((0..4_u8, any::<bool>(), 0..30_u32), 1..300)) {
            let limits = LadderLimits::default();
            let mut ladder = Ladder::new(limits);
            ladder.resources(true, 1);
            let mut now = Instant::now();
            let mut begun: Vec<Instant> = Vec::new();
            let mut last: Option<Step> = None;
            for (cause, works, seconds) in events {
                let cause = [Cause::Answer, Cause::Proof, Cause::Slow, Cause::DeviceLost][usize::from(cause)];
                match ladder.fault(cause, now) {
                    Action::Take { step, .. } => {
                        if last.is_none_or(|last| step <= last) {
                            begun.push(now);
                        }
                        last = Some(step);
                        if works {
                            ladder.worked(now);
                        }
                    }
                    Action::GiveUp => break,
                }
                now += SECOND * seconds;
                let recent = begun.iter().filter(|at| now.saturating_duration_since(**at) < limits.window).count();
                prop_assert!(recent <= limits.rounds);
            }
        }
    }
}
