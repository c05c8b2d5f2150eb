//! Whether positive controls are of different operators, as the vantage's own verdict needs it: when all of them belong to
//! one, its outage looks like ours.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{Control, Trial};

/// Whose a control is, as far as its name and its address tell.
type Operator = (String, IpAddr);

/// Whether there are positive controls, and nothing tells their operators apart: each shares with the first the domain
/// of its name, or the network (/24, /48) of its address.
#[must_use]
pub fn is_one(controls: &[Control]) -> bool {
    let operators: BTreeSet<Operator> = controls.iter().filter_map(operator).collect();
    let Some((domain, network)) = operators.first() else { return false };
    operators.iter().all(|(other, at)| other == domain || at == network)
}

fn operator(control: &Control) -> Option<Operator> {
    let Trial::Positive { at, server_name } = &control.trial else { return None };
    let network = match at.ip() {
        IpAddr::V4(v4) => IpAddr::from((u32::from(v4) & 0xffff_ff00).to_be_bytes()),
        IpAddr::V6(v6) => IpAddr::from((u128::from(v6) & (!0 << 80)).to_be_bytes()),
    };
    // Without a name, or with an address for one, the network tells.
    let name = server_name.as_deref().filter(|name| name.parse::<IpAddr>().is_err());
    let domain = name.map_or_else(|| network.to_string(), domain);
    Some((domain, network))
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

    fn positive(name: &str, at: &str, server_name: &str) -> Control {
        let server_name = (!server_name.is_empty()).then(|| server_name.to_owned());
        let trial = Trial::Positive { at: format!("{at}:443").parse().unwrap(), server_name };
        Control { name: name.parse().unwrap(), trial }
    }

    #[test]
    fn controls_of_one_operator_are_told_from_those_of_several() {
        let cloudflare = positive("a", "1.0.0.1", "one.one.one.one");
        let google = positive("b", "8.8.4.4", "dns.google");
        let again = positive("c", "8.8.8.8", "www.dns.google");
        let near = positive("d", "8.8.4.9", "other.example");
        let bare = positive("e", "9.9.9.9", "");
        let negative =
            Control { name: "n".parse().unwrap(), trial: Trial::Negative { at: "192.0.2.1:443".parse().unwrap() } };
        assert!(!is_one(std::slice::from_ref(&negative)), "there is none");
        for alike in [vec![google.clone()], vec![google.clone(), again.clone()], vec![google.clone(), near, negative]] {
            assert!(is_one(&alike), "{alike:?}");
        }
        for several in [vec![cloudflare, google.clone()], vec![google, bare]] {
            assert!(!is_one(&several), "{several:?}");
        }
    }
}
