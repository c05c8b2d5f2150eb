//! DNS over HTTPS (RFC 8484): the wire format by POST or GET, and the JSON form of the large public
//! services, over HTTP/2 or HTTP/1.1.
//!
//! `request` builds the question of each form, [`http`] carries it, `response` says what an
//! answer is worth by its status and [`media`] type, [`json`] reads the JSON form and [`retry`] how
//! long a server wants to be left alone. Redirects are not followed: the endpoint that was configured
//! is the one that is measured.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ::http::Uri;
use parallax_decide::observation::Outcome;
use rustls::ClientConfig;

use self::http::Http;
use super::Limits;
use super::ask::Trace;
use super::dot::secured;
use crate::site::Site;
use crate::tls::Trust;

pub mod http;
mod http2;
pub mod json;
pub mod media;
mod request;
mod response;
pub mod retry;

/// A DoH endpoint of the assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DohEndpoint {
    /// The whole https URL.
    pub url: Uri,
    /// Host of the URL: TLS server name.
    pub host: String,
    /// Port of the URL; 443 when it names none.
    pub port: u16,
    /// Addresses to connect to, in order. Empty: the host is looked up at the bootstrap servers.
    pub addresses: Vec<IpAddr>,
    /// Plain DNS servers that know the host.
    pub bootstrap: Vec<SocketAddr>,
    /// How it is asked.
    pub form: Form,
    /// HTTP version; `None`: HTTP/2, else HTTP/1.1 where the server does not offer it.
    pub http: Option<HttpVersion>,
}

/// How a DoH endpoint is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// DNS message in a POST (RFC 8484): no HTTP cache answers it.
    WirePost,
    /// DNS message in base64url in a GET (RFC 8484).
    WireGet,
    /// `?name=&type=` and a JSON document: the form of the large public resolvers; no standard.
    Json,
}

/// An HTTP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

impl Form {
    /// For people: what was asked.
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Self::WirePost => "a DNS message by POST",
            Self::WireGet => "a DNS message by GET",
            Self::Json => "a question in the JSON form",
        }
    }

    /// The keys of the coordinator's configuration that choose it.
    #[must_use]
    pub fn keys(self) -> &'static str {
        match self {
            Self::WirePost => "format wire, method post",
            Self::WireGet => "format wire, method get",
            Self::Json => "format json",
        }
    }
}

impl DohEndpoint {
    /// The TLS configuration that offers its versions of HTTP.
    #[must_use]
    pub fn tls<'a>(&self, trust: &'a Trust) -> &'a Arc<ClientConfig> {
        match self.http {
            None => &trust.doh,
            Some(HttpVersion::Http1) => &trust.web,
            Some(HttpVersion::Http2) => &trust.doh_http2,
        }
    }
}

/// A cold HTTP connection to one of the endpoint's addresses.
///
/// # Errors
/// How the stage in `trace` failed.
pub async fn open(
    site: &Site,
    endpoint: &DohEndpoint,
    address: IpAddr,
    limits: &Limits,
    trace: &mut Trace,
) -> Result<Http, Outcome> {
    let server = SocketAddr::new(address, endpoint.port);
    let stream = secured(site, endpoint.tls(&site.trust), server, &endpoint.host, limits, trace).await?;
    Box::pin(Http::over(stream, endpoint.http, trace)).await
}

#[cfg(test)]
#[cfg(feature = "lab")]
mod tests;
