//! Tasks from the wire, and reports to it.

use std::net::IpAddr;
use std::time::Duration;

use parallax_decide::names::{Addresses, DomainName};
use parallax_decide::observation::{Purpose, Target};
use parallax_proto::{LIFE_NAME_BYTES, v1};

use super::wire;
use crate::assignment::wire::address;
use crate::life::LifeNonce;
use crate::pins::{Order, Outcome, Report, What};
use crate::tasks::{REPEAT_MAX, TASK_MAX, Task, Work};

/// Largest TTL of a pin, in seconds: clients keep its addresses so long after it was taken away.
const TTL_S_MAX: u32 = 3600;

/// What nodes shall sign, as a coordinator says it; `None`: it is none.
#[must_use]
pub fn life_nonce(wire: &v1::LifeNonce) -> Option<LifeNonce> {
    let named = wire.maker.len() == LIFE_NAME_BYTES;
    let nonce = wire.nonce.as_slice().try_into().ok().filter(|_| named)?;
    Some(LifeNonce { issued_ms: wire.issued_ms, maker: wire.maker.clone(), nonce })
}

/// A task that is not taken. A change is answered; what else cannot be read is only logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotTaken {
    /// Why.
    pub why: String,
    /// The answer, when the task was a change.
    pub report: Option<Report>,
}

/// Reads a task.
///
/// # Errors
/// When it is not valid.
pub fn task(wire: v1::Task) -> Result<Task, NotTaken> {
    let report = match &wire.work {
        Some(v1::task::Work::Change(change)) => Some((wire.task_id, change.plan_id)),
        Some(v1::task::Work::Connect(_) | v1::task::Work::Resolve(_) | v1::task::Work::Path(_)) | None => None,
    };
    read(wire).map_err(|why| {
        let report = report.map(|(task_id, plan_id)| Report {
            task_id,
            plan_id,
            outcome: Outcome::Refused,
            found: Vec::new(),
            detail: format!("the task is not valid: {why}"),
        });
        NotTaken { why, report }
    })
}

fn read(wire: v1::Task) -> Result<Task, String> {
    let purpose = match v1::Purpose::try_from(wire.purpose) {
        Ok(v1::Purpose::CrossCheck) => Purpose::CrossCheck,
        Ok(v1::Purpose::Verify) => Purpose::Verify,
        Ok(v1::Purpose::Confirm) => Purpose::Confirm,
        Ok(v1::Purpose::Scheduled) => Purpose::Scheduled,
        // A change is not measured, so it needs no purpose.
        Ok(v1::Purpose::Unspecified) if matches!(wire.work, Some(v1::task::Work::Change(_))) => Purpose::Verify,
        Ok(v1::Purpose::Unspecified) | Err(_) => return Err(format!("its purpose {} is not known", wire.purpose)),
    };
    let work = match wire.work.ok_or("its work is not known to this agent")? {
        v1::task::Work::Connect(connect) => Work::Connect {
            target: match connect.target.ok_or("it names no target")? {
                v1::connect_task::Target::Name(name) => Target::Name(parsed(&name)?),
                v1::connect_task::Target::Node(node) => Target::Node(node.parse().map_err(text)?),
            },
            address: address(&connect.address).ok_or("its address has neither 4 nor 16 bytes")?,
            repeat: connect.repeat.clamp(1, REPEAT_MAX),
            gap: Duration::from_millis(connect.gap_ms.into()),
        },
        v1::task::Work::Resolve(resolve) => Work::Resolve {
            name: parsed(&resolve.name)?,
            resolver: resolve.resolver.parse().map_err(text)?,
            connect: resolve.connect,
        },
        v1::task::Work::Path(path) => Work::Path {
            target: match path.target.ok_or("it names no target")? {
                v1::path_task::Target::Name(name) => Target::Name(parsed(&name)?),
                v1::path_task::Target::Node(node) => Target::Node(node.parse().map_err(text)?),
            },
            address: address(&path.address).ok_or("its address has neither 4 nor 16 bytes")?,
        },
        v1::task::Work::Change(change) => Work::Change(order(change)?),
    };
    let deadline = Duration::from_millis(wire.deadline_ms.into()).min(TASK_MAX);
    Ok(Task { id: wire.task_id, deadline, purpose, work })
}

fn order(wire: v1::ChangeTask) -> Result<Order, String> {
    use v1::change_task::Change as Wire;

    let what = match wire.change.ok_or("its change is not known to this agent")? {
        Wire::Pin(pin) => {
            if pin.ttl_s > TTL_S_MAX {
                return Err(format!(
                    "its TTL is {} s; clients would keep the pin for up to that after its end, at most {TTL_S_MAX} s",
                    pin.ttl_s
                ));
            }
            if pin.expires_in_ms == 0 {
                return Err("it has no expiry; every pin must have one".to_owned());
            }
            What::Pin {
                name: parsed(&pin.name)?,
                addresses: set(&pin.addresses)?,
                ttl_s: pin.ttl_s,
                life: Duration::from_millis(pin.expires_in_ms),
            }
        }
        Wire::Unpin(unpin) => What::Unpin { name: parsed(&unpin.name)?, expects: set(&unpin.expects)? },
        Wire::Read(read) => What::Read { name: parsed(&read.name)? },
    };
    Ok(Order { plan_id: wire.plan_id, epoch: wire.epoch, what })
}

