//! Silence on loopback: a listener whose backlog is full answers no SYN, like a path that drops.

use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};

use anyhow::{Context, Result};
use socket2::{Domain, Socket, Type};

/// A socket on 127.0.0.1 that lets nobody in and refuses nobody either.
#[derive(Debug)]
pub struct BlackHole {
    at: SocketAddrV4,
    // Held, never accepted from.
    _listener: Socket,
    _filler: TcpStream,
    // Swallows datagrams; an unbound port would refuse them.
    _datagrams: UdpSocket,
}

impl BlackHole {
    /// Opens it and fills its backlog.
    ///
    /// # Errors
    /// The system refuses a socket.
    pub fn open() -> Result<Self> {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        listener.bind(&SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into())?;
        // A backlog of 0 completes one connection; the filler is that one.
        listener.listen(0)?;
        let at = listener.local_addr()?.as_socket_ipv4().context("the listener has no IPv4 address")?;
        let filler = TcpStream::connect(at).context("filling the backlog")?;
        let datagrams = UdpSocket::bind(at).context("the black hole for datagrams")?;
        Ok(Self { at, _listener: listener, _filler: filler, _datagrams: datagrams })
    }

    /// Where it is.
    #[must_use]
    pub fn at(&self) -> SocketAddrV4 {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;
    use std::time::Duration;

    #[test]
    fn nobody_gets_in_and_nobody_is_refused() {
        let hole = BlackHole::open().unwrap();
        for _ in 0..3 {
            let error = TcpStream::connect_timeout(&hole.at().into(), Duration::from_millis(300)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
        }
    }
}
