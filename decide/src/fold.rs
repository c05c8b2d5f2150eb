//! The fold: observations in commit order become the state that judging reads.
//!
//! The same fold over the same observations gives the same state; after a restart it is rebuilt
//! from the log. It keeps a bounded number of things: what a vantage last said of each pair of
//! name and resolver, of each address, and of each control.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::chance;
use crate::endpoint::Class;
use crate::gray::{Attempts, Gray};
use crate::names::{ControlName, DomainName, ResolverName, VantageName};
use crate::observation::{
    Connection, ControlCheck, EndpointCheck, Fact, Family, Observation, ObservationId, Outcome, Particulars, Proof,
    Recent, Resolution, Says, Target, Validation,
};
use crate::time::Timestamp;
use crate::topology::{Policy, Topology};

/// Observations a run keeps as its evidence: the first ones, which decided, and the newest.
pub const EVIDENCE_MAX: usize = 8;

/// Addresses remembered at one vantage, over all targets; the longest unseen is forgotten first.
pub const REACH_MAX: usize = 4096;

/// What all vantages last said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fold {
    vantages: BTreeMap<VantageName, VantageState>,
    listening_since: Option<Timestamp>,
    last_id: Option<ObservationId>,
}

/// What one vantage last said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VantageState {
    /// Receipt of its newest live observation.
    pub last_report_at: Option<Timestamp>,
    /// Receipt of its newest observation that was too old to vote.
    pub last_late_at: Option<Timestamp>,
    /// Why nothing it says may count.
    pub suspicion: Option<Suspicion>,
    /// How far its clock was off when last measured, in ms.
    pub clock_offset_ms: Option<i64>,
    /// How many of its controls' probes failed lately.
    pub recent: Option<Recent>,
    /// Own attempts of all its connections that came about.
    pub attempts: Attempts,
    /// Newest result of each control.
    pub controls: BTreeMap<ControlName, ControlState>,
    /// Newest answer of each resolver for each name and family.
    pub answers: BTreeMap<(DomainName, ResolverName, Family), AnswerState>,
    /// What became of each address for each target.
    pub reach: BTreeMap<(Target, IpAddr), Run>,
    /// How far each endpoint's checks got.
    pub endpoints: BTreeMap<ResolverName, EndpointRun>,
}

/// Why a vantage is suspected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It showed a node's proof of life that does not hold.
    ProofInvalid,
    /// Two machines report under its identity.
    Cloned,
}

/// What a vantage did that no honest one does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suspicion {
    /// What.
    pub why: Why,
    /// When it was last heard of.
    pub at: Timestamp,
    /// What shows it, where an observation does.
    pub shown: Option<ObservationId>,
}

/// Newest result of a control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlState {
    /// How it ended.
    pub outcome: Outcome,
    /// When.
    pub at: Timestamp,
    /// When something last answered.
    pub last_answered_at: Option<Timestamp>,
    /// Its observation.
    pub id: ObservationId,
}

/// Newest answer of a resolver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerState {
    /// How the newest resolution ended.
    pub outcome: Outcome,
    /// Its addresses, without order.
    pub addresses: BTreeSet<IpAddr>,
    /// What came beside it.
    pub marks: Marks,
    /// When it ended.
    pub at: Timestamp,
    /// Since when the same answer (outcome and addresses) has been given without another between.
    pub since: Timestamp,
    /// How many times in a row.
    pub times: u32,
    /// When they became enough by count and span.
    pub confirmed_at: Option<Timestamp>,
    /// Its observation.
    pub id: ObservationId,
}

impl AnswerState {
    /// Whether a later one agrees with it. In which way no reply came is all the same, and who forges may give another address
    /// each time: that is the same fault.
    fn agrees(&self, later: &Self) -> bool {
        let forged = later.marks.injected || later.marks.bogus;
        let mute = !self.outcome.is_reply() && !later.outcome.is_reply();
        (mute || self.outcome == later.outcome)
            && self.marks == later.marks
            && (forged || self.addresses == later.addresses)
    }
}

