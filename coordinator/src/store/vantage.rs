//! Places that measure, as the database knows them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parallax_decide::names::VantageName;
use parallax_decide::time::Timestamp;
use sqlx::postgres::PgListener;
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use super::listening::listen;
use super::{StoreError, timestamp, word};

pub mod change;
pub mod detail;

/// Channel on which the running coordinators are told that a vantage or a key was changed by a person.
pub const REVOKED_CHANNEL: &str = "vantage_revoked";

/// Short key of a vantage in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VantageId(pub i16);

/// One vantage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VantageRow {
    /// Key.
    pub id: VantageId,
    /// Name.
    pub name: VantageName,
    /// First session; none: it never reported.
    pub first_seen_at: Option<Timestamp>,
    /// Last message, to within a few seconds.
    pub last_seen_at: Option<Timestamp>,
    /// Version its agent last said it runs.
    pub agent_version: Option<String>,
    /// When it was cut off for good.
    pub revoked_at: Option<Timestamp>,
    /// When a person approved it although the configuration does not list it.
    pub admitted_at: Option<Timestamp>,
    /// Certificates from before that count as revoked although never seen.
    pub keys_from: Option<Timestamp>,
    /// When it was removed for good.
    pub retired_at: Option<Timestamp>,
    /// Words that describe it, given with its token.
    pub labels: BTreeMap<String, String>,
    /// Where its last stream came from.
    pub last_remote: Option<String>,
    /// Process that took its last stream.
    pub last_coordinator: Option<Uuid>,
}

struct Row {
    id: i16,
    name: String,
    first_seen_at: Option<OffsetDateTime>,
    last_seen_at: Option<OffsetDateTime>,
    agent_version: Option<String>,
    revoked_at: Option<OffsetDateTime>,
    admitted_at: Option<OffsetDateTime>,
    keys_from: Option<OffsetDateTime>,
    retired_at: Option<OffsetDateTime>,
    labels: Json<BTreeMap<String, String>>,
    last_remote: Option<String>,
    last_coordinator: Option<Uuid>,
}

impl TryFrom<Row> for VantageRow {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: VantageId(row.id),
            name: row.name.parse().map_err(|error| StoreError::content("vantage", "name", row.id, error))?,
            first_seen_at: row.first_seen_at.map(timestamp),
            last_seen_at: row.last_seen_at.map(timestamp),
            agent_version: row.agent_version,
            revoked_at: row.revoked_at.map(timestamp),
            admitted_at: row.admitted_at.map(timestamp),
            keys_from: row.keys_from.map(timestamp),
            retired_at: row.retired_at.map(timestamp),
            labels: row.labels.0,
            last_remote: row.last_remote,
            last_coordinator: row.last_coordinator,
        })
    }
}

/// Makes sure that each configured vantage has a row, and returns their keys.
///
/// # Errors
/// When the database refuses.
pub async fn ensure<'a>(
    connection: &mut PgConnection,
    names: impl IntoIterator<Item = &'a VantageName>,
) -> Result<BTreeMap<VantageName, VantageId>, StoreError> {
    insert_missing(&mut *connection, names).await?;
    Ok(all(connection).await?.into_iter().map(|row| (row.name, row.id)).collect())
}

