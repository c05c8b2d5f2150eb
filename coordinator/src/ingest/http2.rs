//! HTTP/2 of one connection, spoken through h2 in one task: its frames, its requests, and what they are answered. tonic's
//! own server keeps three tasks, a router and a watcher of shutdowns for each connection, 5 KiB above what h2 needs, and
//! there are ten thousand of them (docs/bench.md, P6). Messages and statuses are tonic's all the same.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::server::{Builder, SendResponse};
use h2::{Ping, PingPong, Reason, RecvStream, SendStream};
use hyper::body::{Frame, SizeHint};
use parallax_proto::v1::enrolment_server::EnrolmentServer;
use parallax_proto::v1::probe_server::ProbeServer;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;
use tonic::codegen::{Body, Bytes, Service as _, http};

use super::accept::{Connection, Peer};
use super::{enrolment, session};

/// Between two looks at whether the other end said something. After the first look without a word it is asked for one.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Looks without a word after which the path is dead: it had two of them to answer. A dead path is noticed within 20 s.
const SILENT_LOOKS_MAX: u8 = 3;

/// Bytes that an agent may send on a stream or a connection before they are read: a batch of an agent is up to 64 KiB,
/// and what was sent and not read is held here.
const WINDOW_BYTES: u32 = 64 << 10;

/// Largest header block of a request, in bytes: ours have some hundred.
const HEADERS_BYTES_MAX: u32 = 4 << 10;

/// Streams of one connection: an agent needs one, and a second while the first dies.
const STREAMS_MAX: u32 = 4;

/// Bytes of answers that wait for the other end's window; past that an answer is not asked for more.
const UNSENT_BYTES_MAX: usize = 64 << 10;

/// Where the paths of enrolment begin; the probe's service refuses what it does not know.
const ENROLMENT: &str = "/parallax.probe.v1.Enrolment/";

/// What is served.
#[derive(Debug, Clone)]
pub(super) struct Services {
    /// To agents with a certificate.
    pub(super) probe: ProbeServer<session::Service>,
    /// To those without.
    pub(super) enrolment: EnrolmentServer<enrolment::Service>,
}

/// Whether something was read of a connection since the last look. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub(super) struct Heard(Arc<AtomicBool>);

impl Heard {
    /// Something was.
    pub(super) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// Opens HTTP/2 on a connection and has it served until it ends, as one of `connections`. After `shutdown` it takes no more
/// requests, and ends with the last of those it has.
pub(super) async fn open(
    connection: Connection,
    services: Arc<Services>,
    connections: TaskTracker,
    shutdown: CancellationToken,
) {
    let (peer, heard) = (Arc::clone(&connection.peer), connection.heard.clone());
    let mut builder = Builder::new();
    builder
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_header_list_size(HEADERS_BYTES_MAX)
        .max_concurrent_streams(STREAMS_MAX)
        .max_send_buffer_size(UNSENT_BYTES_MAX);
    let mut http2 = match builder.handshake::<_, Bytes>(Box::new(connection)).await {
        Ok(http2) => http2,
        Err(error) => return tracing::debug!(remote = %peer.remote, %error, "no HTTP/2"),
    };
    let Some(pings) = http2.ping_pong() else { return };
    let path = Path { heard, pings, looks: looks(), silent: 0 };
    let ending = Some(Box::pin(shutdown.cancelled_owned()));
    // A task of its own: this one still has room for the handshake.
    connections.spawn(Serving { http2, path, peer, services, ending, answers: Vec::new() });
}

/// A connection that is served. Written out and not as an async function, which keeps room for what it has moved on.
struct Serving {
    /// The connection in it is boxed: both then fill what the allocator sets aside for each, together 0.7 KiB less.
    http2: h2::server::Connection<Box<Connection>, Bytes>,
    path: Path,
    peer: Arc<Peer>,
    services: Arc<Services>,
    /// The coordinator's end; none once it has come.
    ending: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// One, mostly, and never more than `STREAMS_MAX`: all are asked at each turn.
    answers: Vec<Answer>,
}

impl Future for Serving {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { http2, path, peer, services, ending, answers } = self.get_mut();
        if path.poll_dead(context).is_ready() {
            tracing::debug!(remote = %peer.remote, "a connection says nothing any more");
            return Poll::Ready(());
        }
        if ending.as_mut().is_some_and(|ending| ending.as_mut().poll(context).is_ready()) {
            *ending = None;
            http2.graceful_shutdown();
        }
        loop {
            // Answers first: what they send goes out with the frames of the same turn.
            answers.retain_mut(|answer| Pin::new(answer).poll(context).is_pending());
            match ready!(http2.poll_accept(context)) {
                Some(Ok((mut request, respond))) => {
                    request.extensions_mut().insert(Arc::clone(peer));
                    answers.reserve_exact(1);
                    answers.push(Answer::to(request.map(Incoming), respond, services));
                }
                Some(Err(error)) => {
                    tracing::debug!(remote = %peer.remote, %error, "a connection broke");
                    return Poll::Ready(());
                }
                None => return Poll::Ready(()),
            }
        }
    }
}

