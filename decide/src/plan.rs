//! A remedy made concrete, or the reason why there is none. Smallest scope first: a fault of one
//! place gets a pin at that place, a global finding moves the record, everything else is notified.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::change::Change;
use crate::finding::Subject;
use crate::fold::Fold;
use crate::incident::{IncidentId, Open};
use crate::judge::{Judgement, live_resolver};
use crate::names::{Addresses, DomainName, DriverName, NodeName, ResolverName, ServiceName, VantageName};
use crate::observation::word_enum;
use crate::time::Timestamp;
use crate::topology::{Mode, Topology};
use crate::verdict::{AnswerVerdict, NodeVerdict};

pub mod pin;
pub mod repoint;
mod switch;

/// Key of a stored plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlanId(pub i64);

word_enum! {
    /// What a plan is for.
    PlanPurpose {
        /// To heal. Counts against the incident's changes.
        Remedy = "remedy",
        /// To go back to native after recovery. Always within the budget.
        Return = "return",
        /// To take back a remedy whose proof failed. Counts.
        Rollback = "rollback",
    }
}

word_enum! {
    /// Where a plan stands.
    ///
    /// ```text
    /// proposed -> approved -> applying -> applied -> verified -> undone (its undo was verified)
    ///     |           |           |          +-> rolled_back (its proof failed and it was taken back)
    ///     +-> expired +-> refused +-> yielded, failed
    /// ```
    PlanStatus {
        /// Waits for a person.
        Proposed = "proposed",
        /// May be applied.
        Approved = "approved",
        /// Journalled; perhaps applied.
        Applying = "applying",
        /// Read back as set; not yet proven from the client's side.
        Applied = "applied",
        /// Proven from the client's side.
        Verified = "verified",
        /// The driver failed; nothing was changed.
        Failed = "failed",
        /// A guard refused it; nothing was changed.
        Refused = "refused",
        /// Somebody else changed the record; left to them.
        Yielded = "yielded",
        /// Applied, not proven, taken back.
        RolledBack = "rolled_back",
        /// Not applied in time.
        Expired = "expired",
        /// Taken back after it had served.
        Undone = "undone",
    }
}

impl PlanStatus {
    /// Whether it is on its way: nothing else is planned for the subject meanwhile.
    #[must_use]
    pub fn in_flight(self) -> bool {
        match self {
            Self::Approved | Self::Applying | Self::Applied => true,
            Self::Proposed
            | Self::Verified
            | Self::Failed
            | Self::Refused
            | Self::Yielded
            | Self::RolledBack
            | Self::Expired
            | Self::Undone => false,
        }
    }
}

/// A remedy made concrete. Immutable and complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What it is for.
    pub purpose: PlanPurpose,
    /// Plan whose change it takes back.
    pub undoes: Option<PlanId>,
    /// Driver that applies it.
    pub driver: DriverName,
    /// Vantage whose agent applies it; `None`: the coordinator.
    pub vantage: Option<VantageName>,
    /// Service or name it is about.
    pub item: String,
    /// The change.
    pub change: Change,
    /// Why this and not something else.
    pub reason: PlanReason,
    /// Not applied after this.
    pub expires_at: Timestamp,
    /// What may happen with it: [`Mode::Act`] approves it at once.
    pub mode: Mode,
}

/// Why a plan was made, as data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum PlanReason {
    /// A pin to an address that is proven from the vantage that suffers.
    ProvenHere {
        /// The address.
        address: IpAddr,
        /// When it was proven from there.
        proven_at: Timestamp,
        /// Vantages that were given it and prove it too.
        given_at: Vec<VantageName>,
        /// What every other resolver gives there: none of them helps, so a switch would not.
        resolvers: BTreeMap<ResolverName, AnswerVerdict>,
    },
    /// The native answer is usable again.
    NativeUsable {
        /// Its addresses.
        addresses: BTreeSet<IpAddr>,
    },
    /// The serving node is gone; this one is proven.
    NodeGone {
        /// The node that served.
        from: NodeName,
        /// Its verdict.
        verdict: NodeVerdict,
        /// Who found it dead.
        accusers: Vec<VantageName>,
        /// The node that shall serve.
        to: NodeName,
        /// Who proves it.
        provers: Vec<VantageName>,
    },
    /// The native node is back.
    NativeBack {
        /// The node.
        node: NodeName,
        /// Who proves it, each by enough good rounds.
        provers: Vec<VantageName>,
    },
    /// The proof of a remedy failed.
    ProofFailed {
        /// What was missing.
        why: String,
    },
}

