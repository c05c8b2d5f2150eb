//! What stands between an agent and its coordinator, and how it is named.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::rig::{Agent, Line, Rig};
use super::store::Store;
use super::*;
use crate::offset::ClockOffset;
use crate::probe::testing::{refused_port, silent_port};
use crate::uplink::connector::COORDINATOR_NAME;
use crate::uplink::known::Known;
use crate::uplink::proxy::{Proxy, ProxySetting};

/// A listener that does this with each connection.
async fn listener<F>(talk: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(talk(stream));
        }
    });
    address
}

/// Why an agent whose identity is right does not get through to this address.
async fn lost_at(authority: &Authority, address: impl ToString) -> Lost {
    let state = tempfile::tempdir().unwrap();
    Line::new(state.path(), authority, authority, &[address.to_string()]).lost().await
}

#[tokio::test]
async fn permission_denied_ends_the_agent() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let refusal = Status::permission_denied("vantage branch-kazan was removed");
    let rig = Rig::between(&authority, &authority, Some(refusal)).await;
    let agent = Agent::start(state.path(), &authority, &rig);
    let refused = agent.running.await.unwrap().unwrap_err();
    assert!(refused.to_string().contains("was removed"), "{refused}");
}

#[tokio::test]
async fn b72_who_are_you_and_a_clock_that_is_off_end_nothing() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    for code in [tonic::Code::PermissionDenied, tonic::Code::Unauthenticated] {
        let mut refusal = Status::new(code, "the certificate is not valid yet");
        refusal.metadata_mut().insert("reason", "clock_skew".parse().unwrap());
        refusal.metadata_mut().insert("server-unix-ms", "1000".parse().unwrap());
        let rig = Rig::between(&authority, &authority, Some(refusal)).await;
        let lost = Line::new(state.path(), &authority, &authority, &[rig.address.to_string()]).lost().await;
        assert_eq!((lost.pace, lost.word, lost.about_time), (Pace::Slow, "clock_skew", true));
        assert!(lost.why.contains("ms later"), "{}", lost.why);
    }
    let rig = Rig::between(&authority, &authority, Some(Status::unauthenticated("who are you?"))).await;
    let lost = lost_at(&authority, rig.address).await;
    assert_eq!((lost.pace, lost.word), (Pace::Slow, "not_admitted"));
}

#[tokio::test]
async fn a_stranger_is_neither_spoken_to_nor_believed() {
    let (authority, stranger) = (Authority::new(), Authority::named("Acme Inspection"));
    let state = tempfile::tempdir().unwrap();
    // The coordinator does not know our authority: the handshake looks fine, reading tells.
    let rig = Rig::start(&authority).await;
    let to = [rig.address.to_string()];
    let lost = Line::new(state.path(), &stranger, &authority, &to).lost().await;
    assert!(lost.why.contains("does not accept this agent's certificate"), "{}", lost.why);
    assert_eq!((lost.pace, lost.word), (Pace::Slow, "certificate_refused"));
    // We do not know the coordinator's.
    let rig = Rig::between(&stranger, &authority, None).await;
    let lost = lost_at(&authority, rig.address).await;
    assert!(lost.why.contains("'Acme Inspection'") && lost.why.contains("inspects TLS"), "{}", lost.why);
    assert!(lost.why.contains(&format!("exempt {}", rig.address)), "{}", lost.why);
    assert_eq!((lost.pace, lost.word), (Pace::Slow, "tls_inspected"));
    // Nor one that is only called as ours.
    let (one, other) = (Authority::named("Parallax"), Authority::named("Parallax"));
    let rig = Rig::between(&other, &one, None).await;
    assert_eq!(lost_at(&one, rig.address).await.word, "other_authority");
    // Nor a vantage that poses as one.
    let rig = Rig::with(authority.issue("branch-perm"), &authority, None).await;
    assert_eq!(lost_at(&authority, rig.address).await.word, "not_a_coordinator");
}

