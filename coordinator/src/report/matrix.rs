//! Every vantage against every name, now: states from verdicts, numbers from the newest facts.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use parallax_decide::answer::Answer;
use parallax_decide::time::Timestamp;
use parallax_decide::vantage::VantageJudgement;
use parallax_decide::verdict::{AnswerVerdict, VantageVerdict};
use serde::Serialize;
use sqlx::PgConnection;

use super::SCHEMA;
use super::cells::Facts;
use super::failover::{Served, served};
use super::moment::{At, measured};
use super::summary::{self, Summary};
use crate::store::config_version::{self, RefusedReload};
use crate::store::configured::{self, Configured};
use crate::store::freeze;
use crate::store::read::incident::{Filter, listed};
use crate::store::read::moment::{self, Watched};
use crate::store::read::now::{self, CellNow, VantageNow};
use crate::store::read::plan::{self, PlanRow};
use crate::store::watch::PAUSE_MAX;
use crate::store::{StoreError, database_now};
use crate::words::State;
use crate::words::vantage::cloned;

/// Incidents below the matrix.
const RECENT_MAX: i64 = 20;

/// How far back they go.
const RECENT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The picture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Matrix {
    /// Version of this JSON.
    pub schema: u32,
    /// Moment it shows, database clock.
    pub at: At,
    /// When the last judging ends that anybody promised; past: nobody judges.
    pub judging_until: Option<At>,
    /// The operator's stop of every write.
    pub frozen: Option<Frozen>,
    /// Configurations that coordinators refused, so that older ones are in force; the newest first.
    pub refused_configurations: Vec<RefusedConfiguration>,
    /// Watched names: the columns.
    pub canaries: Vec<String>,
    /// Services: further columns.
    pub services: Vec<ServiceHead>,
    /// Vantages: the rows.
    pub vantages: Vec<Line>,
    /// Open incidents, newest first.
    pub open: Vec<Summary>,
    /// Incidents closed lately, newest first.
    pub recent: Vec<Summary>,
}

/// A stop of every write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Frozen {
    /// Since when.
    pub since: At,
    /// By whom.
    pub by: String,
    /// Why.
    pub reason: String,
}

impl From<freeze::Freeze> for Frozen {
    fn from(freeze: freeze::Freeze) -> Self {
        Self { since: At(freeze.since), by: freeze.by, reason: freeze.reason }
    }
}

/// A configuration that a coordinator refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedConfiguration {
    /// Host of the coordinator.
    pub host: String,
    /// When.
    pub at: At,
    /// Number of the version that stays in force there.
    pub in_force: Option<i32>,
    /// Why, one fault a line.
    pub why: String,
}

impl From<RefusedReload> for RefusedConfiguration {
    fn from(refused: RefusedReload) -> Self {
        Self { host: refused.host, at: At(refused.at), in_force: refused.number, why: refused.error }
    }
}

/// A service as a column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServiceHead {
    /// Name.
    pub name: String,
    /// Its record's name.
    pub hostname: String,
    /// What the record holds now, by our knowledge.
    pub serves: Served,
}

/// A vantage as a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Name.
    pub vantage: String,
    /// Words that describe it.
    pub labels: BTreeMap<String, String>,
    /// Whether the configuration names it.
    pub configured: bool,
    /// Its standing's word; none: not judged yet.
    pub standing: Option<VantageVerdict>,
    /// The same in words.
    pub standing_words: &'static str,
    /// What that means for what it says.
    pub standing_sentence: &'static str,
    /// Since when.
    pub standing_since: Option<At>,
    /// Controls reached and failed when that was decided.
    pub controls: Option<(usize, usize)>,
    /// Its wall clock less the coordinator's, in milliseconds.
    pub clock_offset_ms: Option<i64>,
    /// Failed and all checks of its positive controls in 20 minutes.
    pub controls_lately: Option<(i64, i64)>,
    /// Both in words; empty: it has said neither lately.
    pub condition: String,
    /// Last message.
    pub last_seen_at: Option<At>,
    /// Nothing was heard for longer than the policy's limit.
    pub stale: bool,
    /// Version of its agent.
    pub agent_version: Option<String>,
    /// Coordinator that holds its stream.
    pub coordinator: Option<String>,
    /// Both source addresses of an identity that two machines used lately.
    pub cloned: Option<(String, String)>,
    /// One for each canary, in order.
    pub cells: Vec<Cell>,
    /// One for each service, in order.
    pub services: Vec<Cell>,
}

