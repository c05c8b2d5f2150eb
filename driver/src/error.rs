//! Why a reading or a change did not succeed, told apart by what the caller may do next.

use parallax_decide::names::DomainName;

use crate::Reading;

/// Why a driver did not do what it was asked. `server` says which vendor's which instance.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// No conversation took place, or it broke while only reading. Nothing was written; try later.
    #[error("{server} cannot be reached, nothing was written: {why}")]
    Unreachable {
        /// Who was asked.
        server: String,
        /// What happened instead.
        why: String,
    },
    /// The write was sent and reading back did not settle it: perhaps made. Read before trying again.
    #[error("{server}: the change was perhaps made: {why}; read the name again before trying again")]
    Uncertain {
        /// Who was asked.
        server: String,
        /// What happened.
        why: String,
    },
    /// The server said no. Nothing was written, and asking again will not help until somebody acts.
    #[error("{server} refused, nothing was written: {reason}")]
    Refused {
        /// Who was asked.
        server: String,
        /// What it objects to.
        reason: Refusal,
    },
    /// The name holds neither what the change expects nor what it sets: somebody else's. Left alone.
    #[error("the name was changed by somebody else and was left alone: found {found}")]
    Conflict {
        /// What is there.
        found: Reading,
    },
    /// This driver cannot make this kind of change at all.
    #[error("{driver} cannot do this: {why}")]
    Unsupported {
        /// Which driver.
        driver: &'static str,
        /// What it cannot do, and who can.
        why: String,
    },
    /// A reply that is not understood, before anything was written.
    #[error("{server} sent a reply that is not understood, nothing was written: {what}")]
    Unexpected {
        /// Who was asked.
        server: String,
        /// The reply, shortened.
        what: String,
    },
}

/// What a server objects to, with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Found before sending: the name is not in the configured zone.
    #[error("{name} is not in zone {zone}; give the service a driver whose zone it is in")]
    OutsideZone {
        /// The name.
        name: DomainName,
        /// The configured zone.
        zone: DomainName,
    },
    /// The server does not answer for this zone, or the name is delegated away below it.
    #[error(
        "it does not serve {name} in zone {zone} with authority ({rcode}); check the zone's name, that this server is its primary, that it allows queries from here, and that the name is not delegated"
    )]
    NotServed {
        /// The name asked for.
        name: DomainName,
        /// The configured zone.
        zone: DomainName,
        /// Its reply code.
        rcode: String,
    },
    /// Signed REFUSED to an update: the key is good, the server's policy does not let it do this.
    #[error(
        "its update policy does not let key {key} change A and AAAA of this name; grant that (BIND: update-policy)"
    )]
    Policy {
        /// The TSIG key's name.
        key: DomainName,
    },
    /// TSIG BADKEY.
    #[error(
        "it does not know TSIG key {key} with {algorithm} (BADKEY); name and algorithm must be those of the server"
    )]
    BadKey {
        /// The TSIG key's name.
        key: DomainName,
        /// The TSIG algorithm.
        algorithm: &'static str,
    },
    /// TSIG BADSIG.
    #[error("the secret of TSIG key {key} is not the server's (BADSIG); copy it again, or check its algorithm")]
    BadSignature {
        /// The TSIG key's name.
        key: DomainName,
    },
    /// TSIG BADTIME.
    #[error("the clocks differ (BADTIME): this one is {ahead_s} s ahead of the server's; TSIG allows 300 s, fix NTP")]
    BadTime {
        /// How much our clock is ahead of the server's, in seconds; negative: behind.
        ahead_s: i64,
    },
    /// A refusal without a signature: anybody on the way could have sent it.
    #[error("an unsigned {rcode}; check key name, algorithm, clock and zone, and who answers at this address")]
    Unsigned {
        /// Its reply code.
        rcode: String,
    },
    /// The server says the record set differs, and shows the very set that the change expects.
    #[error(
        "it says the records are not the expected ones ({rcode}) but serves just these; a wildcard or a generated answer (then write explicit records), or its prerequisites are broken"
    )]
    PrerequisiteBroken {
        /// Its reply code.
        rcode: String,
    },
    /// A trouble of its own.
    #[error("it failed ({rcode}); its log says why (a journal it cannot write is a common reason)")]
    ServerFailed {
        /// Its reply code.
        rcode: String,
    },
    /// The operating system does not let us talk to it.
    #[error("no permission ({why}); add the user this runs as to the group that owns the socket")]
    Permission {
        /// What the operating system said.
        why: String,
    },
    /// A control command was answered with an error.
    #[error("its control answered '{reply}'")]
    Command {
        /// The answer, shortened.
        reply: String,
    },
}

/// Most characters of a foreign text that enter an error. Enough to recognise, too short to flood a log.
#[cfg(any(feature = "unbound", feature = "rfc2136"))]
const QUOTE_CHARACTERS_MAX: usize = 160;

/// A foreign text made fit for an error: shortened, and without control characters.
#[cfg(any(feature = "unbound", feature = "rfc2136"))]
pub(crate) fn quoted(text: &str) -> String {
    let mut short: String = text.trim().chars().take(QUOTE_CHARACTERS_MAX).flat_map(char::escape_debug).collect();
    if text.trim().chars().nth(QUOTE_CHARACTERS_MAX).is_some() {
        short.push('…');
    }
    short
}
