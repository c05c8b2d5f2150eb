//! One question to one resolver over its own transport, with the stage it reached.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parallax_decide::observation::{Outcome, Says, Stage};
use parallax_proto::FIRST_BYTES_MAX;
use tokio::time::timeout;

use super::message::{Question, Reply, Unfit};
use super::plain::{Choice, Hold, Plain};
use super::remark::add;
use super::trouble::silence;
use super::{Limits, pool};
use crate::assignment::{Resolver, Transport};
use crate::clock::{Instant, now, since};
use crate::measured::{Carrier, CertificateHash, OddReply, ReplyParticulars, StageTimes};
use crate::policy::Role;
use crate::site::Site;

/// Where a question is and what was learnt on the way, kept outside the exchange so that a deadline
/// can say which stage it cut.
#[derive(Debug, Clone)]
pub struct Trace {
    /// Last stage that was tried.
    pub stage: Stage,
    /// Address that is contacted; unspecified before one is.
    pub address: IpAddr,
    /// Time of each stage so far.
    pub stages: StageTimes,
    /// HTTP status where one was received, else 0.
    pub http_status: u16,
    /// How long the server asks to be left alone.
    pub retry_after: Option<Duration>,
    /// The server's certificate.
    pub certificate: Option<CertificateHash>,
    /// For people.
    pub remark: String,
    /// Particulars of the reply, as far as they are known.
    pub reply: ReplyParticulars,
    /// Datagrams that were not the reply that decided, at most [`parallax_proto::ODD_REPLIES_MAX`].
    pub odd_replies: Vec<OddReply>,
    /// When the reply that decided came, where the exchange went on after it.
    pub decided: Option<Instant>,
    /// The UDP socket that goes on listening for a second reply.
    pub hold: Option<Arc<Hold>>,
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            stage: Stage::Bootstrap,
            address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            stages: StageTimes::default(),
            http_status: 0,
            retry_after: None,
            certificate: None,
            remark: String::new(),
            reply: ReplyParticulars::default(),
            odd_replies: Vec::new(),
            decided: None,
            hold: None,
        }
    }
}

impl Trace {
    /// Notes that a stage begins.
    pub fn enter(&mut self, stage: Stage, address: IpAddr) {
        (self.stage, self.address) = (stage, address);
    }

    /// Takes the particulars of what came as the reply, or its first bytes when it cannot be read.
    /// What the exchange noted itself stays: truncation on the way, no EDNS, a second connection.
    ///
    /// # Errors
    /// [`Outcome::Malformed`] when it is no reply to the question.
    pub fn settle(&mut self, carrier: Carrier, bytes: &[u8], read: Result<Reply, Unfit>) -> Result<Reply, Outcome> {
        let mut read = read;
        let kept = match &mut read {
            Ok(reply) => std::mem::take(&mut reply.kept),
            Err(_) => ReplyParticulars {
                size: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
                first_bytes: bytes.iter().copied().take(FIRST_BYTES_MAX).collect(),
                ..ReplyParticulars::default()
            },
        };
        let ReplyParticulars { truncated, without_edns, reconnected, .. } = self.reply;
        self.reply = ReplyParticulars { transport: Some(carrier), truncated, without_edns, reconnected, ..kept };
        if let Ok(reply) = &mut read {
            add(&mut self.remark, &std::mem::take(&mut reply.remark));
        }
        read.map_err(|_| Outcome::Malformed)
    }

    /// Notes a datagram that is not the reply that decides.
    pub fn odd(&mut self, odd: OddReply) {
        odd.note(&mut self.odd_replies);
    }

    /// The server that was asked, if one was.
    #[must_use]
    pub fn server(&self) -> Option<IpAddr> {
        (!self.address.is_unspecified()).then_some(self.address)
    }

    /// What it means that nothing came any more at this stage.
    #[must_use]
    pub fn silence(&self) -> Outcome {
        match self.stage {
            // Something did come, and nothing better after it.
            Stage::Dns if !self.reply.first_bytes.is_empty() => Outcome::Malformed,
            Stage::Tcp | Stage::Dns if self.reply.truncated => Outcome::TruncatedTcpTimeout,
            // The answer had begun.
            Stage::Http if self.http_status != 0 => Outcome::HttpStalled,
            Stage::Bootstrap | Stage::Tcp | Stage::Tls | Stage::Http | Stage::Dns => silence(self.stage),
        }
    }
}

/// How a question ended.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The reply, or how the stage in `trace` failed.
    pub ended: Result<Reply, Outcome>,
    /// How far it got.
    pub trace: Trace,
    /// Whole duration.
    pub duration: Duration,
}

/// Asks one question, if the owner's policy permits it, within the limit for resolvers.
pub async fn ask(site: &Site, limits: &Limits, resolver: &Resolver, question: &Question) -> Asked {
    let start = now();
    let mut trace = Trace::default();
    // Rounds leave a resolver alone that wants to be; a question that comes all the same is not sent.
    let ended = if site.throttle.until(&resolver.name).is_some() {
        Err(Outcome::RateLimited)
    } else {
        match timeout(limits.resolve, speak(site, limits, resolver, question, &mut trace)).await {
            Ok(ended) => ended,
            Err(_) => Err(trace.silence()),
        }
    };
    if let Err(outcome) = &ended {
        learn(site, resolver, *outcome, &trace);
    }
    let duration = trace.decided.map_or_else(|| since(start), |decided| decided.saturating_duration_since(start));
    Asked { ended, trace, duration }
}

