//! A coordinator's name that moves, lies or is gone, and a path that swallows: in a network of the
//! test's own, with its own resolver.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Mutex;

use domain::base::iana::{Rcode, Rtype};
use domain::base::{Message, MessageBuilder, Ttl};
use tokio::net::UdpSocket;

use super::cut::Cut;
use super::rig::{Agent, Line, Rig};
use super::store::Store;
use super::*;
use crate::netns::{inside, sh};
use crate::uplink::connector::COORDINATOR_NAME;

/// The coordinator, as its agents know it.
const NAME: &str = "c.example.com:8443";

/// Where it is, first and then.
const FIRST: &str = "203.0.113.10";
const SECOND: &str = "203.0.113.20";

/// What the place's resolver says of any name.
#[derive(Debug, Clone)]
enum Says {
    Addresses(Vec<&'static str>),
    Fails(Rcode),
    Nothing,
}

/// The place's resolver, which can change its mind.
#[derive(Clone)]
struct Resolver(Arc<Mutex<Says>>);

impl Resolver {
    /// At the address that the place's /etc/resolv.conf names from now on.
    async fn start(folder: &Path, says: Says) -> Self {
        let file = folder.join("resolv.conf");
        std::fs::write(&file, "nameserver 127.0.0.53\noptions timeout:1 attempts:1\n").unwrap();
        sh(&format!("mount --bind {} /etc/resolv.conf", file.display()));
        let socket = UdpSocket::bind("127.0.0.53:53").await.unwrap();
        let resolver = Self(Arc::new(Mutex::new(says)));
        let answering = resolver.clone();
        tokio::spawn(async move {
            let mut buffer = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                if let Some(reply) = answering.reply(&buffer[..length]) {
                    socket.send_to(&reply, from).await.unwrap();
                }
            }
        });
        resolver
    }

    fn says(&self, says: Says) {
        *self.0.lock().unwrap() = says;
    }

    fn reply(&self, query: &[u8]) -> Option<Vec<u8>> {
        let query = Message::from_octets(query).unwrap();
        let (code, addresses) = match self.0.lock().unwrap().clone() {
            Says::Addresses(addresses) => (Rcode::NOERROR, addresses),
            Says::Fails(code) => (code, Vec::new()),
            Says::Nothing => return None,
        };
        let mut answer = MessageBuilder::new_vec().start_answer(&query, code).unwrap();
        let question = query.sole_question().unwrap();
        if question.qtype() == Rtype::A {
            for address in addresses {
                let data = domain::rdata::A::new(address.parse::<Ipv4Addr>().unwrap());
                answer.push((question.qname().to_owned(), Ttl::from_secs(1), data)).unwrap();
            }
        }
        Some(answer.finish())
    }
}

/// A place with both addresses, and a coordinator that listens on each.
async fn place(authority: &Authority) -> Rig {
    sh(&format!("ip link set lo mtu 1500; ip addr add {FIRST}/32 dev lo; ip addr add {SECOND}/32 dev lo"));
    Rig::at("0.0.0.0:8443", authority.issue(COORDINATOR_NAME), authority, None).await
}

/// Swallows what arrives and matches.
fn swallow(rule: &str) {
    sh(&format!(
        "nft 'table inet faults; delete table inet faults; table inet faults {{ chain arriving {{ type filter hook input priority 0; {rule}; }}; }}'"
    ));
}

fn agent(state: &Path, authority: &Authority) -> Agent {
    Line::new(state, authority, authority, &[NAME.to_owned()]).run()
}

#[tokio::test]
async fn b75_a_name_that_moved_is_followed_without_a_restart() {
    if !inside(module_path!(), "b75_a_name_that_moved_is_followed_without_a_restart") {
        return;
    }
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let (rig, store) = (place(&authority).await, Store::default());
    let resolver = Resolver::start(state.path(), Says::Addresses(vec![FIRST])).await;
    let agent = agent(state.path(), &authority);
    store.serve(rig);
    agent.record(5);
    store.holds(5).await;
    // The old place falls silent, without a word to the streams there.
    swallow(&format!("ip daddr {FIRST} drop; ip saddr {FIRST} drop"));
    resolver.says(Says::Addresses(vec![SECOND]));
    agent.record(5);
    store.holds(10).await;
    agent.stop().await;
}

#[tokio::test]
async fn b75_of_two_addresses_the_first_may_be_dead() {
    if !inside(module_path!(), "b75_of_two_addresses_the_first_may_be_dead") {
        return;
    }
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let (rig, store) = (place(&authority).await, Store::default());
    swallow(&format!("ip daddr {FIRST} drop"));
    let _resolver = Resolver::start(state.path(), Says::Addresses(vec![FIRST, SECOND])).await;
    let agent = agent(state.path(), &authority);
    store.serve(rig);
    agent.record(5);
    store.holds(5).await;
    agent.stop().await;
}

