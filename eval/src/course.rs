//! A case run as a coordinator runs: observations are folded as they arrive, everything is judged at each moment, the
//! incidents' book is kept, and at the end the planner is asked about what is open.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use parallax_decide::call::Call;
use parallax_decide::change::Change;
use parallax_decide::endpoint::EndpointJudgement;
use parallax_decide::finding::{self, Finding, Reason, Subject};
use parallax_decide::fold::Fold;
use parallax_decide::incident::{Book, IncidentId, Open, Steady, Transition, outline};
use parallax_decide::judge::{self, Judgement};
use parallax_decide::names::{Addresses, NameError, NodeName, ServiceName, VantageName};
use parallax_decide::node::NodeJudgement;
use parallax_decide::observation::{Observation, Target};
use parallax_decide::plan::{
    self, Decision, NoPlan, Plan, PlanId, PlanPurpose, PlanReason, PlanRecord, PlanStatus, Record, Situation,
};
use parallax_decide::topology::Mode;
use parallax_decide::verdict::{
    AddressVerdict, AnswerVerdict, EndpointVerdict, FleetVerdict, NodeVerdict, VantageVerdict,
};

use crate::action::Action;
use crate::case::{Case, Kind, Node};
use crate::world::{LISTENING, NOW, Names, World, build, node_address, node_name};

/// What came of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Vantages that are not ok.
    pub vantages: BTreeMap<VantageName, String>,
    /// The verdict of the subject at each vantage.
    pub verdicts: BTreeMap<VantageName, String>,
    /// The finding, as the file writes it.
    pub finding: String,
    /// What was done.
    pub actions: BTreeSet<Action>,
}

/// How long the run goes on after the last observation, for what must be seen for a while before it counts.
const AFTERMATH: Duration = Duration::from_secs(45);

/// One moment to the next.
const STEP: Duration = Duration::from_secs(1);

/// Runs a case.
///
/// # Errors
/// When a name of the case cannot be one.
pub fn run(case: &Case) -> Result<Outcome, NameError> {
    let world = build(case)?;
    let mut course = Course::new(case, &world)?;
    let first = world.observations.first().map_or(NOW, |first| first.received_at);
    let mut pending = world.observations.iter().peekable();
    let mut now = first;
    while now < NOW {
        course.hear(&mut pending, now);
        course.step(now);
        now = now.plus(STEP);
    }
    course.hear(&mut pending, NOW);
    let judgement = course.step(NOW);
    let mut actions = course.actions_at(&judgement);
    now = NOW;
    while now < NOW.plus(AFTERMATH) {
        now = now.plus(STEP);
        course.step(now);
    }
    actions.append(&mut course.told);
    if actions.is_empty() {
        actions.insert(Action::none());
    }
    Ok(Outcome {
        vantages: not_ok(&judgement),
        verdicts: course.verdicts(&judgement),
        finding: course.finding(&judgement),
        actions,
    })
}

fn not_ok(judgement: &Judgement) -> BTreeMap<VantageName, String> {
    let faulty = judgement.vantages.iter().filter(|(_, judged)| judged.verdict != VantageVerdict::Ok);
    faulty.map(|(vantage, judged)| (vantage.clone(), judged.verdict.word().to_owned())).collect()
}

struct Course<'a> {
    case: &'a Case,
    world: &'a World,
    fold: Fold,
    book: Book,
    plans: Vec<PlanRecord>,
    serving: BTreeMap<ServiceName, NodeName>,
    incidents: i64,
    /// What incidents that opened or changed said.
    told: BTreeSet<Action>,
}

impl<'a> Course<'a> {
    fn new(case: &'a Case, world: &'a World) -> Result<Self, NameError> {
        let mut course = Self {
            case,
            world,
            fold: Fold::listening_since(NOW.minus(LISTENING)),
            book: Book::default(),
            plans: Vec::new(),
            serving: BTreeMap::new(),
            incidents: 0,
            told: BTreeSet::new(),
        };
        match case.subject.kind {
            Kind::Managed => course.remember(world)?,
            Kind::Answer | Kind::Endpoint => course.remember_switches()?,
        }
        Ok(course)
    }

