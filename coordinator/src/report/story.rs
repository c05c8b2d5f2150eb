//! One incident, told from its conclusion to the command line with which to check it.

use std::net::IpAddr;
use std::time::Duration;

use parallax_decide::finding::{Reason, Shows};
use parallax_decide::incident::IncidentId;
use parallax_decide::names::DomainName;
use parallax_decide::observation::{Outcome, Stage};
use parallax_decide::time::Timestamp;
use parallax_decide::verdict::VantageVerdict;
use serde::Serialize;
use sqlx::PgConnection;

use super::SCHEMA;
use super::check::{Check, checks, curl};
use super::failover::ChangeLine;
use super::moment::{At, Zone, measured};
use super::summary::Summary;
use super::timeline::{Step, steps};
use crate::store::configured::{self, Configured};
use crate::store::incident::shows_word;
use crate::store::read::incident::{self as rows, EvidenceRow, IncidentRow};
use crate::store::read::path::{self, PathRow};
use crate::store::read::plan::{self as plan_rows, PlanRow};
use crate::store::read::replay::watched;
use crate::store::read::span::{Whose, states};
use crate::store::watch::PAUSE_MAX;
use crate::store::{StoreError, database_now};
use crate::words::counterfactual::{Counterfactual, counterfactual};
use crate::words::finding::{FactKind, Point};
use crate::words::path::{LastHop, Seen};
use crate::words::verdict::vantage_word;
use crate::words::{self, finding, outcome, path as path_words, plan as plan_words};

/// A path may have been found just before the incident opened: the finding comes first.
const PATH_BEFORE: Duration = Duration::from_secs(600);

/// And one that was asked for while it was open may come after its closing.
const PATH_AFTER: Duration = Duration::from_secs(60);

/// Observations a point lists before it says "and more".
const LISTED_MAX: usize = 6;

/// The story.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Story {
    /// Version of this JSON.
    pub schema: u32,
    /// Moment it shows, database clock.
    pub at: At,
    /// The incident in one line.
    pub incident: Summary,
    /// The conclusion as a sentence.
    pub conclusion: String,
    /// What supports it.
    pub why: Vec<Why>,
    /// Whether another resolver would help.
    pub another_resolver: Option<Counterfactual>,
    /// What can be excluded.
    pub ruled_out: Vec<String>,
    /// Which way packets take to the addresses, as far as it was looked for.
    pub paths: Vec<PathTold>,
    /// What is not known.
    pub not_known: Vec<String>,
    /// Addresses it is about.
    pub addresses: Vec<IpAddr>,
    /// Observations it cites, numbered.
    pub evidence: Vec<Evidence>,
    /// How many it cites in all.
    pub evidence_total: i64,
    /// What happened, step by step.
    pub timeline: Vec<Step>,
    /// Plans, oldest first.
    pub plans: Vec<PlanTold>,
    /// How to check by hand.
    pub check: Vec<Check>,
    /// How to ask the database.
    pub sql: Vec<String>,
}

/// A point with the observations that show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Why {
    /// What was seen.
    pub saw: String,
    /// What follows.
    pub so: Option<String>,
    /// The first observations that show it.
    pub observations: Vec<i64>,
    /// How many more do.
    pub more: usize,
}

/// The newest path from one vantage to one address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathTold {
    /// Where from.
    pub vantage: String,
    /// Where to.
    pub address: IpAddr,
    /// When it was found.
    pub at: At,
    /// How the search ended; none: a word of another version.
    pub outcome: Option<Outcome>,
    /// The last hop that answered.
    pub last_hop: Option<IpAddr>,
    /// How many routers away that is.
    pub last_hop_ttl: Option<u64>,
    /// Smallest MTU that is known, in bytes.
    pub path_mtu: Option<u64>,
    /// As a sentence.
    pub text: String,
    /// Observation: `v_observation.id`.
    pub observation: i64,
}

/// A cited observation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Its number on the page.
    pub number: usize,
    /// Its id: `v_observation.id`.
    pub observation: i64,
    /// What it shows.
    pub says: String,
    /// When the probe ended; none: no longer in the log.
    pub at: Option<At>,
    /// Where.
    pub vantage: Option<String>,
    /// What was measured, as a sentence.
    pub text: String,
    /// How to repeat it there.
    pub repeat: Option<String>,
}

