//! `parallax-agent respond`: on a node of ours, proves that it lives.
//!
//! It signs what it is asked to, with a key that never leaves the node, and says nothing else. What is signed begins with
//! words of its own ([`parallax_proto::LIFE_CONTEXT`]), so that a signature is good for nothing else; who asks learns no more
//! than that the node lives. With `--service` it signs only while that accepts a connection: a node whose service is dead
//! does not prove its life.
//!
//! Listens, which a measuring agent never does; holds no state but its key, and needs no identity.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use parallax_proto::{LIFE_NONCE_BYTES, LIFE_PORT, LIFE_QUESTION, life_message};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::cli::STATE;
use crate::failure::{Exit, Failure};

mod key;

/// Connections at the same time. One lasts a round trip.
const CONNECTIONS_MAX: usize = 64;

/// Of these, from one address: no place may shut out the others.
const CONNECTIONS_OF_ONE_MAX: usize = 8;

/// Life of a connection.
const LIFE_MAX: Duration = Duration::from_secs(3);

/// Longest wait for the service, which is on this machine or beside it.
const SERVICE_WAIT: Duration = Duration::from_secs(1);

/// Pause after a failed accept (no descriptors left), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Flags of `respond`.
#[derive(Debug, Clone, Args)]
pub struct Respond {
    /// Where to listen, ADDRESS:PORT; port 7443 of all addresses of both families unless it is given.
    #[arg(long, value_name = "ADDRESS:PORT", env = "PARALLAX_RESPOND_LISTEN")]
    pub listen: Option<SocketAddr>,

    /// File of the private key; made when missing. [default: life.key in the state folder]
    #[arg(long, value_name = "FILE", env = "PARALLAX_RESPOND_KEY")]
    pub key: Option<PathBuf>,

    /// What the node is there for, ADDRESS:PORT: nothing is signed while it accepts no connection.
    #[arg(long, value_name = "ADDRESS:PORT", env = "PARALLAX_RESPOND_SERVICE")]
    pub service: Option<SocketAddr>,

    /// Print the public key for the coordinator's configuration (`proof.key` of the node), and end.
    #[arg(long)]
    pub public: bool,
}

impl Respond {
    fn key(&self) -> PathBuf {
        self.key.clone().unwrap_or_else(|| Path::new(STATE).join("life.key"))
    }

    fn listen(&self) -> SocketAddr {
        self.listen.unwrap_or_else(|| SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), LIFE_PORT))
    }
}

/// Prints the public key, or answers until SIGTERM or SIGINT. What to print.
///
/// # Errors
/// When the key cannot be read or made, or the address cannot be listened on.
pub async fn run(options: &Respond) -> Result<String, Failure> {
    let path = options.key();
    let pair = key::read_or_make(&path).map_err(|error| {
        let why = format!("{}: {error}", path.display());
        failure("the node's key cannot be used", why, "give --key a file that this user may write, or restore it")
    })?;
    let public = hex(pair.public_key().as_ref());
    if options.public {
        return Ok(format!("{public}\n"));
    }
    let listen = options.listen();
    let cannot = |error: io::Error| {
        let why = format!("{listen}: {error}");
        failure("there is nothing to listen on", why, "give --listen an address of this node and a port that is free")
    };
    let listener = TcpListener::bind(listen).await.map_err(cannot)?;
    let at = listener.local_addr().map_err(cannot)?;
    tracing::info!(%at, %public, service = ?options.service, "answers for the life of this node");
    let stopped = |error: io::Error| failure("cannot wait for a signal", error.to_string(), "see the kernel's log");
    let mut terminate = signal(SignalKind::terminate()).map_err(stopped)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(stopped)?;
    tokio::select! {
        () = serve(listener, Arc::new(pair), options.service) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(String::new())
}

/// Answers whoever connects, for ever.
async fn serve(listener: TcpListener, pair: Arc<Ed25519KeyPair>, service: Option<SocketAddr>) {
    let (places, sources) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), Sources::default());
    loop {
        let (stream, remote) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Who finds no place is not answered, which proves nothing and accuses nobody.
        let Some(source) = sources.enter(remote.ip()) else { continue };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let pair = Arc::clone(&pair);
        tokio::spawn(async move {
            let (_place, _source) = (place, source);
            match timeout(LIFE_MAX, answer(stream, &pair, service)).await {
                Ok(Ok(())) => tracing::debug!(%remote, "proved this node's life"),
                Ok(Err(error)) => tracing::debug!(%remote, %error, "not answered"),
                Err(_) => tracing::debug!(%remote, "not answered in time"),
            }
        });
    }
}

