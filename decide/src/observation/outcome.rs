//! The one list of outcome words: what every observation ends with, exactly one each.
//!
//! A word names the stage and what happened there, so that no two kinds of failure share one and
//! nothing is lumped into "error". The wire, SQL, the API and the pages use the same words;
//! `docs/outcomes.md` lists them for people, with the test that produces each.

use serde::{Deserialize, Serialize};

use super::{Kind, word_enum};

word_enum! {
    /// How a measurement ended.
    Outcome {
        /// A DNS reply with at least one address of the family asked for (NOERROR).
        Answered = "answered",
        /// TLS for the name completed with a verified certificate.
        TlsOk = "tls_ok",
        /// TCP completed, and the target is TCP-only by configuration.
        TcpOk = "tcp_ok",
        /// The HTTP request that the configuration asks for got what it expects.
        HttpOk = "http_ok",

        /// NOERROR without an address and without a chain (NODATA, RFC 2308).
        Empty = "empty",
        /// NOERROR with a CNAME that leads to no address.
        DanglingCname = "dangling_cname",
        /// NOERROR with name servers instead of an answer, from a server that does not recurse.
        Referral = "referral",
        /// The name does not exist (RCODE 3).
        Nxdomain = "nxdomain",
        /// The resolver could not find out (RCODE 2).
        Servfail = "servfail",
        /// The resolver will not say (RCODE 5).
        Refused = "refused",
        /// The question was not understood, with and without EDNS (RCODE 1).
        Formerr = "formerr",
        /// Any other response code.
        OtherRcode = "other_rcode",
        /// Bytes that are no DNS message, or one that contradicts its own counts.
        Malformed = "malformed",
        /// A CNAME chain that returns to itself or is longer than eight names.
        CnameLoop = "cname_loop",

        /// The UDP reply was cut, and the server's TCP port did not take the question.
        TruncatedTcpFailed = "truncated_tcp_failed",
        /// The UDP reply was cut, and nothing came over TCP before the deadline.
        TruncatedTcpTimeout = "truncated_tcp_timeout",
        /// The question was sent; no reply came before the deadline.
        DnsSilent = "dns_silent",
        /// The stream was closed or reset before the whole reply.
        DnsClosed = "dns_closed",

        /// RST to every attempt; over UDP ICMP port unreachable (the kernel tells these two apart no further).
        ConnectionRefused = "connection_refused",
        /// Nothing came back to any TCP attempt.
        Silent = "silent",
        /// ICMP: host unreachable.
        HostUnreachable = "host_unreachable",
        /// ICMP: network unreachable.
        NetUnreachable = "net_unreachable",
        /// ICMP: administratively prohibited.
        AdminProhibited = "admin_prohibited",
        /// The connection was opened and reset before anything else.
        Reset = "reset",

        /// TCP completed; the TLS handshake got no answer.
        TlsSilent = "tls_silent",
        /// Reset or closed during the TLS handshake.
        TlsReset = "tls_reset",
        /// The peer sent a TLS alert.
        TlsAlert = "tls_alert",
        /// What came back is no TLS.
        TlsNotSpoken = "tls_not_spoken",
        /// Certificate for another name.
        CertificateName = "certificate_name",
        /// Certificate of an authority that is not trusted here.
        CertificateAuthority = "certificate_authority",
        /// Certificate that is no longer valid.
        CertificateExpired = "certificate_expired",
        /// Certificate that is not yet valid.
        CertificateNotYetValid = "certificate_not_yet_valid",
        /// Certificate that cannot be accepted for another reason: broken, wrong use, bad signature.
        CertificateInvalid = "certificate_invalid",
        /// TLS hung, and completed with segments of at most 536 bytes (RFC 879's default).
        PmtuBlackhole = "pmtu_blackhole",

        /// The HTTP request was sent; no answer came before the deadline.
        HttpSilent = "http_silent",
        /// The connection was closed without an HTTP answer.
        HttpClosed = "http_closed",
        /// An HTTP status other than expected that has no word of its own.
        HttpStatus = "http_status",
        /// 429, or 503 with Retry-After: asks us to slow down.
        HttpThrottled = "http_throttled",
        /// 400, 404, 405 or 415: this format or method is not served here.
        HttpUnsupported = "http_unsupported",
        /// A redirection, which is not followed.
        HttpRedirect = "http_redirect",
        /// An HTTP answer that is no DNS answer: a page, another media type.
        HttpNotDns = "http_not_dns",
        /// An HTTP answer without a body.
        HttpEmpty = "http_empty",
        /// A body beyond the limit; reading stopped there.
        HttpTooLarge = "http_too_large",
        /// The body stopped coming.
        HttpStalled = "http_stalled",
        /// What came back is no HTTP.
        HttpMalformed = "http_malformed",

        /// This vantage has no way out for the whole address family.
        FamilyUnavailable = "family_unavailable",
        /// This machine has no route to the address, while its family has one elsewhere.
        NoRoute = "no_route",
        /// No live resolver is configured on this machine.
        NoResolver = "no_resolver",
        /// No descriptor, no source port, a name that cannot be asked for.
        OwnTrouble = "own_trouble",
        /// The owner's limits were used up.
        RateLimited = "rate_limited",
        /// The owner's local policy forbids it; never contacted.
        RefusedByPolicy = "refused_by_policy",
        /// A special-purpose address for a public name; never contacted.
        SpecialAddress = "special_address",

        /// Packets reached the address (of a path).
        PathReached = "path_reached",
        /// No packet came as far as the address (of a path).
        PathLost = "path_lost",
        /// Observations were dropped (of a loss).
        Lost = "lost",
        /// Scheduled rounds did not run (of missed rounds).
        Missed = "missed",
    }
}

