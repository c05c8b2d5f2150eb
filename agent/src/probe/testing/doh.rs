//! A scripted DoH server over HTTP/1.1 and HTTP/2, and a place that may ask it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::stream;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::assignment::{Resolver, Transport};
use crate::dial::Dialer;
use crate::local::Allow;
use crate::policy::Policy;
use crate::probe::doh::{DohEndpoint, Form, HttpVersion};
use crate::probe::live::LiveServers;
use crate::site::Site;
use crate::tls::Trust;

/// The name in the URLs of the tests.
pub(crate) const HOST: &str = "dns.example";

/// A place whose owner lets it ask servers on the loopback interface.
pub(crate) fn place(trust: Trust) -> Site {
    let allow = Allow {
        ports: (1..=u16::MAX).collect(),
        private: vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()],
        ..Allow::default()
    };
    Site::new(Dialer::direct(), Policy::on_loopback(allow), trust, LiveServers::new(Vec::new()))
}

/// A DoH resolver at this socket.
pub(crate) fn doh(server: SocketAddr, form: Form, http: Option<HttpVersion>) -> Resolver {
    let url: Uri = format!("https://{HOST}/dns-query").parse().unwrap();
    let endpoint = DohEndpoint {
        url,
        host: HOST.into(),
        port: server.port(),
        addresses: vec![server.ip()],
        bootstrap: Vec::new(),
        form,
        http,
    };
    Resolver { name: "doh".parse().unwrap(), transport: Transport::Doh(endpoint) }
}

/// A request as the server saw it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// Number of the connection it came over, from 0.
    pub(crate) connection: usize,
}

impl Seen {
    /// A parameter of the query.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let pairs = self.uri.query()?.split('&');
        pairs.filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// The DNS message in it.
    pub(crate) fn message(&self) -> Option<Vec<u8>> {
        match self.parameter("dns") {
            Some(text) => URL_SAFE_NO_PAD.decode(text).ok(),
            None => (self.method == Method::POST).then(|| self.body.clone()),
        }
    }

    /// Name asked for, in any form.
    pub(crate) fn name(&self) -> String {
        match self.message() {
            None => self.parameter("name").unwrap_or_default().to_owned(),
            Some(message) => {
                let message = domain::base::Message::from_octets(message).unwrap();
                message.sole_question().unwrap().qname().to_string()
            }
        }
    }
}

/// What the server answers.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Body,
}

#[derive(Debug, Clone)]
pub(crate) enum Body {
    Whole(Vec<u8>),
    /// These bytes, and then nothing more, without an end.
    Stalls(Vec<u8>),
    /// More and more.
    Endless,
    /// One byte at a time, with this pause between them, without an end.
    Trickle(Duration),
    /// No answer at all.
    Never,
}

impl Answer {
    pub(crate) fn new(status: u16, media: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = if media.is_empty() { Vec::new() } else { vec![("content-type", media.to_owned())] };
        Self { status, headers, body: Body::Whole(body.into()) }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    /// A good answer in the wire format.
    pub(crate) fn good(seen: &Seen) -> Self {
        Self::new(200, "application/dns-message", super::answer(&seen.message().unwrap(), "8.6.112.0"))
    }

    fn response(self) -> Response<BoxBody<Bytes, std::io::Error>> {
        let mut builder = Response::builder().status(self.status);
        for (name, value) in &self.headers {
            builder = builder.header(*name, value);
        }
        let frame = |bytes: Vec<u8>| Ok::<_, std::io::Error>(Frame::data(Bytes::from(bytes)));
        let body = match self.body {
            Body::Whole(bytes) => Full::new(Bytes::from(bytes)).map_err(|never| match never {}).boxed(),
            Body::Stalls(bytes) => {
                let first = stream::once(async move { frame(bytes) });
                BoxBody::new(StreamBody::new(stream::StreamExt::chain(first, stream::pending())))
            }
            Body::Endless => BoxBody::new(StreamBody::new(stream::repeat_with(move || frame(vec![7; 4096])))),
            Body::Trickle(pause) => BoxBody::new(
                StreamBody::new(Box::pin(stream::unfold((), move |()| async move {
                    tokio::time::sleep(pause).await;
                    Some((frame(vec![0]), ()))
                })))
                .boxed(),
            ),
            Body::Never => unreachable!("the caller waits"),
        };
        builder.body(body).unwrap()
    }
}

/// A running server and what it has seen.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

/// How connections of a server end while nothing is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    Stays,
    /// With FIN after this pause.
    Fin(Duration),
    /// With RST after this pause.
    Reset(Duration),
    /// Nothing is answered after this pause, and nothing is closed.
    Drop(Duration),
    /// With HTTP/2's GOAWAY after this pause.
    Goaway(Duration),
}

