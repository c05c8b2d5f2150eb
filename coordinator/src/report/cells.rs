//! Rows and cells of the matrix: states from verdicts, numbers from the newest facts.

use std::net::IpAddr;

use parallax_decide::change::Change;
use parallax_decide::time::Timestamp;
use parallax_decide::verdict::VantageVerdict;

use super::SEEN_SLACK;
use super::matrix::{AddressNow, Cell, Line};
use super::moment::At;
use super::summary::Summary;
use crate::store::configured::Configured;
use crate::store::read::now::{AnswerFact, CellNow, ReachFact, VantageNow};
use crate::store::read::plan::PlanRow;
use crate::words::vantage::condition;
use crate::words::verdict::{answer_sentence, answer_state, answer_word, vantage_sentence, vantage_word};
use crate::words::{State, outcome};

/// What cells are drawn from.
pub(super) struct Facts<'a> {
    pub(super) configured: &'a Configured,
    pub(super) cells: Vec<CellNow>,
    pub(super) answers: Vec<AnswerFact>,
    pub(super) reached: Vec<ReachFact>,
    pub(super) pins: Vec<PlanRow>,
    pub(super) open: &'a [Summary],
}

impl Facts<'_> {
    /// The row of a vantage.
    pub(super) fn line(&self, vantage: &VantageNow, now: Timestamp) -> Line {
        let patience = self.configured.policy.silent_after() + SEEN_SLACK;
        let stale = vantage.last_seen_at.is_none_or(|at| now.since(at) > patience);
        let (words, sentence) = match (vantage.standing, vantage.last_seen_at) {
            (_, None) => ("never connected", "no agent has connected with this name yet"),
            (_, Some(_)) if stale => (vantage_word(VantageVerdict::Silent), vantage_sentence(VantageVerdict::Silent)),
            (Some(verdict), Some(_)) => (vantage_word(verdict), vantage_sentence(verdict)),
            (None, Some(_)) => ("not judged yet", "connected; nothing was judged yet"),
        };
        // Nothing is said from a place whose own standing forbids it, whatever an older row holds.
        let mute = |verdict: &VantageVerdict| {
            [VantageVerdict::Silent, VantageVerdict::Captive, VantageVerdict::UplinkDown].contains(verdict)
        };
        let muted = (stale || vantage.standing.as_ref().is_some_and(mute)).then_some((words, sentence));
        let place = self.configured.vantages.iter().find(|(name, _)| *name == vantage.name).map(|(_, place)| place);
        let cell = |item: &str, name: &str| self.cell(vantage, item, name, muted);
        Line {
            vantage: vantage.name.clone(),
            labels: place.map(|place| place.labels.clone()).unwrap_or_default(),
            configured: vantage.configured,
            standing: vantage.standing,
            standing_words: words,
            standing_sentence: sentence,
            standing_since: vantage.standing_since.map(At),
            controls: vantage
                .judgement
                .as_ref()
                .map(|j| (j.controls_reached.len(), j.controls_reached.len() + j.controls_failed.len())),
            clock_offset_ms: vantage.clock_offset_ms,
            controls_lately: vantage.controls_lately,
            condition: if stale { String::new() } else { condition(vantage.clock_offset_ms, vantage.controls_lately) },
            last_seen_at: vantage.last_seen_at.map(At),
            stale,
            agent_version: vantage.agent_version.clone(),
            coordinator: vantage.held_by.as_ref().map(|(name, _)| name.clone()),
            cloned: vantage.cloned.clone(),
            cells: self.configured.canaries.iter().map(|(name, _)| cell(name, name)).collect(),
            services: self.configured.services.iter().map(|(name, s)| cell(name, &s.hostname)).collect(),
        }
    }

    fn cell(&self, vantage: &VantageNow, item: &str, name: &str, muted: Option<(&str, &str)>) -> Cell {
        let judged = self.cells.iter().find(|cell| cell.vantage == vantage.name && cell.item == item);
        let addresses = if muted.is_some() { Vec::new() } else { self.addresses(vantage, item, name, judged) };
        let verdict = judged.and_then(|cell| cell.verdict).filter(|_| muted.is_none());
        let (state, words, sentence) = match (muted, verdict) {
            (Some((words, sentence)), _) => (State::Unobserved, words, sentence),
            (None, Some(verdict)) => (answer_state(verdict), answer_word(verdict), answer_sentence(verdict)),
            (None, None) => (State::Unobserved, "not judged yet", "nothing was judged yet"),
        };
        let service = self.configured.services.iter().find(|(service, s)| service == item && s.hostname == name);
        let serves = service
            .and_then(|_| addresses.first())
            .map(|one| self.configured.node_at(one.address).map_or_else(|| one.address.to_string(), str::to_owned));
        let temporary = match (&serves, service) {
            (Some(node), Some((_, service))) => *node != service.native,
            _ => false,
        };
        Cell {
            vantage: vantage.name.clone(),
            name: name.to_owned(),
            state,
            verdict,
            words: words.to_owned(),
            sentence: sentence.to_owned(),
            since: judged.and_then(|cell| cell.since).filter(|_| muted.is_none()).map(At),
            proven: addresses.iter().filter(|one| one.works == Some(true)).count(),
            duration_us: self.slowest(vantage, item, name, &addresses),
            addresses,
            serves,
            temporary,
            pinned_by_plan: self.pin(vantage, name),
            incident: self.incident(vantage, name),
        }
    }

    /// Addresses of the newest answer with the newest try of each; without a fresh answer, those
    /// of the verdict.
    fn addresses(&self, vantage: &VantageNow, item: &str, name: &str, judged: Option<&CellNow>) -> Vec<AddressNow> {
        let answered = self.answers.iter().filter(|fact| fact.vantage == vantage.name && fact.name == name);
        let mut fresh: Vec<IpAddr> = answered.flat_map(|fact| fact.addresses.iter().copied()).collect();
        fresh.sort_unstable();
        fresh.dedup();
        if fresh.is_empty() {
            let Some(judged) = judged else { return Vec::new() };
            let works = |address: &IpAddr| judged.proven.contains(address).then_some(true);
            let old = judged.addresses.iter().map(|address| AddressNow {
                address: *address,
                works: works(address),
                words: if works(address).is_some() { "worked when it was judged" } else { "not tried lately" },
            });
            return old.collect();
        }
        let tried = |address: IpAddr| self.tried(vantage, item, name, address).and_then(|fact| fact.outcome);
        fresh
            .into_iter()
            .map(|address| match tried(address) {
                Some(found) => AddressNow { address, works: Some(outcome::well(found)), words: outcome::phrase(found) },
                None => AddressNow { address, works: None, words: "not tried lately" },
            })
            .collect()
    }

    fn tried(&self, vantage: &VantageNow, item: &str, name: &str, address: IpAddr) -> Option<&ReachFact> {
        let here = || self.reached.iter().filter(|fact| fact.vantage == vantage.name && fact.address == address);
        let by_name = here().find(|fact| fact.subject == name);
        // A service's host name may be tried as the node it leads to.
        let is_service = item != name;
        by_name.or_else(|| here().find(|fact| is_service && fact.subject.starts_with("node:")))
    }

    fn slowest(&self, vantage: &VantageNow, item: &str, name: &str, addresses: &[AddressNow]) -> Option<i64> {
        addresses
            .iter()
            .filter(|one| one.works == Some(true))
            .filter_map(|one| self.tried(vantage, item, name, one.address))
            .map(|fact| fact.duration_us)
            .max()
    }

    fn pin(&self, vantage: &VantageNow, name: &str) -> Option<i64> {
        let ours = |plan: &&PlanRow| {
            plan.vantage.as_deref() == Some(&vantage.name)
                && matches!(&plan.change, Some(Change::Pin { name: pinned, .. }) if pinned.as_str() == name)
        };
        self.pins.iter().find(ours).map(|plan| plan.id)
    }

    fn incident(&self, vantage: &VantageNow, name: &str) -> Option<i64> {
        let concerns = |incident: &&Summary| {
            let here = incident.vantage.as_ref().is_none_or(|only| *only == vantage.name);
            here && incident.members.iter().any(|member| member == name)
        };
        self.open.iter().find(concerns).map(|incident| incident.id)
    }
}
