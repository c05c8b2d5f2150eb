//! Where the aliases of an answer lead.

use std::net::IpAddr;

use domain::base::name::ToName as _;
use parallax_decide::names::ADDRESSES_MAX;

use super::sections::Sections;
use super::{CHAIN_MAX, OwnedName};

/// The way from the name asked for to its addresses.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// Names after the one asked for, at most [`CHAIN_MAX`], for people.
    pub(super) names: Vec<String>,
    /// It returns to itself, or is longer than that.
    pub(super) looped: bool,
    /// Addresses at its end in answer order without repetitions, at most [`ADDRESSES_MAX`].
    pub(super) addresses: Vec<IpAddr>,
    /// Smallest TTL of each, in seconds.
    pub(super) ttls_s: Vec<u32>,
    /// How many more there were.
    pub(super) skipped: u32,
}

impl Chain {
    /// Follows the aliases of an answer from a name.
    pub(super) fn follow(name: &OwnedName, sections: &Sections<'_>) -> Self {
        let mut chain = Self::default();
        let mut at = None;
        loop {
            let next = sections.aliases.iter().find(|(owner, _)| match &at {
                None => owner.name_eq(name),
                Some(at) => owner.name_eq(at),
            });
            let Some((_, target)) = next else { break };
            if chain.names.len() == CHAIN_MAX {
                chain.looped = true;
                return chain;
            }
            chain.names.push(text(&target.to_string()));
            at = Some(*target);
        }
        let mut beyond = Vec::new();
        for (owner, address, ttl_s) in &sections.addresses {
            let here = match &at {
                None => owner.name_eq(name),
                Some(at) => owner.name_eq(at),
            };
            if !here {
                continue;
            }
            let known = chain.addresses.iter().position(|one| one == address);
            if let Some(ttl) = known.and_then(|position| chain.ttls_s.get_mut(position)) {
                *ttl = (*ttl).min(*ttl_s);
            } else if chain.addresses.len() < ADDRESSES_MAX {
                chain.addresses.push(*address);
                chain.ttls_s.push(*ttl_s);
            } else if !beyond.contains(address) {
                beyond.push(*address);
            }
        }
        chain.skipped = u32::try_from(beyond.len()).unwrap_or(u32::MAX);
        chain
    }
}

/// A name as text within the wire's limit: what is no letter, digit or mark is escaped, which makes
/// a hostile name longer than it is.
fn text(name: &str) -> String {
    name.trim_end_matches('.').chars().take(parallax_proto::TEXT_BYTES_MAX).collect::<String>().to_ascii_lowercase()
}