/// Runs a server that offers these protocols (ALPN) and answers each request by the script.
pub(crate) async fn serve(
    config: ServerConfig,
    protocols: &[&str],
    script: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
) -> Server {
    serve_idle(config, protocols, Idle::Stays, script).await
}

/// As [`serve`], with a rule for idle connections.
pub(crate) async fn serve_idle(
    mut config: ServerConfig,
    protocols: &[&str],
    idle: Idle,
    script: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
) -> Server {
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server { address: listener.local_addr().unwrap(), seen: Arc::default() };
    let (seen, script) = (Arc::clone(&server.seen), Arc::new(script));
    tokio::spawn(async move {
        let mut connection = 0;
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, seen, script) = (acceptor.clone(), Arc::clone(&seen), Arc::clone(&script));
            let number = connection;
            connection += 1;
            tokio::spawn(async move {
                let socket = socket2::SockRef::from(&stream).try_clone().unwrap();
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let last = Arc::new(Mutex::new(crate::clock::now()));
                let service = hyper::service::service_fn({
                    let last = Arc::clone(&last);
                    move |request: Request<Incoming>| {
                        let (seen, script, last) = (Arc::clone(&seen), Arc::clone(&script), Arc::clone(&last));
                        async move {
                            let now = crate::clock::now();
                            let quiet = now - std::mem::replace(&mut *last.lock().unwrap(), now);
                            if matches!(idle, Idle::Drop(pause) if quiet > pause) {
                                std::future::pending::<()>().await;
                            }
                            let (parts, body) = request.into_parts();
                            let one = Seen {
                                method: parts.method,
                                uri: parts.uri,
                                headers: parts.headers,
                                body: body.collect().await?.to_bytes().to_vec(),
                                connection: number,
                            };
                            let answer = script(&one);
                            seen.lock().unwrap().push(one);
                            if matches!(answer.body, Body::Never) {
                                std::future::pending::<()>().await;
                            }
                            *last.lock().unwrap() = crate::clock::now();
                            Ok::<_, hyper::Error>(answer.response())
                        }
                    }
                });
                let io = TokioIo::new(stream);
                let goodbye = Arc::new(tokio::sync::Notify::new());
                let serving = async {
                    if http2 {
                        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        let mut connection = std::pin::pin!(builder.serve_connection(io, service));
                        tokio::select! {
                            _ = &mut connection => return,
                            () = goodbye.notified() => connection.as_mut().graceful_shutdown(),
                        }
                        let _ = connection.await;
                    } else {
                        let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
                    }
                };
                let ends = async {
                    let pause = match idle {
                        Idle::Stays | Idle::Drop(_) => return std::future::pending().await,
                        Idle::Fin(pause) | Idle::Reset(pause) | Idle::Goaway(pause) => pause,
                    };
                    loop {
                        let until = *last.lock().unwrap() + pause;
                        if crate::clock::now() >= until {
                            break;
                        }
                        tokio::time::sleep_until(until).await;
                    }
                    if matches!(idle, Idle::Goaway(_)) {
                        goodbye.notify_one();
                        std::future::pending::<()>().await;
                    }
                };
                tokio::select! {
                    () = serving => {}
                    () = ends => {}
                }
                if matches!(idle, Idle::Reset(_)) {
                    // Closing with unsent time of zero makes the kernel send RST (socket(7), SO_LINGER).
                    let _ = socket.set_linger(Some(Duration::ZERO));
                }
            });
        }
    });
    server
}

/// Finishes TLS handshakes for HTTP/1.1 and hands each stream, with the head of the first request read,
/// to the script's bytes; then closes.
pub(crate) async fn raw(config: ServerConfig, reply: &'static [u8]) -> SocketAddr {
    super::accept(config, move |mut stream| async move {
        use tokio::io::AsyncReadExt as _;
        let mut head = Vec::new();
        while !head.windows(4).any(|window| window == b"\r\n\r\n") {
            let mut piece = [0; 1024];
            match stream.read(&mut piece).await {
                Ok(0) | Err(_) => return,
                Ok(length) => head.extend_from_slice(&piece[..length]),
            }
        }
        let _ = stream.write_all(reply).await;
        let _ = stream.shutdown().await;
    })
    .await
}
