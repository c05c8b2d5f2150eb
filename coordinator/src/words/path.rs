//! Which way packets take, as a sentence.

use std::net::IpAddr;

use parallax_decide::observation::Outcome;

use super::outcome;

/// What was seen on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// The last hop that answered.
    pub last: Option<LastHop>,
    /// How many hops were tried.
    pub tried: u64,
    /// Smallest MTU that is known, in bytes.
    pub mtu: Option<u64>,
}

/// The last hop that answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastHop {
    /// Who it is.
    pub address: IpAddr,
    /// How many routers away.
    pub ttl: u64,
    /// How long the answer took, in microseconds.
    pub rtt_us: Option<u64>,
}

/// What was found on the way from a vantage to an address.
#[must_use]
pub fn sentence(vantage: &str, to: IpAddr, ended: Outcome, seen: Seen) -> String {
    let Seen { last, tried, mtu } = seen;
    let mut text = match (ended, last) {
        (Outcome::PathReached, Some(hop)) => {
            format!("packets from {vantage} reach {to}, {} away", super::count(short(hop.ttl), "hop"))
        }
        (Outcome::PathReached, None) => format!("packets from {vantage} reach {to}"),
        (Outcome::PathLost, Some(hop)) => {
            let took = hop.rtt_us.map(|us| format!(" in {}", milliseconds(us))).unwrap_or_default();
            format!(
                "on the way from {vantage} to {to} the last hop that answered is {} (hop {} of {tried} tried{took}): \
                 packets are lost behind it, or what is behind it keeps silent",
                hop.address, hop.ttl
            )
        }
        (Outcome::PathLost, None) => format!(
            "on the way from {vantage} to {to} no hop answered: packets are lost at the first one, or every router keeps \
             silent"
        ),
        (ended, _) => format!("the path from {vantage} to {to}: {}", outcome::phrase(ended)),
    };
    if let Some(mtu) = mtu {
        text.push_str(&format!("; packets of at most {mtu} bytes fit"));
    }
    text
}

fn short(ttl: u64) -> usize {
    usize::try_from(ttl).unwrap_or(usize::MAX)
}

fn milliseconds(us: u64) -> String {
    if us < 10_000 { format!("{}.{} ms", us / 1000, us % 1000 / 100) } else { format!("{} ms", us / 1000) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_hop_that_answered_is_named() {
        let to: IpAddr = "8.6.112.0".parse().unwrap();
        let last = Some(LastHop { address: "192.0.2.9".parse().unwrap(), ttl: 2, rtt_us: Some(4_250) });
        let none = Seen { tried: 2, ..Seen::default() };
        let said = sentence("branch-kazan", to, Outcome::PathLost, Seen { last, tried: 4, mtu: Some(1400) });
        assert!(said.contains("the last hop that answered is 192.0.2.9 (hop 2 of 4 tried in 4.2 ms)"), "{said}");
        assert!(said.ends_with("; packets of at most 1400 bytes fit"), "{said}");
        assert!(sentence("x", to, Outcome::PathLost, none).contains("no hop answered"));
        let reached = sentence("x", to, Outcome::PathReached, Seen { last, ..none });
        assert_eq!(reached, "packets from x reach 8.6.112.0, 2 hops away");
        let own = sentence("x", to, Outcome::RateLimited, none);
        assert_eq!(own, "the path from x to 8.6.112.0: not measured: the owner's limits were used up");
    }
}
