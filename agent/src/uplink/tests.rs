//! The uplink against a real gRPC server with mutual TLS in the same process.

use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use parallax_decide::observation::{ControlCheck, Outcome};
use parallax_proto::v1::probe_server::{Probe, ProbeServer};
use parallax_proto::v1::{self, agent_message, coordinator_message};
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status, Streaming};

use super::*;
use crate::assignment::wire::tests::wire as assignment;
use crate::measured::{ControlParticulars, Measured, Reason, What};
use crate::probe::testing::Authority;
use crate::spool::{Lane, Limits, Spool};

/// One session as the coordinator sees it.
struct Session {
    hello: v1::Hello,
    from_agent: Streaming<v1::AgentMessage>,
    to_agent: mpsc::Sender<Result<v1::CoordinatorMessage, Status>>,
}

impl Session {
    async fn batch(&mut self) -> v1::Batch {
        let message = self.next().await;
        let agent_message::Message::Batch(batch) = message else { panic!("not a batch: {message:?}") };
        batch
    }

    async fn next(&mut self) -> agent_message::Message {
        let received = tokio::time::timeout(Duration::from_secs(20), self.from_agent.message()).await;
        received.expect("nothing came").unwrap().unwrap().message.unwrap()
    }

    async fn say(&self, message: coordinator_message::Message) {
        self.to_agent.send(Ok(v1::CoordinatorMessage { message: Some(message) })).await.unwrap();
    }

    async fn ack(&self, batch: &v1::Batch) {
        let sequence = batch.observations.last().unwrap().sequence;
        self.say(coordinator_message::Message::Ack(v1::Ack {
            boot_id: batch.boot_id.clone(),
            sequence,
            lane: batch.lane,
        }))
        .await;
    }
}

/// Hands each session to the test.
struct Coordinator {
    sessions: mpsc::Sender<Session>,
    /// What every session is refused with.
    refusal: Option<Status>,
}

#[tonic::async_trait]
impl Probe for Coordinator {
    type SessionStream = ReceiverStream<Result<v1::CoordinatorMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<v1::AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        let mut from_agent = request.into_inner();
        let Some(agent_message::Message::Hello(hello)) =
            from_agent.message().await?.and_then(|message| message.message)
        else {
            return Err(Status::invalid_argument("hello comes first"));
        };
        let (to_agent, outgoing) = mpsc::channel(16);
        self.sessions.send(Session { hello, from_agent, to_agent }).await.map_err(|_| Status::internal("test over"))?;
        Ok(Response::new(ReceiverStream::new(outgoing)))
    }
}

struct Accepted(TlsStream<TcpStream>);

impl Connected for Accepted {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Accepted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Starts a coordinator that demands certificates of `clients` and shows one of `own`.
async fn coordinator(
    own: &Authority,
    clients: &Authority,
    refusal: Option<Status>,
) -> (SocketAddr, mpsc::Receiver<Session>) {
    let (certificate, key) = own.issue(connector::COORDINATOR_NAME);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(clients.roots()), Arc::clone(&provider)).build().unwrap();
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            crate::tls::certificates(certificate.as_bytes()).unwrap(),
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (accept, accepted) = mpsc::channel(4);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                let _ = accept.send(Ok::<_, std::io::Error>(Accepted(stream))).await;
            }
        }
    });
    let (sessions, taken) = mpsc::channel(4);
    let service = ProbeServer::new(Coordinator { sessions, refusal });
    tokio::spawn(
        tonic::transport::Server::builder().add_service(service).serve_with_incoming(ReceiverStream::new(accepted)),
    );
    (address, taken)
}

/// An agent's end of the line.
struct Agent {
    recorder: Recorder,
    boot: BootId,
    kept: Arc<Kept>,
    tasks: mpsc::Receiver<Task>,
    reports: mpsc::Sender<Report>,
    stop: watch::Sender<bool>,
    running: tokio::task::JoinHandle<Result<(), IdentityRefused>>,
}

