//! What the coordinator means when it ends a stream.
//!
//! A gRPC status says the kind; its metadata says the rest:
//!
//! * `reason`: one word (the constants below);
//! * `grpc-retry-pushback-ms`: leave me alone for so long (gRFC A6), or `retry-after` in seconds
//!   (RFC 9110, 10.2.3), or the words "retry after N s" in the text;
//! * `server-unix-ms`: its wall clock.

use std::time::Duration;

use tonic::{Code, Status};

use super::backoff::Pace;

/// Another stream of the same identity took this one's place.
pub const REPLACED: &str = "replaced";
/// The two clocks are too far apart.
pub const CLOCK_SKEW: &str = "clock_skew";
/// A message was larger than it takes.
pub const TOO_LARGE: &str = "too_large";

/// What the coordinator means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// This identity is not accepted, for good.
    IdentityRefused,
    /// Not accepted now: not in its configuration yet, or it could not tell who we are.
    NotAdmitted,
    /// One of the two clocks is wrong.
    ClockSkew,
    /// Somebody else uses this identity.
    Replaced,
    /// A message was too large: it must not be sent unchanged.
    TooLarge,
    /// Come back after so long.
    SlowDown(Duration),
    /// The stream ended, whatever for.
    Ended,
}

/// Reads a status.
#[must_use]
pub fn meaning(status: &Status) -> Meaning {
    let reason = text(status, "reason");
    if reason == Some(CLOCK_SKEW) {
        return Meaning::ClockSkew;
    }
    if reason == Some(TOO_LARGE) {
        return Meaning::TooLarge;
    }
    let code = status.code();
    if code == Code::PermissionDenied {
        Meaning::IdentityRefused
    } else if code == Code::AlreadyExists || (code == Code::Aborted && reason == Some(REPLACED)) {
        Meaning::Replaced
    } else if matches!(code, Code::Unauthenticated | Code::FailedPrecondition) {
        // "Who are you" is no removal, and a slip in a configuration none either: the identity stays.
        Meaning::NotAdmitted
    } else if code == Code::OutOfRange {
        Meaning::TooLarge
    } else if code == Code::ResourceExhausted {
        asked(status).map_or(Meaning::TooLarge, Meaning::SlowDown)
    } else if code == Code::Unavailable {
        asked(status).map_or(Meaning::Ended, Meaning::SlowDown)
    } else {
        Meaning::Ended
    }
}

impl Meaning {
    /// How soon another try makes sense.
    #[must_use]
    pub fn pace(self) -> Pace {
        match self {
            Self::IdentityRefused | Self::NotAdmitted | Self::ClockSkew => Pace::Slow,
            Self::SlowDown(asked) => Pace::Asked(asked),
            Self::TooLarge => Pace::Usual,
            // It may have ended for everybody.
            Self::Replaced | Self::Ended => Pace::Spread,
        }
    }

    /// One word for programs that read the log.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::IdentityRefused => "identity_refused",
            Self::NotAdmitted => "not_admitted",
            Self::ClockSkew => CLOCK_SKEW,
            Self::Replaced => REPLACED,
            Self::TooLarge => TOO_LARGE,
            Self::SlowDown(_) => "slow_down",
            Self::Ended => "stream_ended",
        }
    }
}

/// The coordinator's wall clock, in ms since 1970, where the status has it.
#[must_use]
pub fn server_unix_ms(status: &Status) -> Option<u64> {
    text(status, "server-unix-ms")?.parse().ok()
}

fn asked(status: &Status) -> Option<Duration> {
    let pushback = text(status, "grpc-retry-pushback-ms").and_then(|ms| ms.parse().ok()).map(Duration::from_millis);
    let header = || text(status, "retry-after").and_then(|s| s.parse().ok()).map(Duration::from_secs);
    let words = || {
        let (_, after) = status.message().split_once("retry after ")?;
        let mut words = after.split(|one: char| !one.is_ascii_alphanumeric());
        let number = words.next()?.parse().ok()?;
        match words.next() {
            Some("ms") => Some(Duration::from_millis(number)),
            Some("s") => Some(Duration::from_secs(number)),
            Some(_) | None => None,
        }
    };
    pushback.or_else(header).or_else(words)
}

fn text<'a>(status: &'a Status, key: &str) -> Option<&'a str> {
    status.metadata().get(key)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(mut status: Status, pairs: &[(&'static str, &'static str)]) -> Status {
        for (key, value) in pairs {
            status.metadata_mut().insert(*key, value.parse().unwrap());
        }
        status
    }

    #[test]
    fn a_status_and_its_metadata_have_one_meaning() {
        for (status, expected) in [
            (Status::permission_denied("vantage x was revoked"), Meaning::IdentityRefused),
            (with(Status::permission_denied("no"), &[("reason", "clock_skew")]), Meaning::ClockSkew),
            (with(Status::unauthenticated("no"), &[("reason", "clock_skew")]), Meaning::ClockSkew),
            (Status::unauthenticated("who?"), Meaning::NotAdmitted),
            (Status::failed_precondition("not configured"), Meaning::NotAdmitted),
            (Status::aborted("closed"), Meaning::Ended),
            (with(Status::aborted("closed"), &[("reason", "replaced")]), Meaning::Replaced),
            (Status::already_exists("another"), Meaning::Replaced),
            (Status::out_of_range("message length too large"), Meaning::TooLarge),
            (Status::resource_exhausted("message too large"), Meaning::TooLarge),
            (Status::unavailable("the coordinator is ending"), Meaning::Ended),
            (Status::unavailable("busy; retry after 7 s, please"), Meaning::SlowDown(Duration::from_secs(7))),
            (Status::resource_exhausted("retry after 250 ms"), Meaning::SlowDown(Duration::from_millis(250))),
            (Status::unavailable("retry after lunch"), Meaning::Ended),
            (
                with(Status::unavailable(""), &[("grpc-retry-pushback-ms", "1500"), ("retry-after", "9")]),
                Meaning::SlowDown(Duration::from_millis(1500)),
            ),
            (with(Status::unavailable(""), &[("retry-after", "9")]), Meaning::SlowDown(Duration::from_secs(9))),
            (with(Status::unavailable(""), &[("retry-after", "-1")]), Meaning::Ended),
        ] {
            assert_eq!(meaning(&status), expected, "{status:?}");
        }
        assert_eq!(server_unix_ms(&with(Status::aborted(""), &[("server-unix-ms", "77")])), Some(77));
    }
}
