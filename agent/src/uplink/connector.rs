//! Mutual TLS to the coordinator, below the HTTP/2 library.
//!
//! The HTTP/2 library keeps an I/O error's kind and drops its cause, so the stream notes here what
//! the coordinator's TLS said about our certificate before it is lost.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
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

/// Longest wait for one of several addresses.
const ADDRESS_MAX: Duration = Duration::from_secs(3);

/// What the coordinator's TLS said about our certificate, if it did.
pub type Verdict = Arc<Mutex<Option<String>>>;

/// Opens the connection for one session.
#[derive(Debug, Clone)]
pub struct Connector {
    coordinator: String,
    tls: Arc<ClientConfig>,
    verdict: Verdict,
}

impl Connector {
    /// Connects to `HOST:PORT`.
    #[must_use]
    pub fn new(coordinator: String, tls: Arc<ClientConfig>) -> Self {
        Self { coordinator, tls, verdict: Verdict::default() }
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
        let stream = self.tcp().await?;
        let shaken = TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await;
        shaken.inspect_err(|error| note(&self.verdict, error))
    }

    async fn tcp(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
        for address in tokio::net::lookup_host(self.coordinator.as_str()).await? {
            match timeout(ADDRESS_MAX, Dialer::direct().tcp(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
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
    if let Some(rustls::Error::AlertReceived(alert)) = tls {
        *verdict.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{alert:?}"));
    }
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
