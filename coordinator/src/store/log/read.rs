//! Reads the log back, in commit order.

use std::net::IpAddr;
use std::time::Duration;

use parallax_decide::names::{ControlName, DomainName, NodeName, ResolverName};
use parallax_decide::observation::{
    Connection, ConnectionOutcome, ControlCheck, EndpointCheck, Fact, Family, Observation, ObservationId, Purpose,
    Resolution, ResolutionOutcome, Stage, StageOutcome, Target,
};
use parallax_decide::time::Timestamp;
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::purpose_word;
use crate::store::{StoreError, offset, timestamp};

/// A reader's place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Last one read.
    pub after: ObservationId,
    /// Nothing received before this is wanted. It spares the reader the older days' partitions.
    pub from: Timestamp,
}

/// How far the database's clock may step back between two commits without a reader missing rows.
const STEP_BACK: Duration = Duration::from_secs(600);

impl Position {
    /// Everything received from this time on.
    #[must_use]
    pub fn since(received_at: Timestamp) -> Self {
        Self { after: ObservationId(0), from: received_at }
    }

    /// Behind this one.
    #[must_use]
    pub fn behind(last: &Observation) -> Self {
        Self { after: last.id, from: last.received_at.minus(STEP_BACK) }
    }
}

struct Row {
    id: i64,
    received_at: OffsetDateTime,
    observed_at: OffsetDateTime,
    vantage: String,
    purpose: String,
    kind: String,
    subject: String,
    resolver: Option<String>,
    family: Option<i16>,
    address: Option<IpAddr>,
    port: Option<i32>,
    outcome: String,
    stage: Option<String>,
    addresses: Option<Vec<IpAddr>>,
    ttl_s: Option<i32>,
    attempts: Option<i16>,
    attempts_connected: Option<i16>,
}

/// The next observations in commit order, at most `limit`, without late ones: those are never
/// evidence. Call again with [`Position::behind`] the last one until none come.
///
/// # Errors
/// When the database refuses, or a row holds what this version cannot read.
pub async fn observations_after(
    connection: &mut PgConnection,
    position: Position,
    limit: i64,
) -> Result<Vec<Observation>, StoreError> {
    sqlx::query_as!(
        Row,
        r#"select o.id, o.received_at, o.observed_at, v.name as vantage, o.purpose, o.kind, o.subject, o.resolver,
                  o.family, o.address as "address: IpAddr", o.port, o.outcome, o.stage,
                  o.addresses as "addresses: Vec<IpAddr>", o.ttl_s, o.attempts, o.attempts_connected
           from observation o join vantage v on v.id = o.vantage_id
           where o.id > $1 and o.received_at >= $2 and not o.late
           order by o.id
           limit $3"#,
        position.after.0,
        offset(position.from),
        limit
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(Observation::try_from)
    .collect()
}

/// Observations by id, for the evidence of an incident; late ones as well. Those that retention
/// has removed are left out.
///
/// # Errors
/// When the database refuses, or a row holds what this version cannot read.
pub async fn observations_by_id(
    connection: &mut PgConnection,
    ids: &[ObservationId],
) -> Result<Vec<Observation>, StoreError> {
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    sqlx::query_as!(
        Row,
        r#"select o.id, o.received_at, o.observed_at, v.name as vantage, o.purpose, o.kind, o.subject, o.resolver,
                  o.family, o.address as "address: IpAddr", o.port, o.outcome, o.stage,
                  o.addresses as "addresses: Vec<IpAddr>", o.ttl_s, o.attempts, o.attempts_connected
           from observation o join vantage v on v.id = o.vantage_id
           where o.id = any($1)
           order by o.id"#,
        &ids
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(Observation::try_from)
    .collect()
}

impl Row {
    fn bad(&self, column: &'static str, why: impl ToString) -> StoreError {
        StoreError::content("observation", column, self.id, why)
    }

    fn need<T: Clone>(&self, column: &'static str, value: &Option<T>) -> Result<T, StoreError> {
        value.clone().ok_or_else(|| self.bad(column, format!("null in a {}", self.kind)))
    }

    fn word<T>(&self, column: &'static str, word: &str, parse: fn(&str) -> Option<T>) -> Result<T, StoreError> {
        parse(word).ok_or_else(|| self.bad(column, format!("'{word}' is not a word this version knows")))
    }

    fn count(&self, column: &'static str, value: &Option<i16>) -> Result<u16, StoreError> {
        u16::try_from(self.need(column, value)?).map_err(|error| self.bad(column, error))
    }

    fn name<T: std::str::FromStr<Err: ToString>>(&self, column: &'static str, text: &str) -> Result<T, StoreError> {
        text.parse().map_err(|error: T::Err| self.bad(column, error))
    }

    fn fact(&self) -> Result<Fact, StoreError> {
        match self.kind.as_str() {
            "resolution" => Ok(Fact::Resolution(Resolution {
                name: self.name::<DomainName>("subject", &self.subject)?,
                resolver: self.name::<ResolverName>("resolver", &self.need("resolver", &self.resolver)?)?,
                family: match self.need("family", &self.family)? {
                    4 => Family::V4,
                    6 => Family::V6,
                    other => return Err(self.bad("family", format!("{other} is neither 4 nor 6"))),
                },
                outcome: self.word("outcome", &self.outcome, ResolutionOutcome::from_word)?,
                addresses: self.need("addresses", &self.addresses)?,
                ttl_s: u32::try_from(self.need("ttl_s", &self.ttl_s)?).map_err(|error| self.bad("ttl_s", error))?,
            })),
            "connection" => Ok(Fact::Connection(Connection {
                target: match self.subject.strip_prefix("node:") {
                    Some(node) => Target::Node(self.name::<NodeName>("subject", node)?),
                    None => Target::Name(self.name::<DomainName>("subject", &self.subject)?),
                },
                address: self.need("address", &self.address)?,
                port: u16::try_from(self.need("port", &self.port)?).map_err(|error| self.bad("port", error))?,
                outcome: self.word("outcome", &self.outcome, ConnectionOutcome::from_word)?,
                attempts: self.count("attempts", &self.attempts)?,
                attempts_connected: self.count("attempts_connected", &self.attempts_connected)?,
            })),
            "endpoint_check" => Ok(Fact::EndpointCheck(EndpointCheck {
                resolver: self.name::<ResolverName>("subject", &self.subject)?,
                address: self.need("address", &self.address)?,
                stage: self.word("stage", &self.need("stage", &self.stage)?, Stage::from_word)?,
                outcome: self.word("outcome", &self.outcome, StageOutcome::from_word)?,
            })),
            "control_check" => Ok(Fact::ControlCheck(ControlCheck {
                control: self.name::<ControlName>("subject", &self.subject)?,
                outcome: self.word("outcome", &self.outcome, ConnectionOutcome::from_word)?,
            })),
            other => Err(self.bad("kind", format!("'{other}' is not a kind this version knows"))),
        }
    }
}

impl TryFrom<Row> for Observation {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: ObservationId(row.id),
            vantage: row.name("vantage_id", &row.vantage)?,
            at: timestamp(row.observed_at),
            received_at: timestamp(row.received_at),
            purpose: row.word("purpose", &row.purpose, |word| {
                [Purpose::Scheduled, Purpose::Confirm, Purpose::CrossCheck, Purpose::Verify]
                    .into_iter()
                    .find(|purpose| purpose_word(*purpose) == word)
            })?,
            fact: row.fact()?,
        })
    }
}
