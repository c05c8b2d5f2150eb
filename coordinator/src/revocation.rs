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

/// Runs until `shutdown`.
pub async fn run(app: Arc<App>, shutdown: CancellationToken) {
    while !shutdown.is_cancelled() {
        tokio::select! {
            () = shutdown.cancelled() => return,
            ended = listen(&app) => {
                if let Err(error) = ended {
                    tracing::warn!(%error, "revocations are not heard; trying again");
                }
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
        revocations.next().await?;
    }
}

fn cut(app: &App, vantage: &VantageName) {
    if app.hub.cut(vantage) {
        tracing::warn!(%vantage, "revoked: cut off");
    }
}
