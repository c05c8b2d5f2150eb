//! For tests: three vantages, their resolvers, three nodes and a DNS provider, on a moved clock. The
//! store, the hub and the engine are the real ones; agents and the provider are played.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use parallax_decide::names::VantageName;
use parallax_decide::observation::{
    Connection, ControlCheck, Fact, Family, Lane, Outcome, Purpose, Resolution, Target,
};
use parallax_decide::topology::ControlKind;
use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, Postgres};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::played::{Played, agent, provider};
use crate::clock::{Clock, monotonic};
use crate::config::Config;
use crate::hub::Work;
use crate::state::App;
use crate::store::log::{self, NewObservation, Stored};
use crate::store::vantage::{VantageId, ensure};
use crate::store::{StoreError, database_now, lease};
use crate::tasks::Term;
use crate::tasks::engine::Engine;
use crate::testing;

pub(super) const CONFIG: &str = r#"version: 1
policy: fast
vantages:
  - { name: branch-kazan, failure_domain: isp-rt, upstream: doh-cf, pin: { driver: pin, mode: act } }
  - { name: wan-gw, failure_domain: isp-hq, upstream: doh-cf }
  - { name: de-fra, failure_domain: isp-fra, upstream: doh-cf }
resolvers:
  - { name: live, kind: system, role: live }
  - { name: doh-cf, kind: doh, url: "https://cloudflare-dns.com/dns-query", bootstrap: [1.1.1.1], role: primary }
  - { name: doh-family, kind: doh, url: "https://family.cloudflare-dns.com/dns-query", bootstrap: [1.1.1.3], role: reserve, order: 1 }
canaries: [ { name: cdnjs.cloudflare.com, port: 443, tls: true } ]
controls:
  - { name: control-a, address: 1.0.0.1, port: 443, server_name: one.one.one.one }
  - { name: negative, address: 192.0.2.1, port: 443, negative: true }
nodes:
  fi: { address: 95.216.10.10, port: 443, server_name: fi.montana.quest }
  de: { address: 49.12.20.20, port: 443, server_name: fi.montana.quest }
  us: { address: 5.161.30.30, port: 443, server_name: fi.montana.quest }
services:
  - { name: fi, hostname: fi.montana.quest, ttl_s: 5, native: fi, fallbacks: [de, us], driver: auth, mode: act }
drivers:
  auth: { kind: rfc2136, mode: act, server: "198.18.0.53:53", zone: montana.quest, tsig_name: parallax, tsig_algorithm: hmac-sha256, tsig_secret_file: /nonexistent }
"#;

pub(super) const CANARY: &str = "cdnjs.cloudflare.com";
pub(super) const SERVICE: &str = "fi.montana.quest";
pub(super) const BRANCH: &str = "branch-kazan";
pub(super) const FI: &str = "95.216.10.10";
pub(super) const DE: &str = "49.12.20.20";
pub(super) const US: &str = "5.161.30.30";

const BOOT: Uuid = Uuid::from_u128(0xb007);

/// Virtual time between two looks of the engine.
const STEP: Duration = Duration::from_millis(500);

/// Steps of the engine at one moment before the world moves on.
const TICKS_MAX: usize = 40;

pub(super) struct World {
    pub(super) app: Arc<App>,
    pub(super) played: Arc<Mutex<Played>>,
    pub(super) engine: Option<Engine>,
    pub(super) epoch: i64,
    lease: Option<PoolConnection<Postgres>>,
    vantages: BTreeMap<VantageName, VantageId>,
    _agents: Vec<AbortOnDropHandle<()>>,
    sequence: i64,
    steps: u64,
    /// Kills the coordinator once in each state it gets into; true: after DNS was changed, before it
    /// hears of it.
    pub(super) kill: Option<bool>,
    killed_in: BTreeSet<String>,
    /// The store fails now and then.
    pub(super) failing: bool,
}

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

impl World {
    /// All is well; the engine has not looked yet.
    pub(super) async fn new() -> Self {
        Self::with("").await
    }

    /// The same, so long ago.
    pub(super) async fn begun_ago(ago: Duration) -> Self {
        Self::begun("", ago).await
    }

    /// The same with other settings of the policy.
    pub(super) async fn with(overrides: &str) -> Self {
        Self::begun(overrides, Duration::ZERO).await
    }

    /// The same, so long ago, with nobody who may pin, and its configuration stored.
    pub(super) async fn suffering(ago: Duration) -> Self {
        let world = Self::of(&CONFIG.replace(", pin: { driver: pin, mode: act }", ""), ago).await;
        crate::reload::start(&world.app).await.unwrap();
        let start = crate::store::offset(world.app.clock.now());
        world.execute(format!("update config_in_force set at = '{start}'")).await;
        world
    }

    async fn begun(overrides: &str, ago: Duration) -> Self {
        Self::of(&format!("{CONFIG}{overrides}"), ago).await
    }

