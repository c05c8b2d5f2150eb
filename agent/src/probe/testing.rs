//! Peers for the tests: listeners that refuse, stay silent, or speak TLS.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::Limits;
use crate::tls::Trust;

pub(crate) mod doh;
pub(crate) mod dot;
pub(crate) mod rig1;

pub(crate) fn limits() -> Limits {
    Limits {
        attempt_at: [0, 250, 500, 750].map(Duration::from_millis).to_vec(),
        connect: Duration::from_secs(2),
        tls: Duration::from_secs(2),
        resolve: Duration::from_secs(2),
        http: Duration::from_secs(3),
        udp_hold: Duration::ZERO,
    }
}

/// A port where nobody listens, and nobody will: it stays bound until the process ends.
pub(crate) fn refused_port() -> SocketAddr {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    std::mem::forget(socket);
    address
}

/// A port that leaves every SYN unanswered: its backlog of zero is filled with one connection.
pub(crate) async fn silent_port() -> (SocketAddr, (TcpListener, TcpStream)) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let to = listener.local_addr().unwrap();
    let filler = TcpStream::connect(to).await.unwrap();
    (to, (listener, filler))
}

/// A certificate authority of a test.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        // Another name for each, so that an unknown authority fails as unknown and not by its signature.
        let key = KeyPair::generate().unwrap();
        let name = format!("{:x?}", &key.public_key_raw()[1..9]);
        Self::of(&name, key)
    }

    /// One with this common name.
    pub(crate) fn named(name: &str) -> Self {
        Self::of(name, KeyPair::generate().unwrap())
    }

    fn of(name: &str, key: KeyPair) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        Self { issuer: CertifiedIssuer::self_signed(params, key).unwrap() }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    pub(crate) fn der(&self) -> Vec<u8> {
        self.issuer.der().to_vec()
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        roots
    }

    pub(crate) fn trust(&self) -> Trust {
        Trust::with_roots(self.roots()).unwrap()
    }

    /// Certificate and key in PEM.
    pub(crate) fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = params(name).signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// As [`Self::issue`], for certain years.
    pub(crate) fn issue_for(&self, name: &str, years: std::ops::Range<i32>) -> (String, String) {
        let mut params = params(name);
        params.not_before = date_time_ymd(years.start, 1, 1);
        params.not_after = date_time_ymd(years.end, 1, 1);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// Answers a request: a certificate for a vantage that holds from now on for so many seconds.
    pub(crate) fn certify(&self, request: &[u8], vantage: &str, life_s: i64) -> Vec<u8> {
        let now_s = i64::try_from(crate::clock::unix_ms() / 1000).unwrap();
        self.certify_between(request, vantage, now_s..now_s + life_s)
    }

    /// As [`Self::certify`], between two moments in seconds since 1970.
    pub(crate) fn certify_between(&self, request: &[u8], vantage: &str, seconds: std::ops::Range<i64>) -> Vec<u8> {
        let mut request = rcgen::CertificateSigningRequestParams::from_der(&request.to_vec().into()).unwrap();
        let at = |unix_s| time::OffsetDateTime::from_unix_timestamp(unix_s).unwrap();
        request.params.distinguished_name = rcgen::DistinguishedName::new();
        request.params.distinguished_name.push(rcgen::DnType::CommonName, vantage);
        (request.params.not_before, request.params.not_after) = (at(seconds.start), at(seconds.end));
        request.signed_by(&self.issuer).unwrap().der().to_vec()
    }

    pub(crate) fn server(&self, name: &str) -> ServerConfig {
        self.server_of(params(name))
    }

    /// A server whose certificate does not fit into two packets.
    pub(crate) fn wordy_server(&self, name: &str) -> ServerConfig {
        let names = (0..150).map(|number| format!("alternative-{number}.{name}"));
        self.server_of(
            CertificateParams::new(std::iter::once(name.to_owned()).chain(names).collect::<Vec<_>>()).unwrap(),
        )
    }

    pub(crate) fn expired_server(&self, name: &str) -> ServerConfig {
        let mut params = params(name);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        self.server_of(params)
    }

    pub(crate) fn future_server(&self, name: &str) -> ServerConfig {
        let mut params = params(name);
        params.not_before = date_time_ymd(2120, 1, 1);
        params.not_after = date_time_ymd(2121, 1, 1);
        self.server_of(params)
    }

    /// A server with a certificate that is for clients alone.
    pub(crate) fn client_only_server(&self, name: &str) -> ServerConfig {
        let mut params = params(name);
        params.extended_key_usages.push(rcgen::ExtendedKeyUsagePurpose::ClientAuth);
        self.server_of(params)
    }

    fn server_of(&self, params: CertificateParams) -> ServerConfig {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap()
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params
}

/// Finishes TLS handshakes and holds the streams open.
pub(crate) async fn serve(config: ServerConfig) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                held.push(stream);
            }
        }
    });
    to
}

/// A reply with one A record to a question.
pub(crate) fn answer(query: &[u8], address: &str) -> Vec<u8> {
    answer_with(query, &[address.parse().unwrap()])
}

/// A reply with these addresses to a question, those of the family asked for.
pub(crate) fn answer_with(query: &[u8], addresses: &[IpAddr]) -> Vec<u8> {
    use domain::base::iana::{Rcode, Rtype};
    use domain::base::{Message, MessageBuilder, Ttl};
    use domain::rdata::{A, Aaaa};

    let query = Message::from_octets(query).unwrap();
    let question = query.sole_question().unwrap();
    let mut answer = MessageBuilder::new_vec().start_answer(&query, Rcode::NOERROR).unwrap();
    for address in addresses {
        let name = question.qname().to_owned();
        match (address, question.qtype()) {
            (IpAddr::V4(v4), Rtype::A) => answer.push((name, Ttl::from_secs(60), A::new(*v4))).unwrap(),
            (IpAddr::V6(v6), Rtype::AAAA) => answer.push((name, Ttl::from_secs(60), Aaaa::new(*v6))).unwrap(),
            (IpAddr::V4(_) | IpAddr::V6(_), _) => {}
        }
    }
    answer.finish()
}

/// A name server on the loopback interface that answers every question with these addresses.
pub(crate) async fn name_server(addresses: &[&str]) -> SocketAddr {
    let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let at = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            socket.send_to(&answer_with(&buffer[..length], &addresses), from).await.unwrap();
        }
    });
    at
}

/// Finishes TLS handshakes and hands each stream to `talk`, one after another; then closes it.
pub(crate) async fn accept<F>(
    config: ServerConfig,
    talk: impl Fn(TlsStream<TcpStream>) -> F + Send + 'static,
) -> SocketAddr
where
    F: Future<Output = ()> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                talk(stream).await;
            }
        }
    });
    to
}
