//! Facts as the wire has them.

use std::net::IpAddr;

use parallax_decide::observation::{
    ConnectionOutcome, Fact, Family, Purpose, ResolutionOutcome, Stage, StageOutcome, Target,
};
use parallax_proto::v1;
use prost::Message as _;

use crate::clock::micros;
use crate::measured::{Measured, Reason};
use crate::spool::segment::Row;

/// A fact encoded for the spool, without number and age.
#[must_use]
pub fn observation(reason: Reason, measured: &Measured) -> Vec<u8> {
    v1::Observation {
        sequence: 0,
        age_ms: 0,
        purpose: purpose(reason.purpose).into(),
        task_id: reason.task_id,
        duration_us: micros(measured.duration),
        fact: Some(fact(measured)),
    }
    .encode_to_vec()
}

/// A spooled row as it is sent now; `None` when its bytes are no observation.
#[must_use]
pub fn row(row: &Row, now_ms: u64) -> Option<v1::Observation> {
    let mut observation = v1::Observation::decode(row.observation.as_slice()).ok()?;
    observation.sequence = row.sequence;
    observation.age_ms = now_ms.saturating_sub(row.ended_ms);
    Some(observation)
}

/// An address as bytes.
#[must_use]
pub fn address(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn fact(measured: &Measured) -> v1::observation::Fact {
    use v1::observation::Fact as Wire;

    let details = &measured.details;
    match &measured.fact {
        Fact::Resolution(resolution) => Wire::Resolution(v1::Resolution {
            name: resolution.name.to_string(),
            resolver: resolution.resolver.to_string(),
            family: family(resolution.family).into(),
            outcome: resolution_outcome(resolution.outcome).into(),
            addresses: resolution.addresses.iter().copied().map(address).collect(),
            ttl_s: resolution.ttl_s,
            ede_plus_one: details.extended_error.map_or(0, |code| u32::from(code) + 1),
            authentic_data: details.authentic_data,
        }),
        Fact::Connection(connection) => Wire::Connection(v1::Connection {
            target: Some(match &connection.target {
                Target::Name(name) => v1::connection::Target::Name(name.to_string()),
                Target::Node(node) => v1::connection::Target::Node(node.to_string()),
            }),
            address: address(connection.address),
            port: connection.port.into(),
            outcome: connection_outcome(connection.outcome).into(),
            attempts: connection.attempts.into(),
            attempts_connected: connection.attempts_connected.into(),
            tcp_us: micros(details.tcp),
            tls_us: micros(details.tls),
        }),
        Fact::EndpointCheck(check) => Wire::EndpointCheck(v1::EndpointCheck {
            resolver: check.resolver.to_string(),
            address: address(check.address),
            stage: stage(check.stage).into(),
            outcome: stage_outcome(check.outcome).into(),
            tcp_us: micros(details.tcp),
            tls_us: micros(details.tls),
            http_us: micros(details.http),
            http_status: details.http_status.into(),
        }),
        Fact::ControlCheck(check) => Wire::ControlCheck(v1::ControlCheck {
            control: check.control.to_string(),
            outcome: connection_outcome(check.outcome).into(),
        }),
    }
}

fn purpose(purpose: Purpose) -> v1::Purpose {
    match purpose {
        Purpose::Scheduled => v1::Purpose::Scheduled,
        Purpose::Confirm => v1::Purpose::Confirm,
        Purpose::CrossCheck => v1::Purpose::CrossCheck,
        Purpose::Verify => v1::Purpose::Verify,
    }
}

fn family(family: Family) -> v1::Family {
    match family {
        Family::V4 => v1::Family::V4,
        Family::V6 => v1::Family::V6,
    }
}

fn resolution_outcome(outcome: ResolutionOutcome) -> v1::ResolutionOutcome {
    use ResolutionOutcome as Ours;
    use v1::ResolutionOutcome as Wire;
    match outcome {
        Ours::Answered => Wire::Answered,
        Ours::Empty => Wire::Empty,
        Ours::Nxdomain => Wire::Nxdomain,
        Ours::Servfail => Wire::Servfail,
        Ours::Refused => Wire::Refused,
        Ours::OtherRcode => Wire::OtherRcode,
        Ours::Timeout => Wire::Timeout,
        Ours::Unreachable => Wire::Unreachable,
        Ours::TlsFailed => Wire::TlsFailed,
        Ours::HttpFailed => Wire::HttpFailed,
        Ours::Malformed => Wire::Malformed,
        Ours::OwnTrouble => Wire::OwnTrouble,
        Ours::RefusedByPolicy => Wire::RefusedByPolicy,
    }
}

fn connection_outcome(outcome: ConnectionOutcome) -> v1::ConnectionOutcome {
    use ConnectionOutcome as Ours;
    use v1::ConnectionOutcome as Wire;
    match outcome {
        Ours::TlsOk => Wire::TlsOk,
        Ours::TcpOk => Wire::TcpOk,
        Ours::Refused => Wire::Refused,
        Ours::Silent => Wire::Silent,
        Ours::HostUnreachable => Wire::HostUnreachable,
        Ours::NetUnreachable => Wire::NetUnreachable,
        Ours::TlsSilent => Wire::TlsSilent,
        Ours::TlsReset => Wire::TlsReset,
        Ours::TlsAlert => Wire::TlsAlert,
        Ours::CertificateName => Wire::CertificateName,
        Ours::CertificateAuthority => Wire::CertificateAuthority,
        Ours::CertificateTime => Wire::CertificateTime,
        Ours::FamilyUnavailable => Wire::FamilyUnavailable,
        Ours::OwnTrouble => Wire::OwnTrouble,
        Ours::RefusedByPolicy => Wire::RefusedByPolicy,
    }
}

fn stage(stage: Stage) -> v1::Stage {
    match stage {
        Stage::Bootstrap => v1::Stage::Bootstrap,
        Stage::Tcp => v1::Stage::Tcp,
        Stage::Tls => v1::Stage::Tls,
        Stage::Http => v1::Stage::Http,
        Stage::Dns => v1::Stage::Dns,
    }
}

fn stage_outcome(outcome: StageOutcome) -> v1::StageOutcome {
    use StageOutcome as Ours;
    use v1::StageOutcome as Wire;
    match outcome {
        Ours::Ok => Wire::Ok,
        Ours::Refused => Wire::Refused,
        Ours::Reset => Wire::Reset,
        Ours::Timeout => Wire::Timeout,
        Ours::Unreachable => Wire::Unreachable,
        Ours::Certificate => Wire::Certificate,
        Ours::Alert => Wire::Alert,
        Ours::Status => Wire::Status,
        Ours::Malformed => Wire::Malformed,
        Ours::Servfail => Wire::Servfail,
        Ours::RefusedRcode => Wire::RefusedRcode,
        Ours::Empty => Wire::Empty,
        Ours::OwnTrouble => Wire::OwnTrouble,
        Ours::RefusedByPolicy => Wire::RefusedByPolicy,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parallax_decide::observation::{ControlCheck, Resolution};

    use super::*;
    use crate::measured::Details;

    #[test]
    fn number_and_age_are_added_when_a_row_is_sent() {
        let fact = Fact::Resolution(Resolution {
            name: "example.com".parse().unwrap(),
            resolver: "live".parse().unwrap(),
            family: Family::V6,
            outcome: ResolutionOutcome::Answered,
            addresses: vec!["2606:4700::1".parse().unwrap(), "8.6.112.0".parse().unwrap()],
            ttl_s: 60,
        });
        let details = Details { extended_error: Some(0), authentic_data: true, ..Details::default() };
        let measured = Measured { fact, details, duration: Duration::from_millis(3) };
        let encoded = observation(Reason::CONFIRM, &measured);
        let sent = row(&Row { sequence: 9, ended_ms: 1000, observation: encoded }, 1500).unwrap();
        assert_eq!((sent.sequence, sent.age_ms, sent.duration_us), (9, 500, 3000));
        assert_eq!(sent.purpose(), v1::Purpose::Confirm);
        let Some(v1::observation::Fact::Resolution(resolution)) = sent.fact else { panic!("{sent:?}") };
        assert_eq!(resolution.addresses.iter().map(Vec::len).collect::<Vec<_>>(), [16, 4]);
        assert_eq!(resolution.ede_plus_one, 1, "code 0 is a code");
    }

    #[test]
    fn a_clock_that_went_back_makes_no_negative_age_and_rubbish_no_row() {
        let fact =
            Fact::ControlCheck(ControlCheck { control: "a".parse().unwrap(), outcome: ConnectionOutcome::TcpOk });
        let measured = Measured { fact, details: Details::default(), duration: Duration::ZERO };
        let observation = observation(Reason::SCHEDULED, &measured);
        assert_eq!(row(&Row { sequence: 1, ended_ms: 5000, observation }, 10).unwrap().age_ms, 0);
        assert!(row(&Row { sequence: 1, ended_ms: 0, observation: vec![0xff; 9] }, 10).is_none());
    }

    #[test]
    fn no_outcome_becomes_the_word_for_nothing() {
        for outcome in ConnectionOutcome::ALL {
            assert_ne!(connection_outcome(*outcome), v1::ConnectionOutcome::Unspecified);
        }
        for outcome in ResolutionOutcome::ALL {
            assert_ne!(resolution_outcome(*outcome), v1::ResolutionOutcome::Unspecified);
        }
        for outcome in StageOutcome::ALL {
            assert_ne!(stage_outcome(*outcome), v1::StageOutcome::Unspecified);
        }
    }
}
