//! Whether the database is the one that is known, and as far as it was.
//!
//! After a restore from a backup, epochs, cursors and versions have fallen, and a plan that was undone long ago may
//! stand as applied: acting on it would be acting on the past. So the coordinator remembers beside its certificates
//! how far it saw each database ([`witness`]), compares at the start, whenever it takes the lease, and every few
//! seconds; agents compare too, by the epoch that they were told. When the database is behind, or is one that was
//! never seen, that is recorded with the gap, the generation rises above everything that was handed out, and nothing
//! is written anywhere until a person allows it (`parallax failover thaw --reason`). Watching and judging go on.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use sqlx::PgConnection;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::ingest::standing::Cut;
use crate::state::App;
use crate::store::installation::{self as store, Found, GENERATION_MAX, Kind, WentBack};
use crate::store::{StoreError, order, word};

#[cfg(test)]
mod tests;
pub mod witness;

use witness::{Judged, Witness};

/// How often the coordinator looks. What was acknowledged between two looks and is missing after a restore that also
/// cost this process its memory is found by agents alone.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// An agent's word for a generation further above ours than this is taken for nonsense: no installation goes back so
/// often, and a made-up number must not use up the numbers there are.
const GENERATION_LEAP_MAX: i32 = 1000;

/// What this coordinator knows of its installation.
#[derive(Debug)]
pub struct Installation {
    generation: AtomicI32,
    witness: Mutex<Witness>,
}

impl Installation {
    /// Reads what is remembered in a state directory.
    #[must_use]
    pub fn open(state: &Path) -> Self {
        Self { generation: AtomicI32::new(0), witness: Mutex::new(Witness::open(state)) }
    }

    /// Generation of the database when it was last looked at; 0: never yet.
    #[must_use]
    pub fn generation(&self) -> i32 {
        self.generation.load(Ordering::Relaxed)
    }
}

/// Looks whether the database is the known one and as far as it was, records it if not, and remembers how far it is.
///
/// # Errors
/// When the database refuses, or does not answer in time: others wait for the memory meanwhile.
pub async fn look(app: &App, connection: &mut PgConnection) -> Result<(), StoreError> {
    word(look_now(app, connection)).await
}

async fn look_now(app: &App, connection: &mut PgConnection) -> Result<(), StoreError> {
    let mut witness = app.installation.witness.lock().await;
    let mut found = store::find_durably(connection).await?;
    let why = match witness.judge(&found) {
        Judged::First | Judged::AsKnown => None,
        Judged::Recorded => {
            tracing::warn!(
                generation = found.position.generation,
                "the database went back; another coordinator has recorded it"
            );
            None
        }
        Judged::WentBack { seen, seen_at } => Some(WentBack {
            kind: Kind::WentBack,
            told_by: "coordinator".to_owned(),
            above: seen.generation,
            seen_at: Some(seen_at),
            observations: Some(seen.observation.saturating_sub(found.position.observation).max(0)),
            detail: format!(
                "seen: generation {}, epoch {}, observation {}; found: generation {}, epoch {}, observation {}",
                seen.generation,
                seen.epoch,
                seen.observation,
                found.position.generation,
                found.position.epoch,
                found.position.observation
            ),
            reason: format!(
                "the database went back to {} (restored from a backup?); it had been seen until {}",
                minute(found.alive_at),
                minute(seen_at)
            ),
        }),
        Judged::Stranger { known, above, seen_at } => Some(WentBack {
            kind: Kind::Replaced,
            told_by: "coordinator".to_owned(),
            above,
            seen_at: Some(seen_at),
            observations: None,
            detail: format!("known: installation {known}; found: installation {}", found.installation),
            reason: format!(
                "this is not the database that was known until {}: it was emptied, made anew, or is another one",
                minute(seen_at)
            ),
        }),
    };
    if let Some(why) = why {
        record(connection, &found, &why).await?;
        found = store::find_durably(connection).await?;
    }
    // A coordinator that never holds the lease has no other word of the database's time.
    app.clock.align(found.now);
    let before = app.installation.generation.swap(found.position.generation, Ordering::Relaxed);
    if before != found.position.generation && before != 0 {
        // Short keys of vantages may mean others by now, and every agent must learn the new generation.
        let streams = app.standing.cut(|_| Some(Cut::WentBack));
        tracing::warn!(streams, "the database went back: every agent connects again");
    }
    witness.remember(&found).await;
    Ok(())
}

