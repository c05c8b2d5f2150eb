//! What nobody may open: neither the coordinator, nor an answer, nor the owner's list of networks.
//!
//! What answers there is this machine, its cloud's metadata service, or everybody at once. The owner's own
//! resolver and proxy are contacted without asking here: they are named by him or by the system, and by nobody else.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use parallax_decide::address::{embedded_v4, special_purpose};

/// The blocks, in the words of [`special_purpose`], which decodes the IPv6 forms that carry an IPv4 address.
pub(super) const BLOCKS: [&str; 5] = ["loopback", "link-local", "multicast", "unspecified", "this network, 0.0.0.0/8"];

/// Metadata services outside the link-local blocks: Alibaba's in carrier NAT's, AWS's in unique local's.
const METADATA: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)), IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254))];

/// The IPv4 address that an IPv6 one carries, if it does: the same machine under another form.
pub(super) fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => embedded_v4(v6).map_or(address, IpAddr::V4),
    }
}

/// Which of these blocks, or that of the metadata services, an address is in.
pub(super) fn block_of(address: IpAddr, blocks: &[&str]) -> Option<&'static str> {
    match METADATA.contains(&plain(address)) {
        true => Some("metadata service"),
        false => special_purpose(address).filter(|block| blocks.contains(block)),
    }
}

/// A network that the owner cannot open, because nothing in it is ever contacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "allow.private names {network}, where nothing is ever contacted ({block}): neither the coordinator nor an answer may \
     send the agent there; take it out. A resolver on this machine itself is named under live_resolver"
)]
pub struct Shut {
    network: IpNet,
    block: &'static str,
}

/// Whether naming a network under `allow.private` opens anything.
///
/// # Errors
/// It does not: the whole of it is among what nobody may open.
pub fn openable(network: IpNet) -> Result<(), Shut> {
    let blocks = (block_of(network.network(), &BLOCKS), block_of(network.broadcast(), &BLOCKS));
    let (Some(block), Some(last)) = blocks else { return Ok(()) };
    // Every block is one piece in each form, so both ends in one is all of it; or there is nothing but the two ends.
    match block == last || network.max_prefix_len() - network.prefix_len() <= 1 {
        true => Err(Shut { network, block }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_nothing_but_what_is_never_contacted_is_refused_in_every_form() {
        for shut in [
            "127.0.0.0/8",
            "127.0.0.53/32",
            "127.0.0.1/8",
            "::1/128",
            "::/127",
            "::ffff:127.0.0.0/104",
            "64:ff9b::7f00:0/104",
            "2002:7f00::/24",
            "2001:0:1:2:3:4:80ff:fffe/128",
            "0.0.0.0/8",
            "169.254.0.0/16",
            "fe80::/10",
            "fe80::/64",
            "224.0.0.0/4",
            "ff00::/8",
            "100.100.100.200/32",
            "::ffff:100.100.100.200/128",
            "fd00:ec2::254/128",
        ] {
            let refused = openable(shut.parse().unwrap()).unwrap_err().to_string();
            assert!(refused.contains("take it out") && refused.contains("live_resolver"), "{shut}: {refused}");
        }
    }

    #[test]
    fn a_network_that_opens_anything_is_taken() {
        for open in [
            "0.0.0.0/0",
            "::/0",
            "126.0.0.0/7",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "100.100.100.200/31",
            "198.18.0.0/15",
            "2001::/32",
            "2002::/16",
            "64:ff9b::/96",
            "::/96",
            "fc00::/7",
            "fd00:ec2::/64",
        ] {
            assert_eq!(openable(open.parse().unwrap()), Ok(()), "{open}");
        }
    }
}
