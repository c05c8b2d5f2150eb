//! What people do to a vantage. Each is told to the running coordinators, in the same transaction.
//!
//! One order of locks for these and for whoever issues a certificate: the vantage, then its tokens, then its
//! certificates.

use parallax_decide::names::VantageName;
use sqlx::PgConnection;

use super::{REVOKED_CHANNEL, VantageId};
use crate::store::StoreError;

/// Number of the last change that a person made to a vantage or a key: it rises with each, in its transaction.
///
/// # Errors
/// When the database refuses.
pub async fn number(connection: &mut PgConnection) -> Result<i64, StoreError> {
    Ok(sqlx::query_scalar!("select number from vantage_change").fetch_one(connection).await?)
}

/// Has the running coordinators look at vantages and keys again.
async fn tell(connection: &mut PgConnection, name: &str) -> Result<(), StoreError> {
    sqlx::query!("update vantage_change set number = number + 1").execute(&mut *connection).await?;
    sqlx::query!(r#"select pg_notify($1, $2) as "told""#, REVOKED_CHANNEL, name).fetch_one(connection).await?;
    Ok(())
}

/// Waits for certificates that are being issued for a vantage, and lets none be issued until the transaction ends.
async fn hold(connection: &mut PgConnection, id: VantageId) -> Result<(), StoreError> {
    // What only points at the vantage, as observations do, goes on.
    sqlx::query!("select from vantage where id = $1 for no key update", id.0).execute(connection).await?;
    Ok(())
}

/// Refuses a vantage's certificates from now on. Returns false when there is no such vantage.
///
/// # Errors
/// When the database refuses.
pub async fn revoke(connection: &mut PgConnection, name: &VantageName) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "update vantage set revoked_at = coalesce(revoked_at, clock_timestamp()) where name = $1",
        name.as_str()
    )
    .execute(&mut *connection)
    .await?;
    tell(connection, name.as_str()).await?;
    Ok(done.rows_affected() > 0)
}

/// Refuses one key of a vantage from now on, found by the beginning of its serial number or of its own hash, in
/// hexadecimal. Returns how many certificates that were: 0 when there is none, or when several keys fit.
///
/// # Errors
/// When the database refuses.
pub async fn revoke_key(connection: &mut PgConnection, id: VantageId, start: &str) -> Result<u64, StoreError> {
    hold(&mut *connection, id).await?;
    let keys = sqlx::query_scalar!(
        "select distinct key_sha256 from agent_certificate
         where vantage_id = $1 and (starts_with(encode(serial, 'hex'), $2) or starts_with(encode(key_sha256, 'hex'), $2))",
        id.0,
        start
    )
    .fetch_all(&mut *connection)
    .await?;
    let [key] = keys.as_slice() else { return Ok(0) };
    let done = sqlx::query!(
        "update agent_certificate set revoked_at = coalesce(revoked_at, clock_timestamp()) where key_sha256 = $1",
        key
    )
    .execute(&mut *connection)
    .await?;
    tell(connection, start).await?;
    Ok(done.rows_affected())
}

/// Refuses every key that a vantage has had, also those never seen here, and takes new ones from now on: brings
/// back one that was revoked or removed. Returns how many certificates were refused.
///
/// # Errors
/// When the database refuses.
pub async fn replace(connection: &mut PgConnection, id: VantageId) -> Result<u64, StoreError> {
    hold(&mut *connection, id).await?;
    let refused = refuse_keys(&mut *connection, id).await?;
    let row = sqlx::query!(
        "update vantage set keys_from = clock_timestamp(), revoked_at = null, retired_at = null where id = $1 returning name",
        id.0
    )
    .fetch_one(&mut *connection)
    .await?;
    tell(connection, &row.name).await?;
    Ok(refused)
}

/// Removes a vantage for good; its history stays.
///
/// # Errors
/// When the database refuses.
pub async fn remove(connection: &mut PgConnection, id: VantageId) -> Result<u64, StoreError> {
    hold(&mut *connection, id).await?;
    let refused = refuse_keys(&mut *connection, id).await?;
    let row = sqlx::query!(
        "update vantage set retired_at = coalesce(retired_at, clock_timestamp()), keys_from = clock_timestamp(),
                            admitted_at = null, admitted_by = null
         where id = $1 returning name",
        id.0
    )
    .fetch_one(&mut *connection)
    .await?;
    tell(connection, &row.name).await?;
    Ok(refused)
}

