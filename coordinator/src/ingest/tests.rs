//! Streams over real mutual TLS into a real Postgres, with a client made by hand.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use parallax_decide::names::VantageName;
use parallax_decide::observation::{Purpose, Target};
use parallax_proto::v1::agent_message::Message as FromAgent;
use parallax_proto::v1::coordinator_message::Message as ToAgent;
use parallax_proto::v1::{self, probe_client::ProbeClient};
use rustls::ClientConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::serve;
use crate::clock::{self, Clock};
use crate::config::identity::Identity;
use crate::hub::{ChangeFailed, ChangeOutcome, ChangeTask, LocalChange, NotConnected, Task, Work};
use crate::identity::bundle::{Bundle, Making};
use crate::identity::keeper::Keeper;
use crate::identity::signer::Signer;
use crate::identity::{SERVER_NAME, folder};
use crate::state::App;
use crate::testing;

mod enrolment;
mod skew;

const BOOT: &str = "000000000000000000000000000b0071";
const OLDER_BOOT: &str = "000000000000000000000000000b0070";

/// A coordinator that listens, and the folder of its authority.
struct World {
    app: Arc<App>,
    address: std::net::SocketAddr,
    state: Arc<tempfile::TempDir>,
    keeper: Arc<Keeper>,
    shutdown: CancellationToken,
    serving: JoinHandle<anyhow::Result<()>>,
}

async fn world() -> World {
    world_with(Identity::default()).await
}

async fn world_with(settings: Identity) -> World {
    serving(testing::app().await, Arc::new(tempfile::tempdir().unwrap()), &settings).await
}

/// Another coordinator with the same database and authority.
async fn world_beside(one: &World) -> World {
    let app = App::new(one.app.pool.clone(), testing::example(), Clock::system(), "/nonexistent".into());
    serving(app, Arc::clone(&one.state), &Identity::default()).await
}

async fn serving(app: Arc<App>, state: Arc<tempfile::TempDir>, settings: &Identity) -> World {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let keeper = Keeper::open(state.path().to_owned(), address, settings, clock::wall());
    let keeper = Arc::new(keeper.unwrap());
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn(serve(Arc::clone(&app), listener, Arc::clone(&keeper), shutdown.clone()));
    World { app, address, state, keeper, shutdown, serving }
}

/// An agent's end of one stream.
struct Agent {
    up: mpsc::Sender<v1::AgentMessage>,
    down: Streaming<v1::CoordinatorMessage>,
}

impl World {
    fn identity(&self, name: &str) -> std::path::PathBuf {
        let folder = self.state.path().join("identities").join(name);
        if !folder.exists() {
            issue(self.state.path(), name, &folder, clock::wall());
        }
        folder
    }

    async fn open(&self, identity: Option<&Path>, trust: &Path) -> Result<Agent, Status> {
        let channel = self.channel(client_config(identity, trust)).await?;
        let (up, messages) = mpsc::channel(64);
        let response = ProbeClient::new(channel).session(ReceiverStream::new(messages)).await?;
        Ok(Agent { up, down: response.into_inner() })
    }

    async fn channel(&self, config: Arc<ClientConfig>) -> Result<tonic::transport::Channel, Status> {
        let address = self.address;
        let connector = tower::service_fn(move |_: http::Uri| {
            let config = Arc::clone(&config);
            async move {
                let tcp = TcpStream::connect(address).await?;
                let name = ServerName::try_from(SERVER_NAME).map_err(std::io::Error::other)?;
                tokio_rustls::TlsConnector::from(config).connect(name, tcp).await.map(TokioIo::new)
            }
        });
        let endpoint = tonic::transport::Endpoint::from_static("http://parallax-coordinator");
        let channel = endpoint.connect_with_connector(connector).await;
        channel.map_err(|error| Status::unavailable(format!("{error:?}")))
    }

    /// Connects, greets, and takes the assignment.
    async fn agent(&self, name: &str) -> Result<(Agent, v1::Assignment), Status> {
        let identity = self.identity(name);
        let mut agent = self.open(Some(&identity), &identity).await?;
        agent.hello(1, BOOT).await;
        let message = agent.next().await?;
        let ToAgent::Assignment(assignment) = message else { panic!("expected an assignment, not {message:?}") };
        Ok((agent, assignment))
    }

