//! Certificates of agents, by their keys. A certificate's key says whose it is, whatever name it carries.

use std::collections::{BTreeMap, BTreeSet};

use parallax_decide::names::VantageName;
use parallax_decide::time::Timestamp;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::vantage::{self, VantageId, VantageRow};
use super::{StoreError, timestamp};

/// A key may renew this long after its certificate's end: a branch that was dark for weeks comes back.
pub const LATE_DAYS_MAX: i32 = 90;

/// Certificates are forgotten this long after their end: one day after the last moment at which their key
/// could renew.
const KEPT_FOR_DAYS: i32 = LATE_DAYS_MAX + 1;

/// Rows forgotten in one statement: a few milliseconds.
pub const FORGOTTEN_MAX: i64 = 1000;

/// Certificates remembered of one key, the latest: whoever has it may ask again and again, each row stays for months, and
/// one is enough to know whose the key is.
const OF_ONE_KEY_MAX: i64 = 3;

/// Renewals over a stream within an hour for one vantage, each for a fresh key: an hour's certificate needs two, and an
/// agent that cannot keep what it gets asks less and less often.
pub const RENEWALS_AN_HOUR_MAX: i64 = 12;

/// A clock that is slow by this much may have written the beginning of a certificate's validity: those made by
/// this program begin this much before they were made. Seconds.
const BACKDATED_S: f64 = 600.0;

/// How a certificate came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// With a token.
    Join,
    /// Over the stream.
    Renewal,
    /// After the end of the one before.
    LateRenewal,
}

impl How {
    fn word(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Renewal => "renewal",
            Self::LateRenewal => "late_renewal",
        }
    }
}

/// A certificate that was issued here.
#[derive(Debug, Clone, Copy)]
pub struct NewCertificate<'a> {
    /// Serial number.
    pub serial: &'a [u8],
    /// Whose.
    pub vantage: VantageId,
    /// SHA-256 of its public key.
    pub key_sha256: &'a [u8; 32],
    /// SHA-256 of the authority's public key.
    pub authority_sha256: &'a [u8; 32],
    /// How it came to be.
    pub how: How,
    /// Valid from.
    pub not_before: OffsetDateTime,
    /// Valid until.
    pub not_after: OffsetDateTime,
    /// Process that issued it.
    pub coordinator: Uuid,
    /// Address it was issued to.
    pub remote: &'a str,
    /// Token it was joined with.
    pub token: Option<i64>,
}

/// Records it, and forgets what is too much of its key. What was revoked stays.
///
/// # Errors
/// When the database refuses.
pub async fn record(connection: &mut PgConnection, new: NewCertificate<'_>) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into agent_certificate (serial, vantage_id, key_sha256, authority_sha256, how, not_before, not_after,
                                        coordinator, remote, token_id)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        new.serial,
        new.vantage.0,
        new.key_sha256.as_slice(),
        new.authority_sha256.as_slice(),
        new.how.word(),
        new.not_before,
        new.not_after,
        new.coordinator,
        new.remote,
        new.token
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "delete from agent_certificate where key_sha256 = $1 and serial in (
             select serial from agent_certificate where key_sha256 = $1 and revoked_at is null
             order by recorded_at desc, serial offset $2
         )",
        new.key_sha256.as_slice(),
        OF_ONE_KEY_MAX
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Whether a vantage has had as many renewals over a stream within the hour as it may.
///
/// # Errors
/// When the database refuses.
pub async fn renewed_often(connection: &mut PgConnection, vantage: VantageId) -> Result<bool, StoreError> {
    // Those of the last hour have not ended: the index knows the end.
    let renewals = sqlx::query_scalar!(
        r#"select count(*) as "renewals!" from agent_certificate
           where vantage_id = $1 and how = 'renewal' and not_after > clock_timestamp()
             and recorded_at > clock_timestamp() - interval '1 hour'"#,
        vantage.0
    );
    Ok(renewals.fetch_one(connection).await? >= RENEWALS_AN_HOUR_MAX)
}

/// What stands against a new certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Against {
    /// The vantage was removed.
    VantageRetired,
    /// The vantage was revoked.
    VantageRevoked,
    /// One of the keys was revoked.
    KeyRevoked,
}