/// What a reply says besides its content, as far as judging reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    /// A second, different reply came.
    pub injected: bool,
    /// The signatures do not hold, by the agent's own validation.
    pub bogus: bool,
    /// The resolver says that the zone's signatures do not hold.
    pub zone_broken: bool,
    /// The resolver says that it keeps the answer back.
    pub kept_back: bool,
}

impl Marks {
    fn of(outcome: Outcome, particulars: Particulars) -> Self {
        Self {
            injected: particulars.second_reply,
            bogus: particulars.validation == Some(Validation::Bogus),
            zone_broken: particulars.zone_broken(),
            // Quad9 denies what it blocks, and clears RA.
            kept_back: particulars.kept_back() || (outcome == Outcome::Nxdomain && particulars.recursion_unavailable),
        }
    }
}

/// How the checks of one endpoint at one vantage ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointRun {
    /// The newest that says something of the endpoint.
    pub check: EndpointCheck,
    /// What it comes to.
    pub class: Class,
    /// When it ended.
    pub at: Timestamp,
    /// Checks in a row of the same class, the newest included.
    pub times: u32,
    /// First of them.
    pub since: Timestamp,
    /// When they became enough by count and span.
    pub confirmed_at: Option<Timestamp>,
    /// They, at most [`EVIDENCE_MAX`].
    pub evidence: Vec<ObservationId>,
}

/// What became of one address for one target at one vantage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Newest outcome that says something about the target.
    pub outcome: Outcome,
    /// When.
    pub at: Timestamp,
    /// Failures in a row, the newest included; 0 after a success.
    pub failures: u32,
    /// First of them.
    pub failing_since: Option<Timestamp>,
    /// When the failures became enough by count and span.
    pub confirmed_at: Option<Timestamp>,
    /// Successes in a row, the newest included; 0 after a failure.
    pub successes: u32,
    /// First of them.
    pub good_since: Option<Timestamp>,
    /// What became of the node's proof of life in the newest success; `None`: it is not asked for.
    pub proof: Option<Proof>,
    /// What its single attempts say.
    pub gray: Gray,
    /// Newest success, also an old one.
    pub last_success: Option<(Timestamp, ObservationId)>,
    /// Observations of the current run, at most [`EVIDENCE_MAX`].
    pub evidence: Vec<ObservationId>,
}

impl Fold {
    /// An empty fold of a coordinator that has been able to hear its agents since `moment`. Its own
    /// gap before that is unknown time: no vantage counts as silent because of it.
    #[must_use]
    pub fn listening_since(moment: Timestamp) -> Self {
        Self { listening_since: Some(moment), ..Self::default() }
    }

    /// How long a vantage has not been heard, counted from when it could have been.
    #[must_use]
    pub fn unheard_for(&self, name: &VantageName, now: Timestamp) -> Duration {
        let heard = self.vantages.get(name).and_then(|state| state.last_report_at);
        heard.max(self.listening_since).map_or(Duration::MAX, |since| now.since(since))
    }

    /// Adds one observation. One that was folded already, or is older than what the same subject
    /// last showed, is history and changes nothing: a straggler cannot turn the state back.
    pub fn apply(&mut self, topology: &Topology, observation: &Observation) {
        if self.last_id.is_some_and(|last| observation.id <= last)
            || !topology.vantages.contains_key(&observation.vantage)
        {
            return;
        }
        self.last_id = Some(observation.id);
        let state = self.vantages.entry(observation.vantage.clone()).or_default();
        if observation.late {
            state.last_late_at = state.last_late_at.max(Some(observation.received_at));
            return;
        }
        state.last_report_at = state.last_report_at.max(Some(observation.received_at));
        if observation.particulars.proof == Some(Proof::Invalid) {
            state.suspect(Suspicion {
                why: Why::ProofInvalid,
                at: observation.received_at,
                shown: Some(observation.id),
            });
        }
        match &observation.fact {
            Fact::Resolution(resolution) => state.apply_resolution(resolution, observation, &topology.policy),
            Fact::Connection(connection) => state.apply_connection(connection, observation, &topology.policy),
            Fact::ControlCheck(check) => state.apply_control(check, observation),
            Fact::EndpointCheck(check) => state.apply_endpoint(check, observation, &topology.policy),
            // Records of the agent and of the path, which decide nothing.
            Fact::Path(_) | Fact::Loss(_) | Fact::Missed(_) => {}
        }
    }

