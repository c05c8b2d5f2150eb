//! Each outcome that a connection can have, produced from real sockets: here on the loopback interface,
//! in `in_a_namespace` where it takes ICMP, routes or filters.

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};

use std::sync::Arc;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::probe::testing::{Authority, accept, limits, refused_port, serve, silent_port};

mod in_a_namespace;

const NAME: &str = "example.com";

async fn tcp(to: SocketAddr) -> Reached {
    dialled(&Dialer::direct(), &Authority::new().trust(), &limits(), to, &Further::StaysOpen).await
}

async fn tls(to: SocketAddr, name: &str, authority: &Authority) -> Reached {
    let further = Further::Tls { name: ServerName::try_from(name.to_owned()).unwrap(), http: None };
    dialled(&Dialer::direct(), &authority.trust(), &limits(), to, &further).await
}

async fn web(to: SocketAddr, authority: &Authority, statuses: &[u16], read_bytes: u32) -> Reached {
    let check = HttpCheck { path: "/health?x=1".parse().unwrap(), statuses: statuses.to_vec(), read_bytes };
    let further = Further::Tls { name: ServerName::try_from(NAME).unwrap(), http: Some(&check) };
    dialled(&Dialer::direct(), &authority.trust(), &limits(), to, &further).await
}

/// An HTTP/1.1 server behind TLS that answers each request with these bytes, then closes or holds.
async fn answering(authority: &Authority, bytes: Vec<u8>, holds: bool) -> SocketAddr {
    let mut config = authority.server(NAME);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    accept(config, move |mut stream| {
        let bytes = bytes.clone();
        async move {
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            let request = String::from_utf8(request).unwrap().to_lowercase();
            assert!(request.starts_with("get /health?x=1 http/1.1\r\n"), "{request}");
            assert!(request.contains("\r\nhost: example.com:"), "{request}");
            // The client may have heard enough.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.flush().await;
            if holds {
                tokio::spawn(async move {
                    let _stream = stream;
                    std::future::pending::<()>().await;
                });
            } else {
                let _ = stream.shutdown().await;
            }
        }
    })
    .await
}

fn with_body(head: &str, length: usize, sent: usize) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\n\r\n").into_bytes();
    bytes.resize(bytes.len() + sent, b'x');
    bytes
}

#[tokio::test]
async fn tcp_only_stops_after_tcp() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let reached = tcp(listener.local_addr().unwrap()).await;
    assert_eq!((reached.outcome, reached.attempts, reached.attempts_connected), (Outcome::TcpOk, 1, 1));
    assert_eq!(reached.kept.tls, Duration::ZERO);
    assert_eq!(reached.kept.attempts.len(), 1);
    assert_eq!(reached.kept.attempts[0].outcome, Outcome::TcpOk);
}

#[tokio::test(start_paused = true)]
async fn b37_refused_and_silent_are_told_apart() {
    let refused = tcp(refused_port()).await;
    assert_eq!((refused.outcome, refused.attempts), (Outcome::ConnectionRefused, 4));
    let (to, _held) = silent_port().await;
    let silent = tcp(to).await;
    assert_eq!((silent.outcome, silent.attempts, silent.attempts_connected), (Outcome::Silent, 4, 0));
    assert_eq!(silent.duration.as_millis() / 10, limits().connect.as_millis() / 10);
}

#[tokio::test]
async fn opened_and_reset_at_once_is_a_reset_and_hanging_up_is_none() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let resets = AtomicBool::new(true);
    let server = async {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            if resets.load(Ordering::Relaxed) {
                // Closing with a linger of zero sends an RST.
                let at_once = nix::libc::linger { l_onoff: 1, l_linger: 0 };
                setsockopt(&stream.as_fd(), sockopt::Linger, &at_once).unwrap();
            }
        }
    };
    tokio::select! {
        () = server => {}
        () = async {
            assert_eq!(tcp(to).await.outcome, Outcome::Reset);
            resets.store(false, Ordering::Relaxed);
            assert_eq!(tcp(to).await.outcome, Outcome::TcpOk);
        } => {}
    }
}

#[tokio::test]
async fn a_verified_certificate_is_the_proof_and_its_hash_is_kept() {
    let authority = Authority::new();
    let config = authority.server(NAME);
    let to = serve(config).await;
    let reached = tls(to, NAME, &authority).await;
    assert_eq!(reached.outcome, Outcome::TlsOk);
    assert!(reached.kept.tls > Duration::ZERO);
    assert_ne!(reached.kept.certificate, None);
    let again = tls(to, NAME, &authority).await;
    assert_eq!(again.kept.certificate, reached.kept.certificate);
    let other = tls(serve(authority.server(NAME)).await, NAME, &authority).await;
    assert_ne!(other.kept.certificate, reached.kept.certificate, "a certificate of another key");
}

