//! Mutual TLS to the coordinator, below the HTTP/2 library.
//!
//! The HTTP/2 library keeps an I/O error's kind and drops its cause, so the stream notes here what
//! the coordinator's TLS said about our certificate before it is lost.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::{AlertDescription, ClientConfig};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::dial::Dialer;

/// The name in the coordinator's certificate, whatever its address is.
pub const COORDINATOR_NAME: &str = "parallax-coordinator";

/// Longest wait for name look-up, TCP and TLS together.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Longest wait for the name look-up. A place whose DNS is broken is just the one we want to hear from.
const LOOKUP_MAX: Duration = Duration::from_secs(3);

/// Longest wait for one of several addresses.
const ADDRESS_MAX: Duration = Duration::from_secs(3);

/// What the coordinator's TLS said about our certificate, if it did.
pub type Verdict = Arc<Mutex<Option<String>>>;

/// The coordinator's address at the last good handshake: tried when its name cannot be looked up.
/// The certificate is checked there as everywhere.
pub type LastGood = Arc<Mutex<Option<SocketAddr>>>;

/// Opens the connection for one session.
#[derive(Debug, Clone)]
pub struct Connector {
    coordinator: String,
    tls: Arc<ClientConfig>,
    verdict: Verdict,
    last_good: LastGood,
}

impl Connector {
    /// Connects to `HOST:PORT`, or where it was found the last time.
    #[must_use]
    pub fn new(coordinator: String, tls: Arc<ClientConfig>, last_good: LastGood) -> Self {
        Self { coordinator, tls, verdict: Verdict::default(), last_good }
    }

    /// Where an alert about our certificate is noted.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        Arc::clone(&self.verdict)
    }

    async fn connect(self) -> io::Result<TokioIo<Watched>> {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no connection before the deadline");
        let stream = timeout(CONNECT_MAX, self.secured()).await.map_err(late)??;
        Ok(TokioIo::new(Watched { stream, verdict: self.verdict }))
    }

    async fn secured(&self) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(COORDINATOR_NAME).map_err(io::Error::other)?;
        let (stream, address) = self.tcp().await?;
        let shaken = TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await;
        let stream = shaken.inspect_err(|error| note(&self.verdict, error))?;
        *self.last_good.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
        Ok(stream)
    }

    /// Where the coordinator may be.
    async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let error = match timeout(LOOKUP_MAX, tokio::net::lookup_host(self.coordinator.as_str())).await {
            Ok(Ok(found)) => return Ok(found.collect()),
            Ok(Err(error)) => error,
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, "its name could not be looked up in time"),
        };
        let known = *self.last_good.lock().unwrap_or_else(PoisonError::into_inner);
        let address = known.ok_or(error)?;
        tracing::debug!(coordinator = %self.coordinator, %address, "its name cannot be looked up; trying its last address");
        Ok(vec![address])
    }

    async fn tcp(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
        for address in self.addresses().await? {
            match timeout(ADDRESS_MAX, Dialer::direct().tcp(address)).await {
                Ok(Ok(stream)) => return Ok((stream, address)),
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(last)
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Watched>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}

fn note(verdict: &Verdict, error: &io::Error) {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    if let Some(rustls::Error::AlertReceived(alert)) = tls
        && is_about_certificate(*alert)
    {
        *verdict.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{alert:?}"));
    }
}

/// Whether an alert says that our certificate is not accepted (RFC 8446, 6.2); others are about TLS itself.
fn is_about_certificate(alert: AlertDescription) -> bool {
    use AlertDescription as A;
    matches!(
        alert,
        A::NoCertificate
            | A::BadCertificate
            | A::UnsupportedCertificate
            | A::CertificateRevoked
            | A::CertificateExpired
            | A::CertificateUnknown
            | A::UnknownCA
            | A::AccessDenied
            | A::DecryptError
            | A::CertificateRequired
    )
}

/// A TLS stream that notes alerts.
#[derive(Debug)]
pub struct Watched {
    stream: TlsStream<TcpStream>,
    verdict: Verdict,
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Poll::Ready(Err(error)) = &read {
            note(&self.verdict, error);
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::testing::Authority;

    #[tokio::test]
    async fn the_last_good_address_stands_in_for_a_name_that_cannot_be_looked_up() {
        let authority = Authority::new();
        let tls = authority.trust().targets;
        let last_good = LastGood::default();
        // Without a port the look-up fails before any resolver is asked.
        let connector = Connector::new("coordinator".into(), tls, Arc::clone(&last_good));
        assert!(connector.addresses().await.is_err());
        let address: SocketAddr = "127.0.0.1:8443".parse().unwrap();
        *last_good.lock().unwrap() = Some(address);
        assert_eq!(connector.addresses().await.unwrap(), [address]);
    }

    #[test]
    fn an_alert_about_tls_itself_is_no_verdict_on_our_certificate() {
        let noted = |alert| {
            let verdict = Verdict::default();
            note(&verdict, &io::Error::new(io::ErrorKind::InvalidData, rustls::Error::AlertReceived(alert)));
            verdict.lock().unwrap().take()
        };
        assert!(noted(AlertDescription::CertificateRevoked).is_some());
        assert!(noted(AlertDescription::ProtocolVersion).is_none());
    }
}
