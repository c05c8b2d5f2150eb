//! Follows what people do to vantages: cuts a revoked or renamed one off at once, wherever its stream is, and
//! takes an approved one in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::admitted;
use crate::ingest::standing::{Cut, Stream};
use crate::state::App;
use crate::store::vantage::{self, Revocations, VantageId, VantageRow};
use crate::store::{StoreError, certificate, word};

/// Pause before the channel is opened again after the database was away.
const RETRY_EVERY: Duration = Duration::from_secs(1);

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
        look(app).await?;
        revocations.next().await?;
    }
}

/// Reads how things stand, and acts on it.
async fn look(app: &App) -> Result<(), StoreError> {
    let (rows, keys) = word(async {
        let mut connection = app.pool.acquire().await?;
        Ok((vantage::all(&mut connection).await?, certificate::revoked_keys(&mut connection).await?))
    })
    .await?;
    let rows: BTreeMap<VantageId, VantageRow> = rows.into_iter().map(|row| (row.id, row)).collect();
    let cut = app.standing.cut(|stream| must_end(stream, &rows, &keys));
    if cut > 0 {
        tracing::warn!(streams = cut, "cut off: revoked, removed or renamed");
    }
    admitted::take_in(app, rows.values()).await
}

fn must_end(stream: &Stream, rows: &BTreeMap<VantageId, VantageRow>, keys: &BTreeSet<[u8; 32]>) -> Option<Cut> {
    let row = rows.get(&stream.vantage)?;
    if row.revoked_at.is_some() {
        Some(Cut::Revoked)
    } else if row.retired_at.is_some() {
        Some(Cut::Removed)
    } else if keys.contains(&stream.key_sha256) {
        Some(Cut::KeyRevoked)
    } else if row.name != stream.name {
        Some(Cut::Renamed)
    } else {
        None
    }
}
