//! One HTTP connection to a DoH server, and what its errors say.

use std::error::Error as _;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parallax_decide::observation::{Outcome, Stage};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::request::{request, request_of};
use super::response::body;
use super::{DohEndpoint, Form, HttpVersion, json};
use crate::clock::{now, since};
use crate::measured::Carrier;
use crate::probe::ask::Trace;
use crate::probe::message::{Question, Reply};
use crate::probe::remark::{add, harmless};
use crate::probe::trouble::trouble;

/// Most bytes of headers, and most that a server may send us unread: an answer fits, with its frames.
const HEADER_BYTES_MAX: usize = 16 << 10;
const WINDOW: u32 = 1 << 16;

/// Most requests of ours that wait in one HTTP/2 connection, in bytes.
const SEND_BYTES_MAX: usize = 4 << 10;

/// Longest part of a comment in a remark, in characters.
const COMMENT_MAX: usize = 100;

/// How long the connection's own task may take to tell why it ended; it has ended already.
const REASON_WAIT_MAX: Duration = Duration::from_millis(100);

/// An open connection.
#[derive(Debug)]
pub struct Http {
    sender: Sender,
    running: Arc<Running>,
    address: IpAddr,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// The connection's own task; it ends with the last user of the connection.
#[derive(Debug)]
struct Running(tokio::sync::Mutex<Option<JoinHandle<hyper::Result<()>>>>, tokio::task::AbortHandle);

impl Running {
    fn new(task: JoinHandle<hyper::Result<()>>) -> Arc<Self> {
        let abort = task.abort_handle();
        Arc::new(Self(tokio::sync::Mutex::new(Some(task)), abort))
    }

    /// Why the task ended; `None` when it did not, or somebody else was told.
    async fn reason(&self) -> Option<hyper::Error> {
        let task = self.0.lock().await.take()?;
        timeout(REASON_WAIT_MAX, task).await.ok()?.ok()?.err()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.1.abort();
    }
}

impl Http {
    /// Speaks HTTP over a TLS stream: the version that was agreed on, HTTP/1.1 where none was.
    ///
    /// # Errors
    /// How it failed.
    pub async fn over(
        stream: Box<TlsStream<TcpStream>>,
        wanted: Option<HttpVersion>,
        trace: &mut Trace,
    ) -> Result<Self, Outcome> {
        let address = trace.address;
        trace.enter(Stage::Http, address);
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        if !http2 && wanted == Some(HttpVersion::Http2) {
            // Without ALPN there is no HTTP/2 over TLS (RFC 9113, 3.2).
            add(&mut trace.remark, "the server does not offer HTTP/2; leave the endpoint's HTTP version open");
            return Err(Outcome::HttpUnsupported);
        }
        let io = TokioIo::new(stream);
        if http2 {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .initial_stream_window_size(WINDOW)
                .initial_connection_window_size(2 * WINDOW)
                .max_header_list_size(u32::try_from(HEADER_BYTES_MAX).unwrap_or(u32::MAX))
                .max_send_buf_size(SEND_BYTES_MAX);
            let (sender, connection) = builder.handshake(io).await.map_err(|error| named(&error))?;
            trace.reply.transport = Some(Carrier::Http2);
            Ok(Self { sender: Sender::Http2(sender), running: Running::new(tokio::spawn(connection)), address })
        } else {
            let mut builder = http1::Builder::new();
            builder.max_buf_size(HEADER_BYTES_MAX);
            let (sender, connection) = builder.handshake(io).await.map_err(|error| named(&error))?;
            trace.reply.transport = Some(Carrier::Http1);
            Ok(Self { sender: Sender::Http1(sender), running: Running::new(tokio::spawn(connection)), address })
        }
    }

