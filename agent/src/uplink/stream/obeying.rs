//! What the coordinator orders: looked at for who signed it before anything else.

use std::collections::BTreeMap;
use std::sync::Arc;

use parallax_proto::v1::coordinator_message::Message;
use parallax_proto::v1::{self, agent_message, order};

use super::{Stream, message};
use crate::assignment::epoch::Under;
use crate::assignment::kept::Taken;
use crate::identity::signers::{self, NotObeyed};
use crate::identity::trusted::Trusted;
use crate::uplink::{Uplink, orders};

/// What was not obeyed, by the word of its reason.
#[derive(Debug, Default)]
pub struct Disobeyed {
    counts: BTreeMap<&'static str, u64>,
    /// Whether it was said that nobody's signature is known here.
    anybody: bool,
    /// Whether it was said that whom to trust cannot be kept.
    unkept: bool,
}

impl Uplink {
    /// Counts what is not obeyed, and tells it ever more seldom.
    fn not_obeyed(&mut self, what: &str, why: NotObeyed) {
        let count = self.disobeyed.counts.entry(why.word()).or_default();
        *count = count.saturating_add(1);
        if count.is_power_of_two() {
            tracing::error!(
                reason = why.word(), count = *count, %why,
                "{what} is not obeyed; if this goes on, somebody has the coordinator's certificate who should not, or its signing key was lost: join anew with a token of `parallax token create NAME`"
            );
        }
        self.status.not_obeyed();
    }
}

