//! A fact as columns.

use std::borrow::Cow;
use std::net::IpAddr;

use parallax_decide::observation::{Fact, Family, Target};

use super::NewObservation;

/// A fact as columns.
#[derive(Default)]
pub(super) struct Columns<'a> {
    pub(super) kind: &'static str,
    pub(super) subject: Cow<'a, str>,
    pub(super) resolver: Option<&'a str>,
    pub(super) family: Option<i16>,
    pub(super) address: Option<IpAddr>,
    pub(super) port: Option<i32>,
    pub(super) outcome: &'static str,
    pub(super) stage: Option<&'static str>,
    pub(super) addresses: Option<&'a [IpAddr]>,
    pub(super) ttl_s: Option<i32>,
    pub(super) attempts: Option<i16>,
    pub(super) attempts_connected: Option<i16>,
}

impl<'a> Columns<'a> {
    /// The columns of an observation's fact.
    pub(super) fn of(observation: &'a NewObservation) -> Self {
        let fact = &observation.fact;
        let (kind, outcome) = (fact.kind().word(), fact.outcome().word());
        let columns = match fact {
            Fact::Resolution(r) => Self {
                subject: r.name.as_str().into(),
                resolver: Some(r.resolver.as_str()),
                family: Some(match r.family {
                    Family::V4 => 4,
                    Family::V6 => 6,
                }),
                addresses: Some(&r.addresses),
                ttl_s: Some(i32::try_from(r.ttl_s).unwrap_or(i32::MAX)),
                ..Self::default()
            },
            Fact::Connection(c) => Self {
                subject: match &c.target {
                    Target::Name(name) => name.as_str().into(),
                    Target::Node(node) => format!("node:{node}").into(),
                },
                address: Some(c.address),
                port: Some(i32::from(c.port)),
                attempts: Some(i16::try_from(c.attempts).unwrap_or(i16::MAX)),
                attempts_connected: Some(i16::try_from(c.attempts_connected).unwrap_or(i16::MAX)),
                ..Self::default()
            },
            Fact::EndpointCheck(e) => Self {
                subject: e.resolver.as_str().into(),
                // None was found: the check ended before.
                address: (!e.address.is_unspecified()).then_some(e.address),
                stage: Some(e.stage.word()),
                ..Self::default()
            },
            Fact::ControlCheck(c) => Self { subject: c.control.as_str().into(), ..Self::default() },
            Fact::Path(p) => {
                Self { subject: p.address.to_string().into(), address: Some(p.address), ..Self::default() }
            }
            Fact::Loss(_) => Self { subject: "observations".into(), ..Self::default() },
            Fact::Missed(_) => {
                let what = observation.detail.get("what").and_then(|what| what.as_str());
                Self { subject: what.unwrap_or("rounds").into(), ..Self::default() }
            }
        };
        Self { kind, outcome, ..columns }
    }
}
