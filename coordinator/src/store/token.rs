//! Join tokens. Of a secret only its SHA-256 is here.
//!
//! The lookup by that hash is an index scan, and its time says nothing worth knowing: whoever could choose
//! hashes by their first bits would still have to find 32 random bytes for one.

use std::time::Duration;

use parallax_decide::names::VantageName;
use parallax_decide::time::Timestamp;
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::certificate::{FORGOTTEN_MAX, LATE_DAYS_MAX};
use super::vantage::VantageId;
use super::{StoreError, timestamp};

/// A second key at a used token, and the same key again, are written into the audit table at most this often for
/// one token.
const ALERT_EVERY: Duration = Duration::from_secs(3600);

/// Tokens are forgotten this long after their end and after whoever came with them last: as long as the certificate
/// that one was used for. Days.
const KEPT_FOR_DAYS: i32 = 91;

/// Tokens listed at most, the newest.
const ROWS_MAX: i64 = 1000;

/// A token, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRow {
    /// Key.
    pub id: i64,
    /// Which vantage an agent becomes with it.
    pub vantage: String,
    /// When it was made.
    pub made_at: Timestamp,
    /// By whom.
    pub made_by: String,
    /// Until when it can be used.
    pub expires_at: Timestamp,
    /// When it was used.
    pub used_at: Option<Timestamp>,
    /// From which address.
    pub used_from: Option<String>,
    /// When it was taken back.
    pub revoked_at: Option<Timestamp>,
    /// How often somebody else came with it after its use.
    pub refused_count: i64,
}

/// What became of a try to use a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redeemed {
    /// The key is the vantage's from now on.
    Granted {
        /// The token.
        token: i64,
        /// The vantage.
        vantage: VantageId,
        /// Its name.
        name: VantageName,
        /// The same key came before: the answer was lost.
        again: bool,
        /// It is to be written down: the first time, and a repetition once within the hour.
        noted: bool,
    },
    /// Nothing was granted.
    Refused(Refusal),
}

/// Why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such token.
    Unknown,
    /// Another key was there first.
    Used {
        /// The token.
        token: i64,
        /// Its vantage, which keeps it.
        vantage: String,
        /// When.
        at: Timestamp,
        /// From where.
        from: String,
        /// The first time within the hour: somebody should look.
        alert: bool,
    },
    /// It has ended.
    Expired {
        /// When.
        at: Timestamp,
    },
    /// A person took it back.
    Revoked {
        /// When.
        at: Timestamp,
    },
    /// The vantage was revoked.
    VantageRevoked {
        /// Which.
        vantage: String,
    },
    /// The vantage was removed.
    VantageRetired {
        /// Which.
        vantage: String,
    },
    /// This key of the vantage was revoked.
    KeyRevoked {
        /// The vantage.
        vantage: String,
    },
    /// This key used it, and holds no certificate any more that could be renewed.
    TooLate {
        /// The vantage.
        vantage: String,
    },
}

/// A new token.
#[derive(Debug, Clone, Copy)]
pub struct NewToken<'a> {
    /// Which vantage an agent becomes with it.
    pub vantage: VantageId,
    /// SHA-256 of the secret.
    pub secret_sha256: &'a [u8; 32],
    /// How long it lives.
    pub ttl: Duration,
    /// By whom.
    pub made_by: &'a str,
}

/// Stores a new token; returns its key and when it ends, by the database's clock.
///
/// # Errors
/// When the database refuses.
pub async fn create(connection: &mut PgConnection, new: NewToken<'_>) -> Result<(i64, Timestamp), StoreError> {
    let row = sqlx::query!(
        "insert into join_token (vantage_id, secret_sha256, made_by, expires_at)
         values ($1, $2, $3, clock_timestamp() + $4 * interval '1 second')
         returning id, expires_at",
        new.vantage.0,
        new.secret_sha256.as_slice(),
        new.made_by,
        new.ttl.as_secs_f64()
    )
    .fetch_one(connection)
    .await?;
    Ok((row.id, timestamp(row.expires_at)))
}