    async fn stored(&self) -> i64 {
        sqlx::query_scalar("select count(*) from observation").fetch_one(&self.app.pool).await.unwrap()
    }
}

impl Agent {
    async fn send(&self, message: FromAgent) {
        self.up.send(v1::AgentMessage { message: Some(message) }).await.unwrap();
    }

    async fn hello(&self, protocol: u32, boot: &str) {
        let boot_id = boot.to_owned();
        self.send(FromAgent::Hello(v1::Hello {
            protocol,
            agent_version: "0.1.0".to_owned(),
            boot_id,
            assignment_version: 0,
            ..v1::Hello::default()
        }))
        .await;
    }

    async fn batch(&self, boot: &str, observations: Vec<v1::Observation>) {
        self.batch_in(v1::Lane::Urgent, boot, observations).await;
    }

    async fn batch_in(&self, lane: v1::Lane, boot: &str, observations: Vec<v1::Observation>) {
        let boot_id = boot.to_owned();
        self.send(FromAgent::Batch(v1::Batch { boot_id, observations, lane: lane.into() })).await;
    }

    async fn next(&mut self) -> Result<ToAgent, Status> {
        let message = tokio::time::timeout(Duration::from_secs(30), self.down.message()).await.expect("no message");
        message?.and_then(|message| message.message).ok_or_else(|| Status::cancelled("the stream ended"))
    }

    async fn acked(&mut self) -> u64 {
        let message = self.next().await.unwrap();
        let ToAgent::Ack(ack) = message else { panic!("expected an ack, not {message:?}") };
        ack.sequence
    }

    async fn refused(&mut self) -> (u64, String) {
        let message = self.next().await.unwrap();
        let ToAgent::Refusal(refusal) = message else { panic!("expected a refusal, not {message:?}") };
        (refusal.sequence, refusal.reason)
    }
}

/// As `parallax vantage issue` does.
fn issue(state: &Path, name: &str, folder: &Path, at: time::OffsetDateTime) {
    let bundle = Bundle::open(state, Making::Allowed, clock::wall()).unwrap();
    let signer = Signer::open(&state.join("ca"), Making::Allowed).unwrap();
    let life = Duration::from_secs(30 * 86_400);
    folder::write(&bundle, &signer, &name.parse().unwrap(), (folder, life), at).unwrap();
}

fn client_config(identity: Option<&Path>, trust: &Path) -> Arc<ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    for authority in CertificateDer::pem_file_iter(trust.join("ca.pem")).unwrap() {
        roots.add(authority.unwrap()).unwrap();
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        Some(folder) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_file(folder.join("certificate.pem")).unwrap()],
                PrivateKeyDer::from_pem_file(folder.join("key.pem")).unwrap(),
            )
            .unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

fn control(sequence: u64) -> v1::Observation {
    v1::Observation {
        sequence,
        age_ms: 10,
        purpose: v1::Purpose::Scheduled.into(),
        task_id: 0,
        duration_us: 1000,
        fact: Some(v1::observation::Fact::ControlCheck(v1::ControlCheck {
            control: "control-cf".to_owned(),
            outcome: v1::Outcome::TlsOk.into(),
            ..v1::ControlCheck::default()
        })),
    }
}

/// B60, B66: acknowledged is stored, and stored once.
#[tokio::test]
async fn a_batch_is_acknowledged_when_it_is_stored_and_a_redelivery_again() {
    let world = world().await;
    let (mut agent, assignment) = world.agent("de-fra").await.unwrap();
    assert_eq!(assignment.vantage, "de-fra");
    assert!(assignment.version > 0 && assignment.canaries.len() == 4);
    for _ in 0..2 {
        agent.batch(BOOT, vec![control(1), control(2)]).await;
        assert_eq!(agent.acked().await, 2);
        assert_eq!(world.stored().await, 2);
    }
    assert_eq!(world.app.hub.connected().len(), 1);
    // The same content, the same version, also on another stream.
    let (_other, again) = world.agent("de-fra").await.unwrap();
    assert_eq!(again.version, assignment.version);
}

