//! Several coordinators as one: tasks reach the coordinator that holds the agent's stream, news reach
//! every live page, and a stream that has a newer one elsewhere is cut.
//!
//! Everything goes through Postgres, which all of them share anyway: a row says what is wanted, a
//! notice wakes the one it is for. Notices are lost while the listener's connection is being made
//! anew (B88), so everything is read again after each opening, and every `RELOAD_EVERY` besides.
//!
//! - `keeper`: which coordinator runs, and which streams are held here.
//! - `outbox`: tasks, changes and news on their way out.
//! - `inbox`: what comes in from the others. A task or change of an epoch older than the lease's is
//!   refused here too, after the database refused to take it in.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::hub::elsewhere::Seat;
use crate::state::App;
use crate::store::session::{self, Holder};
use crate::store::{StoreError, word};

mod inbox;
mod keeper;
mod outbox;
#[cfg(test)]
mod tests;

/// Pause before another try while the database is away.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// Everything is read again after this long without a full reading.
const RELOAD_EVERY: Duration = Duration::from_secs(20);

/// Runs until `shutdown`, under a name for people.
pub async fn run(app: Arc<App>, name: String, shutdown: CancellationToken) {
    let Some(sendings) = app.hub.sendings() else {
        tracing::error!("the relay runs already");
        return;
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = async {
            tokio::join!(
                keeper::run(&app, &name),
                outbox::run(&app, sendings),
                outbox::news(&app),
                inbox::run(&app),
            );
        } => {}
    }
    let left = word(async { session::leave(&mut *app.pool.acquire().await?, app.instance).await }).await;
    if let Err(error) = left {
        tracing::info!(%error, "the other coordinators learn by silence that this one has ended");
    }
}

/// Reads again who holds every vantage.
async fn reload(app: &App) -> Result<(), StoreError> {
    let holders = word(async { session::holders(&mut *app.pool.acquire().await?, None).await }).await?;
    let others = holders.into_iter().filter(|one| one.instance != app.instance);
    app.hub.seats(others.map(|one| (one.vantage.clone(), seat(one))).collect());
    Ok(())
}

fn seat(holder: Holder) -> Seat {
    let Holder { boot, instance, coordinator, remote, since, .. } = holder;
    Seat { instance, coordinator, boot, remote, since }
}
