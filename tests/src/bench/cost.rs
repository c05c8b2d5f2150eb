//! P3: processor time of a TCP and of a DNS probe, with everything that belongs to it: schedule, spool, encoding, stream.

use std::time::Duration;

use anyhow::{Context, Result};
use parallax_proto::v1::observation::Fact;
use tokio::time::sleep;

use super::assignment;
use super::figure::Figure;
use super::peers::{self, Blackbox, Module, Zabbix, per_thousand};
use super::proc;
use super::sitting::Sitting;
use crate::clock;

/// Runs of everybody.
const RUNS: usize = 3;
/// After a new assignment, before the first run.
const SETTLE: Duration = Duration::from_secs(4);
/// Unit of all runs.
const UNIT: &str = "CPU s/1000";
/// Share of rows that may be something else than a success before a run counts for nothing.
const FAILED_MAX: f64 = 0.01;

/// What one kind of probe cost.
struct Cost {
    runs: Vec<f64>,
    rate: f64,
}

/// The figures.
///
/// # Errors
/// The agent or a peer breaks down, or probes fail that must succeed.
pub async fn figures(sitting: &Sitting, window: Duration) -> Result<Vec<Figure>> {
    let targets = &sitting.targets;
    let (coordinator, mut agent) = sitting.agent("cost", assignment::tcp_alone(targets)).await?;
    let is_connection = |fact: &Fact| matches!(fact, Fact::Connection(_));
    let is_resolution = |fact: &Fact| matches!(fact, Fact::Resolution(_));
    let tcp = measure(&coordinator, &mut agent, window, is_connection).await.context("TCP probes of the agent")?;
    coordinator.assign(assignment::dns_alone(targets));
    let dns = measure(&coordinator, &mut agent, window, is_resolution).await.context("DNS probes of the agent")?;
    agent.stop().await?;

    let (mut blackbox_tcp, mut blackbox_dns) = (None, None);
    if let Some(blackbox) = Blackbox::start(sitting.directory()).await? {
        blackbox_tcp = Some(blackbox.runs(&Blackbox::path_at(Module::Tcp, targets.tcp), RUNS).await?);
        blackbox_dns = Some(blackbox.runs(&Blackbox::path_at(Module::Dns, targets.dns), RUNS).await?);
        blackbox.stop().await?;
    }
    let (mut zabbix_tcp, mut zabbix_dns) = (None, None);
    if let Some(zabbix) = Zabbix::start(sitting.directory()).await? {
        zabbix_tcp = Some(zabbix.runs(&Zabbix::tcp_key(targets.tcp), RUNS).await?);
        if let Some(at) = targets.dns_53 {
            zabbix_dns = Some(zabbix.runs(&Zabbix::dns_key(at), RUNS).await?);
        }
        zabbix.stop().await?;
    }
    let floor_tcp = floor(sitting, peers::floor_tcp)?;
    let floor_dns = floor(sitting, peers::floor_dns)?;

    let shape = |cost: &Cost, what: &str| {
        format!("one-second grids, {:.0} {what}/s, spool, encoding and stream included", cost.rate)
    };
    let tcp_note = shape(&tcp, "TCP probes");
    let dns_note = shape(&dns, "questions") + "; one TCP probe to each ten questions is in it and not subtracted";
    Ok(vec![
        Figure::of_runs("P3.tcp_cpu", UNIT, tcp.runs.clone(), None).note(&tcp_note),
        Figure::ratio("P3.tcp", &tcp.runs, "blackbox", blackbox_tcp.as_deref(), UNIT, Some(1.0 / 6.0)),
        Figure::ratio("P3.tcp_zabbix", &tcp.runs, "zabbix2", zabbix_tcp.as_deref(), UNIT, Some(0.5)),
        Figure::ratio("P3.tcp_floor", &tcp.runs, "floor", Some(&floor_tcp), UNIT, Some(2.5)),
        Figure::of_runs("P3.dns_cpu", UNIT, dns.runs.clone(), None).note(&dns_note),
        Figure::ratio("P3.dns", &dns.runs, "blackbox", blackbox_dns.as_deref(), UNIT, Some(1.0 / 8.0)),
        Figure::ratio("P3.dns_zabbix", &dns.runs, "zabbix2", zabbix_dns.as_deref(), UNIT, Some(0.5)),
        Figure::ratio("P3.dns_floor", &dns.runs, "floor", Some(&floor_dns), UNIT, Some(4.0)),
    ])
}

/// In a thread of its own: its CPU time is the thread's.
fn floor(sitting: &Sitting, run: fn(&super::targets::Targets, usize) -> Result<Vec<f64>>) -> Result<Vec<f64>> {
    // The accepting side of the TCP target runs on the other worker meanwhile.
    tokio::task::block_in_place(|| run(&sitting.targets, RUNS))
}

async fn measure(
    coordinator: &super::coordinator::Coordinator,
    agent: &mut super::agent::Agent,
    window: Duration,
    counts: impl Fn(&Fact) -> bool,
) -> Result<Cost> {
    sleep(SETTLE).await;
    let (mut runs, mut rate) = (Vec::new(), 0.0);
    for _ in 0..RUNS {
        let (from, start) = (coordinator.seen().rows.len(), clock::now());
        let before = proc::cpu_s(agent.pid()?)?;
        sleep(window).await;
        let spent = proc::cpu_s(agent.pid()?)? - before;
        let seen = coordinator.seen();
        let rows = seen.rows.get(from..).unwrap_or_default();
        let counted = rows.iter().filter(|row| row.observation.fact.as_ref().is_some_and(&counts));
        let (all, failed) = counted.fold((0, 0), |(all, failed), row| (all + 1, failed + usize::from(!row.works())));
        anyhow::ensure!(all > 0, "no rows came within {window:?}; its log says:\n{}", agent.log_tail());
        anyhow::ensure!(
            share(failed, all) <= FAILED_MAX,
            "{failed} of {all} probes did not succeed, such as {:?}",
            rows.iter().find(|row| !row.works())
        );
        runs.push(per_thousand(spent, all));
        rate = share(all, 1) / start.elapsed().as_secs_f64();
    }
    Ok(Cost { runs, rate })
}

#[expect(clippy::cast_precision_loss, reason = "some thousand rows")]
fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}