/// Remembers what a failure means for the next question.
pub fn learn(site: &Site, resolver: &Resolver, outcome: Outcome, trace: &Trace) {
    if outcome == Outcome::HttpThrottled {
        site.throttle.obey(&resolver.name, trace.retry_after);
    } else if outcome.says() == Says::Fails
        && let Transport::Doh(endpoint) = &resolver.transport
    {
        site.bootstrap.doubt(endpoint);
    }
}

async fn speak(
    site: &Site,
    limits: &Limits,
    resolver: &Resolver,
    question: &Question,
    trace: &mut Trace,
) -> Result<Reply, Outcome> {
    match &resolver.transport {
        // Boxed apart: what hangs in one does not hold the room of the others.
        Transport::Live => Box::pin(live(site, limits, question, trace)).await,
        Transport::Plain { server } => {
            permitted(site, *server, trace)?;
            let plain = Plain::of(site, limits, *server, Choice::Assigned);
            Box::pin(plain.ask(question, limits.resolve, trace)).await
        }
        Transport::Tcp { server } => {
            permitted(site, *server, trace)?;
            let plain = Plain::of(site, limits, *server, Choice::Assigned);
            Box::pin(plain.ask_stream(question, trace)).await
        }
        Transport::Dot { .. } | Transport::Doh(_) => Box::pin(pool::ask(site, limits, resolver, question, trace)).await,
    }
}

/// Whether the owner lets a resolver's server be contacted, and asked one question.
///
/// # Errors
/// Why not: never contacted, or the limit is used up.
pub fn permitted(site: &Site, server: SocketAddr, trace: &mut Trace) -> Result<(), Outcome> {
    trace.enter(Stage::Bootstrap, server.ip());
    site.policy.permits(server.ip(), server.port(), Role::Resolver).map_err(|denial| {
        tracing::debug!(%server, %denial, "resolver not contacted");
        denial.outcome()
    })?;
    allowance(site, server.ip())
}

/// One question out of the owner's allowance.
///
/// # Errors
/// [`Outcome::RateLimited`] when it is used up.
pub fn allowance(site: &Site, server: IpAddr) -> Result<(), Outcome> {
    site.policy.take_question(server).map_err(|denial| {
        tracing::debug!(%server, %denial, "question left out");
        denial.outcome()
    })
}

/// Asks the servers of the live resolver in order, as clients do: the next one when a server does
/// not answer, or answers that it cannot or will not.
async fn live(site: &Site, limits: &Limits, question: &Question, trace: &mut Trace) -> Result<Reply, Outcome> {
    let servers = site.live.servers();
    let share = limits.resolve / u32::try_from(servers.len().max(1)).unwrap_or(u32::MAX);
    let mut last = Err(Outcome::NoResolver);
    for server in servers {
        allowance(site, server.ip())?;
        // What was noted of the server before is not of this one; odd datagrams are of the question.
        (trace.reply, trace.decided) = (ReplyParticulars::default(), None);
        let server = Plain::of(site, limits, server, Choice::Own);
        let asked = server.ask(question, share, trace);
        last = match timeout(share, asked).await {
            Ok(ended) => ended,
            Err(_) => Err(trace.silence()),
        };
        // Another server may know or do what this one cannot or will not.
        let elsewhere = [Outcome::Servfail, Outcome::Refused, Outcome::Formerr, Outcome::OtherRcode, Outcome::Referral];
        if last.as_ref().is_ok_and(|reply| !elsewhere.contains(&reply.outcome)) {
            break;
        }
    }
    last
}

#[cfg(test)]
#[cfg(feature = "lab")]
mod tests {
    use parallax_decide::observation::Family;

    use super::*;
    use crate::dial::Dialer;
    use crate::local::Allow;
    use crate::policy::Policy;
    use crate::probe::doh::{DohEndpoint, Form};
    use crate::probe::testing::{Authority, limits, refused_port};

    #[tokio::test(start_paused = true)]
    async fn an_address_that_may_not_be_contacted_does_not_hide_how_another_failed() {
        let folder = tempfile::tempdir().unwrap();
        let map = folder.path().join("map.json");
        std::fs::write(&map, format!("{{\"9.9.9.9:443\": \"{}\"}}", refused_port())).unwrap();
        let site = Site {
            dialer: Dialer::mapped(map),
            policy: Policy::new(Allow::default()),
            ..crate::probe::testing::doh::place(Authority::new().trust())
        };
        let question = Question { name: "example.com".parse().unwrap(), family: Family::V4 };
        let (public, private): (IpAddr, IpAddr) = ([9, 9, 9, 9].into(), [10, 0, 0, 1].into());
        for (addresses, stage, outcome) in [
            (vec![public, private], Stage::Tcp, Outcome::ConnectionRefused),
            (vec![private, public], Stage::Tcp, Outcome::ConnectionRefused),
            (vec![private], Stage::Bootstrap, Outcome::SpecialAddress),
        ] {
            let url = http::Uri::from_static("https://dns.example/dns-query");
            let endpoint = DohEndpoint {
                url,
                host: "dns.example".into(),
                port: 443,
                addresses,
                bootstrap: Vec::new(),
                form: Form::WirePost,
                http: None,
            };
            let resolver = Resolver { name: "doh".parse().unwrap(), transport: Transport::Doh(endpoint) };
            let asked = ask(&site, &limits(), &resolver, &question).await;
            assert_eq!((asked.trace.stage, asked.ended), (stage, Err(outcome)));
        }
    }
}
