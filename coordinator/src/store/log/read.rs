//! Reads the log back, in commit order.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use parallax_decide::names::{ControlName, DomainName, NodeName, ResolverName};
use parallax_decide::observation::{
    Connection, ControlCheck, EndpointCheck, Fact, Family, Kind, Loss, LossReason, Missed, MissedReason, Observation,
    ObservationId, Outcome, Particulars, Path, Proof, Purpose, Recent, Resolution, Stage, Target, Validation,
};
use parallax_decide::time::Timestamp;
use serde_json::Value;
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

/// The header's RA bit (RFC 1035, 4.1.1).
const RECURSION_AVAILABLE: u16 = 0x0080;

/// How far the database's clock may step back between two commits without a reader missing rows.
pub const STEP_BACK: Duration = Duration::from_secs(600);

impl Position {
    /// Everything received from this time on.
    #[must_use]
    pub fn since(received_at: Timestamp) -> Self {
        Self { after: ObservationId(0), from: received_at }
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
    late: bool,
    detail: Option<Value>,
}

/// A part of the log, in commit order.
#[derive(Debug)]
pub struct Page {
    /// What could be read.
    pub observations: Vec<Observation>,
    /// What could not: set aside, so that one row holds up nothing.
    pub unreadable: Vec<Unreadable>,
    /// Behind the last of both; none when there was no row.
    pub behind: Option<Position>,
    /// Rows of both.
    pub rows: usize,
}

/// A row that holds what this version cannot read.
#[derive(Debug)]
pub struct Unreadable {
    /// Its key.
    pub id: ObservationId,
    /// What is wrong with it.
    pub why: StoreError,
}

/// The next observations in commit order, at most `limit`. Of late ones, which are never evidence, only controls: they
/// say that their vantage is heard. Call again with the position behind them until none come.
///
/// # Errors
/// When the database refuses.
pub async fn observations_after(
    connection: &mut PgConnection,
    position: Position,
    limit: i64,
) -> Result<Page, StoreError> {
    let rows = sqlx::query_as!(
        Row,
        r#"select o.id as "id!", o.received_at as "received_at!", o.at as "observed_at!", o.vantage as "vantage!",
                  o.purpose as "purpose!", o.kind as "kind!", o.subject as "subject!", o.resolver,
                  o.family, o.address as "address: IpAddr", o.port, o.outcome as "outcome!", o.stage,
                  o.addresses as "addresses: Vec<IpAddr>", o.ttl_s, o.attempts, o.attempts_connected, o.late as "late!",
                  case when o.kind in ('endpoint_check', 'path', 'loss', 'missed') then o.detail
                       when o.kind = 'control_check' then jsonb_build_object('clock_offset_ms', o.detail -> 'clock_offset_ms',
                            'failures', o.detail -> 'failures', 'checks', o.detail -> 'checks')
                       when o.kind = 'connection' and o.detail ? 'proof' then jsonb_build_object('proof', o.detail -> 'proof')
                       when o.kind = 'resolution' and (o.outcome = 'nxdomain' or o.detail ?| array['ede', 'odd_replies', 'validation'])
                       then jsonb_build_object('ede', o.detail -> 'ede',
                            'flags', o.detail -> 'reply' -> 'flags', 'validation', o.detail -> 'validation',
                            'second', o.detail @? '$.odd_replies[*] ? (@.kind == "different")')
                  end as detail
           from v_observation o
           where o.id > $1 and o.received_at >= $2 and (not o.late or o.kind = 'control_check')
           order by o.id
           limit $3"#,
        position.after.0,
        offset(position.from),
        limit
    )
    .fetch_all(connection)
    .await?;
    let last = rows.last().map(|row| (ObservationId(row.id), timestamp(row.received_at)));
    let behind = last.map(|(after, received_at)| Position { after, from: received_at.minus(STEP_BACK) });
    let mut page =
        Page { observations: Vec::with_capacity(rows.len()), unreadable: Vec::new(), behind, rows: rows.len() };
    for row in rows {
        let id = ObservationId(row.id);
        match Observation::try_from(row) {
            Ok(observation) => page.observations.push(observation),
            Err(why) => page.unreadable.push(Unreadable { id, why }),
        }
    }
    Ok(page)
}

/// Notes rows that could not be read, once each, where people look for what was refused.
///
/// # Errors
/// When the database refuses.
pub async fn set_aside(connection: &mut PgConnection, unreadable: &[Unreadable]) -> Result<(), StoreError> {
    let ids: Vec<i64> = unreadable.iter().map(|one| one.id.0).collect();
    let why: Vec<String> = unreadable.iter().map(|one| one.why.to_string()).collect();
    sqlx::query!(
        "insert into observation_unreadable (observation_id, why)
         select * from unnest($1::bigint[], $2::text[])
         on conflict do nothing",
        &ids,
        &why
    )
    .execute(connection)
    .await?;
    Ok(())
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
                  o.addresses as "addresses: Vec<IpAddr>", o.ttl_s, o.attempts, o.attempts_connected, o.late,
                  case when o.kind in ('endpoint_check', 'path', 'loss', 'missed') then o.detail
                       when o.kind = 'control_check' then jsonb_build_object('clock_offset_ms', o.detail -> 'clock_offset_ms',
                            'failures', o.detail -> 'failures', 'checks', o.detail -> 'checks')
                       when o.kind = 'connection' and o.detail ? 'proof' then jsonb_build_object('proof', o.detail -> 'proof')
                       when o.kind = 'resolution' and (o.outcome = 'nxdomain' or o.detail ?| array['ede', 'odd_replies', 'validation'])
                       then jsonb_build_object('ede', o.detail -> 'ede',
                            'flags', o.detail -> 'reply' -> 'flags', 'validation', o.detail -> 'validation',
                            'second', o.detail @? '$.odd_replies[*] ? (@.kind == "different")')
                  end as detail
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

    /// A particular of the kind.
    fn particular(&self, key: &str) -> Option<&Value> {
        self.detail.as_ref()?.get(key)
    }

    fn particular_word(&self, key: &str) -> Result<&str, StoreError> {
        let word = self.particular(key).and_then(Value::as_str);
        word.ok_or_else(|| self.bad("detail", format!("no '{key}' in a {}", self.kind)))
    }

    fn particular_outcome(&self, key: &str) -> Result<Option<Outcome>, StoreError> {
        match self.particular(key).and_then(Value::as_str) {
            Some(word) => self.word("detail", word, Outcome::from_word).map(Some),
            None => Ok(None),
        }
    }

    /// How many a record speaks of.
    fn how_many(&self) -> u64 {
        self.particular("count").and_then(Value::as_u64).unwrap_or(0)
    }

    fn number<T: TryFrom<i64>>(&self, key: &str) -> Option<T> {
        self.particular(key).and_then(Value::as_i64).and_then(|number| T::try_from(number).ok())
    }

    /// What judging reads besides the fact. What is absent or unreadable is not known.
    fn particulars(&self) -> Particulars {
        Particulars {
            extended_error: self.number("ede"),
            recursion_unavailable: self.number::<u16>("flags").is_some_and(|flags| flags & RECURSION_AVAILABLE == 0),
            second_reply: self.particular("second").and_then(Value::as_bool).unwrap_or(false),
            validation: self.particular("validation").and_then(Value::as_str).and_then(Validation::from_word),
            clock_offset_ms: self.number("clock_offset_ms"),
            recent: self
                .number("failures")
                .zip(self.number("checks"))
                .map(|(failures, checks)| Recent { failures, checks }),
            proof: self.particular("proof").and_then(Value::as_str).and_then(Proof::from_word),
        }
    }

    fn last_hop(&self) -> Option<IpAddr> {
        let hops = self.particular("hops").and_then(Value::as_array)?;
        let answered = hops.iter().rev().find_map(|hop| hop.get("address"))?;
        answered.as_str()?.parse().ok()
    }

    fn fact(&self) -> Result<Fact, StoreError> {
        let outcome = self.word("outcome", &self.outcome, Outcome::from_word)?;
        match self.word("kind", &self.kind, Kind::from_word)? {
            Kind::Resolution => Ok(Fact::Resolution(Resolution {
                name: self.name::<DomainName>("subject", &self.subject)?,
                resolver: self.name::<ResolverName>("resolver", &self.need("resolver", &self.resolver)?)?,
                family: match self.need("family", &self.family)? {
                    4 => Family::V4,
                    6 => Family::V6,
                    other => return Err(self.bad("family", format!("{other} is neither 4 nor 6"))),
                },
                outcome,
                addresses: self.need("addresses", &self.addresses)?,
                ttl_s: u32::try_from(self.need("ttl_s", &self.ttl_s)?).map_err(|error| self.bad("ttl_s", error))?,
            })),
            Kind::Connection => Ok(Fact::Connection(Connection {
                target: match self.subject.strip_prefix("node:") {
                    Some(node) => Target::Node(self.name::<NodeName>("subject", node)?),
                    None => Target::Name(self.name::<DomainName>("subject", &self.subject)?),
                },
                address: self.need("address", &self.address)?,
                port: u16::try_from(self.need("port", &self.port)?).map_err(|error| self.bad("port", error))?,
                outcome,
                attempts: self.count("attempts", &self.attempts)?,
                attempts_connected: self.count("attempts_connected", &self.attempts_connected)?,
            })),
            Kind::EndpointCheck => Ok(Fact::EndpointCheck(EndpointCheck {
                resolver: self.name::<ResolverName>("subject", &self.subject)?,
                address: self.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
                stage: self.word("stage", &self.need("stage", &self.stage)?, Stage::from_word)?,
                outcome,
                fresh: self.particular_outcome("fresh")?,
                missing: self.particular_outcome("missing")?,
                worked_before: self.particular("worked_before").and_then(Value::as_bool).unwrap_or(false),
            })),
            Kind::ControlCheck => Ok(Fact::ControlCheck(ControlCheck {
                control: self.name::<ControlName>("subject", &self.subject)?,
                outcome,
            })),
            Kind::Path => Ok(Fact::Path(Path {
                address: self.need("address", &self.address)?,
                outcome,
                last_hop: self.last_hop(),
            })),
            Kind::Loss => Ok(Fact::Loss(Loss {
                reason: self.word("detail", self.particular_word("reason")?, LossReason::from_word)?,
                count: self.how_many(),
            })),
            Kind::Missed => Ok(Fact::Missed(Missed {
                reason: self.word("detail", self.particular_word("reason")?, MissedReason::from_word)?,
                count: self.how_many(),
            })),
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
            late: row.late,
            fact: row.fact()?,
            particulars: row.particulars(),
        })
    }
}
