//! A fact as columns.

use std::net::IpAddr;

use parallax_decide::observation::{Fact, Family, Target};

use super::NewObservation;

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
    /// The columns of an observation's fact.
    pub(super) fn of(observation: &NewObservation) -> Self {
        let fact = &observation.fact;
        let (kind, outcome) = (fact.kind().word(), fact.outcome().word());
        let columns = match fact {
            Fact::Resolution(r) => Self {
                subject: r.name.to_string(),
                resolver: Some(r.resolver.to_string()),
                family: Some(match r.family {
                    Family::V4 => 4,
                    Family::V6 => 6,
                }),
                addresses: Some(array(&r.addresses)),
                ttl_s: Some(i32::try_from(r.ttl_s).unwrap_or(i32::MAX)),
                ..Self::default()
            },
            Fact::Connection(c) => Self {
                subject: match &c.target {
                    Target::Name(name) => name.to_string(),
                    Target::Node(node) => format!("node:{node}"),
                },
                address: Some(c.address),
                port: Some(i32::from(c.port)),
                attempts: Some(i16::try_from(c.attempts).unwrap_or(i16::MAX)),
                attempts_connected: Some(i16::try_from(c.attempts_connected).unwrap_or(i16::MAX)),
                ..Self::default()
            },
            Fact::EndpointCheck(e) => Self {
                subject: e.resolver.to_string(),
                // None was found: the check ended before.
                address: (!e.address.is_unspecified()).then_some(e.address),
                stage: Some(e.stage.word()),
                ..Self::default()
            },
            Fact::ControlCheck(c) => Self { subject: c.control.to_string(), ..Self::default() },
            Fact::Path(p) => Self { subject: p.address.to_string(), address: Some(p.address), ..Self::default() },
            Fact::Loss(_) => Self { subject: "observations".to_owned(), ..Self::default() },
            Fact::Missed(_) => {
                let what = observation.detail.get("what").and_then(|what| what.as_str());
                Self { subject: what.unwrap_or("rounds").to_owned(), ..Self::default() }
            }
        };
        Self { kind, outcome, ..columns }
    }
}

/// An array literal: an unnested parameter cannot hold an array per row.
fn array(addresses: &[IpAddr]) -> String {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    format!("{{{}}}", texts.join(","))
}
