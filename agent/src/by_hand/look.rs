//! One look at one name: every resolver asked, every address tried, and whether this machine has a
//! way out at all.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use parallax_decide::names::{ADDRESSES_MAX, DomainName};
use parallax_decide::observation::{Connection, EndpointCheck, Family, Outcome, Resolution};

use crate::assignment::{Canary, Resolver, Transport};
use crate::measured::{ConnectionParticulars, EndpointParticulars, Measured, ResolutionParticulars, What};
use crate::probe::message::Question;
use crate::probe::tried::Tried;
use crate::probe::{Limits, control, endpoint, resolution};
use crate::site::Site;
use crate::well_known;

/// What is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The name.
    pub name: DomainName,
    /// TCP port its addresses are tried on.
    pub port: u16,
    /// Finish TLS for the name.
    pub tls: bool,
    /// Resolvers to ask.
    pub resolvers: Vec<Resolver>,
}

/// What was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// What was looked at.
    pub wanted: Wanted,
    /// What each resolver said.
    pub asked: Vec<Asked>,
    /// How each address fared, in the order they were given.
    pub tried: Vec<TriedAddress>,
    /// How well-known addresses fared, which shows whether this machine has a way out.
    pub controls: Vec<Outcome>,
}

/// What one resolver said.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The resolver.
    pub resolver: Resolver,
    /// A and AAAA.
    pub answers: Vec<(Resolution, ResolutionParticulars, Duration)>,
    /// The cold check of its endpoint; `None` for the live resolver, which may be any program.
    pub endpoint: Option<(EndpointCheck, EndpointParticulars, Duration)>,
}

impl Asked {
    /// The addresses it gave, of both families.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.answers.iter().flat_map(|(answer, _, _)| answer.addresses.iter().copied())
    }
}

/// How one address fared.
#[derive(Debug, Clone, PartialEq)]
pub struct TriedAddress {
    /// The fact.
    pub connection: Connection,
    /// What is kept besides.
    pub kept: ConnectionParticulars,
    /// Whole duration.
    pub duration: Duration,
    /// Who gave it.
    pub given_by: Vec<String>,
}

/// Looks.
pub async fn look(site: &Site, wanted: &Wanted) -> Seen {
    let limits = Limits::by_hand();
    let (asked, controls) = tokio::join!(
        join_all(wanted.resolvers.iter().map(|one| ask(site, &limits, &wanted.name, one))),
        way_out(site, &limits)
    );
    let mut given: BTreeMap<IpAddr, Vec<String>> = BTreeMap::new();
    let mut order = Vec::new();
    for one in &asked {
        for address in one.addresses() {
            let by = given.entry(address).or_default();
            if by.is_empty() && order.len() < ADDRESSES_MAX {
                order.push(address);
            }
            by.push(one.resolver.name.to_string());
        }
    }
    let canary = Canary {
        name: wanted.name.clone(),
        port: wanted.port,
        tls: wanted.tls,
        live_only: false,
        http: None,
        validate: false,
    };
    let mut work: FuturesUnordered<_> = order
        .iter()
        .enumerate()
        .map(|(position, address)| {
            let tried = Tried::canary(&canary, *address);
            let limits = &limits;
            async move { (position, tried.measure(site, limits).await) }
        })
        .collect();
    let mut ended = Vec::new();
    while let Some((position, measured)) = work.next().await {
        let Measured { what, duration } = measured;
        if let What::Connection(connection, kept) = what {
            let given_by = given.get(&connection.address).cloned().unwrap_or_default();
            ended.push((position, TriedAddress { connection, kept, duration, given_by }));
        }
    }
    ended.sort_by_key(|(position, _)| *position);
    let tried = ended.into_iter().map(|(_, tried)| tried).collect();
    Seen { wanted: wanted.clone(), asked, tried, controls }
}

async fn ask(site: &Site, limits: &Limits, name: &DomainName, resolver: &Resolver) -> Asked {
    let question = |family| Question { name: name.clone(), family };
    let (v4, v6) = (question(Family::V4), question(Family::V6));
    let questions = endpoint::Questions { known: v4.clone(), freshness_zone: None, missing_zone: None };
    let checked = async {
        match &resolver.transport {
            Transport::Live => None,
            Transport::Plain { .. } | Transport::Tcp { .. } | Transport::Dot { .. } | Transport::Doh(_) => {
                Some(endpoint::check(site, limits, resolver, &questions).await)
            }
        }
    };
    let (first, second, checked) = tokio::join!(
        async { resolution::resolve(site, limits, resolver, &v4).await.finish().await },
        async { resolution::resolve(site, limits, resolver, &v6).await.finish().await },
        checked
    );
    let mut asked = Asked { resolver: resolver.clone(), answers: Vec::new(), endpoint: None };
    for Measured { what, duration } in [Some(first), Some(second), checked].into_iter().flatten() {
        match what {
            What::Resolution(fact, kept) => asked.answers.push((fact, kept, duration)),
            What::EndpointCheck(fact, kept) => asked.endpoint = Some((fact, kept, duration)),
            What::Connection(..) | What::ControlCheck(..) | What::Path(..) | What::Missed(..) => {}
        }
    }
    asked
}

/// How the well-known addresses fare.
async fn way_out(site: &Site, limits: &Limits) -> Vec<Outcome> {
    let controls = well_known::controls();
    let ended = join_all(controls.iter().map(|control| control::check(site, limits, control))).await;
    ended.iter().map(|measured| measured.what.outcome()).collect()
}
