//! Story 2: node fi dies; its record moves to a node that is proven alive, and back.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::chaos::Moment;
use super::report::Report;
use super::rows;
use super::stage::Stage;
use crate::clock::now;
use crate::lab::atlas::{Place, VANTAGES, node};
use crate::lab::certs::host_name;
use crate::lab::look::{LookOptions, Seen};

/// The finding's word.
pub const KIND: &str = "node_dead_everywhere";
/// The node that dies; also the name of its service.
pub const NODE: &str = "fi";

const VERDICT_WITHIN: Duration = Duration::from_secs(40);
const REPOINT_WITHIN: Duration = Duration::from_secs(60);
const RETURN_WITHIN: Duration = Duration::from_secs(150);

/// Plays it and returns the incident's number.
///
/// # Errors
/// Something expected is not seen in time.
pub async fn play(stage: &mut Stage<'_>, report: &mut Report) -> Result<i64> {
    let (native, fallback) = (node(NODE)?.address, node(node(NODE)?.fallbacks[0])?);
    let host = host_name(NODE);
    let fault_at = rows::clock(&stage.pool).await?;
    let fault = now();
    stage.world.darken_node(NODE).await?;
    stage
        .timeline
        .event("*", &format!("FAULT: node {NODE} ({native}) is dark: whatever it is sent, nothing comes back"));
    stage.moment(Moment::NodeDark).await?;

    let look = async |s: &mut Stage<'_>| {
        let found = rows::subjects_with(&s.pool, "node", KIND, None, fault_at).await?;
        Ok(found.into_iter().find(|subject| subject.trim_start_matches("node:") == NODE))
    };
    let (_, seconds) = stage.until("the verdict node_dead_everywhere", fault, VERDICT_WITHIN, look).await?;
    stage.timeline.event("#", &format!("node {NODE}: {KIND}, by quorum   {seconds:.1} s after its death"));
    stage.moment(Moment::NodeDead).await?;
    let look = async |s: &mut Stage<'_>| rows::incident(&s.pool, KIND, fault_at).await;
    let (incident, _) = stage.until("the incident", fault, REPOINT_WITHIN, look).await?;
    stage.timeline.event("#", &format!("INCIDENT {}: {KIND}: {}", incident.id, incident.members.join(", ")));

    // The authority itself is asked: a row that says so is not enough for the record.
    let look = async |s: &mut Stage<'_>| {
        let served = ask_authority(s, &host).await?;
        let plan = rows::plans(&s.pool, incident.id, "remedy").await?.into_iter().find(|p| p.applied);
        Ok(plan.filter(|_| served == [fallback.address]))
    };
    let (plan, seconds) = stage.until("the record moved to the fallback", fault, REPOINT_WITHIN, look).await?;
    report.repoint_applied_s = Some(seconds);
    stage.timeline.event(
        "+",
        &format!(
            "plan {}: {host} {native} -> {} ({}) on the authority   {seconds:.1} s after its death",
            plan.id, fallback.address, fallback.name
        ),
    );
    stage.moment(Moment::Repointed).await?;

    let look = async |s: &mut Stage<'_>| {
        let plan = rows::plans(&s.pool, incident.id, "remedy").await?.into_iter().find(|p| p.verified);
        Ok(plan.filter(|p| VANTAGES.iter().all(|v| p.proofs.iter().any(|proof| proof == v.name()))))
    };
    let (_, seconds) =
        stage.until("each vantage's own resolver serving the fallback", fault, REPOINT_WITHIN, look).await?;
    report.repoint_seen_everywhere_s = Some(seconds);
    stage.timeline.event(
        "+",
        &format!(
            "every vantage's own resolver serves {}, and it connects   {seconds:.1} s after its death",
            fallback.address
        ),
    );

    let healed = now();
    stage.world.light_node(NODE).await?;
    stage
        .timeline
        .event("*", &format!("HEALED: node {NODE} answers again (return after 3 good rounds and a dwell of 20 s)"));
    stage.moment(Moment::NodeBack).await?;
    let look = async |s: &mut Stage<'_>| {
        let served = ask_authority(s, &host).await?;
        let plan = rows::plans(&s.pool, incident.id, "return").await?.into_iter().find(|p| p.applied);
        Ok(plan.filter(|_| served == [native]))
    };
    let (plan, seconds) = stage.until("the record back on the native node", healed, RETURN_WITHIN, look).await?;
    report.return_applied_s = Some(seconds);
    stage
        .timeline
        .event("+", &format!("plan {}: {host} back to {native}   {seconds:.1} s after its recovery", plan.id));
    let look = async |s: &mut Stage<'_>| {
        let proven = rows::plans(&s.pool, incident.id, "return").await?.into_iter().any(|p| p.verified);
        let closed = rows::is_closed(&s.pool, incident.id).await?;
        Ok((proven && closed).then_some(()))
    };
    stage.until("the return proven and the incident closed", healed, RETURN_WITHIN, look).await?;
    stage.timeline.event("=", &format!("return proven everywhere, incident {} closed", incident.id));
    Ok(incident.id)
}

async fn ask_authority(stage: &Stage<'_>, host: &str) -> Result<Vec<Ipv4Addr>> {
    let authority = stage.world.ground.layout.authority();
    let options = LookOptions { ask: vec![format!("{authority}/{host}")], ..LookOptions::default() };
    match stage.world.look(Place::Hq, &options).await?.into_iter().next().context("no look was made")? {
        Seen::Answer(addresses) => Ok(addresses),
        other @ (Seen::Connected | Seen::Silent | Seen::Failed(_)) => bail!("{host} at the authority: {other:?}"),
    }
}