impl Line {
    /// The state its standing is drawn with.
    #[must_use]
    pub fn state(&self) -> State {
        match self.standing {
            _ if self.stale => State::Unobserved,
            Some(VantageVerdict::Ok | VantageVerdict::ClockSkewed) => State::Usable,
            Some(VantageVerdict::Degraded) => State::Partial,
            Some(VantageVerdict::Intercepted | VantageVerdict::Captive | VantageVerdict::Suspect) => {
                State::WrongContent
            }
            Some(VantageVerdict::UplinkDown) => State::NoAnswer,
            Some(VantageVerdict::Silent | VantageVerdict::Late | VantageVerdict::Unmeasured) | None => {
                State::Unobserved
            }
        }
    }

    /// What its standing spares others, where that must be said.
    #[must_use]
    pub fn mute_note(&self) -> &'static str {
        match self.standing {
            Some(VantageVerdict::Captive) if !self.stale => "a captive portal: nothing from here counts",
            Some(VantageVerdict::UplinkDown) if !self.stale => "nothing accused from here",
            Some(VantageVerdict::Degraded) if !self.stale => "its failures do not count",
            Some(VantageVerdict::Suspect) if !self.stale => "suspect: nothing from here counts",
            Some(VantageVerdict::ClockSkewed) if !self.stale => "its clock is wrong",
            Some(VantageVerdict::Late) if !self.stale => "only what is too old has come so far",
            Some(
                VantageVerdict::Ok
                | VantageVerdict::Intercepted
                | VantageVerdict::Silent
                | VantageVerdict::Late
                | VantageVerdict::Suspect
                | VantageVerdict::ClockSkewed
                | VantageVerdict::Unmeasured
                | VantageVerdict::UplinkDown
                | VantageVerdict::Captive
                | VantageVerdict::Degraded,
            )
            | None => "",
        }
    }

    /// That two machines use its identity, in words; empty: no.
    #[must_use]
    pub fn clone_note(&self) -> String {
        self.cloned.as_ref().map(cloned).unwrap_or_default()
    }

    /// Labels as one text: `isp=rt site=kazan`.
    #[must_use]
    pub fn labels_text(&self) -> String {
        let texts: Vec<String> = self.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        texts.join(" ")
    }
}

/// One name at one vantage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// Where.
    pub vantage: String,
    /// Name that is resolved.
    pub name: String,
    /// What it looks like.
    pub state: State,
    /// Verdict's word; none: not judged, or not to be believed.
    pub verdict: Option<AnswerVerdict>,
    /// In words.
    pub words: String,
    /// As a sentence.
    pub sentence: String,
    /// Since when the verdict holds.
    pub since: Option<At>,
    /// Addresses of the newest answer that work from there.
    pub proven: usize,
    /// Addresses of the newest answer.
    pub addresses: Vec<AddressNow>,
    /// The slowest working connection, microseconds.
    pub duration_us: Option<i64>,
    /// Node that the answer leads to (services).
    pub serves: Option<String>,
    /// That node is not the native one.
    pub temporary: bool,
    /// A pin of ours is what is answered.
    pub pinned_by_plan: Option<i64>,
    /// Open incident it belongs to.
    pub incident: Option<i64>,
}

/// An address of the newest answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AddressNow {
    /// Address.
    pub address: IpAddr,
    /// Whether it works from there; none: not tried lately.
    pub works: Option<bool>,
    /// How the newest try ended.
    pub words: &'static str,
}

impl Cell {
    /// `2/2`, or nothing where there is no address.
    #[must_use]
    pub fn fraction(&self) -> String {
        if self.addresses.is_empty() { String::new() } else { format!("{}/{}", self.proven, self.addresses.len()) }
    }

    /// `38 ms`, or nothing.
    #[must_use]
    pub fn duration(&self) -> String {
        self.duration_us.map(measured).unwrap_or_default()
    }

    /// The addresses with what became of each, for a tooltip.
    #[must_use]
    pub fn title(&self) -> String {
        let mut text = self.sentence.clone();
        for one in &self.addresses {
            text.push_str(&format!("\n{}: {}", one.address, one.words));
        }
        if let Some(since) = self.since {
            text.push_str(&format!("\nsince {since}"));
        }
        text
    }