    async fn of(config: &str, ago: Duration) -> Self {
        let config = Config::parse(config, "world").unwrap();
        let pool = testing::database().await;
        let mut connection = pool.acquire().await.unwrap();
        let vantages = ensure(&mut connection, config.topology.vantages.keys()).await.unwrap();
        let clock = Clock::manual(database_now(&mut connection).await.unwrap().minus(ago));
        drop(connection);
        let app = App::new(pool, config, clock, PathBuf::from("/nonexistent"));
        let played = Arc::new(Mutex::new(Played::well()));
        let mut agents = Vec::new();
        for vantage in vantages.keys() {
            agents.push(AbortOnDropHandle::new(agent(Arc::clone(&app), Arc::clone(&played), vantage.clone())));
        }
        let mut world = Self {
            app,
            played,
            engine: None,
            epoch: 0,
            lease: None,
            vantages,
            _agents: agents,
            sequence: 0,
            steps: 0,
            kill: None,
            killed_in: BTreeSet::new(),
            failing: false,
        };
        world.restart().await;
        world
    }

    pub(super) fn play(&self) -> MutexGuard<'_, Played> {
        self.played.lock().unwrap()
    }

    /// kill -9 and a new start.
    pub(super) async fn restart(&mut self) {
        self.engine = None;
        if let Some(lease) = self.lease.take() {
            lease.close().await.unwrap();
        }
        let (mut connection, epoch) = self.acquire().await;
        connection.close_on_drop();
        self.lease = Some(connection);
        self.epoch = epoch;
        self.engine = Some(self.new_engine(epoch));
    }

    /// Another holder of the lease.
    pub(super) async fn acquire(&self) -> (PoolConnection<Postgres>, i64) {
        loop {
            let mut connection = self.app.pool.acquire().await.unwrap();
            if let Some(epoch) = lease::acquire(&mut connection, Uuid::new_v4(), 0).await.unwrap() {
                return (connection, epoch);
            }
            drop(connection);
            tokio::task::yield_now().await;
        }
    }

    pub(super) fn new_engine(&self, epoch: i64) -> Engine {
        Engine::new(
            Arc::clone(&self.app),
            provider(&self.played),
            epoch,
            Term::from(monotonic() + Duration::from_secs(3600)),
        )
    }

    /// Lets the engine look, and hear of what it asked for, until nothing more happens.
    pub(super) async fn tick(&mut self) {
        for _ in 0..TICKS_MAX {
            let engine = self.engine.as_mut().unwrap();
            let again = match engine.tick().await {
                Ok(again) => again,
                Err(StoreError::Database(_)) if self.failing => false,
                Err(error) => panic!("{error}"),
            };
            if self.kill != Some(false) {
                engine.settle().await;
            }
            if self.kill.is_some() && self.killed_in.insert(self.state().await) {
                self.restart().await;
                continue;
            }
            let engine = self.engine.as_mut().unwrap();
            engine.settle().await;
            if !again && !engine.heard() {
                return;
            }
        }
    }

    /// Virtual seconds pass. Everybody measures once a second.
    pub(super) async fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds * 1000 / u64::try_from(STEP.as_millis()).unwrap() {
            self.step().await;
        }
    }

    /// Passes until this holds of the store, at most so many virtual seconds.
    pub(super) async fn until(&mut self, sql: &'static str, seconds: u64) {
        for _ in 0..seconds * 1000 / u64::try_from(STEP.as_millis()).unwrap() {
            if self.is(sql).await {
                return;
            }
            self.step().await;
        }
        assert!(self.is(sql).await, "not within {seconds} s: {sql}\n{}", self.journal().await);
    }

    async fn step(&mut self) {
        self.app.clock.advance(STEP);
        if self.steps.is_multiple_of(2) {
            self.measure().await;
        }
        self.steps += 1;
        self.tick().await;
    }

    pub(super) async fn execute(&self, sql: String) {
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&self.app.pool).await.unwrap();
    }

    pub(super) async fn is(&self, sql: &'static str) -> bool {
        sqlx::query_scalar(sql).fetch_one(&self.app.pool).await.unwrap()
    }

    pub(super) async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.app.pool).await.unwrap()
    }

    /// Where plans and incidents stand.
    pub(super) async fn state(&self) -> String {
        sqlx::query_scalar(
            "select coalesce((select string_agg(id || ':' || status || ':' || (select count(*) from plan_event e where e.plan_id = p.id and e.what in ('intent', 'uncertain', 'proof')), ' ' order by id) from plan p), '')
                 || coalesce((select string_agg(' ' || i.id || (closed_at is null), ' ' order by i.id) from incident i), '')",
        )
        .fetch_one(&self.app.pool)
        .await
        .unwrap()
    }

    /// What happened, for the reader of a failure.
    pub(super) async fn journal(&self) -> String {
        let rows: Vec<String> = sqlx::query_scalar(
            "select line from (
                 select at, 'incident ' || incident_id || ' ' || what || ' ' || left(detail::text, 300) as line, id from incident_event
                 union all select at, 'plan ' || plan_id || ' ' || what || ' ' || left(detail::text, 300), 1000000 + id from plan_event
             ) as a order by at, id",
        )
        .fetch_all(&self.app.pool)
        .await
        .unwrap();
        format!("{}\n{}\nwrites: {:?}", self.state().await, rows.join("\n"), self.play().writes)
    }

    /// One round of every vantage, stored as if it had just been received.
    pub(super) async fn measure(&mut self) {
        let mut facts = Vec::new();
        {
            let mut played = self.played.lock().unwrap();
            let topology = &self.app.config.load().topology;
            for (vantage, id) in &self.vantages {
                if !played.silent.contains(vantage.as_str()) {
                    facts.extend(round(topology, &mut played, vantage).into_iter().map(|fact| (*id, fact)));
                }
            }
            played.probes.retain(|_, left| *left > 0);
        }
        let new: Vec<(VantageId, NewObservation)> = facts
            .into_iter()
            .map(|(id, fact)| {
                let detail = serde_json::json!({});
                let age = Duration::ZERO;
                (
                    id,
                    NewObservation {
                        of_earlier_start: false,
                        late_after: Duration::from_secs(3600),
                        age,
                        purpose: Purpose::Scheduled,
                        task_id: None,
                        duration_us: 1,
                        fact,
                        detail,
                        lost_ago: None,
                    },
                )
            })
            .collect();
        let mut connection = self.app.pool.acquire().await.unwrap();
        self.store(&mut connection, &new).await.unwrap();
    }

    async fn store(
        &mut self,
        connection: &mut PgConnection,
        new: &[(VantageId, NewObservation)],
    ) -> Result<(), StoreError> {
        let mut stored = Vec::new();
        for (id, observation) in new {
            self.sequence += 1;
            stored.push(Stored {
                numbering: (*id, BOOT, Lane::Urgent),
                sequence: self.sequence,
                waited: Duration::ZERO,
                observation,
            });
        }
        let first = self.sequence - i64::try_from(stored.len()).unwrap();
        let mut transaction = sqlx::Connection::begin(connection).await?;
        let receipt = log::receipt(&mut transaction, stored.len()).await?;
        log::insert(&mut transaction, &receipt, &stored).await?;
        // The database stamps its own time; here time is the world's.
        sqlx::query("update observation set received_at = $1, observed_at = $1 where boot_id = $2 and sequence > $3")
            .bind(crate::store::offset(self.app.clock.now()))
            .bind(BOOT)
            .bind(first)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(())
    }
}