#[tokio::test]
async fn bad_observations_are_refused_with_a_reason_and_the_rest_is_stored() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    let mut unassigned = control(2);
    unassigned.fact = Some(v1::observation::Fact::ControlCheck(v1::ControlCheck {
        control: "someone\0else".to_owned(),
        outcome: v1::Outcome::TlsOk.into(),
        ..v1::ControlCheck::default()
    }));
    let mut unknown = control(3);
    unknown.purpose = 77;
    let mut empty = control(4);
    empty.fact = None;
    agent.batch(BOOT, vec![control(1), unassigned, unknown, empty, control(5), control(5)]).await;
    for (sequence, part) in
        [(2, "bad_name"), (3, "unknown_word: purpose 77"), (4, "no_fact"), (5, "sequence_not_rising")]
    {
        let (number, reason) = agent.refused().await;
        assert_eq!(number, sequence);
        assert!(reason.contains(part), "{reason}");
    }
    assert_eq!(agent.acked().await, 5);
    assert_eq!(world.stored().await, 2);
    let counted: i64 =
        sqlx::query_scalar("select sum(count)::bigint from ingest_refusal").fetch_one(&world.app.pool).await.unwrap();
    assert_eq!(counted, 4);
}

#[tokio::test]
async fn whole_messages_that_cannot_be_taken_do_not_end_the_stream() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    agent.batch("not hex", vec![control(1)]).await;
    assert!(agent.refused().await.1.contains("bad_boot_id"));
    agent.batch(BOOT, vec![]).await;
    assert!(agent.refused().await.1.contains("bad_batch"));
    agent.batch(BOOT, (1..=501).map(control).collect()).await;
    assert!(agent.refused().await.1.contains("501 observations"));
    agent.hello(1, BOOT).await;
    assert!(agent.refused().await.1.contains("second_hello"));
    agent.up.send(v1::AgentMessage { message: None }).await.unwrap();
    assert!(agent.refused().await.1.contains("no_message"));
    agent.batch(BOOT, vec![control(1)]).await;
    assert_eq!(agent.acked().await, 1);
}

#[tokio::test]
async fn an_earlier_start_and_an_old_age_are_history() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    agent.batch(OLDER_BOOT, vec![control(1)]).await;
    assert_eq!(agent.acked().await, 1);
    let mut old = control(1);
    old.age_ms = u64::MAX;
    agent.batch(BOOT, vec![old, control(2)]).await;
    assert_eq!(agent.acked().await, 2);
    let late: Vec<bool> =
        sqlx::query_scalar("select late from observation order by id").fetch_all(&world.app.pool).await.unwrap();
    assert_eq!(late, [true, true, false]);
}

#[tokio::test]
async fn each_lane_is_acknowledged_by_itself() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    for lane in [v1::Lane::Routine, v1::Lane::Urgent, v1::Lane::Routine] {
        agent.batch_in(lane, BOOT, vec![control(1), control(2)]).await;
        let ToAgent::Ack(ack) = agent.next().await.unwrap() else { panic!("no ack") };
        assert_eq!((ack.lane, ack.sequence), (lane.into(), 2));
    }
    assert_eq!(world.stored().await, 4);
    agent.batch_in(v1::Lane::Unspecified, BOOT, vec![control(3)]).await;
    let (sequence, reason) = agent.refused().await;
    assert_eq!(sequence, 0);
    assert!(reason.contains("unknown_word: lane 0"), "{reason}");
    let mut bad = control(3);
    bad.purpose = 0;
    agent.batch_in(v1::Lane::Routine, BOOT, vec![bad]).await;
    let ToAgent::Refusal(refusal) = agent.next().await.unwrap() else { panic!("no refusal") };
    assert_eq!(refusal.lane, i32::from(v1::Lane::Routine));
}

#[tokio::test]
async fn a_ping_is_answered_at_once_also_while_the_database_is_slow() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    // Whoever holds this holds up every commit.
    let mut slow = world.app.pool.begin().await.unwrap();
    sqlx::query("lock table agent_cursor in access exclusive mode").execute(&mut *slow).await.unwrap();
    agent.batch_in(v1::Lane::Urgent, BOOT, vec![control(1)]).await;
    agent.batch_in(v1::Lane::Routine, BOOT, vec![control(1)]).await;
    agent.send(FromAgent::Ping(v1::Ping { nonce: 77 })).await;
    let ToAgent::Pong(pong) = agent.next().await.unwrap() else { panic!("no pong") };
    assert_eq!(pong.nonce, 77);
    assert!(pong.unix_ms.abs_diff(u64::try_from(clock::wall_ms()).unwrap()) < 60_000);
    slow.rollback().await.unwrap();
    for lane in [v1::Lane::Urgent, v1::Lane::Routine] {
        let ToAgent::Ack(ack) = agent.next().await.unwrap() else { panic!("no ack") };
        assert_eq!(ack.lane, i32::from(lane));
    }
}

