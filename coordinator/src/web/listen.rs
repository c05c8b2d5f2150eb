//! Opens the socket of page and API, and serves on it.

use std::fmt;
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::PathBuf;

use axum::{Extension, Router};
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;

use super::reload::BySocket;
use crate::config::WebListen;
use crate::error::{Exit, Failure};

/// An open socket.
#[derive(Debug)]
pub enum WebListener {
    /// TCP.
    Tcp(TcpListener),
    /// Unix, with its path, which is removed in the end.
    Unix(UnixListener, PathBuf),
}

impl WebListener {
    /// Opens it. A Unix socket left behind by a killed process is replaced; one that answers is not.
    ///
    /// # Errors
    /// When the address is taken or not allowed.
    pub async fn open(place: &WebListen) -> Result<Self, Failure> {
        let failed = |why: std::io::Error| {
            Failure::new(Exit::Failed, format!("cannot listen on {place}"))
                .why(why)
                .fix("choose another listen.web in the configuration, or stop what uses it")
        };
        match place {
            WebListen::Tcp(address) => TcpListener::bind(address).await.map(Self::Tcp).map_err(failed),
            WebListen::Unix(path) => {
                if tokio::net::UnixStream::connect(path).await.is_ok() {
                    return Err(failed(std::io::ErrorKind::AddrInUse.into()));
                }
                if fs::symlink_metadata(path).is_ok_and(|there| there.file_type().is_socket()) {
                    fs::remove_file(path).map_err(failed)?;
                }
                let listener = UnixListener::bind(path).map_err(failed)?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o660)).map_err(failed)?;
                Ok(Self::Unix(listener, path.clone()))
            }
        }
    }

    /// Serves until `shutdown`, then finishes the answers under way.
    ///
    /// # Errors
    /// When the server itself fails.
    pub async fn serve(self, router: Router, shutdown: CancellationToken) -> anyhow::Result<()> {
        match self {
            Self::Tcp(listener) => {
                // With the peer's address, for what only somebody on this machine may ask.
                let router = router.into_make_service_with_connect_info::<std::net::SocketAddr>();
                axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await?;
            }
            Self::Unix(listener, path) => {
                let router = router.layer(Extension(BySocket));
                axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await?;
                // Somebody else may have removed it.
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }
}

impl fmt::Display for WebListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(address) => write!(f, "{address}"),
                Err(_) => f.write_str("unknown"),
            },
            Self::Unix(_, path) => write!(f, "unix:{}", path.display()),
        }
    }
}
