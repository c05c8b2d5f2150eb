//! What was measured, as phrases.

use parallax_decide::observation::{ConnectionOutcome, ResolutionOutcome, Stage, StageOutcome};

/// How a connection ended.
#[must_use]
pub fn connection(outcome: ConnectionOutcome) -> &'static str {
    match outcome {
        ConnectionOutcome::TlsOk => "TCP and TLS completed, certificate right",
        ConnectionOutcome::TcpOk => "TCP completed",
        ConnectionOutcome::Refused => "refused (RST)",
        ConnectionOutcome::Silent => "nothing came back: timed out",
        ConnectionOutcome::HostUnreachable => "host unreachable",
        ConnectionOutcome::NetUnreachable => "no route to that prefix",
        ConnectionOutcome::TlsSilent => "TCP completed, TLS got no answer",
        ConnectionOutcome::TlsReset => "TCP completed, reset during TLS",
        ConnectionOutcome::TlsAlert => "TCP completed, no TLS spoken",
        ConnectionOutcome::CertificateName => "certificate for another name",
        ConnectionOutcome::CertificateAuthority => "certificate of an unknown authority",
        ConnectionOutcome::CertificateTime => "certificate out of its time",
        ConnectionOutcome::FamilyUnavailable => "not tried: no route for that address family",
        ConnectionOutcome::OwnTrouble => "not measured: the agent's own trouble",
        ConnectionOutcome::RefusedByPolicy => "not tried: forbidden by the owner's policy",
    }
}

/// Whether a connection ended well.
#[must_use]
pub fn connected(outcome: ConnectionOutcome) -> bool {
    match outcome {
        ConnectionOutcome::TlsOk | ConnectionOutcome::TcpOk => true,
        ConnectionOutcome::Refused
        | ConnectionOutcome::Silent
        | ConnectionOutcome::HostUnreachable
        | ConnectionOutcome::NetUnreachable
        | ConnectionOutcome::TlsSilent
        | ConnectionOutcome::TlsReset
        | ConnectionOutcome::TlsAlert
        | ConnectionOutcome::CertificateName
        | ConnectionOutcome::CertificateAuthority
        | ConnectionOutcome::CertificateTime
        | ConnectionOutcome::FamilyUnavailable
        | ConnectionOutcome::OwnTrouble
        | ConnectionOutcome::RefusedByPolicy => false,
    }
}

/// How a resolution ended.
#[must_use]
pub fn resolution(outcome: ResolutionOutcome) -> &'static str {
    match outcome {
        ResolutionOutcome::Answered => "NOERROR",
        ResolutionOutcome::Empty => "NOERROR without an address",
        ResolutionOutcome::Nxdomain => "NXDOMAIN",
        ResolutionOutcome::Servfail => "SERVFAIL",
        ResolutionOutcome::Refused => "REFUSED",
        ResolutionOutcome::OtherRcode => "another error code",
        ResolutionOutcome::Timeout => "no reply before the deadline",
        ResolutionOutcome::Unreachable => "the resolver could not be reached",
        ResolutionOutcome::TlsFailed => "TLS to the resolver failed",
        ResolutionOutcome::HttpFailed => "HTTP status other than 2xx",
        ResolutionOutcome::Malformed => "a reply that is no answer to the question",
        ResolutionOutcome::OwnTrouble => "not measured: the agent's own trouble",
        ResolutionOutcome::RefusedByPolicy => "not asked: forbidden by the owner's policy",
    }
}

/// How an endpoint check ended: the stage it got to and what happened there.
#[must_use]
pub fn endpoint(stage: Stage, outcome: StageOutcome) -> String {
    if (stage, outcome) == (Stage::Dns, StageOutcome::Ok) {
        return "works".to_owned();
    }
    let stage = match stage {
        Stage::Bootstrap => "finding its address",
        Stage::Tcp => "TCP",
        Stage::Tls => "TLS",
        Stage::Http => "HTTP",
        Stage::Dns => "DNS",
    };
    let outcome = match outcome {
        StageOutcome::Ok => "worked",
        StageOutcome::Refused => "refused",
        StageOutcome::Reset => "reset",
        StageOutcome::Timeout => "timed out",
        StageOutcome::Unreachable => "no path",
        StageOutcome::Certificate => "certificate not acceptable",
        StageOutcome::Alert => "TLS alert, or no TLS",
        StageOutcome::Status => "HTTP status other than 2xx",
        StageOutcome::Malformed => "not a DNS answer",
        StageOutcome::Servfail => "SERVFAIL",
        StageOutcome::RefusedRcode => "REFUSED",
        StageOutcome::Empty => "no address for a known name",
        StageOutcome::OwnTrouble => "the agent's own trouble",
        StageOutcome::RefusedByPolicy => "forbidden by the owner's policy",
    };
    format!("{stage}: {outcome}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_check_names_the_stage_that_failed() {
        assert_eq!(endpoint(Stage::Dns, StageOutcome::Ok), "works");
        assert_eq!(endpoint(Stage::Tls, StageOutcome::Certificate), "TLS: certificate not acceptable");
    }
}