    /// The record's history: the incident that is open since the record was changed, and its plans.
    fn remember(&mut self, world: &World) -> Result<(), NameError> {
        let state = &self.case.state;
        let record = state.record.unwrap_or(Node::Native);
        self.serving.insert(world.names.service.clone(), node_name(record)?);
        if record == Node::Native && !state.budget_spent {
            return Ok(());
        }
        let switched_at = NOW.minus(Duration::from_secs(state.since_switch_s.unwrap_or(1800).into()));
        let finding = dead_native(world)?;
        let id = IncidentId(1);
        self.incidents = 1;
        let open = Open {
            id,
            subject: finding.subject.clone(),
            kind: finding.kind.clone(),
            members: finding.members.clone(),
            opened_at: switched_at,
            // Changes that were made and taken back were made for something else than what is found now.
            outline: (record != Node::Native).then(|| outline(&finding)),
            well_since: None,
            steady: Steady::default(),
        };
        self.book = Book::new([open]);
        let to = if record == Node::Native { Node::Fallback1 } else { record };
        let times = if state.budget_spent { world.topology.policy.changes_max } else { 1 };
        let status = if record == Node::Native { PlanStatus::Undone } else { PlanStatus::Verified };
        for number in 1..=times {
            let Some(service) = world.topology.services.get(&world.names.service) else { continue };
            let set = |node: Node| Addresses::one(node_address(node));
            let change = Change::Repoint {
                name: service.hostname.clone(),
                expects: set(Node::Native)?,
                sets: set(to)?,
                ttl_s: service.ttl_s,
            };
            let plan = Plan {
                purpose: PlanPurpose::Remedy,
                undoes: None,
                driver: service.driver.clone(),
                vantage: None,
                item: world.names.service.to_string(),
                change,
                reason: PlanReason::ProofFailed { why: "of before this case".to_owned() },
                expires_at: switched_at,
                mode: Mode::Act,
            };
            self.plans.push(PlanRecord {
                id: PlanId(number.into()),
                incident: id,
                epoch: 1,
                created_at: switched_at,
                status,
                applied_at: Some(switched_at),
                verified_at: Some(switched_at),
                plan,
            });
        }
        Ok(())
    }

    /// Changes that were made at places whose budget is spent.
    fn remember_switches(&mut self) -> Result<(), NameError> {
        let spent = self.case.observe.iter().filter(|(_, seen)| seen.budget_spent);
        for (vantage, _) in spent {
            for number in 1..=self.world.topology.policy.changes_max {
                let canary = self.world.names.canary.clone();
                let change =
                    Change::Pin { name: canary, addresses: Addresses::one(node_address(Node::Native))?, ttl_s: 30 };
                let plan = Plan {
                    purpose: PlanPurpose::Remedy,
                    undoes: None,
                    driver: "pin".parse()?,
                    vantage: Some(vantage.clone()),
                    item: vantage.to_string(),
                    change,
                    reason: PlanReason::ProofFailed { why: "of before this case".to_owned() },
                    expires_at: NOW,
                    mode: Mode::Act,
                };
                self.plans.push(PlanRecord {
                    id: PlanId(number.into()),
                    incident: IncidentId(0),
                    epoch: 1,
                    created_at: NOW,
                    status: PlanStatus::RolledBack,
                    applied_at: Some(NOW),
                    verified_at: None,
                    plan,
                });
            }
        }
        Ok(())
    }

