//! A failure to reach somebody whose outcome is known better than from the kernel's error number.

use std::io;

use nix::errno::Errno;
use parallax_decide::observation::Outcome;

/// Why nobody was reached, with the outcome it stands for.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {number}")]
pub(super) struct Told {
    outcome: Outcome,
    what: String,
    #[source]
    number: Errno,
}

impl Told {
    pub(super) fn new(outcome: Outcome, what: impl Into<String>, number: Errno) -> Self {
        Self { outcome, what: what.into(), number }
    }

    fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<Told> for io::Error {
    fn from(told: Told) -> Self {
        let kind = Self::from(told.number).kind();
        Self::new(kind, told)
    }
}

/// The outcome that the dialer itself gave to a failure: the routing table's word, a router's or a host's
/// (ICMP), or a source that this machine does not have. `None`: the error number is all there is.
#[must_use]
pub fn told(error: &io::Error) -> Option<Outcome> {
    Some(Told::of(error)?.outcome)
}

/// The kernel's error number, when the error came from the kernel.
#[must_use]
pub fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw).or_else(|| Some(Told::of(error)?.number))
}
