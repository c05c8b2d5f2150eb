use std::time::Duration;

use parallax_decide::observation::Family;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::assignment::{Resolver, Transport};
use crate::probe::ask::{Asked, ask};
use crate::probe::message::Question;
use crate::probe::testing::doh::place;
use crate::probe::testing::{Authority, accept, answer, limits, refused_port, silent_port};

fn question() -> Question {
    Question { name: "example.com".parse().unwrap(), family: Family::V4 }
}

async fn ask_for(name: &str, server: SocketAddr, authority: &Authority) -> Asked {
    let transport = Transport::Dot { server, server_name: name.into() };
    let resolver = Resolver { name: "dot".parse().unwrap(), transport };
    ask(&place(authority.trust()), &limits(), &resolver, &question()).await
}

async fn ask_at(server: SocketAddr, authority: &Authority) -> Asked {
    ask_for("dot.example", server, authority).await
}

fn reached(asked: &Asked) -> (Stage, Outcome) {
    let outcome = asked.ended.as_ref().map_or_else(|outcome| *outcome, |reply| reply.outcome);
    (asked.trace.stage, outcome)
}

/// A DoT server that answers one query by the pieces of the script, with a pause between them.
async fn scripted(authority: &Authority, script: fn(Vec<u8>) -> Vec<Vec<u8>>, pause: Duration) -> SocketAddr {
    accept(authority.server("dot.example"), move |mut stream| async move {
        let length = usize::from(stream.read_u16().await.unwrap());
        let mut query = vec![0; length];
        stream.read_exact(&mut query).await.unwrap();
        for piece in script(query) {
            let _ = stream.write_all(&piece).await;
            let _ = stream.flush().await;
            tokio::time::sleep(pause).await;
        }
        let _ = stream.shutdown().await;
    })
    .await
}

fn framed(message: &[u8]) -> Vec<u8> {
    [u16::try_from(message.len()).unwrap().to_be_bytes().as_slice(), message].concat()
}

#[tokio::test]
async fn a_good_endpoint_answers_and_every_stage_is_timed() {
    let authority = Authority::new();
    let server = scripted(&authority, |query| vec![framed(&answer(&query, "8.6.112.0"))], Duration::ZERO).await;
    let asked = ask_at(server, &authority).await;
    assert_eq!(reached(&asked), (Stage::Dns, Outcome::Answered));
    let times = asked.trace.stages;
    assert!(!times.tcp.is_zero() && !times.tls.is_zero() && !times.dns.is_zero() && times.http.is_zero());
    assert!(asked.trace.certificate.is_some() && asked.trace.remark.is_empty());
}

#[tokio::test]
async fn b19_a_reply_in_pieces_is_put_together_and_a_broken_one_has_its_word() {
    let authority = Authority::new();
    let pieces: fn(Vec<u8>) -> Vec<Vec<u8>> = |query| {
        let framed = framed(&answer(&query, "8.6.112.0"));
        let mut pieces = vec![framed[..1].to_vec(), framed[1..2].to_vec()];
        pieces.extend(framed[2..].chunks(7).map(<[u8]>::to_vec));
        pieces
    };
    let swapped: fn(Vec<u8>) -> Vec<Vec<u8>> = |query| {
        let reply = answer(&query, "8.6.112.0");
        let mut other = answer(&query, "9.9.9.9");
        other[0] ^= 0xff;
        vec![[framed(&other), framed(&reply)].concat()]
    };
    for (script, outcome) in [
        (pieces, Outcome::Answered),
        (swapped, Outcome::Answered),
        (|_| vec![vec![0, 0]], Outcome::Malformed),
        (|_| vec![[vec![0, 200], vec![1; 60]].concat()], Outcome::DnsClosed),
    ] {
        let server = scripted(&authority, script, Duration::from_millis(5)).await;
        assert_eq!(reached(&ask_at(server, &authority).await), (Stage::Dns, outcome));
    }
    // A trickle ends at the deadline, not later.
    let trickle: fn(Vec<u8>) -> Vec<Vec<u8>> = |_| {
        let mut pieces = vec![vec![0xff, 0xff]];
        pieces.extend(vec![vec![0]; 100]);
        pieces
    };
    let server = scripted(&authority, trickle, Duration::from_millis(50)).await;
    let asked = ask_at(server, &authority).await;
    assert_eq!(reached(&asked), (Stage::Dns, Outcome::DnsSilent));
    assert!(asked.duration < limits().resolve * 2);
}

#[tokio::test]
async fn the_stage_that_failed_is_named() {
    let authority = Authority::new();
    let refused = ask_at(refused_port(), &authority).await;
    assert_eq!(reached(&refused), (Stage::Tcp, Outcome::ConnectionRefused));
    let closes = scripted(&authority, |_| Vec::new(), Duration::ZERO).await;
    assert_eq!(reached(&ask_at(closes, &authority).await), (Stage::Dns, Outcome::DnsClosed));
}

#[tokio::test]
async fn b46_a_certificate_fails_by_name_time_and_authority_and_is_kept_all_the_same() {
    let authority = Authority::new();
    let stranger = Authority::new();
    let named = accept(authority.server("dns.example.net"), |_| async {}).await;
    let addressed = accept(authority.server("127.0.0.1"), |_| async {}).await;
    let old = accept(authority.expired_server("dot.example"), |_| async {}).await;
    let foreign = accept(stranger.server("dot.example"), |_| async {}).await;
    for (name, server, outcome, remark) in [
        (
            "2001:db8::53",
            named,
            Outcome::CertificateName,
            "certificate name mismatch: wanted 2001:db8::53, certificate has dns.example.net",
        ),
        (
            "dot.example",
            named,
            Outcome::CertificateName,
            "certificate name mismatch: wanted dot.example, certificate has dns.example.net",
        ),
        (
            "dot.example",
            addressed,
            Outcome::CertificateName,
            "certificate name mismatch: wanted dot.example, certificate has 127.0.0.1",
        ),
        (
            "dot.example",
            old,
            Outcome::CertificateExpired,
            "the certificate ended 2021-01-01T00:00:00Z; our clock says 20",
        ),
        ("dot.example", foreign, Outcome::CertificateAuthority, "the certificate is issued by \""),
    ] {
        let asked = ask_for(name, server, &authority).await;
        assert_eq!(reached(&asked), (Stage::Tls, outcome), "{name}");
        assert!(asked.trace.remark.starts_with(remark), "{}", asked.trace.remark);
        assert!(asked.trace.certificate.is_some(), "{outcome}");
    }
    // Dial this address, check that name; or the address itself, when the certificate has it.
    let good: fn(Vec<u8>) -> Vec<Vec<u8>> = |query| vec![framed(&answer(&query, "8.6.112.0"))];
    let server = scripted(&authority, good, Duration::ZERO).await;
    assert_eq!(reached(&ask_at(server, &authority).await).1, Outcome::Answered);
    assert_eq!(reached(&ask_for("127.0.0.1", addressed, &authority).await).1, Outcome::DnsClosed);
}

#[tokio::test(start_paused = true)]
async fn no_path_is_told_from_nobody_behind_the_port() {
    let authority = Authority::new();
    let (silent, _held) = silent_port().await;
    assert_eq!(reached(&ask_at(silent, &authority).await), (Stage::Tcp, Outcome::Silent));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let asked = ask_at(listener.local_addr().unwrap(), &authority).await;
    assert_eq!((reached(&asked), asked.trace.certificate), ((Stage::Tls, Outcome::TlsSilent), None));
}
