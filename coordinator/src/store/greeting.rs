//! An agent's greeting. One statement and one commit: ten thousand agents come back at once when a coordinator died.

use parallax_decide::names::VantageName;
use sqlx::PgConnection;
use uuid::Uuid;

use super::installation::{Found, Position};
use super::vantage::VantageId;
use super::{StoreError, timestamp};

/// Who greets, and with what.
#[derive(Debug, Clone, Copy)]
pub struct Greeting<'a> {
    /// SHA-256 of the key of its certificate.
    pub key_sha256: &'a [u8; 32],
    /// Serial number of that.
    pub serial: &'a [u8],
    /// The vantage as it was known a moment ago.
    pub vantage: VantageId,
    /// Version its agent says it runs.
    pub agent_version: &'a str,
    /// Address and port it comes from.
    pub remote: &'a str,
    /// This process.
    pub coordinator: Uuid,
    /// SHA-256 of what it is to do.
    pub content_sha256: &'a [u8; 32],
}

/// How a vantage stands, and what the database is, in one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeted {
    /// The vantage that has the key now.
    pub vantage: VantageId,
    /// Its name now.
    pub name: VantageName,
    /// It was revoked.
    pub revoked: bool,
    /// It was removed.
    pub retired: bool,
    /// A person approved it.
    pub admitted: bool,
    /// This key of it was revoked.
    pub key_revoked: bool,
    /// The database.
    pub found: Found,
    /// Version of its assignment; none: what it is to do is new.
    pub assignment: Option<u64>,
}

/// Looks how the vantage of a key stands, and notes the opening of its stream when nothing speaks against it. `None`:
/// no vantage has the key any more.
///
/// The note itself may be lost in a crash of the server: the agent then greets again.
///
/// # Errors
/// When the database refuses, or holds what cannot be.
pub async fn greet(connection: &mut PgConnection, greeting: Greeting<'_>) -> Result<Option<Greeted>, StoreError> {
    let row = sqlx::query!(
        r#"with met as (
               select v.id, v.name, v.revoked_at is not null as revoked, v.retired_at is not null as retired,
                      v.admitted_at is not null as admitted,
                      exists (select from agent_certificate r where r.key_sha256 = $1 and r.revoked_at is not null)
                          as key_revoked
               from agent_certificate c join vantage v on v.id = c.vantage_id
               where c.key_sha256 = $1
               order by (c.serial is not distinct from $2) desc, c.recorded_at desc limit 1
           ), noted as (
               update vantage set first_seen_at = coalesce(first_seen_at, clock_timestamp()),
                                  last_seen_at = clock_timestamp(), agent_version = $4, last_remote = $5,
                                  last_coordinator = $6
               where id = (select id from met where id = $3 and not (revoked or retired or key_revoked))
           )
           select met.id as "vantage!", met.name as "name!", met.revoked as "revoked!", met.retired as "retired!",
                  met.admitted as "admitted!", met.key_revoked as "key_revoked!",
                  i.id as "installation!", i.generation as "generation!", i.alive_at as "alive_at!",
                  clock_timestamp() as "now!",
                  coalesce((select l.epoch from lease l where l.name = 'tasks'), 0) as "epoch!",
                  (select s.last_value from observation_id_seq s) as "observation!",
                  (select a.version from assignment a where a.vantage_id = met.id and a.content_sha256 = $7) as version,
                  set_config('synchronous_commit', 'off', true) as "unsynced!"
           from met cross join installation i"#,
        greeting.key_sha256.as_slice(),
        greeting.serial,
        greeting.vantage.0,
        greeting.agent_version,
        greeting.remote,
        greeting.coordinator,
        greeting.content_sha256.as_slice()
    )
    .fetch_optional(connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let version = row.version.map(u64::try_from).transpose();
    Ok(Some(Greeted {
        vantage: VantageId(row.vantage),
        name: row.name.parse().map_err(|error| StoreError::content("vantage", "name", row.vantage, error))?,
        revoked: row.revoked,
        retired: row.retired,
        admitted: row.admitted,
        key_revoked: row.key_revoked,
        found: Found {
            installation: row.installation,
            position: Position { generation: row.generation, epoch: row.epoch, observation: row.observation },
            alive_at: timestamp(row.alive_at),
            now: timestamp(row.now),
        },
        assignment: version.map_err(|error| StoreError::content("assignment", "version", row.vantage, error))?,
    }))
}
