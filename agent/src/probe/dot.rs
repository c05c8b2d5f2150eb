//! DNS over TLS (RFC 7858), and the TLS beneath DNS over HTTPS.

use std::net::SocketAddr;
use std::sync::Arc;

use parallax_decide::observation::{Outcome, Stage};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::Limits;
use super::ask::Trace;
use super::connection::attempts::connect;
use super::remark::add;
use crate::clock::{now, since};
use crate::dial::Segments;
use crate::site::Site;

/// A cold TLS stream to a resolver's endpoint; each stage is noted in `trace`.
///
/// # Errors
/// How the stage in `trace` failed.
pub async fn secured(
    site: &Site,
    tls: &Arc<ClientConfig>,
    server: SocketAddr,
    server_name: &str,
    limits: &Limits,
    trace: &mut Trace,
) -> Result<Box<TlsStream<TcpStream>>, Outcome> {
    secured_in(Segments::Usual, site, tls, server, server_name, limits, trace).await
}

/// As [`secured`], with segments of a chosen size: small ones pass where large packets vanish without a
/// word.
///
/// # Errors
/// As [`secured`].
pub async fn secured_in(
    segments: Segments,
    site: &Site,
    tls: &Arc<ClientConfig>,
    server: SocketAddr,
    server_name: &str,
    limits: &Limits,
    trace: &mut Trace,
) -> Result<Box<TlsStream<TcpStream>>, Outcome> {
    trace.enter(Stage::Tcp, server.ip());
    let name = ServerName::try_from(server_name.to_owned()).map_err(|_| Outcome::OwnTrouble)?;
    let start = now();
    let stream = Box::pin(connect(&site.dialer, limits, segments, server)).await.outcome?;
    trace.stages.tcp = since(start);
    trace.enter(Stage::Tls, server.ip());
    let begun = now();
    let shaken = site.trust.shake(tls, name, stream, limits.tls).await;
    trace.stages.tls = since(begun);
    trace.certificate = shaken.certificate;
    add(&mut trace.remark, &shaken.remark);
    shaken.stream
}

#[cfg(test)]
#[cfg(feature = "lab")]
mod tests;
