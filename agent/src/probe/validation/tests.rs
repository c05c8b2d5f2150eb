//! Zones that BIND signs, and answers that nobody signed.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use parallax_decide::observation::Resolution;

use super::*;
use crate::assignment::Transport;
use crate::dial::Dialer;
use crate::local::Allow;
use crate::measured::{Measured, What};
use crate::policy::Policy;
use crate::probe::live::LiveServers;
use crate::probe::message::Question;
use crate::probe::resolution::resolve;
use crate::probe::testing::rig1::{Datagram, Rig1, Said};
use crate::probe::testing::{Authority, limits};

/// Zones of BIND's, and the server that has them all.
struct World {
    named: Child,
    server: SocketAddr,
    anchors: Vec<KeyDigest>,
    _folder: tempfile::TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        self.named.kill().unwrap();
        self.named.wait().unwrap();
    }
}

impl World {
    /// `None` where there is no BIND.
    fn new() -> Option<Self> {
        for tool in ["dnssec-signzone", "named"] {
            if Command::new(tool).arg("-V").output().is_err() {
                assert!(std::env::var_os("CI").is_none(), "CI must have {tool}");
                eprintln!("SKIPPED, LOUDLY: there is no {tool}");
                return None;
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let server = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let script = include_str!("tests/zones.sh");
        let port = server.port().to_string();
        let made = Command::new("sh").args(["-c", script, "sh", &port]).current_dir(folder.path()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let anchors = String::from_utf8(made.stdout).unwrap().lines().map(anchor).collect();
        Some(Self { named: named(folder.path()), server, anchors, _folder: folder })
    }

    /// A place with this world's root key, whose live resolver is `server`.
    fn site(&self, server: SocketAddr) -> Site {
        let allow = Allow {
            private: vec!["127.0.0.0/8".parse().unwrap()],
            ports: (1..=u16::MAX).collect(),
            questions_per_minute: 100_000,
            ..Allow::default()
        };
        let live = LiveServers::new(vec![server]);
        let site = Site::new(Dialer::direct(), Policy::on_loopback(allow), Authority::new().trust(), live);
        Site { validator: Validator::of(self.anchors.clone()), ..site }
    }
}

fn named(folder: &Path) -> Child {
    let mut named = Command::new("named");
    named.args(["-g", "-n", "1", "-c", "named.conf"]).current_dir(folder);
    named.stdout(Stdio::null()).stderr(std::fs::File::create(folder.join("log")).unwrap()).spawn().unwrap()
}

/// A line of a file of DS records.
fn anchor(line: &str) -> KeyDigest {
    let words: Vec<&str> = line.split_whitespace().collect();
    let hex = words[6..].concat();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    KeyDigest {
        tag: words[3].parse().unwrap(),
        algorithm: words[4].parse().unwrap(),
        kind: words[5].parse().unwrap(),
        digest: hex.as_bytes().chunks(2).map(byte).collect(),
    }
}

fn live() -> Resolver {
    Resolver { name: "live".parse().unwrap(), transport: Transport::Live }
}

async fn validated(site: &Site, resolver: &Resolver, name: &str, family: Family) -> (Outcome, Validation) {
    let question = Question { name: name.parse().unwrap(), family };
    let limits = Limits { resolve: Duration::from_secs(5), ..limits() };
    let mut resolved = resolve(site, &limits, resolver, &question).await;
    resolved.validate(site, &limits, resolver).await;
    let Measured { what: What::Resolution(fact, kept), .. } = resolved.finish().await else { panic!() };
    (fact.outcome, kept.validation.unwrap_or(Validation::Indeterminate))
}

/// Waits until the server has the zone that it signs itself.
async fn ready(site: &Site) {
    for _ in 0..100 {
        if validated(site, &live(), "www.policy.test", Family::V4).await.1 == Validation::Secure {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        site.validator.answers.lock().unwrap().clear();
    }
    panic!("BIND did not sign the zone with its policy");
}

#[tokio::test]
async fn answers_of_zones_that_bind_signed_and_of_those_it_did_not() {
    let Some(world) = World::new() else { return };
    let site = world.site(world.server);
    ready(&site).await;
    use Outcome as O;
    use Validation as V;
    for (name, outcome, validation) in [
        ("www.signed.test", O::Answered, V::Secure),
        ("WWW.Signed.Test", O::Answered, V::Secure),
        ("alias.signed.test", O::Answered, V::Secure),
        ("deep.er.signed.test", O::Answered, V::Secure),
        ("x.wild.signed.test", O::Answered, V::Secure),
        ("y.x.wild.signed.test", O::Answered, V::Secure),
        ("www.optout.test", O::Answered, V::Secure),
        ("y.x.wild.optout.test", O::Answered, V::Secure),
        ("www.policy.test", O::Answered, V::Secure),
        // An alias that leads out of what is signed; a server that does not recurse leaves it at that.
        ("toplain.signed.test", O::DanglingCname, V::Insecure),
        ("www.plain.test", O::Answered, V::Insecure),
        ("www.child.optout.test", O::Answered, V::Insecure),
        // The address was changed after the signing; the signature is of the year 2020.
        ("www.broken.test", O::Answered, V::Bogus),
        ("www.expired.test", O::Answered, V::Bogus),
        // Proofs that there is nothing.
        ("nothere.signed.test", O::Nxdomain, V::Secure),
        ("nothere.a.signed.test", O::Nxdomain, V::Secure),
        ("er.signed.test", O::Empty, V::Secure),
        ("nothere.policy.test", O::Nxdomain, V::Secure),
        ("nothere", O::Nxdomain, V::Secure),
        // In an opt-out gap there may be names that nobody signed.
        ("nothere.optout.test", O::Nxdomain, V::Insecure),
    ] {
        assert_eq!(validated(&site, &live(), name, Family::V4).await, (outcome, validation), "{name}");
    }
    assert_eq!(validated(&site, &live(), "www.signed.test", Family::V6).await, (O::Empty, V::Secure));
    assert_eq!(validated(&site, &live(), "www.optout.test", Family::V6).await, (O::Empty, V::Secure));
    assert_eq!(validated(&site, &live(), "x.wild.signed.test", Family::V6).await, (O::Empty, V::Secure));
    let tcp = Resolver { name: "tcp".parse().unwrap(), transport: Transport::Tcp { server: world.server } };
    let udp = Resolver { name: "udp".parse().unwrap(), transport: Transport::Plain { server: world.server } };
    for resolver in [tcp, udp] {
        let fresh = world.site(world.server);
        assert_eq!(validated(&fresh, &resolver, "www.signed.test", Family::V4).await, (O::Answered, V::Secure));
        assert_eq!(validated(&fresh, &resolver, "www.broken.test", Family::V4).await, (O::Answered, V::Bogus));
    }
    // Another root's key.
    let other = Site { validator: Validator::default(), ..world.site(world.server) };
    assert_eq!(validated(&other, &live(), "www.signed.test", Family::V4).await, (O::Answered, V::Bogus));
    forged(&world).await;
    over_https(&world).await;
}

/// The same zones behind DNS over HTTPS, and over TLS.
#[cfg(feature = "lab")]
async fn over_https(world: &World) {
    use crate::probe::doh::{Form, HttpVersion};
    use crate::probe::testing::doh::{Answer, HOST, doh, serve};

    let server = world.server;
    let authority = Authority::new();
    let script = move |seen: &crate::probe::testing::doh::Seen| {
        Answer::new(200, "application/dns-message", relayed(&seen.message().unwrap(), server))
    };
    let https = serve(authority.server(HOST), &["h2", "http/1.1"], script).await;
    let tls = crate::probe::testing::accept(authority.server("dot.example"), move |mut stream| async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        // The next connection comes while this one waits in the pool.
        tokio::spawn(async move {
            while let Ok(length) = stream.read_u16().await {
                let mut query = vec![0; usize::from(length)];
                stream.read_exact(&mut query).await.unwrap();
                let reply = relayed(&query, server);
                let length = u16::try_from(reply.len()).unwrap().to_be_bytes();
                stream.write_all(&[&length[..], &reply].concat()).await.unwrap();
            }
        });
    })
    .await;
    let mut resolvers: Vec<Resolver> = [(Form::WirePost, None), (Form::WireGet, Some(HttpVersion::Http1))]
        .into_iter()
        .map(|(form, http)| doh(https.address, form, http))
        .collect();
    let transport = Transport::Dot { server: tls, server_name: "dot.example".to_owned() };
    resolvers.push(Resolver { name: "dot".parse().unwrap(), transport });
    for resolver in resolvers {
        let site = Site { trust: authority.trust(), ..world.site(server) };
        for (name, validation) in [("www.signed.test", Validation::Secure), ("www.broken.test", Validation::Bogus)] {
            let found = validated(&site, &resolver, name, Family::V4).await;
            assert_eq!(found, (Outcome::Answered, validation), "{name} by {:?}", resolver.transport);
        }
    }
}

#[cfg(not(feature = "lab"))]
async fn over_https(_: &World) {}

/// What the server says, asked in the plain way.
fn relayed(query: &[u8], server: SocketAddr) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(query, server).unwrap();
    let mut buffer = [0; 4096];
    let length = socket.recv(&mut buffer).unwrap();
    buffer[..length].to_vec()
}

/// A liar between us and the server.
async fn forged(world: &World) {
    let server = world.server;
    let rig = Rig1::udp(move |query, _| {
        // The type stands at the end of the question: A is asked for by one in two of the names below.
        let end = query[12..].iter().position(|byte| *byte == 0).unwrap() + 12 + 1;
        let (name, rtype) = (&query[12..end], query[end + 1]);
        let forges = name.starts_with(b"\x03www") && rtype == 1;
        if forges {
            let name = if name.windows(6).any(|part| part == b"signed") { "www.signed.test" } else { "www.plain.test" };
            return vec![Datagram::now(Said::to(query).address_of(name, "198.51.100.66", 60).bytes())];
        }
        vec![Datagram::now(relayed(query, server))]
    })
    .await;
    let site = world.site(rig.address);
    let signed = validated(&site, &live(), "www.signed.test", Family::V4).await;
    assert_eq!(signed, (Outcome::Answered, Validation::Bogus), "without a signature in a signed zone");
    let plain = validated(&site, &live(), "www.plain.test", Family::V4).await;
    assert_eq!(plain, (Outcome::Answered, Validation::Insecure), "what nobody signs can be forged");

    // The keys of the zones on the way are known now, and the answer is too: only a new one is asked for.
    let before = rig.queries().len();
    let again = validated(&site, &live(), "www.signed.test", Family::V4).await;
    assert_eq!((again.1, rig.queries().len() - before), (Validation::Bogus, 1), "once in its lifetime");
}

#[tokio::test]
async fn a_resolver_that_says_nothing_useful_proves_nothing() {
    let rig = Rig1::udp(|query, _| {
        let dnssec = query[query.len() - 4] & 0x80 != 0;
        vec![Datagram::now(if dnssec {
            Said::to(query).rcode(2).bytes()
        } else {
            Said::to(query).address("203.0.113.10", 60).bytes()
        })]
    })
    .await;
    let allow = Allow { private: vec!["127.0.0.0/8".parse().unwrap()], ..Allow::default() };
    let live_servers = LiveServers::new(vec![rig.address]);
    let site = Site::new(Dialer::direct(), Policy::on_loopback(allow), Authority::new().trust(), live_servers);
    let found = validated(&site, &live(), "example.com", Family::V4).await;
    assert_eq!(found, (Outcome::Answered, Validation::Indeterminate));
}

#[test]
fn what_a_signed_answer_proves_of_the_given_one() {
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let judged = |addresses: &[&str]| Judged {
        validation: Validation::Secure,
        addresses: addresses.iter().map(|text| address(text)).collect(),
    };
    let given = |outcome, addresses: &[&str]| Resolution {
        name: "example.com".parse().unwrap(),
        resolver: "live".parse().unwrap(),
        family: Family::V4,
        outcome,
        addresses: addresses.iter().map(|text| address(text)).collect(),
        ttl_s: 60,
    };
    let (one, two) = ("203.0.113.10", "203.0.113.11");
    for (signed, outcome, addresses, validation) in [
        (&[one, two][..], Outcome::Answered, &[two][..], Validation::Secure),
        (&[one], Outcome::Answered, &[two], Validation::Indeterminate),
        (&[], Outcome::Answered, &[two], Validation::Bogus),
        (&[], Outcome::Nxdomain, &[], Validation::Secure),
        (&[one], Outcome::Nxdomain, &[], Validation::Indeterminate),
        (&[one], Outcome::Servfail, &[], Validation::Indeterminate),
    ] {
        assert_eq!(
            of_given(&judged(signed), &given(outcome, addresses)),
            validation,
            "{signed:?} {outcome} {addresses:?}"
        );
    }
}

#[test]
fn hostile_records_never_panic() {
    let query =
        Said::to(&Question { name: "example.com".parse().unwrap(), family: Family::V4 }.message(1, true).unwrap());
    let rrsig = [&[0, 1, 8, 2, 0, 0, 0, 60][..], &[0xff; 8], &[0, 7, 0], &[1; 64]].concat();
    let records: [(u16, Vec<u8>); 5] = [
        (46, rrsig),
        (48, vec![1, 0, 3, 8, 0]),
        (43, vec![0, 7, 8, 2, 1]),
        (47, vec![0, 0, 1, 0x40]),
        (50, vec![1, 0, 0, 1, 2, 0xab, 0xcd, 2, 1, 2, 0, 1, 0x40]),
    ];
    let zone = Canonical::root();
    for (rtype, data) in records {
        for length in 0..=data.len() {
            for place in 0..length {
                for value in [0, 1, 0x3f, 0xc0, 0xff] {
                    let mut data = data[..length].to_vec();
                    data[place] = value;
                    let mut checks = keys::Checks::default();
                    let said = query.clone().address("203.0.113.10", 60);
                    let bytes =
                        said.record(crate::probe::testing::rig1::In::Answer, "example.com", rtype, 60, &data).bytes();
                    let Some(records) = records::Records::read(&bytes) else { continue };
                    for set in &records.answer {
                        let all: Vec<keys::Key> = set.data.iter().filter_map(|data| keys::Key::read(data)).collect();
                        let digests: Vec<KeyDigest> =
                            set.data.iter().filter_map(|data| KeyDigest::read(data)).collect();
                        let _ = keys::authentic(set, &zone, &all, 0, &mut checks);
                        let _ = keys::trusted(&set.owner, set, &digests, 0, &mut checks);
                        let denials = denial::Denials::of(&zone, std::iter::once(set));
                        let name = Canonical::of(&"a.example.com".parse().unwrap()).unwrap();
                        let _ = (denials.cut(&name), denials.missing(&name), denials.lacks(&name, Rtype::A));
                        let _ = denials.nearest_is(&name, 1);
                    }
                }
            }
        }
    }
}
