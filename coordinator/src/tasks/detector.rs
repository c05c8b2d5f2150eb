//! Stores every change of a verdict, once.

use std::collections::{BTreeMap, BTreeSet};

use parallax_decide::judge::Judgement;
use parallax_decide::observation::{ObservationId, Target};
use parallax_decide::presence::Presence;
use parallax_decide::verdict::{AddressVerdict, AnswerVerdict, NodeVerdict};
use serde::Serialize;
use serde_json::json;
use sqlx::PgConnection;

use super::moment::Moment;
use crate::store::StoreError;
use crate::store::verdict::{self, NewVerdict, SubjectKind, VerdictSubject};

/// What the store says of each subject now. One that is missing is unknown.
pub(crate) struct Detector {
    said: BTreeMap<VerdictSubject, String>,
}

impl Detector {
    /// Starts from the store, so that a restart says nothing twice.
    pub(crate) async fn load(connection: &mut PgConnection) -> Result<Self, StoreError> {
        let mut said = verdict::newest(connection).await?;
        said.retain(|subject, word| !is_unknown(subject.kind, word));
        Ok(Self { said })
    }

    /// Stores the verdicts that changed. True: some did.
    pub(crate) async fn step(&mut self, moment: &Moment<'_>) -> Result<bool, StoreError> {
        let changed = self.changed(moment.judgement)?;
        if changed.is_empty() {
            return Ok(false);
        }
        let mut transaction = moment.begin().await?;
        verdict::insert(&mut transaction, moment.now, &changed).await?;
        transaction.commit().await?;
        for new in changed {
            if is_unknown(new.subject.kind, new.word) {
                self.said.remove(&new.subject);
            } else {
                self.said.insert(new.subject, new.word.to_owned());
            }
        }
        Ok(true)
    }

    fn changed(&self, judgement: &Judgement) -> Result<Vec<NewVerdict>, StoreError> {
        let mut now = Now { said: &self.said, current: BTreeSet::new(), changed: Vec::new() };
        for (vantage, judged) in &judgement.vantages {
            let subject = at(SubjectKind::Vantage, vantage.to_string(), vantage);
            now.say(subject, judged.verdict.word(), judged.verdict.into(), judged, &judged.evidence)?;
        }
        for ((vantage, name, resolver), answer) in &judgement.answers {
            let resolver = Some(resolver.to_string());
            let subject = VerdictSubject { resolver, ..at(SubjectKind::Answer, name.to_string(), vantage) };
            let evidence = [answer.evidence.as_slice(), &answer.evidence_elsewhere].concat();
            now.say(subject, answer.verdict.word(), answer.verdict.into(), answer, &evidence)?;
        }
        for ((vantage, target, address), reach) in &judgement.reach {
            let target = match target {
                Target::Name(name) => name.to_string(),
                Target::Node(node) => format!("node:{node}"),
            };
            let subject = at(SubjectKind::Address, format!("{target} {address}"), vantage);
            now.say(subject, reach.verdict.word(), reach.verdict.into(), reach, &reach.evidence)?;
        }
        for (node, judged) in &judgement.nodes {
            let subject = VerdictSubject { vantage: None, ..at(SubjectKind::Node, node.to_string(), node) };
            now.say(subject, judged.verdict.word(), judged.verdict.into(), judged, &judged.evidence)?;
        }
        let Now { current, mut changed, .. } = now;
        for subject in self.said.keys().filter(|subject| !current.contains(*subject)) {
            // What nothing is known of any more must not go on being called good or bad.
            if let Some(word) = unknown_word(subject.kind) {
                let reason = json!({ "because": "not_measured" });
                let (subject, presence) = (subject.clone(), Presence::Unknown);
                changed.push(NewVerdict { subject, word, presence, reason, evidence: Vec::new() });
            }
        }
        Ok(changed)
    }
}

struct Now<'a> {
    said: &'a BTreeMap<VerdictSubject, String>,
    current: BTreeSet<VerdictSubject>,
    changed: Vec<NewVerdict>,
}

impl Now<'_> {
    fn say(
        &mut self,
        subject: VerdictSubject,
        word: &'static str,
        presence: Presence,
        judged: &impl Serialize,
        evidence: &[ObservationId],
    ) -> Result<(), StoreError> {
        let said_already =
            self.said.get(&subject).map_or_else(|| is_unknown(subject.kind, word), |said| said.as_str() == word);
        if !said_already {
            let reason = serde_json::to_value(judged)
                .map_err(|error| StoreError::content("verdict", "reason", &subject.subject, error))?;
            let (subject, evidence) = (subject.clone(), evidence.to_vec());
            self.changed.push(NewVerdict { subject, word, presence, reason, evidence });
        }
        self.current.insert(subject);
        Ok(())
    }
}

fn at(kind: SubjectKind, subject: String, vantage: &dyn ToString) -> VerdictSubject {
    VerdictSubject { kind, subject, vantage: Some(vantage.to_string()), resolver: None }
}

/// The word that says that nothing is known. A vantage always has a standing.
fn unknown_word(kind: SubjectKind) -> Option<&'static str> {
    match kind {
        SubjectKind::Vantage => None,
        SubjectKind::Answer => Some(AnswerVerdict::InsufficientEvidence.word()),
        SubjectKind::Address => Some(AddressVerdict::Unmeasured.word()),
        SubjectKind::Node => Some(NodeVerdict::InsufficientEvidence.word()),
    }
}

fn is_unknown(kind: SubjectKind, word: &str) -> bool {
    unknown_word(kind) == Some(word)
}
