//! DNS over HTTPS (RFC 8484): the wire format by POST, over HTTP/2 or else HTTP/1.1.
//!
//! POST, because a GET may be answered from an HTTP cache; id 0, as the RFC asks. Redirects are
//! not followed: the endpoint that was configured is the one that is measured.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Request, Response, Uri, Version};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parallax_decide::observation::{Outcome, Stage};
use rustls::ClientConfig;
use tokio::task::JoinHandle;

use super::Limits;
use super::ask::Trace;
use super::dot::secured;
use super::message::{Question, REPLY_BYTES_MAX, Reply, Unfit};
use super::trouble::trouble;
use crate::clock::{now, since};
use crate::dial::Dialer;

/// The media type of a DNS message (RFC 8484, 6).
const DNS_MESSAGE: &str = "application/dns-message";

/// A DoH endpoint of the assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DohEndpoint {
    /// The whole https URL.
    pub url: Uri,
    /// Host of the URL: TLS server name.
    pub host: String,
    /// Port of the URL; 443 when it names none.
    pub port: u16,
    /// Addresses to connect to, in order. Empty: the host is looked up at the bootstrap servers.
    pub addresses: Vec<IpAddr>,
    /// Plain DNS servers that know the host.
    pub bootstrap: Vec<SocketAddr>,
    /// How it is asked.
    pub form: Form,
    /// HTTP version; `None`: HTTP/2, else HTTP/1.1 where the server does not offer it.
    pub http: Option<HttpVersion>,
}

/// How a DoH endpoint is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// DNS message in a POST (RFC 8484): no HTTP cache answers it.
    WirePost,
    /// DNS message in base64url in a GET (RFC 8484).
    WireGet,
    /// `?name=&type=` and a JSON document: the form of the large public resolvers; no standard.
    Json,
}

/// An HTTP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// Asks one question over a cold connection to one of the pinned addresses.
///
/// # Errors
/// How the stage in `trace` failed.
pub async fn ask(
    dialer: &Dialer,
    tls: &Arc<ClientConfig>,
    endpoint: &DohEndpoint,
    address: IpAddr,
    question: &Question,
    limits: &Limits,
    trace: &mut Trace,
) -> Result<Reply, Outcome> {
    let server = SocketAddr::new(address, endpoint.port);
    let stream = secured(dialer, tls, server, &endpoint.host, limits, trace).await?;
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    trace.enter(Stage::Http, address);
    let message = question.message(0, true).ok_or(Outcome::OwnTrouble)?;
    let begun = now();
    let io = TokioIo::new(stream);
    let response = if http2 {
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.map_err(|error| named(&error))?;
        let running = Running(tokio::spawn(async move { drop(connection.await) }));
        let response = sender.send_request(request(endpoint, message, Version::HTTP_2)?).await;
        (response, running)
    } else {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(io).await.map_err(|error| named(&error))?;
        let running = Running(tokio::spawn(async move { drop(connection.await) }));
        let response = sender.send_request(request(endpoint, message, Version::HTTP_11)?).await;
        (response, running)
    };
    let (response, _running) = response;
    let response = response.map_err(|error| named(&error))?;
    trace.http_status = response.status().as_u16();
    let body = body(response).await?;
    trace.stages.http = since(begun);
    trace.enter(Stage::Dns, address);
    question.read(0, &body).map_err(|unfit| match unfit {
        Unfit::NotOurs | Unfit::Malformed => Outcome::Malformed,
    })
}

/// The connection's own task; it ends with the question.
struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn request(endpoint: &DohEndpoint, message: Vec<u8>, version: Version) -> Result<Request<Full<Bytes>>, Outcome> {
    let builder = Request::post(match version {
        Version::HTTP_2 => endpoint.url.clone(),
        // HTTP/1.1 to an origin server names the path alone (RFC 9112, 3.2.1).
        _ => endpoint.url.path_and_query().map_or_else(|| Uri::from_static("/"), |path| Uri::from(path.clone())),
    })
    .version(version)
    .header(CONTENT_TYPE, DNS_MESSAGE)
    .header(ACCEPT, DNS_MESSAGE)
    .header(USER_AGENT, "parallax-agent")
    .header(CONTENT_LENGTH, message.len());
    let builder = match (version, endpoint.url.authority()) {
        (Version::HTTP_11, Some(authority)) => builder.header(HOST, authority.as_str()),
        _ => builder,
    };
    builder.body(Full::new(Bytes::from(message))).map_err(|_| Outcome::OwnTrouble)
}

/// The body of a good reply, read up to the limit.
async fn body(response: Response<Incoming>) -> Result<Bytes, Outcome> {
    if !response.status().is_success() {
        return Err(Outcome::HttpStatus);
    }
    // A login page is no DNS message, even with status 200. Parameters and letter case do not matter.
    let media = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = media.and_then(|text| text.split(';').next()).map(str::trim);
    if media.is_some_and(|media| !media.eq_ignore_ascii_case(DNS_MESSAGE)) {
        return Err(Outcome::HttpNotDns);
    }
    match Limited::new(response.into_body(), REPLY_BYTES_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) => match error.downcast::<hyper::Error>() {
            Ok(error) => Err(named(&error)),
            // The only other error is the limit.
            Err(_) => Err(Outcome::HttpTooLarge),
        },
    }
}