impl Agent {
    fn start(state: &Path, own: &Authority, coordinators: &Authority, address: SocketAddr) -> Self {
        let (certificate, key) = own.issue("branch-kazan");
        let folder = state.join("identity");
        std::fs::create_dir_all(&folder).unwrap();
        for (file, text) in [("ca.pem", coordinators.pem()), ("certificate.pem", certificate), ("key.pem", key)] {
            std::fs::write(folder.join(file), text).unwrap();
        }
        let boot = BootId::random().unwrap();
        let recorder = Recorder::new(Spool::open(state.join("spool"), boot, Limits::default(), 0));
        let kept = Arc::new(Kept::open(state));
        let (send_tasks, tasks) = mpsc::channel(4);
        let (reports, take_reports) = mpsc::channel(4);
        let (stop, stopping) = watch::channel(false);
        let uplink = Uplink {
            coordinator: address.to_string(),
            last_good: LastGood::default(),
            identity: Identity::new(folder),
            boot,
            recorder: recorder.clone(),
            kept: Arc::clone(&kept),
            tasks: send_tasks,
            reports: take_reports,
        };
        let running = tokio::spawn(uplink.run(stopping));
        Self { recorder, boot, kept, tasks, reports, stop, running }
    }

    fn record(&self, count: usize) {
        let control = ControlCheck { control: "a".parse().unwrap(), outcome: Outcome::TcpOk };
        let what = What::ControlCheck(control, ControlParticulars::default());
        for _ in 0..count {
            let measured = Measured { what: what.clone(), duration: Duration::ZERO };
            self.recorder.record(Reason::SCHEDULED, &measured);
        }
    }

    async fn stop(self) {
        self.stop.send_replace(true);
        self.running.await.unwrap().unwrap();
    }
}

fn greeting() -> coordinator_message::Message {
    coordinator_message::Message::Assignment(assignment())
}

fn numbers(batch: &v1::Batch) -> Vec<u64> {
    batch.observations.iter().map(|observation| observation.sequence).collect()
}

#[tokio::test]
async fn nothing_is_sent_before_the_greeting_and_what_is_not_acknowledged_comes_again() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let (address, mut sessions) = coordinator(&authority, &authority, None).await;
    let agent = Agent::start(state.path(), &authority, &authority, address);
    agent.record(3);

    let mut first = sessions.recv().await.unwrap();
    assert_eq!((first.hello.protocol, first.hello.assignment_version), (1, 0));
    assert_eq!(first.hello.boot_id, agent.boot.to_string());
    first.say(greeting()).await;
    let batch = first.batch().await;
    assert_eq!(numbers(&batch), [1, 2, 3]);
    assert!(batch.observations.iter().all(|observation| observation.age_ms < 60_000));
    first.ack(&v1::Batch { observations: batch.observations[..2].to_vec(), ..batch }).await;
    agent.record(1);
    assert_eq!(numbers(&first.batch().await), [4]);
    drop(first);

    let mut second = sessions.recv().await.unwrap();
    assert_eq!(second.hello.assignment_version, 3, "the assignment was taken");
    assert_eq!(agent.kept.version(), 3);
    second.say(greeting()).await;
    let batch = second.batch().await;
    assert_eq!(numbers(&batch), [3, 4]);
    second.ack(&batch).await;
    agent.record(1);
    let batch = second.batch().await;
    assert_eq!(numbers(&batch), [5]);
    second.ack(&batch).await;
    agent.stop().await;
}

