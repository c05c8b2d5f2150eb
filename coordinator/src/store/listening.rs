//! Hearing notices.

use sqlx::postgres::{PgListener, PgPool, PgPoolOptions};

use super::servers::must_take_writes;
use super::{ACQUIRE_WITHIN, StoreError, word};

/// Listens on these channels at the server that a pool is at, on a session of its own: one that hangs, and waits for its
/// end, must not hold a place that other work needs.
///
/// # Errors
/// When the server cannot be reached, takes no writes, or does not answer in time.
pub async fn listen(pool: &PgPool, channels: &[&str]) -> Result<PgListener, StoreError> {
    let options = pool.connect_options();
    let own = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(ACQUIRE_WITHIN)
        .max_lifetime(None)
        .idle_timeout(None)
        .after_connect(|connection, _| Box::pin(async move { must_take_writes(connection).await }))
        .connect_lazy_with(options.as_ref().clone());
    word(async {
        let mut listener = PgListener::connect_with(&own).await?;
        listener.listen_all(channels.iter().copied()).await?;
        Ok(listener)
    })
    .await
}
