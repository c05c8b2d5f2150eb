//! What happened between two moments, in order of time: changes of verdicts, incidents, changes of records and pins, other
//! answers, what people did, and time in which nobody judged.

use std::collections::BTreeMap;
use std::fmt::Write;

use parallax_decide::time::Timestamp;
use parallax_decide::verdict::{AddressVerdict, AnswerVerdict, EndpointVerdict, NodeVerdict, VantageVerdict};
use serde::Serialize;
use sqlx::PgConnection;

use super::SCHEMA;
use super::moment::{At, coarse};
use super::text::Style;
use crate::store::StoreError;
use crate::store::read::incident::{Filter, listed};
use crate::store::read::moment::State as Stored;
use crate::store::read::replay::watched;
use crate::store::read::span::{ChangeRow, ROWS_MAX, Whose, changes, deeds, given, states};
use crate::store::watch::PAUSE_MAX;
use crate::words::verdict::{address_phrase, answer_word, endpoint_word, kind_title, node_phrase, vantage_word};
use crate::words::{SPELLED_MAX, list};

/// Entries of one answer; of more the oldest.
pub const ENTRIES_MAX: usize = 2_000;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Happened {
    /// Version of this JSON.
    pub schema: u32,
    /// Begin.
    pub from: At,
    /// End.
    pub to: At,
    /// Whose: a name, a service, a node or a vantage; none: everybody's.
    pub of: Option<String>,
    /// In order of time.
    pub entries: Vec<Entry>,
    /// There was more than is told.
    pub cut: bool,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Entry {
    /// When.
    pub at: At,
    /// verdict, incident, change, answer, deed or unwatched.
    pub what: &'static str,
    /// Where; none: nowhere in particular.
    pub vantage: Option<String>,
    /// What it is about.
    pub about: String,
    /// As a sentence.
    pub text: String,
    /// Incident concerned.
    pub incident: Option<i64>,
    /// Plan concerned.
    pub plan: Option<i64>,
    /// Observations that show it: `v_observation.id`.
    pub observations: Vec<i64>,
}

/// Whose timeline, in all the words by which rows name it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Of {
    /// As it was asked for.
    pub asked: Option<String>,
    /// Names, services, nodes: as verdicts, incidents and changes name them; empty: everybody's.
    pub words: Vec<String>,
    /// Only at this vantage.
    pub vantage: Option<String>,
}

/// Reads it.
///
/// # Errors
/// When the database refuses.
pub async fn read(
    connection: &mut PgConnection,
    of: &Of,
    from: Timestamp,
    to: Timestamp,
) -> Result<Happened, StoreError> {
    let everything = of.words.is_empty() && of.vantage.is_none();
    // Of all places and names each single address would be too much.
    let whose = Whose { subjects: of.words.clone(), vantage: of.vantage.clone(), addresses: !everything };
    let mut entries = Vec::new();
    let said = states(&mut *connection, &whose, from, to).await?;
    let mut cut = full(said.len());
    verdicts(&mut entries, &said, from);
    let filter = Filter { since: Some(from), until: Some(to), ..Filter::default() };
    let incidents = listed(&mut *connection, &filter, ROWS_MAX).await?;
    cut |= full(incidents.len());
    for row in &incidents {
        let subject = row.subject.as_ref();
        let here = of.vantage.as_ref().is_none_or(|vantage| {
            subject.and_then(|subject| subject.vantage()).is_none_or(|only| only.as_str() == vantage)
        });
        let mine = of.words.is_empty()
            || of.words.iter().any(|word| row.members.contains(word) || subject.is_some_and(|one| one.name() == word));
        if !(here && mine) {
            continue;
        }
        let entry = |at: Timestamp, verb: &str| Entry {
            at: At(at),
            what: "incident",
            vantage: subject.and_then(|subject| subject.vantage()).map(ToString::to_string),
            about: row.key.clone(),
            text: format!(
                "incident {} {verb}: {}, {}",
                row.id.0,
                kind_title(&row.kind),
                list(&row.members, SPELLED_MAX)
            ),
            incident: Some(row.id.0),
            plan: None,
            observations: Vec::new(),
        };
        entries.extend((row.opened_at >= from).then(|| entry(row.opened_at, "opened")));
        entries.extend(row.closed_at.filter(|at| *at <= to && *at >= from).map(|at| entry(at, "closed")));
    }
    let made = changes(&mut *connection, from, to).await?;
    cut |= full(made.len());
    let ids: Vec<i64> = incidents.iter().map(|row| row.id.0).collect();
    for one in made {
        let here = of.vantage.is_none() || one.vantage == of.vantage;
        let mine = of.words.is_empty()
            || of.words.contains(&one.name)
            || (ids.contains(&one.incident) && entries.iter().any(|entry| entry.incident == Some(one.incident)));
        if here && mine {
            entries.push(change(one));
        }
    }
    if !everything {
        let answers = given(&mut *connection, &whose, from, to).await?;
        cut |= full(answers.len());
        entries.extend(answers.into_iter().map(|one| Entry {
            at: At(one.since),
            what: "answer",
            vantage: Some(one.vantage),
            text: if one.addresses.is_empty() {
                format!("{} began to answer {}", one.resolver, one.outcome.replace('_', " "))
            } else {
                format!("{} began to answer {}", one.resolver, list(&one.addresses, SPELLED_MAX))
            },
            about: one.name,
            incident: None,
            plan: None,
            observations: Vec::new(),
        }));
    } else {
        for deed in deeds(&mut *connection, from, to).await? {
            let what = deed.what.map(|what| format!(": {what}")).unwrap_or_default();
            let text = format!("{} {}{what}", deed.by.unwrap_or_else(|| "somebody".to_owned()), deed.did);
            entries.push(plain(deed.at, "deed", text));
        }
    }
    let judged = watched(connection, from, to).await?;
    unwatched(&mut entries, &judged, from, to);
    entries.sort();
    cut |= entries.len() > ENTRIES_MAX;
    entries.truncate(ENTRIES_MAX);
    Ok(Happened { schema: SCHEMA, from: At(from), to: At(to), of: of.asked.clone(), entries, cut })
}