    /// Whether the server has closed it, as far as is known.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
        }
    }

    /// The same connection for another user; `None`: this version has one request at a time.
    #[must_use]
    pub fn share(&self) -> Option<Self> {
        match &self.sender {
            Sender::Http1(_) => None,
            Sender::Http2(sender) => Some(Self {
                sender: Sender::Http2(sender.clone()),
                running: Arc::clone(&self.running),
                address: self.address,
            }),
        }
    }

    /// Asks one question and waits for its answer for at most `limit`.
    ///
    /// # Errors
    /// How it failed.
    pub async fn ask(
        &mut self,
        endpoint: &DohEndpoint,
        question: &Question,
        limit: Duration,
        trace: &mut Trace,
    ) -> Result<Reply, Outcome> {
        trace.enter(Stage::Http, self.address);
        let carrier = match self.sender {
            Sender::Http1(_) => Carrier::Http1,
            Sender::Http2(_) => Carrier::Http2,
        };
        trace.reply.transport = Some(carrier);
        let begun = now();
        let ended = timeout(limit, Box::pin(self.exchange(endpoint, question, trace))).await;
        trace.stages.http = since(begun);
        let body = match ended {
            Ok(body) => body?,
            Err(_) => return Err(trace.silence()),
        };
        trace.enter(Stage::Dns, self.address);
        let size = body.len();
        let message = match endpoint.form {
            Form::WirePost | Form::WireGet => body,
            Form::Json => {
                let written = match json::written(question, &body) {
                    Ok(written) => written,
                    Err(unfit) => return trace.settle(carrier, &body, Err(unfit)),
                };
                if !written.comment.is_empty() {
                    add(&mut trace.remark, &format!("it says: {}", harmless(&written.comment, COMMENT_MAX)));
                }
                Bytes::from(written.message)
            }
        };
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let ended = trace.settle(carrier, &message, question.read(0, &message));
        // What came, and not what it was written as.
        trace.reply.size = size;
        ended
    }

    async fn exchange(
        &mut self,
        endpoint: &DohEndpoint,
        question: &Question,
        trace: &mut Trace,
    ) -> Result<Bytes, Outcome> {
        let version = self.version();
        self.send(endpoint, request(endpoint, question, version)?, trace).await
    }

    /// Puts a message that is written already to the server; the body of its answer.
    ///
    /// # Errors
    /// How it failed; [`Outcome::OwnTrouble`] where the endpoint takes no messages.
    pub async fn exchange_message(&mut self, endpoint: &DohEndpoint, message: Vec<u8>) -> Result<Bytes, Outcome> {
        let request = request_of(endpoint, message, self.version())?;
        self.send(endpoint, request, &mut Trace::default()).await
    }

    fn version(&self) -> HttpVersion {
        match self.sender {
            Sender::Http1(_) => HttpVersion::Http1,
            Sender::Http2(_) => HttpVersion::Http2,
        }
    }

    async fn send(
        &mut self,
        endpoint: &DohEndpoint,
        request: Request<Full<Bytes>>,
        trace: &mut Trace,
    ) -> Result<Bytes, Outcome> {
        let sent = match &mut self.sender {
            Sender::Http1(sender) => match sender.ready().await {
                Ok(()) => sender.send_request(request).await,
                Err(error) => Err(error),
            },
            Sender::Http2(sender) => match sender.ready().await {
                Ok(()) => sender.send_request(request).await,
                Err(error) => Err(error),
            },
        };
        match sent {
            Ok(response) => body(response, endpoint.form, trace).await,
            // The request was never sent or lost with the connection: that one knows why.
            Err(error) if error.is_canceled() || error.is_closed() => {
                Err(named(self.running.reason().await.as_ref().unwrap_or(&error)))
            }
            Err(error) => Err(named(&error)),
        }
    }
}

/// What an HTTP error says: the kernel's, TLS's or HTTP/2's error beneath it, else how the exchange broke.
#[must_use]
pub(super) fn named(error: &hyper::Error) -> Outcome {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return of_io(io);
        }
        if let Some(h2) = cause.downcast_ref::<h2::Error>() {
            return match h2.get_io() {
                Some(io) => of_io(io),
                // What the peer sent is against the rules of HTTP/2; else it has said good-bye.
                None if h2.is_library() => Outcome::HttpMalformed,
                None => Outcome::HttpClosed,
            };
        }
        source = cause.source();
    }
    if error.is_user() {
        Outcome::OwnTrouble
    } else if error.is_incomplete_message()
        || error.is_canceled()
        || error.is_closed()
        || error.is_shutdown()
        || error.is_body_write_aborted()
    {
        Outcome::HttpClosed
    } else {
        // Bytes that came, and are no HTTP.
        Outcome::HttpMalformed
    }
}

fn of_io(error: &io::Error) -> Outcome {
    if error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) {
        return Outcome::TlsAlert;
    }
    if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)
        && error.raw_os_error().is_none()
    {
        return Outcome::HttpMalformed;
    }
    trouble(error).at(Stage::Http)
}