struct Found {
    id: i64,
    vantage_id: i16,
    name: String,
    vantage_revoked_at: Option<OffsetDateTime>,
    retired_at: Option<OffsetDateTime>,
    expires_at: OffsetDateTime,
    is_over: bool,
    used_at: Option<OffsetDateTime>,
    used_by_sha256: Option<Vec<u8>>,
    used_from: Option<String>,
    revoked_at: Option<OffsetDateTime>,
    is_quiet: bool,
    again_is_quiet: bool,
    key_revoked: bool,
    key_held: bool,
}

/// Uses a token for a key. Call inside a transaction that also records the certificate: what is not
/// committed was not used.
///
/// # Errors
/// When the database refuses.
pub async fn redeem(
    connection: &mut PgConnection,
    secret_sha256: &[u8; 32],
    key_sha256: &[u8; 32],
    from: &str,
) -> Result<Redeemed, StoreError> {
    // The vantage before its token: the order of locks of whoever changes a vantage.
    sqlx::query!(
        "select from vantage v join join_token t on t.vantage_id = v.id where t.secret_sha256 = $1 for share of v",
        secret_sha256.as_slice()
    )
    .execute(&mut *connection)
    .await?;
    let found = sqlx::query_as!(
        Found,
        r#"select t.id, t.vantage_id, v.name, v.revoked_at as vantage_revoked_at, v.retired_at, t.expires_at,
                  t.expires_at <= clock_timestamp() as "is_over!", t.used_at, t.used_by_sha256, t.used_from, t.revoked_at,
                  coalesce(t.refused_last_at < clock_timestamp() - $3 * interval '1 second', true) as "is_quiet!",
                  coalesce(t.again_last_at < clock_timestamp() - $3 * interval '1 second', true) as "again_is_quiet!",
                  exists (select from agent_certificate c where c.key_sha256 = $2 and c.revoked_at is not null)
                      as "key_revoked!",
                  exists (select from agent_certificate c where c.key_sha256 = $2 and c.vantage_id = t.vantage_id
                              and c.revoked_at is null and c.not_after > clock_timestamp() - make_interval(days => $4))
                      as "key_held!"
           from join_token t join vantage v on v.id = t.vantage_id
           where t.secret_sha256 = $1
           for update of t"#,
        secret_sha256.as_slice(),
        key_sha256.as_slice(),
        ALERT_EVERY.as_secs_f64(),
        LATE_DAYS_MAX
    )
    .fetch_optional(&mut *connection)
    .await?;
    let Some(found) = found else { return Ok(Redeemed::Refused(Refusal::Unknown)) };
    let again = match decide(&found, key_sha256) {
        Ok(again) => again,
        Err(refusal) => {
            if matches!(refusal, Refusal::Used { .. }) {
                sqlx::query!(
                    "update join_token set refused_count = refused_count + 1, refused_last_at = clock_timestamp(),
                                           refused_last_from = $2
                     where id = $1",
                    found.id,
                    from
                )
                .execute(connection)
                .await?;
            }
            return Ok(Redeemed::Refused(refusal));
        }
    };
    let noted = !again || found.again_is_quiet;
    if !again {
        sqlx::query!(
            "update join_token set used_at = clock_timestamp(), used_by_sha256 = $2, used_from = $3 where id = $1",
            found.id,
            key_sha256.as_slice(),
            from
        )
        .execute(connection)
        .await?;
    } else if noted {
        sqlx::query!("update join_token set again_last_at = clock_timestamp() where id = $1", found.id)
            .execute(connection)
            .await?;
    }
    let name = found.name.parse().map_err(|error| StoreError::content("vantage", "name", found.vantage_id, error))?;
    Ok(Redeemed::Granted { token: found.id, vantage: VantageId(found.vantage_id), name, again, noted })
}

