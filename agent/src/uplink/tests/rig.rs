//! A coordinator and an agent's end of the line.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;

use parallax_decide::observation::{ControlCheck, Outcome};
use parallax_proto::MESSAGE_BYTES_MAX;
use parallax_proto::v1::probe_server::{Probe, ProbeServer};
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Streaming};

use super::cut::{self, Cut};
use super::*;
use crate::assignment::wire::tests::wire as assignment;
use crate::measured::{ControlParticulars, Measured, Reason, What};
use crate::spool::{BootId, Limits, Spool};
use crate::uplink::connector::COORDINATOR_NAME;
use crate::uplink::known::Known;
use crate::uplink::proxy::ProxySetting;

/// One session as the coordinator sees it.
pub(super) struct Session {
    pub(super) hello: v1::Hello,
    pub(super) from_agent: Streaming<v1::AgentMessage>,
    pub(super) to_agent: mpsc::Sender<Result<v1::CoordinatorMessage, Status>>,
}

impl Session {
    pub(super) async fn batch(&mut self) -> v1::Batch {
        let message = self.next().await;
        let agent_message::Message::Batch(batch) = message else { panic!("not a batch: {message:?}") };
        batch
    }

    /// The next message; heartbeats are answered on the way.
    pub(super) async fn next(&mut self) -> agent_message::Message {
        let received = tokio::time::timeout(Duration::from_secs(20), self.received()).await;
        received.expect("nothing came").expect("the stream ended")
    }

    pub(super) async fn received(&mut self) -> Option<agent_message::Message> {
        loop {
            let message = self.from_agent.message().await.ok()??.message?;
            let agent_message::Message::Ping(ping) = message else { return Some(message) };
            let pong = coordinator_message::Message::Pong(v1::Pong {
                nonce: ping.nonce,
                unix_ms: clock::unix_ms(),
                life: None,
            });
            self.to_agent.send(Ok(v1::CoordinatorMessage { message: Some(pong) })).await.ok()?;
        }
    }

    pub(super) async fn say(&self, message: coordinator_message::Message) {
        self.to_agent.send(Ok(v1::CoordinatorMessage { message: Some(message) })).await.unwrap();
    }

    pub(super) async fn end(self, status: Status) {
        self.to_agent.send(Err(status)).await.unwrap();
    }

    pub(super) async fn ack(&self, batch: &v1::Batch) {
        let sequence = batch.observations.last().unwrap().sequence;
        let ack = v1::Ack { boot_id: batch.boot_id.clone(), sequence, lane: batch.lane };
        self.say(coordinator_message::Message::Ack(ack)).await;
    }
}

/// Hands each session to the test.
struct Service {
    sessions: mpsc::Sender<Session>,
    refusal: Option<Status>,
}

#[tonic::async_trait]
impl Probe for Service {
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
        let session = Session { hello, from_agent, to_agent };
        self.sessions.send(session).await.map_err(|_| Status::internal("test over"))?;
        Ok(Response::new(ReceiverStream::new(outgoing)))
    }
}

/// The connections that pass through the hop before the coordinator.
#[derive(Debug, Clone, Default)]
pub(super) struct Cuts(Arc<Mutex<Vec<watch::Sender<Cut>>>>);

impl Cuts {
    /// Does this to the connections there are; later ones pass.
    pub(super) fn all(&self, cut: Cut) {
        for sender in self.0.lock().unwrap().iter() {
            sender.send_replace(cut);
        }
    }
}

/// A coordinator that demands certificates of `clients` and shows one of `own`.
pub(super) struct Rig {
    pub(super) address: SocketAddr,
    pub(super) sessions: mpsc::Receiver<Session>,
    pub(super) cuts: Cuts,
    /// Certificates the agents showed.
    pub(super) shown: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Rig {
    pub(super) async fn start(authority: &Authority) -> Self {
        Self::between(authority, authority, None).await
    }

    /// `refusal`: what every session is refused with.
    pub(super) async fn between(own: &Authority, clients: &Authority, refusal: Option<Status>) -> Self {
        Self::with(own.issue(COORDINATOR_NAME), clients, refusal).await
    }

    pub(super) async fn with(shown: (String, String), clients: &Authority, refusal: Option<Status>) -> Self {
        Self::at("127.0.0.1:0", shown, clients, refusal).await
    }

    /// At this local address, with this certificate and key.
    pub(super) async fn at(
        address: &str,
        (certificate, key): (String, String),
        clients: &Authority,
        refusal: Option<Status>,
    ) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(clients.roots()), Arc::clone(&provider));
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(
                crate::tls::certificates(certificate.as_bytes()).unwrap(),
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (accept, accepted) = mpsc::channel(4);
        let (cuts, shown) = (Cuts::default(), Arc::new(Mutex::new(Vec::new())));
        let (hold, note) = (cuts.clone(), Arc::clone(&shown));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if let Ok(stream) = acceptor.accept(stream).await {
                    let peer = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
                    note.lock().unwrap().push(peer);
                    let (sender, cut) = watch::channel(Cut::Pass);
                    hold.0.lock().unwrap().push(sender);
                    let _ = accept.send(Ok::<_, std::io::Error>(cut::through(stream, cut))).await;
                }
            }
        });
        let (sessions, taken) = mpsc::channel(4);
        let service = ProbeServer::new(Service { sessions, refusal }).max_decoding_message_size(MESSAGE_BYTES_MAX);
        tokio::spawn(
            tonic::transport::Server::builder().add_service(service).serve_with_incoming(ReceiverStream::new(accepted)),
        );
        Self { address, sessions: taken, cuts, shown }
    }

    /// The next session, greeted.
    pub(super) async fn greeted(&mut self) -> Session {
        let session = tokio::time::timeout(Duration::from_secs(60), self.sessions.recv()).await;
        let session = session.expect("no session").unwrap();
        session.say(greeting()).await;
        session
    }
}

