//! Whose controls are: when all positive ones belong to one operator, its outage looks like a vantage's own.

use std::net::IpAddr;

/// Whether there are positive controls, and nothing tells their operators apart: each shares with another one the domain
/// of its name, or the network (/24, /48) of its address, and so on to the last. Of each its address and the name of its
/// certificate.
#[must_use]
pub fn is_one<'a>(positive: impl IntoIterator<Item = (IpAddr, Option<&'a str>)>) -> bool {
    let mut others: Vec<Operator> = positive.into_iter().map(|(at, name)| operator(at, name)).collect();
    let Some(first) = others.pop() else { return false };
    let mut alike = vec![first];
    while let Some(next) = others.iter().position(|(domain, network)| {
        alike.iter().any(|(known_domain, known_network)| known_domain == domain || known_network == network)
    }) {
        alike.push(others.swap_remove(next));
    }
    others.is_empty()
}

/// Whose a control is, as far as its name and its address tell.
type Operator = (String, IpAddr);

fn operator(at: IpAddr, name: Option<&str>) -> Operator {
    let network = match at {
        IpAddr::V4(v4) => IpAddr::from((u32::from(v4) & 0xffff_ff00).to_be_bytes()),
        IpAddr::V6(v6) => IpAddr::from((u128::from(v6) & (!0 << 80)).to_be_bytes()),
    };
    // Without a name, or with an address for one, the network tells.
    let name = name.filter(|name| name.parse::<IpAddr>().is_err());
    (name.map_or_else(|| network.to_string(), domain), network)
}

/// The last two labels of a name. Where a registry hands out the third one, this takes two operators for one, and a
/// person reads a warning too many.
fn domain(name: &str) -> String {
    let mut labels: Vec<&str> = name.trim_end_matches('.').rsplit('.').take(2).collect();
    labels.reverse();
    labels.join(".").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_of_one_operator_are_told_from_those_of_several() {
        let control = |at: &str, name: &'static str| (at.parse().unwrap(), (!name.is_empty()).then_some(name));
        let cloudflare = control("1.0.0.1", "one.one.one.one");
        let google = control("8.8.4.4", "dns.google");
        let again = control("8.8.8.8", "www.dns.google");
        let near = control("8.8.4.9", "other.example");
        let bare = control("9.9.9.9", "");
        assert!(!is_one([]), "there is none");
        let nameless = control("8.8.4.5", "");
        for alike in [vec![google], vec![google, again], vec![google, near], vec![again, google, nameless]] {
            assert!(is_one(alike.clone()), "{alike:?}");
        }
        for several in [vec![cloudflare, google], vec![google, bare], vec![again, nameless]] {
            assert!(!is_one(several.clone()), "{several:?}");
        }
    }
}