/// A plan as the story tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanTold {
    /// In one line.
    #[serde(flatten)]
    pub line: ChangeLine,
    /// What it expected to find.
    pub expects: String,
    /// What it sets.
    pub sets: String,
    /// What takes it back.
    pub undo: String,
    /// What automation might do with it.
    pub mode: String,
    /// Whether it counts against the incident's changes.
    pub counted: bool,
    /// Not applied after this.
    pub expires_at: At,
}

/// Reads the story; none: no such incident.
///
/// # Errors
/// When the database refuses.
pub async fn read(connection: &mut PgConnection, id: IncidentId, zone: &Zone) -> Result<Option<Story>, StoreError> {
    let at = database_now(&mut *connection).await?;
    let Some(row) = rows::incident(&mut *connection, id).await? else { return Ok(None) };
    let configured = configured::read(&mut *connection).await?;
    let plans = plan_rows::plans_of(&mut *connection, &[id]).await?;
    let evidence_total = rows::evidence_count(&mut *connection, id).await?;
    let cited = rows::evidence(&mut *connection, &row).await?;
    let timeline = rows::timeline(&mut *connection, id).await?;

    let found = row.subject.as_ref().zip(row.finding.as_ref().map(|finding| &finding.reason));
    let evidence: Vec<Evidence> = cited.iter().enumerate().map(|(i, row)| told(i + 1, row)).collect();
    let addresses = match found {
        Some((_, Reason::UnroutableHere { names })) => {
            let mut all: Vec<IpAddr> = names.values().flat_map(|u| u.addresses.iter().copied()).collect();
            all.sort_unstable();
            all.dedup();
            all
        }
        Some((_, Reason::DeadEverywhere { addresses, .. } | Reason::AnswerUnusable { addresses, .. })) => {
            addresses.iter().copied().collect()
        }
        Some((_, Reason::Node { node, .. })) => configured.address_of(node.as_str()).into_iter().collect(),
        Some((_, Reason::Endpoint { places, .. })) => {
            let mut all: Vec<IpAddr> = places.values().map(|judged| judged.address).collect();
            all.sort_unstable();
            all.dedup();
            all
        }
        Some((_, Reason::Vantage { .. } | Reason::Fleet { .. })) | None => Vec::new(),
    };
    let from = row.opened_at.minus(PATH_BEFORE);
    let until = row.closed_at.map_or(at, |closed| closed.plus(PATH_AFTER));
    let paths: Vec<PathTold> =
        path::newest(&mut *connection, &addresses, from, until).await?.into_iter().map(path_told).collect();
    let mut unknown = not_known(found.map(|(_, reason)| reason), &paths, &cited, evidence_total);
    let end = row.closed_at.unwrap_or(at);
    unknown.extend(unobserved(connection, &row, &configured, (row.opened_at, end), zone).await?);
    Ok(Some(Story {
        schema: SCHEMA,
        at: At(at),
        incident: Summary::of(&row, &plans, &configured, at),
        conclusion: match found {
            Some((subject, reason)) => finding::long(subject, reason),
            None => "The finding was stored by another version of Parallax and cannot be told by this one.".to_owned(),
        },
        why: found.map(|(subject, reason)| whys(&finding::points(subject, reason), &cited)).unwrap_or_default(),
        another_resolver: match found {
            Some((_, Reason::UnroutableHere { names })) => counterfactual(names),
            Some(_) | None => None,
        },
        ruled_out: found.map(|(subject, reason)| finding::ruled_out(subject, reason)).unwrap_or_default(),
        not_known: unknown,
        paths,
        addresses,
        evidence,
        evidence_total,
        timeline: steps(&timeline, &plans, row.opened_at, zone),
        plans: plans.iter().map(|plan| plan_told(plan, zone)).collect(),
        check: found.map(|(subject, reason)| checks(subject, reason, &configured)).unwrap_or_default(),
        sql: vec![
            format!("select * from v_evidence where incident_id = {} order by at;", id.0),
            format!("select * from v_timeline where incident_id = {} order by at, rank, item;", id.0),
            format!("select * from v_plan where incident_id = {} order by id;", id.0),
        ],
    }))
}

