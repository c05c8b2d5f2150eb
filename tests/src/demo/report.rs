//! What `--json` prints: seconds from the moment each fault was injected, and memory.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::{Serialize, Serializer};

use crate::lab::layout::Kind;

/// The report of one run. Times are seconds.
#[derive(Debug, Serialize)]
pub struct Report {
    /// `namespaces` or `loopback`.
    pub world: &'static str,
    /// The policy it ran with.
    pub policy: &'static str,
    /// From the coordinator's start, its database made anew included, to the first verdict that compares vantages.
    #[serde(serialize_with = "seconds")]
    pub first_verdict_s: Option<f64>,
    /// From the pair's appearance to the verdict `answer_unroutable_here`.
    #[serde(serialize_with = "seconds")]
    pub unroutable_verdict_s: Option<f64>,
    /// From the pair's appearance to the last name pinned and proven through the branch's resolver.
    #[serde(serialize_with = "seconds")]
    pub pin_proven_s: Option<f64>,
    /// From the native answers' return to the last pin removed and that proven.
    #[serde(serialize_with = "seconds")]
    pub unpin_proven_s: Option<f64>,
    /// From the node's death to the record changed on the authority.
    #[serde(serialize_with = "seconds")]
    pub repoint_applied_s: Option<f64>,
    /// From the node's death to each vantage's resolver serving the new address, which connects.
    #[serde(serialize_with = "seconds")]
    pub repoint_seen_everywhere_s: Option<f64>,
    /// From the node's recovery to its record back on the authority.
    #[serde(serialize_with = "seconds")]
    pub return_applied_s: Option<f64>,
    /// From each blow to the holder of the lease to another coordinator's holding it; with two coordinators only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub takeovers_s: Vec<f64>,
    /// Largest resident set of each agent, KiB.
    pub agents_peak_rss_kib: BTreeMap<String, u64>,
    /// The coordinator's, without its Postgres, KiB.
    pub coordinator_peak_rss_kib: u64,
}

impl Report {
    /// An empty report.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self {
            world: kind.word(),
            policy: "fast",
            first_verdict_s: None,
            unroutable_verdict_s: None,
            pin_proven_s: None,
            unpin_proven_s: None,
            repoint_applied_s: None,
            repoint_seen_everywhere_s: None,
            return_applied_s: None,
            takeovers_s: Vec::new(),
            agents_peak_rss_kib: BTreeMap::new(),
            coordinator_peak_rss_kib: 0,
        }
    }

    /// Takes over the memory figures of the fleet.
    pub fn peaks(&mut self, mut peaks: BTreeMap<String, u64>) {
        self.coordinator_peak_rss_kib = peaks.remove("coordinator").unwrap_or_default();
        self.agents_peak_rss_kib = peaks;
    }

    /// One JSON object on one line.
    ///
    /// # Errors
    /// None is known; the type is plain data.
    pub fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string(self)?)
    }

    /// For people.
    #[must_use]
    pub fn summary(&self) -> String {
        let time = |t: Option<f64>| t.map_or_else(|| "-".to_owned(), |t| format!("{t:.1} s"));
        let agents: Vec<String> =
            self.agents_peak_rss_kib.iter().map(|(name, kib)| format!("{name} {:.1} MiB", mib(*kib))).collect();
        format!(
            "unroutable answer: found {} after the fault, pin proven {}, removed and proven {} after it healed\n\
             dead node: record moved {} after its death, seen from everywhere {}, back {} after its recovery\n\
             memory at most: coordinator {:.1} MiB, {}",
            time(self.unroutable_verdict_s),
            time(self.pin_proven_s),
            time(self.unpin_proven_s),
            time(self.repoint_applied_s),
            time(self.repoint_seen_everywhere_s),
            time(self.return_applied_s),
            mib(self.coordinator_peak_rss_kib),
            agents.join(", "),
        )
    }
}

fn mib(kib: u64) -> f64 {
    // Sizes of processes fit a double exactly.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let kib = kib as f64;
    kib / 1024.0
}

/// Milliseconds are as fine as the waiting is.
fn seconds<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.serialize_f64((value * 1000.0).round() / 1000.0),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_numbers_with_at_most_three_decimals() {
        let mut report = Report::new(Kind::Loopback);
        report.unroutable_verdict_s = Some(4.123_456);
        let json: serde_json::Value = serde_json::from_str(&report.to_json().unwrap()).unwrap();
        assert_eq!(json["unroutable_verdict_s"], serde_json::json!(4.123));
        assert_eq!(json["pin_proven_s"], serde_json::Value::Null);
        assert_eq!(json["world"], "loopback");
    }
}
