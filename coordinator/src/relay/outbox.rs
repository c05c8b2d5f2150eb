//! Tasks, changes and news on their way to the other coordinators.

use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;

use super::RETRY_EVERY;
use crate::hub::elsewhere::{Sending, Waiting};
use crate::hub::{ChangeOutcome, ChangeReport, TaskId};
use crate::state::App;
use crate::store::relay::{self, Kind, Parcel};
use crate::store::word;

/// Parcels of one transaction.
const TOGETHER_MAX: usize = 64;

/// News within this time are one word.
const NEWS_PAUSE: Duration = Duration::from_millis(100);

/// Sends what waits. A task that cannot be sent is asked again; a change that cannot be sent runs into
/// its time-out and counts as perhaps made: whether the database took it in is not known.
pub(super) async fn run(app: &App, mut sendings: mpsc::Receiver<Waiting>) {
    let mut waiting = Vec::with_capacity(TOGETHER_MAX);
    while sendings.recv_many(&mut waiting, TOGETHER_MAX).await > 0 {
        let parcels: Vec<Parcel> = waiting.drain(..).map(parcel).collect();
        let sent = word(async { relay::send(&mut *app.pool.acquire().await?, app.instance, &parcels).await }).await;
        match sent {
            Ok(stale) => {
                for parcel in stale.into_iter().filter_map(|place| parcels.get(place)) {
                    refuse(app, parcel);
                }
            }
            Err(error) => {
                tracing::warn!(%error, count = parcels.len(), "tasks for agents of other coordinators were not sent");
                // A closed channel must not spin, and a database that is away needs no hammering.
                tokio::time::sleep(RETRY_EVERY / 4).await;
            }
        }
    }
    std::future::pending().await
}

/// Tells news, for ever.
pub(super) async fn news(app: &App) {
    loop {
        let words = app.hub.news_to_tell().await;
        let told = word(async { relay::tell(&mut *app.pool.acquire().await?, app.instance, &words).await }).await;
        if let Err(error) = told {
            tracing::debug!(%error, "news not told; live pages of the others look again by themselves");
            tokio::time::sleep(RETRY_EVERY).await;
        }
        tokio::time::sleep(NEWS_PAUSE).await;
    }
}

fn parcel((instance, vantage, sending): Waiting) -> Parcel {
    match sending {
        Sending::Task { id, task, epoch } => {
            let life = task.deadline;
            Parcel { instance, kind: Kind::Task, vantage, task: id.0, epoch, payload: json!(task), life }
        }
        Sending::Change { id, change, timeout } => {
            let (epoch, payload) = (change.epoch, json!(change));
            Parcel { instance, kind: Kind::Change, vantage, task: id.0, epoch, payload, life: timeout }
        }
    }
}

/// The database refused: the lease has moved on, and nothing was sent.
fn refuse(app: &App, parcel: &Parcel) {
    tracing::warn!(vantage = %parcel.vantage, epoch = parcel.epoch, "not handed over: the lease has moved on");
    if parcel.kind == Kind::Change {
        app.hub.report(&parcel.vantage, TaskId(parcel.task), stale(parcel.epoch));
    }
}

/// What a change of a stale epoch is answered with.
pub(super) fn stale(epoch: i64) -> ChangeReport {
    let detail = format!("refused: the lease has moved on from epoch {epoch}");
    ChangeReport { outcome: ChangeOutcome::Refused, found: Vec::new(), detail }
}
