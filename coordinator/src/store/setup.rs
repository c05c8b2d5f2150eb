//! A database that is ready for use: made and migrated.

use sqlx::PgConnection;
use sqlx::migrate::MigrateError;

use super::StoreError;

/// Migrations, embedded. They run under an advisory lock: several starts at once are safe.
pub static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../migrations");

/// Makes the database `parallax` of the embedded server, if it is not there.
///
/// # Errors
/// When the server refuses.
pub async fn make_database(connection: &mut PgConnection) -> Result<(), StoreError> {
    let there =
        sqlx::query_scalar!(r#"select exists (select from pg_database where datname = 'parallax') as "there!""#);
    if there.fetch_one(&mut *connection).await? {
        return Ok(());
    }
    match sqlx::query!("create database parallax").execute(connection).await {
        Ok(_) => Ok(()),
        // 42P04: somebody else was faster.
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42P04") => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Brings the schema up to this program's version.
///
/// # Errors
/// When a migration fails, or the schema is of a newer program.
pub async fn migrate(connection: &mut PgConnection) -> Result<(), MigrateError> {
    MIGRATIONS.run(connection).await
}

/// Checks the schema without changing it.
///
/// # Errors
/// What is missing, in words.
pub async fn check_schema(connection: &mut PgConnection) -> Result<(), String> {
    let newest = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0);
    let applied = sqlx::query_scalar::<_, Option<i64>>("select max(version) from _sqlx_migrations where success")
        .fetch_one(connection)
        .await;
    match applied {
        Ok(Some(applied)) if applied == newest => Ok(()),
        Ok(Some(applied)) => Err(format!("the schema is at migration {applied}, this program is written for {newest}")),
        Ok(None) => Err("no migration was applied".to_owned()),
        Err(error) => Err(format!("its migrations cannot be read: {error}")),
    }
}
