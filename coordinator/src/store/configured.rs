//! What the configuration names, kept beside the log: the page, the command line and SQL then draw
//! the same picture, also where the configuration file is out of reach.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use parallax_decide::topology::{Mode, Role, Transport};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

use super::StoreError;
use super::config_version::{self, Content, Taker};
use crate::config::{Config, show};

/// Rows read at most: a fleet of a thousand vantages with as many names.
const ROWS_MAX: i64 = 5_000;

/// Everything the configuration names, in the order in which pages show it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Configured {
    /// Places that measure.
    pub vantages: Vec<(String, Place)>,
    /// Resolvers under test.
    pub resolvers: Vec<(String, Asked)>,
    /// Watched names.
    pub canaries: Vec<(String, Watched)>,
    /// Machines of ours.
    pub nodes: Vec<(String, Machine)>,
    /// Services of ours.
    pub services: Vec<(String, Offered)>,
    /// How careful to be, as far as pages say it.
    pub policy: Care,
}

/// A vantage.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Place {
    /// Words that describe it.
    pub labels: BTreeMap<String, String>,
    /// Uplink it shares with others.
    pub failure_domain: String,
    /// Upstream of its live resolver.
    pub upstream: Option<String>,
    /// Driver that can pin names there.
    pub pin_driver: Option<String>,
    /// What that driver may do by itself.
    pub pin_mode: Mode,
}

/// A resolver.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Asked {
    /// live, primary, reserve or observe_only.
    pub role: String,
    /// live, plain, doh or dot.
    pub transport: String,
}

/// A canary.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Watched {
    /// TCP port.
    pub port: u16,
    /// Whether TLS for the name is the proof.
    pub tls: bool,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its address.
    pub address: IpAddr,
    /// TCP port.
    pub port: u16,
}

/// A service.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Offered {
    /// Its record's name.
    pub hostname: String,
    /// TTL of the record, seconds.
    pub ttl_s: u32,
    /// Node that serves it when all is well.
    pub native: String,
    /// Fallbacks in order.
    pub fallbacks: Vec<String>,
    /// Driver that changes the record.
    pub driver: String,
    /// What it may do by itself.
    pub mode: Mode,
}

/// What pages say of the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Care {
    /// A result older than this proves nothing any more, seconds.
    pub fresh_for_s: u64,
    /// A vantage that reported nothing for this long is silent, seconds.
    pub silent_after_s: u64,
    /// Changes one incident may make.
    pub changes_max: u32,
}

impl Default for Care {
    fn default() -> Self {
        let policy = parallax_decide::topology::Policy::careful();
        Self::of(&policy)
    }
}

impl Care {
    fn of(policy: &parallax_decide::topology::Policy) -> Self {
        Self {
            fresh_for_s: seconds_up(policy.fresh_for),
            silent_after_s: seconds_up(policy.silent_after),
            changes_max: policy.changes_max,
        }
    }

    /// [`Self::fresh_for_s`] as a span.
    #[must_use]
    pub fn fresh_for(&self) -> Duration {
        Duration::from_secs(self.fresh_for_s)
    }

    /// [`Self::silent_after_s`] as a span.
    #[must_use]
    pub fn silent_after(&self) -> Duration {
        Duration::from_secs(self.silent_after_s)
    }
}

