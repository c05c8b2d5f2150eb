//! What each service serves now and why, and the last changes of DNS.

use std::net::IpAddr;

use parallax_decide::change::Change;
use parallax_decide::plan::{PlanPurpose, PlanStatus};
use parallax_decide::time::Timestamp;
use serde::Serialize;
use sqlx::PgConnection;

use super::SCHEMA;
use super::matrix::Frozen;
use super::moment::{At, Zone};
use super::timeline;
use crate::store::configured::{self, Configured, Offered};
use crate::store::incident::last_holds;
use crate::store::read::incident::{INCIDENTS_MAX, IncidentRow, incidents};
use crate::store::read::now;
use crate::store::read::plan::{PlanRow, plans_newest, records_set};
use crate::store::{StoreError, database_now, freeze};
use crate::words::{self, finding, plan as plan_words};

/// Changes that are listed.
const CHANGES_MAX: i64 = 20;

/// The page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failover {
    /// Version of this JSON.
    pub schema: u32,
    /// Moment it shows, database clock.
    pub at: At,
    /// The operator's stop of every write.
    pub frozen: Option<Frozen>,
    /// Services, in order.
    pub services: Vec<ServiceNow>,
    /// The last plans, newest first.
    pub changes: Vec<ChangeLine>,
}

/// What a record holds by our knowledge: the newest change that was read back, else the native node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Served {
    /// Node; none: an address of none of our nodes.
    pub node: Option<String>,
    /// Address.
    pub ip: Option<IpAddr>,
    /// Whether that is the native node.
    pub native: bool,
    /// Since when; none: never changed by us.
    pub since: Option<At>,
    /// Plan that set it.
    pub plan: Option<i64>,
    /// Incident of that plan.
    pub incident: Option<i64>,
}

impl Served {
    /// The node's name, or the address.
    #[must_use]
    pub fn name(&self) -> String {
        match (&self.node, self.ip) {
            (Some(node), _) => node.clone(),
            (None, Some(ip)) => ip.to_string(),
            (None, None) => "?".to_owned(),
        }
    }
}

/// A service now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServiceNow {
    /// Name.
    pub name: String,
    /// Its record's name.
    pub hostname: String,
    /// Native node.
    pub native: String,
    /// Its address.
    pub native_ip: Option<IpAddr>,
    /// Fallbacks in order.
    pub fallbacks: Vec<String>,
    /// Driver that changes the record.
    pub driver: String,
    /// What may be done without a person.
    pub mode: &'static str,
    /// TTL of the record, seconds.
    pub ttl_s: u32,
    /// What it serves.
    pub serves: Served,
    /// Why, as a sentence.
    pub reason: String,
    /// Open incident about it.
    pub incident: Option<i64>,
    /// Changes that incident made.
    pub changes_made: i32,
    /// Changes it may make.
    pub changes_max: u32,
    /// What the next change, or the return, waits for.
    pub waits: Option<String>,
    /// What each vantage's own resolver hands out.
    pub seen: Vec<SeenAt>,
}

/// What a vantage's own resolver hands out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SeenAt {
    /// Vantage.
    pub vantage: String,
    /// Node or address.
    pub node: String,
    /// Address.
    pub ip: IpAddr,
    /// When it was seen.
    pub at: At,
    /// Whether that is what the record holds by our knowledge.
    pub as_set: bool,
}

/// A plan in one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangeLine {
    /// Plan.
    pub plan: i64,
    /// Incident.
    pub incident: i64,
    /// When it was made.
    pub at: At,
    /// What it is for.
    pub purpose: &'static str,
    /// The change, as an order.
    pub change: String,
    /// Why.
    pub reason: String,
    /// Where it is made: a vantage, or the coordinator.
    pub by: String,
    /// Driver.
    pub driver: String,
    /// Who approved it.
    pub approved_by: Option<String>,
    /// Status's word; none: a word of another version.
    pub status: Option<PlanStatus>,
    /// In words.
    pub status_words: &'static str,
    /// Milliseconds from made to read back.
    pub apply_ms: Option<u64>,
    /// Milliseconds from read back to proven.
    pub proof_ms: Option<u64>,
    /// Vantages that have proven it.
    pub proofs: i64,
}

impl ChangeLine {
    /// From its row.
    #[must_use]
    pub fn of(plan: &PlanRow, zone: &Zone) -> Self {
        let moment = |at: Timestamp| zone.clock_named(at);
        let unread = || "written by another version of Parallax".to_owned();
        Self {
            plan: plan.id,
            incident: plan.incident.0,
            at: At(plan.created_at),
            purpose: plan.purpose.map_or("unknown purpose", plan_words::purpose),
            change: plan.change.as_ref().map_or_else(unread, plan_words::change),
            reason: plan.reason.as_ref().map_or_else(unread, |reason| plan_words::reason(reason, &moment)),
            by: plan.vantage.clone().unwrap_or_else(|| "coordinator".to_owned()),
            driver: plan.driver.clone(),
            approved_by: plan.approved_by.clone(),
            status: plan.status,
            status_words: plan.status.map_or("unknown status", plan_words::status),
            apply_ms: plan.applied_at.map(|at| millis(at, plan.created_at)),
            proof_ms: plan.applied_at.zip(plan.verified_at).map(|(applied, proven)| millis(proven, applied)),
            proofs: plan.proofs,
        }
    }

