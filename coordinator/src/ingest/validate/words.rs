//! Numbers of the wire as our words. A number that is not known is refused: never guessed.

use parallax_decide::observation::{Family, Kind, Lane, LossReason, MissedReason, Outcome, Purpose, Stage};
use parallax_proto::v1;

use super::Fault;

pub(super) fn purpose(number: i32) -> Result<Purpose, Fault> {
    match v1::Purpose::try_from(number) {
        Ok(v1::Purpose::Scheduled) => Ok(Purpose::Scheduled),
        Ok(v1::Purpose::Confirm) => Ok(Purpose::Confirm),
        Ok(v1::Purpose::CrossCheck) => Ok(Purpose::CrossCheck),
        Ok(v1::Purpose::Verify) => Ok(Purpose::Verify),
        Ok(v1::Purpose::Unspecified) | Err(_) => Err(unknown("purpose", number)),
    }
}

pub(super) fn lane(number: i32) -> Result<Lane, Fault> {
    match v1::Lane::try_from(number) {
        Ok(v1::Lane::Urgent) => Ok(Lane::Urgent),
        Ok(v1::Lane::Routine) => Ok(Lane::Routine),
        Ok(v1::Lane::Unspecified) | Err(_) => Err(unknown("lane", number)),
    }
}

pub(super) fn family(number: i32) -> Result<Family, Fault> {
    match v1::Family::try_from(number) {
        Ok(v1::Family::V4) => Ok(Family::V4),
        Ok(v1::Family::V6) => Ok(Family::V6),
        Ok(v1::Family::Unspecified) | Err(_) => Err(unknown("family", number)),
    }
}

pub(super) fn stage(number: i32) -> Result<Stage, Fault> {
    match v1::Stage::try_from(number) {
        Ok(v1::Stage::Bootstrap) => Ok(Stage::Bootstrap),
        Ok(v1::Stage::Tcp) => Ok(Stage::Tcp),
        Ok(v1::Stage::Tls) => Ok(Stage::Tls),
        Ok(v1::Stage::Http) => Ok(Stage::Http),
        Ok(v1::Stage::Dns) => Ok(Stage::Dns),
        Ok(v1::Stage::Unspecified) | Err(_) => Err(unknown("stage", number)),
    }
}

/// An outcome that may be absent, of a question of this kind.
pub(super) fn outcome_or_none(number: i32, kind: Kind) -> Result<Option<Outcome>, Fault> {
    if number == i32::from(v1::Outcome::Unspecified) {
        return Ok(None);
    }
    let found = outcome(number)?;
    if !found.fits(kind) {
        return Err(("misfit", format!("a question of a {kind} cannot end with {found}")));
    }
    Ok(Some(found))
}