    /// Notes that two machines reported under a vantage's identity, as streams show it and observations cannot.
    pub fn note_clone(&mut self, topology: &Topology, vantage: &VantageName, at: Timestamp) {
        if topology.vantages.contains_key(vantage) {
            let state = self.vantages.entry(vantage.clone()).or_default();
            state.suspect(Suspicion { why: Why::Cloned, at, shown: None });
        }
    }

    /// Key of the newest observation folded in.
    #[must_use]
    pub fn last_id(&self) -> Option<ObservationId> {
        self.last_id
    }

    /// What one vantage last said.
    #[must_use]
    pub fn vantage(&self, name: &VantageName) -> Option<&VantageState> {
        self.vantages.get(name)
    }

    /// What each vantage last said.
    pub fn vantages(&self) -> impl Iterator<Item = (&VantageName, &VantageState)> {
        self.vantages.iter()
    }
}

impl VantageState {
    fn suspect(&mut self, suspicion: Suspicion) {
        if self.suspicion.is_none_or(|known| known.at <= suspicion.at) {
            self.suspicion = Some(suspicion);
        }
    }

    fn apply_resolution(&mut self, resolution: &Resolution, observation: &Observation, policy: &Policy) {
        let key = (resolution.name.clone(), resolution.resolver.clone(), resolution.family);
        let addresses: BTreeSet<IpAddr> = resolution.addresses.iter().copied().collect();
        let old = self.answers.get(&key);
        if old.is_some_and(|old| old.at > observation.at) {
            return;
        }
        let mut state = AnswerState {
            outcome: resolution.outcome,
            addresses,
            marks: Marks::of(resolution.outcome, observation.particulars),
            at: observation.at,
            since: observation.at,
            times: 1,
            confirmed_at: None,
            id: observation.id,
        };
        if let Some(old) = old.filter(|old| old.agrees(&state)) {
            (state.since, state.times) = (old.since, old.times.saturating_add(1));
            state.confirmed_at = old.confirmed_at;
        }
        let enough = chance::enough(policy, self.recent, state.times);
        if enough && state.at.since(state.since) >= policy.span_min && state.confirmed_at.is_none() {
            state.confirmed_at = Some(state.at);
        }
        self.answers.insert(key, state);
    }

    fn apply_control(&mut self, check: &ControlCheck, observation: &Observation) {
        // Of the newest check of any control.
        let newest = self.controls.values().map(|known| known.at).max();
        if newest.is_none_or(|newest| newest <= observation.at) {
            let Particulars { clock_offset_ms, recent, .. } = observation.particulars;
            self.clock_offset_ms = clock_offset_ms.or(self.clock_offset_ms);
            self.recent = recent.or(self.recent);
        }
        let old = self.controls.get(&check.control);
        if old.is_some_and(|old| old.at > observation.at) {
            return;
        }
        let answered = check.outcome.says() == Says::Works;
        let last_answered_at = if answered { Some(observation.at) } else { old.and_then(|old| old.last_answered_at) };
        let state = ControlState { outcome: check.outcome, at: observation.at, last_answered_at, id: observation.id };
        self.controls.insert(check.control.clone(), state);
    }

    fn apply_connection(&mut self, connection: &Connection, observation: &Observation, policy: &Policy) {
        let key = (connection.target.clone(), connection.address);
        if self.reach.get(&key).is_some_and(|run| run.at > observation.at) {
            return;
        }
        if self.reach.len() >= REACH_MAX && !self.reach.contains_key(&key) {
            self.forget_longest_unseen();
        }
        let run = self.reach.entry(key).or_insert_with(|| Run::new(connection.outcome, observation.at));
        let (made, connected) = (connection.attempts, connection.attempts_connected);
        // A probe that did not come through at all is the run's business.
        if connected > 0 && made >= connected {
            run.gray.add(self.attempts, made, connected, policy.k_min);
            self.attempts.add(made, made.saturating_sub(connected));
        }
        run.add(connection.outcome, observation, policy, self.recent);
    }

