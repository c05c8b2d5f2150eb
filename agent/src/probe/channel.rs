//! An open way to a resolver that questions can be put to, one after another.

use std::net::{IpAddr, SocketAddr};

use futures_util::FutureExt as _;
use parallax_decide::observation::{Outcome, Stage};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::Limits;
use super::ask::{Trace, permitted};
use super::connection::attempts::connect;
use super::doh::http::Http;
use super::doh::{self, DohEndpoint};
use super::message::{Question, Reply};
use super::plain::{Choice, Plain, framed};
use super::{dot, trouble};
use crate::assignment::{Resolver, Transport};
use crate::clock::{now, since};
use crate::dial::Segments;
use crate::measured::Carrier;
use crate::site::Site;

/// An open way.
#[derive(Debug)]
pub enum Channel {
    /// Datagrams: every question has a socket of its own.
    Datagrams(SocketAddr),
    /// DNS over TCP.
    Tcp(TcpStream),
    /// DNS over TLS.
    Tls(Box<TlsStream<TcpStream>>),
    /// DNS over HTTPS.
    Http(Box<Http>),
}

impl Channel {
    /// Opens a cold one. The live resolver has none: it is asked like clients ask it.
    ///
    /// # Errors
    /// How the stage in `trace` failed.
    pub async fn open(site: &Site, limits: &Limits, resolver: &Resolver, trace: &mut Trace) -> Result<Self, Outcome> {
        match &resolver.transport {
            Transport::Live => Err(Outcome::OwnTrouble),
            Transport::Plain { server } => {
                permitted(site, *server, trace)?;
                Ok(Self::Datagrams(*server))
            }
            Transport::Tcp { server } => {
                permitted(site, *server, trace)?;
                trace.enter(Stage::Tcp, server.ip());
                let start = now();
                let stream = Box::pin(connect(&site.dialer, limits, Segments::Usual, *server)).await.outcome?;
                trace.stages.tcp = since(start);
                Ok(Self::Tcp(stream))
            }
            Transport::Dot { server, server_name } => {
                permitted(site, *server, trace)?;
                dot::secured(site, &site.trust.dot, *server, server_name, limits, trace).await.map(Self::Tls)
            }
            Transport::Doh(endpoint) => {
                let addresses = Box::pin(site.bootstrap.addresses(site, limits, endpoint, trace)).await?;
                Box::pin(Self::open_http(site, limits, endpoint, &addresses, trace)).await
            }
        }
    }

    /// Tries the addresses of a DoH endpoint in order until one takes a connection.
    async fn open_http(
        site: &Site,
        limits: &Limits,
        endpoint: &DohEndpoint,
        addresses: &[IpAddr],
        trace: &mut Trace,
    ) -> Result<Self, Outcome> {
        let mut last = None;
        let limits = shared(limits, addresses.len());
        for address in addresses {
            let before = trace.clone();
            if let Err(refused) = permitted(site, SocketAddr::new(*address, endpoint.port), trace) {
                match last {
                    // How a permitted address failed says more than that another was not contacted.
                    Some(_) => *trace = before,
                    None => last = Some(refused),
                }
                continue;
            }
            // What was learnt of an address that failed is not true of the next one.
            let bootstrap = trace.stages.bootstrap;
            *trace = Trace { stage: trace.stage, address: trace.address, ..Trace::default() };
            trace.stages.bootstrap = bootstrap;
            match doh::open(site, endpoint, *address, &limits, trace).await {
                Ok(http) => return Ok(Self::Http(Box::new(http))),
                Err(outcome) => last = Some(outcome),
            }
        }
        Err(last.unwrap_or(Outcome::OwnTrouble))
    }

    /// Whether the other side has closed it, as far as is known here.
    #[must_use]
    pub fn is_closed(&mut self) -> bool {
        match self {
            Self::Datagrams(_) => false,
            // Nothing was asked: an end, an error, or bytes that nobody expects.
            Self::Tcp(stream) => stream.read_u8().now_or_never().is_some(),
            Self::Tls(stream) => stream.read_u8().now_or_never().is_some(),
            Self::Http(http) => http.is_closed(),
        }
    }

    /// The same way for another user; `None`: it carries one question at a time.
    #[must_use]
    pub fn share(&self) -> Option<Self> {
        match self {
            Self::Datagrams(server) => Some(Self::Datagrams(*server)),
            Self::Tcp(_) | Self::Tls(_) => None,
            Self::Http(http) => http.share().map(|http| Self::Http(Box::new(http))),
        }
    }

    /// Puts a question to it and waits for the reply, for at most the limit of its kind.
    ///
    /// # Errors
    /// How the stage in `trace` failed.
    pub async fn ask(
        &mut self,
        site: &Site,
        limits: &Limits,
        resolver: &Resolver,
        question: &Question,
        trace: &mut Trace,
    ) -> Result<Reply, Outcome> {
        match self {
            Self::Datagrams(server) => {
                Plain::of(site, limits, *server, Choice::Assigned).ask(question, limits.resolve, trace).await
            }
            Self::Tcp(stream) => over(stream, Carrier::Tcp, limits, question, trace).await,
            Self::Tls(stream) => over(stream, Carrier::Tls, limits, question, trace).await,
            Self::Http(http) => match &resolver.transport {
                Transport::Doh(endpoint) => http.ask(endpoint, question, limits.http, trace).await,
                Transport::Live | Transport::Plain { .. } | Transport::Tcp { .. } | Transport::Dot { .. } => {
                    Err(Outcome::OwnTrouble)
                }
            },
        }
    }
}

async fn over<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    carrier: Carrier,
    limits: &Limits,
    question: &Question,
    trace: &mut Trace,
) -> Result<Reply, Outcome> {
    let (begun, address) = (now(), trace.address);
    trace.enter(Stage::Dns, address);
    trace.reply.transport = Some(carrier);
    let ended = timeout(limits.resolve, framed(stream, carrier, true, question, trace)).await;
    trace.stages.dns = since(begun);
    ended.unwrap_or(Err(trouble::silence(Stage::Dns)))
}

/// Limits that leave every one of so many addresses its turn within the whole.
fn shared(limits: &Limits, addresses: usize) -> Limits {
    let parts = u32::try_from(addresses).unwrap_or(u32::MAX).saturating_add(1);
    let mut limits = limits.clone();
    if addresses > 1 {
        limits.connect = limits.connect.min(limits.resolve / parts);
    }
    limits
}
