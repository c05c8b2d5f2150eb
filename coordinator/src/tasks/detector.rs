//! Stores every change of a verdict, once.

use std::collections::BTreeMap;
use std::net::IpAddr;

use parallax_decide::judge::Judgement;
use parallax_decide::names::{DomainName, NodeName, ResolverName, VantageName};
use parallax_decide::observation::{ObservationId, Target};
use parallax_decide::presence::Presence;
use parallax_decide::verdict::{AddressVerdict, AnswerVerdict, EndpointVerdict, NodeVerdict};
use serde::Serialize;
use serde_json::json;
use sqlx::PgConnection;

use super::engine::aside;
use super::moment::Moment;
use crate::store::StoreError;
use crate::store::verdict::{self, NewVerdict, SubjectKind, VerdictSubject};

/// Who is said what of: as in the judgement, so that a tick in which nothing changed writes no text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Vantage(VantageName),
    Answer(VantageName, DomainName, ResolverName),
    Address(VantageName, Target, IpAddr),
    Endpoint(VantageName, ResolverName),
    Node(NodeName),
}

impl Key {
    fn kind(&self) -> SubjectKind {
        match self {
            Self::Vantage(_) => SubjectKind::Vantage,
            Self::Answer(..) => SubjectKind::Answer,
            Self::Address(..) => SubjectKind::Address,
            Self::Endpoint(..) => SubjectKind::Endpoint,
            Self::Node(_) => SubjectKind::Node,
        }
    }

    /// As the store names it.
    fn subject(&self) -> VerdictSubject {
        let kind = self.kind();
        let at = |subject: String, vantage: &VantageName| VerdictSubject {
            kind,
            subject,
            vantage: Some(vantage.to_string()),
            resolver: None,
        };
        match self {
            Self::Vantage(vantage) => at(vantage.to_string(), vantage),
            Self::Answer(vantage, name, resolver) => {
                VerdictSubject { resolver: Some(resolver.to_string()), ..at(name.to_string(), vantage) }
            }
            Self::Address(vantage, Target::Name(name), address) => at(format!("{name} {address}"), vantage),
            Self::Address(vantage, Target::Node(node), address) => at(format!("node:{node} {address}"), vantage),
            Self::Endpoint(vantage, resolver) => at(resolver.to_string(), vantage),
            Self::Node(node) => VerdictSubject { kind, subject: node.to_string(), vantage: None, resolver: None },
        }
    }
}

/// What was said of a subject last, and in which step.
#[derive(Debug, Clone, Copy)]
struct Said {
    word: &'static str,
    step: u64,
}

/// What the store says of each subject now.
pub(crate) struct Detector {
    /// What was found there at the start and no step has met yet. One that is missing is unknown.
    found: BTreeMap<VerdictSubject, String>,
    said: BTreeMap<Key, Said>,
    steps: u64,
}

impl Detector {
    /// Starts from the store, so that a restart says nothing twice.
    pub(crate) async fn load(connection: &mut PgConnection) -> Result<Self, StoreError> {
        let mut found = verdict::newest(connection).await?;
        found.retain(|subject, word| !is_unknown(subject.kind, word));
        Ok(Self { found, said: BTreeMap::new(), steps: 0 })
    }

    /// Stores the verdicts that changed. True: some did. After an error it knows no longer what the store says: load it
    /// anew.
    pub(crate) async fn step(&mut self, moment: &Moment<'_>) -> Result<bool, StoreError> {
        let changed = aside(|| self.changed(moment.judgement))?;
        if changed.is_empty() {
            return Ok(false);
        }
        let mut transaction = moment.begin().await?;
        verdict::insert(&mut transaction, moment.now, &changed).await?;
        transaction.commit().await?;
        Ok(true)
    }