/// Why nothing is planned, as data.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum NoPlan {
    /// The finding calls for people, not for a change.
    NotifyOnly,
    /// The fleet is frozen.
    FleetFrozen,
    /// No driver is configured that could.
    NoDriver,
    /// A plan is on its way.
    InFlight,
    /// The remedy stands; what must happen for the return is not yet so.
    Standing {
        /// What is missing.
        until: ReturnWaits,
    },
    /// A proposed plan waits for a person.
    WaitsForPerson,
    /// The incident has made all the changes to this name or service that it may.
    BudgetSpent {
        /// How many it may make.
        changes_max: u32,
    },
    /// No address, node or endpoint is proven where it must be.
    NoProvenTarget,
    /// Another encrypted endpoint does better there, as measured from there. No driver switches resolvers: it is offered
    /// to whoever looks after that one.
    SwitchByHand {
        /// Where.
        vantage: VantageName,
        /// To which endpoint.
        to: ResolverName,
        /// Whether the cache must be emptied after the new one is proven: it hides that the old one is dead.
        then_flush: bool,
    },
    /// What other resolvers give at that vantage is not known yet.
    ResolversUnknown {
        /// Those that are missing.
        resolvers: BTreeSet<ResolverName>,
    },
    /// The driver could not tell what the record holds.
    RecordUnknown,
    /// The record holds something that is not ours: yield.
    ForeignRecord {
        /// What it holds.
        found: BTreeSet<IpAddr>,
    },
    /// The finding has no longer what it takes.
    FindingGone,
}

/// What a return waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum ReturnWaits {
    /// The native answer or node is not usable, or not known to be.
    NativeNotUsable,
    /// It is, but not for enough rounds.
    GoodRounds,
    /// It is, but the last change was too recent.
    Dwell {
        /// Until when.
        until: Timestamp,
    },
}

/// What the planner decided about one name or service of an incident.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Do this.
    Plan(Box<Plan>),
    /// Do nothing, and why.
    Hold {
        /// Name or service.
        item: String,
        /// Why.
        why: NoPlan,
    },
}

/// A plan as the store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanRecord {
    /// Its number.
    pub id: PlanId,
    /// Its incident.
    pub incident: IncidentId,
    /// Lease epoch it was made or last taken over under.
    pub epoch: i64,
    /// When it was made.
    pub created_at: Timestamp,
    /// Where it stands.
    pub status: PlanStatus,
    /// When the driver confirmed it.
    pub applied_at: Option<Timestamp>,
    /// When it was proven.
    pub verified_at: Option<Timestamp>,
    /// The plan.
    pub plan: Plan,
}

/// What a driver found in a service's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// These addresses.
    Found(Addresses),
    /// Something that cannot be ours: nothing, special-purpose addresses, another type.
    Strange(BTreeSet<IpAddr>),
    /// It could not be read.
    Unknown,
}

/// Everything planning for one incident reads.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// The configuration.
    pub topology: &'a Topology,
    /// What agents said.
    pub fold: &'a Fold,
    /// The verdicts of this moment.
    pub judgement: &'a Judgement,
    /// The incident.
    pub incident: &'a Open,
    /// Every plan of the incident, oldest first.
    pub plans: &'a [PlanRecord],
    /// What each service's record holds.
    pub records: &'a BTreeMap<ServiceName, Record>,
    /// How often each name or service relapsed within the policy's relapse window: returns that a
    /// later remedy of the same one followed.
    pub relapses: &'a BTreeMap<String, u32>,
}

/// Places of one endpoint that are each told what would help: thousands of lines would help nobody.
const PLACES_MAX: usize = 64;

