//! Tasks as the wire says them, and reports as we understand them.

use std::net::IpAddr;
use std::time::Duration;

use parallax_decide::observation::{Purpose, Target};
use parallax_proto::{ADDRESSES_MAX, TEXT_BYTES_MAX, v1};

use super::assignment::octets;
use crate::hub::{ChangeOutcome, ChangeReport, ChangeTask, LocalChange, Task, TaskId, Work};

/// The word for why a node gave no proof of life; none: nothing is said, or by an agent that knows more words.
#[must_use]
pub fn life_trouble(wire: i32) -> Option<&'static str> {
    match v1::LifeTrouble::try_from(wire) {
        Ok(v1::LifeTrouble::NoNonce) => Some("no_nonce"),
        Ok(v1::LifeTrouble::NotAsked) => Some("not_asked"),
        Ok(v1::LifeTrouble::NotReached) => Some("not_reached"),
        Ok(v1::LifeTrouble::NoAnswer) => Some("no_answer"),
        Ok(v1::LifeTrouble::Mismatch) => Some("mismatch"),
        Ok(v1::LifeTrouble::Unspecified) | Err(_) => None,
    }
}

/// A request for evidence.
#[must_use]
pub fn task(id: TaskId, task: &Task) -> v1::Task {
    let work = match &task.work {
        Work::Connect { target, address, repeat, gap } => v1::task::Work::Connect(v1::ConnectTask {
            target: Some(match target {
                Target::Name(name) => v1::connect_task::Target::Name(name.to_string()),
                Target::Node(node) => v1::connect_task::Target::Node(node.to_string()),
            }),
            address: octets(*address),
            repeat: *repeat,
            gap_ms: ms(*gap),
        }),
        Work::Resolve { name, resolver, connect } => v1::task::Work::Resolve(v1::ResolveTask {
            name: name.to_string(),
            resolver: resolver.to_string(),
            connect: *connect,
        }),
        Work::Path { target, address } => v1::task::Work::Path(v1::PathTask {
            target: Some(match target {
                Target::Name(name) => v1::path_task::Target::Name(name.to_string()),
                Target::Node(node) => v1::path_task::Target::Node(node.to_string()),
            }),
            address: octets(*address),
        }),
    };
    v1::Task {
        task_id: id.0,
        deadline_ms: ms(task.deadline),
        work: Some(work),
        purpose: match task.purpose {
            Purpose::Scheduled => v1::Purpose::Scheduled,
            Purpose::Confirm => v1::Purpose::Confirm,
            Purpose::CrossCheck => v1::Purpose::CrossCheck,
            Purpose::Verify => v1::Purpose::Verify,
        }
        .into(),
    }
}

/// A change, under an epoch with its generation.
#[must_use]
pub fn change(id: TaskId, task: &ChangeTask, epoch: u64, deadline: Duration) -> v1::Task {
    let change = match &task.change {
        LocalChange::Pin { name, addresses, ttl_s, expires_in } => v1::change_task::Change::Pin(v1::Pin {
            name: name.to_string(),
            addresses: addresses.iter().map(octets).collect(),
            ttl_s: *ttl_s,
            expires_in_ms: u64::try_from(expires_in.as_millis()).unwrap_or(u64::MAX),
        }),
        LocalChange::Unpin { name, expects } => v1::change_task::Change::Unpin(v1::Unpin {
            name: name.to_string(),
            expects: expects.iter().map(octets).collect(),
        }),
        LocalChange::Read { name } => v1::change_task::Change::Read(v1::ReadPin { name: name.to_string() }),
    };
    v1::Task {
        task_id: id.0,
        deadline_ms: ms(deadline),
        work: Some(v1::task::Work::Change(v1::ChangeTask {
            plan_id: task.plan_id.unsigned_abs(),
            epoch,
            change: Some(change),
        })),
        purpose: v1::Purpose::Verify.into(),
    }
}

/// What became of a change, or what is wrong with the report.
///
/// # Errors
/// A word for the reason and the particulars.
pub fn report(report: &v1::ChangeReport) -> Result<(TaskId, ChangeReport), (&'static str, String)> {
    let outcome = match v1::ChangeOutcome::try_from(report.outcome) {
        Ok(v1::ChangeOutcome::Applied) => ChangeOutcome::Applied,
        Ok(v1::ChangeOutcome::Already) => ChangeOutcome::Already,
        Ok(v1::ChangeOutcome::Conflict) => ChangeOutcome::Conflict,
        Ok(v1::ChangeOutcome::Refused) => ChangeOutcome::Refused,
        Ok(v1::ChangeOutcome::Failed) => ChangeOutcome::Failed,
        Ok(v1::ChangeOutcome::Uncertain) => ChangeOutcome::Uncertain,
        Ok(v1::ChangeOutcome::Read) => ChangeOutcome::Read,
        Ok(v1::ChangeOutcome::Unspecified) | Err(_) => {
            return Err(("unknown_word", format!("outcome {} of a change report", report.outcome)));
        }
    };
    if report.found.len() > ADDRESSES_MAX || report.detail.len() > TEXT_BYTES_MAX {
        return Err(("too_large", "change report with too many addresses or too long a detail".to_owned()));
    }
    let found = report.found.iter().map(|bytes| address(bytes)).collect::<Result<_, _>>()?;
    let detail = report.detail.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    Ok((TaskId(report.task_id), ChangeReport { outcome, found, detail }))
}

/// An address of the wire.
///
/// # Errors
/// When it has neither 4 nor 16 bytes.
pub fn address(bytes: &[u8]) -> Result<IpAddr, (&'static str, String)> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Ok(v4.into());
    }
    match <[u8; 16]>::try_from(bytes) {
        Ok(v6) => Ok(v6.into()),
        Err(_) => Err(("bad_address", format!("an address of {} bytes", bytes.len()))),
    }
}

fn ms(span: Duration) -> u32 {
    u32::try_from(span.as_millis()).unwrap_or(u32::MAX)
}