    fn hear<'b>(
        &mut self,
        pending: &mut std::iter::Peekable<impl Iterator<Item = &'b Observation>>,
        now: parallax_decide::time::Timestamp,
    ) {
        while let Some(observation) = pending.next_if(|observation| observation.received_at <= now) {
            self.fold.apply(&self.world.topology, observation);
        }
    }

    /// One tick of a coordinator, without its drivers.
    fn step(&mut self, now: parallax_decide::time::Timestamp) -> Judgement {
        let topology = &self.world.topology;
        let judgement = judge::judge(topology, &self.fold, now);
        let findings = finding::compare(topology, &judgement, &self.serving);
        let in_force = self.plans.iter().filter(|plan| plan.holds_open()).map(|plan| plan.incident).collect();
        for transition in self.book.step(topology, &judgement, &findings, &self.serving, &in_force) {
            match transition {
                Transition::Open { finding } => {
                    self.incidents += 1;
                    self.book.opened(IncidentId(self.incidents), &finding, now);
                    self.tell(&finding);
                }
                Transition::Change { finding, .. } => {
                    self.book.changed(&finding);
                    self.tell(&finding);
                }
                Transition::Close { id, .. } => self.book.closed(id, judgement.at),
            }
        }
        judgement
    }

    /// What an incident that opens or changes says.
    fn tell(&mut self, finding: &Finding) {
        if matches!(finding.subject, Subject::Node { .. }) {
            // A fallback that serves nothing: an incident of its own.
            return;
        }
        match &finding.reason {
            // A wrong clock is for its owner, a suspect for those who look after security; the others are about the uplink.
            Reason::Vantage { judgement }
                if matches!(judgement.verdict, VantageVerdict::ClockSkewed | VantageVerdict::Suspect) =>
            {
                self.told.insert(Action::plain("alert"));
            }
            Reason::Vantage { .. } => {
                self.told.insert(Action::of("vantage_alert", finding.subject.name()));
            }
            Reason::Fleet { .. } => {
                self.told.extend([Action::plain("alert"), Action::plain("freeze")]);
            }
            Reason::UnroutableHere { .. }
            | Reason::DeadEverywhere { .. }
            | Reason::AnswerUnusable { .. }
            | Reason::Endpoint { .. }
            | Reason::Node { .. } => {
                self.told.insert(Action::plain("alert"));
            }
        }
        let managed = self.case.subject.kind == Kind::Managed;
        self.told.extend(finding.calls.iter().map(|call| match call {
            Call::Security => Action::plain("security"),
            Call::PathEvidence { .. } if managed => Action::plain("path_ticket"),
            Call::PathEvidence { vantage } => Action::of("path_ticket", vantage),
            Call::Exclude { vantage } => Action::of("exclude", vantage),
            Call::FixConfiguration => Action::plain("fix_config"),
            Call::FixClock { vantage } => Action::of("fix_clock", vantage),
            Call::SlowDown { vantage } => Action::of("backoff", vantage),
        }));
    }

    /// What is asked for and planned at the moment of judging.
    fn actions_at(&self, judgement: &Judgement) -> BTreeSet<Action> {
        let mut actions = BTreeSet::new();
        if judgement.fleet != FleetVerdict::Ok {
            return actions;
        }
        if self.confirms(judgement) {
            actions.insert(Action::plain("confirm"));
        }
        match self.case.subject.kind {
            Kind::Answer | Kind::Endpoint => self.remedies(judgement, &mut actions),
            Kind::Managed => self.repoints(judgement, &mut actions),
        }
        actions
    }

    /// Whether somebody who may accuse sees failures, and the verdict is not settled: its agent's burst goes on, and others
    /// are asked.
    fn confirms(&self, judgement: &Judgement) -> bool {
        let Names { live, in_use, canary, .. } = &self.world.names;
        let target = Target::Name(canary.clone());
        let mut speaks = judgement.vantages.iter().filter(|(_, standing)| standing.may_accuse());
        let at_place = speaks.any(|(vantage, _)| {
            let fails = |address: &IpAddr| {
                let reach = judgement.reach.get(&(vantage.clone(), target.clone(), *address));
                reach.is_some_and(|reach| reach.dead() || reach.suspected())
            };
            let answer = judgement.answer(vantage, canary, live);
            let open = answer.filter(|answer| answer.verdict == AnswerVerdict::InsufficientEvidence);
            let endpoint = judgement.endpoint(vantage, in_use);
            open.is_some_and(|answer| answer.addresses.iter().any(fails))
                || endpoint.is_some_and(EndpointJudgement::in_question)
        });
        let of_node = |node: &NodeJudgement| {
            let in_question = !node.suspected_at.is_empty() || !node.accusers.is_empty();
            node.verdict == NodeVerdict::InsufficientEvidence && in_question
        };
        at_place || judgement.nodes.values().any(of_node)
    }

    fn situation<'b>(
        &'b self,
        judgement: &'b Judgement,
        incident: &'b Open,
        records: &'b BTreeMap<ServiceName, Record>,
        relapses: &'b BTreeMap<String, u32>,
    ) -> Situation<'b> {
        let (topology, fold, plans) = (&self.world.topology, &self.fold, self.plans.as_slice());
        Situation { topology, fold, judgement, incident, plans, records, relapses }
    }

    /// What is planned or offered for what places are given.
    fn remedies(&self, judgement: &Judgement, actions: &mut BTreeSet<Action>) {
        let (records, relapses) = (BTreeMap::new(), BTreeMap::new());
        // What is planned the moment the incident opens.
        for finding in finding::compare(&self.world.topology, judgement, &self.serving) {
            let incident = as_open(&finding);
            for decision in plan::plan(self.situation(judgement, &incident, &records, &relapses)) {
                match decision {
                    Decision::Plan(plan) => {
                        actions.extend(plan.vantage.map(|vantage| Action::of("override_answer", vantage)));
                    }
                    Decision::Hold { why: NoPlan::SwitchByHand { vantage, to, then_flush }, .. } => {
                        actions.insert(Action::of("switch_resolver", format_args!("{vantage}:{to}")));
                        if then_flush {
                            actions.insert(Action::of("flush_cache", vantage));
                        }
                    }
                    // Of an endpoint: there is no other that passes, or it was changed often enough.
                    Decision::Hold { why: NoPlan::NoProvenTarget | NoPlan::BudgetSpent { .. }, .. }
                        if self.case.subject.kind == Kind::Endpoint =>
                    {
                        actions.insert(Action::plain("hold"));
                    }
                    Decision::Hold { .. } => {}
                }
            }
        }
    }

    fn repoints(&self, judgement: &Judgement, actions: &mut BTreeSet<Action>) {
        let service = &self.world.names.service;
        let native = judgement.nodes.values().find(|_| true);
        let record = self.case.state.record.unwrap_or(Node::Native);
        let well = record == Node::Native && self.native_verdict(judgement) == Some(NodeVerdict::Ok);
        if native.is_none() || well {
            return;
        }
        let records = BTreeMap::from([(
            service.clone(),
            Record::Found(match Addresses::one(node_address(record)) {
                Ok(addresses) => addresses,
                Err(_) => return,
            }),
        )]);
        let relapses = BTreeMap::from([(service.to_string(), self.case.state.relapses)]);
        let subject = Subject::Service { service: service.clone() };
        let open = self.book.open().find(|open| open.subject == subject).cloned();
        let incident = open.unwrap_or(Open {
            id: IncidentId(0),
            subject,
            kind: String::new(),
            members: BTreeSet::new(),
            opened_at: NOW,
            outline: None,
            well_since: None,
            steady: Steady::default(),
        });
        for decision in plan::plan(self.situation(judgement, &incident, &records, &relapses)) {
            match decision {
                Decision::Hold { .. } => {
                    actions.insert(Action::plain("hold"));
                }
                Decision::Plan(plan) if plan.mode == Mode::Propose => {
                    actions.extend([Action::plain("ask_operator"), Action::plain("hold")]);
                }
                Decision::Plan(plan) => match plan.reason {
                    PlanReason::NativeBack { .. } => {
                        actions.insert(Action::plain("return"));
                    }
                    PlanReason::NodeGone { to, .. } => {
                        actions.insert(Action::of("failover", to));
                    }
                    PlanReason::ProvenHere { .. }
                    | PlanReason::NativeUsable { .. }
                    | PlanReason::ProofFailed { .. } => {}
                },
            }
        }
    }

    fn native_verdict(&self, judgement: &Judgement) -> Option<NodeVerdict> {
        let native = node_name(Node::Native).ok()?;
        judgement.nodes.get(&native).map(|node| node.verdict)
    }

    /// The subject's verdict at each vantage.
    fn verdicts(&self, judgement: &Judgement) -> BTreeMap<VantageName, String> {
        let Names { live, canary, .. } = &self.world.names;
        let verdict = |vantage: &VantageName| match self.case.subject.kind {
            Kind::Answer => {
                let answer = judgement.answer(vantage, canary, live);
                answer.map_or(AnswerVerdict::InsufficientEvidence, |answer| answer.verdict).word()
            }
            Kind::Endpoint => {
                let judged = judgement.endpoint(vantage, &self.world.names.in_use);
                judged.map_or(EndpointVerdict::InsufficientEvidence, |judged| judged.verdict).word()
            }
            Kind::Managed => {
                let key = node_name(Node::Native)
                    .ok()
                    .map(|node| (vantage.clone(), Target::Node(node), node_address(Node::Native)));
                let reach = key.and_then(|key| judgement.reach.get(&key));
                reach.map_or(AddressVerdict::Unmeasured, |reach| reach.verdict).word()
            }
        };
        self.case.observe.keys().map(|vantage| (vantage.clone(), verdict(vantage).to_owned())).collect()
    }

    /// The finding as the file writes it.
    fn finding(&self, judgement: &Judgement) -> String {
        if judgement.fleet != FleetVerdict::Ok {
            return judgement.fleet.word().to_owned();
        }
        if self.case.subject.kind == Kind::Managed {
            return self.native_verdict(judgement).unwrap_or(NodeVerdict::InsufficientEvidence).word().to_owned();
        }
        let mut faults = BTreeSet::new();
        for finding in finding::compare(&self.world.topology, judgement, &self.serving) {
            if let Reason::Endpoint { places, .. } = &finding.reason {
                faults.extend(places.iter().map(|(place, judged)| format!("{}@{place}", judged.verdict)));
                continue;
            }
            let places: Vec<VantageName> = match (&finding.reason, finding.subject.vantage()) {
                (Reason::Vantage { .. } | Reason::Fleet { .. }, _) => Vec::new(),
                (Reason::DeadEverywhere { vantages, .. }, _) => vantages.iter().cloned().collect(),
                (_, Some(vantage)) => vec![vantage.clone()],
                (_, None) => Vec::new(),
            };
            faults.extend(places.iter().map(|place| format!("{}@{place}", finding.kind)));
        }
        if faults.is_empty() { "none".to_owned() } else { faults.into_iter().collect::<Vec<_>>().join(",") }
    }
}

fn as_open(finding: &Finding) -> Open {
    Open {
        id: IncidentId(0),
        subject: finding.subject.clone(),
        kind: finding.kind.clone(),
        members: finding.members.clone(),
        opened_at: NOW,
        outline: None,
        well_since: None,
        steady: Steady::default(),
    }
}

/// What was found of the native node when the record was changed.
fn dead_native(world: &World) -> Result<Finding, NameError> {
    let verdict = NodeVerdict::DeadEverywhere;
    let hostname = world.topology.services.get(&world.names.service).map(|service| service.hostname.to_string());
    Ok(Finding {
        subject: Subject::Service { service: world.names.service.clone() },
        kind: verdict.word().to_owned(),
        members: hostname.into_iter().collect(),
        reason: Reason::Node {
            node: node_name(Node::Native)?,
            judgement: NodeJudgement {
                verdict,
                alive_at: Vec::new(),
                unproven_at: Vec::new(),
                held_at: Vec::new(),
                partial_at: Vec::new(),
                accusers: BTreeMap::new(),
                accusing_domains: BTreeSet::new(),
                suspected_at: Vec::new(),
                evidence: Vec::new(),
            },
        },
        calls: BTreeSet::new(),
        evidence: Vec::new(),
    })
}
