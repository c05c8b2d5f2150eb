//! P1 and P2: what the agent holds in memory at its ordinary work, and what a hung probe adds.

use std::time::Duration;

use anyhow::{Context, Result};
use parallax_proto::v1;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use super::assignment::{self, NAMES, ROUND_MS};
use super::figure::{Figure, median};
use super::peers::{Blackbox, Module};
use super::proc::{self, Memory};
use super::sitting::Sitting;
use super::targets::{HUNG, Targets};
use crate::clock;

/// Probes hung at once.
const HUNG_AT_ONCE: usize = 500;
/// How long they may take to hang.
const HANG_MAX: Duration = Duration::from_secs(6);
/// Between two looks at the memory.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The agent is quiet this long before its memory counts as at rest.
const REST: Duration = Duration::from_secs(5);

/// P1: memory after `work` of the ordinary work, beside blackbox_exporter after the same work.
///
/// # Errors
/// The agent or the peer breaks down.
pub async fn at_work(sitting: &Sitting, work: Duration) -> Result<Vec<Figure>> {
    let (coordinator, mut agent) = sitting.agent("memory", assignment::ordinary(&sitting.targets, ROUND_MS)).await?;
    let blackbox = Blackbox::start(sitting.directory()).await?;
    let (worked, driven) = tokio::join!(
        async {
            let mut looks = Vec::new();
            let end = clock::now() + work;
            while clock::now() < end {
                sleep(LOOK_EVERY).await;
                looks.push(proc::memory(agent.pid()?)?);
            }
            Ok::<_, anyhow::Error>(looks)
        },
        async {
            match &blackbox {
                Some(blackbox) => drive(blackbox, &sitting.targets, work).await.map(Some),
                None => Ok(None),
            }
        }
    );
    let (looks, theirs) = (worked?, driven?);
    let last = looks.last().context("no look at the agent's memory")?;
    let failed = coordinator.seen().rows.iter().filter(|row| !row.works()).count();
    let rows = coordinator.seen().rows.len();
    anyhow::ensure!(rows > 0, "the agent sent nothing; its log says:\n{}", agent.log_tail());
    agent.stop().await?;
    if let Some(blackbox) = blackbox {
        blackbox.stop().await?;
    }
    let resident: Vec<f64> = looks.iter().map(|memory| mib(memory.rss)).collect();
    let note = format!(
        "median of {} looks while at work; at the end {:.2} resident, {:.2} proportional, {:.2} anonymous, peak {:.2}; {rows} rows, {failed} of them no success",
        looks.len(),
        mib(last.rss),
        mib(last.pss),
        mib(last.anonymous),
        mib(last.peak),
    );
    let ours = median(&resident).context("no look at the agent's memory")?;
    let theirs: Option<Vec<f64>> = theirs.map(|memory| vec![mib(memory.rss)]);
    Ok(vec![
        Figure { runs: Vec::new(), ..Figure::of_runs("P1.rss", "MiB", resident, Some(7.0)) }.note(&note),
        Figure::ratio("P1.ratio", &[ours], "blackbox", theirs.as_deref(), "MiB", Some(1.0 / 3.0)),
    ])
}

/// Gives blackbox_exporter the same work, evenly spread over each round as Prometheus spreads its scrapes; its memory
/// at the end.
async fn drive(blackbox: &Blackbox, targets: &Targets, work: Duration) -> Result<Memory> {
    let mut client = blackbox.client().await?;
    let one = [
        Blackbox::path_at(Module::Dns, targets.dns),
        Blackbox::path_at(Module::DnsV6, targets.dns),
        Blackbox::path_at(Module::Dns, targets.dns),
        Blackbox::path_at(Module::DnsV6, targets.dns),
        Blackbox::path_at(Module::DnsTcp, targets.dns),
        Blackbox::path_at(Module::DnsTcp, targets.dns),
        Blackbox::path_at(Module::DnsTls, targets.dot),
        Blackbox::path_at(Module::DnsTls, targets.dot),
        Blackbox::path(Module::Https, &doh_question(targets)),
        Blackbox::path(Module::Https, &doh_question(targets)),
        Blackbox::path_at(Module::Tls, targets.tls),
    ];
    let step = Duration::from_millis(u64::from(ROUND_MS)) / u32::try_from(NAMES * one.len())?;
    let (mut next, end) = (tokio::time::Instant::from_std(clock::now()), clock::now() + work);
    for path in one.iter().cycle() {
        if clock::now() >= end {
            break;
        }
        anyhow::ensure!(client.probe(path).await?, "blackbox_exporter says that {path} failed");
        next += step;
        sleep_until(next).await;
    }
    proc::memory(blackbox.pid()?)
}

/// A GET of DNS over HTTPS, escaped for a query string.
fn doh_question(targets: &Targets) -> String {
    // "a.canary.test A", base64url (RFC 8484, 4.1).
    let question = "AAABAAABAAAAAAAAAWEGY2FuYXJ5BHRlc3QAAAEAAQ";
    format!("https%3A%2F%2F{}%2Fdns-query%3Fdns%3D{question}", targets.doh)
}

