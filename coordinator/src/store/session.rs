//! Which coordinator runs, and which one holds each agent's stream.

use std::time::Duration;

use parallax_decide::names::VantageName;
use parallax_decide::time::Timestamp;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::{StoreError, offset, timestamp};

/// Channel on which changed streams are told: keys of vantages, with commas between, or [`ALL`].
pub const SESSION_CHANNEL: &str = "session";

/// Payload of [`SESSION_CHANNEL`] that means every vantage.
pub const ALL: &str = "all";

/// A coordinator counts as running this long after its last word.
pub const ALIVE_FOR: Duration = Duration::from_secs(6);

/// Vantages named in one notice: more do not fit into Postgres' 8000 bytes.
const NAMED_MAX: usize = 1000;

/// A stream that this coordinator holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Whose.
    pub vantage: VantageName,
    /// Which start of the agent.
    pub boot: Uuid,
    /// From where, address and port.
    pub remote: String,
    /// How long ago it began, by the monotonic clock.
    pub age: Duration,
}

/// A stream that some running coordinator holds: the newest of its vantage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Whose.
    pub vantage: VantageName,
    /// Which start of the agent.
    pub boot: Uuid,
    /// The coordinator.
    pub instance: Uuid,
    /// Its name.
    pub coordinator: String,
    /// From where, address and port.
    pub remote: String,
    /// Since when.
    pub since: Timestamp,
}

/// An identity that two machines use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clone {
    /// Whose identity.
    pub vantage: VantageName,
    /// From where the one came that came back last.
    pub remote: String,
    /// From where the one came that it had replaced.
    pub other_remote: String,
    /// How often one of the two came back.
    pub count: i64,
}

/// Says that this coordinator runs, and takes those out that said nothing for long. True: it was not
/// known (any more), and its streams must be written again.
///
/// # Errors
/// When the database refuses.
pub async fn beat(connection: &mut PgConnection, instance: Uuid, name: &str) -> Result<bool, StoreError> {
    let mut transaction = connection.begin().await?;
    let new = sqlx::query_scalar!(
        r#"insert into coordinator as c (instance, name, alive_until)
           values ($1, $2, clock_timestamp() + $3 * interval '1 second')
           on conflict (instance) do update set name = excluded.name, alive_until = excluded.alive_until
           returning xmax::text = '0' as "new!""#,
        instance,
        name,
        ALIVE_FOR.as_secs_f64()
    )
    .fetch_one(&mut *transaction)
    .await?;
    sqlx::query!("delete from coordinator where alive_until < clock_timestamp() - interval '1 minute'")
        .execute(&mut *transaction)
        .await?;
    sqlx::query!("delete from relay where deadline_at < clock_timestamp() - interval '1 minute'")
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(new)
}

/// Takes this coordinator out, with what it held.
///
/// # Errors
/// When the database refuses.
pub async fn leave(connection: &mut PgConnection, instance: Uuid) -> Result<(), StoreError> {
    let mut transaction = connection.begin().await?;
    sqlx::query!("update session set instance = null, ended_at = clock_timestamp() where instance = $1", instance)
        .execute(&mut *transaction)
        .await?;
    sqlx::query!("delete from coordinator where instance = $1", instance).execute(&mut *transaction).await?;
    notify(&mut transaction, ALL).await?;
    transaction.commit().await?;
    Ok(())
}

/// Running coordinators, by identity.
///
/// # Errors
/// When the database refuses.
pub async fn running(connection: &mut PgConnection) -> Result<Vec<Uuid>, StoreError> {
    Ok(sqlx::query_scalar!("select instance from coordinator where alive_until > clock_timestamp() order by instance")
        .fetch_all(connection)
        .await?)
}

