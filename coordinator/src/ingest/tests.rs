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
use crate::identity::signer::Signers;
use crate::identity::{SERVER_NAME, folder};
use crate::state::App;
use crate::testing;

mod accept;
mod admission;
mod batches;
mod enrolment;
mod identity;
mod issuing;
mod life;
mod skew;
mod tasks;
mod trouble;

const BOOT: &str = "000000000000000000000000000b0071";
const OLDER_BOOT: &str = "000000000000000000000000000b0070";

/// A coordinator that listens, and the folder of its authority.
struct World {
    app: Arc<App>,
    address: std::net::SocketAddr,
    state: Arc<tempfile::TempDir>,
    keeper: Arc<Keeper>,
    shutdown: CancellationToken,
    serving: JoinHandle<()>,
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
        self.send(FromAgent::Batch(v1::Batch { boot_id, observations, lane: lane.into(), ..v1::Batch::default() }))
            .await;
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
    let signers = Signers::open(&state.join("ca")).unwrap();
    let life = Duration::from_secs(30 * 86_400);
    folder::write(&bundle, &signers, &name.parse().unwrap(), (folder, life), at).unwrap();
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
