//! HTTP/2 by the library that hyper uses: hyper's layer over it holds 8 KiB more for each connection and
//! two tasks more for each request, all the time that a server hangs.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use h2::client::{Builder, Connection, SendRequest};
use h2::{Reason, RecvStream};
use http::header::CONTENT_LENGTH;
use http::{Request, Response};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::http::HEADER_BYTES_MAX;

/// Most bytes that a server may send us unread: an answer fits, with its frames.
const WINDOW: u32 = 1 << 16;

/// Most requests of ours that wait in one connection, in bytes.
const SEND_BYTES_MAX: usize = 4 << 10;

/// A TLS stream.
pub(super) type Stream = Box<TlsStream<TcpStream>>;

/// Begins to speak; the connection is to be driven until it ends.
///
/// # Errors
/// How it failed.
pub(super) async fn open(stream: Stream) -> Result<(SendRequest<Bytes>, Connection<Stream, Bytes>), h2::Error> {
    Builder::new()
        .enable_push(false)
        .initial_window_size(WINDOW)
        .initial_connection_window_size(2 * WINDOW)
        .max_header_list_size(u32::try_from(HEADER_BYTES_MAX).unwrap_or(u32::MAX))
        .max_send_buffer_size(SEND_BYTES_MAX)
        .handshake(stream)
        .await
}

/// Sends a request and waits for the head of its answer.
///
/// # Errors
/// How it failed.
pub(super) async fn send(
    sender: &mut SendRequest<Bytes>,
    request: Request<Bytes>,
) -> Result<Response<Received>, h2::Error> {
    std::future::poll_fn(|context| sender.poll_ready(context)).await?;
    let (head, body) = request.into_parts();
    let (answer, mut stream) = sender.send_request(Request::from_parts(head, ()), body.is_empty())?;
    if !body.is_empty() {
        stream.send_data(body, true)?;
    }
    let answer = answer.await?;
    let length = answer.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    Ok(answer.map(|stream| Received { stream, length }))
}

/// Whether an error says nothing but that the connection is gone: that one knows why.
pub(super) fn is_of_the_connection(error: &h2::Error) -> bool {
    !(error.is_io() || error.is_go_away() || error.is_reset() || error.is_library())
}

/// The body of an answer.
pub(super) struct Received {
    stream: RecvStream,
    /// What the head says of it, in bytes.
    length: Option<u64>,
}

impl Body for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        Poll::Ready(match ready!(self.stream.poll_data(context)) {
            None => None,
            Some(Ok(data)) => {
                // Room for as much again. It fails only for more than came.
                let _ = self.stream.flow_control().release_capacity(data.len());
                Some(Ok(Frame::data(data)))
            }
            // The whole answer came, and the rest of the request is not wanted (RFC 9113, 8.1).
            Some(Err(error)) if error.is_reset() && error.reason() == Some(Reason::NO_ERROR) => None,
            Some(Err(error)) => Some(Err(error)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