/// Writes down streams that began, and those that ended; of one vantage the newest counts. Returns the
/// identities that show themselves as used by two machines.
///
/// # Errors
/// When the database refuses; then nothing is written.
pub async fn note(
    connection: &mut PgConnection,
    instance: Uuid,
    began: &[Held],
    ended: &[(VantageName, Uuid)],
) -> Result<Vec<Clone>, StoreError> {
    let mut transaction = connection.begin().await?;
    let names: Vec<String> = ended.iter().map(|(vantage, _)| vantage.to_string()).collect();
    let boots: Vec<Uuid> = ended.iter().map(|(_, boot)| *boot).collect();
    let mut touched = sqlx::query_scalar!(
        "update session s set instance = null, ended_at = clock_timestamp()
         from unnest($2::text[], $3::uuid[]) as u(name, boot) join vantage v on v.name = u.name
         where s.vantage_id = v.id and s.boot_id = u.boot and s.instance = $1
         returning s.vantage_id",
        instance,
        &names,
        &boots
    )
    .fetch_all(&mut *transaction)
    .await?;
    let clones = clones(&mut transaction, began).await?;
    touched.extend(write(&mut transaction, instance, began, true).await?);
    if !touched.is_empty() {
        touched.sort_unstable();
        touched.dedup();
        let listed = || touched.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        notify(&mut transaction, if touched.len() > NAMED_MAX { ALL.to_owned() } else { listed() }.as_str()).await?;
    }
    transaction.commit().await?;
    Ok(clones)
}

/// Writes every stream that this coordinator holds, after it was taken for dead or rows were lost. A
/// stream that has a newer one elsewhere stays as it is.
///
/// # Errors
/// When the database refuses; then nothing is written.
pub async fn write_all(connection: &mut PgConnection, instance: Uuid, held: &[Held]) -> Result<(), StoreError> {
    let mut transaction = connection.begin().await?;
    let boots: Vec<Uuid> = held.iter().map(|one| one.boot).collect();
    sqlx::query!(
        "update session set instance = null, ended_at = clock_timestamp() where instance = $1 and boot_id <> all($2)",
        instance,
        &boots
    )
    .execute(&mut *transaction)
    .await?;
    write(&mut transaction, instance, held, false).await?;
    sqlx::query!("delete from session where instance is null and coalesce(ended_at, since) < clock_timestamp() - interval '1 day'")
        .execute(&mut *transaction)
        .await?;
    notify(&mut transaction, ALL).await?;
    transaction.commit().await?;
    Ok(())
}

async fn write(
    connection: &mut PgConnection,
    instance: Uuid,
    held: &[Held],
    is_new: bool,
) -> Result<Vec<i16>, StoreError> {
    let (names, boots, remotes, ages) = columns(held);
    Ok(sqlx::query_scalar!(
        "insert into session as s (vantage_id, boot_id, instance, remote, since)
         select distinct on (v.id, u.boot) v.id, u.boot, $1, u.remote, clock_timestamp() - u.age_s * interval '1 second'
         from unnest($2::text[], $3::uuid[], $4::text[], $5::float8[]) as u(name, boot, remote, age_s)
         join vantage v on v.name = u.name
         order by v.id, u.boot, u.age_s
         on conflict (vantage_id, boot_id) do update
             set instance = excluded.instance, remote = excluded.remote, since = excluded.since, ended_at = null
         where (excluded.since > s.since and ($6 or s.instance is distinct from excluded.instance))
            or (s.instance is null and excluded.since > s.since - interval '1 second')
         returning vantage_id",
        instance,
        &names,
        &boots,
        &remotes,
        &ages,
        is_new
    )
    .fetch_all(connection)
    .await?)
}

