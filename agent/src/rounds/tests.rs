//! Rounds in a small world on the loopback interface: a name server, a web server, a map.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use parallax_decide::observation::Lane;
use parallax_proto::v1::{self, observation::Fact};
use tokio::net::UdpSocket;

use super::*;
use crate::assignment::wire::tests::wire;
use crate::dial::Dialer;
use crate::local::Allow;
use crate::policy::Policy;
use crate::probe::live::LiveServers;
use crate::probe::testing::{Authority, answer, refused_port, serve, silent_port};
use crate::spool::{BootId, Limits as SpoolLimits, Spool};
use crate::uplink::wire::row;

pub(crate) const GOOD: &str = "104.26.4.10";
const BAD: &str = "8.6.112.0";

/// Everything that was recorded and not looked at yet.
pub(crate) fn seen(recorder: &Recorder) -> Vec<v1::Observation> {
    let mut seen = Vec::new();
    for lane in Lane::ALL {
        while let Some(batch) = recorder.spool().next_batch_of(lane, 500, 1 << 20).unwrap() {
            seen.extend(batch.rows.iter().map(|stored| row(stored, 0).unwrap()));
        }
    }
    seen
}

/// The world, and the agent's part that is tried in it.
pub(crate) struct World {
    pub(crate) rounds: Arc<Rounds>,
    pub(crate) recorder: Recorder,
    asked: Arc<AtomicU64>,
    /// Every question that came, as name and type.
    questions: Arc<Mutex<BTreeSet<String>>>,
    folder: tempfile::TempDir,
    map: BTreeMap<SocketAddr, SocketAddr>,
}

impl World {
    /// A world whose name server answers A with these addresses, one after another and the last
    /// for ever, and AAAA with nothing; whose web server stands at [`GOOD`].
    pub(crate) async fn with_answers(answers: &[&str]) -> Self {
        let authority = Authority::new();
        let web = serve(authority.server("example.com")).await;
        let answers: Vec<String> = answers.iter().rev().map(|text| (*text).to_owned()).collect();
        let asked = Arc::new(AtomicU64::new(0));
        let names = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let name_server = names.local_addr().unwrap();
        let questions = Arc::new(Mutex::default());
        tokio::spawn(name_service(names, answers, Arc::clone(&asked), Arc::clone(&questions)));
        let folder = tempfile::tempdir().unwrap();
        let site = Site::new(
            Dialer::mapped(folder.path().join("map.json")),
            Policy::new(Allow::default()),
            authority.trust(),
            LiveServers::new(vec![name_server]),
        );
        let boot = BootId::random().unwrap();
        let recorder = Recorder::new(Spool::open(folder.path().join("spool"), boot, SpoolLimits::default(), 0));
        let rounds = Rounds::new(site, recorder.clone(), Timeline::begin(Duration::ZERO), 64);
        let map = BTreeMap::from([(public(GOOD), web), ("1.1.1.1:53".parse().unwrap(), name_server)]);
        let mut world = Self { rounds, recorder, asked, questions, folder, map };
        world.place(BAD, refused_port());
        world
    }

    pub(crate) fn place(&mut self, address: &str, local: SocketAddr) {
        self.place_at(&public(address).to_string(), local);
    }

    pub(crate) fn place_at(&mut self, socket: &str, local: SocketAddr) {
        self.map.insert(socket.parse().unwrap(), local);
        std::fs::write(self.folder.path().join("map.json"), serde_json::to_vec(&self.map).unwrap()).unwrap();
    }