    fn changed(&mut self, judgement: &Judgement) -> Result<Vec<NewVerdict>, StoreError> {
        self.steps += 1;
        let mut changed = Vec::new();
        for (vantage, judged) in &judgement.vantages {
            let key = Key::Vantage(vantage.clone());
            let evidence = || judged.evidence.clone();
            changed.extend(self.say(key, judged.verdict.word(), judged.verdict.into(), judged, evidence)?);
        }
        for ((vantage, name, resolver), answer) in &judgement.answers {
            let key = Key::Answer(vantage.clone(), name.clone(), resolver.clone());
            let evidence = || [answer.evidence.as_slice(), &answer.evidence_elsewhere].concat();
            changed.extend(self.say(key, answer.verdict.word(), answer.verdict.into(), answer, evidence)?);
        }
        for ((vantage, target, address), reach) in &judgement.reach {
            let key = Key::Address(vantage.clone(), target.clone(), *address);
            let evidence = || reach.evidence.clone();
            changed.extend(self.say(key, reach.verdict.word(), reach.verdict.into(), reach, evidence)?);
        }
        for ((vantage, resolver), judged) in &judgement.endpoints {
            let evidence = || judged.evidence.clone();
            let key = Key::Endpoint(vantage.clone(), resolver.clone());
            changed.extend(self.say(key, judged.verdict.word(), judged.verdict.into(), judged, evidence)?);
        }
        for (node, judged) in &judgement.nodes {
            let evidence = || judged.evidence.clone();
            let key = Key::Node(node.clone());
            changed.extend(self.say(key, judged.verdict.word(), judged.verdict.into(), judged, evidence)?);
        }
        // What nothing is known of any more must not go on being called good or bad.
        let found = std::mem::take(&mut self.found).into_keys();
        let step = self.steps;
        let gone = self.said.extract_if(.., |_, said| said.step != step);
        let gone = gone.filter(|(key, said)| !is_unknown(key.kind(), said.word)).map(|(key, _)| key.subject());
        for subject in found.chain(gone) {
            if let Some(word) = unknown_word(subject.kind) {
                let reason = json!({ "because": "not_measured" });
                changed.push(NewVerdict { subject, word, presence: Presence::Unknown, reason, evidence: Vec::new() });
            }
        }
        Ok(changed)
    }

    /// Notes what is said of a subject; what it was before, in the store or in the last step, decides whether it is new.
    fn say(
        &mut self,
        key: Key,
        word: &'static str,
        presence: Presence,
        judged: &impl Serialize,
        evidence: impl FnOnce() -> Vec<ObservationId>,
    ) -> Result<Option<NewVerdict>, StoreError> {
        let step = self.steps;
        if let Some(said) = self.said.get_mut(&key) {
            let same = said.word == word;
            *said = Said { word, step };
            if same {
                return Ok(None);
            }
        }
        let subject = key.subject();
        let met = self.said.insert(key, Said { word, step }).is_some();
        let before = self.found.remove(&subject);
        let same = before.map_or_else(|| is_unknown(subject.kind, word), |before| before == word);
        if same && !met {
            return Ok(None);
        }
        let reason = serde_json::to_value(judged)
            .map_err(|error| StoreError::content("verdict", "reason", &subject.subject, error))?;
        Ok(Some(NewVerdict { subject, word, presence, reason, evidence: evidence() }))
    }
}

/// The word that says that nothing is known. A vantage always has a standing.
fn unknown_word(kind: SubjectKind) -> Option<&'static str> {
    match kind {
        SubjectKind::Vantage => None,
        SubjectKind::Answer => Some(AnswerVerdict::InsufficientEvidence.word()),
        SubjectKind::Address => Some(AddressVerdict::Unmeasured.word()),
        SubjectKind::Endpoint => Some(EndpointVerdict::InsufficientEvidence.word()),
        SubjectKind::Node => Some(NodeVerdict::InsufficientEvidence.word()),
    }
}

fn is_unknown(kind: SubjectKind, word: &str) -> bool {
    unknown_word(kind) == Some(word)
}
