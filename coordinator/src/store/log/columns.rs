//! A fact as columns.

use std::net::IpAddr;

use parallax_decide::observation::{Fact, Family, Target};

/// A fact as columns.
#[derive(Default)]
pub(super) struct Columns {
    pub(super) kind: &'static str,
    pub(super) subject: String,
    pub(super) resolver: Option<String>,
    pub(super) family: Option<i16>,
    pub(super) address: Option<IpAddr>,
    pub(super) port: Option<i32>,
    pub(super) outcome: &'static str,
    pub(super) stage: Option<&'static str>,
    pub(super) addresses: Option<String>,
    pub(super) ttl_s: Option<i32>,
    pub(super) attempts: Option<i16>,
    pub(super) attempts_connected: Option<i16>,
}

impl Columns {
    /// The columns of a fact.
    pub(super) fn of(fact: &Fact) -> Self {
        match fact {
            Fact::Resolution(r) => Self {
                kind: "resolution",
                subject: r.name.to_string(),
                resolver: Some(r.resolver.to_string()),
                family: Some(match r.family {
                    Family::V4 => 4,
                    Family::V6 => 6,
                }),
                outcome: r.outcome.word(),
                addresses: Some(array(&r.addresses)),
                ttl_s: Some(i32::try_from(r.ttl_s).unwrap_or(i32::MAX)),
                ..Self::default()
            },
            Fact::Connection(c) => Self {
                kind: "connection",
                subject: match &c.target {
                    Target::Name(name) => name.to_string(),
                    Target::Node(node) => format!("node:{node}"),
                },
                address: Some(c.address),
                port: Some(i32::from(c.port)),
                outcome: c.outcome.word(),
                attempts: Some(i16::try_from(c.attempts).unwrap_or(i16::MAX)),
                attempts_connected: Some(i16::try_from(c.attempts_connected).unwrap_or(i16::MAX)),
                ..Self::default()
            },
            Fact::EndpointCheck(e) => Self {
                kind: "endpoint_check",
                subject: e.resolver.to_string(),
                address: Some(e.address),
                outcome: e.outcome.word(),
                stage: Some(e.stage.word()),
                ..Self::default()
            },
            Fact::ControlCheck(c) => Self {
                kind: "control_check",
                subject: c.control.to_string(),
                outcome: c.outcome.word(),
                ..Self::default()
            },
        }
    }
}

/// An array literal: an unnested parameter cannot hold an array per row.
fn array(addresses: &[IpAddr]) -> String {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    format!("{{{}}}", texts.join(","))
}
