//! P3: processor time of a TCP and of a DNS probe, with everything that belongs to it: schedule, spool, encoding, stream.

use std::time::Duration;

use anyhow::{Context, Result};
use parallax_proto::v1::observation::Fact;
use tokio::time::sleep;

use super::agent::Agent;
use super::assignment;
use super::coordinator::{Coordinator, Row};
use super::figure::Figure;
use super::peers::{self, Blackbox, Module, Zabbix, per_thousand};
use super::proc;
use super::sitting::Sitting;
use super::targets::Targets;
use crate::clock;

/// Runs of everybody.
const RUNS: usize = 3;
/// After a new assignment, before the first run.
const SETTLE: Duration = Duration::from_secs(4);
/// Unit of all runs.
const UNIT: &str = "CPU s/1000";
/// Share of probes that may be something else than a success before a run counts for nothing. A busy machine's name
/// server loses some; they cost more than the others and stay in.
const FAILED_MAX: f64 = 0.05;

/// What one kind of probe cost.
struct Cost {
    runs: Vec<f64>,
    rate: f64,
    /// Probes that the agent itself says it did not make.
    missed: u64,
    /// Probes that did not succeed.
    failed: usize,
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
    let slow = measure(&coordinator, &mut agent, window, is_connection).await.context("TCP probes of the agent")?;
    coordinator.assign(assignment::tcp_wide(targets));
    let tcp = measure(&coordinator, &mut agent, window, is_connection).await.context("TCP probes of the agent")?;
    coordinator.assign(assignment::dns_alone(targets));
    let dns = measure(&coordinator, &mut agent, window, is_resolution).await.context("DNS probes of the agent")?;
    agent.stop().await?;

    let blackbox = told("blackbox_exporter", with_blackbox(sitting).await);
    let zabbix = told("zabbix_agent2", with_zabbix(sitting).await);
    let floor_tcp = floor(sitting, peers::floor_tcp)?;
    let floor_dns = floor(sitting, peers::floor_dns)?;

    let shape = |cost: &Cost, what: &str| {
        format!(
            "one-second grids, {:.0} {what}/s, spool, encoding and stream included; {} probes missed, {} failed",
            cost.rate, cost.missed, cost.failed
        )
    };
    let slow_note = shape(&slow, "TCP probes") + "; what the agent does once a second weighs most here";
    let tcp_note = shape(&tcp, "TCP probes") + "; a question to each eight of them is in it and not subtracted";
    let dns_note = shape(&dns, "questions") + "; a TCP probe to each ten questions is in it and not subtracted";
    Ok(vec![
        Figure::of_runs("P3.tcp_slow_cpu", UNIT, slow.runs, None).note(&slow_note),
        Figure::of_runs("P3.tcp_cpu", UNIT, tcp.runs.clone(), None).note(&tcp_note),
        Figure::ratio("P3.tcp", &tcp.runs, "blackbox", blackbox.tcp.as_deref(), UNIT, Some(1.0 / 6.0)),
        Figure::ratio("P3.tcp_zabbix", &tcp.runs, "zabbix2", zabbix.tcp.as_deref(), UNIT, Some(0.5)),
        Figure::ratio("P3.tcp_floor", &tcp.runs, "floor", Some(&floor_tcp), UNIT, Some(2.5)),
        Figure::of_runs("P3.dns_cpu", UNIT, dns.runs.clone(), None).note(&dns_note),
        Figure::ratio("P3.dns", &dns.runs, "blackbox", blackbox.dns.as_deref(), UNIT, Some(1.0 / 8.0)),
        Figure::ratio("P3.dns_zabbix", &dns.runs, "zabbix2", zabbix.dns.as_deref(), UNIT, Some(0.5)),
        Figure::ratio("P3.dns_floor", &dns.runs, "floor", Some(&floor_dns), UNIT, Some(4.0)),
    ])
}

/// What a peer's probes cost, where it can make them.
#[derive(Default)]
struct Theirs {
    tcp: Option<Vec<f64>>,
    dns: Option<Vec<f64>>,
}

/// A peer that breaks down is as good as missing, and costs none of our figures.
fn told(peer: &str, theirs: Result<Theirs>) -> Theirs {
    theirs.unwrap_or_else(|error| {
        eprintln!("bench: {peer} could not be measured: {error:#}");
        Theirs::default()
    })
}

async fn with_blackbox(sitting: &Sitting) -> Result<Theirs> {
    let Some(blackbox) = Blackbox::start(sitting.directory()).await? else { return Ok(Theirs::default()) };
    let tcp = blackbox.runs(&Blackbox::path_at(Module::Tcp, sitting.targets.tcp), RUNS).await?;
    let dns = blackbox.runs(&Blackbox::path_at(Module::Dns, sitting.targets.dns), RUNS).await?;
    blackbox.stop().await?;
    Ok(Theirs { tcp: Some(tcp), dns: Some(dns) })
}

async fn with_zabbix(sitting: &Sitting) -> Result<Theirs> {
    let Some(zabbix) = Zabbix::start(sitting.directory()).await? else { return Ok(Theirs::default()) };
    let tcp = zabbix.runs(&Zabbix::tcp_key(sitting.targets.tcp), RUNS).await?;
    let dns = match sitting.targets.dns_53 {
        Some(at) => Some(zabbix.runs(&Zabbix::dns_key(at), RUNS).await?),
        None => None,
    };
    zabbix.stop().await?;
    Ok(Theirs { tcp: Some(tcp), dns })
}

/// In a thread of its own: its CPU time is the thread's.
fn floor(sitting: &Sitting, run: fn(&Targets, usize) -> Result<Vec<f64>>) -> Result<Vec<f64>> {
    // The accepting side of the TCP target runs on the other worker meanwhile.
    tokio::task::block_in_place(|| run(&sitting.targets, RUNS))
}

async fn measure(
    coordinator: &Coordinator,
    agent: &mut Agent,
    window: Duration,
    counts: impl Fn(&Fact) -> bool,
) -> Result<Cost> {
    sleep(SETTLE).await;
    let (mut runs, mut rate, mut missed, mut failures) = (Vec::new(), 0.0, 0, 0);
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
            rows.iter().find(|row| !row.works() && !row.is_about_the_agent())
        );
        failures += failed;
        missed += rows.iter().map(Row::missed).sum::<u64>();
        runs.push(per_thousand(spent, all));
        rate = share(all, 1) / start.elapsed().as_secs_f64();
    }
    Ok(Cost { runs, rate, missed, failed: failures })
}

#[expect(clippy::cast_precision_loss, reason = "some thousand rows")]
fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}