fn looks() -> Interval {
    let mut looks = interval(LOOK_EVERY);
    // Not at once.
    looks.reset();
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

/// The way to the other end, asked for a sign of life when nothing comes.
struct Path {
    heard: Heard,
    pings: PingPong,
    looks: Interval,
    silent: u8,
}

impl Path {
    /// Ready when it is dead.
    fn poll_dead(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.looks.poll_tick(context).is_ready() {
            self.silent = if self.heard.take() { 0 } else { self.silent.saturating_add(1) };
            if self.silent >= SILENT_LOOKS_MAX {
                return Poll::Ready(());
            }
            if self.silent == 1 {
                // Refused while the last question is not answered, which is as good.
                let _ = self.pings.send_ping(Ping::opaque());
            }
        }
        // An answer is heard like everything else; it is taken so that the next question can be asked. An error is the
        // connection's, which ends by it.
        let _ = self.pings.poll_pong(context);
        Poll::Pending
    }
}

/// The answer to one request; ready when it is out, or nobody wants it any more.
enum Answer {
    /// It is made.
    Made(
        Pin<Box<dyn Future<Output = Result<http::Response<tonic::body::Body>, Infallible>> + Send>>,
        SendResponse<Bytes>,
    ),
    /// It is sent.
    Sent(Sending),
}

/// An answer on its way.
struct Sending {
    body: tonic::body::Body,
    down: SendStream<Bytes>,
    /// Waits for the other end's window.
    waiting: Option<Bytes>,
}

impl Answer {
    fn to(request: http::Request<Incoming>, respond: SendResponse<Bytes>, services: &Services) -> Self {
        let made = match request.uri().path().starts_with(ENROLMENT) {
            true => services.enrolment.clone().call(request),
            false => services.probe.clone().call(request),
        };
        Self::Made(made, respond)
    }
}

impl Future for Answer {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            let (response, respond) = match this {
                Self::Sent(sending) => return sending.poll(context),
                Self::Made(made, respond) => match made.as_mut().poll(context) {
                    Poll::Ready(Ok(response)) => (response, respond),
                    Poll::Ready(Err(never)) => match never {},
                    // Whether it is wanted no more, or the connection broke.
                    Poll::Pending => return respond.poll_reset(context).map(|_| ()),
                },
            };
            let (mut head, body) = response.into_parts();
            // Not for the table of headers that h2 keeps: there is one answer on a connection, and nothing to find again.
            head.headers.values_mut().for_each(|value| value.set_sensitive(true));
            let is_all = body.is_end_stream();
            match respond.send_response(http::Response::from_parts(head, ()), is_all) {
                Ok(down) if !is_all => *this = Self::Sent(Sending { body, down, waiting: None }),
                // All is said, or the connection or the request is gone.
                Ok(_) | Err(_) => return Poll::Ready(()),
            }
        }
    }
}

impl Sending {
    /// Sends what the body yields, as fast as it is taken. Ready when that is all, or nothing more can be sent.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.down.poll_reset(context).is_ready() {
            return Poll::Ready(());
        }
        loop {
            if self.waiting.is_some() {
                while self.down.capacity() == 0 {
                    let Some(Ok(_)) = ready!(self.down.poll_capacity(context)) else { return Poll::Ready(()) };
                }
            }
            if let Some(data) = self.waiting.take()
                && self.down.send_data(data, false).is_err()
            {
                return Poll::Ready(());
            }
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                Some(Err(_)) => {
                    self.down.send_reset(Reason::INTERNAL_ERROR);
                    return Poll::Ready(());
                }
                None => {
                    let _ = self.down.send_data(Bytes::new(), true);
                    return Poll::Ready(());
                }
            };
            match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => {
                    // One byte: what is sent is counted by h2 itself.
                    self.down.reserve_capacity(1);
                    self.waiting = Some(data);
                }
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        let _ = self.down.send_trailers(trailers);
                        return Poll::Ready(());
                    }
                }
            }
        }
    }
}

/// The body of a request.
#[derive(Debug)]
struct Incoming(RecvStream);

impl Body for Incoming {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let ends = |error: &h2::Error| matches!(error.reason(), Some(Reason::NO_ERROR | Reason::CANCEL));
        match self.0.poll_data(context) {
            Poll::Ready(Some(Ok(data))) => {
                // Fails when the stream is gone, and then nobody counts any more.
                let _ = self.0.flow_control().release_capacity(data.len());
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            // It was given up, which is an end like another.
            Poll::Ready(Some(Err(error))) if ends(&error) => Poll::Ready(None),
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error))),
            Poll::Ready(None) => match self.0.poll_trailers(context) {
                Poll::Ready(Ok(trailers)) => Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers)))),
                Poll::Ready(Err(error)) if ends(&error) => Poll::Ready(None),
                Poll::Ready(Err(error)) => Poll::Ready(Some(Err(error))),
                Poll::Pending => Poll::Pending,
            },
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_path_that_says_nothing_is_asked_and_then_dead_and_one_that_answers_is_not() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 10);
        // The preface and empty settings (RFC 9113, 3.4), and then silence.
        theirs.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let mut http2 = h2::server::handshake(ours).await.unwrap();
        let heard = Heard::default();
        let pings = http2.ping_pong().unwrap();
        let mut path = Path { heard: heard.clone(), pings, looks: looks(), silent: 0 };
        let hour = Duration::from_secs(3600);
        let lives = async {
            loop {
                tokio::time::sleep(Duration::from_secs(9)).await;
                heard.note();
            }
        };
        tokio::select! {
            () = std::future::poll_fn(|context| path.poll_dead(context)) => panic!("dead, and something came every 9 s"),
            never = timeout(hour, lives) => assert!(never.is_err()),
        }
        let mut dead = std::future::poll_fn(|context| path.poll_dead(context));
        assert!(timeout(Duration::from_secs(10), &mut dead).await.is_err(), "it had no time to answer");
        assert!(timeout(Duration::from_secs(11), &mut dead).await.is_ok(), "more than 20 s");
    }
}