impl Configured {
    /// What a configuration names.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let topology = &config.topology;
        let mut resolvers: Vec<_> = topology.resolvers.iter().collect();
        resolvers.sort_by_key(|(_, resolver)| resolver.role);
        Self {
            vantages: topology
                .vantages
                .iter()
                .map(|(name, vantage)| {
                    let place = Place {
                        labels: config.labels.get(name).cloned().unwrap_or_default(),
                        failure_domain: vantage.failure_domain.to_string(),
                        upstream: vantage.upstream.as_ref().map(ToString::to_string),
                        pin_driver: vantage.pin_driver.as_ref().map(ToString::to_string),
                        pin_mode: vantage.pin_mode,
                    };
                    (name.to_string(), place)
                })
                .collect(),
            resolvers: resolvers
                .into_iter()
                .map(|(name, r)| {
                    let asked = Asked { role: role(r.role).to_owned(), transport: transport(r.transport).to_owned() };
                    (name.to_string(), asked)
                })
                .collect(),
            canaries: topology
                .canaries
                .iter()
                .map(|(name, canary)| (name.to_string(), Watched { port: canary.port, tls: canary.tls }))
                .collect(),
            nodes: topology
                .nodes
                .iter()
                .map(|(name, node)| (name.to_string(), Machine { address: node.address, port: node.port }))
                .collect(),
            services: topology
                .services
                .iter()
                .map(|(name, service)| {
                    let offered = Offered {
                        hostname: service.hostname.to_string(),
                        ttl_s: service.ttl_s,
                        native: service.native.to_string(),
                        fallbacks: service.fallbacks.iter().map(ToString::to_string).collect(),
                        driver: service.driver.to_string(),
                        mode: service.mode,
                    };
                    (name.to_string(), offered)
                })
                .collect(),
            policy: Care::of(&topology.policy),
        }
    }

    /// Name of the live resolver: what clients at each place use.
    #[must_use]
    pub fn live_resolver(&self) -> Option<&str> {
        self.resolvers.iter().find(|(_, resolver)| resolver.role == "live").map(|(name, _)| name.as_str())
    }

    /// The node that has an address.
    #[must_use]
    pub fn node_at(&self, address: IpAddr) -> Option<&str> {
        self.nodes.iter().find(|(_, node)| node.address == address).map(|(name, _)| name.as_str())
    }

    /// The address of a node.
    #[must_use]
    pub fn address_of(&self, node: &str) -> Option<IpAddr> {
        self.nodes.iter().find(|(name, _)| name == node).map(|(_, node)| node.address)
    }
}

/// Puts a configuration in force: what it names replaces what the one before named, and it gets its
/// number, which is returned. One transaction.
///
/// # Errors
/// When the database refuses.
pub async fn put_in_force(connection: &mut PgConnection, config: &Config, taker: &Taker) -> Result<i32, StoreError> {
    let configured = Configured::of(config);
    let content = show::shared(config);
    let rows = rows(&configured)?;
    let mut position: BTreeMap<&str, u32> = BTreeMap::new();
    let named = rows.iter().map(|(kind, name, detail)| {
        let next = position.entry(kind).or_insert(0);
        let row = json!({ "kind": kind, "name": name, "position": *next, "detail": detail });
        *next += 1;
        row
    });
    let named = named.collect();
    let topology = serde_json::to_value(&config.topology)
        .map_err(|error| StoreError::content("config_version", "topology", "new", error))?;
    let content = Content { content, named, topology };
    let mut transaction = connection.begin().await?;
    replace(&mut transaction, &rows).await?;
    let number = config_version::put_in_force(&mut transaction, &content, taker).await?;
    transaction.commit().await?;
    Ok(number)
}

/// Replaces what the configuration names, and nothing else. One transaction.
///
/// # Errors
/// When the database refuses.
pub async fn write(connection: &mut PgConnection, configured: &Configured) -> Result<(), StoreError> {
    let mut transaction = connection.begin().await?;
    replace(&mut transaction, &rows(configured)?).await?;
    transaction.commit().await?;
    Ok(())
}

