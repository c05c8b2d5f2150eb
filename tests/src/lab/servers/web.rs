//! The TLS web servers of the lab: a small HTTP/1.1 responder, run by the lab's own binary as a process each.

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::{Ground, START_MAX};
use crate::lab::certs::ServerFiles;
use crate::lab::process::{self, Process};

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
}

/// Starts a web server process and waits until it listens.
///
/// # Errors
/// It does not start.
pub async fn start(ground: &Ground, name: &str, listen: &[SocketAddrV4], files: &ServerFiles) -> Result<Process> {
    let mut command = process::command(ground.router(), &ground.lab_binary()?);
    command.arg("web").args(["--name", name]).arg("--cert").arg(&files.certificate).arg("--key").arg(&files.key);
    for address in listen {
        command.args(["--listen", &address.to_string()]);
    }
    let log = ground.log(&format!("web-{name}"));
    // A restarted server appends; only what this start says counts.
    let before = std::fs::metadata(&log).map(|m| m.len()).unwrap_or(0);
    let mut server = Process::start(&format!("web server {name}"), &log, command)?;
    server.until("listening", START_MAX, async || std::fs::metadata(&log).is_ok_and(|m| m.len() > before)).await?;
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
    let body = format!("{}\n", options.name);
    let response: Arc<[u8]> = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
    .into();
    let mut loops = tokio::task::JoinSet::new();
    for address in options.listen {
        let listener = TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))?;
        loops.spawn(accept(listener, acceptor.clone(), Arc::clone(&response)));
    }
    println!("listening");
    // The loops never end by themselves.
    while loops.join_next().await.is_some() {}
    Ok(())
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, response: Arc<[u8]>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (acceptor, response) = (acceptor.clone(), Arc::clone(&response));
                // A client that hangs or breaks off is its own trouble.
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(CONNECTION_MAX, answer(stream, acceptor, &response)).await;
                });
            }
            // Out of descriptors: wait instead of spinning.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn answer(stream: TcpStream, acceptor: TlsAcceptor, response: &[u8]) -> Result<()> {
    let mut stream = acceptor.accept(stream).await?;
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
