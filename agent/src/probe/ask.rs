//! One question to one resolver over its own transport, with the stage it reached.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use parallax_decide::observation::{ConnectionOutcome, Stage, StageOutcome};
use tokio::time::timeout;

use super::message::{Question, Reply};
use super::plain::Choice;
use super::{Limits, doh, dot, plain};
use crate::assignment::{Resolver, Transport};
use crate::clock::{now, since};
use crate::measured::Details;
use crate::policy::Role;
use crate::site::Site;

/// Where a question is, kept outside the exchange so that a deadline can say which stage it cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Last stage that was tried.
    pub stage: Stage,
    /// Address that is contacted.
    pub address: IpAddr,
    /// Timings so far.
    pub details: Details,
}

impl Default for Trace {
    fn default() -> Self {
        let address = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Self { stage: Stage::Bootstrap, address, details: Details::default() }
    }
}

impl Trace {
    /// Notes that a stage begins.
    pub fn enter(&mut self, stage: Stage, address: IpAddr) {
        (self.stage, self.address) = (stage, address);
    }
}

/// How a question ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The reply, or how the stage in `trace` failed.
    pub ended: Result<Reply, StageOutcome>,
    /// How far it got.
    pub trace: Trace,
    /// Whole duration.
    pub duration: Duration,
}

/// Asks one question, if the owner's policy permits it, within the limit for resolvers.
pub async fn ask(site: &Site, limits: &Limits, resolver: &Resolver, question: &Question) -> Asked {
    let start = now();
    let mut trace = Trace::default();
    let ended = match site.policy.take_question() {
        Err(denial) => {
            tracing::debug!(resolver = %resolver.name, name = %question.name, %denial, "question left out");
            Err(StageOutcome::OwnTrouble)
        }
        Ok(()) => match timeout(limits.resolve, speak(site, limits, resolver, question, &mut trace)).await {
            Ok(ended) => ended,
            Err(_) => Err(StageOutcome::Timeout),
        },
    };
    if let Ok(reply) = &ended {
        trace.details.extended_error = reply.extended_error;
        trace.details.authentic_data = reply.authentic_data;
    }
    Asked { ended, trace, duration: since(start) }
}

async fn speak(
    site: &Site,
    limits: &Limits,
    resolver: &Resolver,
    question: &Question,
    trace: &mut Trace,
) -> Result<Reply, StageOutcome> {
    match &resolver.transport {
        Transport::Live => live(site, limits, question, trace).await,
        Transport::Plain { server } => {
            permitted(site, *server, trace)?;
            plain::ask(&site.dialer, *server, Choice::Assigned, question, limits.resolve, trace).await
        }
        Transport::Dot { server, server_name } => {
            permitted(site, *server, trace)?;
            dot::ask(&site.dialer, &site.trust.dot, *server, server_name, question, limits, trace).await
        }
        Transport::Doh(endpoint) => {
            let mut last = None;
            for address in &endpoint.addresses {
                let before = trace.clone();
                if let Err(refused) = permitted(site, SocketAddr::new(*address, endpoint.port), trace) {
                    match last {
                        // How a permitted address failed says more than that another was not contacted.
                        Some(_) => *trace = before,
                        None => last = Some(Err(refused)),
                    }
                    continue;
                }
                // Timings of an address that failed are not those of the next one.
                trace.details = Details::default();
                let asked = doh::ask(&site.dialer, &site.trust.doh, endpoint, *address, question, limits, trace).await;
                let done = asked.is_ok();
                last = Some(asked);
                if done {
                    break;
                }
            }
            last.unwrap_or(Err(StageOutcome::OwnTrouble))
        }
    }
}

fn permitted(site: &Site, server: SocketAddr, trace: &mut Trace) -> Result<(), StageOutcome> {
    trace.enter(Stage::Bootstrap, server.ip());
    site.policy.permits(server.ip(), server.port(), Role::Resolver).map_err(|denial| {
        tracing::debug!(%server, %denial, "resolver not contacted");
        StageOutcome::RefusedByPolicy
    })
}

