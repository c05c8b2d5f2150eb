//! Asks the running coordinator on this machine, by its page's socket.

use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::config::WebListen;
use crate::error::{Exit, Failure};

/// Longest wait for the whole answer: a reload waits for the database at most a few seconds.
const WITHIN: Duration = Duration::from_secs(30);

/// Longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Sends a request without a body; the status and the JSON of the answer.
///
/// # Errors
/// Exit code 5 when nobody answers there.
pub async fn ask(place: &WebListen, method: Method, path: &str) -> Result<(StatusCode, Value), Failure> {
    let unreachable = |why: String| {
        Failure::new(Exit::Unreachable, format!("no coordinator answers at {place}"))
            .why(why)
            .fix("start it, or name the place where its page listens with --at ADDRESS:PORT or --at unix:/PATH")
    };
    let asked = async {
        match place {
            WebListen::Tcp(address) => {
                let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
                exchange(stream, method, path).await
            }
            WebListen::Unix(socket) => {
                let stream = UnixStream::connect(socket).await.map_err(|error| error.to_string())?;
                exchange(stream, method, path).await
            }
        }
    };
    match tokio::time::timeout(WITHIN, asked).await {
        Ok(answer) => answer.map_err(unreachable),
        Err(_) => Err(unreachable(format!("no answer within {} s", WITHIN.as_secs()))),
    }
}

async fn exchange<S>(stream: S, method: Method, path: &str) -> Result<(StatusCode, Value), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "parallax")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let status = response.status();
    let body =
        Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(|error| error.to_string())?;
    connection.abort();
    let value = serde_json::from_slice(&body.to_bytes()).map_err(|_| format!("it answers {status} and no JSON"))?;
    Ok((status, value))
}
