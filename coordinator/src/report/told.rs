//! For tests: believable stories in a real database, told with the functions that write it in
//! earnest. Field case 1 (an answer that is unroutable from one branch) and 2 (a dead node).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parallax_decide::answer::Answer;
use parallax_decide::change::Change;
use parallax_decide::finding::{Finding, OtherResolver, Reason, Shows, Subject, Unroutable};
use parallax_decide::incident::IncidentId;
use parallax_decide::names::{Addresses, DomainName, VantageName};
use parallax_decide::node::NodeJudgement;
use parallax_decide::observation::{
    Connection, Fact, Family, Lane, ObservationId, Outcome, Purpose, Resolution, Target,
};
use parallax_decide::plan::{NoPlan, Plan, PlanId, PlanPurpose, PlanReason, PlanStatus, ReturnWaits};
use parallax_decide::presence::Presence;
use parallax_decide::time::Timestamp;
use parallax_decide::topology::Mode;
use parallax_decide::vantage::VantageJudgement;
use parallax_decide::verdict::{AddressVerdict, AnswerVerdict, NodeVerdict, VantageVerdict};
use parallax_decide::verify::Seen;
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::clock::monotonic;
use crate::state::App;
use crate::store::commit::{Delivery, Item, commit};
use crate::store::configured::{self, Configured};
use crate::store::incident::{self, Happened};
use crate::store::log::NewObservation;
use crate::store::plan::{self, Step};
use crate::store::verdict::{self, NewVerdict, SubjectKind, VerdictSubject};
use crate::store::{database_now, lease, vantage};

/// The pair of field case 1: genuine answers, no path from the branch.
pub(crate) const PAIR: [&str; 2] = ["8.6.112.0", "8.47.69.0"];

/// What a vantage in Germany is given.
const ELSEWHERE: [&str; 2] = ["104.26.4.10", "172.66.40.1"];

/// The two names that suffer; example.com is well everywhere.
pub(crate) const SUFFER: [&str; 2] = ["cdn.tailwindcss.com", "cdnjs.cloudflare.com"];

/// Tells into one database.
pub(crate) struct Teller {
    pub(crate) app: Arc<App>,
    pub(crate) connection: sqlx::pool::PoolConnection<sqlx::Postgres>,
    pub(crate) now: Timestamp,
    boot: Uuid,
    sequences: BTreeMap<VantageName, i64>,
}