/// Whether the key may have it: true when it had it before.
fn decide(found: &Found, key_sha256: &[u8; 32]) -> Result<bool, Refusal> {
    let vantage = || found.name.clone();
    if found.retired_at.is_some() {
        return Err(Refusal::VantageRetired { vantage: vantage() });
    }
    let again = match (&found.used_by_sha256, found.used_at) {
        (Some(by), Some(_)) if by == key_sha256 => true,
        (Some(_), Some(at)) => {
            return Err(Refusal::Used {
                token: found.id,
                vantage: vantage(),
                at: timestamp(at),
                from: found.used_from.clone().unwrap_or_default(),
                alert: found.is_quiet,
            });
        }
        (Some(_) | None, None) | (None, Some(_)) => false,
    };
    if let Some(at) = found.revoked_at {
        return Err(Refusal::Revoked { at: timestamp(at) });
    }
    if found.vantage_revoked_at.is_some() {
        return Err(Refusal::VantageRevoked { vantage: vantage() });
    }
    if found.key_revoked {
        return Err(Refusal::KeyRevoked { vantage: vantage() });
    }
    // What was revoked is forgotten one day: a key that is not known to be held is none.
    if again && !found.key_held {
        return Err(Refusal::TooLate { vantage: vantage() });
    }
    // Whoever has used it in time may ask again later: the answer was lost on its way.
    if !again && found.is_over {
        return Err(Refusal::Expired { at: timestamp(found.expires_at) });
    }
    Ok(again)
}

struct Row {
    id: i64,
    vantage: String,
    made_at: OffsetDateTime,
    made_by: String,
    expires_at: OffsetDateTime,
    used_at: Option<OffsetDateTime>,
    used_from: Option<String>,
    revoked_at: Option<OffsetDateTime>,
    refused_count: i64,
}

/// The newest tokens, newest first.
///
/// # Errors
/// When the database refuses.
pub async fn all(connection: &mut PgConnection) -> Result<Vec<TokenRow>, StoreError> {
    let rows = sqlx::query_as!(
        Row,
        "select t.id, v.name as vantage, t.made_at, t.made_by, t.expires_at, t.used_at, t.used_from, t.revoked_at, t.refused_count
         from join_token t join vantage v on v.id = t.vantage_id
         order by t.id desc limit $1",
        ROWS_MAX
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| TokenRow {
            id: row.id,
            vantage: row.vantage,
            made_at: timestamp(row.made_at),
            made_by: row.made_by,
            expires_at: timestamp(row.expires_at),
            used_at: row.used_at.map(timestamp),
            used_from: row.used_from,
            revoked_at: row.revoked_at.map(timestamp),
            refused_count: row.refused_count,
        })
        .collect())
}

/// What became of taking a token back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakenBack {
    /// It can be used no more.
    Done {
        /// Its vantage.
        vantage: String,
    },
    /// It was used already: the vantage's key is what can be revoked.
    Used {
        /// Its vantage.
        vantage: String,
    },
}

/// Takes a token back. `None`: there is no such token.
///
/// # Errors
/// When the database refuses.
pub async fn revoke(connection: &mut PgConnection, id: i64) -> Result<Option<TakenBack>, StoreError> {
    let row = sqlx::query!(
        r#"update join_token t set revoked_at = case when t.used_at is null then coalesce(t.revoked_at, clock_timestamp())
                                                     else t.revoked_at end
           from vantage v where v.id = t.vantage_id and t.id = $1
           returning v.name, t.used_at is not null as "used!""#,
        id
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| match row.used {
        true => TakenBack::Used { vantage: row.name },
        false => TakenBack::Done { vantage: row.name },
    }))
}

/// Takes back every unused token of a vantage.
///
/// # Errors
/// When the database refuses.
pub async fn revoke_of(connection: &mut PgConnection, vantage: VantageId) -> Result<u64, StoreError> {
    let done = sqlx::query!(
        "update join_token set revoked_at = clock_timestamp()
         where vantage_id = $1 and used_at is null and revoked_at is null",
        vantage.0
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// Forgets those that ended and were last come with long ago, at most [`FORGOTTEN_MAX`]; returns how many.
///
/// # Errors
/// When the database refuses.
pub async fn prune(connection: &mut PgConnection) -> Result<u64, StoreError> {
    let done = sqlx::query!(
        "delete from join_token where id in (
             select id from join_token
             where expires_at < clock_timestamp() - make_interval(days => $1)
               and greatest(expires_at, used_at, refused_last_at, again_last_at) < clock_timestamp() - make_interval(days => $1)
             limit $2
         )",
        KEPT_FOR_DAYS,
        FORGOTTEN_MAX
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}
