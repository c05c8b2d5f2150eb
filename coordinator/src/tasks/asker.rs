//! Asks agents for the evidence that is missing, and for the paths to what is silent.

use std::collections::BTreeSet;
use std::time::Duration;

use parallax_decide::names::VantageName;
use parallax_decide::observation::Purpose;
use parallax_decide::trace::{self, Traced};
use parallax_decide::wanted::{Ask, Asked, wanted};

use super::moment::Moment;
use crate::config::Schedule;
use crate::config::policy::connection_budget;
use crate::hub::{Task, Work};

/// Added to the longest a task can take, before the agent gives up on it.
const TASK_MARGIN: Duration = Duration::from_secs(2);

/// An agent looks for a path for at most 20 s; this leaves room to begin.
const PATH_DEADLINE: Duration = Duration::from_secs(25);

/// Who was asked what.
#[derive(Debug, Default)]
pub(crate) struct Asker {
    asked: Asked,
    traced: Traced,
}

impl Asker {
    /// Sends the questions that are due to the vantages that can be reached. Each is repeated so
    /// that its answer alone can be enough failures over enough time.
    pub(crate) fn step(&mut self, moment: &Moment<'_>, schedule: &Schedule) {
        let connected = connected(moment);
        let mut asks: BTreeSet<Ask> = wanted(moment.topology, moment.judgement);
        asks.retain(|ask| connected.contains(&ask.vantage));
        let (repeat, gap) = moment.topology.policy.tries();
        let probe = connection_budget(schedule, true);
        for ask in self.asked.due(moment.topology, asks, moment.now) {
            let Ask { vantage, target, address } = ask;
            let deadline = (gap + probe).saturating_mul(repeat) + TASK_MARGIN;
            let work = Work::Connect { target, address, repeat, gap };
            if let Err(error) =
                moment.app.hub.send_task(&vantage, Task { purpose: Purpose::CrossCheck, deadline, work }, moment.epoch)
            {
                tracing::debug!(%error, "a cross-check was not sent");
            }
        }
        self.step_paths(moment, &connected);
    }

    fn step_paths(&mut self, moment: &Moment<'_>, connected: &BTreeSet<VantageName>) {
        let mut asks = trace::wanted(moment.topology, moment.judgement);
        asks.retain(|ask| connected.contains(&ask.vantage));
        for Ask { vantage, target, address } in self.traced.due(asks, moment.now) {
            let work = Work::Path { target, address };
            let task = Task { purpose: Purpose::CrossCheck, deadline: PATH_DEADLINE, work };
            if let Err(error) = moment.app.hub.send_task(&vantage, task, moment.epoch) {
                tracing::debug!(%error, "a path was not asked for");
            }
        }
    }
}

/// The vantages that can be asked.
pub(crate) fn connected(moment: &Moment<'_>) -> BTreeSet<VantageName> {
    moment.app.hub.reachable()
}