/// P2: memory that each hung probe adds, connections and questions apart, beside blackbox_exporter's.
///
/// # Errors
/// The agent or the peer breaks down.
pub async fn hung(sitting: &Sitting) -> Result<Vec<Figure>> {
    let connections =
        hang(sitting, "hung-tcp", assignment::hung_connections(&sitting.targets), proc::connecting).await?;
    let questions =
        hang(sitting, "hung-udp", assignment::hung_questions(&sitting.targets), |pid| Ok(proc::sockets(pid)?.len()))
            .await?;
    let theirs = hang_blackbox(sitting).await?;
    let mut figures = Vec::new();
    for (name, hang) in [("tcp", &connections), ("udp", &questions)] {
        let each = hang.each_kib();
        let note = format!(
            "{} hung at once; resident {:.2} MiB at rest, {:.2} MiB while hung{}",
            hang.count,
            mib(hang.rest.rss),
            mib(hang.hung.rss),
            if hang.count < HUNG_AT_ONCE { ": the agent's own limit in flight lets no more hang" } else { "" },
        );
        figures.push(Figure::new(&format!("P2.{name}_kib"), "KiB/probe", Some(each), None).note(&note));
        let base = theirs.as_ref().map(|theirs| vec![theirs.each_kib()]);
        figures.push(Figure::ratio(
            &format!("P2.{name}"),
            &[each],
            "blackbox",
            base.as_deref(),
            "KiB/probe",
            Some(0.1),
        ));
    }
    Ok(figures)
}

/// Memory at rest and while so many probes hang.
struct Hang {
    rest: Memory,
    hung: Memory,
    count: usize,
}

impl Hang {
    #[expect(clippy::cast_precision_loss, reason = "some thousand")]
    fn each_kib(&self) -> f64 {
        self.hung.rss.saturating_sub(self.rest.rss) as f64 / self.count.max(1) as f64
    }
}

async fn hang(
    sitting: &Sitting,
    name: &str,
    assignment: v1::Assignment,
    count: impl Fn(u32) -> Result<usize>,
) -> Result<Hang> {
    // The first round warms up what is allocated once; the next one, at an interval of its own, is the one that counts.
    let (coordinator, mut agent) = sitting.agent(name, assignment::tcp_alone(&sitting.targets)).await?;
    sleep(REST).await;
    coordinator.assign(assignment::empty());
    sleep(REST).await;
    let rest = proc::memory(agent.pid()?)?;
    let before = count(agent.pid()?)?;
    let offset = next_start(&assignment);
    coordinator.assign(offset);
    let end = clock::now() + HANG_MAX + START_IN;
    let mut most: Option<(usize, Memory)> = None;
    while clock::now() < end {
        sleep(LOOK_EVERY).await;
        let now_hung = count(agent.pid()?)?.saturating_sub(before);
        if most.is_none_or(|(count, _)| now_hung >= count) {
            most = Some((now_hung, proc::memory(agent.pid()?)?));
        }
    }
    agent.stop().await?;
    let (count, hung) = most.context("no look at the agent's memory")?;
    Ok(Hang { rest, hung, count })
}

/// How long from now a long grid comes round.
const START_IN: Duration = Duration::from_secs(2);

/// The same assignment with its place in the canaries' grid set so that the next round is [`START_IN`] from now.
fn next_start(assignment: &v1::Assignment) -> v1::Assignment {
    let mut assignment = assignment.clone();
    if let Some(schedule) = &mut assignment.schedule {
        let every = f64::from(schedule.canary_every_ms);
        let at = (clock::unix_ms() + START_IN.as_secs_f64() * 1000.0) % every;
        schedule.offset_permille = permille(at / every);
    }
    assignment
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1")]
fn permille(part: f64) -> u32 {
    ((part * 1000.0) as u32).min(999)
}

async fn hang_blackbox(sitting: &Sitting) -> Result<Option<Hang>> {
    let Some(blackbox) = Blackbox::start(sitting.directory()).await? else { return Ok(None) };
    // The same warm-up as ours: some hundred probes, then quiet.
    let mut client = blackbox.client().await?;
    for _ in 0..300 {
        client.probe(&Blackbox::path_at(Module::Tcp, sitting.targets.tcp)).await?;
    }
    sleep(REST).await;
    let rest = proc::memory(blackbox.pid()?)?;
    let mut hanging = JoinSet::new();
    for number in 0..HUNG_AT_ONCE {
        let mut client = blackbox.client().await?;
        let address = HUNG.get(number % HUNG.len()).context("an address that hangs")?;
        let path = Blackbox::path(Module::Hung, &format!("{address}:{}", sitting.targets.hung_port));
        hanging.spawn(async move { client.probe(&path).await });
    }
    sleep(Duration::from_secs(3)).await;
    let (hung, count) = (proc::memory(blackbox.pid()?)?, proc::connecting(blackbox.pid()?)?);
    hanging.abort_all();
    blackbox.stop().await?;
    Ok(Some(Hang { rest, hung, count }))
}

#[expect(clippy::cast_precision_loss, reason = "some megabytes")]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}