#[tokio::test]
async fn after_a_restart_the_earlier_boot_is_drained_under_its_own_name() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let (address, mut sessions) = coordinator(&authority, &authority, None).await;
    let agent = Agent::start(state.path(), &authority, &authority, address);
    let earlier = agent.boot.to_string();
    agent.record(2);
    let mut session = sessions.recv().await.unwrap();
    session.say(greeting()).await;
    assert_eq!(numbers(&session.batch().await), [1, 2]);
    // Stopped without an acknowledgement: the farewell waits for it in vain.
    agent.stop().await;
    drop(session);

    let agent = Agent::start(state.path(), &authority, &authority, address);
    agent.record(1);
    let mut session = sessions.recv().await.unwrap();
    assert_ne!(session.hello.boot_id, earlier);
    session.say(greeting()).await;
    let live = session.batch().await;
    assert_eq!((live.boot_id.clone(), numbers(&live)), (agent.boot.to_string(), vec![1]));
    let left = session.batch().await;
    assert_eq!((left.boot_id.clone(), numbers(&left)), (earlier, vec![1, 2]));
    session.ack(&live).await;
    session.ack(&left).await;
    agent.stop().await;
    assert_eq!(std::fs::read_dir(state.path().join("spool")).unwrap().count(), 1, "the earlier boot is gone");
}

#[tokio::test]
async fn a_refusal_is_done_with_and_does_not_come_again() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let (address, mut sessions) = coordinator(&authority, &authority, None).await;
    let agent = Agent::start(state.path(), &authority, &authority, address);
    agent.record(2);
    let mut session = sessions.recv().await.unwrap();
    session.say(greeting()).await;
    let batch = session.batch().await;
    let refusal = |sequence| {
        let reason = "its outcome is not known".to_owned();
        coordinator_message::Message::Refusal(v1::Refusal {
            boot_id: batch.boot_id.clone(),
            sequence,
            reason,
            lane: batch.lane,
        })
    };
    session.say(refusal(2)).await;
    let ack = v1::Ack { boot_id: batch.boot_id.clone(), sequence: 1, lane: batch.lane };
    session.say(coordinator_message::Message::Ack(ack)).await;
    agent.record(1);
    assert_eq!(numbers(&session.batch().await), [3]);
    session.say(refusal(0)).await;
    agent.record(1);
    assert_eq!(numbers(&session.batch().await), [4]);
    drop(session);
    let mut session = sessions.recv().await.unwrap();
    session.say(greeting()).await;
    assert_eq!(numbers(&session.batch().await), [4]);
}

#[tokio::test]
async fn a_row_that_is_no_observation_is_left_out_and_holds_up_nothing() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let (address, mut sessions) = coordinator(&authority, &authority, None).await;
    let agent = Agent::start(state.path(), &authority, &authority, address);
    agent.record(1);
    agent.recorder.spool().append(Lane::Urgent, 0, false, &[0xff; 9]);
    let mut session = sessions.recv().await.unwrap();
    session.say(greeting()).await;
    let batch = session.batch().await;
    assert_eq!(numbers(&batch), [1]);
    agent.recorder.spool().rewind();
    agent.record(1);
    let again = session.batch().await;
    assert_eq!(numbers(&again), [1, 3], "what is before the bad row waits for its acknowledgement");
    session.ack(&again).await;
    agent.stop().await;
    let spool = Spool::open(state.path().join("spool"), BootId::random().unwrap(), Limits::default(), 0);
    assert!(!spool.has_unsent(), "acknowledged past the bad row");
}

#[tokio::test]
async fn reports_wait_for_a_place_without_being_lost() {
    let (send, mut sent) = mpsc::channel(1);
    let (hand_in, mut reports) = mpsc::channel(2);
    let report = Report {
        task_id: 1,
        plan_id: 1,
        outcome: crate::pins::Outcome::Applied,
        found: Vec::new(),
        detail: String::new(),
    };
    send.try_send(v1::AgentMessage { message: None }).unwrap();
    hand_in.try_send(report.clone()).unwrap();
    let early = tokio::time::timeout(Duration::from_millis(10), session::report_with_place(&send, &mut reports)).await;
    assert!(early.is_err(), "there is no place");
    sent.recv().await.unwrap();
    let (_, taken) = session::report_with_place(&send, &mut reports).await.unwrap();
    assert_eq!(taken, report);
}

