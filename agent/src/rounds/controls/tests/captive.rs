//! The captive-portal question, against servers that answer as portals do.

use std::net::SocketAddr;

use parallax_decide::observation::Outcome;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::dial::Dialer;
use crate::local::Allow;
use crate::policy::Policy;
use crate::probe::live::LiveServers;
use crate::probe::testing::{Authority, name_server};
use crate::site::Site;

/// Answers each HTTP request with these bytes; what it was asked.
async fn web(bytes: &'static str) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            noted.lock().unwrap().push(String::from_utf8(request).unwrap());
            stream.write_all(bytes.as_bytes()).await.unwrap();
        }
    });
    (at, heard)
}

#[tokio::test]
async fn the_captive_portal_question_is_good_with_204_alone() {
    use Outcome as O;
    for (answer, outcome, status) in [
        ("HTTP/1.1 204 No Content\r\n\r\n", O::HttpOk, 204),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nlogin", O::HttpStatus, 200),
        ("HTTP/1.1 511 Network Authentication Required\r\ncontent-length: 0\r\n\r\n", O::HttpStatus, 511),
        ("HTTP/1.0 302 Found\r\nlocation: http://10.0.0.1/login\r\n\r\n", O::HttpRedirect, 302),
        ("<html>log in</html>\r\n\r\n", O::HttpMalformed, 0),
        ("", O::HttpClosed, 0),
    ] {
        let (at, heard) = web(answer).await;
        let mut world = World::with_answers(&[GOOD]).await;
        world.place_at(&format!("{GOOD}:80"), at);
        let assignment = assignment(|wire| wire.controls = vec![captive("http://portal.example/generate_204?x=1")]);
        world.round(Kind::Controls, &assignment).await;
        let [check] = checks(world.seen()).try_into().unwrap();
        assert_eq!((check.outcome().as_str_name(), check.http_status), (wire_name(outcome), status), "{answer:?}");
        assert_eq!(check.address, bytes(GOOD), "found at the live resolver");
        assert!(check.tcp_us > 0);
        let request = heard.lock().unwrap().concat();
        assert!(request.starts_with("GET /generate_204?x=1 HTTP/1.1\r\nhost: portal.example\r\n"), "{request}");
    }
}

fn wire_name(outcome: Outcome) -> &'static str {
    let mut name = String::from("OUTCOME_");
    name.push_str(&outcome.word().to_uppercase());
    v1::Outcome::from_str_name(&name).unwrap().as_str_name()
}

#[tokio::test]
async fn a_portal_that_lies_in_dns_is_told_and_not_contacted() {
    let mut world = World::with_answers(&["10.0.0.1"]).await;
    let (at, heard) = web("HTTP/1.1 204 No Content\r\n\r\n").await;
    world.place_at("10.0.0.1:80", at);
    let assignment = assignment(|wire| wire.controls = vec![captive("http://portal.example/")]);
    world.round(Kind::Controls, &assignment).await;
    let [check] = checks(world.seen()).try_into().unwrap();
    assert_eq!((check.outcome(), &check.address), (v1::Outcome::SpecialAddress, &bytes("10.0.0.1")));
    assert!(heard.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_captive_url_with_an_address_asks_no_resolver() {
    let world = World::with_answers(&[GOOD]).await;
    for url in ["http://portal.example:8080/", "http://104.26.4.10/"] {
        let assignment = assignment(|wire| {
            wire.controls = vec![captive(url)];
            wire.controls[0].address = bytes(GOOD);
        });
        world.round(Kind::Controls, &assignment).await;
    }
    let outcomes: Vec<v1::Outcome> = checks(world.seen()).iter().map(v1::ControlCheck::outcome).collect();
    // A port of the owner's; nothing at port 80 in this world.
    assert_eq!(outcomes, [v1::Outcome::RefusedByPolicy, v1::Outcome::NetUnreachable]);
    assert_eq!(world.questions(), 0);
}

#[tokio::test]
async fn a_portals_host_that_cannot_be_looked_up_is_told_in_the_resolvers_words() {
    let site = |servers| {
        let dialer = Dialer::direct();
        Site::new(dialer, Policy::new(Allow::default()), Authority::new().trust(), LiveServers::new(servers))
    };
    let mut limits = crate::probe::testing::limits();
    limits.resolve = Duration::from_millis(300);
    let [control] = controls_of(vec![captive("http://portal.example/")]).try_into().unwrap();
    for (servers, outcome) in [
        (vec![name_server(&[]).await], Outcome::Empty),
        (vec![crate::probe::testing::refused_port()], Outcome::ConnectionRefused),
    ] {
        let measured = control::check(&site(servers), &limits, &control).await;
        assert_eq!(measured.what.outcome(), outcome);
    }
}