pub(super) fn outcome(number: i32) -> Result<Outcome, Fault> {
    match v1::Outcome::try_from(number) {
        Ok(v1::Outcome::Answered) => Ok(Outcome::Answered),
        Ok(v1::Outcome::TlsOk) => Ok(Outcome::TlsOk),
        Ok(v1::Outcome::TcpOk) => Ok(Outcome::TcpOk),
        Ok(v1::Outcome::HttpOk) => Ok(Outcome::HttpOk),
        Ok(v1::Outcome::Empty) => Ok(Outcome::Empty),
        Ok(v1::Outcome::DanglingCname) => Ok(Outcome::DanglingCname),
        Ok(v1::Outcome::Referral) => Ok(Outcome::Referral),
        Ok(v1::Outcome::Nxdomain) => Ok(Outcome::Nxdomain),
        Ok(v1::Outcome::Servfail) => Ok(Outcome::Servfail),
        Ok(v1::Outcome::Refused) => Ok(Outcome::Refused),
        Ok(v1::Outcome::Formerr) => Ok(Outcome::Formerr),
        Ok(v1::Outcome::OtherRcode) => Ok(Outcome::OtherRcode),
        Ok(v1::Outcome::Malformed) => Ok(Outcome::Malformed),
        Ok(v1::Outcome::CnameLoop) => Ok(Outcome::CnameLoop),
        Ok(v1::Outcome::TruncatedTcpFailed) => Ok(Outcome::TruncatedTcpFailed),
        Ok(v1::Outcome::TruncatedTcpTimeout) => Ok(Outcome::TruncatedTcpTimeout),
        Ok(v1::Outcome::DnsSilent) => Ok(Outcome::DnsSilent),
        Ok(v1::Outcome::DnsClosed) => Ok(Outcome::DnsClosed),
        Ok(v1::Outcome::ConnectionRefused) => Ok(Outcome::ConnectionRefused),
        Ok(v1::Outcome::Silent) => Ok(Outcome::Silent),
        Ok(v1::Outcome::HostUnreachable) => Ok(Outcome::HostUnreachable),
        Ok(v1::Outcome::NetUnreachable) => Ok(Outcome::NetUnreachable),
        Ok(v1::Outcome::AdminProhibited) => Ok(Outcome::AdminProhibited),
        Ok(v1::Outcome::Reset) => Ok(Outcome::Reset),
        Ok(v1::Outcome::TlsSilent) => Ok(Outcome::TlsSilent),
        Ok(v1::Outcome::TlsReset) => Ok(Outcome::TlsReset),
        Ok(v1::Outcome::TlsAlert) => Ok(Outcome::TlsAlert),
        Ok(v1::Outcome::TlsNotSpoken) => Ok(Outcome::TlsNotSpoken),
        Ok(v1::Outcome::CertificateName) => Ok(Outcome::CertificateName),
        Ok(v1::Outcome::CertificateAuthority) => Ok(Outcome::CertificateAuthority),
        Ok(v1::Outcome::CertificateExpired) => Ok(Outcome::CertificateExpired),
        Ok(v1::Outcome::CertificateNotYetValid) => Ok(Outcome::CertificateNotYetValid),
        Ok(v1::Outcome::CertificateInvalid) => Ok(Outcome::CertificateInvalid),
        Ok(v1::Outcome::PmtuBlackhole) => Ok(Outcome::PmtuBlackhole),
        Ok(v1::Outcome::HttpSilent) => Ok(Outcome::HttpSilent),
        Ok(v1::Outcome::HttpClosed) => Ok(Outcome::HttpClosed),
        Ok(v1::Outcome::HttpStatus) => Ok(Outcome::HttpStatus),
        Ok(v1::Outcome::HttpThrottled) => Ok(Outcome::HttpThrottled),
        Ok(v1::Outcome::HttpUnsupported) => Ok(Outcome::HttpUnsupported),
        Ok(v1::Outcome::HttpRedirect) => Ok(Outcome::HttpRedirect),
        Ok(v1::Outcome::HttpNotDns) => Ok(Outcome::HttpNotDns),
        Ok(v1::Outcome::HttpEmpty) => Ok(Outcome::HttpEmpty),
        Ok(v1::Outcome::HttpTooLarge) => Ok(Outcome::HttpTooLarge),
        Ok(v1::Outcome::HttpStalled) => Ok(Outcome::HttpStalled),
        Ok(v1::Outcome::HttpMalformed) => Ok(Outcome::HttpMalformed),
        Ok(v1::Outcome::FamilyUnavailable) => Ok(Outcome::FamilyUnavailable),
        Ok(v1::Outcome::NoRoute) => Ok(Outcome::NoRoute),
        Ok(v1::Outcome::NoResolver) => Ok(Outcome::NoResolver),
        Ok(v1::Outcome::OwnTrouble) => Ok(Outcome::OwnTrouble),
        Ok(v1::Outcome::RateLimited) => Ok(Outcome::RateLimited),
        Ok(v1::Outcome::RefusedByPolicy) => Ok(Outcome::RefusedByPolicy),
        Ok(v1::Outcome::SpecialAddress) => Ok(Outcome::SpecialAddress),
        Ok(v1::Outcome::PathReached) => Ok(Outcome::PathReached),
        Ok(v1::Outcome::PathLost) => Ok(Outcome::PathLost),
        Ok(v1::Outcome::Lost) => Ok(Outcome::Lost),
        Ok(v1::Outcome::Missed) => Ok(Outcome::Missed),
        Ok(v1::Outcome::Unspecified) | Err(_) => Err(unknown("outcome", number)),
    }
}