fn whys(points: &[Point], cited: &[EvidenceRow]) -> Vec<Why> {
    points
        .iter()
        .map(|point| {
            let kind = point.kind.map(|kind| match kind {
                FactKind::Resolution => "resolution",
                FactKind::Connection => "connection",
            });
            let shows = |row: &&EvidenceRow| {
                row.says == shows_word(point.shows)
                    && point.from.as_ref().is_none_or(|from| row.vantage.as_deref() == Some(from.as_str()))
                    && kind.is_none_or(|kind| row.kind.as_deref() == Some(kind))
            };
            let all: Vec<i64> = cited.iter().filter(shows).map(|row| row.observation).collect();
            let more = all.len().saturating_sub(LISTED_MAX);
            let observations = all.into_iter().take(LISTED_MAX).collect();
            Why { saw: point.saw.clone(), so: point.so.clone(), observations, more }
        })
        .collect()
}

fn path_told(row: PathRow) -> PathTold {
    let last = row
        .hops
        .iter()
        .rev()
        .find_map(|hop| hop.address.map(|address| LastHop { address, ttl: hop.ttl, rtt_us: hop.rtt_us }));
    let tried = row.hops.last().map_or(0, |hop| hop.ttl);
    let text = row.outcome.map_or_else(
        || "found by another version of Parallax".to_owned(),
        |outcome| path_words::sentence(&row.vantage, row.address, outcome, Seen { last, tried, mtu: row.mtu }),
    );
    PathTold {
        last_hop: last.map(|hop| hop.address),
        last_hop_ttl: last.map(|hop| hop.ttl),
        vantage: row.vantage,
        address: row.address,
        at: At(row.at),
        outcome: row.outcome,
        path_mtu: row.mtu,
        text,
        observation: row.observation,
    }
}

fn not_known(reason: Option<&Reason>, paths: &[PathTold], cited: &[EvidenceRow], total: i64) -> Vec<String> {
    let mut unknown = Vec::new();
    if let Some(Reason::UnroutableHere { .. }) = reason {
        if paths.is_empty() {
            unknown.push("which hop drops it: the path was not traced".to_owned());
        } else if paths.iter().all(|path| path.last_hop.is_none()) {
            unknown.push("which hop drops it: none answered".to_owned());
        }
    }
    let gone = cited.iter().filter(|row| row.at.is_none()).count();
    if gone > 0 {
        unknown.push(format!("what {} said: no longer in the log", words::count(gone, "cited observation")));
    }
    let shown = i64::try_from(cited.len()).unwrap_or(i64::MAX);
    if total > shown {
        unknown.push(format!("{} more cited observations are not shown here: ask v_evidence", total - shown));
    }
    unknown
}

/// Spans of an incident in which nobody judged, or the place it is about could not be heard.
async fn unobserved(
    connection: &mut PgConnection,
    row: &IncidentRow,
    configured: &Configured,
    (from, to): (Timestamp, Timestamp),
    zone: &Zone,
) -> Result<Vec<String>, StoreError> {
    let between = |a: Timestamp, b: Timestamp| format!("{} - {}", zone.clock(a), zone.clock_named(b));
    let mut spans = Vec::new();
    let mut last = from;
    for (began, until) in watched(&mut *connection, from, to).await?.into_iter().chain([(to, to)]) {
        if began.since(last) > PAUSE_MAX {
            spans.push(format!("what was so {}: no coordinator judged", between(last, began)));
        }
        last = last.max(until);
    }
    let local = row.subject.as_ref().and_then(|subject| subject.vantage()).map(ToString::to_string);
    let subjects = match local {
        Some(vantage) => vec![vantage],
        None => configured.vantages.iter().map(|(name, _)| name.clone()).collect(),
    };
    let whose = Whose { subjects, vantage: None, addresses: false };
    let said = states(connection, &whose, from, to).await?;
    let silent = said.iter().filter(|one| one.kind == "vantage" && one.presence == "unknown");
    spans.extend(silent.take(LISTED_MAX).map(|one| {
        let (begin, end) = (one.since.max(from), one.until.unwrap_or(to).min(to));
        let word =
            VantageVerdict::from_word(&one.verdict).map_or(one.verdict.as_str(), |verdict| vantage_word(verdict));
        format!("what {} saw {}: it was {word}", one.subject, between(begin, end))
    }));
    Ok(spans)
}

fn told(number: usize, row: &EvidenceRow) -> Evidence {
    let says = [Shows::FailsHere, Shows::SeenElsewhere, Shows::OtherResolver, Shows::NodeProbe, Shows::Control]
        .into_iter()
        .find(|shows| shows_word(*shows) == row.says)
        .map_or_else(|| row.says.replace('_', " "), |shows| plan_words::shows(shows).to_owned());
    Evidence {
        number,
        observation: row.observation,
        says,
        at: row.at.map(At),
        vantage: row.vantage.clone(),
        text: measured_text(row).unwrap_or_else(|| "no longer in the log".to_owned()),
        repeat: repeat(row),
    }
}