async fn refuse_keys(connection: &mut PgConnection, id: VantageId) -> Result<u64, StoreError> {
    let done = sqlx::query!(
        "update agent_certificate set revoked_at = clock_timestamp()
         where vantage_id = $1 and revoked_at is null and not_after > clock_timestamp() - interval '91 days'",
        id.0
    )
    .execute(&mut *connection)
    .await?;
    crate::store::token::revoke_of(connection, id).await?;
    Ok(done.rows_affected())
}

/// Takes a vantage in although the configuration does not list it.
///
/// # Errors
/// When the database refuses.
pub async fn approve(connection: &mut PgConnection, id: VantageId, who: &str) -> Result<(), StoreError> {
    let row = sqlx::query!(
        "update vantage set admitted_at = coalesce(admitted_at, clock_timestamp()), admitted_by = coalesce(admitted_by, $2)
         where id = $1 returning name",
        id.0,
        who
    )
    .fetch_one(&mut *connection)
    .await?;
    tell(connection, &row.name).await
}

/// Gives a vantage another name; its history and its keys stay its own. Returns false when another vantage has
/// that name. A row of that name that never reported (the configuration was changed first) makes place.
///
/// # Errors
/// When the database refuses.
pub async fn rename(connection: &mut PgConnection, id: VantageId, new: &VantageName) -> Result<bool, StoreError> {
    sqlx::query!(
        "delete from vantage v
         where v.name = $1 and v.id <> $2 and v.first_seen_at is null and v.retired_at is null and v.revoked_at is null
           and not exists (select from join_token t where t.vantage_id = v.id)
           and not exists (select from agent_certificate c where c.vantage_id = v.id)
           and not exists (select from vantage_former_name f where f.vantage_id = v.id)
           and not exists (select from assignment a where a.vantage_id = v.id)",
        new.as_str(),
        id.0
    )
    .execute(&mut *connection)
    .await?;
    let taken = sqlx::query_scalar!(
        r#"select exists (select from vantage where name = $1 and id <> $2) as "taken!""#,
        new.as_str(),
        id.0
    );
    if taken.fetch_one(&mut *connection).await? {
        return Ok(false);
    }
    sqlx::query!("delete from vantage_former_name where name = $1", new.as_str()).execute(&mut *connection).await?;
    sqlx::query!(
        "insert into vantage_former_name (name, vantage_id) select name, id from vantage where id = $1
         on conflict (name) do update set vantage_id = excluded.vantage_id, until = excluded.until",
        id.0
    )
    .execute(&mut *connection)
    .await?;
    retell(&mut *connection, id, new).await?;
    sqlx::query!("update vantage set name = $2 where id = $1", id.0, new.as_str()).execute(&mut *connection).await?;
    tell(connection, new.as_str()).await?;
    Ok(true)
}

/// What was concluded and done under the old name is found under the new one: the rows that carry a name and not
/// the key. What an incident's texts and reasons quoted stays as it was said.
async fn retell(connection: &mut PgConnection, id: VantageId, new: &VantageName) -> Result<(), StoreError> {
    let old = sqlx::query_scalar!("select name from vantage where id = $1", id.0).fetch_one(&mut *connection).await?;
    // One verdict of a subject holds: those of a row that made place, which never reported, end here.
    sqlx::query!(
        "update verdict set until = greatest(at, clock_timestamp())
         where until is null and (vantage = $1 or (subject_kind = 'vantage' and subject = $1))",
        new.as_str()
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "update verdict set vantage = case when vantage = $1 then $2 else vantage end,
                            subject = case when subject_kind = 'vantage' and subject = $1 then $2 else subject end
         where vantage = $1 or (subject_kind = 'vantage' and subject = $1)",
        old,
        new.as_str()
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "update incident set vantage = $2, subject = case when subject = $1 then $2 else subject end where vantage = $1",
        old,
        new.as_str()
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "update hourly_verdict h set vantage = case when h.vantage = $1 then $2 else h.vantage end,
                                     subject = case when h.subject_kind = 'vantage' and h.subject = $1 then $2 else h.subject end
         where (h.vantage = $1 or (h.subject_kind = 'vantage' and h.subject = $1))
           and not exists (select from hourly_verdict n where n.hour = h.hour
                           and (n.vantage = $2 or (n.subject_kind = 'vantage' and n.subject = $2)))",
        old,
        new.as_str()
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!("update plan set vantage = $2 where vantage = $1", old, new.as_str())
        .execute(&mut *connection)
        .await?;
    sqlx::query!("update plan_proof set vantage = $2 where vantage = $1", old, new.as_str())
        .execute(connection)
        .await?;
    Ok(())
}
