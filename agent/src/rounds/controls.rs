//! Rounds of the controls: on their grid, and around every burst.
//!
//! One round runs at a time, a second apart at least; what is asked for meanwhile is one more round
//! after it, so that a closing round always begins after what it closes. The controls need no place
//! among the probes in flight: when everything hangs they are what tells why.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parallax_decide::observation::Family;
use tokio::sync::oneshot;
use tokio::time::sleep_until;

use self::window::Window;
use super::Rounds;
use crate::assignment::{Assignment, Control, Trial};
use crate::clock::{self, Instant};
use crate::measured::{Measured, Reason, What};
use crate::probe::control;

mod window;

/// Positive controls of one family in a round; of more, the next ones take their turn.
const POSITIVE_MAX: usize = 3;

/// Least time between the starts of two rounds.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// What is known of the controls' rounds.
#[derive(Debug, Default)]
pub(super) struct Controls {
    queue: Mutex<Queue>,
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Somebody works on it.
    taken: bool,
    /// When the last round began.
    last: Option<Instant>,
    /// The next round, when one is asked for.
    next: Option<Next>,
    /// Rounds so far of each family: which controls' turn it is.
    turns: Turns,
}

#[derive(Debug)]
struct Next {
    families: Families,
    reason: Reason,
    assignment: Arc<Assignment>,
    /// Dropped when the round is over: whoever waits for it then goes on.
    waiting: Vec<oneshot::Sender<()>>,
}

/// Whose positive controls are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Families {
    v4: bool,
    v6: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Turns {
    v4: usize,
    v6: usize,
}

impl Families {
    /// Both.
    pub(super) const ALL: Self = Self { v4: true, v6: true };

    /// One.
    pub(super) fn one(family: Family) -> Self {
        Self { v4: family == Family::V4, v6: family == Family::V6 }
    }

    fn holds(self, family: Family) -> bool {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }

    fn and(self, other: Self) -> Self {
        Self { v4: self.v4 || other.v4, v6: self.v6 || other.v6 }
    }
}

/// The right to work on the queue. It goes back however the work ends.
struct Turn {
    rounds: Arc<Rounds>,
    held: bool,
}

impl Turn {
    /// When the next round begins; `None`, and the right is given back, when none is asked for.
    fn next_at(&mut self) -> Option<Instant> {
        let mut queue = self.rounds.controls.queue();
        if queue.next.is_some() {
            return Some(queue.last.map_or_else(clock::now, |last| last + PAUSE_MIN));
        }
        // In the same breath as the look, so that nothing asked for in between is forgotten.
        (queue.taken, self.held) = (false, false);
        None
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.held {
            self.rounds.controls.queue().taken = false;
        }
    }
}

impl Controls {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rounds {
    /// The round of the grid: both families. Returns when it is over.
    pub(super) async fn scheduled_controls(self: Arc<Self>, assignment: Arc<Assignment>, (): ()) {
        let (waits, over) = oneshot::channel();
        let waiting = vec![waits];
        self.ask_for_controls(Next { families: Families::ALL, reason: Reason::SCHEDULED, assignment, waiting });
        // Nothing is ever sent: it ends by being dropped.
        let _ = over.await;
    }

    /// Asks for a round that opens or closes the sandwich around a measurement: failures count only where
    /// the vantage's own uplink is shown to work around them, and that shall not wait for the grid.
    pub(super) fn bracket(self: &Arc<Self>, assignment: &Arc<Assignment>, families: Families) {
        let assignment = Arc::clone(assignment);
        self.ask_for_controls(Next { families, reason: Reason::CONFIRM, assignment, waiting: Vec::new() });
    }

    /// As `bracket`, after what was measured for a task at an address of this family.
    pub fn close(self: &Arc<Self>, assignment: &Arc<Assignment>, family: Family) {
        self.bracket(assignment, Families::one(family));
    }

    fn ask_for_controls(self: &Arc<Self>, asked: Next) {
        let mut turn = {
            let mut queue = self.controls.queue();
            queue.next = Some(match queue.next.take() {
                None => asked,
                Some(mut earlier) => {
                    earlier.waiting.extend(asked.waiting);
                    Next { families: asked.families.and(earlier.families), waiting: earlier.waiting, ..asked }
                }
            });
            if std::mem::replace(&mut queue.taken, true) {
                return;
            }
            Turn { rounds: Arc::clone(self), held: true }
        };
        tokio::spawn(async move {
            while let Some(at) = turn.next_at() {
                sleep_until(at).await;
                turn.rounds.round_of_controls().await;
            }
        });
    }

    async fn round_of_controls(&self) {
        let Some((next, chosen)) = self.choose() else { return };
        let asked = chosen.iter().map(|control| self.control(&next.assignment, next.reason, control));
        let mut asked: FuturesUnordered<_> = asked.collect();
        while asked.next().await.is_some() {}
    }

    /// Takes the next round out of the queue, with the controls whose turn it is.
    fn choose(&self) -> Option<(Next, Vec<Control>)> {
        let mut queue = self.controls.queue();
        let next = queue.next.take()?;
        queue.last = Some(clock::now());
        let chosen = chosen(&next.assignment.controls, next.families, &mut queue.turns);
        Some((next, chosen))
    }

    /// One control, with what is known besides.
    async fn control(&self, assignment: &Assignment, reason: Reason, control: &Control) {
        let mut measured = control::check(&self.site, &assignment.schedule.limits, control).await;
        self.add_what_is_known(control, &mut measured);
        self.recorder.record(reason, &measured);
    }

    fn add_what_is_known(&self, control: &Control, measured: &mut Measured) {
        let What::ControlCheck(fact, kept) = &mut measured.what else { return };
        kept.clock_offset_ms = self.site.offset.ms();
        let Some(family) = kept.address.map(Family::of) else { return };
        let mut window = self.controls.window.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(control.trial, Trial::Positive { .. }) {
            window.note(family, fact.outcome);
        }
        (kept.failures, kept.checks) = window.of(family);
    }
}

/// The controls of a round: some positive ones of each family in turn, in the order of the assignment,
/// which is by operators; and all of the others.
fn chosen(controls: &[Control], families: Families, turns: &mut Turns) -> Vec<Control> {
    let positive = |family: Family| -> Vec<&Control> {
        let of_it = |control: &&Control| {
            matches!(control.trial, Trial::Positive { .. }) && control::family(control) == Some(family)
        };
        controls.iter().filter(of_it).collect()
    };
    let (v4, v6) = (positive(Family::V4), positive(Family::V6));
    // Nothing configured for it: better the other family's than none.
    let families = match (families.v4 && !v4.is_empty()) || (families.v6 && !v6.is_empty()) {
        true => families,
        false => Families::ALL,
    };
    let mut chosen = Vec::new();
    for (family, of_it, turn) in [(Family::V4, v4, &mut turns.v4), (Family::V6, v6, &mut turns.v6)] {
        if !families.holds(family) || of_it.is_empty() {
            continue;
        }
        let first = match of_it.len() > POSITIVE_MAX {
            true => turn.wrapping_mul(POSITIVE_MAX) % of_it.len(),
            false => 0,
        };
        chosen.extend(of_it.iter().cycle().skip(first).take(of_it.len().min(POSITIVE_MAX)).copied().cloned());
        *turn = turn.wrapping_add(1);
    }
    chosen.extend(controls.iter().filter(|control| !matches!(control.trial, Trial::Positive { .. })).cloned());
    chosen
}

#[cfg(test)]
#[cfg(feature = "lab")]
mod tests;