    /// `0.4 s to apply, 3.1 s to proof`, as far as it got.
    #[must_use]
    pub fn took(&self) -> String {
        let seconds = |ms: u64| format!("{}.{} s", ms / 1000, ms % 1000 / 100);
        match (self.apply_ms, self.proof_ms) {
            (Some(apply), Some(proof)) => format!("{} to apply, {} to proof", seconds(apply), seconds(proof)),
            (Some(apply), None) => format!("{} to apply", seconds(apply)),
            (None, _) => String::new(),
        }
    }
}

/// Reads the page.
///
/// # Errors
/// When the database refuses.
pub async fn read(connection: &mut PgConnection, zone: &Zone) -> Result<Failover, StoreError> {
    let at = database_now(&mut *connection).await?;
    let configured = configured::read(&mut *connection).await?;
    let records = records_set(&mut *connection).await?;
    let open = incidents(&mut *connection, at, INCIDENTS_MAX).await?;
    let holds = last_holds(&mut *connection).await?;
    let changes = plans_newest(&mut *connection, CHANGES_MAX).await?;
    let frozen = freeze::current(&mut *connection).await?.map(Frozen::from);
    let fresh = at.minus(configured.policy.fresh_for());
    let answers = match configured.live_resolver() {
        Some(live) => now::answers(connection, live, fresh, at).await?,
        None => Vec::new(),
    };
    let services = configured.services.iter().map(|(name, offered)| {
        let serves = served(&configured, name, offered, &records);
        let incident = open.iter().find(|row| row.closed_at.is_none() && concerns(row, name));
        let hold = incident.and_then(|row| holds.get(&(row.id, name.clone())));
        let seen = answers.iter().filter(|fact| fact.name == offered.hostname).filter_map(|fact| {
            let ip = *fact.addresses.first()?;
            let node = configured.node_at(ip).map_or_else(|| ip.to_string(), str::to_owned);
            Some(SeenAt { vantage: fact.vantage.clone(), node, ip, at: At(fact.at), as_set: Some(ip) == serves.ip })
        });
        ServiceNow {
            name: name.clone(),
            hostname: offered.hostname.clone(),
            native: offered.native.clone(),
            native_ip: configured.address_of(&offered.native),
            fallbacks: offered.fallbacks.clone(),
            driver: offered.driver.clone(),
            mode: plan_words::mode(offered.mode),
            ttl_s: offered.ttl_s,
            reason: why(&serves, name, &records, incident, zone),
            incident: incident.map(|row| row.id.0),
            changes_made: incident.map_or(0, |row| row.changes_made),
            changes_max: configured.policy.changes_max,
            waits: hold.and_then(|why| timeline::hold(why, zone)),
            seen: seen.collect(),
            serves,
        }
    });
    Ok(Failover {
        schema: SCHEMA,
        at: At(at),
        frozen,
        services: services.collect(),
        changes: changes.iter().map(|plan| ChangeLine::of(plan, zone)).collect(),
    })
}

/// What the record of a service holds by our knowledge.
#[must_use]
pub fn served(configured: &Configured, name: &str, service: &Offered, records: &[PlanRow]) -> Served {
    let newest = records.iter().find(|plan| plan.item == name || plan.item == service.hostname);
    let set = newest.and_then(|plan| match &plan.change {
        Some(Change::Repoint { sets, .. }) => Some((plan, sets.iter().next())),
        Some(Change::Pin { .. } | Change::Unpin { .. }) | None => None,
    });
    let Some((plan, ip)) = set else {
        return Served {
            node: Some(service.native.clone()),
            ip: configured.address_of(&service.native),
            native: true,
            since: None,
            plan: None,
            incident: None,
        };
    };
    let node = ip.and_then(|ip| configured.node_at(ip)).map(str::to_owned);
    Served {
        native: node.as_deref() == Some(service.native.as_str()),
        node,
        ip,
        since: plan.applied_at.map(At),
        plan: Some(plan.id),
        incident: Some(plan.incident.0),
    }
}

fn concerns(row: &IncidentRow, service: &str) -> bool {
    matches!(&row.subject, Some(parallax_decide::finding::Subject::Service { service: s }) if s.as_str() == service)
}

fn why(serves: &Served, name: &str, records: &[PlanRow], incident: Option<&IncidentRow>, zone: &Zone) -> String {
    let newest = records.iter().find(|plan| plan.id == serves.plan.unwrap_or(-1));
    let found = incident.and_then(|row| Some((row.subject.as_ref()?, row.finding.as_ref()?)));
    match (newest, found) {
        (Some(plan), _) if !serves.native || plan.purpose == Some(PlanPurpose::Return) => match &plan.reason {
            Some(reason) => plan_words::reason(reason, &|at| zone.clock_named(at)),
            None => format!("set by plan {}", plan.id),
        },
        (_, Some((subject, found))) => finding::short(subject, &found.reason),
        (Some(plan), None) => format!("set by plan {}", plan.id),
        (None, None) => format!("native: {} was never moved", words::list([name], 1)),
    }
}

fn millis(later: Timestamp, earlier: Timestamp) -> u64 {
    u64::try_from(later.since(earlier).as_millis()).unwrap_or(u64::MAX)
}