    /// How often the name server was asked for an IPv4 address.
    pub(crate) fn questions(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Everything recorded since the last look.
    pub(crate) fn seen(&self) -> Vec<v1::Observation> {
        seen(&self.recorder)
    }

    /// What was resolved, by resolver and family, and what was tried, by address: with outcomes.
    fn told(&self) -> (Vec<String>, Vec<String>) {
        let (mut resolved, mut tried) = (Vec::new(), Vec::new());
        for observation in self.seen() {
            let purpose = observation.purpose();
            match observation.fact.unwrap() {
                Fact::Resolution(one) => {
                    resolved.push(format!("{} {:?} {:?}", one.resolver, one.family(), one.outcome()))
                }
                Fact::Connection(one) => tried.push(format!("{:?} {purpose:?} {:?}", one.address, one.outcome())),
                Fact::EndpointCheck(one) => {
                    tried.push(format!("{} {:?} {:?}", one.resolver, one.stage(), one.outcome()))
                }
                Fact::ControlCheck(one) => tried.push(format!("{} {:?}", one.control, one.outcome())),
                Fact::Path(one) => tried.push(format!("path {:?}", one.outcome())),
                Fact::Loss(one) => tried.push(format!("loss {}", one.count)),
                Fact::Missed(one) => tried.push(format!("missed {} {:?}", one.what, one.reason())),
            }
        }
        resolved.sort();
        (resolved, tried)
    }

    /// What was tried, without the controls, and the controls.
    fn tried_and_controls(&self) -> (Vec<String>, Vec<String>) {
        apart(self.told().1)
    }

    /// The canary's and every other round's work, to its end.
    pub(crate) async fn round(&self, kind: Kind, assignment: &Arc<Assignment>) {
        self.rounds.start(kind, assignment);
        while !self.rounds.running.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn apart(told: Vec<String>) -> (Vec<String>, Vec<String>) {
    told.into_iter().partition(|one| !one.starts_with("negative"))
}

fn public(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), 443)
}

async fn name_service(
    socket: UdpSocket,
    mut answers: Vec<String>,
    asked: Arc<AtomicU64>,
    questions: Arc<Mutex<BTreeSet<String>>>,
) {
    let mut buffer = [0; 512];
    while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
        let query = &buffer[..length];
        let message = domain::base::Message::from_octets(query).unwrap();
        let question = message.sole_question().unwrap();
        questions.lock().unwrap().insert(format!("{} {}", question.qname(), question.qtype()));
        let reply = if message.qtype() == Some(domain::base::iana::Rtype::A) {
            asked.fetch_add(1, Ordering::Relaxed);
            let next = if answers.len() > 1 { answers.pop().unwrap() } else { answers[0].clone() };
            answer(query, &next)
        } else {
            let mut empty = query.to_vec();
            empty[2] |= 0x80;
            empty
        };
        socket.send_to(&reply, from).await.unwrap();
    }
}

pub(crate) fn assignment(change: impl FnOnce(&mut v1::Assignment)) -> Arc<Assignment> {
    let mut wire = wire();
    // The DoH endpoint of the example has no place in this world.
    wire.resolvers.remove(1);
    wire.schedule.as_mut().unwrap().burst_gap_ms = vec![0, 2000];
    change(&mut wire);
    Arc::new(Assignment::try_from(&wire).unwrap())
}

#[tokio::test(start_paused = true)]
async fn every_resolver_is_asked_and_each_address_tried_once() {
    let world = World::with_answers(&[GOOD]).await;
    world.round(Kind::Canaries, &assignment(|_| {})).await;
    let (resolved, tried) = world.told();
    assert_eq!(resolved, ["live V4 Answered", "live V6 Empty", "plain-cf V4 Answered", "plain-cf V6 Empty"]);
    assert_eq!(tried, ["[104, 26, 4, 10] Scheduled TlsOk"]);
}