pub(super) fn loss_reason(number: i32) -> Result<LossReason, Fault> {
    match v1::LossReason::try_from(number) {
        Ok(v1::LossReason::Full) => Ok(LossReason::Full),
        Ok(v1::LossReason::Old) => Ok(LossReason::Old),
        Ok(v1::LossReason::Disk) => Ok(LossReason::Disk),
        Ok(v1::LossReason::Damaged) => Ok(LossReason::Damaged),
        Ok(v1::LossReason::Unspecified) | Err(_) => Err(unknown("loss reason", number)),
    }
}

pub(super) fn missed_reason(number: i32) -> Result<MissedReason, Fault> {
    match v1::MissedReason::try_from(number) {
        Ok(v1::MissedReason::Overrun) => Ok(MissedReason::Overrun),
        Ok(v1::MissedReason::Paused) => Ok(MissedReason::Paused),
        Ok(v1::MissedReason::Busy) => Ok(MissedReason::Busy),
        Ok(v1::MissedReason::Limited) => Ok(MissedReason::Limited),
        Ok(v1::MissedReason::Throttled) => Ok(MissedReason::Throttled),
        Ok(v1::MissedReason::GivenUp) => Ok(MissedReason::GivenUp),
        Ok(v1::MissedReason::Broken) => Ok(MissedReason::Broken),
        Ok(v1::MissedReason::Unspecified) | Err(_) => Err(unknown("missed reason", number)),
    }
}

/// The word of a transport; none: not said.
pub(super) fn transport(number: i32) -> Result<Option<&'static str>, Fault> {
    match v1::Transport::try_from(number) {
        Ok(v1::Transport::Unspecified) => Ok(None),
        Ok(v1::Transport::Udp) => Ok(Some("udp")),
        Ok(v1::Transport::Tcp) => Ok(Some("tcp")),
        Ok(v1::Transport::Tls) => Ok(Some("tls")),
        Ok(v1::Transport::Http1) => Ok(Some("http1")),
        Ok(v1::Transport::Http2) => Ok(Some("http2")),
        Err(_) => Err(unknown("transport", number)),
    }
}

/// The word of a validation; none: not asked for.
pub(super) fn validation(number: i32) -> Result<Option<&'static str>, Fault> {
    match v1::Validation::try_from(number) {
        Ok(v1::Validation::Unspecified) => Ok(None),
        Ok(v1::Validation::Secure) => Ok(Some("secure")),
        Ok(v1::Validation::Insecure) => Ok(Some("insecure")),
        Ok(v1::Validation::Bogus) => Ok(Some("bogus")),
        Ok(v1::Validation::Indeterminate) => Ok(Some("indeterminate")),
        Err(_) => Err(unknown("validation", number)),
    }
}

/// The word of an odd datagram.
pub(super) fn odd_kind(number: i32) -> Result<&'static str, Fault> {
    match v1::OddKind::try_from(number) {
        Ok(v1::OddKind::Repeated) => Ok("repeated"),
        Ok(v1::OddKind::Different) => Ok("different"),
        Ok(v1::OddKind::WithoutQuestion) => Ok("without_question"),
        Ok(v1::OddKind::OtherQuestion) => Ok("other_question"),
        Ok(v1::OddKind::OtherId) => Ok("other_id"),
        Ok(v1::OddKind::FromElsewhere) => Ok("from_elsewhere"),
        Ok(v1::OddKind::Malformed) => Ok("malformed"),
        Ok(v1::OddKind::Unspecified) | Err(_) => Err(unknown("kind of an odd reply", number)),
    }
}

fn unknown(what: &str, number: i32) -> Fault {
    ("unknown_word", format!("{what} {number} is not a number this version knows"))
}