/// Where a measurement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// It works.
    Works,
    /// A DNS reply was read, without an address that could be used.
    Reply,
    /// The DNS exchange failed.
    Dns,
    /// No connection came about, or it was lost before anything was said.
    Network,
    /// The TLS handshake failed before a certificate was judged.
    Tls,
    /// The certificate is not acceptable.
    Certificate,
    /// The HTTP exchange failed.
    Http,
    /// The vantage's own trouble.
    Own,
    /// Never contacted.
    Refused,
    /// A record about the agent or the path, no measurement of a subject.
    Record,
}

/// What an outcome says of its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// It works.
    Works,
    /// It does not.
    Fails,
    /// Nothing: the vantage's own trouble, its owner's policy, or a record about the agent itself.
    Nothing,
}

impl Outcome {
    /// Where the measurement ended.
    #[must_use]
    pub fn group(self) -> Group {
        match self {
            Self::Answered | Self::TlsOk | Self::TcpOk | Self::HttpOk => Group::Works,
            Self::Empty
            | Self::DanglingCname
            | Self::Referral
            | Self::Nxdomain
            | Self::Servfail
            | Self::Refused
            | Self::Formerr
            | Self::OtherRcode
            | Self::CnameLoop => Group::Reply,
            Self::Malformed
            | Self::TruncatedTcpFailed
            | Self::TruncatedTcpTimeout
            | Self::DnsSilent
            | Self::DnsClosed => Group::Dns,
            Self::ConnectionRefused
            | Self::Silent
            | Self::HostUnreachable
            | Self::NetUnreachable
            | Self::AdminProhibited
            | Self::Reset
            // One prefix without a route is the fault we look for (decisions.md: counted as silent).
            | Self::NoRoute => Group::Network,
            Self::TlsSilent | Self::TlsReset | Self::TlsAlert | Self::TlsNotSpoken | Self::PmtuBlackhole => Group::Tls,
            Self::CertificateName
            | Self::CertificateAuthority
            | Self::CertificateExpired
            | Self::CertificateNotYetValid
            | Self::CertificateInvalid => Group::Certificate,
            Self::HttpSilent
            | Self::HttpClosed
            | Self::HttpStatus
            | Self::HttpThrottled
            | Self::HttpUnsupported
            | Self::HttpRedirect
            | Self::HttpNotDns
            | Self::HttpEmpty
            | Self::HttpTooLarge
            | Self::HttpStalled
            | Self::HttpMalformed => Group::Http,
            Self::FamilyUnavailable | Self::NoResolver | Self::OwnTrouble | Self::RateLimited => Group::Own,
            Self::RefusedByPolicy | Self::SpecialAddress => Group::Refused,
            Self::PathReached | Self::PathLost | Self::Lost | Self::Missed => Group::Record,
        }
    }