/// Says what stands against a certificate for a vantage and these keys (the one that asks, and the one it is for),
/// and holds the vantage as it is until the transaction ends: whoever revokes, replaces or removes it waits, and
/// then finds the certificate too.
///
/// # Errors
/// When the database refuses.
pub async fn against(
    connection: &mut PgConnection,
    vantage: VantageId,
    keys_sha256: [&[u8; 32]; 2],
) -> Result<Option<Against>, StoreError> {
    let held = sqlx::query!("select revoked_at, retired_at from vantage where id = $1 for share", vantage.0)
        .fetch_one(&mut *connection)
        .await?;
    if held.retired_at.is_some() {
        return Ok(Some(Against::VantageRetired));
    }
    if held.revoked_at.is_some() {
        return Ok(Some(Against::VantageRevoked));
    }
    // A statement of its own: it sees what was committed while the one above waited.
    let revoked = sqlx::query_scalar!(
        r#"select exists (select from agent_certificate where key_sha256 = any($1) and revoked_at is not null)
               as "revoked!""#,
        &keys_sha256.map(|key| key.to_vec())
    );
    Ok(revoked.fetch_one(connection).await?.then_some(Against::KeyRevoked))
}

/// What a client certificate says of itself, checked by TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presented {
    /// Serial number.
    pub serial: Vec<u8>,
    /// SHA-256 of its public key.
    pub key_sha256: [u8; 32],
    /// SHA-256 of the public key of the authority that vouches for it, where that is known.
    pub authority_sha256: Option<[u8; 32]>,
    /// Vantage it names: the one it was issued for, which may have another name by now.
    pub name: VantageName,
    /// Valid from.
    pub not_before: OffsetDateTime,
    /// Valid until.
    pub not_after: OffsetDateTime,
}

/// Whose key it is, and how that vantage stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The vantage.
    pub vantage: VantageId,
    /// Its name now.
    pub name: VantageName,
    /// It was removed.
    pub retired: bool,
    /// It was revoked.
    pub revoked: bool,
    /// A person approved it although the configuration does not list it.
    pub admitted: bool,
    /// The key was revoked, the vantage perhaps not.
    pub key_revoked: bool,
}

impl Holder {
    fn by_name(row: VantageRow, key_revoked: bool) -> Self {
        Self {
            vantage: row.id,
            name: row.name,
            retired: row.retired_at.is_some(),
            revoked: row.revoked_at.is_some(),
            admitted: row.admitted_at.is_some(),
            key_revoked,
        }
    }
}

/// Whose a presented certificate is. `None`: nobody's; it was made by hand, and no vantage has its name.
/// A certificate made by hand is recorded the first time it is shown.
///
/// # Errors
/// When the database refuses.
pub async fn holder(
    connection: &mut PgConnection,
    presented: &Presented,
    coordinator: Uuid,
    remote: &str,
) -> Result<Option<Holder>, StoreError> {
    if let Some(holder) = by_key(&mut *connection, &presented.key_sha256, Some(&presented.serial)).await? {
        return Ok(Some(holder));
    }
    let Some(row) = vantage::by_any_name(&mut *connection, &presented.name).await? else { return Ok(None) };
    // Unknown, and from before the keys were replaced: one of those that were meant.
    let made_at = timestamp(presented.not_before).0 + (BACKDATED_S * 1000.0) as i64;
    if row.keys_from.is_some_and(|from| made_at <= from.0) {
        return Ok(Some(Holder::by_name(row, true)));
    }
    let written = sqlx::query!(
        "insert into agent_certificate (serial, vantage_id, key_sha256, authority_sha256, how, not_before, not_after,
                                        coordinator, remote)
         values ($1, $2, $3, $4, 'by_hand', $5, $6, $7, $8) on conflict do nothing",
        presented.serial,
        row.id.0,
        presented.key_sha256.as_slice(),
        presented.authority_sha256.as_ref().map(<[u8; 32]>::as_slice),
        presented.not_before,
        presented.not_after,
        coordinator,
        remote
    )
    .execute(&mut *connection)
    .await?;
    if written.rows_affected() == 0 {
        // It was shown twice in the same moment: what the other one found counts, and what happened to it since.
        return by_key(connection, &presented.key_sha256, Some(&presented.serial)).await;
    }
    Ok(Some(Holder::by_name(row, false)))
}