fn parsed(name: &str) -> Result<DomainName, String> {
    name.parse().map_err(text)
}

fn set(addresses: &[Vec<u8>]) -> Result<Addresses, String> {
    let addresses: Option<Vec<IpAddr>> = addresses.iter().map(|bytes| address(bytes)).collect();
    Addresses::new(addresses.ok_or("an address has neither 4 nor 16 bytes")?).map_err(text)
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

/// A report as the wire has it.
#[must_use]
pub fn report(report: &Report) -> v1::ChangeReport {
    let outcome = match report.outcome {
        Outcome::Applied => v1::ChangeOutcome::Applied,
        Outcome::Already => v1::ChangeOutcome::Already,
        Outcome::Conflict => v1::ChangeOutcome::Conflict,
        Outcome::Refused => v1::ChangeOutcome::Refused,
        Outcome::Failed => v1::ChangeOutcome::Failed,
        Outcome::Uncertain => v1::ChangeOutcome::Uncertain,
        Outcome::Read => v1::ChangeOutcome::Read,
    };
    v1::ChangeReport {
        task_id: report.task_id,
        plan_id: report.plan_id,
        outcome: outcome.into(),
        found: report.found.iter().copied().map(wire::address).collect(),
        detail: shortened(&report.detail),
    }
}

/// At most [`parallax_proto::TEXT_BYTES_MAX`] bytes, cut between characters.
fn shortened(text: &str) -> String {
    let mut end = text.len().min(parallax_proto::TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(change: v1::change_task::Change) -> v1::Task {
        let work = v1::ChangeTask { plan_id: 5, epoch: 2, change: Some(change) };
        v1::Task { task_id: 9, deadline_ms: 3000, work: Some(v1::task::Work::Change(work)), purpose: 0 }
    }

    #[test]
    fn a_pin_becomes_an_order() {
        let pin = v1::Pin {
            name: "example.com".into(),
            addresses: vec![vec![104, 26, 4, 10]],
            ttl_s: 5,
            expires_in_ms: 60_000,
        };
        let task = task(change(v1::change_task::Change::Pin(pin))).unwrap();
        let Work::Change(order) = task.work else { panic!("{task:?}") };
        assert_eq!((order.plan_id, order.epoch), (5, 2));
        assert!(matches!(order.what, What::Pin { life, .. } if life == Duration::from_secs(60)));
    }

    #[test]
    fn a_change_that_is_not_valid_is_answered() {
        for addresses in [vec![], vec![vec![127, 0, 0, 1]], vec![vec![1, 2]]] {
            let pin = v1::Pin { name: "example.com".into(), addresses, ttl_s: 5, expires_in_ms: 60_000 };
            let report = task(change(v1::change_task::Change::Pin(pin))).unwrap_err().report.unwrap();
            assert_eq!((report.task_id, report.plan_id, report.outcome), (9, 5, Outcome::Refused));
        }
        for (ttl_s, expires_in_ms, part) in [(TTL_S_MAX + 1, 60_000, "TTL"), (5, 0, "expiry")] {
            let addresses = vec![vec![104, 26, 4, 10]];
            let pin = v1::Pin { name: "example.com".into(), addresses, ttl_s, expires_in_ms };
            let refused = task(change(v1::change_task::Change::Pin(pin))).unwrap_err();
            assert!(refused.why.contains(part), "{}", refused.why);
        }
    }

    #[test]
    fn a_measurement_needs_a_purpose_and_is_bounded() {
        let connect = v1::ConnectTask {
            target: Some(v1::connect_task::Target::Node("fi".into())),
            address: vec![95, 216, 10, 10],
            repeat: 4_000_000,
            gap_ms: 1,
        };
        let wire = v1::Task {
            task_id: 1,
            deadline_ms: u32::MAX,
            work: Some(v1::task::Work::Connect(connect)),
            purpose: v1::Purpose::CrossCheck.into(),
        };
        let task_ = task(wire.clone()).unwrap();
        assert_eq!(task_.deadline, TASK_MAX);
        assert!(matches!(task_.work, Work::Connect { repeat: REPEAT_MAX, .. }));
        assert!(task(v1::Task { purpose: 0, ..wire.clone() }).unwrap_err().report.is_none());
        assert!(task(v1::Task { work: None, ..wire }).is_err());
    }

    #[test]
    fn a_long_detail_is_cut_between_characters() {
        assert_eq!(shortened(&"ж".repeat(200)).len(), 254);
    }
}