async fn answer(mut stream: TcpStream, pair: &Ed25519KeyPair, service: Option<SocketAddr>) -> io::Result<()> {
    let mut question = [0; LIFE_QUESTION.len()];
    stream.read_exact(&mut question).await?;
    if question != LIFE_QUESTION {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it asks for something else"));
    }
    let mut nonce = [0; LIFE_NONCE_BYTES];
    stream.read_exact(&mut nonce).await?;
    if let Some(service) = service {
        timeout(SERVICE_WAIT, TcpStream::connect(service)).await.map_err(|_| io::ErrorKind::TimedOut)??;
    }
    stream.write_all(pair.sign(&life_message(&nonce)).as_ref()).await?;
    stream.shutdown().await
}

/// How many connections each address has.
#[derive(Debug, Clone, Default)]
struct Sources(Arc<Mutex<BTreeMap<IpAddr, usize>>>);

/// One of them.
#[derive(Debug)]
struct FromOne(Sources, IpAddr);

impl Sources {
    fn enter(&self, source: IpAddr) -> Option<FromOne> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Bounded by the connections: one that is counted here is open, or closed at once.
        let count = counts.entry(source).or_default();
        if *count >= CONNECTIONS_OF_ONE_MAX {
            return None;
        }
        *count += 1;
        Some(FromOne(self.clone(), source))
    }
}

impl Drop for FromOne {
    fn drop(&mut self) {
        let mut counts = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.1) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.1);
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn failure(what: &str, why: String, fix: &str) -> Failure {
    Failure { exit: Exit::Failed, code: "E0480", word: "respond", what: what.to_owned(), why, fix: fix.to_owned() }
}

#[cfg(test)]
mod tests {
    use ring::signature::{ED25519, UnparsedPublicKey};

    use super::*;

    /// A responder on loopback, and its public key.
    async fn responder(service: Option<SocketAddr>) -> (SocketAddr, Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        let pair = key::read_or_make(&folder.path().join("life.key")).unwrap();
        let public = pair.public_key().as_ref().to_vec();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Arc::new(pair), service));
        (at, public)
    }

    async fn asks(at: SocketAddr, question: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(at).await.unwrap();
        let _ = stream.write_all(question).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        answer
    }

    #[tokio::test]
    async fn it_signs_the_nonce_and_nothing_else() {
        let (at, public) = responder(None).await;
        let nonce = [7; LIFE_NONCE_BYTES];
        let signature = asks(at, &[LIFE_QUESTION.as_slice(), &nonce].concat()).await;
        let public = UnparsedPublicKey::new(&ED25519, public);
        assert!(public.verify(&life_message(&nonce), &signature).is_ok());
        assert!(public.verify(&nonce, &signature).is_err(), "only with its own words before it");
        for other in [&b"GET / HTTP/1.1\r\n\r\n plus some more bytes to fill it"[..], b"plxlife1short", b""] {
            assert!(asks(at, other).await.is_empty());
        }
    }

    #[tokio::test]
    async fn it_proves_no_life_of_a_node_whose_service_is_dead() {
        let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (at, _) = responder(Some(service.local_addr().unwrap())).await;
        let question = [LIFE_QUESTION.as_slice(), &[1; LIFE_NONCE_BYTES]].concat();
        assert!(!asks(at, &question).await.is_empty());
        drop(service);
        assert!(asks(at, &question).await.is_empty());
    }

    #[tokio::test]
    async fn one_address_has_few_connections_at_a_time() {
        let sources = Sources::default();
        let one: IpAddr = "192.0.2.7".parse().unwrap();
        let held: Vec<FromOne> = (0..CONNECTIONS_OF_ONE_MAX).filter_map(|_| sources.enter(one)).collect();
        assert_eq!(held.len(), CONNECTIONS_OF_ONE_MAX);
        assert!(sources.enter(one).is_none());
        assert!(sources.enter("192.0.2.8".parse().unwrap()).is_some());
        drop(held);
        assert!(sources.enter(one).is_some());
        assert_eq!(sources.0.lock().unwrap().len(), 0, "who has left is forgotten");
    }
}
