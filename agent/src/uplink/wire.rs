//! Facts as the wire has them.

use std::net::IpAddr;

use parallax_decide::observation::{
    Connection, EndpointCheck, Family, Lane, LossReason, MissedReason, Outcome, Purpose, Resolution, Stage, Target,
};
use parallax_proto::{
    ADDRESSES_MAX, ATTEMPTS_MAX, CHAIN_MAX, FIRST_BYTES_MAX, HOPS_MAX, NSID_BYTES_MAX, ODD_REPLIES_MAX, TEXT_BYTES_MAX,
    v1,
};
use prost::Message as _;

use crate::clock::micros;
use crate::measured::{
    Attempt, Carrier, ConnectionParticulars, EndpointParticulars, Hop, Life, LifeTrouble, Measured, OddKind, OddReply,
    Reason, ReplyParticulars, ResolutionParticulars, Validation, What,
};
use crate::spool::{Content, Loss, Row};

/// A fact encoded for the spool, without number and age.
#[must_use]
pub fn observation(reason: Reason, measured: &Measured) -> Vec<u8> {
    v1::Observation {
        sequence: 0,
        age_ms: 0,
        purpose: purpose(reason.purpose).into(),
        task_id: reason.task_id,
        duration_us: micros(measured.duration),
        fact: Some(fact(&measured.what)),
    }
    .encode_to_vec()
}

/// A spooled row as it is sent now; `None` when its bytes are no observation.
#[must_use]
pub fn row(row: &Row, now_ms: u64) -> Option<v1::Observation> {
    let mut observation = match &row.content {
        Content::Observation(bytes) => v1::Observation::decode(bytes.as_slice()).ok()?,
        Content::Loss(lost) => v1::Observation {
            purpose: v1::Purpose::Scheduled.into(),
            fact: Some(v1::observation::Fact::Loss(loss(lost, now_ms))),
            ..v1::Observation::default()
        },
    };
    observation.sequence = row.sequence;
    observation.age_ms = now_ms.saturating_sub(row.ended_ms);
    Some(observation)
}

/// What was lost, with ages as of now.
fn loss(loss: &Loss, now_ms: u64) -> v1::Loss {
    let now = i64::try_from(now_ms).unwrap_or(i64::MAX);
    let age_ms = |ended: i64| u64::try_from(now.saturating_sub(ended)).unwrap_or(0);
    v1::Loss {
        reason: match loss.reason {
            LossReason::Full => v1::LossReason::Full,
            LossReason::Old => v1::LossReason::Old,
            LossReason::Disk => v1::LossReason::Disk,
            LossReason::Damaged => v1::LossReason::Damaged,
        }
        .into(),
        count: loss.count,
        first_age_ms: age_ms(loss.ended_ms.0),
        last_age_ms: age_ms(loss.ended_ms.1),
        lane: lane(loss.lane).into(),
        first_sequence: loss.sequences.0,
        last_sequence: loss.sequences.1,
        boot_id: loss.boot.to_string(),
    }
}

/// A lane as the wire has it.
#[must_use]
pub fn lane(lane: Lane) -> v1::Lane {
    match lane {
        Lane::Urgent => v1::Lane::Urgent,
        Lane::Routine => v1::Lane::Routine,
    }
}