fn name(text: &str) -> DomainName {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn set(texts: &[&str]) -> BTreeSet<IpAddr> {
    texts.iter().map(|text| ip(text)).collect()
}

fn places(texts: &[&str]) -> Vec<VantageName> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

impl Teller {
    /// A coordinator that has just started: the configuration is known, nothing was measured.
    pub(crate) async fn new(app: Arc<App>) -> Self {
        let mut connection = app.pool.acquire().await.unwrap();
        let configured = Configured::of(&app.config.load());
        configured::write(&mut connection, &configured).await.unwrap();
        let now = database_now(&mut connection).await.unwrap();
        Self { app, connection, now, boot: Uuid::new_v4(), sequences: BTreeMap::new() }
    }

    pub(crate) fn conn(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    fn ago(&self, seconds: u64) -> Timestamp {
        self.now.minus(Duration::from_secs(seconds))
    }

    /// Somebody runs the tasks.
    pub(crate) async fn judging(&mut self) {
        let holder = self.app.instance;
        lease::acquire(self.conn(), holder, 0).await.unwrap();
        // However long the test takes on a busy machine.
        sqlx::query("update lease set expires_at = expires_at + interval '1 hour'").execute(self.conn()).await.unwrap();
    }

    /// An observation that ended `seconds` ago.
    pub(crate) async fn observe(&mut self, place: &str, seconds: u64, duration_us: i64, fact: Fact) -> ObservationId {
        self.observe_with(place, seconds, duration_us, fact, json!({})).await
    }

    /// The same with particulars.
    pub(crate) async fn observe_with(
        &mut self,
        place: &str,
        seconds: u64,
        duration_us: i64,
        fact: Fact,
        detail: serde_json::Value,
    ) -> ObservationId {
        let place: VantageName = place.parse().unwrap();
        let row = vantage::find_or_make(self.conn(), &place).await.unwrap();
        sqlx::query(
            "update vantage set first_seen_at = coalesce(first_seen_at, now()), last_seen_at = now(), agent_version = '0.1.0',
                                last_remote = '192.0.2.44:40000' where id = $1",
        )
        .bind(row.id.0)
        .execute(self.conn())
        .await
        .unwrap();
        let sequence = self.sequences.entry(place).or_insert(0);
        *sequence += 1;
        let sequence = *sequence;
        let content = Ok(NewObservation {
            of_earlier_start: false,
            late_after: Duration::from_secs(3600),
            age: Duration::from_secs(seconds),
            purpose: Purpose::Scheduled,
            task_id: None,
            duration_us,
            fact,
            detail,
            lost_ago: None,
        });
        let items = vec![Item { sequence, content }];
        let delivery = Delivery {
            vantage: row.id,
            boot: self.boot,
            lane: Lane::Urgent,
            received: monotonic(),
            items,
            stray: Vec::new(),
        };
        commit(self.conn(), &[delivery]).await.unwrap();
        let newest = sqlx::query_scalar::<_, i64>("select max(id) from observation").fetch_one(self.conn()).await;
        ObservationId(newest.unwrap())
    }

    async fn answered(
        &mut self,
        place: &str,
        resolver: &str,
        about: &str,
        given: &[&str],
        seconds: u64,
    ) -> ObservationId {
        let fact = Fact::Resolution(Resolution {
            name: name(about),
            resolver: resolver.parse().unwrap(),
            family: Family::V4,
            outcome: Outcome::Answered,
            addresses: given.iter().map(|text| ip(text)).collect(),
            ttl_s: 300,
        });
        self.observe(place, seconds, 11_000, fact).await
    }

    async fn connected(
        &mut self,
        place: &str,
        target: Target,
        to: &str,
        outcome: Outcome,
        seconds: u64,
    ) -> ObservationId {
        let well = crate::words::outcome::well(outcome);
        let (attempts, attempts_connected) = if well { (1, 1) } else { (4, 0) };
        let fact =
            Fact::Connection(Connection { target, address: ip(to), port: 443, outcome, attempts, attempts_connected });
        self.observe(place, seconds, if well { 38_400 } else { 3_004_000 }, fact).await
    }

    async fn judged(
        &mut self,
        at: Timestamp,
        kind: SubjectKind,
        about: &str,
        place: Option<&str>,
        word: &'static str,
        reason: serde_json::Value,
    ) {
        let subject = VerdictSubject {
            kind,
            subject: about.to_owned(),
            vantage: place.map(str::to_owned),
            resolver: (kind == SubjectKind::Answer).then(|| "live".to_owned()),
        };
        let new = NewVerdict { subject, word, presence: Presence::Unknown, reason, evidence: Vec::new() };
        verdict::insert(self.conn(), at, &[new]).await.unwrap();
    }

    /// How a vantage stands.
    pub(crate) async fn stands(
        &mut self,
        place: &str,
        verdict: VantageVerdict,
        reached: &[&str],
        failed: &[&str],
        seconds: u64,
    ) {
        let controls = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let reason = VantageJudgement {
            clock_offset_ms: None,
            suspected: None,
            verdict,
            controls_reached: controls(reached),
            controls_failed: controls(failed),
            last_report_at: Some(self.now),
            evidence: Vec::new(),
        };
        let at = self.ago(seconds);
        self.judged(at, SubjectKind::Vantage, place, Some(place), verdict.word(), json!(reason)).await;
    }

    /// A name as a vantage's live resolver answers it: observations and verdict.
    pub(crate) async fn cell(
        &mut self,
        place: &str,
        about: &str,
        given: &[&str],
        outcome: Outcome,
        verdict: AnswerVerdict,
        since: u64,
    ) {
        self.answered(place, "live", about, given, 3).await;
        for to in given {
            self.connected(place, Target::Name(name(about)), to, outcome, 2).await;
        }
        let all = set(given);
        let well = crate::words::outcome::well(outcome);
        let reason = Answer {
            verdict,
            proven: if well { all.clone() } else { BTreeSet::new() },
            partial: BTreeSet::new(),
            dead: if well { BTreeSet::new() } else { all.clone() },
            addresses: all,
            proven_at: BTreeMap::new(),
            dead_at: BTreeMap::new(),
            at: Some(self.now),
            evidence: Vec::new(),
            evidence_elsewhere: vec![],
        };
        let at = self.ago(since);
        self.judged(at, SubjectKind::Answer, about, Some(place), verdict.word(), json!(reason)).await;
    }

    /// Everything is well everywhere.
    pub(crate) async fn all_well(&mut self) {
        self.judging().await;
        for place in ["branch-kazan", "wan-gw", "de-fra"] {
            self.stands(place, VantageVerdict::Ok, &["control-cf", "control-google"], &[], 86_400).await;
            self.cell(place, "example.com", &["23.192.228.80"], Outcome::TlsOk, AnswerVerdict::Ok, 80_000).await;
            let given = if place == "de-fra" { ELSEWHERE } else { PAIR };
            for about in SUFFER {
                let verdict = if place == "de-fra" { AnswerVerdict::SteeredByVantage } else { AnswerVerdict::Ok };
                self.cell(place, about, &given, Outcome::TlsOk, verdict, 80_000).await;
            }
            self.cell(place, "fi.montana.quest", &["95.216.10.10"], Outcome::TlsOk, AnswerVerdict::Ok, 80_000).await;
        }
    }

    /// Field case 1: the branch is handed a pair that has no path from it; one of the two names is
    /// pinned and proven, the other has no proven address yet.
    pub(crate) async fn branch_loses_the_pair(&mut self) -> IncidentId {
        let opened = self.ago(1_080);
        let mut evidence = Vec::new();
        let mut names = BTreeMap::new();
        for about in SUFFER {
            self.cell("branch-kazan", about, &PAIR, Outcome::Silent, AnswerVerdict::UnroutableHere, 1_080).await;
            evidence.push((self.answered("branch-kazan", "live", about, &PAIR, 1_086).await, Shows::FailsHere));
            for to in PAIR {
                let target = || Target::Name(name(about));
                let silent = self.connected("branch-kazan", target(), to, Outcome::Silent, 1_083).await;
                evidence.push((silent, Shows::FailsHere));
                let reached = self.connected("wan-gw", target(), to, Outcome::TlsOk, 1_081).await;
                evidence.push((reached, Shows::SeenElsewhere));
            }
            let mut resolvers = BTreeMap::new();
            for (resolver, given) in [
                ("doh-cf", &PAIR[..]),
                ("doh-family", &PAIR[..]),
                ("dot-quad9", &PAIR[..]),
                ("plain-google", &["8.6.112.5"][..]),
            ] {
                evidence
                    .push((self.answered("branch-kazan", resolver, about, given, 1_082).await, Shows::OtherResolver));
                let other = OtherResolver { verdict: AnswerVerdict::UnroutableHere, addresses: set(given) };
                resolvers.insert(resolver.parse().unwrap(), other);
            }
            let proven_at = PAIR.iter().map(|to| (ip(to), places(&["wan-gw", "de-fra"]))).collect();
            names.insert(name(about), Unroutable { addresses: set(&PAIR), proven_at, resolvers });
        }
        let finding = Finding {
            subject: Subject::UnroutableAt { vantage: "branch-kazan".parse().unwrap() },
            kind: AnswerVerdict::UnroutableHere.word().to_owned(),
            members: SUFFER.iter().map(|about| (*about).to_owned()).collect(),
            reason: Reason::UnroutableHere { names },
            calls: std::collections::BTreeSet::new(),
            evidence,
        };
        let id = incident::open(self.conn(), opened, &finding).await.unwrap();
        let pin = Plan {
            purpose: PlanPurpose::Remedy,
            undoes: None,
            driver: "pin".parse().unwrap(),
            vantage: Some("branch-kazan".parse().unwrap()),
            item: "cdnjs.cloudflare.com".to_owned(),
            change: Change::Pin {
                name: name("cdnjs.cloudflare.com"),
                addresses: Addresses::one(ip(ELSEWHERE[0])).unwrap(),
                ttl_s: 5,
            },
            reason: PlanReason::ProvenHere {
                address: ip(ELSEWHERE[0]),
                proven_at: self.ago(1_078),
                given_at: places(&["de-fra"]),
                resolvers: [("doh-cf".parse().unwrap(), AnswerVerdict::UnroutableHere)].into(),
            },
            expires_at: self.now.plus(Duration::from_secs(86_000)),
            mode: Mode::Act,
        };
        self.carried_out(id, &pin, 1_077, &["branch-kazan"]).await;
        self.cell(
            "branch-kazan",
            "cdnjs.cloudflare.com",
            &[ELSEWHERE[0]],
            Outcome::TlsOk,
            AnswerVerdict::SteeredByVantage,
            1_070,
        )
        .await;
        let held = json!({ "item": "cdn.tailwindcss.com", "why": NoPlan::NoProvenTarget });
        let at = self.ago(1_076);
        incident::event(self.conn(), id, at, Happened::NoPlan, &held).await.unwrap();
        id
    }

    /// Field case 2: node fi is dead by three accusers in three domains; the record leads to de.
    pub(crate) async fn node_dies(&mut self) -> IncidentId {
        let opened = self.ago(600);
        let all = ["branch-kazan", "wan-gw", "de-fra"];
        let mut evidence = Vec::new();
        for place in all {
            let probe =
                self.connected(place, Target::Node("fi".parse().unwrap()), "95.216.10.10", Outcome::Silent, 602).await;
            evidence.push((probe, Shows::NodeProbe));
        }
        let judgement = NodeJudgement {
            verdict: NodeVerdict::DeadEverywhere,
            partial_at: Vec::new(),
            unproven_at: Vec::new(),
            held_at: Vec::new(),
            alive_at: Vec::new(),
            accusers: all.iter().map(|place| (place.parse().unwrap(), AddressVerdict::Silent)).collect(),
            accusing_domains: ["isp-rt", "isp-hq", "isp-fra"].iter().map(|d| d.parse().unwrap()).collect(),
            suspected_at: Vec::new(),
            evidence: Vec::new(),
        };
        let finding = Finding {
            subject: Subject::Service { service: "fi".parse().unwrap() },
            kind: NodeVerdict::DeadEverywhere.word().to_owned(),
            members: BTreeSet::from(["fi.montana.quest".to_owned()]),
            reason: Reason::Node { node: "fi".parse().unwrap(), judgement },
            calls: std::collections::BTreeSet::new(),
            evidence,
        };
        let id = incident::open(self.conn(), opened, &finding).await.unwrap();
        let repoint = Plan {
            purpose: PlanPurpose::Remedy,
            undoes: None,
            driver: "auth".parse().unwrap(),
            vantage: None,
            item: "fi".to_owned(),
            change: Change::Repoint {
                name: name("fi.montana.quest"),
                expects: Addresses::one(ip("95.216.10.10")).unwrap(),
                sets: Addresses::one(ip("49.12.20.20")).unwrap(),
                ttl_s: 60,
            },
            reason: PlanReason::NodeGone {
                from: "fi".parse().unwrap(),
                verdict: NodeVerdict::DeadEverywhere,
                accusers: places(&all),
                to: "de".parse().unwrap(),
                provers: places(&all),
            },
            expires_at: self.now,
            mode: Mode::Act,
        };
        self.carried_out(id, &repoint, 599, &all).await;
        for place in all {
            self.cell(place, "fi.montana.quest", &["49.12.20.20"], Outcome::TlsOk, AnswerVerdict::Ok, 590).await;
        }
        let waits = NoPlan::Standing { until: ReturnWaits::NativeNotUsable };
        let at = self.ago(580);
        incident::event(self.conn(), id, at, Happened::NoPlan, &json!({ "item": "fi", "why": waits })).await.unwrap();
        id
    }

    /// A plan from made to proven, beginning `seconds` ago.
    async fn carried_out(&mut self, id: IncidentId, made: &Plan, seconds: u64, seen_by: &[&str]) -> PlanId {
        let at = self.ago(seconds);
        let plan_id = plan::insert(self.conn(), id, 1, at, made).await.unwrap().unwrap();
        let planned = json!({ "plan": plan_id, "item": made.item, "purpose": made.purpose, "mode": made.mode, "change": made.change });
        incident::event(self.conn(), id, at, Happened::Planned, &planned).await.unwrap();
        assert!(plan::advance(self.conn(), plan_id, PlanStatus::Approved, PlanStatus::Applying).await.unwrap());
        let intent = json!({ "epoch": 1, "change": made.change, "found": [] });
        plan::event(self.conn(), plan_id, at, Step::Intent, &intent).await.unwrap();
        let applied = at.plus(Duration::from_millis(420));
        assert!(plan::applied(self.conn(), plan_id, applied, true).await.unwrap());
        plan::event(self.conn(), plan_id, applied, Step::Applied, &json!({ "epoch": 1 })).await.unwrap();
        incident::event(self.conn(), id, applied, Happened::Applied, &json!({ "plan": plan_id })).await.unwrap();
        let mut last = applied;
        for (i, place) in seen_by.iter().enumerate() {
            let to: Vec<String> = made.change.sets().unwrap().iter().map(|a| a.to_string()).collect();
            let to: Vec<&str> = to.iter().map(String::as_str).collect();
            let about = made.change.name().as_str().to_owned();
            let resolution = self.answered(place, "live", &about, &to, seconds - 3).await;
            let target = Target::Name(made.change.name().clone());
            let connection = self.connected(place, target, to[0], Outcome::TlsOk, seconds - 3).await;
            last = applied.plus(Duration::from_millis(1_300 * (i as u64 + 1)));
            let sight = Seen { vantage: place.parse().unwrap(), at: last, resolution, connection: Some(connection) };
            plan::seen(self.conn(), plan_id, &[sight]).await.unwrap();
        }
        assert!(plan::verified(self.conn(), plan_id, last).await.unwrap());
        plan::event(self.conn(), plan_id, last, Step::Verified, &json!({})).await.unwrap();
        incident::count_changes(self.conn(), id).await.unwrap();
        plan_id
    }

    /// A vantage that has lost its own uplink, and accuses nobody.
    pub(crate) async fn uplink_goes_down(&mut self, place: &str) -> IncidentId {
        self.stands(place, VantageVerdict::UplinkDown, &[], &["control-cf", "control-google"], 90).await;
        let judgement = VantageJudgement {
            clock_offset_ms: None,
            suspected: None,
            verdict: VantageVerdict::UplinkDown,
            controls_reached: Vec::new(),
            controls_failed: vec!["control-cf".parse().unwrap(), "control-google".parse().unwrap()],
            last_report_at: Some(self.now),
            evidence: Vec::new(),
        };
        let finding = Finding {
            subject: Subject::Vantage { vantage: place.parse().unwrap() },
            kind: VantageVerdict::UplinkDown.word().to_owned(),
            members: BTreeSet::from([place.to_owned()]),
            reason: Reason::Vantage { judgement },
            calls: std::collections::BTreeSet::new(),
            evidence: Vec::new(),
        };
        let at = self.ago(90);
        incident::open(self.conn(), at, &finding).await.unwrap()
    }

    /// Closes an incident `seconds` ago.
    pub(crate) async fn ends(&mut self, id: IncidentId, seconds: u64) {
        let (at, well) = (self.ago(seconds), self.ago(seconds + 60));
        incident::close(self.conn(), id, at, well).await.unwrap();
    }
}
