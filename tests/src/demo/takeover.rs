//! Striking the coordinator that holds the lease, and how long it takes until another holds it.

use std::time::Duration;

use anyhow::{Context, Result};

use super::chaos::Stroke;
use super::stage::Stage;
use crate::clock::now;

/// How long the test itself waits for what must come: a busy machine is given time.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);

/// By the lease's own times, in seconds: from the last sign of life of the struck holder to the take-over. Issue and
/// target say 10 s; no clock of the test is part of it.
const TAKEOVER_MAX_S: f64 = 10.0;

/// How long the struck one stays away after that.
const AWAY_FOR: Duration = Duration::from_secs(2);

/// The lease, and the port for agents of the coordinator that holds it.
#[derive(Debug, Clone, sqlx::FromRow)]
struct Lease {
    epoch: i64,
    /// When it ends without renewal, seconds since 1970 by the database's clock: always its life after a sign of life.
    ends_s: f64,
    port: Option<String>,
}

/// Strikes the holder, waits for the take-over, and lets the struck one come back. Returns the seconds
/// from the stroke to the new epoch.
///
/// # Errors
/// Nobody holds the lease, nobody takes it over, or the struck one does not come back.
pub async fn strike(stage: &mut Stage<'_>, stroke: Stroke) -> Result<f64> {
    let look = async |stage: &mut Stage<'_>| Ok(lease(stage).await?.filter(|lease| lease.port.is_some()));
    let (before, _) = stage.until("a holder of the lease", now(), TAKEN_WITHIN, look).await?;
    let number = (0..stage.fleet.coordinators().count())
        .find(|number| before.port == Some(stage.world.ground.layout.grpc(*number).port().to_string()))
        .context("the lease is held by none of our coordinators")?;
    let stored_before = stored(stage).await?;
    let since = now();
    match stroke {
        Stroke::Killed => stage.fleet.coordinators().kill(number).await?,
        Stroke::Frozen => stage.fleet.coordinators().freeze(number, true)?,
        Stroke::Cut => stage.fleet.coordinators().cut(number, true)?,
    }
    let mut last = before.ends_s;
    let taken = loop {
        match lease(stage).await? {
            Some(now) if now.epoch > before.epoch => {
                let silent_s = now.ends_s - last;
                anyhow::ensure!(
                    silent_s <= TAKEOVER_MAX_S,
                    "by the lease's own times it was taken over {silent_s:.1} s after the holder's last sign of life"
                );
                break since.elapsed();
            }
            Some(now) => last = now.ends_s,
            None => {}
        }
        anyhow::ensure!(since.elapsed() < TAKEN_WITHIN, "nobody took the lease over within {TAKEN_WITHIN:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    stage.timeline.event("!", &format!("another coordinator runs the tasks after {:.1} s", taken.as_secs_f64()));
    tokio::time::sleep(AWAY_FOR).await;
    match stroke {
        Stroke::Killed => stage.fleet.coordinators().restart(&stage.world.ground, number).await?,
        Stroke::Frozen => stage.fleet.coordinators().freeze(number, false)?,
        Stroke::Cut => stage.fleet.coordinators().cut(number, false)?,
    }
    // The agents report all the time, and go on to do so at the other one.
    let flowing = async |stage: &mut Stage<'_>| Ok((stored(stage).await? > stored_before).then_some(()));
    stage.until("rows that go on to be stored", now(), TAKEN_WITHIN, flowing).await?;
    Ok(taken.as_secs_f64())
}

/// Kills the database's primary, makes its standby the primary, and waits for a coordinator to run the tasks
/// there. Returns the seconds from the kill to the new epoch.
///
/// # Errors
/// The standby does not become the primary, or no coordinator finds it.
pub async fn fail_over(stage: &mut Stage<'_>) -> Result<f64> {
    let look = async |stage: &mut Stage<'_>| Ok(lease(stage).await?.filter(|lease| lease.port.is_some()));
    let (before, _) = stage.until("a holder of the lease", now(), TAKEN_WITHIN, look).await?;
    let since = now();
    stage.fleet.coordinators().fail_over().await?;
    stage.pool = loop {
        match stage.fleet.database().await {
            Ok(pool) => break pool,
            Err(error) if since.elapsed() > TAKEN_WITHIN => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(250)).await,
        }
    };
    let look = async |stage: &mut Stage<'_>| Ok(lease(stage).await?.filter(|lease| lease.epoch > before.epoch));
    let (_, seconds) =
        stage.until("a coordinator that goes on with the new primary", since, TAKEN_WITHIN, look).await?;
    stage.timeline.event("!", &format!("the tasks go on with the new primary after {seconds:.1} s"));
    Ok(seconds)
}

/// Key of the newest row of the log.
async fn stored(stage: &Stage<'_>) -> Result<i64> {
    Ok(sqlx::query_scalar("select coalesce(max(id), 0) from observation").fetch_one(&stage.pool).await?)
}

async fn lease(stage: &Stage<'_>) -> Result<Option<Lease>> {
    Ok(sqlx::query_as(
        "select l.epoch, extract(epoch from l.expires_at)::float8 as ends_s, substring(c.name from '[0-9]+$') as port
         from lease l left join coordinator c on c.instance = l.holder where l.name = 'tasks'",
    )
    .fetch_optional(&stage.pool)
    .await?)
}
