//! Makes the log's days ahead of time.

use std::sync::Arc;
use std::time::Duration;

use super::LeaseHeld;
use crate::state::App;
use crate::store::partition;

/// Days are made three ahead, so that an hour's delay, or a day's, harms nothing.
const EVERY: Duration = Duration::from_secs(3600);

/// Runs until the lease is lost.
pub async fn run(app: Arc<App>, held: LeaseHeld) {
    loop {
        let made = async { partition::ensure(&mut *app.pool.acquire().await?).await };
        let made = tokio::select! {
            made = made => made,
            // A database that hangs must not keep the lease from being taken again.
            () = held.lost.cancelled() => return,
        };
        match made {
            Ok(0) => {}
            Ok(made) => tracing::info!(made, "made partitions of the log"),
            Err(error) => tracing::error!(%error, "cannot make the partitions of the coming days"),
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = held.lost.cancelled() => return,
        }
    }
}
