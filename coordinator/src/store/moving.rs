//! What moving to another database asks of both.

use std::collections::BTreeMap;

use sqlx::{AssertSqlSafe, PgConnection};

use super::StoreError;

/// Anything that is in a database beyond what Postgres itself puts there, as `schema.name`, at most three.
///
/// # Errors
/// When the database refuses.
pub async fn contents(connection: &mut PgConnection) -> Result<Vec<String>, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"select format('%I.%I', n.nspname, c.relname) as "name!"
           from pg_class c join pg_namespace n on n.oid = c.relnamespace
           where c.relkind in ('r', 'p', 'v', 'm', 'S', 'f')
             and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)'
             and not exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'e')
           order by 1 limit 3"#
    )
    .fetch_all(connection)
    .await?)
}

/// How many rows each table has; partitions are counted with their table.
///
/// # Errors
/// When the database refuses.
pub async fn counts(connection: &mut PgConnection) -> Result<BTreeMap<String, i64>, StoreError> {
    let tables = sqlx::query_scalar!(
        r#"select format('%I', c.relname) as "name!" from pg_class c
           where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
           order by 1"#
    )
    .fetch_all(&mut *connection)
    .await?;
    let mut counts = BTreeMap::new();
    for table in tables {
        // A name cannot be a parameter; this one was quoted by the server.
        let count = sqlx::query_scalar(AssertSqlSafe(format!("select count(*) from public.{table}")));
        counts.insert(table.clone(), count.fetch_one(&mut *connection).await?);
    }
    Ok(counts)
}

/// Bytes that the server's databases and its write-ahead log use.
///
/// # Errors
/// When the database refuses.
pub async fn bytes(connection: &mut PgConnection) -> Result<u64, StoreError> {
    let bytes = sqlx::query_scalar!(
        r#"select (coalesce((select sum(pg_database_size(oid)) from pg_database), 0)
                   + coalesce((select sum(size) from pg_ls_waldir()), 0))::bigint as "bytes!""#
    );
    Ok(u64::try_from(bytes.fetch_one(connection).await?).unwrap_or(0))
}

/// Major version of the server.
///
/// # Errors
/// When the database refuses.
pub async fn major(connection: &mut PgConnection) -> Result<u32, StoreError> {
    let number = sqlx::query_scalar!(r#"select current_setting('server_version_num')::int / 10000 as "major!""#);
    let major = number.fetch_one(connection).await?;
    Ok(u32::try_from(major).unwrap_or(0))
}

/// Makes the role that reads the views, where this role may: a dump grants to it and does not hold it. True: it is
/// there.
///
/// # Errors
/// When the database refuses to say.
pub async fn make_reader(connection: &mut PgConnection) -> Result<bool, StoreError> {
    let there = sqlx::query_scalar!(r#"select to_regrole('parallax_ro') is not null as "there!""#);
    if there.fetch_one(&mut *connection).await? {
        return Ok(true);
    }
    match sqlx::query!("create role parallax_ro nologin").execute(connection).await {
        Ok(_) => Ok(true),
        Err(sqlx::Error::Database(error)) => {
            tracing::warn!(%error, "the role parallax_ro cannot be made there");
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}