fn full(rows: usize) -> bool {
    i64::try_from(rows).is_ok_and(|rows| rows >= ROWS_MAX)
}

fn plain(at: Timestamp, what: &'static str, text: String) -> Entry {
    let (vantage, incident, plan) = (None, None, None);
    Entry { at: At(at), what, vantage, about: String::new(), text, incident, plan, observations: Vec::new() }
}

fn verdicts(entries: &mut Vec<Entry>, said: &[Stored], from: Timestamp) {
    let mut before = BTreeMap::new();
    for one in said {
        let key = (one.kind.as_str(), one.subject.as_str(), one.vantage.as_deref(), one.resolver.as_deref());
        let last: Option<&Stored> = before.insert(key, one);
        if one.since < from {
            continue;
        }
        let resolver = one.resolver.as_ref().map(|resolver| format!(" by {resolver}")).unwrap_or_default();
        let was = last.map(|last| format!(" (before: {})", word(last))).unwrap_or_default();
        entries.push(Entry {
            at: At(one.since),
            what: "verdict",
            vantage: one.vantage.clone(),
            about: one.subject.clone(),
            text: format!("{} {}{resolver}: {}{was}", one.kind, one.subject, word(one)),
            incident: None,
            plan: None,
            observations: one.evidence.iter().map(|id| id.0).collect(),
        });
    }
}

/// A verdict in words; one of another version as it is.
fn word(one: &Stored) -> String {
    let text = one.verdict.as_str();
    let known = match one.kind.as_str() {
        "vantage" => VantageVerdict::from_word(text).map(vantage_word),
        "answer" => AnswerVerdict::from_word(text).map(answer_word),
        "address" => AddressVerdict::from_word(text).map(address_phrase),
        "endpoint" => EndpointVerdict::from_word(text).map(endpoint_word),
        "node" => NodeVerdict::from_word(text).map(node_phrase),
        _ => None,
    };
    known.map_or_else(|| text.replace('_', " "), str::to_owned)
}

fn change(one: ChangeRow) -> Entry {
    let set = |addresses: &[std::net::IpAddr]| {
        if addresses.is_empty() { "the native answer".to_owned() } else { list(addresses, SPELLED_MAX) }
    };
    let text = if one.ours {
        let by = one.by.map(|by| format!(", by {by}")).unwrap_or_default();
        format!(
            "{} {}: {} -> {} (plan {}, {}{by})",
            one.kind,
            one.name,
            set(&one.before),
            set(&one.after),
            one.plan,
            one.purpose
        )
    } else {
        format!("{} was changed by somebody else; plan {} left it alone", one.name, one.plan)
    };
    Entry {
        at: At(one.at),
        what: "change",
        vantage: one.vantage,
        about: one.name,
        text,
        incident: Some(one.incident),
        plan: Some(one.plan),
        observations: Vec::new(),
    }
}

/// Time between spans of judging, and before and after them.
fn unwatched(entries: &mut Vec<Entry>, judged: &[(Timestamp, Timestamp)], from: Timestamp, to: Timestamp) {
    let mut last = from;
    let ends = judged.iter().copied().chain([(to, to)]);
    for (began, until) in ends {
        let gap = began.since(last);
        if gap > PAUSE_MAX {
            let text =
                format!("nobody judged for {}: that time is unknown, whatever was said before and after", coarse(gap));
            entries.push(plain(last, "unwatched", text));
        }
        last = last.max(until);
    }
}

/// `parallax timeline`
#[must_use]
pub fn text(happened: &Happened, style: &Style) -> String {
    let zone = &style.zone;
    let mut out = String::new();
    let of = happened.of.as_ref().map(|of| format!("   {of}")).unwrap_or_default();
    let _ = writeln!(out, "{} - {}{of}", zone.date_time(happened.from.0), zone.date_time(happened.to.0));
    if happened.entries.is_empty() {
        out.push_str("Nothing changed in that time.\n");
    }
    let wide = happened.entries.iter().filter_map(|one| one.vantage.as_ref()).map(|one| one.chars().count()).max();
    let wide = wide.unwrap_or(0);
    let mut day = String::new();
    for one in &happened.entries {
        let today: String = zone.minute(one.at.0).chars().take(10).collect();
        if today != day {
            let _ = writeln!(out, "{today}");
            day = today;
        }
        let place = one.vantage.as_deref().unwrap_or("");
        let _ = writeln!(out, "  {}  {:<9} {place:<wide$}  {}", zone.clock(one.at.0), one.what, one.text);
    }
    if happened.cut {
        let _ = writeln!(out, "There was more: take a shorter span, or one name, service, node or vantage.");
    }
    out
}
