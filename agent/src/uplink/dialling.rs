//! Tries the addresses of a coordinator, the next one a moment after the last (RFC 8305, "happy
//! eyeballs"): a dead address costs that moment and not the whole deadline.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;
use tokio::time::{sleep_until, timeout};

use crate::clock::{Instant, now};
use crate::dial::{Dialer, Segments};

/// An address has this much time alone before the next one is tried too (RFC 8305, 5: 250 ms).
const HEAD_START: Duration = Duration::from_millis(250);

/// Longest wait for one address.
const TCP_MAX: Duration = Duration::from_secs(5);

/// TCP attempts to several addresses.
pub struct Dialling {
    waiting: VecDeque<SocketAddr>,
    running: FuturesUnordered<BoxFuture<'static, (SocketAddr, io::Result<TcpStream>)>>,
    next_at: Instant,
    /// Addresses behind a path that loses large packets.
    narrow: BTreeSet<SocketAddr>,
}

impl Dialling {
    /// Will try these, in this order; those among `narrow` with small segments.
    #[must_use]
    pub fn new(addresses: Vec<SocketAddr>, narrow: BTreeSet<SocketAddr>) -> Self {
        Self { waiting: addresses.into(), running: FuturesUnordered::new(), next_at: now(), narrow }
    }

    /// The next address whose attempt ended; `None` when all have. Those that are still on their
    /// way go on when it is called again.
    pub async fn next(&mut self) -> Option<(SocketAddr, io::Result<TcpStream>)> {
        loop {
            if self.running.is_empty() {
                self.start();
            }
            tokio::select! {
                ended = self.running.next() => {
                    let (address, outcome) = ended?;
                    if outcome.is_err() {
                        self.start();
                    }
                    return Some((address, outcome));
                }
                () = sleep_until(self.next_at), if !self.waiting.is_empty() => self.start(),
            }
        }
    }

    fn start(&mut self) {
        self.next_at = now() + HEAD_START;
        if let Some(address) = self.waiting.pop_front() {
            let segments = if self.narrow.contains(&address) { Segments::Small } else { Segments::Usual };
            self.running.push(Box::pin(async move { (address, tcp(address, segments).await) }));
        }
    }
}

/// One TCP connection, within its deadline.
///
/// # Errors
/// What the kernel said, or that time was up.
pub async fn tcp(address: SocketAddr, segments: Segments) -> io::Result<TcpStream> {
    let tried = timeout(TCP_MAX, Dialer::direct().tcp_in(segments, address)).await;
    tried.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::testing::{refused_port, silent_port};

    #[tokio::test]
    async fn b75_a_first_address_that_is_dead_costs_a_moment_and_not_the_deadline() {
        let (silent, _held) = silent_port().await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let alive = listener.local_addr().unwrap();
        let mut dialling = Dialling::new(vec![silent, refused_port(), alive], BTreeSet::new());
        let mut ended = Vec::new();
        while let Some((address, outcome)) = dialling.next().await {
            ended.push((address, outcome.is_ok()));
            if ended.last() == Some(&(alive, true)) {
                break;
            }
        }
        assert!(!ended.iter().any(|(address, _)| *address == silent), "the silent one is still waited for: {ended:?}");
        assert_eq!(ended.len(), 2);
    }

    #[tokio::test]
    async fn when_all_are_dead_each_is_told_and_then_no_more() {
        let mut dialling = Dialling::new(vec![refused_port(), refused_port()], BTreeSet::new());
        for _ in 0..2 {
            assert_eq!(dialling.next().await.unwrap().1.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        }
        assert!(dialling.next().await.is_none());
        assert!(Dialling::new(Vec::new(), BTreeSet::new()).next().await.is_none());
    }
}