fn measured_text(row: &EvidenceRow) -> Option<String> {
    let (kind, subject, word) = (row.kind.as_deref()?, row.subject.as_deref()?, row.outcome.as_deref()?);
    let took = row.duration_us.map(|us| format!(" in {}", measured(us))).unwrap_or_default();
    let found = Outcome::from_word(word);
    // A word of another version is told as it is.
    let ended = found.map_or_else(|| word, |found| outcome::phrase(found));
    let text = match kind {
        "resolution" => {
            let mut text = format!("{} asked for {subject}: {ended}", row.resolver.as_deref().unwrap_or("a resolver"));
            if !row.addresses.is_empty() {
                text.push_str(&format!(" {}", words::list(&row.addresses, LISTED_MAX)));
            }
            match row.ttl_s {
                Some(ttl) if !row.addresses.is_empty() => text.push_str(&format!(", TTL {ttl} s{took}")),
                Some(_) | None => text.push_str(&took),
            }
            text
        }
        "connection" => {
            let target = match (row.address, row.port) {
                (Some(IpAddr::V6(v6)), Some(port)) => format!("[{v6}]:{port}"),
                (Some(address), Some(port)) => format!("{address}:{port}"),
                (Some(address), None) => address.to_string(),
                (None, _) => "an address".to_owned(),
            };
            let tries = match (row.attempts, row.attempts_connected) {
                (Some(attempts), Some(connected)) if attempts > 1 => {
                    format!(" ({connected} of {attempts} attempts connected)")
                }
                _ => String::new(),
            };
            let about = subject.strip_prefix("node:").map_or_else(|| subject.to_owned(), |node| format!("node {node}"));
            format!("{target} for {about}: {ended}{took}{tries}")
        }
        "endpoint_check" => {
            let ended = match (row.stage.as_deref().and_then(Stage::from_word), found) {
                (Some(stage), Some(found)) => outcome::endpoint(stage, found),
                _ => word.to_owned(),
            };
            format!("endpoint {subject}: {ended}{took}")
        }
        "control_check" => format!("control {subject}: {ended}{took}"),
        "path" => format!("path to {subject}: {ended}"),
        other => format!("{other} {subject}: {ended}"),
    };
    Some(text)
}

fn repeat(row: &EvidenceRow) -> Option<String> {
    let subject = row.subject.as_deref()?;
    match row.kind.as_deref()? {
        "resolution" => {
            let name: DomainName = subject.parse().ok()?;
            Some(format!("dig +noall +comments +answer {} A", name.as_str()))
        }
        "connection" => {
            let (address, port) = (row.address?, u16::try_from(row.port?).ok()?);
            match subject.parse::<DomainName>() {
                Ok(name) => Some(curl(&name, port, address)),
                Err(_) => Some(format!("nc -vz -w 5 {address} {port}")),
            }
        }
        _ => None,
    }
}

fn plan_told(plan: &PlanRow, zone: &Zone) -> PlanTold {
    let unread = || "written by another version of Parallax".to_owned();
    PlanTold {
        line: ChangeLine::of(plan, zone),
        expects: plan.change.as_ref().map_or_else(unread, plan_words::expects),
        sets: plan.change.as_ref().map_or_else(unread, plan_words::sets),
        undo: plan.undo.as_ref().map_or_else(unread, plan_words::change),
        mode: plan.mode.clone(),
        counted: plan.counted,
        expires_at: At(plan.expires_at),
    }
}

impl Story {
    /// From opening to closing, or to now, as `2026-10-26 14:02:10 - 14:43:22 MSK (11:02:10Z)`.
    #[must_use]
    pub fn when(&self, zone: &Zone) -> String {
        let opened = self.incident.opened_at.0;
        let day = |at: Timestamp| zone.minute(at).chars().take(10).collect::<String>();
        match self.incident.closed_at {
            None => format!("{}{}, open", zone.date_time(opened), zone.and_utc(opened)),
            Some(At(closed)) if day(opened) == day(closed) => {
                format!("{} {} - {}{}", day(opened), zone.clock(opened), zone.clock_named(closed), zone.and_utc(opened))
            }
            Some(At(closed)) => {
                format!("{} - {}{}", zone.date_time(opened), zone.date_time(closed), zone.and_utc(opened))
            }
        }
    }
}