#[tokio::test]
async fn b04_a_result_without_an_outcome_is_refused_with_a_reason_and_counted() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    let mut blank = control(1);
    blank.duration_us = 0;
    blank.fact = Some(v1::observation::Fact::ControlCheck(v1::ControlCheck {
        control: "control-cf".to_owned(),
        ..v1::ControlCheck::default()
    }));
    agent.batch(BOOT, vec![blank]).await;
    assert!(agent.refused().await.1.contains("outcome 0"));
    assert_eq!(agent.acked().await, 1);
    assert_eq!(world.stored().await, 0);
    let counted: (String, i64) =
        sqlx::query_as("select reason, count from ingest_refusal").fetch_one(&world.app.pool).await.unwrap();
    assert_eq!(counted, ("unknown_word".to_owned(), 1));
}

#[tokio::test]
async fn b77_a_message_above_the_limit_ends_the_stream_with_a_word_that_is_not_retried_unchanged() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    agent.batch(&"x".repeat(2 << 20), vec![control(1)]).await;
    assert_eq!(agent.next().await.unwrap_err().code(), tonic::Code::OutOfRange);
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    agent.batch(BOOT, vec![control(1)]).await;
    assert_eq!(agent.acked().await, 1);
}

fn check(sequence: u64, remark: &str) -> v1::Observation {
    v1::Observation {
        fact: Some(v1::observation::Fact::EndpointCheck(v1::EndpointCheck {
            resolver: "doh-cf".to_owned(),
            address: vec![1, 1, 1, 1],
            stage: v1::Stage::Tls.into(),
            outcome: v1::Outcome::TlsSilent.into(),
            remark: remark.to_owned(),
            ..v1::EndpointCheck::default()
        })),
        ..control(sequence)
    }
}

fn answer(sequence: u64, chain: &str, nsid: &[u8]) -> v1::Observation {
    v1::Observation {
        fact: Some(v1::observation::Fact::Resolution(v1::Resolution {
            name: "cdnjs.cloudflare.com".to_owned(),
            resolver: "doh-cf".to_owned(),
            family: v1::Family::V4.into(),
            outcome: v1::Outcome::Answered.into(),
            addresses: vec![vec![104, 17, 24, 14]],
            ttl_s: 60,
            reply: Some(v1::Reply {
                chain: vec![chain.to_owned()],
                nsid: nsid.to_vec(),
                first_bytes: vec![0xff, 0, 0xfe],
                ..v1::Reply::default()
            }),
            ..v1::Resolution::default()
        })),
        ..control(sequence)
    }
}

