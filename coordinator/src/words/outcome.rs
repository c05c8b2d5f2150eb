//! What was measured, as phrases.

use parallax_decide::observation::{LossReason, MissedReason, Outcome, Says, Stage};

/// How a measurement ended.
#[must_use]
pub fn phrase(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Answered => "NOERROR",
        Outcome::TlsOk => "TCP and TLS completed, certificate right",
        Outcome::TcpOk => "TCP completed",
        Outcome::HttpOk => "TCP, TLS and the HTTP request came out as expected",
        Outcome::Empty => "NOERROR without an address",
        Outcome::DanglingCname => "NOERROR with an alias that leads to no address",
        Outcome::Referral => "a referral instead of an answer: it does not recurse",
        Outcome::Nxdomain => "NXDOMAIN",
        Outcome::Servfail => "SERVFAIL",
        Outcome::Refused => "REFUSED",
        Outcome::Formerr => "FORMERR, with EDNS and without",
        Outcome::OtherRcode => "another error code",
        Outcome::Malformed => "a reply that is no DNS message",
        Outcome::CnameLoop => "a chain of aliases without an end",
        Outcome::TruncatedTcpFailed => "cut over UDP, and TCP did not take the question",
        Outcome::TruncatedTcpTimeout => "cut over UDP, and nothing came over TCP before the deadline",
        Outcome::DnsSilent => "asked, and no reply before the deadline",
        Outcome::DnsClosed => "asked, and the connection was closed before the whole reply",
        Outcome::ConnectionRefused => "refused (RST)",
        Outcome::Silent => "nothing came back: timed out",
        Outcome::HostUnreachable => "host unreachable (ICMP)",
        Outcome::NetUnreachable => "no route to that network (ICMP)",
        Outcome::AdminProhibited => "prohibited by a filter on the way (ICMP)",
        Outcome::Reset => "TCP completed, reset before anything was said",
        Outcome::TlsSilent => "TCP completed, TLS got no answer",
        Outcome::TlsReset => "TCP completed, reset or closed during TLS",
        Outcome::TlsAlert => "TCP completed, TLS refused with an alert",
        Outcome::TlsNotSpoken => "TCP completed, no TLS spoken",
        Outcome::CertificateName => "certificate for another name",
        Outcome::CertificateAuthority => "certificate of an unknown authority",
        Outcome::CertificateExpired => "certificate that has expired",
        Outcome::CertificateNotYetValid => "certificate that is not valid yet",
        Outcome::CertificateInvalid => "certificate that cannot be accepted",
        Outcome::PmtuBlackhole => "TLS hung, and completed with small segments: large packets are lost on the way",
        Outcome::HttpSilent => "HTTP request sent, no answer before the deadline",
        Outcome::HttpClosed => "HTTP request sent, closed without an answer",
        Outcome::HttpStatus => "another HTTP status than expected",
        Outcome::HttpThrottled => "HTTP asks to slow down",
        Outcome::HttpUnsupported => "HTTP says that this form of question is not served",
        Outcome::HttpRedirect => "an HTTP redirection, which is not followed",
        Outcome::HttpNotDns => "an HTTP page instead of a DNS answer",
        Outcome::HttpEmpty => "an HTTP answer without a body",
        Outcome::HttpTooLarge => "an HTTP answer beyond the limit",
        Outcome::HttpStalled => "an HTTP answer that stopped coming",
        Outcome::HttpMalformed => "what came back is no HTTP",
        Outcome::FamilyUnavailable => "not tried: no route for that address family",
        Outcome::NoRoute => "no route from this machine",
        Outcome::NoResolver => "not asked: the machine has no live resolver",
        Outcome::OwnTrouble => "not measured: the agent's own trouble",
        Outcome::RateLimited => "not measured: the owner's limits were used up",
        Outcome::RefusedByPolicy => "not tried: forbidden by the owner's policy",
        Outcome::SpecialAddress => "not tried: a special-purpose address",
        Outcome::PathReached => "packets arrive",
        Outcome::PathLost => "packets are lost on the way",
        Outcome::Lost => "measured, and dropped before it was sent",
        Outcome::Missed => "did not run",
    }
}

/// Whether a measurement ended well.
#[must_use]
pub fn well(outcome: Outcome) -> bool {
    outcome.says() == Says::Works
}

/// How an endpoint check ended: the stage it got to and what happened there.
#[must_use]
pub fn endpoint(stage: Stage, outcome: Outcome) -> String {
    if well(outcome) {
        return "works".to_owned();
    }
    let stage = match stage {
        Stage::Bootstrap => "finding its address",
        Stage::Tcp => "TCP",
        Stage::Tls => "TLS",
        Stage::Http => "HTTP",
        Stage::Dns => "DNS",
    };
    format!("{stage}: {}", phrase(outcome))
}

/// Why observations were dropped.
#[must_use]
pub fn loss(reason: LossReason) -> &'static str {
    match reason {
        LossReason::Full => "the spool was full",
        LossReason::Old => "older than the spool keeps",
        LossReason::Disk => "the disk took nothing and memory was full",
        LossReason::Damaged => "what was on disk could not be read",
    }
}

/// Why rounds did not run.
#[must_use]
pub fn missed(reason: MissedReason) -> &'static str {
    match reason {
        MissedReason::Overrun => "the round before was not over",
        MissedReason::Paused => "the agent did not run",
        MissedReason::Busy => "too many probes were in flight",
        MissedReason::Limited => "the owner's limits were used up",
        MissedReason::Throttled => "the server asked to be left alone",
        MissedReason::GivenUp => "the round did not end within its limit",
        MissedReason::Broken => "the round broke down, which is a fault of the agent",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_endpoint_check_names_the_stage_that_failed() {
        assert_eq!(endpoint(Stage::Dns, Outcome::Answered), "works");
        assert_eq!(endpoint(Stage::Tls, Outcome::CertificateName), "TLS: certificate for another name");
    }

    /// Nothing is lumped together: what differs in the log differs on the page.
    #[test]
    fn no_two_outcomes_share_a_phrase() {
        let phrases: BTreeSet<&str> = Outcome::ALL.iter().map(|outcome| phrase(*outcome)).collect();
        assert_eq!(phrases.len(), Outcome::ALL.len());
    }
}
