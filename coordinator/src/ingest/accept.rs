//! Accepts agents: TCP, the TLS handshake with a limit, and who it is.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use parallax_decide::names::VantageName;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::Connected;

use super::tls;

/// A handshake takes two round trips; a stalled one must not hold a place.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// Handshakes at the same time; more wait in the kernel's queue.
const HANDSHAKES_MAX: usize = 64;

/// Pause after a failed accept (no file descriptors left), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who is at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// From the certificate.
    pub vantage: VantageName,
    /// Where it connects from.
    pub remote: SocketAddr,
}

/// A connection with a known peer.
#[derive(Debug)]
pub struct Authenticated {
    stream: TlsStream<TcpStream>,
    peer: Peer,
}

/// Accepts until `shutdown` or until nobody takes the connections any more.
pub async fn run(
    listener: TcpListener,
    tls: Arc<ArcSwap<ServerConfig>>,
    sender: mpsc::Sender<io::Result<Authenticated>>,
    shutdown: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = async {
                let place = Arc::clone(&places).acquire_owned().await.ok();
                (listener.accept().await, place)
            } => accepted,
        };
        let (stream, remote, place) = match accepted {
            (Ok((stream, remote)), place) => (stream, remote, place),
            (Err(error), _) => {
                tracing::warn!(%error, "cannot accept an agent's connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (tls, sender) = (TlsAcceptor::from(tls.load_full()), sender.clone());
        tokio::spawn(async move {
            let _place = place;
            match tokio::time::timeout(HANDSHAKE_WITHIN, handshake(&tls, stream, remote)).await {
                Ok(Ok(connection)) => {
                    // An error means that the server has ended; the connection ends with it.
                    let _ = sender.send(Ok(connection)).await;
                }
                Ok(Err(error)) => tracing::info!(%remote, error, "refused a connection"),
                Err(_) => tracing::info!(%remote, "refused a connection: no TLS handshake in time"),
            }
        });
    }
}

async fn handshake(tls: &TlsAcceptor, stream: TcpStream, remote: SocketAddr) -> Result<Authenticated, String> {
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let stream = tls.accept(stream).await.map_err(|error| format!("TLS: {error}"))?;
    let (_, connection) = stream.get_ref();
    let certificate = connection.peer_certificates().and_then(|chain| chain.first()).ok_or("no client certificate")?;
    let vantage = tls::vantage_of(certificate).map_err(|why| format!("client certificate: {why}"))?;
    Ok(Authenticated { peer: Peer { vantage, remote }, stream })
}

impl Connected for Authenticated {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Authenticated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Authenticated {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