#[tokio::test]
async fn certificates_fail_by_name_authority_time_and_use() {
    let authority = Authority::new();
    let good = serve(authority.server(NAME)).await;
    let accepted = tls(good, NAME, &authority).await.kept.certificate;
    let impostor = tls(good, "other.example", &authority).await;
    assert_eq!(impostor.outcome, Outcome::CertificateName);
    assert_eq!((impostor.kept.certificate, accepted.is_some()), (accepted, true), "whose it is, is kept all the same");
    assert_eq!(tls(good, NAME, &Authority::new()).await.outcome, Outcome::CertificateAuthority);
    for (config, outcome) in [
        (authority.expired_server(NAME), Outcome::CertificateExpired),
        (authority.future_server(NAME), Outcome::CertificateNotYetValid),
        (authority.client_only_server(NAME), Outcome::CertificateInvalid),
    ] {
        assert_eq!(tls(serve(config).await, NAME, &authority).await.outcome, outcome);
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_port_with_nobody_behind_it_is_tls_silent_also_in_small_segments() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let reached = tls(listener.local_addr().unwrap(), NAME, &Authority::new()).await;
    assert_eq!((reached.outcome, reached.attempts, reached.attempts_connected), (Outcome::TlsSilent, 1, 1));
    assert_eq!(reached.kept.small_segments, Some(Outcome::TlsSilent));
    let limits = limits();
    assert!(reached.duration <= limits.connect + limits.tls + limits.http, "{:?}", reached.duration);
}

#[tokio::test]
async fn the_second_try_is_really_in_small_segments_and_decides() {
    let authority = Authority::new();
    let (listener, acceptor) = (
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
        tokio_rustls::TlsAcceptor::from(Arc::new(authority.server(NAME))),
    );
    let to = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (_first, _) = listener.accept().await.unwrap();
        let (second, _) = listener.accept().await.unwrap();
        // Less the bytes of the timestamp option.
        assert!(sockopt_mss(&second) <= 536);
        let _stream = acceptor.accept(second).await.unwrap();
        std::future::pending::<()>().await;
    });
    let reached = tls(to, NAME, &authority).await;
    assert_eq!((reached.outcome, reached.kept.small_segments), (Outcome::PmtuBlackhole, Some(Outcome::TlsOk)));
    assert_eq!(reached.attempts, 1, "the second try is no attempt of the first");
}

fn sockopt_mss(stream: &TcpStream) -> u32 {
    nix::sys::socket::getsockopt(&stream.as_fd(), sockopt::TcpMaxSeg).unwrap()
}

#[tokio::test]
async fn ends_of_the_handshake_have_their_words() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    tokio::spawn(async move {
        drop(listener.accept().await.unwrap());
        let mut held = Vec::new();
        // Words that are no TLS; an alert: handshake_failure (RFC 8446, 6.2).
        for bytes in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[21, 3, 3, 0, 2, 2, 40]] {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(bytes).await.unwrap();
            // Held open until the test is over: the bytes, not the close, must decide.
            held.push(stream);
        }
        std::future::pending::<()>().await;
    });
    for outcome in [Outcome::TlsReset, Outcome::TlsNotSpoken, Outcome::TlsAlert] {
        assert_eq!(tls(to, NAME, &Authority::new()).await.outcome, outcome);
    }
}

#[tokio::test]
async fn an_expected_status_and_enough_of_the_body_are_http_ok() {
    let authority = Authority::new();
    let chunked = |sizes: &[usize]| {
        let mut bytes = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        for size in sizes {
            bytes.extend(format!("{size:x}\r\n").bytes());
            bytes.resize(bytes.len() + size, b'x');
            bytes.extend(b"\r\n");
        }
        bytes
    };
    // Held open: nothing but the bytes tells that it is enough.
    for (bytes, statuses, wanted, least) in [
        (with_body("200 OK", 0, 0), &[][..], 0, 0),
        (with_body("302 Found", 0, 0), &[], 0, 0),
        (with_body("404 Not Found", 0, 0), &[200, 404], 0, 0),
        (with_body("200 OK", 1 << 20, 40_000), &[], 32_768, 32_768),
        (with_body("200 OK", 10, 10), &[], 32_768, 10),
        (chunked(&[20_000, 20_000]), &[], 32_768, 32_768),
    ] {
        let to = answering(&authority, bytes.clone(), true).await;
        let reached = web(to, &authority, statuses, wanted).await;
        assert_eq!(reached.outcome, Outcome::HttpOk, "{}", String::from_utf8_lossy(&bytes[..30]));
        assert!(reached.kept.body_bytes >= least, "{} of {least}", reached.kept.body_bytes);
        assert!(reached.kept.http > Duration::ZERO && reached.kept.http_status >= 200);
    }
}

