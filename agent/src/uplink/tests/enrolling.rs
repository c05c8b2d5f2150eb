//! A coordinator that gives certificates, as a script says: over real sockets, without asking for ours.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Mutex;

use parallax_proto::v1::enrolment_server::{Enrolment, EnrolmentServer};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response};

use super::cut::{self, Cut};
use super::*;
use crate::uplink::connector::COORDINATOR_NAME;

/// What is done with the next request, whatever it is.
#[derive(Clone)]
pub(crate) enum Act {
    /// A certificate of so many seconds.
    Give(i64),
    /// The same, and then the connection is reset before the answer is on its way.
    Lose,
    /// One of somebody else's authority.
    Forge(Arc<Authority>),
    Refuse(Box<Status>),
}

impl Act {
    /// A refusal with a reason in the metadata.
    pub(crate) fn refuse(mut status: Status, reason: &'static str) -> Self {
        status.metadata_mut().insert("reason", reason.parse().unwrap());
        Self::Refuse(Box::new(status))
    }
}

/// The coordinator.
pub(crate) struct Office {
    pub(crate) address: SocketAddr,
    /// Requests for certificates that came, in DER.
    pub(crate) asked: Arc<Mutex<Vec<Vec<u8>>>>,
}

struct Desk {
    authority: Arc<Authority>,
    trust: v1::Trust,
    script: Mutex<VecDeque<Act>>,
    asked: Arc<Mutex<Vec<Vec<u8>>>>,
    cuts: Arc<Mutex<Vec<watch::Sender<Cut>>>>,
}

impl Desk {
    async fn serve(&self, request: Vec<u8>) -> Result<Response<v1::JoinReply>, Status> {
        self.asked.lock().unwrap().push(request.clone());
        let act = self.script.lock().unwrap().pop_front();
        let (authority, life_s) = match act {
            None => return Err(Status::internal("the script is over")),
            Some(Act::Refuse(status)) => return Err(*status),
            Some(Act::Give(life_s)) => (Arc::clone(&self.authority), life_s),
            Some(Act::Forge(other)) => (other, 3600),
            Some(Act::Lose) => {
                for cut in self.cuts.lock().unwrap().iter() {
                    cut.send_replace(Cut::Reset);
                }
                std::future::pending().await
            }
        };
        let identity = v1::Identity {
            vantage: "branch-kazan".to_owned(),
            certificates: vec![authority.certify(&request, "branch-kazan", life_s)],
            trust: Some(self.trust.clone()),
        };
        Ok(Response::new(v1::JoinReply { identity: Some(identity), unix_ms: clock::unix_ms() }))
    }
}

#[tonic::async_trait]
impl Enrolment for Desk {
    async fn join(&self, request: Request<v1::JoinRequest>) -> Result<Response<v1::JoinReply>, Status> {
        self.serve(request.into_inner().request).await
    }

    async fn renew(&self, request: Request<v1::LateRenewal>) -> Result<Response<v1::JoinReply>, Status> {
        self.serve(request.into_inner().request).await
    }
}

impl Office {
    /// One that shows a certificate of this authority, and the authority's own along with it.
    pub(crate) async fn open(
        authority: &Arc<Authority>,
        trust: v1::Trust,
        script: impl IntoIterator<Item = Act>,
    ) -> Self {
        let (certificate, key) = authority.issue(COORDINATOR_NAME);
        let mut chain = crate::tls::certificates(certificate.as_bytes()).unwrap();
        chain.push(authority.der().into());
        let mut config =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
                .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (accept, accepted) = mpsc::channel(4);
        let (asked, cuts) = (Arc::default(), Arc::<Mutex<Vec<watch::Sender<Cut>>>>::default());
        let hold = Arc::clone(&cuts);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(stream) = acceptor.accept(stream).await else { continue };
                let (sender, cut) = watch::channel(Cut::Pass);
                hold.lock().unwrap().push(sender);
                let _ = accept.send(Ok::<_, std::io::Error>(cut::through(stream, cut))).await;
            }
        });
        let script = Mutex::new(script.into_iter().collect());
        let desk = Desk { authority: Arc::clone(authority), trust, script, asked: Arc::clone(&asked), cuts };
        let service = EnrolmentServer::new(desk);
        tokio::spawn(
            tonic::transport::Server::builder().add_service(service).serve_with_incoming(ReceiverStream::new(accepted)),
        );
        Self { address, asked }
    }

    /// How many requests came.
    pub(crate) fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}
