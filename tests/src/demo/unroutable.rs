//! Story 1: the branch is handed genuine answers that have no path from there.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::chaos::Moment;
use super::report::Report;
use super::rows::{self, Plan};
use super::stage::Stage;
use crate::clock::now;
use crate::lab::atlas::{Place, is_lost_at_branch};
use crate::lab::configuration::RESOLVERS;
use crate::lab::faults::handed;
use crate::lab::look::{LookOptions, Seen};

/// The finding's word.
pub const KIND: &str = "answer_unroutable_here";

const VERDICT_WITHIN: Duration = Duration::from_secs(40);
const PIN_WITHIN: Duration = Duration::from_secs(60);
const HEAL_WITHIN: Duration = Duration::from_secs(90);

/// Plays it and returns the incident's number.
///
/// # Errors
/// Something expected is not seen in time.
pub async fn play(stage: &mut Stage<'_>, report: &mut Report) -> Result<i64> {
    let branch = Place::Branch.name();
    let names: Vec<&str> = handed().collect();
    let fault_at = rows::clock(&stage.pool).await?;
    let fault = now();
    stage.world.hand_branch_the_pair().await?;
    stage.timeline.event("*", &format!("FAULT: every resolver now hands {branch} addresses without a path from there"));
    stage.moment(Moment::PairHanded).await?;

    let look = async |s: &mut Stage<'_>| {
        let found = rows::subjects_with(&s.pool, "answer", KIND, Some(branch), fault_at).await?;
        Ok((!found.is_empty()).then_some(found))
    };
    let (found, seconds) = stage.until("the verdict answer_unroutable_here", fault, VERDICT_WITHIN, look).await?;
    report.unroutable_verdict_s = Some(seconds);
    stage.timeline.event("#", &format!("{branch}  {}  {KIND}   {seconds:.1} s after the fault", found.join(", ")));
    stage.moment(Moment::Unroutable).await?;

    let look = async |s: &mut Stage<'_>| {
        let incident = rows::incident(&s.pool, KIND, fault_at).await?;
        Ok(incident.filter(|i| names.iter().all(|n| i.members.iter().any(|m| m == n))))
    };
    let (incident, _) = stage.until("the incident with both names", fault, PIN_WITHIN, look).await?;
    let members = incident.members.join(", ");
    stage.timeline.event("#", &format!("INCIDENT {}: {KIND}, only from {branch}: {members}", incident.id));
    // One witness is enough for the finding; the other may come later, above all where the asker was killed in between.
    let look = async |s: &mut Stage<'_>| {
        let from = rows::reached_from(&s.pool, incident.id, names[0]).await?;
        Ok((from.len() == 2).then_some(from))
    };
    let (from, _) = stage.until("both other vantages as witnesses in the finding", fault, PIN_WITHIN, look).await?;
    stage.timeline.more(&format!("{} reach these same addresses: it is the path, not the address", from.join(" and ")));
    show_no_resolver_helps(stage, names[0], fault, fault_at).await?;

    let look = async |s: &mut Stage<'_>| Ok(all_proven(rows::plans(&s.pool, incident.id, "remedy").await?, &names));
    let (pins, seconds) = stage.until("every name pinned and proven", fault, PIN_WITHIN, look).await?;
    report.pin_proven_s = Some(seconds);
    for pin in &pins {
        let served = ask_branch(stage, &pin.subject).await?;
        if served.is_empty() || served.iter().any(|a| is_lost_at_branch(*a)) {
            bail!("{branch}'s resolver serves {served:?} for {} although plan {} is verified", pin.subject, pin.id);
        }
        let served: Vec<String> = served.iter().map(ToString::to_string).collect();
        stage.timeline.event(
            "+",
            &format!(
                "plan {}: {} pinned to {}, proven through {branch}'s own resolver",
                pin.id,
                pin.subject,
                served.join(" ")
            ),
        );
    }
    stage.timeline.more(&format!("all pins proven {seconds:.1} s after the fault"));
    stage.moment(Moment::Pinned).await?;

    let healed = now();
    stage.world.hand_branch_native_answers().await?;
    stage.timeline.event("*", &format!("HEALED: {branch} is handed its native answers again"));
    stage.moment(Moment::NativeBack).await?;
    let look = async |s: &mut Stage<'_>| Ok(all_proven(rows::plans(&s.pool, incident.id, "return").await?, &names));
    let (returns, seconds) = stage.until("every pin removed and that proven", healed, HEAL_WITHIN, look).await?;
    report.unpin_proven_s = Some(seconds);
    let plans: Vec<String> = returns.iter().map(|p| p.id.to_string()).collect();
    stage.timeline.event(
        "+",
        &format!(
            "plans {}: pins removed, native answers proven   {seconds:.1} s after they came back",
            plans.join(", ")
        ),
    );
    let look = async |s: &mut Stage<'_>| Ok(rows::is_closed(&s.pool, incident.id).await?.then_some(()));
    stage.until("the incident closed", healed, HEAL_WITHIN, look).await?;
    stage.timeline.event("=", &format!("incident {} closed", incident.id));
    Ok(incident.id)
}

/// The question of the field case: would another resolver help? Rows must say no, for each resolver.
async fn show_no_resolver_helps(
    stage: &mut Stage<'_>,
    name: &str,
    fault: std::time::Instant,
    fault_at: f64,
) -> Result<()> {
    let branch = Place::Branch.name();
    let look = async |s: &mut Stage<'_>| {
        let answers = rows::answers(&s.pool, branch, name, fault_at).await?;
        let lost =
            |all: &[IpAddr]| !all.is_empty() && all.iter().all(|a| matches!(a, IpAddr::V4(a) if is_lost_at_branch(*a)));
        // Not the last one of each: the live resolver may serve the pin by now.
        let of = |resolver: &str| answers.iter().find(|(other, all)| other == resolver && lost(all)).cloned();
        Ok(RESOLVERS.iter().map(|resolver| of(resolver)).collect::<Option<BTreeMap<_, _>>>())
    };
    let (answers, _) = stage.until("an unroutable answer from every resolver", fault, PIN_WITHIN, look).await?;
    stage.timeline.more(&format!(
        "{0} of {0} resolvers hand {branch} addresses without a path, so a switch would not help:",
        answers.len()
    ));
    for (resolver, addresses) in answers {
        let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        stage.timeline.more(&format!("  {resolver:<14} {}", all.join(" ")));
    }
    Ok(())
}

/// The plans, when each name has one that was proven.
fn all_proven(plans: Vec<Plan>, names: &[&str]) -> Option<Vec<Plan>> {
    let proven: Vec<Plan> = plans.into_iter().filter(|p| p.verified && !p.proofs.is_empty()).collect();
    names.iter().all(|name| proven.iter().any(|p| p.subject == *name)).then_some(proven)
}

/// What the branch's own resolver serves, asked by us.
async fn ask_branch(stage: &Stage<'_>, name: &str) -> Result<Vec<std::net::Ipv4Addr>> {
    let live = stage.world.ground.layout.live(Place::Branch);
    let options = LookOptions { ask: vec![format!("{live}/{name}")], ..LookOptions::default() };
    match stage.world.look(Place::Branch, &options).await?.into_iter().next().context("no look was made")? {
        Seen::Answer(addresses) => Ok(addresses),
        other @ (Seen::Connected | Seen::Silent | Seen::Failed(_)) => bail!("{name} at the branch: {other:?}"),
    }
}
