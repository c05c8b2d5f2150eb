//! One HTTP connection to a DoH server, and what its errors say.

use std::error::Error as _;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parallax_decide::observation::{Outcome, Stage};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::request::{request, request_of};
use super::response::{Broken, body};
use super::{DohEndpoint, Form, HttpVersion, http2, json};
use crate::clock::{now, since};
use crate::measured::Carrier;
use crate::probe::ask::Trace;
use crate::probe::message::{Question, Reply};
use crate::probe::remark::{add, harmless};
use crate::probe::trouble::trouble;

/// Most bytes of headers.
pub(super) const HEADER_BYTES_MAX: usize = 16 << 10;

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
    Http2(h2::client::SendRequest<Bytes>),
}

/// The connection's own task; it ends with the last user of the connection.
#[derive(Debug)]
struct Running(tokio::sync::Mutex<Option<JoinHandle<Option<Outcome>>>>, tokio::task::AbortHandle);

impl Running {
    /// Drives a connection until it ends, with an error or without.
    fn new(connection: impl Future<Output = Option<Outcome>> + Send + 'static) -> Arc<Self> {
        let task = tokio::spawn(connection);
        let abort = task.abort_handle();
        Arc::new(Self(tokio::sync::Mutex::new(Some(task)), abort))
    }

    /// Why the task ended; `None` when it did not, or somebody else was told.
    async fn reason(&self) -> Option<Outcome> {
        let task = self.0.lock().await.take()?;
        timeout(REASON_WAIT_MAX, task).await.ok()?.ok()?
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
        let (sender, running, carrier) = if http2 {
            let (sender, connection) = http2::open(stream).await.map_err(|error| of_http2(&error))?;
            let running = Running::new(async move { connection.await.err().map(|error| of_http2(&error)) });
            (Sender::Http2(sender), running, Carrier::Http2)
        } else {
            let mut builder = http1::Builder::new();
            builder.max_buf_size(HEADER_BYTES_MAX);
            let (sender, connection) =
                builder.handshake(TokioIo::new(stream)).await.map_err(|error| of_http1(&error))?;
            let running = Running::new(async move { connection.await.err().map(|error| of_http1(&error)) });
            (Sender::Http1(sender), running, Carrier::Http1)
        };
        trace.reply.transport = Some(carrier);
        Ok(Self { sender, running, address })
    }

    /// Whether the server has closed it, as far as is known.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(_) => self.running.1.is_finished(),
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
        request: Request<Bytes>,
        trace: &mut Trace,
    ) -> Result<Bytes, Outcome> {
        let response = match &mut self.sender {
            Sender::Http1(sender) => {
                let sent = match sender.ready().await {
                    Ok(()) => sender.send_request(request.map(Full::new)).await,
                    Err(error) => Err(error),
                };
                match sent {
                    Ok(response) => response.map(|body| body.map_err(|error| Broken(of_http1(&error))).boxed_unsync()),
                    // The request was never sent or lost with the connection: that one knows why.
                    Err(error) if error.is_canceled() || error.is_closed() => {
                        return Err(self.running.reason().await.unwrap_or_else(|| of_http1(&error)));
                    }
                    Err(error) => return Err(of_http1(&error)),
                }
            }
            Sender::Http2(sender) => match http2::send(sender, request).await {
                Ok(response) => response.map(|body| body.map_err(|error| Broken(of_http2(&error))).boxed_unsync()),
                Err(error) if http2::is_of_the_connection(&error) => {
                    return Err(self.running.reason().await.unwrap_or_else(|| of_http2(&error)));
                }
                Err(error) => return Err(of_http2(&error)),
            },
        };
        body(response, endpoint.form, trace).await
    }
}

/// What an error of HTTP/2 says: the kernel's or TLS's error beneath it, else how the exchange broke.
fn of_http2(error: &h2::Error) -> Outcome {
    match error.get_io() {
        Some(io) => of_io(io),
        // What the peer sent is against the rules of HTTP/2; else it has said good-bye.
        None if error.is_library() => Outcome::HttpMalformed,
        None => Outcome::HttpClosed,
    }
}

/// What an error of HTTP/1.1 says: the kernel's or TLS's error beneath it, else how the exchange broke.
fn of_http1(error: &hyper::Error) -> Outcome {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return of_io(io);
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