/// An address as bytes.
#[must_use]
pub fn address(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn fact(what: &What) -> v1::observation::Fact {
    use v1::observation::Fact as Wire;

    match what {
        What::Resolution(fact, kept) => Wire::Resolution(resolution(fact, kept)),
        What::Connection(fact, kept) => Wire::Connection(connection(fact, kept)),
        What::EndpointCheck(fact, kept) => Wire::EndpointCheck(endpoint_check(fact, kept)),
        What::ControlCheck(fact, kept) => Wire::ControlCheck(v1::ControlCheck {
            control: fact.control.to_string(),
            outcome: outcome(fact.outcome).into(),
            address: kept.address.map(address).unwrap_or_default(),
            failures: kept.failures,
            checks: kept.checks,
            clock_offset_ms: kept.clock_offset_ms,
            http_status: kept.http_status.into(),
            tcp_us: micros(kept.tcp),
            tls_us: micros(kept.tls),
        }),
        What::Path(fact, kept) => Wire::Path(v1::Path {
            address: address(fact.address),
            port: kept.port.into(),
            outcome: outcome(fact.outcome).into(),
            hops: kept.hops.iter().take(HOPS_MAX).map(hop).collect(),
            path_mtu: kept.mtu,
        }),
        What::Missed(fact, what) => Wire::Missed(v1::Missed {
            reason: match fact.reason {
                MissedReason::Overrun => v1::MissedReason::Overrun,
                MissedReason::Paused => v1::MissedReason::Paused,
                MissedReason::Busy => v1::MissedReason::Busy,
                MissedReason::Limited => v1::MissedReason::Limited,
                MissedReason::Throttled => v1::MissedReason::Throttled,
                MissedReason::GivenUp => v1::MissedReason::GivenUp,
                MissedReason::Broken => v1::MissedReason::Broken,
            }
            .into(),
            what: what.clone(),
            count: fact.count,
        }),
    }
}

fn resolution(fact: &Resolution, kept: &ResolutionParticulars) -> v1::Resolution {
    let addresses = if fact.addresses.is_empty() { &kept.addresses_not_used } else { &fact.addresses };
    v1::Resolution {
        name: fact.name.to_string(),
        resolver: fact.resolver.to_string(),
        family: family(fact.family).into(),
        outcome: outcome(fact.outcome).into(),
        addresses: addresses.iter().copied().take(ADDRESSES_MAX).map(address).collect(),
        ttl_s: fact.ttl_s,
        ede_plus_one: kept.extended_error.map_or(0, |code| u32::from(code) + 1),
        authentic_data: kept.authentic_data,
        reply: kept.reply.as_ref().map(reply),
        odd_replies: kept.odd_replies.iter().take(ODD_REPLIES_MAX).map(odd_reply).collect(),
        validation: kept
            .validation
            .map_or(v1::Validation::Unspecified, |found| match found {
                Validation::Secure => v1::Validation::Secure,
                Validation::Insecure => v1::Validation::Insecure,
                Validation::Bogus => v1::Validation::Bogus,
                Validation::Indeterminate => v1::Validation::Indeterminate,
            })
            .into(),
        server: kept.server.map(address).unwrap_or_default(),
        addresses_skipped: kept.addresses_skipped,
        remark: cut(&kept.remark),
    }
}

fn reply(kept: &ReplyParticulars) -> v1::Reply {
    v1::Reply {
        chain: kept.chain.iter().take(CHAIN_MAX).cloned().collect(),
        ttls_s: kept.ttls_s.iter().copied().take(ADDRESSES_MAX).collect(),
        rcode: kept.rcode.into(),
        flags: kept.flags.into(),
        nsid: kept.nsid.iter().copied().take(NSID_BYTES_MAX).collect(),
        size: kept.size,
        trailing: kept.trailing,
        transport: kept
            .transport
            .map_or(v1::Transport::Unspecified, |carrier| match carrier {
                Carrier::Udp => v1::Transport::Udp,
                Carrier::Tcp => v1::Transport::Tcp,
                Carrier::Tls => v1::Transport::Tls,
                Carrier::Http1 => v1::Transport::Http1,
                Carrier::Http2 => v1::Transport::Http2,
            })
            .into(),
        truncated: kept.truncated,
        without_edns: kept.without_edns,
        reconnected: kept.reconnected,
        negative_ttl_plus_one: kept.negative_ttl_s.map_or(0, |ttl| ttl.saturating_add(1)),
        first_bytes: kept.first_bytes.iter().copied().take(FIRST_BYTES_MAX).collect(),
    }
}

fn odd_reply(odd: &OddReply) -> v1::OddReply {
    v1::OddReply {
        kind: match odd.kind {
            OddKind::Repeated => v1::OddKind::Repeated,
            OddKind::Different => v1::OddKind::Different,
            OddKind::WithoutQuestion => v1::OddKind::WithoutQuestion,
            OddKind::OtherQuestion => v1::OddKind::OtherQuestion,
            OddKind::OtherId => v1::OddKind::OtherId,
            OddKind::FromElsewhere => v1::OddKind::FromElsewhere,
            OddKind::Malformed => v1::OddKind::Malformed,
        }
        .into(),
        after_us: micros(odd.after),
        addresses: odd.addresses.iter().copied().take(ODD_REPLIES_MAX).map(address).collect(),
    }
}

fn life(life: &Life) -> v1::LifeProof {
    match life {
        Life::Signed { issued_ms, maker, key, signature } => v1::LifeProof {
            issued_ms: *issued_ms,
            maker: maker.clone(),
            key: key.clone(),
            signature: signature.clone(),
            trouble: v1::LifeTrouble::Unspecified.into(),
        },
        Life::Missing(trouble) => {
            let trouble = match trouble {
                LifeTrouble::NoNonce => v1::LifeTrouble::NoNonce,
                LifeTrouble::NotAsked => v1::LifeTrouble::NotAsked,
                LifeTrouble::NotReached => v1::LifeTrouble::NotReached,
                LifeTrouble::NoAnswer => v1::LifeTrouble::NoAnswer,
                LifeTrouble::Mismatch => v1::LifeTrouble::Mismatch,
            };
            v1::LifeProof { trouble: trouble.into(), ..v1::LifeProof::default() }
        }
    }
}

fn connection(fact: &Connection, kept: &ConnectionParticulars) -> v1::Connection {
    v1::Connection {
        target: Some(match &fact.target {
            Target::Name(name) => v1::connection::Target::Name(name.to_string()),
            Target::Node(node) => v1::connection::Target::Node(node.to_string()),
        }),
        address: address(fact.address),
        port: fact.port.into(),
        outcome: outcome(fact.outcome).into(),
        attempts: fact.attempts.into(),
        attempts_connected: fact.attempts_connected.into(),
        tcp_us: micros(kept.tcp),
        tls_us: micros(kept.tls),
        http_us: micros(kept.http),
        http_status: kept.http_status.into(),
        body_bytes: kept.body_bytes,
        attempt: kept.attempts.iter().take(ATTEMPTS_MAX).map(attempt).collect(),
        certificate_sha256: kept.certificate.map(Vec::from).unwrap_or_default(),
        small_segments: kept.small_segments.map_or(v1::Outcome::Unspecified, outcome).into(),
        life: kept.life.as_deref().map(life),
    }
}

fn attempt(one: &Attempt) -> v1::Attempt {
    v1::Attempt {
        started_ms: u32::try_from(one.started.as_millis()).unwrap_or(u32::MAX),
        outcome: outcome(one.outcome).into(),
        duration_us: micros(one.duration),
    }
}

fn endpoint_check(fact: &EndpointCheck, kept: &EndpointParticulars) -> v1::EndpointCheck {
    let answer = |asked: Option<Outcome>| asked.map_or(v1::Outcome::Unspecified, outcome).into();
    v1::EndpointCheck {
        resolver: fact.resolver.to_string(),
        address: address(fact.address),
        stage: stage(fact.stage).into(),
        outcome: outcome(fact.outcome).into(),
        tcp_us: micros(kept.stages.tcp),
        tls_us: micros(kept.stages.tls),
        http_us: micros(kept.stages.http),
        http_status: kept.http_status.into(),
        bootstrap_us: micros(kept.stages.bootstrap),
        dns_us: micros(kept.stages.dns),
        fresh: answer(fact.fresh),
        missing: answer(fact.missing),
        worked_before: fact.worked_before,
        retry_after_plus_one: kept
            .retry_after
            .map_or(0, |wait| u32::try_from(wait.as_secs()).unwrap_or(u32::MAX).saturating_add(1)),
        certificate_sha256: kept.certificate.map(Vec::from).unwrap_or_default(),
        remark: cut(&kept.remark),
    }
}

/// A text within the wire's limit, cut between two characters.
fn cut(text: &str) -> String {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

fn hop(hop: &Hop) -> v1::Hop {
    v1::Hop { ttl: hop.ttl.into(), address: hop.address.map(address).unwrap_or_default(), rtt_us: micros(hop.rtt) }
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

fn outcome(outcome: Outcome) -> v1::Outcome {
    use Outcome as Ours;
    use v1::Outcome as Wire;
    match outcome {
        Ours::Answered => Wire::Answered,
        Ours::TlsOk => Wire::TlsOk,
        Ours::TcpOk => Wire::TcpOk,
        Ours::HttpOk => Wire::HttpOk,
        Ours::Empty => Wire::Empty,
        Ours::DanglingCname => Wire::DanglingCname,
        Ours::Referral => Wire::Referral,
        Ours::Nxdomain => Wire::Nxdomain,
        Ours::Servfail => Wire::Servfail,
        Ours::Refused => Wire::Refused,
        Ours::Formerr => Wire::Formerr,
        Ours::OtherRcode => Wire::OtherRcode,
        Ours::Malformed => Wire::Malformed,
        Ours::CnameLoop => Wire::CnameLoop,
        Ours::TruncatedTcpFailed => Wire::TruncatedTcpFailed,
        Ours::TruncatedTcpTimeout => Wire::TruncatedTcpTimeout,
        Ours::DnsSilent => Wire::DnsSilent,
        Ours::DnsClosed => Wire::DnsClosed,
        Ours::ConnectionRefused => Wire::ConnectionRefused,
        Ours::Silent => Wire::Silent,
        Ours::HostUnreachable => Wire::HostUnreachable,
        Ours::NetUnreachable => Wire::NetUnreachable,
        Ours::AdminProhibited => Wire::AdminProhibited,
        Ours::Reset => Wire::Reset,
        Ours::TlsSilent => Wire::TlsSilent,
        Ours::TlsReset => Wire::TlsReset,
        Ours::TlsAlert => Wire::TlsAlert,
        Ours::TlsNotSpoken => Wire::TlsNotSpoken,
        Ours::CertificateName => Wire::CertificateName,
        Ours::CertificateAuthority => Wire::CertificateAuthority,
        Ours::CertificateExpired => Wire::CertificateExpired,
        Ours::CertificateNotYetValid => Wire::CertificateNotYetValid,
        Ours::CertificateInvalid => Wire::CertificateInvalid,
        Ours::PmtuBlackhole => Wire::PmtuBlackhole,
        Ours::HttpSilent => Wire::HttpSilent,
        Ours::HttpClosed => Wire::HttpClosed,
        Ours::HttpStatus => Wire::HttpStatus,
        Ours::HttpThrottled => Wire::HttpThrottled,
        Ours::HttpUnsupported => Wire::HttpUnsupported,
        Ours::HttpRedirect => Wire::HttpRedirect,
        Ours::HttpNotDns => Wire::HttpNotDns,
        Ours::HttpEmpty => Wire::HttpEmpty,
        Ours::HttpTooLarge => Wire::HttpTooLarge,
        Ours::HttpStalled => Wire::HttpStalled,
        Ours::HttpMalformed => Wire::HttpMalformed,
        Ours::FamilyUnavailable => Wire::FamilyUnavailable,
        Ours::NoRoute => Wire::NoRoute,
        Ours::NoResolver => Wire::NoResolver,
        Ours::OwnTrouble => Wire::OwnTrouble,
        Ours::RateLimited => Wire::RateLimited,
        Ours::RefusedByPolicy => Wire::RefusedByPolicy,
        Ours::SpecialAddress => Wire::SpecialAddress,
        Ours::PathReached => Wire::PathReached,
        Ours::PathLost => Wire::PathLost,
        Ours::Lost => Wire::Lost,
        Ours::Missed => Wire::Missed,
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

#[cfg(test)]
mod tests;
