//! What a new token must say, as the running coordinators have it.

use sqlx::PgConnection;

use super::StoreError;

/// It.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolment {
    /// Where agents reach the coordinators, HOST:PORT.
    pub coordinators: Vec<String>,
    /// SHA-256 of the public key of the authority that vouches for the coordinators.
    pub authority_sha256: [u8; 32],
}

/// Publishes it.
///
/// # Errors
/// When the database refuses.
pub async fn write(connection: &mut PgConnection, enrolment: &Enrolment) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into enrolment as e (coordinators, authority_sha256) values ($1, $2)
         on conflict (only_row) do update set
             coordinators = excluded.coordinators, authority_sha256 = excluded.authority_sha256,
             written_at = excluded.written_at",
        &enrolment.coordinators,
        enrolment.authority_sha256.as_slice()
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Reads it. `None`: no coordinator has run yet.
///
/// # Errors
/// When the database refuses.
pub async fn read(connection: &mut PgConnection) -> Result<Option<Enrolment>, StoreError> {
    let row = sqlx::query!("select coordinators, authority_sha256 from enrolment").fetch_optional(connection).await?;
    let Some(row) = row else { return Ok(None) };
    let authority_sha256 = row
        .authority_sha256
        .try_into()
        .map_err(|_| StoreError::content("enrolment", "authority_sha256", 1, "not 32 bytes"))?;
    Ok(Some(Enrolment { coordinators: row.coordinators, authority_sha256 }))
}