    /// The whole cell in words, for those who do not see it.
    #[must_use]
    pub fn label(&self) -> String {
        let mut text = format!("{}, {}: {}", self.vantage, self.name, self.words);
        if !self.addresses.is_empty() {
            text.push_str(&format!(", {} of {} addresses work", self.proven, self.addresses.len()));
        }
        if let Some(node) = &self.serves {
            text.push_str(&format!(", leads to {node}"));
        }
        if let Some(since) = self.since {
            text.push_str(&format!(", since {since}"));
        }
        text
    }
}

/// Reads the picture.
///
/// # Errors
/// When the database refuses.
pub async fn read(connection: &mut PgConnection) -> Result<Matrix, StoreError> {
    let at = database_now(&mut *connection).await?;
    let configured = configured::read(&mut *connection).await?;
    let fresh = at.minus(configured.policy.fresh_for());
    let vantages = now::vantages(&mut *connection).await?;
    let cells = now::cells(&mut *connection).await?;
    let answers = match configured.live_resolver() {
        Some(live) => now::answers(&mut *connection, live, fresh, at).await?,
        None => Vec::new(),
    };
    let reached = now::reached(&mut *connection, fresh, at).await?;
    let pins = plan::pins(&mut *connection).await?;
    let records = plan::records_set(&mut *connection).await?;
    let incidents = summary::read(&mut *connection, &configured, at.minus(RECENT), at, RECENT_MAX).await?;
    let frozen = freeze::current(&mut *connection).await?.map(Frozen::from);
    let refused = config_version::refusals(&mut *connection).await?;
    let judging_until = now::judging_until(connection).await?.map(At);
    let (open, recent): (Vec<Summary>, Vec<Summary>) = incidents.into_iter().partition(|incident| incident.open);
    let facts = Facts { configured: &configured, cells, answers, reached, pins, open: &open };
    let lines = vantages.iter().map(|vantage| facts.line(vantage, at)).collect();
    Ok(Matrix {
        schema: SCHEMA,
        at: At(at),
        judging_until,
        frozen,
        refused_configurations: refused.into_iter().map(RefusedConfiguration::from).collect(),
        canaries: configured.canaries.iter().map(|(name, _)| name.clone()).collect(),
        services: heads(&configured, &records),
        vantages: lines,
        open,
        recent,
    })
}

/// Incidents that a moment shows as open.
const OPEN_MAX: i64 = 50;

