//! The way packets take to one address, on demand: evidence for people, never for a verdict.
//!
//! As tracepath(8) does, without privilege: UDP packets with a rising time to live, and what routers say of
//! them from the error queue of the socket. The target is reached when it answers itself. A host whose
//! filter drops such packets looks as one that they do not come to: then the last hop before it is what
//! can be known. Ports are those of traceroute(8), and not the target's own: a service there would take
//! the packet and say nothing, and a router that quotes the ports alone could not say which packet it means.

mod mtu;
mod walk;
mod wire;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use parallax_decide::observation::{Outcome, Path};
use tokio::time::sleep_until;

use self::walk::{Step, Walk};
use self::wire::Wire;
use crate::clock::{Instant, now, since};
use crate::entropy;
use crate::measured::{Measured, PathParticulars, What};
use crate::site::Site;

/// Longest the whole search takes, whatever time there is.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// What is left of the time for the path's MTU when the walk takes all the rest.
const MTU_TIME: Duration = Duration::from_secs(3);

/// Pause between two packets.
const PACE: Duration = Duration::from_millis(50);

/// Finds the path to an address of a target that is tried on `port`, as far as it can within `time`.
pub async fn find(site: &Site, address: IpAddr, port: u16, time: Duration) -> Measured {
    let start = now();
    let time = time.min(DEADLINE);
    let mut kept = PathParticulars { port: wire::PORT, ..PathParticulars::default() };
    let outcome = match permitted(site, address, port) {
        Err(outcome) => outcome,
        Ok(()) => search(site, address, start + time, &mut kept).await,
    };
    let last_hop = kept.hops.iter().rev().find_map(|hop| hop.address);
    Measured { what: What::Path(Path { address, outcome, last_hop }, kept), duration: since(start) }
}

fn permitted(site: &Site, address: IpAddr, port: u16) -> Result<(), Outcome> {
    let permitted = site.policy.permits_path(address, port).and_then(|()| site.policy.take_connection(address));
    permitted.map_err(|denial| {
        tracing::debug!(%address, %denial, "its path was not looked for");
        denial.outcome()
    })?;
    site.dialer.way(address).outcome().map_or(Ok(()), Err)
}

async fn search(site: &Site, address: IpAddr, until: Instant, kept: &mut PathParticulars) -> Outcome {
    let own = |error: io::Error| {
        tracing::debug!(%address, %error, "its path was not found");
        // The routing table may have changed since it was asked.
        site.dialer.way(address).outcome().unwrap_or(Outcome::OwnTrouble)
    };
    // An IPv4 address in an IPv6 one goes out as IPv4.
    let target = address.to_canonical();
    // In a loopback lab there is none: its world has no routers.
    let wire = match (site.dialer.datagrams(SocketAddr::new(target, wire::PORT)), entropy::bytes()) {
        (Ok((socket, _)), Ok(token)) => Wire::new(socket, target, token),
        (Err(error), _) => return own(error),
        (_, Err(error)) => return own(io::Error::other(error)),
    };
    let mut walk = Walk::new(target);
    let walked = walk_along(&wire, &mut walk, until.checked_sub(MTU_TIME).unwrap_or(until)).await;
    kept.hops = walk.hops();
    if let Err(error) = walked {
        return own(error);
    }
    if let Some(ttl) = walk.last_answered() {
        kept.mtu = mtu::find(&site.dialer, target, ttl, until).await;
    }
    if walk.is_reached() { Outcome::PathReached } else { Outcome::PathLost }
}

async fn walk_along(wire: &Wire, walk: &mut Walk, until: Instant) -> io::Result<()> {
    let mut heard = Vec::new();
    let mut next_send = now();
    loop {
        wire.answers(&mut heard)?;
        let at = now();
        for (packet, answer) in heard.drain(..) {
            walk.heard(packet, answer, at);
        }
        let wake = match walk.step(at) {
            Step::Over => return Ok(()),
            _ if at >= until => return Ok(()),
            Step::Wait(time) => time,
            Step::Send(_) if at < next_send => next_send,
            Step::Send(packet) => {
                next_send = at + PACE;
                walk.sent(packet, at);
                wire.send(packet, &mut heard)?;
                continue;
            }
        };
        tokio::select! {
            ready = wire.readable() => ready?,
            () = sleep_until(wake.min(until)) => {}
        }
    }
}

#[cfg(test)]
mod tests;
