//! The configuration in force, with every default filled in, as data for people and programs.
//! Secrets are in none of it: they stay in their files.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::embedded;
use super::file::{DohFormatName, DohMethodName, HttpVersionName};
use super::identity::{Identity, Pair};
use super::{Config, Driver, Endpoint, HttpCheck, Listen, TsigAlgorithm, WebListen};
use crate::hex::hex;
use parallax_decide::topology::{ControlKind, Mode, Policy, Role};

/// The configuration as JSON, `schema` 1.
#[must_use]
pub fn as_json(config: &Config) -> Value {
    let topology = &config.topology;
    json!({
        "schema": 1,
        "listen": listen(&config.listen),
        "identity": identity(&config.identity),
        "database": { "retain": {
            "results": config.retain.results_word(), "hourly": config.retain.hourly_word(), "incidents": "forever",
        }, "embedded": { "disk_max": embedded::word(config.disk_max) } },
        "policy": policy(&topology.policy),
        "schedule": {
            "endpoint_every_ms": ms(config.schedule.endpoint_every),
            "attempt_at_ms": config.schedule.attempt_at.iter().copied().map(ms).collect::<Vec<_>>(),
            "connect_timeout_ms": ms(config.schedule.connect_timeout),
            "tls_timeout_ms": ms(config.schedule.tls_timeout),
            "http_timeout_ms": ms(config.schedule.http_timeout),
            "resolve_timeout_ms": ms(config.schedule.resolve_timeout),
            "udp_hold_ms": ms(config.schedule.udp_hold),
            "jitter_permille": config.schedule.jitter_permille,
            "probe_budget_permille": config.schedule.probe_budget_permille,
            "burst_gap_ms": config.schedule.burst_gaps.iter().copied().map(ms).collect::<Vec<_>>(),
        },
        "vantages": topology.vantages.iter().map(|(name, vantage)| json!({
            "name": name,
            "labels": config.labels.get(name),
            "failure_domain": vantage.failure_domain,
            "upstream": vantage.upstream,
            "pin": vantage.pin_driver.as_ref().map(|driver| json!({ "driver": driver, "mode": mode(vantage.pin_mode) })),
            "switch": vantage.switch_by_hand.then_some("by_hand"),
            "audience": vantage.audience,
            "source": config.sources.get(name).map(|source| json!({
                "addresses": source.addresses, "interface": source.interface,
            })),
        })).collect::<Vec<_>>(),
        "resolvers": topology.resolvers.iter().map(|(name, resolver)| json!({
            "name": name,
            "role": role(resolver.role),
            "validates": resolver.validates,
            "filtering_wanted": resolver.filtering_wanted,
            "endpoint": config.endpoints.get(name).map(endpoint),
        })).collect::<Vec<_>>(),
        "canaries": topology.canaries.iter().map(|(name, canary)| json!({
            "name": name, "port": canary.port, "tls": canary.tls,
            "http": config.canary_extras.get(name).and_then(|extra| extra.http.as_ref()).map(http),
            "validate": config.canary_extras.get(name).is_some_and(|extra| extra.validate),
        })).collect::<Vec<_>>(),
        "stubs": topology.stubs,
        "controls": config.controls.iter().map(|(name, target)| json!({
            "name": name, "address": target.address, "port": target.port, "server_name": target.server_name,
            "captive_url": target.captive_url,
            "negative": topology.controls.get(name).is_some_and(|control| control.kind == ControlKind::Negative),
        })).collect::<Vec<_>>(),
        "questions": {
            "known": config.questions.known,
            "freshness_zone": config.questions.freshness_zone,
            "missing_zone": config.questions.missing_zone,
        },
        "nodes": topology.nodes.iter().map(|(name, node)| json!({
            "name": name, "address": node.address, "port": node.port,
            "server_name": config.node_server_names.get(name), "http": config.node_http.get(name).map(http),
            "proof": config.node_proofs.get(name).map(|proof| json!({ "key": hex(&proof.key), "port": proof.port })),
        })).collect::<Vec<_>>(),
        "services": topology.services.iter().map(|(name, service)| json!({
            "name": name, "hostname": service.hostname, "ttl_s": service.ttl_s, "native": service.native,
            "fallbacks": service.fallbacks, "driver": service.driver, "mode": mode(service.mode),
            "audience_failover": service.audience_failover,
        })).collect::<Vec<_>>(),
        "drivers": config.drivers.iter().map(|(name, one)| json!({ "name": name, "driver": driver(one) })).collect::<Vec<_>>(),
    })
}

