//! Looking at the world from one place: ask a resolver, connect to an address. Runs as a process of its own, since a
//! process sees one network namespace.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use domain::base::iana::Rtype;
use domain::base::{Message, MessageBuilder, Name};
use domain::rdata::A;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpStream, UdpSocket};

use super::process;

/// How long a question or a connection may take before it counts as silence.
const SILENT_AFTER: Duration = Duration::from_millis(1500);

/// What was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// The resolver answered with these addresses, sorted.
    Answer(Vec<Ipv4Addr>),
    /// TCP, and TLS where a name was given, completed.
    Connected,
    /// Nothing came back.
    Silent,
    /// Something else went wrong.
    Failed(String),
}

/// What to look at: `resolver/name` questions and `address[/tls-name]` connections.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct LookOptions {
    /// A question, `ADDR:PORT/NAME`.
    #[arg(long = "ask")]
    pub ask: Vec<String>,
    /// A connection, `ADDR:PORT` or `ADDR:PORT/TLS-NAME`.
    #[arg(long = "connect")]
    pub connect: Vec<String>,
    /// Certificate authority for TLS.
    #[arg(long)]
    pub ca: Option<PathBuf>,
}

/// Looks from inside a namespace (or from here) by running the lab's own binary there.
///
/// # Errors
/// The process cannot be run or says something else than a list of [`Seen`].
pub async fn look(namespace: Option<&str>, lab: &Path, options: &LookOptions) -> Result<Vec<Seen>> {
    let mut arguments = vec!["look".to_owned()];
    arguments.extend(options.ask.iter().flat_map(|a| ["--ask".to_owned(), a.clone()]));
    arguments.extend(options.connect.iter().flat_map(|c| ["--connect".to_owned(), c.clone()]));
    if let Some(ca) = &options.ca {
        arguments.extend(["--ca".to_owned(), ca.to_string_lossy().into_owned()]);
    }
    let said = process::run(namespace, lab, &arguments).await?;
    serde_json::from_str(&said).with_context(|| format!("reading what the look said: {said}"))
}

/// One question from a place; empty when there is no answer.
///
/// # Errors
/// The process cannot be run.
pub async fn resolve(namespace: Option<&str>, lab: &Path, server: SocketAddrV4, name: &str) -> Result<Vec<Ipv4Addr>> {
    let options = LookOptions { ask: vec![format!("{server}/{name}")], ..LookOptions::default() };
    match look(namespace, lab, &options).await?.into_iter().next() {
        Some(Seen::Answer(addresses)) => Ok(addresses),
        Some(Seen::Connected | Seen::Silent | Seen::Failed(_)) | None => Ok(Vec::new()),
    }
}

/// The looking process: does everything at once and prints the list of what it saw, in order.
///
/// # Errors
/// An argument makes no sense.
pub async fn here(options: LookOptions) -> Result<Vec<Seen>> {
    let tls = options.ca.as_deref().map(trust).transpose()?;
    let mut looks: Vec<tokio::task::JoinHandle<Seen>> = Vec::new();
    for question in &options.ask {
        let (server, name) = question.split_once('/').with_context(|| format!("`{question}` is not ADDR:PORT/NAME"))?;
        let (server, name): (SocketAddrV4, String) = (server.parse()?, name.to_owned());
        looks.push(tokio::spawn(async move { timed(ask(server, &name)).await }));
    }
    for target in &options.connect {
        let (address, name) = target.split_once('/').map_or((target.as_str(), None), |(a, n)| (a, Some(n.to_owned())));
        let (address, tls): (SocketAddrV4, _) = (address.parse()?, tls.clone());
        looks.push(tokio::spawn(async move { timed(connect(address, name, tls)).await }));
    }
    let mut seen = Vec::new();
    for look in looks {
        seen.push(look.await?);
    }
    Ok(seen)
}

async fn timed(look: impl Future<Output = Result<Seen>>) -> Seen {
    match tokio::time::timeout(SILENT_AFTER, look).await {
        Ok(Ok(seen)) => seen,
        Ok(Err(error)) => Seen::Failed(format!("{error:#}")),
        Err(_) => Seen::Silent,
    }
}

async fn ask(server: SocketAddrV4, name: &str) -> Result<Seen> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    socket.connect(server).await?;
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_rd(true);
    let mut question = builder.question();
    question.push((Name::<Vec<u8>>::from_str(name)?, Rtype::A))?;
    socket.send(&question.into_message().into_octets()).await?;
    let mut reply = [0_u8; 1232];
    let length = socket.recv(&mut reply).await?;
    let message = Message::from_octets(&reply[..length]).map_err(|_| anyhow!("short reply"))?;
    let rcode = message.header().rcode();
    if rcode.to_int() != 0 {
        return Ok(Seen::Failed(rcode.to_string()));
    }
    let mut addresses: Vec<Ipv4Addr> =
        message.answer()?.limit_to::<A>().map(|r| r.map(|r| r.data().addr())).collect::<Result<_, _>>()?;
    addresses.sort();
    Ok(Seen::Answer(addresses))
}

async fn connect(address: SocketAddrV4, name: Option<String>, tls: Option<Arc<rustls::ClientConfig>>) -> Result<Seen> {
    let stream = TcpStream::connect(address).await?;
    if let Some(name) = name {
        let tls = tls.context("TLS was asked for without --ca")?;
        tokio_rustls::TlsConnector::from(tls).connect(ServerName::try_from(name)?, stream).await?;
    }
    Ok(Seen::Connected)
}

fn trust(ca: &Path) -> Result<Arc<rustls::ClientConfig>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).with_context(|| format!("reading {}", ca.display()))?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
