//! Addresses that are there for everybody: they show whether a machine has a way out at all.
//!
//! Only what people start by hand asks them; what a running agent tries is the coordinator's choice.

use std::net::{IpAddr, SocketAddr};

use crate::assignment::{Control, Trial};

/// Public resolvers answer TLS for their own names everywhere; these are three operators'.
const RESOLVERS: [(&str, [u8; 4], &str); 3] = [
    ("cloudflare", [1, 1, 1, 1], "one.one.one.one"),
    ("google", [8, 8, 8, 8], "dns.google"),
    ("quad9", [9, 9, 9, 9], "dns.quad9.net"),
];

/// The port of HTTPS.
const HTTPS: u16 = 443;

/// Controls that complete TLS wherever there is a way out over IPv4.
#[must_use]
pub fn controls() -> Vec<Control> {
    RESOLVERS
        .iter()
        .filter_map(|(name, address, server_name)| control(name, IpAddr::from(*address), server_name))
        .collect()
}

/// A control that must complete TLS; `None` for a name that is none.
#[must_use]
pub fn control(name: &str, address: IpAddr, server_name: &str) -> Option<Control> {
    let trial = Trial::Positive { at: SocketAddr::new(address, HTTPS), server_name: Some(server_name.to_owned()) };
    Some(Control { name: name.parse().ok()?, trial })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_one_of_them_is_a_control() {
        assert_eq!(controls().len(), RESOLVERS.len());
    }
}