/// Those of the streams whose start of the agent was there before, and was followed by another one in
/// the last day: one process never turns back into an earlier one, so two machines run.
async fn clones(connection: &mut PgConnection, began: &[Held]) -> Result<Vec<Clone>, StoreError> {
    let (names, boots, remotes, ages) = columns(began);
    let rows = sqlx::query!(
        r#"with came as (
               select distinct on (v.id) v.id, v.name, u.boot, u.remote,
                      clock_timestamp() - u.age_s * interval '1 second' as since
               from unnest($1::text[], $2::uuid[], $3::text[], $4::float8[]) as u(name, boot, remote, age_s)
               join vantage v on v.name = u.name
               order by v.id, u.age_s
           ), found as (
               select came.id, came.name, came.boot, came.remote, other.boot_id as other_boot, other.remote as other_remote
               from came
               join session before on before.vantage_id = came.id and before.boot_id = came.boot
               join lateral (
                   select o.boot_id, o.remote from session o
                   where o.vantage_id = came.id and o.boot_id <> came.boot and o.since > before.since
                     and o.since < came.since and o.since > clock_timestamp() - interval '1 day'
                   order by o.since desc limit 1
               ) other on true
           ), written as (
               insert into session_clone as c (vantage_id, boot_id, remote, other_boot_id, other_remote)
               select id, boot, remote, other_boot, other_remote from found
               on conflict (vantage_id) do update set
                   boot_id = excluded.boot_id, remote = excluded.remote, other_boot_id = excluded.other_boot_id,
                   other_remote = excluded.other_remote, last_at = clock_timestamp(), count = c.count + 1
               returning vantage_id, count
           )
           select found.name as "name!", found.remote as "remote!", found.other_remote as "other_remote!",
                  written.count as "count!"
           from found join written on written.vantage_id = found.id"#,
        &names,
        &boots,
        &remotes,
        &ages
    )
    .fetch_all(connection)
    .await?;
    let clones = rows.into_iter().map(|row| {
        let vantage = row.name.parse().map_err(|error| StoreError::content("vantage", "name", &row.name, error))?;
        Ok(Clone { vantage, remote: row.remote, other_remote: row.other_remote, count: row.count })
    });
    clones.collect()
}

/// Vantages under whose identity two machines reported since this moment, and when last.
///
/// # Errors
/// When the database refuses, or holds a name this version does not take.
pub async fn clones_since(
    connection: &mut PgConnection,
    since: Timestamp,
) -> Result<Vec<(VantageName, Timestamp)>, StoreError> {
    let rows = sqlx::query!(
        "select v.name, c.last_at from session_clone c join vantage v on v.id = c.vantage_id
         where c.last_at >= $1 order by v.name",
        offset(since)
    )
    .fetch_all(connection)
    .await?;
    let name = |text: &str| text.parse().map_err(|error| StoreError::content("vantage", "name", text, error));
    rows.into_iter().map(|row| Ok((name(&row.name)?, timestamp(row.last_at)))).collect()
}

/// Who holds the newest stream of each vantage; `only`: of these, by key.
///
/// # Errors
/// When the database refuses, or holds a name that is none.
pub async fn holders(connection: &mut PgConnection, only: Option<&[i16]>) -> Result<Vec<Holder>, StoreError> {
    let rows = sqlx::query!(
        r#"select distinct on (s.vantage_id) v.name, s.boot_id, c.instance, c.name as coordinator, s.remote, s.since
           from session s join vantage v on v.id = s.vantage_id join coordinator c on c.instance = s.instance
           where c.alive_until > clock_timestamp() and ($1::smallint[] is null or s.vantage_id = any($1))
           order by s.vantage_id, s.since desc"#,
        only
    )
    .fetch_all(connection)
    .await?;
    let holders = rows.into_iter().map(|row| {
        let vantage = row.name.parse().map_err(|error| StoreError::content("vantage", "name", &row.name, error))?;
        let (boot, instance, coordinator, remote) = (row.boot_id, row.instance, row.coordinator, row.remote);
        Ok(Holder { vantage, boot, instance, coordinator, remote, since: timestamp(row.since) })
    });
    holders.collect()
}

/// Names of vantages by their keys.
///
/// # Errors
/// When the database refuses, or holds a name that is none.
pub async fn names(connection: &mut PgConnection, keys: &[i16]) -> Result<Vec<VantageName>, StoreError> {
    let names = sqlx::query_scalar!("select name from vantage where id = any($1)", keys).fetch_all(connection).await?;
    let parse = |name: String| name.parse().map_err(|error| StoreError::content("vantage", "name", &name, error));
    names.into_iter().map(parse).collect()
}

async fn notify(connection: &mut PgConnection, which: &str) -> Result<(), StoreError> {
    sqlx::query!("select pg_notify($1, $2)", SESSION_CHANNEL, which).execute(connection).await?;
    Ok(())
}

fn columns(held: &[Held]) -> (Vec<String>, Vec<Uuid>, Vec<String>, Vec<f64>) {
    (
        held.iter().map(|one| one.vantage.to_string()).collect(),
        held.iter().map(|one| one.boot).collect(),
        held.iter().map(|one| one.remote.clone()).collect(),
        held.iter().map(|one| one.age.as_secs_f64()).collect(),
    )
}
