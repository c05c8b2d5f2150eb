//! Cuts a revoked vantage off at once, wherever its stream is.

use std::sync::Arc;
use std::time::Duration;

use parallax_decide::names::VantageName;
use tokio_util::sync::CancellationToken;

use crate::state::App;
use crate::store::StoreError;
use crate::store::vantage::{self, Revocations};

/// Pause before the channel is opened again after the database was away.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// The list is read again after this long without news: a channel whose other end vanished without a
/// word is silent, not broken.
const RELOAD_EVERY: Duration = Duration::from_secs(20);

/// Runs until `shutdown`.
pub async fn run(app: Arc<App>, shutdown: CancellationToken) {
    let mut said = None;
    while !shutdown.is_cancelled() {
        tokio::select! {
            () = shutdown.cancelled() => return,
            ended = listen(&app) => {
                let error = ended.err().map(|error| error.to_string());
                // Once, and not every second while the database is away.
                if let Some(error) = error.as_ref().filter(|error| said.as_ref() != Some(*error)) {
                    tracing::warn!(%error, "revocations are not heard; trying again");
                }
                said = error;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(RETRY_EVERY) => {}
            () = shutdown.cancelled() => {}
        }
    }
}

/// What was told while nobody listened is lost, so the whole list is read after each opening.
async fn listen(app: &App) -> Result<(), StoreError> {
    let mut revocations = Revocations::open(&app.pool).await?;
    loop {
        for row in vantage::all(&mut *app.pool.acquire().await?).await? {
            if row.revoked_at.is_some() {
                cut(app, &row.name);
            }
        }
        if let Ok(heard) = tokio::time::timeout(RELOAD_EVERY, revocations.next()).await {
            heard?;
        }
    }
}

fn cut(app: &App, vantage: &VantageName) {
    if app.hub.cut(vantage) {
        tracing::warn!(%vantage, "revoked: cut off");
    }
}
