//! A small fleet on a moved clock: a world with faults, agents that measure it, and the loop of the
//! coordinator around the decisions. No runtime, no database: what is tested are the decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use parallax_decide::change::Standing;
use parallax_decide::finding::{self, Finding};
use parallax_decide::fold::Fold;
use parallax_decide::guard::{self, Facts, Refusal};
use parallax_decide::incident::{Book, IncidentId, Transition};
use parallax_decide::judge::{self, Judgement};
use parallax_decide::names::{Addresses, DomainName, FailureDomain, NodeName, ServiceName, VantageName};
use parallax_decide::observation::*;
use parallax_decide::plan::{self, Decision, NoPlan, PlanId, PlanPurpose, PlanRecord, PlanStatus, Record, Situation};
use parallax_decide::time::Timestamp;
use parallax_decide::topology::*;
use parallax_decide::verify::{self, Proof};
use parallax_decide::wanted::{self, Asked};

pub(crate) const BRANCH: &str = "branch-kazan";
pub(crate) const WAN: &str = "wan-gw";
pub(crate) const DE: &str = "de-fra";
pub(crate) const CDNJS: &str = "cdnjs.cloudflare.com";
pub(crate) const FI: &str = "95.216.10.10";
pub(crate) const DE_NODE: &str = "49.12.20.20";
pub(crate) const US: &str = "5.161.30.30";

pub(crate) fn n<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

pub(crate) fn set(texts: &[&str]) -> BTreeSet<IpAddr> {
    texts.iter().map(|text| n(text)).collect()
}

/// Three vantages in three failure domains, one canary, one service with three nodes, policy fast.
pub(crate) fn topology() -> Topology {
    let place = |domain: &str, pins: bool| Vantage {
        failure_domain: n::<FailureDomain>(domain),
        upstream: Some(n("doh-cf")),
        pin_driver: pins.then(|| n("pin")),
        pin_mode: Mode::Act,
        switch_by_hand: false,
        audience: true,
    };
    let resolver = |transport, role| Resolver { transport, role, validates: true, filtering_wanted: false };
    let node = |address: &str| Node { address: n(address), port: 443, tls: true, proof: false };
    let control = |negative| Control { kind: if negative { ControlKind::Negative } else { ControlKind::Positive } };
    Topology {
        vantages: BTreeMap::from([
            (n(BRANCH), place("isp-rt", true)),
            (n(WAN), place("isp-hq", false)),
            (n(DE), place("isp-fra", false)),
        ]),
        resolvers: BTreeMap::from([
            (n("live"), resolver(Transport::Live, Role::Live)),
            (n("doh-cf"), resolver(Transport::Doh, Role::Primary)),
            (n("doh-family"), resolver(Transport::Doh, Role::Reserve(1))),
            (n("plain-google"), resolver(Transport::Plain, Role::ObserveOnly)),
        ]),
        canaries: BTreeMap::from([(n(CDNJS), Canary { port: 443, tls: true })]),
        controls: BTreeMap::from([
            (n("control-a"), control(false)),
            (n("control-b"), control(false)),
            (n("control-c"), control(false)),
            (n("negative"), control(true)),
        ]),
        nodes: BTreeMap::from([(n("fi"), node(FI)), (n("de"), node(DE_NODE)), (n("us"), node(US))]),
        services: BTreeMap::from([(
            n("fi"),
            Service {
                hostname: n("fi.montana.quest"),
                ttl_s: 5,
                native: n("fi"),
                fallbacks: vec![n("de"), n("us")],
                driver: n("auth"),
                mode: Mode::Act,
                audience_failover: false,
            },
        )]),
        stubs: BTreeSet::new(),
        policy: Policy::fast(),
    }
}

/// What agents meet when they measure.
#[derive(Debug, Clone)]
pub(crate) struct World {
    /// What each vantage is handed for the canary, by resolver; "live" is what its clients get.
    pub(crate) given: BTreeMap<(&'static str, &'static str), BTreeSet<IpAddr>>,
    /// Addresses with no path from a vantage.
    pub(crate) no_path: BTreeSet<(&'static str, IpAddr)>,
    /// Addresses dead for everybody.
    pub(crate) dead: BTreeSet<IpAddr>,
    /// Whether what is dead refuses; else it is silent.
    pub(crate) refuses: bool,
    /// Vantages whose uplink is down.
    pub(crate) island: BTreeSet<&'static str>,
    /// Vantages that do not report.
    pub(crate) silent: BTreeSet<&'static str>,
    /// Pins in force by vantage.
    pub(crate) pins: BTreeMap<&'static str, BTreeSet<IpAddr>>,
    /// The service's record.
    pub(crate) record: BTreeSet<IpAddr>,
    /// A vantage that lies "alive" about everything.
    pub(crate) liar: Option<&'static str>,
}

pub(crate) const VANTAGES: [&str; 3] = [BRANCH, WAN, DE];
pub(crate) const RESOLVERS: [&str; 4] = ["live", "doh-cf", "doh-family", "plain-google"];

impl World {
    pub(crate) fn well() -> Self {
        let mut given = BTreeMap::new();
        for resolver in RESOLVERS {
            given.insert((BRANCH, resolver), set(&["104.26.6.10", "104.26.7.10"]));
            given.insert((WAN, resolver), set(&["8.6.112.0", "8.47.69.0"]));
            given.insert((DE, resolver), set(&["104.26.6.10", "172.66.40.10"]));
        }
        Self {
            given,
            // From the start: the branch's provider never had a path there.
            no_path: ["8.6.112.0", "8.47.69.0", "8.6.112.5"].map(|a| (BRANCH, n(a))).into(),
            dead: BTreeSet::new(),
            refuses: false,
            island: BTreeSet::new(),
            silent: BTreeSet::new(),
            pins: BTreeMap::new(),
            record: set(&[FI]),
            liar: None,
        }
    }

