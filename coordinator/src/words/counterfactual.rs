//! "Would another resolver help?", answered from what the other resolvers give where it hurts.

use std::collections::BTreeMap;
use std::net::IpAddr;

use parallax_decide::finding::Unroutable;
use parallax_decide::names::{DomainName, ResolverName};
use parallax_decide::verdict::AnswerVerdict;
use serde::Serialize;

use super::verdict::{answer_state, answer_word};
use super::{State, plural, texts};

/// Whether a switch of the resolver would help those who suffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Help {
    /// At least one other resolver gives something usable there.
    Yes,
    /// Every other resolver was asked, and none does.
    No,
    /// Not all of them have been measured enough.
    Unknown,
}

/// The answer to "would another resolver help?", with what shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Counterfactual {
    /// The answer.
    pub would_help: Help,
    /// The same as a sentence, beginning with yes, no or not known.
    pub sentence: String,
    /// What each resolver gives for each name, asked from where it hurts.
    pub answers: Vec<Given>,
}

/// What one resolver gives for one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Given {
    /// Resolver.
    pub resolver: ResolverName,
    /// Name.
    pub name: DomainName,
    /// Addresses it gave.
    pub addresses: Vec<IpAddr>,
    /// Verdict's word.
    pub verdict: AnswerVerdict,
    /// Verdict in words.
    pub words: &'static str,
}

impl Counterfactual {
    /// The answers, names for which a resolver gives the same thing put together.
    #[must_use]
    pub fn grouped(&self) -> Vec<(&Given, Vec<&DomainName>)> {
        let mut groups: Vec<(&Given, Vec<&DomainName>)> = Vec::new();
        for given in &self.answers {
            let same = |other: &Given| {
                (&other.resolver, other.verdict, &other.addresses) == (&given.resolver, given.verdict, &given.addresses)
            };
            if let Some((_, names)) = groups.iter_mut().find(|(first, _)| same(first)) {
                names.push(&given.name);
            } else {
                groups.push((given, vec![&given.name]));
            }
        }
        groups
    }
}

impl Given {
    /// What its verdict is drawn as.
    #[must_use]
    pub fn state(&self) -> State {
        answer_state(self.verdict)
    }
}

/// Whether another resolver would help; none where the question does not arise.
#[must_use]
pub fn counterfactual(names: &BTreeMap<DomainName, Unroutable>) -> Option<Counterfactual> {
    let mut answers = Vec::new();
    let mut by_resolver: BTreeMap<&ResolverName, Vec<AnswerVerdict>> = BTreeMap::new();
    for (name, unroutable) in names {
        for (resolver, other) in &unroutable.resolvers {
            by_resolver.entry(resolver).or_default().push(other.verdict);
            answers.push(Given {
                resolver: resolver.clone(),
                name: name.clone(),
                addresses: other.addresses.iter().copied().collect(),
                verdict: other.verdict,
                words: answer_word(other.verdict),
            });
        }
    }
    if names.is_empty() {
        return None;
    }
    let asked = by_resolver.len();
    let helping: Vec<&ResolverName> =
        by_resolver.iter().filter(|(_, v)| v.iter().any(|one| one.usable())).map(|(name, _)| *name).collect();
    let open = by_resolver.values().filter(|v| v.contains(&AnswerVerdict::InsufficientEvidence)).count();
    let unroutable = by_resolver.values().filter(|v| v.iter().all(|one| one_is_unroutable(*one))).count();
    let (would_help, sentence) = if !helping.is_empty() {
        (Help::Yes, format!("yes: {} something usable there", plural(&texts(&helping), "gives", "give")))
    } else if asked == 0 {
        (Help::Unknown, "not known: no other resolver was asked from there".to_owned())
    } else if open > 0 {
        let known = asked - open;
        (Help::Unknown, format!("not known yet: {known} of {asked} give nothing usable, {open} not measured enough"))
    } else if unroutable == asked {
        (Help::No, format!("no: {asked} of {asked} hand out unroutable addresses"))
    } else {
        (Help::No, format!("no: {asked} of {asked} give nothing usable there"))
    };
    answers.sort_by(|a, b| (&a.resolver, &a.name).cmp(&(&b.resolver, &b.name)));
    Some(Counterfactual { would_help, sentence, answers })
}

fn one_is_unroutable(verdict: AnswerVerdict) -> bool {
    matches!(verdict, AnswerVerdict::UnroutableHere | AnswerVerdict::DeadEverywhere)
}

#[cfg(test)]
mod tests {
    use parallax_decide::finding::OtherResolver;

    use super::*;

    fn unroutable(verdicts: &[(&str, AnswerVerdict)]) -> BTreeMap<DomainName, Unroutable> {
        let resolvers = verdicts
            .iter()
            .map(|(name, verdict)| (name.parse().unwrap(), OtherResolver { verdict: *verdict, addresses: [].into() }))
            .collect();
        let one = Unroutable { addresses: [].into(), proven_at: BTreeMap::new(), resolvers };
        ["a.test", "b.test"].into_iter().map(|name| (name.parse().unwrap(), one.clone())).collect()
    }

    #[test]
    fn names_with_the_same_answer_are_put_together() {
        let names = unroutable(&[("doh-cf", AnswerVerdict::UnroutableHere), ("doh-x", AnswerVerdict::Servfail)]);
        let counterfactual = counterfactual(&names).unwrap();
        let grouped = counterfactual.grouped();
        assert_eq!(grouped.len(), 2);
        assert!(grouped.iter().all(|(_, names)| names.len() == 2));
    }

    #[test]
    fn a_resolver_that_does_better_is_named_and_one_unmeasured_leaves_it_open() {
        let better = unroutable(&[("doh-cf", AnswerVerdict::UnroutableHere), ("doh-x", AnswerVerdict::Ok)]);
        assert_eq!(counterfactual(&better).unwrap().sentence, "yes: doh-x gives something usable there");
        let open = unroutable(&[("a", AnswerVerdict::UnroutableHere), ("b", AnswerVerdict::InsufficientEvidence)]);
        let open = counterfactual(&open).unwrap();
        assert_eq!(open.would_help, Help::Unknown);
        assert_eq!(open.sentence, "not known yet: 1 of 2 give nothing usable, 1 not measured enough");
        let mixed = unroutable(&[("a", AnswerVerdict::UnroutableHere), ("b", AnswerVerdict::Servfail)]);
        assert_eq!(counterfactual(&mixed).unwrap().sentence, "no: 2 of 2 give nothing usable there");
        assert_eq!(counterfactual(&unroutable(&[])).unwrap().would_help, Help::Unknown);
        assert_eq!(counterfactual(&BTreeMap::new()), None);
    }
}
