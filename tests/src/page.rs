//! The page at the host's 127.0.0.1: the coordinator listens on a path socket inside the world, and every connection
//! to the host's port is carried to it.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::{TcpListener, UnixStream};

/// The coordinator's web socket, inside the run's directory.
pub const SOCKET: &str = "web.sock";

/// The same, of the first coordinator or the second.
#[must_use]
pub fn socket(number: usize) -> String {
    if number == 0 { SOCKET.to_owned() } else { format!("web-{}.sock", number + 1) }
}

/// A bound port of the host.
#[derive(Debug)]
pub struct Page {
    listener: TcpListener,
    /// The port, perhaps not the one asked for.
    pub port: u16,
    /// Whether the port asked for was taken.
    pub moved: bool,
}

impl Page {
    /// Binds the port on 127.0.0.1, or any free one when it is taken.
    ///
    /// # Errors
    /// No port can be bound.
    pub async fn bind(port: u16) -> Result<Self> {
        let (listener, moved) = match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            Ok(listener) => (listener, false),
            Err(error) if matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied) => {
                let any = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
                (any.context("binding any port on 127.0.0.1 for the page")?, true)
            }
            Err(error) => return Err(error).with_context(|| format!("binding 127.0.0.1:{port} for the page")),
        };
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port, moved })
    }

    /// Carries connections until aborted.
    pub async fn carry(self, socket: PathBuf) {
        loop {
            let Ok((mut outside, _)) = self.listener.accept().await else {
                // Out of descriptors: wait instead of spinning.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let socket = socket.clone();
            tokio::spawn(async move {
                // Before the coordinator is up the browser sees a closed connection, as it would without us.
                if let Ok(mut inside) = UnixStream::connect(&socket).await {
                    let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                }
            });
        }
    }
}