#[tokio::test]
async fn batches_in_flight_are_bounded() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let (address, mut sessions) = coordinator(&authority, &authority, None).await;
    let agent = Agent::start(state.path(), &authority, &authority, address);
    agent.record(500 * 6);
    let mut session = sessions.recv().await.unwrap();
    session.say(greeting()).await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        let batch = session.batch().await;
        assert_eq!(batch.observations.len(), 500);
        seen.push(batch);
    }
    let early = tokio::time::timeout(Duration::from_millis(200), session.from_agent.message()).await;
    assert!(early.is_err(), "a fifth batch before an acknowledgement");
    session.ack(&seen[3]).await;
    assert_eq!(numbers(&session.batch().await)[0], 2001);
}

#[tokio::test]
async fn tasks_and_reports_travel() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let (address, mut sessions) = coordinator(&authority, &authority, None).await;
    let mut agent = Agent::start(state.path(), &authority, &authority, address);
    let mut session = sessions.recv().await.unwrap();
    session.say(greeting()).await;
    let change = |epoch, change| v1::ChangeTask { plan_id: 5, epoch, change };
    let task = |task_id, work| {
        let work = Some(v1::task::Work::Change(work));
        coordinator_message::Message::Task(v1::Task { task_id, deadline_ms: 1000, work, purpose: 0 })
    };
    let read = v1::change_task::Change::Read(v1::ReadPin { name: "example.com".into() });
    session.say(task(7, change(1, Some(read)))).await;
    let taken = agent.tasks.recv().await.unwrap();
    assert_eq!(taken.id, 7);

    session.say(task(8, change(1, None))).await;
    let agent_message::Message::ChangeReport(report) = session.next().await else { panic!("not a report") };
    assert_eq!((report.task_id, report.outcome()), (8, v1::ChangeOutcome::Refused));

    let outcome = crate::pins::Outcome::Applied;
    let report =
        Report { task_id: 7, plan_id: 5, outcome, found: vec![[104, 26, 4, 10].into()], detail: "done".into() };
    agent.reports.send(report).await.unwrap();
    let agent_message::Message::ChangeReport(report) = session.next().await else { panic!("not a report") };
    assert_eq!((report.task_id, report.plan_id, report.found), (7, 5, vec![vec![104, 26, 4, 10]]));
}

#[tokio::test]
async fn permission_denied_ends_the_agent() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let refusal = Status::permission_denied("vantage branch-kazan was removed");
    let (address, _sessions) = coordinator(&authority, &authority, Some(refusal)).await;
    let agent = Agent::start(state.path(), &authority, &authority, address);
    let refused = agent.running.await.unwrap().unwrap_err();
    assert!(refused.to_string().contains("was removed"), "{refused}");
}

#[tokio::test]
async fn a_stranger_is_neither_spoken_to_nor_believed() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let state = tempfile::tempdir().unwrap();
    // The coordinator does not know our authority: the handshake looks fine, reading tells.
    let (address, _sessions) = coordinator(&authority, &authority, None).await;
    assert!(
        lost(state.path(), &stranger, &authority, address).await.contains("does not accept this agent's certificate")
    );
    // We do not know the coordinator's.
    let (address, _sessions) = coordinator(&stranger, &authority, None).await;
    let why = lost(state.path(), &authority, &authority, address).await;
    assert!(why.contains("UnknownIssuer"), "{why}");
}

/// Why one session does not come about.
async fn lost(state: &Path, own: &Authority, coordinators: &Authority, address: SocketAddr) -> String {
    let agent = Agent::start(state, own, coordinators, address);
    agent.running.abort();
    let (tasks, _taken) = mpsc::channel(1);
    let (_reports, reports) = mpsc::channel(1);
    let (_stop, stopping) = watch::channel(false);
    let mut uplink = Uplink {
        coordinator: address.to_string(),
        last_good: LastGood::default(),
        identity: Identity::new(state.join("identity")),
        boot: agent.boot,
        recorder: agent.recorder.clone(),
        kept: Arc::clone(&agent.kept),
        tasks,
        reports,
    };
    let ended = uplink.session(stopping).await;
    let Ended::Lost { why, connected: false } = ended else { panic!("{ended:?}") };
    why
}