/// What an HTTP error says: the kernel's or TLS's error beneath it, else words that are no HTTP.
fn named(error: &hyper::Error) -> Outcome {
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
    // Closed before the reply was whole, or the stream was reset by the peer.
    match error.is_parse() {
        true => Outcome::HttpMalformed,
        false => Outcome::HttpClosed,
    }
}

#[cfg(test)]
mod tests {
    use parallax_decide::observation::Family;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::probe::testing::{Authority, accept, answer, limits};

    fn question() -> Question {
        Question { name: "example.com".parse().unwrap(), family: Family::V4 }
    }

    async fn ask_at(server: SocketAddr, authority: &Authority) -> (Result<Reply, Outcome>, Trace) {
        let endpoint = DohEndpoint {
            url: Uri::from_static("https://dns.example/dns-query"),
            host: "dns.example".into(),
            port: server.port(),
            addresses: vec![server.ip()],
            bootstrap: Vec::new(),
            form: Form::WirePost,
            http: None,
        };
        let (mut trace, tls) = (Trace::default(), authority.trust().doh);
        let dialer = Dialer::direct();
        let reply = ask(&dialer, &tls, &endpoint, server.ip(), &question(), &limits(), &mut trace).await;
        (reply, trace)
    }

    /// An HTTP/1.1 server that answers one POST with what `respond` makes of the DNS message.
    async fn http1(authority: &Authority, respond: fn(&[u8]) -> Vec<u8>) -> SocketAddr {
        accept(authority.server("dns.example"), move |mut stream| async move {
            let mut request = Vec::new();
            let body = loop {
                let mut piece = [0; 1024];
                let length = stream.read(&mut piece).await.unwrap();
                request.extend_from_slice(&piece[..length]);
                let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
                let head = String::from_utf8_lossy(&request[..end]).to_lowercase();
                let size = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
                if request.len() >= end + 4 + size.parse::<usize>().unwrap() {
                    assert!(head.starts_with("post /dns-query http/1.1\r\n") && head.contains("\r\nhost: dns.example"));
                    break request[end + 4..].to_vec();
                }
            };
            let _ = stream.write_all(&respond(&body)).await;
            let _ = stream.shutdown().await;
        })
        .await
    }

    fn response(head: &str, body: &[u8]) -> Vec<u8> {
        let head = format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    }

    #[tokio::test]
    async fn a_good_endpoint_answers() {
        let authority = Authority::new();
        let server = http1(&authority, |query| {
            response("200 OK\r\ncontent-type: Application/DNS-message; charset=utf-8", &answer(query, "8.6.112.0"))
        })
        .await;
        let (reply, trace) = ask_at(server, &authority).await;
        assert_eq!(reply.unwrap().outcome, Outcome::Answered);
        assert_eq!((trace.stage, trace.http_status), (Stage::Dns, 200));
        assert!(!trace.stages.http.is_zero());
    }

    #[tokio::test]
    async fn http2_is_preferred() {
        let authority = Authority::new();
        let mut config = authority.server("dns.example");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let server = accept(config, |stream| async move {
            let service = hyper::service::service_fn(|request: Request<Incoming>| async move {
                assert_eq!(request.version(), Version::HTTP_2);
                let query = request.into_body().collect().await?.to_bytes();
                let body = Full::new(Bytes::from(answer(&query, "8.6.112.0")));
                Ok::<_, hyper::Error>(Response::builder().header(CONTENT_TYPE, DNS_MESSAGE).body(body).unwrap())
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        })
        .await;
        let (reply, _) = ask_at(server, &authority).await;
        assert_eq!(reply.unwrap().addresses, ["8.6.112.0".parse::<IpAddr>().unwrap()]);
    }

    #[tokio::test]
    async fn every_other_end_has_its_word() {
        let authority = Authority::new();
        type End = (fn(&[u8]) -> Vec<u8>, Stage, Outcome);
        let ends: [End; 8] = [
            (|_| Vec::new(), Stage::Http, Outcome::HttpClosed),
            (|_| response("502 Bad Gateway\r\ncontent-type: text/html", b"<html>"), Stage::Http, Outcome::HttpStatus),
            (|_| response("301 Moved\r\nlocation: https://else.example/", b""), Stage::Http, Outcome::HttpStatus),
            (
                |_| response("200 OK\r\ncontent-type: text/html", b"<html>log in</html>"),
                Stage::Http,
                Outcome::HttpNotDns,
            ),
            (|_| response("200 OK\r\ncontent-type: application/dns-message", b""), Stage::Dns, Outcome::Malformed),
            (|_| response("200 OK", b"abc"), Stage::Dns, Outcome::Malformed),
            (|_| response("200 OK", &[0; 100_000]), Stage::Http, Outcome::HttpTooLarge),
            (|_| b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec(), Stage::Http, Outcome::HttpMalformed),
        ];
        for (number, (respond, stage, outcome)) in ends.into_iter().enumerate() {
            let (reply, trace) = ask_at(http1(&authority, respond).await, &authority).await;
            assert_eq!((trace.stage, reply), (stage, Err(outcome)), "case {number}");
        }
    }
}
