//! Which addresses were shown usable for which name, here and by this agent itself.
//!
//! A pin sends every client of the place to an address. Whoever asks for it, the agent pins only what
//! it has itself seen complete TLS for that name with a verified certificate a moment ago: a stolen
//! coordinator can then not lead the place's clients to a stranger.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use parallax_decide::names::DomainName;

use crate::clock::{self, Instant};

/// How long a success proves anything: a few canary rounds of the slowest usual schedule.
pub const PROOF_LIFE: Duration = Duration::from_secs(600);

/// Most pairs remembered; beyond them the oldest is forgotten, which can only refuse a pin.
const PROOFS_MAX: usize = 1024;

/// Addresses that worked.
#[derive(Debug, Default)]
pub struct Proofs {
    last: Mutex<BTreeMap<(DomainName, IpAddr), Instant>>,
}

impl Proofs {
    /// Notes that an address worked for a name just now.
    pub fn note(&self, name: &DomainName, address: IpAddr) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (name.clone(), address);
        if last.len() >= PROOFS_MAX && !last.contains_key(&key) {
            let oldest = last.iter().min_by_key(|(_, at)| **at).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                last.remove(&oldest);
            }
        }
        last.insert(key, clock::now());
    }

    /// Whether an address worked for a name within [`PROOF_LIFE`].
    #[must_use]
    pub fn holds(&self, name: &DomainName, address: IpAddr) -> bool {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.get(&(name.clone(), address)).is_some_and(|at| clock::since(*at) <= PROOF_LIFE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_proof_is_for_one_name_and_one_address_and_ages() {
        let proofs = Proofs::default();
        let (name, other) = ("example.com".parse().unwrap(), "example.org".parse().unwrap());
        let address = IpAddr::from([104, 26, 4, 10]);
        proofs.note(&name, address);
        assert!(proofs.holds(&name, address));
        assert!(!proofs.holds(&other, address));
        assert!(!proofs.holds(&name, IpAddr::from([104, 26, 4, 11])));
        tokio::time::advance(PROOF_LIFE + Duration::from_secs(1)).await;
        assert!(!proofs.holds(&name, address));
    }

    #[test]
    fn memory_is_bounded() {
        let proofs = Proofs::default();
        for number in 0..2000_u32 {
            proofs.note(&"example.com".parse().unwrap(), IpAddr::from(number.to_be_bytes()));
        }
        assert_eq!(proofs.last.lock().unwrap().len(), PROOFS_MAX);
    }
}