/// Epochs that agents claimed and could not prove, since the start.
static UNPROVEN: AtomicU64 = AtomicU64::new(0);

/// Takes an agent's word that it was told this epoch, beside how the database was found. True: the database had gone
/// back, and that is recorded now. What is not proven by our own signature is only logged and counted: one agent must
/// not freeze everybody.
///
/// # Errors
/// When the database refuses.
pub async fn told_by_agent(
    app: &App,
    connection: &mut PgConnection,
    found: &Found,
    (vantage, wire_epoch, proven): (&str, u64, bool),
) -> Result<bool, StoreError> {
    let (told_generation, told_epoch) = order::apart(wire_epoch);
    let Ok(told_generation) = i32::try_from(told_generation) else { return Ok(nonsense(vantage, wire_epoch)) };
    let told_epoch = i64::from(told_epoch);
    let position = found.position;
    if (told_generation, told_epoch) <= (position.generation, position.epoch) {
        return Ok(false);
    }
    if !proven {
        let count = UNPROVEN.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if count.is_power_of_two() {
            tracing::warn!(
                vantage,
                count,
                told_generation,
                told_epoch,
                generation = position.generation,
                epoch = position.epoch,
                reason = "epoch_unproven",
                "an agent claims a higher epoch than the database knows and cannot prove that we told it; nothing is frozen for that. After a restore from a backup, or with another signing key than before, freeze by hand: parallax failover freeze"
            );
        }
        return Ok(false);
    }
    if told_generation.saturating_sub(position.generation) > GENERATION_LEAP_MAX || told_generation >= GENERATION_MAX {
        return Ok(nonsense(vantage, wire_epoch));
    }
    let why = WentBack {
        kind: Kind::WentBack,
        told_by: vantage.to_owned(),
        above: told_generation,
        seen_at: None,
        observations: None,
        detail: format!(
            "{vantage} was told generation {told_generation}, epoch {told_epoch}; found: generation {}, epoch {}",
            position.generation, position.epoch
        ),
        reason: format!(
            "the database went back (restored from a backup?): {vantage} was told a higher epoch than it knows"
        ),
    };
    record(connection, found, &why).await?;
    look_now(app, connection).await?;
    Ok(true)
}

fn nonsense(vantage: &str, wire_epoch: u64) -> bool {
    tracing::warn!(vantage, wire_epoch, "an agent says that it was told an epoch which nobody can have told it");
    false
}

async fn record(connection: &mut PgConnection, found: &Found, why: &WentBack) -> Result<(), StoreError> {
    if store::went_back(connection, found, why).await? {
        tracing::error!(
            told_by = why.told_by,
            detail = why.detail,
            reason = why.reason,
            "every write is frozen until somebody has looked: parallax failover thaw --reason TEXT"
        );
    }
    Ok(())
}

/// Looks every few seconds, and once more at the end.
pub async fn run(app: Arc<App>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = shutdown.cancelled() => {}
        }
        let looked = word(async { look_now(&app, &mut *app.pool.acquire().await?).await });
        if let Err(error) = looked.await {
            tracing::debug!(%error, "cannot look how far the database is");
        }
        if shutdown.is_cancelled() {
            return;
        }
    }
}

/// A time as a banner says it.
fn minute(at: parallax_decide::time::Timestamp) -> String {
    let at = crate::store::offset(at);
    format!("{} {:02}:{:02} UTC", at.date(), at.hour(), at.minute())
}