/// An agent's end of the line.
pub(super) struct Agent {
    pub(super) recorder: Recorder,
    pub(super) boot: BootId,
    pub(super) kept: Arc<Kept>,
    pub(super) tasks: mpsc::Receiver<Task>,
    pub(super) reports: mpsc::Sender<Report>,
    pub(super) status: status::Status,
    stop: watch::Sender<bool>,
    pub(super) running: tokio::task::JoinHandle<Result<(), IdentityRefused>>,
}

/// An uplink that does not run yet, and what holds its other ends.
pub(super) struct Line {
    pub(super) uplink: Uplink,
    pub(super) tasks: mpsc::Receiver<Task>,
    pub(super) reports: mpsc::Sender<Report>,
}

impl Line {
    /// With an identity of `own` that trusts `coordinators`.
    pub(super) fn new(state: &Path, own: &Authority, coordinators: &Authority, to: &[String]) -> Self {
        let (certificate, key) = own.issue("branch-kazan");
        let folder = state.join("identity");
        std::fs::create_dir_all(&folder).unwrap();
        for (file, text) in [("ca.pem", coordinators.pem()), ("certificate.pem", certificate), ("key.pem", key)] {
            std::fs::write(folder.join(file), text).unwrap();
        }
        let held = Identity::new(folder.clone()).credentials().unwrap();
        let boot = BootId::random().unwrap();
        let (send_tasks, tasks) = mpsc::channel(4);
        let (reports, take_reports) = mpsc::channel(4);
        let spool = Spool::open(state.join("spool"), boot, Limits::default(), clock::boottime_ms());
        let recorder = Recorder::new(spool);
        let uplink = Uplink {
            coordinators: to.iter().map(|one| one.parse().unwrap()).collect(),
            connector: Connector::new(ProxySetting::None, Known::open(state), recorder.clock().clone()),
            identity: Identity::new(folder),
            recorder: recorder.clone(),
            kept: Arc::new(Kept::open(state, &held.signers, &held.vantage)),
            epoch: Epoch::open(state),
            disobeyed: Disobeyed::default(),
            renewal: Renewal::default(),
            tasks: send_tasks,
            reports: take_reports,
            status: status::Status::new(recorder.clone()),
            expiry: Expiry::default(),
            cut: flight::Cut::default(),
            timing: hasty(),
        };
        Self { uplink, tasks, reports }
    }

    pub(super) fn run(self) -> Agent {
        let Self { uplink, tasks, reports } = self;
        let (stop, stopping) = watch::channel(false);
        let recorder = uplink.recorder.clone();
        let boot = recorder.spool().hold();
        let (kept, status) = (Arc::clone(&uplink.kept), uplink.status.clone());
        let running = tokio::spawn(uplink.run(stopping));
        Agent { recorder, boot, kept, tasks, reports, status, stop, running }
    }

    /// How one session with the first coordinator ends.
    pub(super) async fn ended(&mut self) -> Ended {
        let (_stop, stopping) = watch::channel(false);
        let to = self.uplink.coordinators[0].clone();
        self.uplink.session(&to, stopping).await
    }

    /// Why one session with the first coordinator does not come about.
    pub(super) async fn lost(&mut self) -> Lost {
        let ended = self.ended().await;
        let Ended::Lost(lost) = ended else { panic!("{ended:?}") };
        lost
    }
}

/// A tenth of an agent's patience.
pub(super) fn hasty() -> Timing {
    Timing {
        keepalive_every: Duration::from_millis(500),
        keepalive_wait: Duration::from_millis(1000),
        ask_every: Duration::from_millis(500),
        silence_max: Duration::from_millis(1500),
        wait_min: Duration::from_millis(50),
        wait_max: Duration::from_millis(500),
        tls_max: Duration::from_secs(1),
        greeting_max: Duration::from_secs(10),
        reload_every: Duration::from_millis(200),
        renew_max: Duration::from_millis(300),
    }
}

impl Agent {
    pub(super) fn start(state: &Path, authority: &Authority, rig: &Rig) -> Self {
        Line::new(state, authority, authority, &[rig.address.to_string()]).run()
    }

    pub(super) fn record(&self, count: usize) {
        let control = ControlCheck { control: "a".parse().unwrap(), outcome: Outcome::TcpOk };
        let what = What::ControlCheck(control, ControlParticulars::default());
        for _ in 0..count {
            let measured = Measured { what: what.clone(), duration: Duration::ZERO };
            self.recorder.record(Reason::SCHEDULED, &measured);
        }
    }

    pub(super) async fn stop(self) {
        self.stop.send_replace(true);
        self.running.await.unwrap().unwrap();
    }
}

pub(super) fn greeting() -> coordinator_message::Message {
    coordinator_message::Message::Assignment(assignment())
}

pub(super) fn numbers(batch: &v1::Batch) -> Vec<u64> {
    batch.observations.iter().map(|observation| observation.sequence).collect()
}
