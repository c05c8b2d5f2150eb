//! Takes the agents' streams. The types of the wire stop here.
//!
//! - [`handshakes`]: which connections may begin theirs, and when. [`source`]: how many of one source.
//! - [`accept`]: TCP, mutual TLS by its `records`. [`tls`]: what a client certificate says. `http2`: requests.
//! - [`enrolment`]: how an agent gets a certificate, at a bounded [`pace`]. [`admission`]: which one may report;
//!   [`standing`]: which do.
//! - [`session`]: one stream: greeting, assignment, batches, reports, tasks.
//! - [`validate`]: a batch as rows, or what is wrong with it.
//! - [`in_hand`]: what all streams together may hold until it is stored.
//! - [`committer`]: one transaction for the waiting batches of many agents; only then an answer.
//! - [`assignment`], [`convert`]: what goes down the stream. [`order`]: its signing.
//!
//! A slow database slows the agents: each stream has one batch under way and few behind it, all of them together have one
//! budget, and what is not acknowledged stays in the agent's spool.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use parallax_proto::v1::enrolment_server::EnrolmentServer;
use parallax_proto::v1::probe_server::ProbeServer;
use parallax_proto::{MESSAGE_BYTES_MAX, REQUEST_BYTES_MAX};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::identity::keeper::Keeper;
use crate::state::App;

pub mod accept;
pub mod admission;
pub mod assignment;
pub mod committer;
pub mod convert;
pub mod enrolment;
#[cfg(test)]
mod full_disk;
pub mod handshakes;
mod http2;
pub mod in_hand;
pub mod life;
pub mod order;
pub mod pace;
mod records;
pub mod session;
pub mod source;
pub mod standing;
#[cfg(test)]
mod tests;
pub mod tls;
pub mod validate;

/// Connections that passed TLS and wait for the server's task.
const CONNECTIONS_WAITING_MAX: usize = 64;

/// Largest message of an agent that is not known yet: a request, a secret, a version, a time.
const ENROLMENT_BYTES_MAX: usize = REQUEST_BYTES_MAX + 1024;
/// Connections that the kernel holds until they are accepted, which is at once: a fleet that comes back asks for thousands in
/// the same second. It takes no more than `net.core.somaxconn` allows.
const ACCEPT_QUEUE_MAX: u32 = 4096;

/// Listens for agents, with as many descriptors as the system grants: a stream takes one.
///
/// # Errors
/// When the address cannot be had.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!(%error, soft, "the limit of open files cannot be raised; so many agents at most");
    }
    let socket = if address.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(ACCEPT_QUEUE_MAX)
}

/// Serves agents until `shutdown`, then ends the streams and stores what is under way.
pub async fn serve(app: Arc<App>, listener: TcpListener, keeper: Arc<Keeper>, shutdown: CancellationToken) {
    let streams = TaskTracker::new();
    // The committer outlives the streams: what they handed over is still stored.
    let (committer, storing) = committer::start(Arc::clone(&app), shutdown.clone());
    let enrolment = enrolment::Service::new(Arc::clone(&app), Arc::clone(&keeper));
    let service = session::Service {
        app,
        keeper: Arc::clone(&keeper),
        committer,
        in_hand: in_hand::InHand::default(),
        greetings: Arc::new(Semaphore::new(session::GREETINGS_MAX)),
        streams: streams.clone(),
        shutdown: shutdown.clone(),
    };
    let services = Arc::new(http2::Services {
        probe: ProbeServer::new(service)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX),
        enrolment: EnrolmentServer::new(enrolment).max_decoding_message_size(ENROLMENT_BYTES_MAX),
    });
    let (sender, mut incoming) = mpsc::channel(CONNECTIONS_WAITING_MAX);
    let accepting = tokio::spawn(accept::run(listener, keeper, sender, shutdown.clone()));
    let connections = TaskTracker::new();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            connection = incoming.recv() => match connection {
                Some(connection) => {
                    let (services, shutdown) = (Arc::clone(&services), shutdown.clone());
                    connections.spawn(http2::open(connection, services, connections.clone(), shutdown));
                }
                None => break,
            },
        }
    }
    drop((incoming, services));
    connections.close();
    connections.wait().await;
    shutdown.cancel();
    streams.close();
    streams.wait().await;
    let _ = accepting.await;
    let _ = storing.await;
}