/// Reads the picture as it was at a moment, from what was stored by then. Where nobody judged, what was said last decays
/// to unobserved as it does live.
///
/// # Errors
/// When the database refuses.
pub async fn read_at(connection: &mut PgConnection, at: Timestamp) -> Result<Matrix, StoreError> {
    let configured = moment::configured(&mut *connection, at).await?.map(|(_, found)| found).unwrap_or_default();
    let fresh = at.minus(configured.policy.fresh_for());
    let states = moment::states(&mut *connection, at, &["vantage", "answer"], None).await?;
    let watched = moment::watched(&mut *connection, at).await?;
    let live = configured.live_resolver().unwrap_or_default().to_owned();
    let answers = now::answers(&mut *connection, &live, fresh, at).await?;
    let reached = now::reached(&mut *connection, fresh, at).await?;
    let pins = plan::pins_at(&mut *connection, at).await?;
    let records = plan::records_set_at(&mut *connection, at).await?;
    let filter = Filter { since: Some(at), until: Some(at), ..Filter::default() };
    let mut open = listed(&mut *connection, &filter, OPEN_MAX).await?;
    let frozen = moment::frozen(connection, at).await?;
    // What came after the moment was not known then.
    open.iter_mut().for_each(|row| row.closed_at = None);
    let open: Vec<Summary> = open.iter().map(|row| Summary::of(row, &[], &configured, at)).collect();
    let heard = |name: &str| {
        let answered = answers.iter().filter(|fact| fact.vantage == name).map(|fact| fact.at);
        answered.chain(reached.iter().filter(|fact| fact.vantage == name).map(|fact| fact.at)).max()
    };
    // Without the log of that day, the last moment at which somebody judged.
    let last_judged = match watched {
        Watched::Yes => Some(at),
        Watched::NotSince(until) => Some(until),
        Watched::NeverBefore => None,
    };
    let vantages: Vec<VantageNow> = configured
        .vantages
        .iter()
        .map(|(name, _)| {
            let stood = states.iter().find(|one| one.kind == "vantage" && one.subject == *name);
            let standing = stood.and_then(|one| VantageVerdict::from_word(&one.verdict));
            let judgement: Option<VantageJudgement> =
                stood.and_then(|one| serde_json::from_value(one.reason.clone()).ok());
            let last_report_at = judgement.as_ref().and_then(|one| one.last_report_at);
            VantageNow {
                name: name.clone(),
                first_seen_at: None,
                last_seen_at: match standing {
                    Some(VantageVerdict::Silent) => last_report_at,
                    Some(_) => heard(name).or(last_judged),
                    None => None,
                },
                agent_version: None,
                revoked_at: None,
                configured: true,
                standing,
                standing_since: stood.map(|one| one.since),
                clock_offset_ms: judgement.as_ref().and_then(|one| one.clock_offset_ms),
                judgement,
                controls_lately: None,
                observations_missing: 0,
                observations_refused: 0,
                held_by: None,
                cloned: None,
            }
        })
        .collect();
    let cells = cells_at(&configured, &states, &live);
    let facts = Facts { configured: &configured, cells, answers, reached, pins, open: &open };
    let mut vantages: Vec<Line> = vantages.iter().map(|vantage| facts.line(vantage, at)).collect();
    // Whether an agent had ever connected by then is not stored.
    for line in vantages.iter_mut().filter(|line| line.standing.is_none()) {
        (line.standing_words, line.standing_sentence) = ("not judged by then", "nothing was said of it by then");
        for cell in line.cells.iter_mut().chain(&mut line.services) {
            line.standing_words.clone_into(&mut cell.words);
            line.standing_sentence.clone_into(&mut cell.sentence);
        }
    }
    Ok(Matrix {
        schema: SCHEMA,
        at: At(at),
        judging_until: match watched {
            Watched::Yes => Some(At(at.plus(PAUSE_MAX))),
            Watched::NotSince(until) => Some(At(until)),
            Watched::NeverBefore => None,
        },
        frozen: frozen.map(|(since, by, reason)| Frozen { since: At(since), by, reason }),
        refused_configurations: Vec::new(),
        canaries: configured.canaries.iter().map(|(name, _)| name.clone()).collect(),
        services: heads(&configured, &records),
        vantages,
        open,
        recent: Vec::new(),
    })
}

fn cells_at(configured: &Configured, states: &[moment::State], live: &str) -> Vec<CellNow> {
    let canaries = configured.canaries.iter().map(|(name, _)| (name, name));
    let services = configured.services.iter().map(|(name, service)| (name, &service.hostname));
    let items: Vec<(&String, &String)> = canaries.chain(services).collect();
    let mut cells = Vec::new();
    for one in states.iter().filter(|one| one.kind == "answer" && one.resolver.as_deref() == Some(live)) {
        let answer: Option<Answer> = serde_json::from_value(one.reason.clone()).ok();
        for (item, name) in items.iter().filter(|(_, name)| **name == one.subject) {
            cells.push(CellNow {
                vantage: one.vantage.clone().unwrap_or_default(),
                item: (*item).clone(),
                name: (*name).clone(),
                verdict: AnswerVerdict::from_word(&one.verdict),
                since: Some(one.since),
                addresses: answer.iter().flat_map(|answer| answer.addresses.iter().copied()).collect(),
                proven: answer.iter().flat_map(|answer| answer.proven.iter().copied()).collect(),
            });
        }
    }
    cells
}

fn heads(configured: &Configured, records: &[PlanRow]) -> Vec<ServiceHead> {
    let services = configured.services.iter().map(|(name, service)| ServiceHead {
        name: name.clone(),
        hostname: service.hostname.clone(),
        serves: served(configured, name, service, records),
    });
    services.collect()
}

impl Matrix {
    /// Whether vantages are named and none of them ever came.
    #[must_use]
    pub fn never_connected(&self) -> bool {
        self.vantages.iter().all(|line| line.last_seen_at.is_none())
    }

    /// Whether the vantages are connected to more than one coordinator.
    #[must_use]
    pub fn several(&self) -> bool {
        let mut held = self.vantages.iter().filter_map(|line| line.coordinator.as_deref());
        held.next().is_some_and(|first| held.any(|other| other != first))
    }

    /// Whether some coordinator runs the tasks.
    #[must_use]
    pub fn judged(&self) -> bool {
        self.judging_until.is_some_and(|until| until >= self.at)
    }
}