/// Whose a key is: of several certificates for it the one with this serial number counts (the two together are a
/// certificate's key), else the latest one. One statement: ten thousand agents ask it when they come back at once.
///
/// # Errors
/// When the database refuses, or holds a name that is none.
pub async fn by_key(
    connection: &mut PgConnection,
    key_sha256: &[u8; 32],
    serial: Option<&[u8]>,
) -> Result<Option<Holder>, StoreError> {
    let found = sqlx::query!(
        r#"select v.id, v.name, v.retired_at is not null as "retired!", v.revoked_at is not null as "revoked!",
                  v.admitted_at is not null as "admitted!",
                  exists (select from agent_certificate r where r.key_sha256 = $1 and r.revoked_at is not null)
                      as "key_revoked!"
           from agent_certificate c join vantage v on v.id = c.vantage_id
           where c.key_sha256 = $1
           order by (c.serial is not distinct from $2) desc, c.recorded_at desc limit 1"#,
        key_sha256.as_slice(),
        serial
    )
    .fetch_optional(connection)
    .await?;
    let Some(row) = found else { return Ok(None) };
    Ok(Some(Holder {
        vantage: VantageId(row.id),
        name: row.name.parse().map_err(|error| StoreError::content("vantage", "name", row.id, error))?,
        retired: row.retired,
        revoked: row.revoked,
        admitted: row.admitted,
        key_revoked: row.key_revoked,
    }))
}

/// When the last certificate for a key ends. `None`: there is none.
///
/// # Errors
/// When the database refuses.
pub async fn last_end(connection: &mut PgConnection, key_sha256: &[u8; 32]) -> Result<Option<Timestamp>, StoreError> {
    let end = sqlx::query_scalar!(
        "select max(not_after) from agent_certificate where key_sha256 = $1",
        key_sha256.as_slice()
    )
    .fetch_one(connection)
    .await?;
    Ok(end.map(timestamp))
}

/// Forgets those that ended long ago, at most [`FORGOTTEN_MAX`]; returns how many.
///
/// # Errors
/// When the database refuses.
pub async fn prune(connection: &mut PgConnection) -> Result<u64, StoreError> {
    let done = sqlx::query!(
        "delete from agent_certificate where (serial, key_sha256) in (
             select serial, key_sha256 from agent_certificate
             where not_after < clock_timestamp() - make_interval(days => $1) limit $2
         )",
        KEPT_FOR_DAYS,
        FORGOTTEN_MAX
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// Keys that were refused for good and whose certificates could still be shown.
///
/// # Errors
/// When the database refuses.
pub async fn revoked_keys(connection: &mut PgConnection) -> Result<BTreeSet<[u8; 32]>, StoreError> {
    let keys = sqlx::query_scalar!(
        "select key_sha256 from agent_certificate where revoked_at is not null and not_after > clock_timestamp()"
    )
    .fetch_all(connection)
    .await?;
    keys.into_iter()
        .map(|key| {
            key.try_into().map_err(|_| StoreError::content("agent_certificate", "key_sha256", "?", "not 32 bytes"))
        })
        .collect()
}

/// How many vantages hold a certificate of each authority that they may still use or renew: of each the latest.
/// Under `None` those made by hand whose authority could not be told. What was made by hand and never shown is not
/// counted.
///
/// # Errors
/// When the database refuses.
pub async fn vantages_by_authority(
    connection: &mut PgConnection,
) -> Result<BTreeMap<Option<[u8; 32]>, i64>, StoreError> {
    let rows = sqlx::query!(
        r#"select authority_sha256, count(*) as "count!"
           from (select distinct on (c.vantage_id) c.authority_sha256, c.not_after
                 from agent_certificate c join vantage v on v.id = c.vantage_id
                 where c.revoked_at is null and v.revoked_at is null and v.retired_at is null
                 order by c.vantage_id, c.recorded_at desc) latest
           where not_after > clock_timestamp() - make_interval(days => $1)
           group by authority_sha256"#,
        LATE_DAYS_MAX
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter()
        .map(|row| {
            let authority = row.authority_sha256.map(TryInto::try_into).transpose();
            let authority = authority
                .map_err(|_| StoreError::content("agent_certificate", "authority_sha256", "?", "not 32 bytes"))?;
            Ok((authority, row.count))
        })
        .collect()
}
