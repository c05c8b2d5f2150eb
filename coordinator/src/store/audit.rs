//! What people did, and what happened to secrets. Append only; the database refuses anything else.

use serde_json::Value;
use sqlx::PgConnection;

use super::StoreError;

/// Who writes what no person did.
pub const COORDINATOR: &str = "coordinator";

/// A deed.
#[derive(Debug, Clone, Copy)]
pub struct Deed<'a> {
    /// Who did it.
    pub who: &'a str,
    /// Word for it, as in `token_created`.
    pub what: &'static str,
    /// To what.
    pub subject: &'a str,
    /// Why, in the words of who did it.
    pub reason: &'a str,
}

/// Writes it down; in the transaction of the deed itself.
///
/// # Errors
/// When the database refuses.
pub async fn write(connection: &mut PgConnection, deed: Deed<'_>, detail: &Value) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into audit (who, what, subject, reason, detail) values ($1, $2, $3, $4, $5)",
        deed.who,
        deed.what,
        deed.subject,
        deed.reason,
        detail
    )
    .execute(connection)
    .await?;
    Ok(())
}