type Rows = Vec<(&'static str, String, Value)>;

fn rows(configured: &Configured) -> Result<Rows, StoreError> {
    let mut rows = Rows::new();
    add(&mut rows, "vantage", &configured.vantages)?;
    add(&mut rows, "resolver", &configured.resolvers)?;
    add(&mut rows, "canary", &configured.canaries)?;
    add(&mut rows, "node", &configured.nodes)?;
    add(&mut rows, "service", &configured.services)?;
    add(&mut rows, "policy", &[("policy".to_owned(), configured.policy.clone())])?;
    Ok(rows)
}

async fn replace(connection: &mut PgConnection, rows: &Rows) -> Result<(), StoreError> {
    let kinds: Vec<String> = rows.iter().map(|(kind, ..)| (*kind).to_owned()).collect();
    let names: Vec<String> = rows.iter().map(|(_, name, _)| name.clone()).collect();
    let details: Vec<Value> = rows.iter().map(|(.., detail)| detail.clone()).collect();
    // Two coordinators that start in the same moment: one after the other, each as a whole.
    sqlx::query!("lock table configured in share row exclusive mode").execute(&mut *connection).await?;
    sqlx::query!("delete from configured").execute(&mut *connection).await?;
    sqlx::query!(
        "insert into configured (kind, name, position, detail)
         select n.kind, n.name, row_number() over (partition by n.kind order by n.place) - 1, n.detail
         from unnest($1::text[], $2::text[], $3::jsonb[]) with ordinality as n(kind, name, detail, place)",
        &kinds,
        &names,
        &details
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// What the configuration in force names. Empty before a coordinator has started with this database.
///
/// # Errors
/// When the database refuses, or a row holds what this version cannot read.
pub async fn read(connection: &mut PgConnection) -> Result<Configured, StoreError> {
    let rows = sqlx::query!("select kind, name, detail from configured order by kind, position limit $1", ROWS_MAX)
        .fetch_all(connection)
        .await?;
    from_rows(rows.into_iter().map(|row| (row.kind, row.name, row.detail)))
}

/// The same of rows, each with kind, name and detail, in order of position within each kind.
///
/// # Errors
/// When a row holds what this version cannot read.
pub fn from_rows(rows: impl Iterator<Item = (String, String, Value)>) -> Result<Configured, StoreError> {
    let mut configured = Configured::default();
    for (kind, name, detail) in rows {
        let bad = |error: serde_json::Error| StoreError::content("configured", "detail", &name, error);
        match kind.as_str() {
            "vantage" => configured.vantages.push((name.clone(), from(detail).map_err(bad)?)),
            "resolver" => configured.resolvers.push((name.clone(), from(detail).map_err(bad)?)),
            "canary" => configured.canaries.push((name.clone(), from(detail).map_err(bad)?)),
            "node" => configured.nodes.push((name.clone(), from(detail).map_err(bad)?)),
            "service" => configured.services.push((name.clone(), from(detail).map_err(bad)?)),
            "policy" => configured.policy = from(detail).map_err(bad)?,
            // Written by a newer version; nothing here shows it.
            _ => {}
        }
    }
    Ok(configured)
}

fn add<T: Serialize>(rows: &mut Rows, kind: &'static str, items: &[(String, T)]) -> Result<(), StoreError> {
    for (name, item) in items {
        let detail =
            serde_json::to_value(item).map_err(|error| StoreError::content("configured", "detail", name, error))?;
        rows.push((kind, name.clone(), detail));
    }
    Ok(())
}

fn from<T: serde::de::DeserializeOwned>(detail: Value) -> Result<T, serde_json::Error> {
    serde_json::from_value(detail)
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Live => "live",
        Role::Primary => "primary",
        Role::Reserve(_) => "reserve",
        Role::ObserveOnly => "observe_only",
    }
}

fn transport(transport: Transport) -> &'static str {
    match transport {
        Transport::Live => "live",
        Transport::Plain => "plain",
        Transport::Doh => "doh",
        Transport::Dot => "dot",
    }
}

fn seconds_up(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[tokio::test]
    async fn what_is_written_is_read_and_replaced_as_a_whole() {
        let pool = testing::database().await;
        let mut connection = pool.acquire().await.unwrap();
        assert_eq!(read(&mut connection).await.unwrap(), Configured::default());
        let whole = Configured::of(&testing::example());
        write(&mut connection, &whole).await.unwrap();
        assert_eq!(read(&mut connection).await.unwrap(), whole);
        assert_eq!(whole.live_resolver(), Some("live"));
        assert_eq!(whole.node_at("49.12.20.20".parse().unwrap()), Some("de"));
        let mut less = whole.clone();
        less.canaries.truncate(1);
        less.services.clear();
        write(&mut connection, &less).await.unwrap();
        assert_eq!(read(&mut connection).await.unwrap(), less);
    }

    #[tokio::test]
    async fn a_kind_of_a_newer_version_does_no_harm_and_a_broken_row_is_named() {
        let pool = testing::database().await;
        let mut connection = pool.acquire().await.unwrap();
        write(&mut connection, &Configured::of(&testing::example())).await.unwrap();
        sqlx::query("update configured set detail = '[]' where name = 'wan-gw'")
            .execute(&mut *connection)
            .await
            .unwrap();
        let error = read(&mut connection).await.unwrap_err().to_string();
        assert!(error.contains("table configured, column detail, row wan-gw"), "{error}");
    }
}
