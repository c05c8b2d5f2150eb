//! Changes of verdicts. The newest row of a subject is what is said of it now.

use std::collections::BTreeMap;

use parallax_decide::observation::ObservationId;
use parallax_decide::presence::Presence;
use parallax_decide::time::Timestamp;
use serde_json::Value;
use sqlx::PgConnection;

use super::{StoreError, offset};

/// What kind of subject a verdict is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubjectKind {
    /// A vantage itself.
    Vantage,
    /// A name as one resolver answers it at a vantage.
    Answer,
    /// An address for a target at a vantage.
    Address,
    /// A resolver's endpoint at a vantage.
    Endpoint,
    /// A node across vantages.
    Node,
}

impl SubjectKind {
    const ALL: [Self; 5] = [Self::Vantage, Self::Answer, Self::Address, Self::Endpoint, Self::Node];

    /// The word for it in SQL.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Vantage => "vantage",
            Self::Answer => "answer",
            Self::Address => "address",
            Self::Endpoint => "endpoint",
            Self::Node => "node",
        }
    }
}

/// What a verdict is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VerdictSubject {
    /// Its kind.
    pub kind: SubjectKind,
    /// Vantage, name, endpoint, node; or target and address with a blank between, the target being a name or
    /// `node:NAME`.
    pub subject: String,
    /// Where it holds; `None`: across vantages.
    pub vantage: Option<String>,
    /// Resolver that gave the answer (answers only).
    pub resolver: Option<String>,
}

/// A verdict that differs from what was said before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVerdict {
    /// About what.
    pub subject: VerdictSubject,
    /// The word.
    pub word: &'static str,
    /// What it means for who uses the subject.
    pub presence: Presence,
    /// Why, as data.
    pub reason: Value,
    /// Observations that decided.
    pub evidence: Vec<ObservationId>,
}

/// Verdicts of one statement: each is held four times over until it is sent, and the first tick over ten thousand vantages
/// brings a hundred thousand.
const AT_ONCE_MAX: usize = 1000;

/// What is said of every subject now.
///
/// # Errors
/// When the database refuses, or holds a kind this version does not know.
pub async fn newest(connection: &mut PgConnection) -> Result<BTreeMap<VerdictSubject, String>, StoreError> {
    let rows = sqlx::query!(
        "select distinct on (subject_kind, subject, vantage, resolver)
                id, subject_kind, subject, vantage, resolver, verdict
         from verdict
         order by subject_kind, subject, vantage, resolver, id desc"
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| {
            let kind = SubjectKind::ALL.into_iter().find(|kind| kind.word() == row.subject_kind).ok_or_else(|| {
                StoreError::content("verdict", "subject_kind", row.id, format!("'{}' is unknown", row.subject_kind))
            })?;
            let subject = VerdictSubject { kind, subject: row.subject, vantage: row.vantage, resolver: row.resolver };
            Ok((subject, row.verdict))
        })
        .collect()
}

/// Stores changes decided at one moment, in this order; each ends the verdict it replaces. Part of a
/// transaction.
///
/// # Errors
/// When the database refuses.
pub async fn insert(connection: &mut PgConnection, at: Timestamp, new: &[NewVerdict]) -> Result<(), StoreError> {
    for part in new.chunks(AT_ONCE_MAX) {
        insert_part(connection, at, part).await?;
    }
    Ok(())
}

async fn insert_part(connection: &mut PgConnection, at: Timestamp, new: &[NewVerdict]) -> Result<(), StoreError> {
    let kinds: Vec<String> = new.iter().map(|v| v.subject.kind.word().to_owned()).collect();
    let subjects: Vec<String> = new.iter().map(|v| v.subject.subject.clone()).collect();
    let vantages: Vec<Option<String>> = new.iter().map(|v| v.subject.vantage.clone()).collect();
    let resolvers: Vec<Option<String>> = new.iter().map(|v| v.subject.resolver.clone()).collect();
    let words: Vec<String> = new.iter().map(|v| v.word.to_owned()).collect();
    let reasons: Vec<Value> = new.iter().map(|v| v.reason.clone()).collect();
    let evidence: Vec<String> = new.iter().map(|v| array(&v.evidence)).collect();
    let presences: Vec<String> = new.iter().map(|v| v.presence.word().to_owned()).collect();
    // A clock that stepped back must not make a span end before it began.
    sqlx::query!(
        "update verdict v set until = greatest($1, v.at)
         from unnest($2::text[], $3::text[], $4::text[], $5::text[]) as n(kind, subject, vantage, resolver)
         where v.until is null and v.subject_kind = n.kind and v.subject = n.subject
           and coalesce(v.vantage, '') = coalesce(n.vantage, '') and coalesce(v.resolver, '') = coalesce(n.resolver, '')",
        offset(at),
        &kinds,
        &subjects,
        &vantages as &[Option<String>],
        &resolvers as &[Option<String>]
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "insert into verdict (at, vantage, subject_kind, subject, resolver, verdict, reason, evidence, presence)
         select $1, n.vantage, n.kind, n.subject, n.resolver, n.word, n.reason, n.evidence::bigint[], n.presence
         from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::jsonb[], $8::text[], $9::text[])
              with ordinality as n(kind, subject, vantage, resolver, word, reason, evidence, presence, place)
         order by n.place",
        offset(at),
        &kinds,
        &subjects,
        &vantages as &[Option<String>],
        &resolvers as &[Option<String>],
        &words,
        &reasons,
        &evidence,
        &presences
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// An array literal: an unnested parameter cannot hold an array per row.
fn array(ids: &[ObservationId]) -> String {
    let texts: Vec<String> = ids.iter().map(|id| id.0.to_string()).collect();
    format!("{{{}}}", texts.join(","))
}
