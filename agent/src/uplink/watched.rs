//! The stream below the HTTP/2 library, which notes what TLS says about our certificate.
//!
//! The HTTP/2 library keeps an I/O error's kind and drops its cause, so the stream notes here what
//! the coordinator's TLS said about our certificate before it is lost.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::AlertDescription;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// What the coordinator's TLS said about our certificate, if it did.
#[derive(Debug, Clone, Default)]
pub struct Verdict(Arc<Mutex<Option<String>>>);

impl Verdict {
    /// What was said, once.
    #[must_use]
    pub fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn note(&self, error: &io::Error) {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(rustls::Error::AlertReceived(alert)) = tls
            && is_about_certificate(*alert)
        {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{alert:?}"));
        }
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

impl Watched {
    /// Notes them in this verdict.
    #[must_use]
    pub fn new(stream: TlsStream<TcpStream>, verdict: Verdict) -> Self {
        Self { stream, verdict }
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Poll::Ready(Err(error)) = &read {
            self.verdict.note(error);
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

/// Hands an open stream to the HTTP/2 library, once: a lost connection is a lost session.
#[derive(Debug)]
pub struct Once(Option<Watched>);

impl Once {
    /// This stream.
    #[must_use]
    pub fn new(stream: Watched) -> Self {
        Self(Some(stream))
    }
}

impl tower_service::Service<Uri> for Once {
    type Response = TokioIo<Watched>;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let ended = || io::Error::new(io::ErrorKind::NotConnected, "the connection has ended");
        std::future::ready(self.0.take().map(TokioIo::new).ok_or_else(ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_about_tls_itself_is_no_verdict_on_our_certificate() {
        let noted = |alert| {
            let verdict = Verdict::default();
            verdict.note(&io::Error::new(io::ErrorKind::InvalidData, rustls::Error::AlertReceived(alert)));
            verdict.take()
        };
        assert!(noted(AlertDescription::CertificateRevoked).is_some());
        assert!(noted(AlertDescription::ProtocolVersion).is_none());
    }
}