/// What a vantage measures in one round.
fn round(topology: &parallax_decide::topology::Topology, played: &mut Played, vantage: &VantageName) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut tried: BTreeSet<(Target, IpAddr)> = BTreeSet::new();
    for (control, kind) in &topology.controls {
        let works = kind.kind == ControlKind::Positive && !played.uplink_down.contains(vantage.as_str());
        let outcome = if works { Outcome::TlsOk } else { Outcome::Silent };
        facts.push(Fact::ControlCheck(ControlCheck { control: control.clone(), outcome }));
    }
    let mut asked: Vec<_> = topology
        .canaries
        .keys()
        .flat_map(|name| topology.resolvers.keys().map(move |resolver| (name.clone(), resolver.clone())))
        .collect();
    asked.push((SERVICE.parse().unwrap(), "live".parse().unwrap()));
    for (name, resolver) in asked {
        let addresses = played.answer(vantage.as_str(), name.as_str(), resolver.as_str());
        tried.extend(addresses.iter().map(|address| (Target::Name(name.clone()), *address)));
        let outcome = Outcome::Answered;
        facts.push(Fact::Resolution(Resolution { name, resolver, family: Family::V4, outcome, addresses, ttl_s: 5 }));
    }
    tried.extend(topology.nodes.iter().map(|(name, node)| (Target::Node(name.clone()), node.address)));
    for ((who, work), left) in &mut played.probes {
        if who == vantage && *left > 0 {
            *left -= 1;
            tried.insert(work.clone());
        }
    }
    for (target, address) in tried {
        let works = played.works(vantage.as_str(), &target, address);
        let outcome = if works { Outcome::TlsOk } else { Outcome::Silent };
        let attempts_connected = u16::from(works);
        facts.push(Fact::Connection(Connection {
            target,
            address,
            port: 443,
            outcome,
            attempts: 2,
            attempts_connected,
        }));
    }
    facts
}

/// What a task asks for, as far as the world plays it: verifications see the next round.
pub(super) fn probe(work: &Work) -> Option<((Target, IpAddr), u32)> {
    match work {
        Work::Connect { target, address, repeat, .. } => Some(((target.clone(), *address), *repeat)),
        Work::Resolve { .. } | Work::Path { .. } => None,
    }
}