#[tokio::test]
async fn b75_with_the_places_dns_broken_the_coordinator_is_found_where_it_was() {
    if !inside(module_path!(), "b75_with_the_places_dns_broken_the_coordinator_is_found_where_it_was") {
        return;
    }
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let (rig, store) = (place(&authority).await, Store::default());
    let resolver = Resolver::start(state.path(), Says::Addresses(vec![SECOND])).await;
    let mut agent = agent(state.path(), &authority);
    let cuts = rig.cuts.clone();
    store.serve(rig);
    let mut rows = 0;
    for says in [Says::Addresses(vec![SECOND]), Says::Nothing, Says::Fails(Rcode::SERVFAIL)] {
        resolver.says(says);
        cuts.all(Cut::Reset);
        agent.record(5);
        rows += 5;
        store.holds(rows).await;
    }
    // Also after a restart: what was good is on disk.
    agent.stop().await;
    agent = self::agent(state.path(), &authority);
    agent.record(5);
    store.holds(rows + 5).await;
    agent.stop().await;
}

#[tokio::test]
async fn b23_a_coordinator_that_could_not_be_found_at_the_start_is_found_later() {
    if !inside(module_path!(), "b23_a_coordinator_that_could_not_be_found_at_the_start_is_found_later") {
        return;
    }
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let (rig, store) = (place(&authority).await, Store::default());
    sh("ip addr add 10.0.0.1/32 dev lo");
    // The portal swallows what is not meant for it.
    swallow("ip daddr 10.0.0.1 tcp dport 8443 reject with tcp reset");
    let resolver = Resolver::start(state.path(), Says::Fails(Rcode::SERVFAIL)).await;
    let agent = agent(state.path(), &authority);
    store.serve(rig);
    agent.record(5);
    for (says, word) in [
        (Says::Fails(Rcode::SERVFAIL), "lookup_failed"),
        (Says::Addresses(vec!["10.0.0.1"]), "unreachable"),
        (Says::Fails(Rcode::NXDOMAIN), "lookup_failed"),
    ] {
        resolver.says(says);
        let told = async {
            while agent.status.snapshot().trouble != Some(word) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), told).await.expect(word);
    }
    resolver.says(Says::Addresses(vec![FIRST]));
    store.holds(5).await;
    agent.stop().await;
}

#[tokio::test]
async fn b38_a_path_that_loses_large_packets_is_hinted_at_in_either_direction() {
    if !inside(module_path!(), "b38_a_path_that_loses_large_packets_is_hinted_at_in_either_direction") {
        return;
    }
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let _rig = place(&authority).await;
    let _resolver = Resolver::start(state.path(), Says::Addresses(vec![FIRST])).await;
    for (rule, word) in [
        ("tcp sport 8443 meta length > 500 drop", "tls_hangs"),
        ("tcp dport 8443 meta length > 500 drop", "no_greeting"),
    ] {
        swallow(rule);
        let mut line = Line::new(state.path(), &authority, &authority, &[NAME.to_owned()]);
        line.uplink.timing.greeting_max = Duration::from_secs(1);
        line.uplink.timing.keepalive_every = Duration::from_secs(5);
        let lost = line.lost().await;
        assert_eq!(lost.word, word, "{}", lost.why);
        assert!(lost.why.contains("MTU"), "{}", lost.why);
        assert_ne!(lost.pace, Pace::Usual, "no fast reconnecting");
    }
}

#[tokio::test]
async fn b38_a_path_that_loses_large_packets_is_passed_with_small_segments() {
    if !inside(module_path!(), "b38_a_path_that_loses_large_packets_is_passed_with_small_segments") {
        return;
    }
    let authority = Authority::new();
    let (folder, store) = (tempfile::tempdir().unwrap(), Store::default());
    let rig = place(&authority).await;
    let _resolver = Resolver::start(folder.path(), Says::Addresses(vec![FIRST])).await;
    store.serve(rig);
    for (rows, port) in [(5, "sport"), (10, "dport")] {
        swallow(&format!("tcp {port} 8443 meta length > 620 drop"));
        let state = tempfile::tempdir().unwrap();
        let mut line = Line::new(state.path(), &authority, &authority, &[NAME.to_owned()]);
        line.uplink.timing.greeting_max = Duration::from_secs(1);
        line.uplink.timing.keepalive_every = Duration::from_secs(5);
        let agent = line.run();
        agent.record(5);
        store.holds(rows).await;
        agent.stop().await;
    }
}
