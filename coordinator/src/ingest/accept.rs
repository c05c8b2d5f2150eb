//! Accepts agents: TCP, the TLS handshake with a limit, and who it is. An agent without a certificate may
//! only enrol, and gets a place of few for a short time; one with a certificate has as long for its greeting, and for
//! another stream after one that ended.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use super::handshakes::{Arriving, Handshakes};
use super::http2::Heard;
use super::records::Records;
use super::source::{FromOne, Sources};
use super::tls;
use crate::identity::keeper::{Held, Keeper};
use crate::store::certificate::Presented;

/// Pause after a failed accept (no file descriptors left), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections without a certificate at the same time: enrolling takes a second, and anybody can come.
const STRANGERS_MAX: usize = 256;

/// Of these, from one source: agents behind one router are set up by the dozen, and no source shall shut out others.
const STRANGERS_OF_ONE_MAX: usize = 32;

/// Life of a connection without a certificate.
const STRANGER_LIFE: Duration = Duration::from_secs(30);

/// Longest time for which a connection that has not greeted keeps a place: an agent gives up after as long.
const GREETING_MAX: Duration = Duration::from_secs(10);

/// Life of a connection with a certificate whose stream never greets, and of one after its last stream has ended: a
/// certificate alone is no reason to stay. It is looked at when something is read, and the answers to HTTP/2 pings are
/// what is read from one that has nothing to say.
const UNSETTLED_LIFE: Duration = Duration::from_secs(30);

/// Between two lines of the log about connections that were closed.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Who is at the other end.
#[derive(Debug, Clone)]
pub struct Peer {
    /// What its certificate says; none: it came without and may only enrol.
    pub certificate: Option<Presented>,
    /// Where it connects from.
    pub remote: SocketAddr,
    /// Its way in, until its stream has greeted; none without a certificate.
    pub arriving: Option<Arriving>,
}

/// A connection after its handshake.
#[derive(Debug)]
pub struct Connection {
    stream: Records,
    /// Kept once: the connection, what serves it and its stream all ask for it.
    pub(super) peer: Arc<Peer>,
    /// Notes that something came.
    pub(super) heard: Heard,
    /// When it ends; none while a stream of it has greeted.
    end: Option<Pin<Box<Sleep>>>,
    /// Of one without a certificate.
    _place: Option<Box<Place>>,
}

/// Places for those without a certificate. Clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct Strangers {
    places: Arc<Semaphore>,
    sources: Sources,
}

#[derive(Debug)]
struct Place {
    _one: OwnedSemaphorePermit,
    _source: FromOne,
}

impl Default for Strangers {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(STRANGERS_MAX)), sources: Sources::new(STRANGERS_OF_ONE_MAX) }
    }
}

impl Strangers {
    fn enter(&self, source: IpAddr) -> Result<Place, &'static str> {
        let source = self.sources.enter(source).ok_or("too many agents without a certificate from there at once")?;
        let one = Arc::clone(&self.places).try_acquire_owned();
        Ok(Place { _one: one.map_err(|_| "too many agents without a certificate at once")?, _source: source })
    }
}

/// Accepts until `shutdown` or until nobody takes the connections any more.
pub async fn run(
    listener: TcpListener,
    keeper: Arc<Keeper>,
    sender: mpsc::Sender<Connection>,
    shutdown: CancellationToken,
) {
    let strangers = Strangers::default();
    let mut handshakes = Handshakes::default();
    let mut tell = tokio::time::interval(TELL_EVERY);
    loop {
        let (stream, remote, leave) = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => {
                match accepted {
                    Ok((stream, remote)) => handshakes.push((stream, remote), remote.ip()),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept an agent's connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
                continue;
            }
            ((stream, remote), leave) = handshakes.next() => (stream, remote, leave),
            _ = tell.tick() => {
                let closed = handshakes.closed();
                if closed > 0 {
                    tracing::warn!(closed, "too many connections at once; some were closed and come back later");
                }
                continue;
            }
        };
        let held = keeper.held();
        let (sender, strangers) = (sender.clone(), strangers.clone());
        tokio::spawn(async move {
            // Boxed: a handshake's state must not stay for as long as its place is kept.
            let connection = Box::pin(async {
                tokio::select! {
                    connection = handshake(&held, stream, remote, &strangers) => connection,
                    () = leave.overdue() => Err("no TLS handshake in time".to_owned()),
                }
            })
            .await;
            match connection {
                Ok(mut connection) if connection.peer.certificate.is_some() => {
                    let arriving = Arriving::new(leave);
                    Arc::make_mut(&mut connection.peer).arriving = Some(arriving.clone());
                    // An error means that the server has ended; the connection ends with it.
                    let _ = sender.send(connection).await;
                    tokio::time::sleep(GREETING_MAX).await;
                    arriving.give_way();
                }
                Ok(connection) => {
                    // Those have a limit of their own.
                    drop(leave);
                    let _ = sender.send(connection).await;
                }
                Err(error) => tracing::info!(%remote, error, "refused a connection"),
            }
        });
    }
}

pub(super) async fn handshake(
    held: &Held,
    stream: TcpStream,
    remote: SocketAddr,
    strangers: &Strangers,
) -> Result<Connection, String> {
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let stream = Records::accept(Arc::clone(&held.tls), stream).await.map_err(|error| format!("TLS: {error}"))?;
    let heard = Heard::default();
    let chain = stream.peer_certificates().unwrap_or_default();
    let Some(certificate) = chain.first() else {
        let place = Some(Box::new(strangers.enter(remote.ip())?));
        let peer = Arc::new(Peer { certificate: None, remote, arriving: None });
        return Ok(Connection { stream, peer, heard, end: end_after(STRANGER_LIFE), _place: place });
    };
    let mut presented = tls::presented(certificate).map_err(|why| format!("client certificate: {why}"))?;
    presented.authority_sha256 = held.bundle.vouching(chain);
    let peer = Arc::new(Peer { certificate: Some(presented), remote, arriving: None });
    Ok(Connection { stream, peer, heard, end: end_after(UNSETTLED_LIFE), _place: None })
}

fn end_after(life: Duration) -> Option<Pin<Box<Sleep>>> {
    Some(Box::pin(tokio::time::sleep(life)))
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(arriving) = &self.peer.arriving {
            arriving.give_way();
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.peer.arriving.as_ref().is_some_and(Arriving::is_settled) {
            self.end = None;
        } else if self.end.is_none() {
            self.end = end_after(UNSETTLED_LIFE);
        }
        if let Some(end) = &mut self.end
            && end.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.heard.note();
        }
        read
    }
}

impl AsyncWrite for Connection {
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