#[tokio::test]
async fn b81_a_clock_that_is_years_off_changes_neither_partition_nor_age() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    let off = |sequence: u64, ms: i64| v1::Observation {
        fact: Some(v1::observation::Fact::ControlCheck(v1::ControlCheck {
            control: "control-cf".to_owned(),
            outcome: v1::Outcome::TlsOk.into(),
            clock_offset_ms: Some(ms),
            ..v1::ControlCheck::default()
        })),
        ..control(sequence)
    };
    let day = 86_400_000;
    let since_the_start = v1::Observation { age_ms: u64::MAX, ..control(4) };
    agent
        .batch(BOOT, vec![off(1, 400 * day), off(2, -56 * 365 * day), off(3, i64::MAX), since_the_start, control(5)])
        .await;
    let (sequence, reason) = agent.refused().await;
    assert_eq!(sequence, 3);
    assert!(reason.contains("clock offset"), "{reason}");
    assert_eq!(agent.acked().await, 5);
    // The day of receipt decides where a row lies; upkeep has nothing to complain of.
    let odd: i64 = sqlx::query_scalar(
        "select count(*) from observation
         where received_at not between now() - interval '1 hour' and now() + interval '1 hour'
            or observed_at > received_at or observed_at < received_at - interval '91 days'",
    )
    .fetch_one(&world.app.pool)
    .await
    .unwrap();
    assert_eq!((odd, world.stored().await), (0, 4));
    crate::store::partition::ensure(&mut world.app.pool.acquire().await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn b85_a_zero_byte_in_what_was_read_off_the_network_costs_no_row() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    let mut batch: Vec<_> = (1..=500).map(control).collect();
    batch[41] = check(42, "a\0b");
    batch[42] = answer(43, "odd\0name.example", &[0xc3, 0x28, 0]);
    batch[43] = check(44, r#"{"text": "\u0000"}"#);
    agent.batch(BOOT, batch).await;
    assert_eq!(agent.acked().await, 500);
    assert_eq!(world.stored().await, 500);
    let kept: Vec<serde_json::Value> =
        sqlx::query_scalar("select detail from observation where sequence between 42 and 44 order by sequence")
            .fetch_all(&world.app.pool)
            .await
            .unwrap();
    assert_eq!(kept[0]["remark"], "a\u{fffd}b");
    assert_eq!(kept[1]["reply"]["chain"][0], "odd\u{fffd}name.example");
    assert_eq!(kept[1]["reply"]["nsid"], "c32800");
    assert_eq!(kept[2]["remark"], r#"{"text": "\u0000"}"#);
}

#[tokio::test]
async fn b86_of_the_same_number_twice_the_first_is_stored_and_the_clash_counted() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    // Two with one number in one batch, of which the second says something else.
    agent.batch(BOOT, vec![control(1), control(2), check(2, "another"), control(3)]).await;
    assert_eq!(agent.refused().await.0, 2);
    assert_eq!(agent.acked().await, 3);
    // A resend that was joined with a new one; two lanes with the same numbers at the same moment.
    agent.batch(BOOT, vec![control(2), check(3, "another"), control(4)]).await;
    agent.batch_in(v1::Lane::Routine, BOOT, vec![control(1), control(2)]).await;
    let mut acked = [agent.acked().await, agent.acked().await];
    acked.sort_unstable();
    assert_eq!(acked, [2, 4]);
    let kinds: Vec<(i64, String)> =
        sqlx::query_as("select sequence, kind from observation where lane = 'urgent' order by sequence")
            .fetch_all(&world.app.pool)
            .await
            .unwrap();
    assert_eq!(kinds, (1..=4).map(|number| (number, "control_check".to_owned())).collect::<Vec<_>>());
    assert_eq!(world.stored().await, 6);
    let counted: Vec<(String, i64)> =
        sqlx::query_as("select reason, count from ingest_refusal").fetch_all(&world.app.pool).await.unwrap();
    assert_eq!(counted, [("sequence_not_rising".to_owned(), 1)]);
}

/// Stops or continues every session of this database, as a machine that hangs would.
fn signal_sessions(pids: &[i32], signal: nix::sys::signal::Signal) {
    for pid in pids {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), signal).unwrap();
    }
}

#[tokio::test]
async fn a_database_that_hangs_loses_and_doubles_nothing_and_signs_of_life_are_answered() {
    use nix::sys::signal::Signal::{SIGCONT, SIGSTOP};
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    agent.batch(BOOT, vec![control(1)]).await;
    assert_eq!(agent.acked().await, 1);
    let pids: Vec<i32> = sqlx::query_scalar(
        "select pid from pg_stat_activity where datname = current_database() and backend_type = 'client backend'",
    )
    .fetch_all(&world.app.pool)
    .await
    .unwrap();
    signal_sessions(&pids, SIGSTOP);
    // As many as an agent sends without an answer.
    for first in [2, 102, 202, 302] {
        agent.batch(BOOT, (first..first + 100).map(control).collect()).await;
    }
    for first in [1, 101] {
        agent.batch_in(v1::Lane::Routine, BOOT, (first..first + 100).map(control).collect()).await;
    }
    agent.send(FromAgent::Ping(v1::Ping { nonce: 5 })).await;
    let ToAgent::Pong(pong) = agent.next().await.unwrap() else { panic!("no pong") };
    assert_eq!(pong.nonce, 5);
    signal_sessions(&pids, SIGCONT);
    let mut acked = Vec::new();
    for _ in 0..6 {
        acked.push(agent.acked().await);
    }
    acked.sort_unstable();
    assert_eq!(acked, [100, 101, 200, 201, 301, 401]);
    let twice: i64 = sqlx::query_scalar(
        "select count(*) - count(distinct (lane, sequence)) from observation where sequence between 1 and 401",
    )
    .fetch_one(&world.app.pool)
    .await
    .unwrap();
    assert_eq!((world.stored().await, twice), (601, 0));
}