/// Plans for one incident: a decision for each name or service it affects.
#[must_use]
pub fn plan(situation: Situation<'_>) -> Vec<Decision> {
    let hold = |item: &str, why| vec![Decision::Hold { item: item.to_owned(), why }];
    let subject = &situation.incident.subject;
    if situation.judgement.fleet.frozen() {
        return hold(subject.name(), NoPlan::FleetFrozen);
    }
    match subject {
        Subject::UnroutableAt { vantage } => {
            let names = situation.incident.members.iter().filter_map(|member| member.parse::<DomainName>().ok());
            names.map(|name| pin::decide(situation, vantage, &name)).collect()
        }
        Subject::Service { service } => vec![repoint::decide(situation, service)],
        Subject::NameAt { vantage, name } => vec![at_place(situation, vantage, name)],
        // The places that are given what is dead; the path of none of them is to blame.
        Subject::Name { name } => dead_places(situation, name)
            .take(PLACES_MAX)
            .map(|vantage| switch::for_name(situation, vantage, name, format!("{name}@{vantage}")))
            .collect(),
        Subject::Endpoint { resolver } => {
            let places = situation.incident.members.iter().filter_map(|member| member.parse::<VantageName>().ok());
            places.take(PLACES_MAX).map(|vantage| switch::for_endpoint(situation, &vantage, resolver)).collect()
        }
        Subject::Fleet | Subject::Vantage { .. } | Subject::Node { .. } => hold(subject.name(), NoPlan::NotifyOnly),
    }
}

/// One name that gets no good answer at one place: a switch first, then a pin where a block's address is served.
fn at_place(situation: Situation<'_>, vantage: &VantageName, name: &DomainName) -> Decision {
    let live = live_resolver(situation.topology);
    let answer = live.and_then(|live| situation.judgement.answer(vantage, name, live));
    let pinned = situation.about(name.as_str()).any(|record| record.plan.change.sets().is_some());
    let stub = answer.is_some_and(|answer| answer.verdict == AnswerVerdict::Stub);
    if pinned || stub {
        return pin::decide(situation, vantage, name);
    }
    switch::for_name(situation, vantage, name, name.to_string())
}

fn dead_places<'a>(situation: Situation<'a>, name: &'a DomainName) -> impl Iterator<Item = &'a VantageName> {
    let live = live_resolver(situation.topology);
    situation.topology.vantages.keys().filter(move |vantage| {
        let answer = live.and_then(|live| situation.judgement.answer(vantage, name, live));
        answer.is_some_and(|answer| answer.verdict == AnswerVerdict::DeadEverywhere)
    })
}

impl Situation<'_> {
    /// Changes the incident has made to one name or service: every one that reached DNS, a return
    /// excepted.
    #[must_use]
    pub fn changes_made(&self, item: &str) -> u32 {
        let counted = self.about(item).filter(|record| record.counts()).count();
        u32::try_from(counted).unwrap_or(u32::MAX)
    }

    /// Plans about one name or service, oldest first.
    fn about<'a>(&'a self, item: &'a str) -> impl DoubleEndedIterator<Item = &'a PlanRecord> {
        self.plans.iter().filter(move |record| record.plan.item == item)
    }

    /// The earliest moment of a return of `item` after a change at `changed_at`: the dwell, doubled
    /// by each relapse up to `dwell_max`.
    fn dwell_until(&self, item: &str, changed_at: Timestamp) -> Timestamp {
        let policy = &self.topology.policy;
        let relapses = self.relapses.get(item).copied().unwrap_or(0);
        let factor = 1_u32.checked_shl(relapses.min(16)).unwrap_or(u32::MAX);
        changed_at.plus(policy.dwell.saturating_mul(factor).min(policy.dwell_max.max(policy.dwell)))
    }

    fn expiry(&self) -> Timestamp {
        self.judgement.at.plus(self.topology.policy.proof_age_max)
    }
}

impl PlanRecord {
    /// Whether it holds its incident open: on its way, or a remedy that stands.
    #[must_use]
    pub fn holds_open(&self) -> bool {
        self.status.in_flight() || (self.status == PlanStatus::Verified && self.plan.purpose == PlanPurpose::Remedy)
    }

    /// Whether it counts as a change of its incident.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.applied_at.is_some() && self.plan.purpose != PlanPurpose::Return
    }
}