    /// What it says of its subject.
    #[must_use]
    pub fn says(self) -> Says {
        match self.group() {
            Group::Works => Says::Works,
            Group::Reply | Group::Dns | Group::Network | Group::Tls | Group::Certificate | Group::Http => Says::Fails,
            Group::Own | Group::Refused | Group::Record => Says::Nothing,
        }
    }

    /// Whether it stands on a whole DNS reply.
    #[must_use]
    pub fn is_reply(self) -> bool {
        self == Self::Answered || self.group() == Group::Reply
    }

    /// Whether a certificate is out of its time: says nothing where the vantage's clock is wrong.
    #[must_use]
    pub fn is_certificate_time(self) -> bool {
        matches!(self, Self::CertificateExpired | Self::CertificateNotYetValid)
    }

    /// Whether a fact of this kind can end so. What an agent sends is held against this.
    #[must_use]
    pub fn fits(self, kind: Kind) -> bool {
        let dns = self == Self::Answered;
        match (kind, self.group()) {
            (Kind::Loss, _) => self == Self::Lost,
            (Kind::Missed, _) => self == Self::Missed,
            (Kind::Path, Group::Record) => matches!(self, Self::PathReached | Self::PathLost),
            (Kind::Path, Group::Own | Group::Refused) => true,
            (Kind::Path, Group::Network) => self == Self::NoRoute,
            (Kind::Path, Group::Works | Group::Reply | Group::Dns | Group::Tls | Group::Certificate | Group::Http) => {
                false
            }
            (Kind::Resolution | Kind::EndpointCheck | Kind::Connection | Kind::ControlCheck, Group::Record) => false,
            (Kind::Resolution | Kind::EndpointCheck, Group::Works) => dns,
            (Kind::Connection | Kind::ControlCheck, Group::Works) => !dns,
            (Kind::Connection, Group::Reply | Group::Dns) => false,
            // The captive-portal question is looked up at the live resolver first.
            (Kind::Resolution | Kind::EndpointCheck | Kind::ControlCheck, Group::Reply | Group::Dns)
            | (
                Kind::Resolution | Kind::EndpointCheck | Kind::Connection | Kind::ControlCheck,
                Group::Network | Group::Tls | Group::Certificate | Group::Http | Group::Own | Group::Refused,
            ) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_belongs_to_a_kind_and_none_is_used_twice() {
        for outcome in Outcome::ALL {
            assert!(Kind::ALL.iter().any(|kind| outcome.fits(*kind)), "{outcome} fits nothing");
            assert_eq!(Outcome::from_word(outcome.word()), Some(*outcome));
        }
    }

    #[test]
    fn the_page_of_outcomes_tells_of_every_word() {
        let page = include_str!("../../../docs/outcomes.md");
        let letters = [
            (Kind::Resolution, "R"),
            (Kind::EndpointCheck, "E"),
            (Kind::Connection, "C"),
            (Kind::ControlCheck, "K"),
            (Kind::Path, "P"),
            (Kind::Loss, "L"),
            (Kind::Missed, "M"),
        ];
        assert_eq!(letters.len(), Kind::ALL.len());
        for outcome in Outcome::ALL {
            let fitting = letters.iter().filter(|(kind, _)| outcome.fits(*kind));
            let kinds: Vec<_> = fitting.map(|(_, letter)| *letter).collect();
            let row = format!("| `{outcome}` | {} | {} |", kinds.join(" "), outcome.meaning());
            assert!(page.contains(&row), "docs/outcomes.md lacks this row: {row}");
        }
    }

    #[test]
    fn only_what_works_is_good() {
        let good: Vec<_> = Outcome::ALL.iter().filter(|outcome| outcome.says() == Says::Works).collect();
        assert_eq!(good, [&Outcome::Answered, &Outcome::TlsOk, &Outcome::TcpOk, &Outcome::HttpOk]);
    }
}
