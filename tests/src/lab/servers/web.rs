//! The TLS web servers of the lab: a small HTTP/1.1 responder, run by the lab's own binary as a process each.

use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::{Ground, START_MAX};
use crate::lab::certs::ServerFiles;
use crate::lab::process::{self, Process};
use crate::lab::programs;

/// A connection that has not finished by then is closed.
const CONNECTION_MAX: Duration = Duration::from_secs(10);
/// Longest request head that is read.
const REQUEST_BYTES_MAX: usize = 8 * 1024;

/// What one web server process serves.
#[derive(Debug, Clone, clap::Args)]
pub struct WebOptions {
    /// Addresses to listen on.
    #[arg(long = "listen", required = true)]
    pub listen: Vec<SocketAddrV4>,
    /// Certificate chain, PEM.
    #[arg(long)]
    pub cert: PathBuf,
    /// Private key, PEM.
    #[arg(long)]
    pub key: PathBuf,
    /// What it says it is.
    #[arg(long, default_value = "lab")]
    pub name: String,
    /// What it does to whoever connects.
    #[arg(long, value_enum, default_value = "serve")]
    pub manner: Manner,
}

/// What a web server does to whoever connects. Some of them are faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Manner {
    /// Completes TLS and answers status 200.
    Serve,
    /// Accepts, and says nothing in TLS.
    HangInTls,
    /// Completes TLS, and answers nothing.
    Mute,
    /// Completes TLS, and sheds load: status 503 with Retry-After.
    Shed,
    /// Plain HTTP, status 204: nobody is in between.
    NoContent,
    /// Plain HTTP, and sends everybody to a login page.
    Portal,
}

impl Manner {
    /// The head and body it answers.
    fn response(self, name: &str) -> String {
        let (status, more) = match self {
            Self::Serve | Self::HangInTls | Self::Mute => ("200 OK", "Content-Type: text/plain\r\n"),
            Self::Shed => ("503 Service Unavailable", "Retry-After: 10\r\n"),
            Self::NoContent => return "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n".to_owned(),
            Self::Portal => ("302 Found", "Location: http://login.invalid/\r\n"),
        };
        let length = name.len() + 1;
        format!("HTTP/1.1 {status}\r\n{more}Content-Length: {length}\r\nConnection: close\r\n\r\n{name}\n")
    }
}

/// Starts a web server process and waits until it listens.
///
/// # Errors
/// It does not start.
pub async fn start(ground: &Ground, name: &str, listen: &[SocketAddrV4], files: &ServerFiles) -> Result<Process> {
    start_at(ground.router(), &ground.log(&format!("web-{name}")), name, listen, files, Manner::Serve).await
}

/// Starts one in a namespace, with its log in a file and its own manner.
///
/// # Errors
/// It does not start.
pub async fn start_at(
    namespace: Option<&str>,
    log: &Path,
    name: &str,
    listen: &[SocketAddrV4],
    files: &ServerFiles,
    manner: Manner,
) -> Result<Process> {
    let mut command = process::command(namespace, &programs::ours("parallax-lab")?);
    command.arg("web").args(["--name", name]).arg("--cert").arg(&files.certificate).arg("--key").arg(&files.key);
    let manner = manner.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    command.args(["--manner", &manner]);
    for address in listen {
        command.args(["--listen", &address.to_string()]);
    }
    // A restarted server appends; only what this start says counts.
    let before = std::fs::metadata(log).map(|m| m.len()).unwrap_or(0);
    let mut server = Process::start(&format!("web server {name}"), log, command)?;
    server.until("listening", START_MAX, async || std::fs::metadata(log).is_ok_and(|m| m.len() > before)).await?;
    Ok(server)
}

/// Serves until killed. Prints one line when all addresses are bound.
///
/// # Errors
/// The certificate is unreadable or an address cannot be bound.
pub async fn serve(options: WebOptions) -> Result<()> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&options.cert)
        .and_then(Iterator::collect)
        .with_context(|| format!("reading {}", options.cert.display()))?;
    let key =
        PrivateKeyDer::from_pem_file(&options.key).with_context(|| format!("reading {}", options.key.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let response: Arc<[u8]> = options.manner.response(&options.name).into_bytes().into();
    let mut loops = tokio::task::JoinSet::new();
    for address in options.listen {
        let listener = TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))?;
        loops.spawn(accept(listener, acceptor.clone(), options.manner, Arc::clone(&response)));
    }
    println!("listening");
    // The loops never end by themselves.
    while loops.join_next().await.is_some() {}
    Ok(())
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, manner: Manner, response: Arc<[u8]>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (acceptor, response) = (acceptor.clone(), Arc::clone(&response));
                // A client that hangs or breaks off is its own trouble.
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(CONNECTION_MAX, treat(stream, acceptor, manner, &response)).await;
                });
            }
            // Out of descriptors: wait instead of spinning.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn treat(stream: TcpStream, acceptor: TlsAcceptor, manner: Manner, response: &[u8]) -> Result<()> {
    match manner {
        Manner::Serve | Manner::Shed => answer(acceptor.accept(stream).await?, response).await,
        Manner::NoContent | Manner::Portal => answer(stream, response).await,
        Manner::HangInTls => swallow(stream).await,
        Manner::Mute => swallow(acceptor.accept(stream).await?).await,
    }
}

/// Takes whatever comes until the other side gives up.
async fn swallow(mut stream: impl AsyncRead + Unpin) -> Result<()> {
    let mut buffer = vec![0_u8; REQUEST_BYTES_MAX];
    while stream.read(&mut buffer).await? > 0 {}
    Ok(())
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, response: &[u8]) -> Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|w| w == b"\r\n\r\n") {
        if head.len() > REQUEST_BYTES_MAX {
            bail!("request head too long");
        }
        if stream.read_buf(&mut head).await? == 0 {
            break;
        }
    }
    stream.write_all(response).await?;
    stream.shutdown().await?;
    Ok(())
}