#[tokio::test]
async fn every_other_end_of_the_request_has_its_word() {
    let authority = Authority::new();
    let closing: [(Vec<u8>, u16, Outcome); 9] = [
        (Vec::new(), 0, Outcome::HttpClosed),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec(), 0, Outcome::HttpMalformed),
        (with_body("502 Bad Gateway", 5, 5), 502, Outcome::HttpStatus),
        (with_body("404 Not Found", 5, 5), 404, Outcome::HttpStatus),
        (with_body("429 Too Many Requests", 0, 0), 429, Outcome::HttpThrottled),
        (with_body("503 Service Unavailable\r\nretry-after: 30", 0, 0), 503, Outcome::HttpThrottled),
        (with_body("503 Service Unavailable", 0, 0), 503, Outcome::HttpStatus),
        (with_body("200 OK", 40_000, 1000), 200, Outcome::HttpClosed),
        // Its end is the end of the connection: as much as was wanted did not come.
        (b"HTTP/1.1 200 OK\r\n\r\nabc".to_vec(), 200, Outcome::HttpClosed),
    ];
    for (bytes, status, outcome) in closing {
        let to = answering(&authority, bytes.clone(), false).await;
        let reached = web(to, &authority, &[], 32_768).await;
        assert_eq!((reached.outcome, reached.kept.http_status), (outcome, status), "{bytes:?}");
    }
    let elsewhere = with_body("301 Moved\r\nlocation: https://else.example/", 0, 0);
    let to = answering(&authority, elsewhere, false).await;
    assert_eq!(web(to, &authority, &[200], 0).await.outcome, Outcome::HttpRedirect);
}

#[tokio::test]
async fn a_request_without_any_answer_is_http_silent() {
    let authority = Authority::new();
    let to = answering(&authority, Vec::new(), true).await;
    let mut limits = limits();
    limits.http = Duration::from_millis(300);
    let check = HttpCheck { path: "/health?x=1".parse().unwrap(), statuses: vec![], read_bytes: 0 };
    let further = Further::Tls { name: ServerName::try_from(NAME).unwrap(), http: Some(&check) };
    let reached = dialled(&Dialer::direct(), &authority.trust(), &limits, to, &further).await;
    assert_eq!((reached.outcome, reached.kept.http_status), (Outcome::HttpSilent, 0));
    assert_eq!(reached.kept.small_segments, None, "TLS did not hang");
}

#[tokio::test]
async fn b30_a_body_that_freezes_after_16_kib_shows_in_the_deep_check_alone() {
    let authority = Authority::new();
    let to = answering(&authority, with_body("200 OK", 65_536, 16_384), true).await;
    let mut limits = limits();
    limits.http = Duration::from_millis(500);
    let name = || ServerName::try_from(NAME).unwrap();
    let basic = Further::Tls { name: name(), http: None };
    let status = HttpCheck { path: "/health?x=1".parse().unwrap(), statuses: vec![], read_bytes: 0 };
    let deep = HttpCheck { read_bytes: 32_768, ..status.clone() };
    let (dialer, trust) = (Dialer::direct(), authority.trust());
    // What each says is exactly what it proved.
    let reached = dialled(&dialer, &trust, &limits, to, &Further::StaysOpen).await;
    assert_eq!(reached.outcome, Outcome::TcpOk);
    let reached = dialled(&dialer, &trust, &limits, serve(authority.server(NAME)).await, &basic).await;
    assert_eq!(reached.outcome, Outcome::TlsOk);
    let reached = dialled(&dialer, &trust, &limits, to, &Further::Tls { name: name(), http: Some(&status) }).await;
    assert_eq!((reached.outcome, reached.kept.body_bytes), (Outcome::HttpOk, 0));
    let reached = dialled(&dialer, &trust, &limits, to, &Further::Tls { name: name(), http: Some(&deep) }).await;
    assert_eq!((reached.outcome, reached.kept.body_bytes), (Outcome::HttpStalled, 16_384));
    assert!(reached.kept.http >= limits.http, "it had its time: {:?}", reached.kept.http);
}

#[tokio::test]
async fn a_body_that_trickles_ends_with_the_whole_probe() {
    let authority = Authority::new();
    let to = accept(authority.server(NAME), |mut stream| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 65536\r\n\r\n").await.unwrap();
        while stream.write_all(b"x").await.is_ok() && stream.flush().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let limits = Limits {
        connect: Duration::from_millis(500),
        tls: Duration::from_millis(500),
        http: Duration::from_millis(200),
        ..limits()
    };
    let check = HttpCheck { path: "/".parse().unwrap(), statuses: vec![], read_bytes: 32_768 };
    let further = Further::Tls { name: ServerName::try_from(NAME).unwrap(), http: Some(&check) };
    let reached = dialled(&Dialer::direct(), &authority.trust(), &limits, to, &further).await;
    assert_eq!(reached.outcome, Outcome::HttpStalled);
    assert!(reached.kept.body_bytes > 5, "longer than one wait: {}", reached.kept.body_bytes);
}

#[tokio::test]
async fn a_probe_that_hangs_is_small() {
    let (dialer, trust, limits) = (Dialer::direct(), Authority::new().trust(), limits());
    let further = Further::Tls { name: ServerName::try_from(NAME).unwrap(), http: None };
    let to = "127.0.0.1:9".parse().unwrap();
    let size = std::mem::size_of_val(&dialled(&dialer, &trust, &limits, to, &further));
    assert!(size <= 2048, "{size} bytes; the parts that are rarely reached belong into boxes");
}