#[tokio::test]
async fn b64_b72_certificates_out_of_their_time_name_the_clock() {
    let authority = Authority::new();
    // For us the coordinator's certificate is over, as on a machine whose clock is years ahead.
    let rig = Rig::with(authority.issue_for(COORDINATOR_NAME, 2020..2021), &authority, None).await;
    let lost = lost_at(&authority, rig.address).await;
    assert_eq!((lost.pace, lost.word, lost.about_time), (Pace::Slow, "clock_suspected", true));
    assert!(lost.why.contains("local clock suspected") && lost.why.contains("2021-01-01"), "{}", lost.why);
    // Not begun, as on a machine whose clock stands at its making.
    let rig = Rig::with(authority.issue_for(COORDINATOR_NAME, 2090..2091), &authority, None).await;
    let lost = lost_at(&authority, rig.address).await;
    assert!(lost.word == "clock_suspected" && lost.why.contains("2090-01-01"), "{}", lost.why);
    // For the coordinator ours is over.
    let (rig, state) = (Rig::start(&authority).await, tempfile::tempdir().unwrap());
    let mut line = Line::new(state.path(), &authority, &authority, &[rig.address.to_string()]);
    let (certificate, key) = authority.issue_for("branch-kazan", 2020..2021);
    std::fs::write(state.path().join("identity/certificate.pem"), certificate).unwrap();
    std::fs::write(state.path().join("identity/key.pem"), key).unwrap();
    let lost = line.lost().await;
    assert_eq!((lost.pace, lost.word, lost.about_time), (Pace::Slow, "certificate_refused", true));
    assert!(lost.why.contains("CertificateExpired") && lost.why.contains("2021-01-01"), "{}", lost.why);
}

#[tokio::test]
async fn b38_tls_that_hangs_after_tcp_hints_at_the_path_mtu_and_is_tried_slowly() {
    let authority = Authority::new();
    let hole = listener(|stream| async move {
        let _held = stream;
        std::future::pending().await
    });
    let lost = lost_at(&authority, hole.await).await;
    assert!(lost.why.contains("MTU"), "{}", lost.why);
    assert_eq!((lost.pace, lost.word), (Pace::Slow, "tls_hangs"));
}

#[tokio::test]
async fn what_is_no_coordinator_is_named() {
    let authority = Authority::new();
    let portal = listener(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 302 Found\r\nLocation: http://portal/\r\n\r\n").await;
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    });
    assert_eq!(lost_at(&authority, portal.await).await.word, "not_tls");
    let closer = listener(|stream| async move { drop(stream) });
    assert_eq!(lost_at(&authority, closer.await).await.word, "tls_ended");
    assert_eq!(lost_at(&authority, refused_port()).await.word, "unreachable");
    let lost = lost_at(&authority, "no.such.name.invalid:8443").await;
    assert!(lost.word == "lookup_failed" && lost.why.contains("DNS"), "{}", lost.why);
}

#[tokio::test]
async fn b75_where_it_was_stands_in_when_the_name_gives_nothing_or_the_wrong_thing() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    // A portal's answer: TCP works there, the certificate does not.
    let imposter = Rig::between(&Authority::new(), &authority, None).await;
    for name in ["no.such.name.invalid:8443".to_owned(), imposter.address.to_string()] {
        let rig = Rig::start(&authority).await;
        Known::open(state.path()).proved(&name, rig.address);
        let agent = Line::new(state.path(), &authority, &authority, &[name]).run();
        let store = Store::default();
        store.serve(rig);
        agent.record(3);
        store.holds(3).await;
        agent.stop().await;
        std::fs::remove_dir_all(state.path().join("spool")).unwrap();
    }
}

#[tokio::test]
async fn b75_a_connection_that_proved_itself_is_kept_on_disk() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let mut rig = Rig::start(&authority).await;
    let name = format!("localhost:{}", rig.address.port());
    let agent = Line::new(state.path(), &authority, &authority, std::slice::from_ref(&name)).run();
    rig.greeted().await;
    assert_eq!(Known::open(state.path()).of(&name), [rig.address]);
    agent.stop().await;
}