#[tokio::test(start_paused = true)]
async fn a_held_socket_delays_the_record_of_an_answer_and_nothing_else() {
    let world = World::with_answers(&[GOOD]).await;
    let assignment = assignment(|wire| wire.schedule.as_mut().unwrap().udp_hold_ms = 2000);
    world.round(Kind::Canaries, &assignment).await;
    let mut facts = Vec::new();
    for _ in 0..2 {
        facts.extend(world.seen().into_iter().map(|observation| observation.fact.unwrap()));
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    assert_eq!(facts.iter().filter(|fact| matches!(fact, Fact::Resolution(_))).count(), 4);
    assert_eq!(facts.iter().filter(|fact| matches!(fact, Fact::Connection(_))).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_canary_that_asks_for_it_is_validated_beside_its_outcome() {
    let world = World::with_answers(&[GOOD]).await;
    world.round(Kind::Canaries, &assignment(|wire| wire.canaries[0].validate = true)).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let resolutions = world.seen().into_iter().filter_map(|observation| match observation.fact {
        Some(Fact::Resolution(one)) => Some((one.outcome(), one.validation())),
        _ => None,
    });
    let found: Vec<_> = resolutions.collect();
    // The server of this world knows no signatures: the root's keys are not there.
    assert_eq!(found.len(), 4);
    assert!(found.iter().all(|(_, validation)| *validation != v1::Validation::Unspecified), "{found:?}");
    assert!(found.iter().any(|(outcome, _)| *outcome == v1::Outcome::Answered), "{found:?}");
}

/// A whole round of everything asks for the canary alone: no reverse look-up, no name of our own.
#[tokio::test(start_paused = true)]
async fn b53_nothing_is_looked_up_but_what_is_configured() {
    let world = World::with_answers(&[GOOD]).await;
    let assignment = assignment(|_| {});
    for kind in Kind::ALL {
        world.round(kind, &assignment).await;
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    let questions: Vec<String> = world.questions.lock().unwrap().iter().cloned().collect();
    assert_eq!(questions, ["example.com A", "example.com AAAA"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_of_ours_is_asked_of_the_live_resolver_alone() {
    let world = World::with_answers(&[GOOD]).await;
    world.round(Kind::Canaries, &assignment(|wire| wire.canaries[0].live_only = true)).await;
    assert_eq!(world.told().0, ["live V4 Answered", "live V6 Empty"]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_public_address_is_told_and_never_dialled() {
    let mut world = World::with_answers(&["127.0.0.1"]).await;
    let trap = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    trap.set_nonblocking(true).unwrap();
    world.place("127.0.0.1", trap.local_addr().unwrap());
    world.round(Kind::Canaries, &assignment(|_| {})).await;
    assert_eq!(world.told().1, ["[127, 0, 0, 1] Scheduled SpecialAddress"]);
    assert!(trap.accept().is_err(), "nobody came");
}

#[tokio::test(start_paused = true)]
async fn a_first_failure_is_confirmed_at_once_and_only_the_first() {
    let world = World::with_answers(&[BAD]).await;
    let assignment = assignment(|_| {});
    world.round(Kind::Canaries, &assignment).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let told = world.told().1;
    assert_eq!(told.last().unwrap(), "negative NetUnreachable", "failures count only with a control after them");
    let (tried, controls) = apart(told);
    assert_eq!(
        tried,
        [
            "[8, 6, 112, 0] Scheduled ConnectionRefused",
            "[8, 6, 112, 0] Confirm ConnectionRefused",
            "[8, 6, 112, 0] Confirm ConnectionRefused",
        ]
    );
    assert_eq!(controls.len(), 2, "and one before");
    world.round(Kind::Canaries, &assignment).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(world.told().1, ["[8, 6, 112, 0] Scheduled ConnectionRefused"], "it stays down");
}

#[tokio::test(start_paused = true)]
async fn own_trouble_is_no_success_and_does_not_end_a_burst() {
    let mut world = World::with_answers(&[BAD]).await;
    // One probe at once, and one more each half a minute.
    let allow = Allow { connections_per_minute: 2, ..Allow::default() };
    Arc::get_mut(&mut world.rounds).unwrap().site.policy = Policy::new(allow);
    let assignment = assignment(|wire| wire.schedule.as_mut().unwrap().burst_gap_ms = vec![0, 2000, 40_000]);
    world.round(Kind::Canaries, &assignment).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (tried, controls) = world.tried_and_controls();
    assert_eq!(
        tried,
        [
            "[8, 6, 112, 0] Scheduled ConnectionRefused",
            "[8, 6, 112, 0] Confirm RateLimited",
            "[8, 6, 112, 0] Confirm RateLimited",
            "[8, 6, 112, 0] Confirm ConnectionRefused",
        ]
    );
    assert_eq!(controls, ["negative RateLimited"; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_burst_ends_with_the_first_success() {
    let mut world = World::with_answers(&[BAD]).await;
    let web = world.map[&public(GOOD)];
    let assignment = assignment(|wire| wire.schedule.as_mut().unwrap().burst_gap_ms = vec![1000, 1000, 1000]);
    world.round(Kind::Canaries, &assignment).await;
    world.place(BAD, web);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let (tried, controls) = world.tried_and_controls();
    assert_eq!(tried, ["[8, 6, 112, 0] Scheduled ConnectionRefused", "[8, 6, 112, 0] Confirm TlsOk"]);
    assert_eq!(controls.len(), 1, "there is no failure to close");
}

#[tokio::test(start_paused = true)]
async fn the_live_resolver_is_asked_again_when_its_answer_expires() {
    // TTL 60 s, rounds of 300 s.
    let world = World::with_answers(&[GOOD, GOOD, GOOD, BAD]).await;
    let assignment = assignment(|wire| {
        wire.resolvers.truncate(1);
        let schedule = wire.schedule.as_mut().unwrap();
        (schedule.canary_every_ms, schedule.burst_gap_ms) = (300_000, vec![]);
    });
    let next = world.rounds.timeline.next(Grid::of(Kind::Canaries, &assignment.schedule), clock::now());
    sleep_until(next).await;
    world.round(Kind::Canaries, &assignment).await;
    assert_eq!(world.asked.load(Ordering::Relaxed), 1);
    assert_eq!(world.told().1, ["[104, 26, 4, 10] Scheduled TlsOk"]);
    tokio::time::sleep(Duration::from_secs(130)).await;
    assert_eq!(world.asked.load(Ordering::Relaxed), 3);
    assert_eq!(world.told().1, [""; 0], "the same address is not tried again within the round");
    tokio::time::sleep(Duration::from_secs(160)).await;
    assert_eq!(world.asked.load(Ordering::Relaxed), 5, "the refreshing ends with the round");
    assert_eq!(world.told().1, ["[8, 6, 112, 0] Scheduled ConnectionRefused"], "a new address is tried at once");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.asked.load(Ordering::Relaxed), 5);
}

#[tokio::test(start_paused = true)]
async fn a_round_that_hangs_is_skipped_and_delays_no_other() {
    let mut world = World::with_answers(&[GOOD]).await;
    let (silent, _held) = silent_port().await;
    world.place("95.216.10.10", silent);
    world.place("49.12.20.20", world.map[&public(GOOD)]);
    let assignment = assignment(|wire| {
        wire.nodes.push(v1::Node {
            name: "de".into(),
            address: vec![49, 12, 20, 20],
            port: 443,
            server_name: "example.com".into(),
            ..Default::default()
        });
    });
    world.rounds.start(Kind::Nodes, &assignment);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(world.told().1, ["[49, 12, 20, 20] Scheduled TlsOk"]);
    world.rounds.start(Kind::Nodes, &assignment);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.told().1, ["missed fi Overrun", "[49, 12, 20, 20] Scheduled TlsOk"]);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.told().1, ["[95, 216, 10, 10] Scheduled Silent"], "once, though started twice");
}

#[tokio::test(start_paused = true)]
async fn controls_and_endpoints_have_their_rounds() {
    let world = World::with_answers(&[GOOD]).await;
    let assignment = assignment(|_| {});
    world.round(Kind::Controls, &assignment).await;
    world.round(Kind::Endpoints, &assignment).await;
    assert_eq!(world.told().1, ["negative NetUnreachable", "plain-cf Dns Answered"]);
}

#[tokio::test(start_paused = true)]
async fn a_grid_is_followed_and_a_new_assignment_changes_it() {
    let mut world = World::with_answers(&[GOOD]).await;
    world.place("95.216.10.10", refused_port());
    let every = |ms: u32| {
        assignment(move |wire| {
            let schedule = wire.schedule.as_mut().unwrap();
            (schedule.node_every_ms, schedule.burst_gap_ms) = (ms, vec![]);
        })
    };
    let (assign, follow) = watch::channel(None);
    let following = tokio::spawn(Arc::clone(&world.rounds).follow(Kind::Nodes, follow));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.seen().len(), 0, "nothing to do yet");
    assign.send_replace(Some(every(20_000)));
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(world.seen().len(), 5);
    assign.send_replace(Some(every(5000)));
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(world.seen().len(), 20);
    drop(assign);
    following.await.unwrap();
}