    /// The fault of case 1.
    pub(crate) fn hand_the_branch_the_pair(&mut self) {
        for resolver in RESOLVERS {
            self.given.insert((BRANCH, resolver), set(&["8.6.112.0", "8.47.69.0"]));
        }
        self.given.insert((BRANCH, "plain-google"), set(&["8.6.112.5"]));
    }

    fn reaches(&self, vantage: &'static str, address: IpAddr) -> bool {
        self.liar == Some(vantage)
            || !(self.dead.contains(&address)
                || self.island.contains(vantage)
                || self.no_path.contains(&(vantage, address)))
    }

    fn answer(&self, vantage: &'static str, name: &str, resolver: &'static str) -> BTreeSet<IpAddr> {
        if name != CDNJS {
            return self.record.clone();
        }
        match self.pins.get(vantage) {
            Some(pin) if resolver == "live" => pin.clone(),
            _ => self.given.get(&(vantage, resolver)).cloned().unwrap_or_default(),
        }
    }
}

/// The fleet and the coordinator's loop, one second a step.
pub(crate) struct Rig {
    pub(crate) topology: Topology,
    pub(crate) world: World,
    pub(crate) fold: Fold,
    pub(crate) book: Book,
    pub(crate) plans: Vec<PlanRecord>,
    pub(crate) now: Timestamp,
    pub(crate) log: Vec<Observation>,
    pub(crate) history: Vec<(Timestamp, String)>,
    pub(crate) holds: BTreeMap<String, NoPlan>,
    pub(crate) refusals: Vec<BTreeSet<Refusal>>,
    pub(crate) frozen: bool,
    pub(crate) relapses: BTreeMap<String, u32>,
    pub(crate) findings: Vec<Finding>,
    /// What comes beside the next observations.
    pub(crate) particulars: Particulars,
    /// Whether the next observations come too late to vote.
    pub(crate) late: bool,
    asked: Asked,
    incidents: i64,
    cursor: usize,
}

impl Rig {
    pub(crate) fn new(world: World) -> Self {
        Self {
            topology: topology(),
            world,
            fold: Fold::listening_since(Timestamp(1_000_000)),
            book: Book::default(),
            plans: Vec::new(),
            now: Timestamp(1_000_000),
            log: Vec::new(),
            history: Vec::new(),
            holds: BTreeMap::new(),
            refusals: Vec::new(),
            frozen: false,
            relapses: BTreeMap::new(),
            findings: Vec::new(),
            particulars: Particulars::default(),
            late: false,
            asked: Asked::default(),
            incidents: 0,
            cursor: 0,
        }
    }

    pub(crate) fn observe(&mut self, vantage: &str, fact: Fact) {
        let observation = Observation {
            id: ObservationId(self.log.len() as i64 + 1),
            vantage: n(vantage),
            at: self.now,
            received_at: self.now,
            purpose: Purpose::Scheduled,
            late: self.late,
            fact,
            particulars: self.particulars,
        };
        self.fold.apply(&self.topology, &observation);
        self.log.push(observation);
    }

    pub(crate) fn connect(&mut self, vantage: &'static str, target: Target, address: IpAddr) {
        let outcome = match (self.world.reaches(vantage, address), self.world.refuses) {
            (true, _) => Outcome::TlsOk,
            (false, true) => Outcome::ConnectionRefused,
            (false, false) => Outcome::Silent,
        };
        self.observe(
            vantage,
            Fact::Connection(Connection {
                target,
                address,
                port: 443,
                outcome,
                attempts: 1,
                attempts_connected: u16::from(outcome == Outcome::TlsOk),
            }),
        );
    }

