//! Tells the others that this coordinator runs and which streams it holds.

use std::time::Duration;

use uuid::Uuid;

use super::{RETRY_EVERY, reload};
use crate::clock::monotonic;
use crate::hub::News;
use crate::hub::stir::Stirred;
use crate::state::App;
use crate::store::session::{self, Held};
use crate::store::{StoreError, word};

/// Pause between two signs of life, a third of [`session::ALIVE_FOR`]: two may be lost.
const BEAT_EVERY: Duration = Duration::from_secs(2);

/// Streams that begin within this time are written down together: a fleet comes back at once.
const TOGETHER: Duration = Duration::from_millis(25);

/// Everything is written anew this often, for rows that a fail-over of the database lost.
const WRITE_ALL_EVERY: Duration = Duration::from_secs(30);

/// For ever; dropped at the end.
pub(super) async fn run(app: &App, name: &str) {
    let mut keeper = Keeper { app, name, write_all: true, running: Vec::new() };
    let mut said = None;
    loop {
        let error = keeper.keep().await.err().map(|error| error.to_string());
        if let Some(error) = error.as_ref().filter(|error| said.as_ref() != Some(*error)) {
            tracing::warn!(%error, "the other coordinators do not hear of this one; trying again");
        }
        said = error;
        keeper.write_all = true;
        tokio::time::sleep(RETRY_EVERY).await;
    }
}

struct Keeper<'a> {
    app: &'a App,
    name: &'a str,
    write_all: bool,
    running: Vec<Uuid>,
}

impl Keeper<'_> {
    /// Returns with the first error.
    async fn keep(&mut self) -> Result<(), StoreError> {
        let (mut beaten, mut written) = (None, monotonic());
        loop {
            if beaten.is_none_or(|at: std::time::Instant| at.elapsed() >= BEAT_EVERY) {
                beaten = Some(monotonic());
                self.beat().await?;
            }
            if self.write_all || written.elapsed() >= WRITE_ALL_EVERY {
                // Before it is written: what begins meanwhile is among the next ones.
                self.app.hub.stirs();
                self.write_all().await?;
                (self.write_all, written) = (false, monotonic());
            }
            tokio::select! {
                () = tokio::time::sleep(BEAT_EVERY) => {}
                () = self.app.hub.stirred() => {
                    tokio::time::sleep(TOGETHER).await;
                    self.note().await?;
                }
            }
        }
    }

    async fn beat(&mut self) -> Result<(), StoreError> {
        let app = self.app;
        let (new, running) = word(async {
            let mut connection = app.pool.acquire().await?;
            let new = session::beat(&mut connection, app.instance, self.name).await?;
            Ok((new, session::running(&mut connection).await?))
        })
        .await?;
        self.write_all |= new;
        if running != self.running {
            tracing::info!(coordinators = running.len(), "coordinators that run");
            self.running = running;
            reload(app).await?;
            app.hub.hear(News::Vantages);
        }
        Ok(())
    }

    async fn note(&mut self) -> Result<(), StoreError> {
        let app = self.app;
        let Stirred { began, ended, too_many } = app.hub.stirs();
        if too_many {
            self.write_all = true;
        }
        let held: Vec<Held> = began.iter().map(|(_, held)| held.clone()).collect();
        let clones =
            word(async { session::note(&mut *app.pool.acquire().await?, app.instance, &held, &ended).await }).await?;
        app.hub.noted(&began);
        for clone in clones {
            let session::Clone { vantage, remote, other_remote, count } = clone;
            tracing::warn!(
                %vantage, %remote, %other_remote, count,
                "two machines use this identity: revoke it, and give each machine its own"
            );
        }
        Ok(())
    }

    async fn write_all(&self) -> Result<(), StoreError> {
        let app = self.app;
        let all = app.hub.held();
        let held: Vec<Held> = all.iter().map(|(_, held)| held.clone()).collect();
        word(async { session::write_all(&mut *app.pool.acquire().await?, app.instance, &held).await }).await?;
        app.hub.noted(&all);
        Ok(())
    }
}