async fn insert_missing<'a>(
    connection: &mut PgConnection,
    names: impl IntoIterator<Item = &'a VantageName>,
) -> Result<(), StoreError> {
    let names: Vec<String> = names.into_iter().map(ToString::to_string).collect();
    // Keys are few (a smallint), and an insert that ends in a conflict has used one up: only names
    // that are missing are inserted. The conflict is left for two coordinators in the same moment.
    sqlx::query!(
        "insert into vantage (name)
         select n from unnest($1::text[]) as u(n) where not exists (select from vantage v where v.name = u.n)
         on conflict do nothing",
        &names
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Every vantage that was ever configured, by name.
///
/// # Errors
/// When the database refuses, or holds a name that is none.
pub async fn all(connection: &mut PgConnection) -> Result<Vec<VantageRow>, StoreError> {
    sqlx::query_as!(
        Row,
        r#"select id, name, first_seen_at, last_seen_at, agent_version, revoked_at, admitted_at, keys_from, retired_at,
                  labels as "labels: Json<BTreeMap<String, String>>", last_remote, last_coordinator
           from vantage order by name"#
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .map(VantageRow::try_from)
    .collect()
}

/// One vantage by name; makes the row if it is new.
///
/// # Errors
/// When the database refuses, or holds a name that is none.
pub async fn find_or_make(connection: &mut PgConnection, name: &VantageName) -> Result<VantageRow, StoreError> {
    if let Some(row) = by_name(&mut *connection, name).await? {
        return Ok(row);
    }
    insert_missing(&mut *connection, [name]).await?;
    by_name(connection, name).await?.ok_or(StoreError::Database(sqlx::Error::RowNotFound))
}

/// Which of these keys no vantage has.
///
/// # Errors
/// When the database refuses.
pub async fn unknown(
    connection: &mut PgConnection,
    among: &BTreeSet<VantageId>,
) -> Result<BTreeSet<VantageId>, StoreError> {
    let keys: Vec<i16> = among.iter().map(|id| id.0).collect();
    let known = sqlx::query_scalar!("select id from vantage where id = any($1)", &keys).fetch_all(connection).await?;
    let known: BTreeSet<VantageId> = known.into_iter().map(VantageId).collect();
    Ok(among.difference(&known).copied().collect())
}

/// One vantage by its name.
///
/// # Errors
/// When the database refuses, or holds a name that is none.
pub async fn by_name(connection: &mut PgConnection, name: &VantageName) -> Result<Option<VantageRow>, StoreError> {
    let row = sqlx::query_as!(
        Row,
        r#"select id, name, first_seen_at, last_seen_at, agent_version, revoked_at, admitted_at, keys_from, retired_at,
                  labels as "labels: Json<BTreeMap<String, String>>", last_remote, last_coordinator
           from vantage where name = $1"#,
        name.as_str()
    );
    row.fetch_optional(connection).await?.map(VantageRow::try_from).transpose()
}

/// One vantage by its name or, where no vantage has it now, by a former name.
///
/// # Errors
/// When the database refuses, or holds a name that is none.
pub async fn by_any_name(connection: &mut PgConnection, name: &VantageName) -> Result<Option<VantageRow>, StoreError> {
    let row = sqlx::query_as!(
        Row,
        r#"select id, name, first_seen_at, last_seen_at, agent_version, revoked_at, admitted_at, keys_from, retired_at,
                  labels as "labels: Json<BTreeMap<String, String>>", last_remote, last_coordinator
           from vantage where id = coalesce((select id from vantage where name = $1),
                                               (select vantage_id from vantage_former_name where name = $1))"#,
        name.as_str()
    );
    row.fetch_optional(connection).await?.map(VantageRow::try_from).transpose()
}

/// How often the number of changes is looked at. With the reading of the list that bounds how long a revocation may go
/// unheard when no notice comes: two seconds.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// Hears of revocations by any process: at once by a notice, and within a second or two by the number of changes, since
/// a session whose other end vanished without a word is silent and not broken.
#[derive(Debug)]
pub struct Revocations {
    pool: PgPool,
    notices: PgListener,
    /// The number when it was last looked at.
    number: i64,
    /// Something was changed and not told: the session hears nothing any more.
    deaf: bool,
}

impl Revocations {
    /// Starts to listen.
    ///
    /// # Errors
    /// When the database cannot be reached.
    pub async fn open(pool: &PgPool) -> Result<Self, StoreError> {
        let notices = listen(pool, &[REVOKED_CHANNEL]).await?;
        let number = word(async { change::number(&mut *pool.acquire().await?).await }).await?;
        Ok(Self { pool: pool.clone(), notices, number, deaf: false })
    }

    /// Returns at the next change, or when one may have been missed: either way the list must be read again.
    ///
    /// # Errors
    /// When the database cannot be reached any more.
    pub async fn next(&mut self) -> Result<(), StoreError> {
        if std::mem::take(&mut self.deaf) {
            self.notices = listen(&self.pool, &[REVOKED_CHANNEL]).await?;
        }
        loop {
            match tokio::time::timeout(COUNT_EVERY, self.notices.try_recv()).await {
                Ok(told) => {
                    told?;
                    self.number = self.count().await?;
                    return Ok(());
                }
                Err(_) => {
                    let number = self.count().await?;
                    if std::mem::replace(&mut self.number, number) != number {
                        self.deaf = true;
                        return Ok(());
                    }
                }
            }
        }
    }

    async fn count(&self) -> Result<i64, StoreError> {
        word(async { change::number(&mut *self.pool.acquire().await?).await }).await
    }
}

/// Whether the configuration in force lists a vantage.
///
/// # Errors
/// When the database refuses.
pub async fn is_listed(connection: &mut PgConnection, name: &VantageName) -> Result<bool, StoreError> {
    let listed = sqlx::query_scalar!(
        r#"select exists (select from configured where kind = 'vantage' and name = $1) as "listed!""#,
        name.as_str()
    );
    Ok(listed.fetch_one(connection).await?)
}

/// Describes a vantage, for as long as the configuration does not.
///
/// # Errors
/// When the database refuses.
pub async fn set_labels(
    connection: &mut PgConnection,
    id: VantageId,
    labels: &BTreeMap<String, String>,
) -> Result<(), StoreError> {
    sqlx::query!("update vantage set labels = $2 where id = $1", id.0, Json(labels) as Json<&BTreeMap<String, String>>)
        .execute(connection)
        .await?;
    Ok(())
}