    fn resolve(&mut self, vantage: &'static str, name: &str, resolver: &'static str) {
        let addresses = self.world.answer(vantage, name, resolver);
        self.observe(
            vantage,
            Fact::Resolution(Resolution {
                name: n(name),
                resolver: n(resolver),
                family: Family::V4,
                outcome: Outcome::Answered,
                addresses: addresses.iter().copied().collect(),
                ttl_s: 5,
            }),
        );
        for address in addresses {
            self.connect(vantage, Target::Name(n(name)), address);
        }
    }

    pub(crate) fn controls(&mut self, vantage: &'static str) {
        let up = !self.world.island.contains(vantage);
        for (control, outcome) in [("control-a", up), ("control-b", up), ("control-c", up), ("negative", false)] {
            let outcome = if outcome { Outcome::TlsOk } else { Outcome::Silent };
            self.observe(vantage, Fact::ControlCheck(ControlCheck { control: n(control), outcome }));
        }
    }

    fn measure(&mut self, vantage: &'static str) {
        self.controls(vantage);
        for resolver in RESOLVERS {
            self.resolve(vantage, CDNJS, resolver);
        }
        self.resolve(vantage, "fi.montana.quest", "live");
        for (node, address) in [("fi", FI), ("de", DE_NODE), ("us", US)] {
            self.connect(vantage, Target::Node(n(node)), n(address));
        }
        self.controls(vantage);
    }

    fn records(&self) -> BTreeMap<ServiceName, Record> {
        let record = match Addresses::new(self.world.record.iter().copied()) {
            Ok(found) => Record::Found(found),
            Err(_) => Record::Strange(self.world.record.clone()),
        };
        BTreeMap::from([(n("fi"), record)])
    }

    fn serving(&self) -> BTreeMap<ServiceName, NodeName> {
        let node = self.topology.nodes.iter().find(|(_, node)| self.world.record == BTreeSet::from([node.address]));
        node.map(|(name, _)| (n("fi"), name.clone())).into_iter().collect()
    }

    pub(crate) fn judge(&self) -> Judgement {
        judge::judge(&self.topology, &self.fold, self.now)
    }

    fn note(&mut self, what: impl Into<String>) {
        self.history.push((self.now, what.into()));
    }

    /// One second: agents measure on their grids, the coordinator asks, decides, acts and verifies.
    pub(crate) fn step(&mut self) {
        self.now = self.now.plus(Duration::from_secs(1));
        let second = self.now.0 / 1000;
        for (i, vantage) in VANTAGES.into_iter().enumerate() {
            if !self.world.silent.contains(vantage) && second % 5 == i as i64 {
                self.measure(vantage);
            }
        }
        let judgement = self.judge();
        for ask in self.asked.due(&self.topology, wanted::wanted(&self.topology, &judgement), self.now) {
            let vantage = VANTAGES.into_iter().find(|v| n::<VantageName>(v) == ask.vantage).unwrap();
            if !self.world.silent.contains(vantage) {
                self.connect(vantage, ask.target, ask.address);
            }
        }
        self.decide();
    }

    /// The coordinator's part of a step.
    pub(crate) fn decide(&mut self) {
        let judgement = self.judge();
        self.findings = finding::compare(&self.topology, &judgement, &self.serving());
        let in_force = self.plans.iter().filter(|p| p.holds_open()).map(|p| p.incident).collect();
        let findings = self.findings.clone();
        for transition in self.book.step(&self.topology, &judgement, &findings, &self.serving(), &in_force) {
            match transition {
                Transition::Open { finding } => {
                    self.incidents += 1;
                    self.book.opened(IncidentId(self.incidents), &finding, self.now);
                    self.note(format!("open {} {}", finding.subject.key(), finding.kind));
                }
                Transition::Change { finding, .. } => {
                    self.book.changed(&finding);
                    self.note(format!("change {} {}", finding.subject.key(), finding.kind));
                }
                Transition::Close { id, .. } => {
                    self.book.closed(id, judgement.at);
                    self.note("close");
                }
            }
        }
        self.verify(&judgement);
        self.plan(&judgement);
    }

    fn plan(&mut self, judgement: &Judgement) {
        let records = self.records();
        let open: Vec<_> = self.book.open().cloned().collect();
        for incident in open {
            let plans: Vec<PlanRecord> = self.plans.iter().filter(|p| p.incident == incident.id).cloned().collect();
            let (topology, fold) = (self.topology.clone(), self.fold.clone());
            let situation = Situation {
                topology: &topology,
                fold: &fold,
                judgement,
                incident: &incident,
                plans: &plans,
                records: &records,
                relapses: &self.relapses.clone(),
            };
            for decision in plan::plan(situation) {
                match decision {
                    Decision::Hold { item, why } => {
                        self.holds.insert(item, why);
                    }
                    Decision::Plan(plan) => {
                        let found = self.found(&plan);
                        let facts = Facts {
                            topology: &topology,
                            judgement,
                            frozen: self.frozen,
                            epoch_current: true,
                            found: found.as_ref(),
                            changes_made: situation.changes_made(&plan.item),
                            driver_busy: false,
                            approved_by_person: false,
                        };
                        let refusals = guard::refusals(&plan, facts);
                        if refusals.is_empty() {
                            self.apply(incident.id, *plan);
                        } else {
                            self.refusals.push(refusals);
                        }
                    }
                }
            }
        }
    }

