//! How many files and sockets this process may have open, and what that leaves for probes.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What everything but probes needs: sockets that wait for a second reply (at most 128), open connections
/// to resolvers (one each, at most 64), a round of controls, the spool, the uplink, logs, drivers.
const RESERVED: u64 = 256;

/// Sockets one probe may hold at once: its own four attempts.
const PER_PROBE: u64 = 4;

/// Most probes in flight, whatever the limit of descriptors: what hangs costs memory too.
pub const PROBES_MAX: usize = 1024;

/// Fewest probes in flight that are tried, however low the limit is.
const PROBES_MIN: u64 = 16;

/// Raises this process's own limit to what its supervisor allows and says how many probes that is
/// enough for. The usual soft limit of 1024 is for programs that use select(2); we do not.
#[must_use]
pub fn probes() -> usize {
    let (soft, hard) = match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok(limits) => limits,
        Err(error) => {
            tracing::warn!(%error, "the limit of open files cannot be read; few probes will run at once");
            return enough_for(0);
        }
    };
    let wanted = RESERVED + PER_PROBE * PROBES_MAX as u64;
    let raised = hard.min(wanted).max(soft);
    if raised > soft && setrlimit(Resource::RLIMIT_NOFILE, raised, hard).is_err() {
        return enough_for(soft);
    }
    enough_for(raised)
}

fn enough_for(descriptors: u64) -> usize {
    let probes = (descriptors.saturating_sub(RESERVED) / PER_PROBE).max(PROBES_MIN);
    usize::try_from(probes).unwrap_or(PROBES_MAX).min(PROBES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_follow_the_limit_of_descriptors_within_bounds() {
        assert_eq!(enough_for(0), 16);
        assert_eq!(enough_for(1024), 192);
        assert_eq!(enough_for(4352), 1024);
        assert_eq!(enough_for(u64::MAX), PROBES_MAX);
    }

    #[test]
    fn the_own_limit_is_raised_to_what_is_allowed() {
        assert!(probes() >= 16);
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert!(soft >= hard.min(4352), "{soft} of {hard}");
    }
}