impl Stream<'_> {
    /// Whether what is not signed may be obeyed: only while nobody's key is known here.
    fn admits_unsigned(&mut self, what: &str) -> bool {
        if !self.credentials.signers.is_empty() {
            self.uplink.not_obeyed(what, NotObeyed::Unsigned);
            return false;
        }
        if !self.uplink.disobeyed.anybody {
            self.uplink.disobeyed.anybody = true;
            tracing::warn!(
                reason = "orders_unsigned",
                "this identity is of before orders were signed: whatever a coordinator says is obeyed until it names its signers, or until this agent joins anew with a token of `parallax token create NAME`"
            );
        }
        true
    }

    /// An assignment that came unsigned.
    pub(super) fn unsigned_assignment(&mut self, assignment: v1::Assignment) {
        if self.admits_unsigned("an assignment") {
            self.assignment(&assignment, 0, Message::Assignment(assignment.clone()));
        }
    }

    /// A task that came unsigned.
    pub(super) fn unsigned_task(&mut self, task: v1::Task) {
        if self.admits_unsigned("a task") {
            self.task(task);
        }
    }

    /// An order, as it came.
    pub(super) fn signed(&mut self, signed: v1::Signed) {
        self.speaks_two();
        if self.credentials.signers.is_empty() && !self.admits_unsigned("an order") {
            return;
        }
        let opened = signers::open(&signed, &self.credentials.signers, &self.vantage);
        let admitted = opened.and_then(|order| {
            if !self.is_fresh(&order) {
                return Err(NotObeyed::Replayed);
            }
            let proof = signers::proof(&signed, order.epoch, &self.credentials.signers);
            let under = Under { epoch: order.epoch, proof: &proof, bound: !order.nonce.is_empty() };
            match self.uplink.epoch.admits(under) {
                true => Ok(order),
                false => Err(NotObeyed::Epoch),
            }
        });
        let order = match admitted {
            Ok(order) => order,
            Err(why) => return self.uplink.not_obeyed("an order", why),
        };
        match order.order {
            Some(order::Order::Assignment(assignment)) => {
                self.assignment(&assignment, order.epoch, Message::Signed(signed));
            }
            Some(order::Order::Task(task)) => self.task(task),
            Some(order::Order::Trust(trust)) => self.trust(&trust),
            None => self.uplink.not_obeyed("an order", NotObeyed::Content),
        }
    }

    /// Whether an order is for this stream and new on it. A coordinator of before signs for no stream in particular; one
    /// that has signed for this one, or for another one under this epoch, goes on so.
    fn is_fresh(&mut self, order: &v1::Order) -> bool {
        if order.nonce.is_empty() {
            return self.ordered == 0 && !self.uplink.epoch.is_bound(order.epoch);
        }
        let fresh = order.nonce == self.nonce && order.number > self.ordered;
        if fresh {
            self.ordered = order.number;
        }
        fresh
    }

    /// Whom to trust, as anybody with the coordinator's certificate may say it: believed only while no
    /// signer is known.
    pub(super) fn unsigned_trust(&mut self, trust: &v1::Trust) {
        self.speaks_two();
        if self.credentials.signers.is_empty() {
            self.trust(trust);
        } else if !self.holds(trust) {
            self.uplink.not_obeyed("a list of whom to trust", NotObeyed::Unsigned);
        }
    }

    /// Whether it says nothing but what is known already.
    fn holds(&self, trust: &v1::Trust) -> bool {
        Trusted::try_from(trust).is_ok_and(|trusted| {
            let signers = trusted.signers.iter().all(|one| self.credentials.signers.contains(one));
            let authorities = trusted.authorities.iter().all(|one| self.credentials.roots.contains(one));
            signers && authorities && trusted.coordinators.iter().all(|one| self.credentials.coordinators.contains(one))
        })
    }

    fn trust(&mut self, trust: &v1::Trust) {
        let trusted = match Trusted::try_from(trust) {
            Ok(trusted) => trusted,
            Err(error) => {
                tracing::warn!(%error, "a list of whom to trust is not taken; the old one stays in force");
                return;
            }
        };
        let held = &self.credentials;
        let same = (trusted.authorities.is_empty() || trusted.authorities == held.roots)
            && (trusted.signers.is_empty() || trusted.signers == held.signers)
            && (trusted.coordinators.is_empty() || trusted.coordinators == held.coordinators);
        if same {
            return;
        }
        match self.uplink.identity.folder().trust(&trusted) {
            Ok(false) => {}
            Ok(true) => {
                tracing::info!(
                    authorities = trusted.authorities.len(),
                    signers = trusted.signers.len(),
                    coordinators = trusted.coordinators.len(),
                    "whom to trust has changed"
                );
                self.look_again();
            }
            Err(error) if !self.uplink.disobeyed.unkept => {
                self.uplink.disobeyed.unkept = true;
                tracing::warn!(
                    reason = "trust_not_kept", %error,
                    "whom to trust has changed and is not kept; the old lists stay in force until the folder can be written"
                );
            }
            Err(_) => {}
        }
    }

    /// Reads the folder that we have just written ourselves; this stream need not be opened anew for it.
    pub(super) fn look_again(&mut self) {
        if let Ok(credentials) = self.uplink.identity.credentials() {
            self.uplink.look_at(&credentials);
            self.credentials = Arc::clone(&credentials);
        }
    }

    fn assignment(&mut self, assignment: &v1::Assignment, epoch: u64, sent: Message) {
        match self.uplink.kept.take(assignment, epoch, sent) {
            Ok(Taken::Applied) => {
                tracing::info!(version = assignment.version, vantage = %assignment.vantage, epoch, "a new assignment is in force")
            }
            Ok(Taken::Ignored) => {}
            Err(error) => {
                tracing::error!(version = assignment.version, %error, "an assignment is not valid; the old one stays in force")
            }
        }
    }

    fn task(&mut self, task: v1::Task) {
        let task_id = task.task_id;
        match orders::task(task) {
            Ok(task) => {
                if self.uplink.tasks.try_send(task).is_err() {
                    tracing::warn!(task_id, "too many tasks wait; this one is left out");
                }
            }
            Err(not_taken) => {
                tracing::warn!(task_id, why = %not_taken.why, "a task is not taken");
                if let Some(report) = not_taken.report {
                    let report = message(agent_message::Message::ChangeReport(orders::report(&report)));
                    if self.send.try_send(report).is_err() {
                        tracing::warn!(task_id, "its answer could not be sent; the coordinator will ask again");
                    }
                }
            }
        }
    }
}