    fn apply_endpoint(&mut self, check: &EndpointCheck, observation: &Observation, policy: &Policy) {
        let Some(class) = Class::of(check) else { return };
        let old = self.endpoints.get_mut(&check.resolver);
        let run = match old {
            Some(old) if old.at > observation.at => return,
            Some(old) => old,
            None => {
                let run = EndpointRun::new(check.clone(), class, observation.at);
                self.endpoints.entry(check.resolver.clone()).or_insert(run)
            }
        };
        if run.class != class {
            *run = EndpointRun::new(check.clone(), class, observation.at);
        }
        run.add(check, observation, policy, self.recent);
    }

    fn forget_longest_unseen(&mut self) {
        let oldest = self.reach.iter().min_by_key(|(_, run)| run.at).map(|(key, _)| key.clone());
        if let Some(key) = oldest {
            self.reach.remove(&key);
        }
    }
}

impl EndpointRun {
    fn new(check: EndpointCheck, class: Class, at: Timestamp) -> Self {
        Self { check, class, at, times: 0, since: at, confirmed_at: None, evidence: Vec::new() }
    }

    fn add(&mut self, check: &EndpointCheck, observation: &Observation, policy: &Policy, recent: Option<Recent>) {
        self.check.clone_from(check);
        self.at = observation.at;
        self.times = self.times.saturating_add(1);
        let enough = chance::enough(policy, recent, self.times) && self.at.since(self.since) >= policy.span_min;
        if enough && self.confirmed_at.is_none() {
            self.confirmed_at = Some(self.at);
        }
        if self.evidence.len() == EVIDENCE_MAX {
            self.evidence.pop();
        }
        self.evidence.push(observation.id);
    }
}

impl Run {
    fn new(outcome: Outcome, at: Timestamp) -> Self {
        Self {
            outcome,
            at,
            failures: 0,
            failing_since: None,
            confirmed_at: None,
            successes: 0,
            good_since: None,
            proof: None,
            gray: Gray::default(),
            last_success: None,
            evidence: Vec::new(),
        }
    }

    fn add(&mut self, outcome: Outcome, observation: &Observation, policy: &Policy, recent: Option<Recent>) {
        self.at = observation.at;
        self.outcome = outcome;
        match outcome.says() {
            Says::Works => {
                if self.successes == 0 {
                    self.evidence.clear();
                    self.good_since = Some(observation.at);
                }
                self.successes = self.successes.saturating_add(1);
                self.last_success = Some((observation.at, observation.id));
                self.proof = observation.particulars.proof;
                (self.failures, self.failing_since, self.confirmed_at) = (0, None, None);
            }
            Says::Fails => {
                if self.failures == 0 {
                    self.evidence.clear();
                    self.failing_since = Some(observation.at);
                }
                self.failures = self.failures.saturating_add(1);
                (self.successes, self.good_since) = (0, None);
                let enough = chance::enough(policy, recent, self.failures) && self.failing_for() >= policy.span_min;
                if enough && self.confirmed_at.is_none() {
                    self.confirmed_at = Some(observation.at);
                }
            }
            // The run neither grows nor ends: the vantage could not ask.
            Says::Nothing => return,
        }
        if self.evidence.len() == EVIDENCE_MAX {
            // Keep the first ones, which decided, and the newest.
            self.evidence.pop();
        }
        self.evidence.push(observation.id);
    }

    /// How long the current run of failures spans.
    #[must_use]
    pub fn failing_for(&self) -> Duration {
        self.failing_since.map_or(Duration::ZERO, |since| self.at.since(since))
    }

    /// How long the current run of successes spans.
    #[must_use]
    pub fn good_for(&self) -> Duration {
        self.good_since.map_or(Duration::ZERO, |since| self.at.since(since))
    }
}
