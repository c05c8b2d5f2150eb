//! One HTTP/1.1 request over a stream that is there already, and as much of the answer as is wanted.
//!
//! Redirections are not followed: the address that was tried is the one that is measured. What is
//! read of a body is counted and forgotten.

use std::pin::pin;
use std::time::Duration;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, DATE, HOST, RETRY_AFTER, TRANSFER_ENCODING, USER_AGENT,
};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parallax_decide::observation::{Outcome, Stage};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout_at;

use super::trouble::trouble;
use crate::assignment::HttpCheck;
use crate::clock::{Instant, now};
use crate::date;

/// Most bytes of an answer in memory at once, its head included; hyper takes no less than 8 KiB.
const BUFFER_BYTES_MAX: usize = 16 << 10;

/// How long to wait.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Longest wait for the status, and then for each next piece of the body.
    pub wait: Duration,
    /// End of everything.
    pub deadline: Instant,
}

impl Patience {
    fn until(self) -> Instant {
        self.deadline.min(now() + self.wait)
    }
}

/// What came, also when the exchange did not end well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Heard {
    /// The status; 0: none.
    pub status: u16,
    /// Bytes of the body.
    pub body_bytes: u64,
    /// The server asked to be left alone for a while (RFC 9110, 10.2.3).
    pub retry_after: bool,
    /// The server's clock (RFC 9110, 6.6.1), in seconds since 1970.
    pub date_s: Option<i64>,
}

/// Asks what the configuration asks, and holds the answer against it.
pub async fn check<S>(stream: S, host: &str, check: &HttpCheck, patience: Patience, heard: &mut Heard) -> Outcome
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let right = |status: u16| match check.statuses.is_empty() {
        true => (200..400).contains(&status),
        false => check.statuses.contains(&status),
    };
    let body_of = |status: u16| if right(status) { u64::from(check.read_bytes) } else { 0 };
    match get(stream, host, &check.path, body_of, patience, heard).await {
        Err(outcome) => outcome,
        Ok(()) if right(heard.status) => Outcome::HttpOk,
        Ok(()) => unexpected(heard),
    }
}

/// The word for a status that is not the expected one. There is none for 404 and the like here: what a
/// page's path was mistaken for is no format or method (`HttpUnsupported` is a resolver's word).
#[must_use]
pub fn unexpected(heard: &Heard) -> Outcome {
    match heard.status {
        300..400 => Outcome::HttpRedirect,
        429 => Outcome::HttpThrottled,
        503 if heard.retry_after => Outcome::HttpThrottled,
        _ => Outcome::HttpStatus,
    }
}

/// GET, then the status, then as many bytes of the body as `body_of` the status wants.
///
/// # Errors
/// How the exchange failed. A body that ends early, but whole, is no failure.
pub async fn get<S>(
    stream: S,
    host: &str,
    path: &PathAndQuery,
    body_of: impl Fn(u16) -> u64,
    patience: Patience,
    heard: &mut Heard,
) -> Result<(), Outcome>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let request = Request::get(path.as_str())
        .header(HOST, host)
        .header(USER_AGENT, "parallax-agent")
        .header(ACCEPT, "*/*")
        .header(ACCEPT_ENCODING, "identity")
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|_| Outcome::OwnTrouble)?;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(BUFFER_BYTES_MAX);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(|error| said(&error))?;
    let mut exchange = pin!(async {
        let answer = timeout_at(patience.until(), sender.send_request(request)).await;
        let response = answer.map_err(|_| Outcome::HttpSilent)?.map_err(|error| said(&error))?;
        heard.status = response.status().as_u16();
        heard.retry_after = response.headers().contains_key(RETRY_AFTER);
        heard.date_s = response.headers().get(DATE).and_then(|value| value.to_str().ok()).and_then(date::http);
        let wanted = body_of(heard.status);
        body(response, wanted, patience, &mut heard.body_bytes).await
    });
    let mut connection = pin!(connection);
    let mut carried = false;
    loop {
        tokio::select! {
            biased;
            ended = &mut exchange => return ended,
            // It moves the bytes. How it ends, the exchange is told.
            _ = &mut connection, if !carried => carried = true,
        }
    }
}

/// Reads at least `wanted` bytes of the body, or all of it.
async fn body(response: Response<Incoming>, wanted: u64, patience: Patience, read: &mut u64) -> Result<(), Outcome> {
    let headers = response.headers();
    // Otherwise the end of the body is the end of the connection, and a cut one looks whole.
    let says_its_end = headers.contains_key(CONTENT_LENGTH)
        || headers.contains_key(TRANSFER_ENCODING)
        || matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let mut body = response.into_body();
    while *read < wanted {
        match timeout_at(patience.until(), body.frame()).await {
            Err(_) => return Err(Outcome::HttpStalled),
            Ok(None) if says_its_end => break,
            Ok(None) => return Err(Outcome::HttpClosed),
            Ok(Some(Err(error))) => return Err(said(&error)),
            Ok(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                *read = read.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
            }
        }
    }
    Ok(())
}

/// What an HTTP error says: the kernel's or TLS's error beneath it, else words that are no HTTP.
fn said(error: &hyper::Error) -> Outcome {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            return match io.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) {
                true => Outcome::TlsAlert,
                false => trouble(io).at(Stage::Http),
            };
        }
        source = cause.source();
    }
    match error.is_parse() {
        true => Outcome::HttpMalformed,
        false => Outcome::HttpClosed,
    }
}
