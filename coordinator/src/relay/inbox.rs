//! What comes in from the other coordinators.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::Acquire;
use sqlx::postgres::PgNotification;

use super::outbox::stale;
use super::{RELOAD_EVERY, RETRY_EVERY, reload, seat};
use crate::clock::monotonic;
use crate::hub::{Back, ChangeFailed, ChangeReport, ChangeTask, News, Task, TaskId};
use crate::state::App;
use crate::store::commit::OBSERVATIONS_CHANNEL;
use crate::store::listening::listen as listen_on;
use crate::store::relay::{self, Kind, NEWS_CHANNEL, Parcel};
use crate::store::servers::must_take_writes;
use crate::store::session::{self, SESSION_CHANNEL};
use crate::store::{StoreError, word};

/// How long the listener's connection may be silent before it is asked whether it still is at the
/// server that takes writes: one whose other end is gone hears nothing, and says nothing.
const TEST_EVERY: Duration = Duration::from_secs(5);

/// A report's own life on its way back.
const REPORT_LIFE: Duration = Duration::from_secs(30);

/// What comes back for a change, as it goes through the database.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Returned {
    Report(ChangeReport),
    NotSent,
}

/// For ever; dropped at the end.
pub(super) async fn run(app: &Arc<App>) {
    let mut said = None;
    loop {
        let error = listen(app).await.err().map(|error| error.to_string());
        if let Some(error) = error.as_ref().filter(|error| said.as_ref() != Some(*error)) {
            tracing::warn!(%error, "other coordinators are not heard; trying again");
        }
        said = error;
        tokio::time::sleep(RETRY_EVERY).await;
    }
}

async fn listen(app: &Arc<App>) -> Result<(), StoreError> {
    let mine = relay::channel(app.instance);
    let mut listener = listen_on(&app.pool, &[&mine, SESSION_CHANNEL, NEWS_CHANNEL, OBSERVATIONS_CHANNEL]).await?;
    let mut loaded = None;
    loop {
        if loaded.is_none_or(|at: std::time::Instant| at.elapsed() >= RELOAD_EVERY) {
            reload(app).await?;
            take(app).await?;
            for news in [News::Vantages, News::Observations, News::Verdicts, News::Incidents, News::Plans] {
                app.hub.hear(news);
            }
            loaded = Some(monotonic());
        }
        match tokio::time::timeout(TEST_EVERY, listener.try_recv()).await {
            Ok(Ok(Some(notice))) => hear(app, &mine, &notice).await?,
            // The connection was lost and made anew, and what was told in between is lost.
            Ok(Ok(None)) => loaded = None,
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => word(async { Ok(must_take_writes(listener.acquire().await?).await?) }).await?,
        }
    }
}

async fn hear(app: &Arc<App>, mine: &str, notice: &PgNotification) -> Result<(), StoreError> {
    match notice.channel() {
        OBSERVATIONS_CHANNEL => app.hub.hear(News::Observations),
        NEWS_CHANNEL => {
            let (from, words) = notice.payload().split_once(' ').unwrap_or_default();
            if from != app.instance.simple().to_string() {
                words.split(' ').for_each(|word| app.hub.hear_word(word));
            }
        }
        SESSION_CHANNEL => {
            seats(app, notice.payload()).await?;
            app.hub.hear(News::Vantages);
        }
        channel if channel == mine => take(app).await?,
        other => tracing::debug!(channel = other, "a notice on a channel that nobody listens to"),
    }
    Ok(())
}

/// Reads again who holds these vantages.
async fn seats(app: &App, payload: &str) -> Result<(), StoreError> {
    let keys: Result<Vec<i16>, _> = payload.split(',').map(str::parse).collect();
    let Ok(keys) = keys else { return reload(app).await };
    let (names, holders) = word(async {
        let mut connection = app.pool.acquire().await?;
        let names = session::names(&mut connection, &keys).await?;
        Ok((names, session::holders(&mut connection, Some(&keys)).await?))
    })
    .await?;
    for name in names {
        let holder = holders.iter().find(|one| one.vantage == name && one.instance != app.instance);
        app.hub.seat(&name, holder.cloned().map(seat));
    }
    Ok(())
}

/// Takes out what is there, and does it.
async fn take(app: &Arc<App>) -> Result<(), StoreError> {
    loop {
        let taken = word(async { relay::take(&mut *app.pool.acquire().await?, app.instance).await }).await?;
        for parcel in taken.parcels {
            open(app, parcel, taken.epoch);
        }
        if !taken.more {
            return Ok(());
        }
    }
}

fn open(app: &Arc<App>, parcel: Parcel, current: i64) {
    let (vantage, epoch) = (parcel.vantage.clone(), parcel.epoch);
    let unreadable = |error: serde_json::Error| {
        tracing::warn!(%vantage, %error, "another coordinator's parcel cannot be read; is it of another version?");
    };
    match parcel.kind {
        // Between its sending and now the lease may have moved on.
        Kind::Task | Kind::Change if epoch < current => {
            tracing::warn!(%vantage, epoch, current, "refused: another coordinator's order of a stale epoch");
            if parcel.kind == Kind::Change {
                give_back(app, &parcel, Returned::Report(stale(epoch)));
            }
        }
        Kind::Task => match serde_json::from_value::<Task>(parcel.payload) {
            Ok(task) => {
                if let Err(error) = app.hub.forward(&vantage, TaskId(parcel.task), task) {
                    tracing::debug!(%error, "another coordinator's task was not sent on");
                }
            }
            Err(error) => unreadable(error),
        },
        Kind::Change => match serde_json::from_value::<ChangeTask>(parcel.payload.clone()) {
            Ok(change) => change_here(app, parcel, change),
            Err(error) => unreadable(error),
        },
        Kind::Report => match serde_json::from_value::<Returned>(parcel.payload) {
            Ok(returned) => {
                let back = match returned {
                    Returned::Report(report) => Back::Report(report),
                    Returned::NotSent => Back::NotSent,
                };
                if !app.hub.back(&vantage, TaskId(parcel.task), back) {
                    tracing::warn!(%vantage, task = parcel.task, "a change report that nobody waits for any more");
                }
            }
            Err(error) => unreadable(error),
        },
    }
}

/// Has an agent of ours make a change, for another coordinator.
fn change_here(app: &Arc<App>, parcel: Parcel, change: ChangeTask) {
    let app = Arc::clone(app);
    tokio::spawn(async move {
        let made = app.hub.change_here(TaskId(parcel.task), &parcel.vantage, change, parcel.life).await;
        match made {
            Ok(report) => give_back(&app, &parcel, Returned::Report(report)),
            Err(ChangeFailed::NotConnected(_)) => give_back(&app, &parcel, Returned::NotSent),
            // Whoever asked has given up by now: perhaps applied.
            Err(ChangeFailed::Timeout(_)) => {}
        }
    });
}

/// Sends a report back. Without it the change counts as perhaps made, and is looked at.
fn give_back(app: &Arc<App>, parcel: &Parcel, returned: Returned) {
    let payload = serde_json::to_value(&returned).unwrap_or(Value::Null);
    let back = Parcel { kind: Kind::Report, payload, life: REPORT_LIFE, ..parcel.clone() };
    let app = Arc::clone(app);
    tokio::spawn(async move {
        let parcels = std::slice::from_ref(&back);
        let sent = word(async { relay::send(&mut *app.pool.acquire().await?, app.instance, parcels).await }).await;
        if let Err(error) = sent {
            tracing::warn!(vantage = %back.vantage, %error, "a change report was not handed back");
        }
    });
}
