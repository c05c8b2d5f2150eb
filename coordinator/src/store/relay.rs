//! What coordinators hand each other: tasks and changes for the one that holds the agent's stream,
//! and reports of changes back.

use std::time::Duration;

use parallax_decide::names::VantageName;
use serde_json::Value;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::StoreError;

/// Channel of news for the live pages of every coordinator: the sender's identity, a blank, and words.
pub const NEWS_CHANNEL: &str = "news";

/// Parcels taken at once; the next ones follow at once.
const TAKEN_MAX: i64 = 256;

/// Channel on which one coordinator hears that something is there for it.
#[must_use]
pub fn channel(instance: Uuid) -> String {
    format!("relay_{}", instance.simple())
}

/// What a parcel holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Evidence wanted.
    Task,
    /// A change of a local resolver.
    Change,
    /// The report of a change.
    Report,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Change => "change",
            Self::Report => "report",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        [Self::Task, Self::Change, Self::Report].into_iter().find(|kind| kind.word() == word)
    }
}

/// Something on its way from one coordinator to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Parcel {
    /// Who sent it; for a parcel to be sent, who gets it.
    pub instance: Uuid,
    /// What it holds.
    pub kind: Kind,
    /// Whose agent.
    pub vantage: VantageName,
    /// Number of the task.
    pub task: u64,
    /// Epoch under which it was sent.
    pub epoch: i64,
    /// The content.
    pub payload: Value,
    /// Worthless after this.
    pub life: Duration,
}

/// What was taken out.
#[derive(Debug, Default)]
pub struct Taken {
    /// In order of sending; those that came too late are left out.
    pub parcels: Vec<Parcel>,
    /// Epoch of the lease at that moment.
    pub epoch: i64,
    /// Whether more may be there.
    pub more: bool,
}

/// Sends parcels. Tasks and changes of an epoch that is not the lease's are not sent: they come from
/// a coordinator whose lease was taken. Returns which were refused so, by place in the list.
///
/// # Errors
/// When the database refuses.
pub async fn send(connection: &mut PgConnection, from: Uuid, parcels: &[Parcel]) -> Result<Vec<usize>, StoreError> {
    let to: Vec<Uuid> = parcels.iter().map(|one| one.instance).collect();
    let kinds: Vec<String> = parcels.iter().map(|one| one.kind.word().to_owned()).collect();
    let vantages: Vec<String> = parcels.iter().map(|one| one.vantage.to_string()).collect();
    let tasks: Vec<i64> = parcels.iter().map(|one| one.task.cast_signed()).collect();
    let epochs: Vec<i64> = parcels.iter().map(|one| one.epoch).collect();
    let payloads: Vec<Value> = parcels.iter().map(|one| one.payload.clone()).collect();
    let lives: Vec<f64> = parcels.iter().map(|one| one.life.as_secs_f64()).collect();
    let mut transaction = connection.begin().await?;
    // The share lock keeps the lease where it is until this is sent.
    let epoch = sqlx::query_scalar!("select epoch from lease where name = 'tasks' for share")
        .fetch_optional(&mut *transaction)
        .await?
        .unwrap_or(0);
    sqlx::query!(
        "insert into relay (to_instance, from_instance, kind, vantage, task_id, epoch, payload, deadline_at)
         select u.target, $1, u.kind, u.vantage, u.task, u.epoch, u.payload, clock_timestamp() + u.life_s * interval '1 second'
         from unnest($2::uuid[], $3::text[], $4::text[], $5::int8[], $6::int8[], $7::jsonb[], $8::float8[])
              with ordinality as u(target, kind, vantage, task, epoch, payload, life_s, place)
         where u.kind = 'report' or u.epoch = $9
         order by u.place",
        from,
        &to,
        &kinds,
        &vantages,
        &tasks,
        &epochs,
        &payloads,
        &lives,
        epoch
    )
    .execute(&mut *transaction)
    .await?;
    let channels: Vec<String> = to.iter().map(|instance| channel(*instance)).collect();
    sqlx::query!("select pg_notify(c, '') from (select distinct unnest($1::text[])) as u(c)", &channels)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    let stale = |one: &Parcel| one.kind != Kind::Report && one.epoch != epoch;
    Ok(parcels.iter().enumerate().filter(|(_, one)| stale(one)).map(|(place, _)| place).collect())
}

/// Takes out what is there for this coordinator. Nothing is taken twice.
///
/// # Errors
/// When the database refuses, or a row cannot be read.
pub async fn take(connection: &mut PgConnection, instance: Uuid) -> Result<Taken, StoreError> {
    let rows = sqlx::query!(
        r#"with taken as (
               delete from relay where id in (
                   select id from relay where to_instance = $1 order by id limit $2 for update skip locked
               )
               returning id, from_instance, kind, vantage, task_id, epoch, payload, deadline_at
           )
           select from_instance as "from_instance!", kind as "kind!", vantage as "vantage!", task_id as "task_id!",
                  epoch as "epoch!", payload as "payload!: Value",
                  extract(epoch from deadline_at - clock_timestamp())::float8 as "life_s!",
                  coalesce((select max(l.epoch) from lease l), 0) as "current!"
           from taken order by id"#,
        instance,
        TAKEN_MAX
    )
    .fetch_all(connection)
    .await?;
    let more = i64::try_from(rows.len()).is_ok_and(|count| count >= TAKEN_MAX);
    let mut taken = Taken { more, ..Taken::default() };
    for row in rows {
        taken.epoch = row.current;
        let unreadable = |column, why: String| StoreError::content("relay", column, row.task_id, why);
        let kind = Kind::from_word(&row.kind).ok_or_else(|| unreadable("kind", row.kind.clone()))?;
        let vantage = row.vantage.parse().map_err(|why| unreadable("vantage", format!("{why}")))?;
        let Ok(life) = Duration::try_from_secs_f64(row.life_s) else { continue };
        taken.parcels.push(Parcel {
            instance: row.from_instance,
            kind,
            vantage,
            task: row.task_id.cast_unsigned(),
            epoch: row.epoch,
            payload: row.payload,
            life,
        });
    }
    Ok(taken)
}

/// Tells the live pages of every coordinator that something changed.
///
/// # Errors
/// When the database refuses.
pub async fn tell(connection: &mut PgConnection, from: Uuid, words: &str) -> Result<(), StoreError> {
    let payload = format!("{} {words}", from.simple());
    sqlx::query!("select pg_notify($1, $2)", NEWS_CHANNEL, payload).execute(connection).await?;
    Ok(())
}