    fn found(&self, plan: &plan::Plan) -> Option<Record> {
        match &plan.vantage {
            Some(_) => {
                self.world.pins.get(BRANCH).map(|pin| Record::Found(Addresses::new(pin.iter().copied()).unwrap()))
            }
            None => self.records().remove(&n::<ServiceName>("fi")),
        }
    }

    fn apply(&mut self, incident: IncidentId, plan: plan::Plan) {
        let found = self.found(&plan).map(|record| match record {
            Record::Found(addresses) => addresses,
            Record::Strange(_) | Record::Unknown => panic!("guard let a strange record pass"),
        });
        assert_eq!(plan.change.standing(found.as_ref()), Standing::AsExpected, "compare and set");
        match (&plan.vantage, plan.change.sets()) {
            (Some(_), Some(sets)) => drop(self.world.pins.insert(BRANCH, sets.as_set().clone())),
            (Some(_), None) => drop(self.world.pins.remove(BRANCH)),
            (None, sets) => self.world.record = sets.unwrap().as_set().clone(),
        }
        let verb = match plan.purpose {
            PlanPurpose::Remedy => "remedy",
            PlanPurpose::Return => "return",
            PlanPurpose::Rollback => "rollback",
        };
        let sets = plan.change.sets().map_or("native".to_owned(), ToString::to_string);
        self.note(format!("{verb} {} -> {sets}", plan.item));
        self.plans.push(PlanRecord {
            id: PlanId(self.plans.len() as i64 + 1),
            incident,
            epoch: 1,
            created_at: self.now,
            status: PlanStatus::Applied,
            applied_at: Some(self.now),
            verified_at: None,
            plan,
        });
    }

    fn verify(&mut self, judgement: &Judgement) {
        for i in 0..self.plans.len() {
            if self.plans[i].status != PlanStatus::Applied {
                continue;
            }
            let verification = verify::verify(&self.topology, &self.fold, judgement, &self.plans[i]).unwrap();
            match verification.proof {
                Proof::Wait { .. } => {}
                Proof::Proven => {
                    self.plans[i].status = PlanStatus::Verified;
                    self.plans[i].verified_at = Some(self.now);
                    self.note(format!("proven {} by {}", self.plans[i].plan.item, verification.seen.len()));
                    if self.plans[i].plan.purpose == PlanPurpose::Return {
                        let (incident, item) = (self.plans[i].incident, self.plans[i].plan.item.clone());
                        for other in &mut self.plans {
                            let remedy =
                                other.plan.purpose == PlanPurpose::Remedy && other.status == PlanStatus::Verified;
                            if remedy && other.incident == incident && other.plan.item == item {
                                other.status = PlanStatus::Undone;
                            }
                        }
                    }
                }
                Proof::Undo { .. } => {
                    let undo = self.plans[i].plan.change.undo();
                    match undo.sets() {
                        Some(sets) => self.world.record = sets.as_set().clone(),
                        None => drop(self.world.pins.remove(BRANCH)),
                    }
                    self.plans[i].status = PlanStatus::RolledBack;
                    self.note(format!("rolled back {}", self.plans[i].plan.item));
                }
            }
        }
    }

    pub(crate) fn run(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.step();
        }
    }

    /// Runs until something of the history, after what the last call found, starts with `what`;
    /// returns the seconds it took.
    pub(crate) fn until(&mut self, what: &str, seconds_max: u32) -> u32 {
        for second in 0..=seconds_max {
            if let Some(at) = self.history[self.cursor..].iter().position(|(_, note)| note.starts_with(what)) {
                self.cursor += at + 1;
                return second;
            }
            self.step();
        }
        panic!(
            "no '{what}' within {seconds_max} s; history: {:#?}; holds: {:#?}; refused: {:?}",
            self.history, self.holds, self.refusals
        );
    }

    pub(crate) fn notes(&self) -> Vec<&str> {
        self.history.iter().map(|(_, note)| note.as_str()).collect()
    }

    pub(crate) fn answer_word(&self, vantage: &str, name: &str, resolver: &str) -> &'static str {
        let name: DomainName = n(name);
        self.judge().answer(&n(vantage), &name, &n(resolver)).map_or("never asked", |answer| answer.verdict.word())
    }

    pub(crate) fn node_word(&self, node: &str) -> &'static str {
        self.judge().nodes[&n::<NodeName>(node)].verdict.word()
    }
}