#[tokio::test]
async fn connections_that_say_nothing_keep_no_other_source_out() {
    let world = world().await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.77:0".parse().unwrap()).unwrap();
        silent.push(socket.connect(world.address).await.unwrap());
    }
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    agent.batch(BOOT, vec![control(1)]).await;
    assert_eq!(agent.acked().await, 1);
    drop(silent);
}

#[tokio::test]
async fn strangers_get_no_stream() {
    let world = world().await;
    let known = world.identity("de-fra");
    // No certificate at all.
    assert!(first_words(&world, None, &known).await.is_err());
    // A certificate of another authority, which has the very name.
    let other = tempfile::tempdir().unwrap();
    let forged = other.path().join("forged");
    issue(other.path(), "de-fra", &forged, clock::wall());
    assert!(first_words(&world, Some(&forged), &known).await.is_err());
    // A certificate of ours that has expired.
    let expired = world.state.path().join("expired");
    issue(world.state.path(), "de-fra", &expired, clock::wall() - time::Duration::days(60));
    assert!(first_words(&world, Some(&expired), &known).await.is_err());
    assert!(world.app.hub.connected().is_empty());
    // And an agent that trusts another authority does not talk to us.
    assert!(first_words(&world, Some(&known), &forged).await.is_err());
    assert!(first_words(&world, Some(&known), &known).await.is_ok());
}

async fn first_words(world: &World, identity: Option<&Path>, trust: &Path) -> Result<ToAgent, Status> {
    let mut agent = world.open(identity, trust).await?;
    agent.hello(1, BOOT).await;
    agent.next().await
}

#[tokio::test]
async fn a_vantage_outside_the_configuration_hears_why() {
    let world = world().await;
    let Err(status) = world.agent("nowhere").await else { panic!("admitted") };
    // The agent tries again: only a revocation ends it.
    assert_eq!(status.code(), tonic::Code::FailedPrecondition);
    assert!(status.message().contains("nowhere is not in the coordinator's configuration"), "{status}");
}

#[tokio::test]
async fn a_revoked_vantage_is_cut_off_and_does_not_come_back() {
    let world = world().await;
    let listening = tokio::spawn(crate::revocation::run(Arc::clone(&world.app), world.shutdown.clone()));
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    let name: VantageName = "de-fra".parse().unwrap();
    crate::store::vantage::change::revoke(&mut world.app.pool.acquire().await.unwrap(), &name).await.unwrap();
    let status = agent.next().await.unwrap_err();
    assert!(status.message().contains("revoked"), "{status}");
    let Err(status) = world.agent("de-fra").await else { panic!("admitted") };
    assert_eq!(status.code(), tonic::Code::PermissionDenied);
    world.shutdown.cancel();
    listening.await.unwrap();
}

#[tokio::test]
async fn a_revocation_between_the_opening_of_a_stream_and_its_greeting_is_seen() {
    let world = world().await;
    let identity = world.identity("de-fra");
    let mut agent = world.open(Some(&identity), &identity).await.unwrap();
    let name: VantageName = "de-fra".parse().unwrap();
    crate::store::vantage::change::revoke(&mut world.app.pool.acquire().await.unwrap(), &name).await.unwrap();
    agent.hello(1, BOOT).await;
    let status = agent.next().await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::PermissionDenied, "{status}");
    // It was in the hub for a moment only.
    while !world.app.hub.connected().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_greeting_that_is_wrong_is_answered_with_the_reason() {
    let world = world().await;
    let identity = world.identity("de-fra");
    for (protocol, boot, part) in [(0, BOOT, "protocol 0"), (1, "short", "boot_id"), (1, &"0".repeat(32), "boot_id")] {
        let mut agent = world.open(Some(&identity), &identity).await.unwrap();
        agent.hello(protocol, boot).await;
        let status = agent.next().await.unwrap_err();
        assert!(status.message().contains(part), "{status}");
    }
    let mut agent = world.open(Some(&identity), &identity).await.unwrap();
    agent.batch(BOOT, vec![control(1)]).await;
    assert!(agent.next().await.unwrap_err().message().contains("must be Hello"));
}