/// Asks the servers of the live resolver in order, as clients do: the next one when a server does
/// not answer, or answers that it cannot or will not.
async fn live(site: &Site, limits: &Limits, question: &Question, trace: &mut Trace) -> Result<Reply, StageOutcome> {
    use parallax_decide::observation::ResolutionOutcome as R;

    let servers = site.live.servers();
    let share = limits.resolve / u32::try_from(servers.len().max(1)).unwrap_or(u32::MAX);
    let mut last = Err(StageOutcome::OwnTrouble);
    for server in servers {
        let asked = plain::ask(&site.dialer, server, Choice::Own, question, share, trace);
        last = match timeout(share, asked).await {
            Ok(ended) => ended,
            Err(_) => Err(StageOutcome::Timeout),
        };
        let done = last.as_ref().is_ok_and(|reply| match reply.outcome {
            R::Servfail | R::Refused | R::OtherRcode => false,
            R::Answered
            | R::Empty
            | R::Nxdomain
            | R::Timeout
            | R::Unreachable
            | R::TlsFailed
            | R::HttpFailed
            | R::Malformed
            | R::OwnTrouble
            | R::RefusedByPolicy => true,
        });
        if done {
            break;
        }
    }
    last
}

/// A failed TCP phase as the outcome of a stage.
#[must_use]
pub fn tcp_stage(outcome: ConnectionOutcome) -> StageOutcome {
    use ConnectionOutcome as O;
    match outcome {
        O::TlsOk | O::TcpOk => StageOutcome::Ok,
        O::Refused => StageOutcome::Refused,
        O::Silent | O::TlsSilent => StageOutcome::Timeout,
        O::HostUnreachable | O::NetUnreachable => StageOutcome::Unreachable,
        O::TlsReset => StageOutcome::Reset,
        O::TlsAlert => StageOutcome::Alert,
        O::CertificateName | O::CertificateAuthority | O::CertificateTime => StageOutcome::Certificate,
        O::FamilyUnavailable | O::OwnTrouble => StageOutcome::OwnTrouble,
        O::RefusedByPolicy => StageOutcome::RefusedByPolicy,
    }
}

#[cfg(test)]
#[cfg(feature = "lab")]
mod tests {
    use parallax_decide::observation::Family;

    use super::*;
    use crate::dial::Dialer;
    use crate::local::Allow;
    use crate::policy::Policy;
    use crate::probe::doh::DohEndpoint;
    use crate::probe::live::LiveServers;
    use crate::probe::testing::{Authority, limits, refused_port};

    #[tokio::test(start_paused = true)]
    async fn an_address_that_may_not_be_contacted_does_not_hide_how_another_failed() {
        let folder = tempfile::tempdir().unwrap();
        let map = folder.path().join("map.json");
        std::fs::write(&map, format!("{{\"9.9.9.9:443\": \"{}\"}}", refused_port())).unwrap();
        let site = Site {
            dialer: Dialer::mapped(map),
            policy: Policy::new(Allow::default()),
            trust: Authority::new().trust(),
            live: LiveServers::new(Vec::new()),
        };
        let question = Question { name: "example.com".parse().unwrap(), family: Family::V4 };
        let (public, private): (IpAddr, IpAddr) = ([9, 9, 9, 9].into(), [10, 0, 0, 1].into());
        for (addresses, stage, outcome) in [
            (vec![public, private], Stage::Tcp, StageOutcome::Refused),
            (vec![private, public], Stage::Tcp, StageOutcome::Refused),
            (vec![private], Stage::Bootstrap, StageOutcome::RefusedByPolicy),
        ] {
            let url = http::Uri::from_static("https://dns.example/dns-query");
            let endpoint = DohEndpoint { url, host: "dns.example".into(), port: 443, addresses };
            let resolver = Resolver { name: "doh".parse().unwrap(), transport: Transport::Doh(endpoint) };
            let asked = ask(&site, &limits(), &resolver, &question).await;
            assert_eq!((asked.trace.stage, asked.ended), (stage, Err(outcome)));
        }
    }
}
