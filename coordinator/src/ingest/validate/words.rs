//! Numbers of the wire as our words. A number that is not known is refused: never guessed.

use parallax_decide::observation::{ConnectionOutcome, Family, Purpose, ResolutionOutcome, Stage, StageOutcome};
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

pub(super) fn resolution_outcome(number: i32) -> Result<ResolutionOutcome, Fault> {
    match v1::ResolutionOutcome::try_from(number) {
        Ok(v1::ResolutionOutcome::Answered) => Ok(ResolutionOutcome::Answered),
        Ok(v1::ResolutionOutcome::Empty) => Ok(ResolutionOutcome::Empty),
        Ok(v1::ResolutionOutcome::Nxdomain) => Ok(ResolutionOutcome::Nxdomain),
        Ok(v1::ResolutionOutcome::Servfail) => Ok(ResolutionOutcome::Servfail),
        Ok(v1::ResolutionOutcome::Refused) => Ok(ResolutionOutcome::Refused),
        Ok(v1::ResolutionOutcome::OtherRcode) => Ok(ResolutionOutcome::OtherRcode),
        Ok(v1::ResolutionOutcome::Timeout) => Ok(ResolutionOutcome::Timeout),
        Ok(v1::ResolutionOutcome::Unreachable) => Ok(ResolutionOutcome::Unreachable),
        Ok(v1::ResolutionOutcome::TlsFailed) => Ok(ResolutionOutcome::TlsFailed),
        Ok(v1::ResolutionOutcome::HttpFailed) => Ok(ResolutionOutcome::HttpFailed),
        Ok(v1::ResolutionOutcome::Malformed) => Ok(ResolutionOutcome::Malformed),
        Ok(v1::ResolutionOutcome::OwnTrouble) => Ok(ResolutionOutcome::OwnTrouble),
        Ok(v1::ResolutionOutcome::RefusedByPolicy) => Ok(ResolutionOutcome::RefusedByPolicy),
        Ok(v1::ResolutionOutcome::Unspecified) | Err(_) => Err(unknown("resolution outcome", number)),
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

pub(super) fn stage_outcome(number: i32) -> Result<StageOutcome, Fault> {
    match v1::StageOutcome::try_from(number) {
        Ok(v1::StageOutcome::Ok) => Ok(StageOutcome::Ok),
        Ok(v1::StageOutcome::Refused) => Ok(StageOutcome::Refused),
        Ok(v1::StageOutcome::Reset) => Ok(StageOutcome::Reset),
        Ok(v1::StageOutcome::Timeout) => Ok(StageOutcome::Timeout),
        Ok(v1::StageOutcome::Unreachable) => Ok(StageOutcome::Unreachable),
        Ok(v1::StageOutcome::Certificate) => Ok(StageOutcome::Certificate),
        Ok(v1::StageOutcome::Alert) => Ok(StageOutcome::Alert),
        Ok(v1::StageOutcome::Status) => Ok(StageOutcome::Status),
        Ok(v1::StageOutcome::Malformed) => Ok(StageOutcome::Malformed),
        Ok(v1::StageOutcome::Servfail) => Ok(StageOutcome::Servfail),
        Ok(v1::StageOutcome::RefusedRcode) => Ok(StageOutcome::RefusedRcode),
        Ok(v1::StageOutcome::Empty) => Ok(StageOutcome::Empty),
        Ok(v1::StageOutcome::OwnTrouble) => Ok(StageOutcome::OwnTrouble),
        Ok(v1::StageOutcome::RefusedByPolicy) => Ok(StageOutcome::RefusedByPolicy),
        Ok(v1::StageOutcome::Unspecified) | Err(_) => Err(unknown("stage outcome", number)),
    }
}

pub(super) fn connection_outcome(number: i32) -> Result<ConnectionOutcome, Fault> {
    match v1::ConnectionOutcome::try_from(number) {
        Ok(v1::ConnectionOutcome::TlsOk) => Ok(ConnectionOutcome::TlsOk),
        Ok(v1::ConnectionOutcome::TcpOk) => Ok(ConnectionOutcome::TcpOk),
        Ok(v1::ConnectionOutcome::Refused) => Ok(ConnectionOutcome::Refused),
        Ok(v1::ConnectionOutcome::Silent) => Ok(ConnectionOutcome::Silent),
        Ok(v1::ConnectionOutcome::HostUnreachable) => Ok(ConnectionOutcome::HostUnreachable),
        Ok(v1::ConnectionOutcome::NetUnreachable) => Ok(ConnectionOutcome::NetUnreachable),
        Ok(v1::ConnectionOutcome::TlsSilent) => Ok(ConnectionOutcome::TlsSilent),
        Ok(v1::ConnectionOutcome::TlsReset) => Ok(ConnectionOutcome::TlsReset),
        Ok(v1::ConnectionOutcome::TlsAlert) => Ok(ConnectionOutcome::TlsAlert),
        Ok(v1::ConnectionOutcome::CertificateName) => Ok(ConnectionOutcome::CertificateName),
        Ok(v1::ConnectionOutcome::CertificateAuthority) => Ok(ConnectionOutcome::CertificateAuthority),
        Ok(v1::ConnectionOutcome::CertificateTime) => Ok(ConnectionOutcome::CertificateTime),
        Ok(v1::ConnectionOutcome::FamilyUnavailable) => Ok(ConnectionOutcome::FamilyUnavailable),
        Ok(v1::ConnectionOutcome::OwnTrouble) => Ok(ConnectionOutcome::OwnTrouble),
        Ok(v1::ConnectionOutcome::RefusedByPolicy) => Ok(ConnectionOutcome::RefusedByPolicy),
        Ok(v1::ConnectionOutcome::Unspecified) | Err(_) => Err(unknown("connection outcome", number)),
    }
}

fn unknown(what: &str, number: i32) -> Fault {
    ("unknown_word", format!("{what} {number} is not a number this version knows"))
}