#[tokio::test]
async fn several_coordinators_are_tried_in_turn() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let (silent, _held) = silent_port().await;
    let rigs = [Rig::start(&authority).await, Rig::start(&authority).await];
    let [first, second] = rigs;
    let to = [refused_port(), first.address, second.address].map(|address| address.to_string());
    let agent = Line::new(state.path(), &authority, &authority, &to).run();
    let _ = silent;
    let (mut first, store) = (first, Store::default());
    first.greeted().await.end(Status::unavailable("the coordinator is ending")).await;
    store.serve(second);
    agent.record(5);
    store.holds(5).await;
    agent.stop().await;
}

/// A proxy that answers CONNECT so, and after a 200 passes on to `to`.
async fn proxy(answer: &'static str, to: SocketAddr) -> (SocketAddr, mpsc::Receiver<String>) {
    let (send, asked) = mpsc::channel(8);
    let address = listener(move |mut stream| {
        let send = send.clone();
        async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            send.send(String::from_utf8(head).unwrap()).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            if answer.contains(" 200 ") {
                let mut onward = TcpStream::connect(to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut onward).await;
            }
        }
    });
    (address.await, asked)
}

fn through(state: &std::path::Path, proxy: Proxy) -> Connector {
    Connector::new(ProxySetting::Through(proxy), Known::open(state), ClockOffset::default())
}

#[tokio::test]
async fn through_a_proxy_everything_arrives_and_its_name_is_not_looked_up_here() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let rig = Rig::start(&authority).await;
    let (address, mut asked) = proxy("HTTP/1.1 200 Connection established\r\n\r\n", rig.address).await;
    let credentials = state.path().join("credentials");
    std::fs::write(&credentials, "kazan:secret\n").unwrap();
    let mut line = Line::new(state.path(), &authority, &authority, &["c.invalid:8443".to_owned()]);
    let setting = Proxy::parse(&format!("http://{address}")).unwrap().with_credentials(&credentials).unwrap();
    line.uplink.connector = through(state.path(), setting);
    let (agent, store) = (line.run(), Store::default());
    store.serve(rig);
    agent.record(3);
    store.holds(3).await;
    let asked = asked.recv().await.unwrap();
    assert!(asked.starts_with("CONNECT c.invalid:8443 HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains("Proxy-Authorization: Basic a2F6YW46c2VjcmV0\r\n"), "{asked}");
    agent.stop().await;
}

#[tokio::test]
async fn a_proxy_that_does_not_let_us_through_is_named() {
    let authority = Authority::new();
    for (answer, part, pace) in [
        ("HTTP/1.1 407 No\r\nProxy-Authenticate: NTLM\r\n\r\n", "NTLM", Pace::Slow),
        ("HTTP/1.1 403 No\r\n\r\n", "forbids", Pace::Slow),
        ("HTTP/1.1 503 No\r\n\r\n", "cannot reach", Pace::Spread),
        ("220 mail ESMTP\r\n", "no HTTP", Pace::Slow),
    ] {
        let state = tempfile::tempdir().unwrap();
        let (address, _asked) = proxy(answer, refused_port()).await;
        let mut line = Line::new(state.path(), &authority, &authority, &["c.invalid:8443".to_owned()]);
        line.uplink.connector = through(state.path(), Proxy::parse(&address.to_string()).unwrap());
        let lost = line.lost().await;
        assert!(lost.why.contains(part) && lost.why.contains(&address.to_string()), "{}", lost.why);
        assert_eq!((lost.word, lost.pace), ("proxy_refused", pace));
    }
    let state = tempfile::tempdir().unwrap();
    let mut line = Line::new(state.path(), &authority, &authority, &["c.invalid:8443".to_owned()]);
    line.uplink.connector = through(state.path(), Proxy::parse(&refused_port().to_string()).unwrap());
    assert_eq!(line.lost().await.word, "proxy_unreachable");
}
