//! What this database is, how far it is, and that it went back.

use parallax_decide::time::Timestamp;
use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::{StoreError, offset, timestamp};

/// Added to the version of every assignment when the database went back: far above what was given out in the time
/// that is missing, at one version a second.
const ASSIGNMENT_JUMP: i64 = 1 << 20;

/// Highest generation: what is left of 64 bits beside the epoch, without the sign.
pub const GENERATION_MAX: i32 = i32::MAX - 1;

/// How far a database is. Within one generation each number only rises, whatever Postgres does but go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Generation of the installation.
    pub generation: i32,
    /// Epoch of the lease; 0: never taken.
    pub epoch: i64,
    /// Highest number given to an observation.
    pub observation: i64,
}

/// A database as it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Its identity.
    pub installation: Uuid,
    /// How far it is.
    pub position: Position,
    /// Last sign of life in it.
    pub alive_at: Timestamp,
    /// Now, by its clock.
    pub now: Timestamp,
}

/// Why a database counts as older than what was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WentBack {
    /// The same database with less in it, or another one.
    pub kind: Kind,
    /// Who remembered more.
    pub told_by: String,
    /// The new generation is higher than this one.
    pub above: i32,
    /// When the database was last seen with what is missing; none: not known.
    pub seen_at: Option<Timestamp>,
    /// How many numbers of observations are missing; none: not known.
    pub observations: Option<i64>,
    /// What was expected and what was found.
    pub detail: String,
    /// What pages say while everything is frozen.
    pub reason: String,
}

/// How a database can be older than what was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The same one with less in it.
    WentBack,
    /// Another one than was known.
    Replaced,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::WentBack => "went_back",
            Self::Replaced => "replaced",
        }
    }
}

/// Finds how far the database is.
///
/// # Errors
/// When the database refuses.
pub async fn find(connection: &mut PgConnection) -> Result<Found, StoreError> {
    let row = sqlx::query!(
        r#"select i.id, i.generation, i.alive_at, clock_timestamp() as "now!",
                  coalesce((select l.epoch from lease l where l.name = 'tasks'), 0) as "epoch!",
                  (select s.last_value from observation_id_seq s) as "observation!"
           from installation i"#
    )
    .fetch_one(connection)
    .await?;
    let position = Position { generation: row.generation, epoch: row.epoch, observation: row.observation };
    Ok(Found { installation: row.id, position, alive_at: timestamp(row.alive_at), now: timestamp(row.now) })
}

/// The same, and leaves a sign of life. When it returns, what it found survives a crash of the server: a sequence
/// is read before the transactions that moved it are durable, and this one is durable after them.
///
/// # Errors
/// When the database refuses.
pub async fn find_durably(connection: &mut PgConnection) -> Result<Found, StoreError> {
    let mut transaction = connection.begin().await?;
    let found = find(&mut transaction).await?;
    sqlx::query!("update installation set alive_at = clock_timestamp()").execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(found)
}

/// Records that the database went back: a new generation, the gap, every assignment above what agents hold, and no
/// write until a person allows them. In one transaction, and once: false when it is no longer as it was `found`,
/// because another coordinator recorded it.
///
/// # Errors
/// When the database refuses.
pub async fn went_back(connection: &mut PgConnection, found: &Found, why: &WentBack) -> Result<bool, StoreError> {
    let mut transaction = connection.begin().await?;
    let held = sqlx::query!("select id, generation from installation for update").fetch_one(&mut *transaction).await?;
    if (held.id, held.generation) != (found.installation, found.position.generation) {
        return Ok(false);
    }
    let generation = held.generation.max(why.above).min(GENERATION_MAX) + 1;
    sqlx::query!("update installation set generation = $1", generation).execute(&mut *transaction).await?;
    let event = sqlx::query_scalar!(
        "insert into installation_event (kind, generation, told_by, gap_from, gap_to, observations, detail)
         values ($1, $2, $3, $4, $5, $6, $7) returning id",
        why.kind.word(),
        generation,
        why.told_by,
        (why.kind == Kind::WentBack).then(|| offset(found.alive_at)),
        why.seen_at.map(offset),
        why.observations,
        why.detail
    )
    .fetch_one(&mut *transaction)
    .await?;
    sqlx::query!(
        "update assignment set
             version = greatest(version, extract(epoch from clock_timestamp())::bigint) + $1,
             changed_at = clock_timestamp()",
        ASSIGNMENT_JUMP
    )
    .execute(&mut *transaction)
    .await?;
    sqlx::query!("insert into write_freeze (by, reason, event_id) values ('parallax', $1, $2)", why.reason, event)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(true)
}

/// Generation, and how often the database went back or was replaced: for `/metrics`.
///
/// # Errors
/// When the database refuses.
pub async fn counts(connection: &mut PgConnection) -> Result<(i32, i64), StoreError> {
    let row =
        sqlx::query!(r#"select generation, (select count(*) from installation_event) as "events!" from installation"#)
            .fetch_one(connection)
            .await?;
    Ok((row.generation, row.events))
}