/// The same without where a coordinator listens, which is its own affair: several with the same file are of one mind.
#[must_use]
pub fn shared(config: &Config) -> Value {
    let mut content = as_json(config);
    if let Some(content) = content.as_object_mut() {
        content.remove("listen");
    }
    content
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn identity(identity: &Identity) -> Value {
    let pair = |pair: &Option<Pair>| {
        pair.as_ref().map(|pair| json!({ "certificates": pair.certificates, "key_file": pair.key }))
    };
    json!({
        "authority": pair(&identity.authority),
        "server_certificate": pair(&identity.server),
        "certificate_life_s": identity.certificate_life.as_secs(),
        "advertise": identity.advertise,
    })
}

fn listen(listen: &Listen) -> Value {
    json!({ "web": listen.web.to_string(), "grpc": listen.grpc.to_string() })
}

impl fmt::Display for WebListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

fn policy(policy: &Policy) -> Value {
    let durations = [
        ("span_min_ms", policy.span_min),
        ("canary_every_ms", policy.canary_every),
        ("node_every_ms", policy.node_every),
        ("control_every_ms", policy.control_every),
        ("silent_after_ms", policy.silent_after),
        ("fresh_for_ms", policy.fresh_for),
        ("open_after_ms", policy.open_after),
        ("proof_age_max_ms", policy.proof_age_max),
        ("return_span_ms", policy.return_span),
        ("dwell_ms", policy.dwell),
        ("dwell_max_ms", policy.dwell_max),
        ("relapse_window_ms", policy.relapse_window),
        ("verify_within_ms", policy.verify_within),
        ("pin_life_ms", policy.pin_life),
        ("ask_again_after_ms", policy.ask_again_after),
    ];
    let mut all: Map<String, Value> =
        durations.into_iter().map(|(key, span)| (key.to_owned(), json!(ms(span)))).collect();
    all.insert("k_min".to_owned(), json!(policy.k_min));
    all.insert("k_max".to_owned(), json!(policy.k_max));
    all.insert("fallback_provers_min".to_owned(), json!(policy.fallback_provers_min));
    all.insert("return_rounds".to_owned(), json!(policy.return_rounds));
    all.insert("changes_max".to_owned(), json!(policy.changes_max));
    all.insert("pin_ttl_s".to_owned(), json!(policy.pin_ttl_s));
    Value::Object(all)
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Observe => "observe",
        Mode::Propose => "propose",
        Mode::Act => "act",
    }
}

fn role(role: Role) -> String {
    match role {
        Role::Live => "live".to_owned(),
        Role::Primary => "primary".to_owned(),
        Role::Reserve(order) => format!("reserve {order}"),
        Role::ObserveOnly => "observe_only".to_owned(),
    }
}

fn endpoint(endpoint: &Endpoint) -> Value {
    match endpoint {
        Endpoint::Live => json!({ "kind": "system" }),
        Endpoint::Udp(address) => json!({ "kind": "udp", "address": address.to_string() }),
        Endpoint::Tcp(address) => json!({ "kind": "tcp", "address": address.to_string() }),
        Endpoint::Doh(doh) => json!({
            "kind": "doh", "url": doh.url, "bootstrap": doh.bootstrap,
            "bootstrap_resolvers": doh.bootstrap_resolvers.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "format": match doh.format {
                DohFormatName::Wire => "wire",
                DohFormatName::Json => "json",
            },
            "method": match doh.method {
                DohMethodName::Post => "post",
                DohMethodName::Get => "get",
            },
            "http": match doh.http {
                HttpVersionName::Auto => "auto",
                HttpVersionName::Http1 => "1.1",
                HttpVersionName::Http2 => "2",
            },
        }),
        Endpoint::Dot { address, server_name } => {
            json!({ "kind": "dot", "address": address.to_string(), "server_name": server_name })
        }
    }
}

fn http(check: &HttpCheck) -> Value {
    json!({ "path": check.path, "statuses": check.statuses, "read_bytes": check.read_bytes })
}

fn driver(driver: &Driver) -> Value {
    match driver {
        Driver::Rfc2136(one) => json!({
            "kind": "rfc2136", "mode": mode(one.mode), "server": one.server.to_string(), "zone": one.zone,
            "tsig_name": one.tsig_name,
            "tsig_algorithm": match one.tsig_algorithm {
                TsigAlgorithm::HmacSha256 => "hmac-sha256",
                TsigAlgorithm::HmacSha384 => "hmac-sha384",
                TsigAlgorithm::HmacSha512 => "hmac-sha512",
            },
            "tsig_secret": one.tsig_secret.to_string(),
        }),
    }
}
