//! Particulars of an observation that judging reads besides the fact itself.

use serde::{Deserialize, Serialize};

use super::word_enum;

word_enum! {
    /// What an agent's own validation of a signed answer came to (words of RFC 4035, 4.3).
    Validation {
        /// Signed, and the signatures hold.
        Secure = "secure",
        /// Provably not signed.
        Insecure = "insecure",
        /// Signed, and the signatures do not hold.
        Bogus = "bogus",
        /// Could not be found out.
        Indeterminate = "indeterminate",
    }
}

word_enum! {
    /// What the coordinator found of a node's proof of life: the node's signature over a nonce that the coordinator made
    /// for that vantage a moment before.
    Proof {
        /// It holds: the node lived after the nonce was made.
        Valid = "valid",
        /// It does not: forged, or one that was used before. No honest agent sends such a one.
        Invalid = "invalid",
        /// Asked for, and none came or it is too old: nothing is shown either way.
        Absent = "absent",
    }
}

/// What came beside a fact. Everything absent: nothing is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Particulars {
    /// Extended DNS error (RFC 8914) of a reply.
    pub extended_error: Option<u16>,
    /// The reply's RA bit was clear (RFC 1035, 4.1.1): some filters mark a block so.
    pub recursion_unavailable: bool,
    /// A second, different reply to the same question came.
    pub second_reply: bool,
    /// Own validation of the answer.
    pub validation: Option<Validation>,
    /// The agent's wall clock less the coordinator's, in ms (of a control check).
    pub clock_offset_ms: Option<i64>,
    /// Probes of positive controls in the last 20 minutes (of a control check).
    pub recent: Option<Recent>,
    /// Proof of life of a node (of a connection); `None`: it is not asked for.
    pub proof: Option<Proof>,
}

/// How many probes of controls failed lately at one vantage, of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recent {
    /// Failed.
    pub failures: u32,
    /// All.
    pub checks: u32,
}

/// Extended errors by which a resolver says that it keeps an answer back (RFC 8914): 4 forged, 15 blocked, 16 censored,
/// 17 filtered, 18 prohibited.
const KEPT_BACK: [u16; 5] = [4, 15, 16, 17, 18];

/// Extended errors of a zone whose signatures do not hold (RFC 8914, 4.6 to 4.13: 5 to 12).
const ZONE_BROKEN: std::ops::RangeInclusive<u16> = 5..=12;

impl Particulars {
    /// Whether the resolver says that it keeps the answer back.
    #[must_use]
    pub fn kept_back(self) -> bool {
        self.extended_error.is_some_and(|code| KEPT_BACK.contains(&code))
    }

    /// Whether the resolver says that the zone's signatures do not hold.
    #[must_use]
    pub fn zone_broken(self) -> bool {
        self.extended_error.is_some_and(|code| ZONE_BROKEN.contains(&code))
    }
}