#[tokio::test]
async fn a_second_stream_of_a_vantage_replaces_the_first() {
    let world = world().await;
    let (mut first, _) = world.agent("de-fra").await.unwrap();
    let (mut second, _) = world.agent("de-fra").await.unwrap();
    let ended = first.next().await.unwrap_err();
    assert!(ended.message().contains("newer stream"));
    assert_eq!(ended.metadata().get("reason").unwrap(), "replaced");
    second.batch(BOOT, vec![control(1)]).await;
    assert_eq!(second.acked().await, 1);
    assert_eq!(world.app.hub.connected().len(), 1);
}

#[tokio::test]
async fn tasks_go_down_and_reports_come_back_to_the_one_who_waits() {
    let world = world().await;
    let (mut agent, _) = world.agent("branch-kazan").await.unwrap();
    let kazan: VantageName = "branch-kazan".parse().unwrap();
    let task = Task {
        purpose: Purpose::CrossCheck,
        deadline: Duration::from_secs(5),
        work: Work::Connect {
            target: Target::Name("example.com".parse().unwrap()),
            address: "8.6.112.0".parse().unwrap(),
            repeat: 3,
            gap: Duration::from_millis(250),
        },
    };
    let id = world.app.hub.send_task(&kazan, task.clone(), 1).unwrap();
    let ToAgent::Task(sent) = agent.next().await.unwrap() else { panic!("no task") };
    assert_eq!((sent.task_id, sent.deadline_ms), (id.0, 5000));
    let absent: VantageName = "de-fra".parse().unwrap();
    assert_eq!(world.app.hub.send_task(&absent, task, 1), Err(NotConnected(absent)));

    let change =
        ChangeTask { plan_id: 7, epoch: 3, change: LocalChange::Read { name: "example.com".parse().unwrap() } };
    let asking = {
        let (app, kazan) = (Arc::clone(&world.app), kazan.clone());
        let change = change.clone();
        tokio::spawn(async move { app.hub.change(&kazan, change, Duration::from_secs(30)).await })
    };
    let ToAgent::Task(sent) = agent.next().await.unwrap() else { panic!("no task") };
    agent
        .send(FromAgent::ChangeReport(v1::ChangeReport {
            task_id: sent.task_id,
            plan_id: 7,
            outcome: v1::ChangeOutcome::Read.into(),
            found: vec![vec![104, 26, 4, 10]],
            detail: "read".to_owned(),
        }))
        .await;
    let report = asking.await.unwrap().unwrap();
    assert_eq!(report.outcome, ChangeOutcome::Read);
    assert_eq!(report.found, ["104.26.4.10".parse::<std::net::IpAddr>().unwrap()]);
    let silent = world.app.hub.change(&kazan, change, Duration::from_millis(20)).await;
    assert_eq!(silent, Err(ChangeFailed::Timeout(kazan)));
}

#[tokio::test]
async fn what_was_handed_over_before_the_end_is_stored() {
    let mut world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    agent.batch(BOOT, vec![control(1)]).await;
    assert_eq!(agent.acked().await, 1);
    world.shutdown.cancel();
    assert!(agent.next().await.is_err());
    (&mut world.serving).await.unwrap().unwrap();
    assert_eq!(world.stored().await, 1);
}

#[tokio::test]
async fn a_missing_partition_is_made_and_the_batch_stored() {
    let world = world().await;
    let days = crate::store::partition::existing(&mut world.app.pool.acquire().await.unwrap()).await.unwrap();
    for day in days {
        sqlx::query(sqlx::AssertSqlSafe(format!("drop table {day}"))).execute(&world.app.pool).await.unwrap();
    }
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    agent.batch(BOOT, vec![control(1)]).await;
    assert_eq!(agent.acked().await, 1);
    assert_eq!(world.stored().await, 1);
}

#[tokio::test]
async fn a_row_the_database_does_not_take_costs_itself_only() {
    let world = world().await;
    // Stands for any rule of the database that validation does not know.
    sqlx::query("alter table observation add constraint odd check (sequence <> 2)")
        .execute(&world.app.pool)
        .await
        .unwrap();
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    agent.batch(BOOT, vec![control(1), control(2), control(3)]).await;
    assert_eq!(agent.acked().await, 3);
    assert_eq!(world.stored().await, 2);
    let reason: String =
        sqlx::query_scalar("select reason from ingest_refusal").fetch_one(&world.app.pool).await.unwrap();
    assert_eq!(reason, "not_storable");
}
