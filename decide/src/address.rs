//! Which addresses are special-purpose and therefore never contacted nor served.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The IPv4 address inside an IPv6 one, for the forms that carry one: IPv4-mapped (RFC 4291),
/// the NAT64 well-known prefix (RFC 6052), 6to4 (RFC 3056) and Teredo (RFC 4380).
#[must_use]
pub fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = address.segments();
    let v4 = |hi: u16, lo: u16| {
        let ([a, b], [c, d]) = (hi.to_be_bytes(), lo.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    if let Some(mapped) = address.to_ipv4_mapped() {
        return Some(mapped);
    }
    match s {
        [0x64, 0xff9b, 0, 0, 0, 0, hi, lo] => Some(v4(hi, lo)),
        [0x2002, hi, lo, ..] => Some(v4(hi, lo)),
        [0x2001, 0, _, _, _, _, hi, lo] => Some(v4(!hi, !lo)),
        _ => None,
    }
}

/// The block an address belongs to when it is special-purpose (IANA registries of RFC 6890), after
/// decoding embedded IPv4; `None` for global unicast.
#[must_use]
pub fn special_purpose(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => special_v4(v4),
        IpAddr::V6(v6) => match embedded_v4(v6) {
            Some(v4) => special_v4(v4),
            None => special_v6(v6),
        },
    }
}

fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    match address.octets() {
        [0, ..] => Some("this network, 0.0.0.0/8"),
        [10, ..] | [192, 168, ..] => Some("private, RFC 1918"),
        [172, b, ..] if (16..32).contains(&b) => Some("private, RFC 1918"),
        [100, b, ..] if (64..128).contains(&b) => Some("carrier NAT, 100.64.0.0/10"),
        [127, ..] => Some("loopback"),
        [169, 254, ..] => Some("link-local"),
        [192, 0, 0, _] => Some("protocol assignments, 192.0.0.0/24"),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Some("documentation"),
        [192, 88, 99, _] => Some("6to4 relay, 192.88.99.0/24"),
        [198, 18 | 19, ..] => Some("benchmarking, 198.18.0.0/15"),
        [224..=239, ..] => Some("multicast"),
        [240..=255, ..] => Some("reserved, 240.0.0.0/4"),
        _ => None,
    }
}

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    let s = address.segments();
    if address.is_unspecified() {
        return Some("unspecified");
    }
    if address.is_loopback() {
        return Some("loopback");
    }
    match s {
        [0xff00..=0xffff, ..] => Some("multicast"),
        [0xfe80..=0xfebf, ..] => Some("link-local"),
        [0xfc00..=0xfdff, ..] => Some("unique local"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0x0fff, ..] => Some("documentation"),
        [0x100, 0, 0, 0, ..] => Some("discard only, 100::/64"),
        [0x2001, 0..=0x01ff, ..] => Some("protocol assignments, 2001::/23"),
        [0x2000..=0x3fff, ..] => None,
        _ => Some("outside global unicast, 2000::/3"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_canaries_of_the_field_are_ordinary_addresses() {
        for text in ["8.6.112.0", "8.47.69.0", "8.6.112.5", "104.26.4.10", "172.66.40.1", "2606:4700::1111"] {
            assert_eq!(special_purpose(text.parse().unwrap()), None, "{text}");
        }
    }

    #[test]
    fn special_addresses_are_found_in_every_form() {
        for text in [
            "0.0.0.0",
            "10.0.0.1",
            "172.31.255.255",
            "192.168.7.1",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "192.0.2.1",
            "198.51.100.1",
            "203.0.113.10",
            "198.18.0.53",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "2001:db8::1",
            "::ffff:127.0.0.1",
            "64:ff9b::10.0.0.1",
            "2002:a00:1::1",
            "2001:0:0:0:0:0:f5ff:fffe",
            "100::1",
            "::8.8.8.8",
            "64:ff9b:1::1",
        ] {
            assert!(special_purpose(text.parse().unwrap()).is_some(), "{text}");
        }
    }

    #[test]
    fn borders_of_the_blocks() {
        for text in [
            "172.15.255.255",
            "172.32.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
        ] {
            assert_eq!(special_purpose(text.parse().unwrap()), None, "{text}");
        }
    }
}
