//! Where probes come from: the source address and the interface that the assignment asks for.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::socket::{SockaddrStorage, bind, setsockopt, sockopt};
use parallax_decide::observation::{Family, Outcome};

use super::told::Told;
use crate::assignment::Source;

/// A source, and whether its being wrong was said.
#[derive(Debug, Default)]
pub(super) struct Origin {
    source: Source,
    complained: AtomicBool,
}

impl Origin {
    pub(super) fn new(source: Source) -> Self {
        Self { source, complained: AtomicBool::new(false) }
    }

    pub(super) fn is(&self, source: &Source) -> bool {
        self.source == *source
    }

    /// Makes a fresh socket come from here. The port is chosen when it is connected, so that a port can
    /// serve connections to many addresses (ip(7), `IP_BIND_ADDRESS_NO_PORT`).
    ///
    /// # Errors
    /// [`Outcome::OwnTrouble`] when this machine has no such address or interface.
    pub(super) fn apply(&self, socket: &impl AsFd, family: Family) -> io::Result<()> {
        if let Some(interface) = &self.source.interface {
            // Without privilege since Linux 5.7, for a socket that is not bound to an interface yet.
            setsockopt(socket, sockopt::BindToDevice, &OsString::from(interface)).map_err(|error| {
                self.wrong(
                    error,
                    format!("probes cannot go out through the interface '{interface}'"),
                    "name an interface of this machine",
                )
            })?;
        }
        let address = self.source.addresses.iter().find(|address| Family::of(**address) == family);
        if let Some(address) = address {
            setsockopt(socket, sockopt::IpBindAddressNoPort, &true)?;
            let bound = bind(socket.as_fd().as_raw_fd(), &socket_address(*address));
            bound.map_err(|error| {
                self.wrong(error, format!("probes cannot come from {address}"), "give an address of this machine")
            })?;
        }
        Ok(())
    }

    fn wrong(&self, error: Errno, what: String, remedy: &str) -> io::Error {
        if !self.complained.swap(true, Ordering::Relaxed) {
            tracing::error!(
                %error,
                "{what}; nothing is measured until this is put right: {remedy} as this vantage's source in the \
                 coordinator's configuration, or give none"
            );
        }
        Told::new(Outcome::OwnTrouble, what, error).into()
    }
}

fn socket_address(address: IpAddr) -> SockaddrStorage {
    SocketAddr::new(address, 0).into()
}
