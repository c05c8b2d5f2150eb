//! What one name looked like at a moment, from each vantage: what resolvers answered, what became of the addresses there and
//! elsewhere, what decided, and whether another resolver would help.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use parallax_decide::answer::Answer;
use parallax_decide::finding::{OtherResolver, Unroutable};
use parallax_decide::names::DomainName;
use parallax_decide::reach::Reach;
use parallax_decide::time::Timestamp;
use parallax_decide::vantage::VantageJudgement;
use parallax_decide::verdict::{AddressVerdict, AnswerVerdict, VantageVerdict};
use serde::Serialize;
use sqlx::PgConnection;

use super::SCHEMA;
use super::check::{Check, curl, dig, routeros};
use super::moment::{At, coarse};
use super::summary::Summary;
use crate::store::configured::Configured;
use crate::store::read::incident::{Filter, listed};
use crate::store::read::moment::{State as Stored, Watched, configured, states, watched};
use crate::store::read::name::{Resolved, known, resolved};
use crate::store::{StoreError, database_now};
use crate::words::counterfactual::{Counterfactual, Help, counterfactual};
use crate::words::verdict::{
    address_phrase, answer_sentence, answer_state, answer_word, vantage_sentence, vantage_word,
};
use crate::words::{self, SPELLED_MAX, State, list, outcome, row};

mod text;

pub use text::text;

/// Incidents that are named.
const INCIDENTS_MAX: i64 = 10;

/// Observations that one line cites.
const CITED_MAX: usize = 6;

/// The name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Name {
    /// Version of this JSON.
    pub schema: u32,
    /// The name.
    pub name: String,
    /// The moment that is shown.
    pub at: At,
    /// canary, the service whose host name it is, or neither at that moment.
    pub what: String,
    /// Configuration in force at that moment.
    pub configuration: Option<i32>,
    /// What must be known to read it right.
    pub notes: Vec<String>,
    /// Incidents open at that moment that concern it.
    pub incidents: Vec<Summary>,
    /// The places, those that suffer first.
    pub places: Vec<Place>,
    /// How to ask the database.
    pub sql: Vec<String>,
}

/// The name at one vantage.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Place {
    /// Vantage.
    pub vantage: String,
    /// Whether it may speak; none: not judged by then.
    pub standing: Option<VantageVerdict>,
    /// The same in words, and what that means for what it says.
    pub standing_words: String,
    /// What the live resolver's answer is drawn as.
    pub state: State,
    /// Its verdict; none: nothing was judged there by then.
    pub verdict: Option<AnswerVerdict>,
    /// In words.
    pub words: &'static str,
    /// As a sentence.
    pub sentence: &'static str,
    /// Since when.
    pub since: Option<At>,
    /// The row of the table of answers that decided, and what it asks for.
    pub decided_by: Option<DecidedBy>,
    /// What every resolver answered there, the live one first.
    pub answers: Vec<Given>,
    /// The addresses of the live resolver's answer, and those that were proven from elsewhere.
    pub addresses: Vec<Tried>,
    /// Whether another resolver would help; none: no resolver's answer was judged there.
    pub another_resolver: Option<Other>,
    /// How to check it by hand there.
    pub check: Vec<Check>,
}

/// What decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DecidedBy {
    /// Number of the row.
    pub row: &'static str,
    /// What it asks for.
    pub asks: &'static str,
    /// Observations of this place that decided: `v_observation.id`.
    pub observations: Vec<i64>,
    /// Observations of other places that did.
    pub observations_elsewhere: Vec<i64>,
}

/// What one resolver answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Given {
    /// Resolver.
    pub resolver: String,
    /// Whether it is what clients there use.
    pub live: bool,
    /// What its verdict is drawn as.
    pub state: State,
    /// Verdict; none: not judged.
    pub verdict: Option<AnswerVerdict>,
    /// In words.
    pub words: &'static str,
    /// Addresses, both families; of the newest answer, else of the verdict.
    pub addresses: Vec<IpAddr>,
    /// How the newest question ended, in words, where that says more than the addresses.
    pub ended: Option<&'static str>,
    /// Smallest TTL of the newest answers, seconds.
    pub ttl_s: Option<i32>,
    /// Since when the verdict holds.
    pub since: Option<At>,
    /// Newest resolutions, else those that decided: `v_observation.id`.
    pub observations: Vec<i64>,
}

/// What became of one address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tried {
    /// Address.
    pub address: IpAddr,
    /// Whether the live resolver gave it there.
    pub given: bool,
    /// Verdict from there; none: not tried.
    pub verdict: Option<AddressVerdict>,
    /// As the end of "from there it …".
    pub words: &'static str,
    /// Since when.
    pub since: Option<At>,
    /// Failures in a row when it was decided, and the milliseconds they span.
    pub failures: Option<(u32, u64)>,
    /// Observations that decided.
    pub observations: Vec<i64>,
    /// Vantages from which it works, for the same name.
    pub works_at: Vec<String>,
    /// Vantages from which it is dead.
    pub dead_at: Vec<String>,
}

/// Whether another resolver would help.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Other {
    /// yes, no or unknown.
    pub would_help: Help,
    /// As a sentence.
    pub sentence: String,
    /// Measurements that say so.
    pub observations: Vec<i64>,
}

/// Why there is nothing to explain.
#[derive(Debug)]
pub enum Missing {
    /// Nobody ever watched this name; the names that are or were watched.
    Name(Vec<String>),
    /// No such vantage at that moment; those that there were.
    Vantage(Vec<String>),
}

/// Reads it. `moment`: none is now.
///
/// # Errors
/// When the database refuses.
pub async fn read(
    connection: &mut PgConnection,
    name: &DomainName,
    vantage: Option<&str>,
    moment: Option<Timestamp>,
) -> Result<Result<Name, Missing>, StoreError> {
    let now = database_now(&mut *connection).await?;
    let at = moment.unwrap_or(now);
    let in_force = configured(&mut *connection, at).await?;
    let (number, config) = in_force.map_or((None, Configured::default()), |(number, config)| (Some(number), config));
    let states = states(&mut *connection, at, &["vantage", "answer", "address"], Some(name.as_str())).await?;
    let answered: BTreeSet<&str> =
        states.iter().filter(|one| one.kind == "answer").filter_map(|one| one.vantage.as_deref()).collect();
    let watched_name = config.canaries.iter().any(|(canary, _)| canary == name.as_str())
        || config.services.iter().any(|(_, service)| service.hostname == name.as_str());
    if answered.is_empty() && !watched_name {
        return Ok(Err(Missing::Name(known(&mut *connection).await?)));
    }
    let mut places: BTreeSet<String> = config.vantages.iter().map(|(name, _)| name.clone()).collect();
    places.extend(answered.iter().map(|one| (*one).to_owned()));
    if let Some(only) = vantage
        && !places.contains(only)
    {
        return Ok(Err(Missing::Vantage(places.into_iter().collect())));
    }
    let fresh = at.minus(config.policy.fresh_for());
    let facts = resolved(&mut *connection, name.as_str(), fresh, at).await?;
    let filter =
        Filter { since: Some(at), until: Some(at), about: Some(name.as_str().to_owned()), ..Filter::default() };
    let open = listed(&mut *connection, &filter, INCIDENTS_MAX).await?;
    let incidents = open.iter().map(|row| Summary::of(row, &[], &config, now)).collect();
    let judged = watched(connection, at).await?;
    let view = View { name, at, config: &config, states: &states, facts: &facts };
    let mut told: Vec<Place> = places
        .iter()
        .filter(|place| vantage.is_none_or(|only| only == *place))
        .map(|place| view.place(place))
        .collect();
    told.sort_by_key(|place| (suffers(place.state), place.vantage.clone()));
    Ok(Ok(Name {
        schema: SCHEMA,
        name: name.as_str().to_owned(),
        at: At(at),
        what: view.what(),
        configuration: number,
        notes: notes(judged, at, facts.is_empty(), &config),
        incidents,
        places: told,
        sql: view.sql(vantage),
    }))
}

/// Order in which places are told: what is bad, what is unknown, what is well.
fn suffers(state: State) -> u8 {
    match state {
        State::Unroutable | State::NoAnswer | State::WrongContent => 0,
        State::Partial => 1,
        State::Unobserved => 2,
        State::Usable => 3,
    }
}

fn notes(judged: Watched, at: Timestamp, no_facts: bool, config: &Configured) -> Vec<String> {
    let mut notes = Vec::new();
    match judged {
        Watched::Yes => {}
        Watched::NotSince(until) => notes.push(format!(
            "nobody judged at that moment: the last coordinator stopped {} before; what is shown is what was said last",
            coarse(at.since(until))
        )),
        Watched::NeverBefore => notes.push("nobody had judged by then".to_owned()),
    }
    if no_facts {
        notes.push(format!(
            "the log has no answer for it in the {} before: not asked, or gone by retention; addresses are those of the \
             verdicts",
            coarse(config.policy.fresh_for())
        ));
    }
    notes
}

struct View<'a> {
    name: &'a DomainName,
    at: Timestamp,
    config: &'a Configured,
    states: &'a [Stored],
    facts: &'a [Resolved],
}

impl View<'_> {
    fn what(&self) -> String {
        if let Some((_, canary)) = self.config.canaries.iter().find(|(name, _)| name == self.name.as_str()) {
            let proof = if canary.tls { "TLS for the name" } else { "TCP" };
            return format!("canary, tcp/{}, proven by {proof}", canary.port);
        }
        match self.config.services.iter().find(|(_, service)| service.hostname == self.name.as_str()) {
            Some((service, offered)) => format!("host name of the service {service}, native at {}", offered.native),
            None => "not watched at that moment".to_owned(),
        }
    }

    fn sql(&self, vantage: Option<&str>) -> Vec<String> {
        let (name, at) = (self.name.as_str(), At(self.at).iso());
        // Names of vantages and of the DNS hold no quotes.
        let place = vantage.map(|one| format!(" and vantage = '{one}'")).unwrap_or_default();
        vec![
            format!(
                "select vantage, resolver, verdict, since, reason, evidence from v_state where during @> timestamptz '{at}' \
                 and subject_kind = 'answer' and subject = '{name}'{place};"
            ),
            format!(
                "select vantage, address, verdict, since, reason, evidence from v_reach where during @> timestamptz '{at}' \
                 and target = '{name}'{place};"
            ),
            format!("select * from v_answer where name = '{name}' and during @> timestamptz '{at}'{place};"),
        ]
    }

    fn live(&self) -> &str {
        self.config.live_resolver().unwrap_or("live")
    }

    fn of<'b>(&'b self, kind: &'b str, vantage: &'b str) -> impl Iterator<Item = &'b Stored> {
        self.states.iter().filter(move |one| one.kind == kind && one.vantage.as_deref() == Some(vantage))
    }

    fn place(&self, vantage: &str) -> Place {
        let standing = self.of("vantage", vantage).next();
        let standing_verdict = standing.and_then(|one| VantageVerdict::from_word(&one.verdict));
        let mute = standing_verdict.is_some_and(|verdict| {
            matches!(verdict, VantageVerdict::Silent | VantageVerdict::Captive | VantageVerdict::UplinkDown)
        });
        let live = self.of("answer", vantage).find(|one| one.resolver.as_deref() == Some(self.live()));
        let verdict = live.and_then(|one| AnswerVerdict::from_word(&one.verdict)).filter(|_| !mute);
        let answer: Option<Answer> = live.and_then(|one| serde_json::from_value(one.reason.clone()).ok());
        let addresses = self.addresses(vantage, answer.as_ref());
        let answers = self.answers(vantage);
        let given: Vec<IpAddr> = addresses.iter().filter(|one| one.given).map(|one| one.address).collect();
        Place {
            vantage: vantage.to_owned(),
            standing: standing_verdict,
            standing_words: standing_words(standing, standing_verdict),
            state: verdict.map_or(State::Unobserved, answer_state),
            verdict,
            words: match verdict {
                Some(verdict) => answer_word(verdict),
                None if mute => "unobserved",
                None => "not judged by then",
            },
            sentence: match (verdict, standing_verdict) {
                (Some(verdict), _) => answer_sentence(verdict),
                (None, Some(standing)) if mute => vantage_sentence(standing),
                (None, _) => "nothing was said of it there by then",
            },
            since: live.filter(|_| verdict.is_some()).map(|one| At(one.since)),
            decided_by: verdict.zip(live).map(|(verdict, one)| {
                let (row, asks) = row::answer(verdict);
                let (here, elsewhere) = match &answer {
                    Some(answer) => (ids(&answer.evidence), ids(&answer.evidence_elsewhere)),
                    None => (ids(&one.evidence), Vec::new()),
                };
                DecidedBy { row, asks, observations: here, observations_elsewhere: elsewhere }
            }),
            another_resolver: self.another_resolver(verdict, &answers),
            check: self.check(vantage, &given, &addresses),
            answers,
            addresses,
        }
    }

    fn answers(&self, vantage: &str) -> Vec<Given> {
        let judged: BTreeMap<&str, &Stored> =
            self.of("answer", vantage).filter_map(|one| Some((one.resolver.as_deref()?, one))).collect();
        let asked = self.facts.iter().filter(|fact| fact.vantage == vantage);
        let mut resolvers: BTreeSet<&str> = judged.keys().copied().collect();
        resolvers.extend(asked.clone().map(|fact| fact.resolver.as_str()));
        let mut given: Vec<Given> = resolvers
            .into_iter()
            .map(|resolver| {
                let stored = judged.get(resolver);
                let verdict = stored.and_then(|one| AnswerVerdict::from_word(&one.verdict));
                let facts: Vec<&Resolved> = asked.clone().filter(|fact| fact.resolver == resolver).collect();
                let of_verdict: Option<Answer> = stored.and_then(|one| serde_json::from_value(one.reason.clone()).ok());
                let mut addresses: Vec<IpAddr> = facts.iter().flat_map(|fact| fact.addresses.iter().copied()).collect();
                let mut observations: Vec<i64> = facts.iter().map(|fact| fact.id).collect();
                if facts.is_empty() {
                    addresses = of_verdict.iter().flat_map(|answer| answer.addresses.iter().copied()).collect();
                    observations = of_verdict.iter().flat_map(|answer| ids(&answer.evidence)).collect();
                }
                addresses.sort_unstable();
                addresses.dedup();
                let ended = facts.iter().filter(|fact| fact.addresses.is_empty()).find_map(|fact| fact.outcome);
                Given {
                    resolver: resolver.to_owned(),
                    live: resolver == self.live(),
                    state: verdict.map_or(State::Unobserved, answer_state),
                    verdict,
                    words: verdict.map_or("not judged", answer_word),
                    ended: ended.filter(|_| addresses.is_empty()).map(outcome::phrase),
                    ttl_s: facts.iter().filter(|fact| !fact.addresses.is_empty()).filter_map(|fact| fact.ttl_s).min(),
                    since: stored.map(|one| At(one.since)),
                    addresses,
                    observations,
                }
            })
            .collect();
        given.sort_by_key(|one| (!one.live, one.resolver.clone()));
        given
    }

    fn addresses(&self, vantage: &str, answer: Option<&Answer>) -> Vec<Tried> {
        let live = self.facts.iter().filter(|fact| fact.vantage == vantage && fact.resolver == self.live());
        let mut given: BTreeSet<IpAddr> = live.flat_map(|fact| fact.addresses.iter().copied()).collect();
        if given.is_empty() {
            given.extend(answer.iter().flat_map(|answer| answer.addresses.iter().copied()));
        }
        let tried = |place: &str, address: IpAddr| self.tried(place, address);
        let verdict = |one: &Stored| AddressVerdict::from_word(&one.verdict);
        let proven = |verdict| matches!(verdict, AddressVerdict::Ok | AddressVerdict::OkUnproven);
        let others: BTreeSet<&str> =
            self.states.iter().filter_map(|one| one.vantage.as_deref()).filter(|one| *one != vantage).collect();
        // What was given elsewhere matters where it hurts: it is what a pin could point at.
        let elsewhere = self.of("address", vantage).filter_map(|one| {
            let (target, address) = one.subject.split_once(' ')?;
            (target == self.name.as_str()).then(|| address.parse::<IpAddr>().ok()).flatten()
        });
        let all: BTreeSet<IpAddr> = given.iter().copied().chain(elsewhere).collect();
        let told = all.into_iter().map(|address| {
            let here = tried(vantage, address);
            let reach: Option<Reach> = here.and_then(|one| serde_json::from_value(one.reason.clone()).ok());
            let at = |wanted: &dyn Fn(AddressVerdict) -> bool| {
                let found = others.iter().filter(|place| tried(place, address).and_then(verdict).is_some_and(wanted));
                found.map(|place| (*place).to_owned()).collect::<Vec<_>>()
            };
            Tried {
                address,
                given: given.contains(&address),
                verdict: here.and_then(verdict),
                words: here.and_then(verdict).map_or("was not tried", address_phrase),
                since: here.map(|one| At(one.since)),
                failures: reach.filter(|reach| reach.failures > 0).map(|reach| (reach.failures, reach.span_ms)),
                observations: here.map(|one| ids(&one.evidence)).unwrap_or_default(),
                works_at: at(&proven),
                dead_at: at(&|verdict| {
                    !proven(verdict)
                        && !matches!(
                            verdict,
                            AddressVerdict::Unmeasured
                                | AddressVerdict::RefusedByPolicy
                                | AddressVerdict::FamilyUnavailable
                                | AddressVerdict::PartialPath
                        )
                }),
            }
        });
        // What could not be said of an address that is not given any more is history.
        told.filter(|one| one.given || one.verdict.is_some_and(proven)).collect()
    }

    /// What was said of an address at a vantage: by the name itself rather than as the node that it leads to.
    fn tried(&self, place: &str, address: IpAddr) -> Option<&Stored> {
        let here = self.states.iter().filter(|one| {
            one.kind == "address"
                && one.vantage.as_deref() == Some(place)
                && one.subject.split_once(' ').and_then(|(_, text)| text.parse::<IpAddr>().ok()) == Some(address)
        });
        here.min_by_key(|one| one.subject.starts_with("node:"))
    }

    fn another_resolver(&self, live: Option<AnswerVerdict>, answers: &[Given]) -> Option<Other> {
        let others: Vec<&Given> = answers.iter().filter(|one| !one.live).collect();
        let observations = |keep: &dyn Fn(&Given) -> bool| {
            let cited = others.iter().filter(|one| keep(one)).flat_map(|one| one.observations.iter().copied());
            cited.collect::<Vec<i64>>()
        };
        let live = live?;
        if live.usable() {
            let sentence = "no need: what the live resolver answers works there".to_owned();
            let cited = answers.iter().filter(|one| one.live).flat_map(|one| one.observations.iter().copied());
            return Some(Other { would_help: Help::No, sentence, observations: cited.collect() });
        }
        let resolvers = others
            .iter()
            .filter_map(|one| {
                let verdict = one.verdict.unwrap_or(AnswerVerdict::InsufficientEvidence);
                let addresses = one.addresses.iter().copied().collect();
                Some((one.resolver.parse().ok()?, OtherResolver { verdict, addresses }))
            })
            .collect();
        let one = Unroutable { addresses: BTreeSet::new(), proven_at: BTreeMap::new(), resolvers };
        let Counterfactual { would_help, sentence, .. } = counterfactual(&[(self.name.clone(), one)].into())?;
        let cited = match would_help {
            Help::Yes => observations(&|one| one.verdict.is_some_and(AnswerVerdict::usable)),
            Help::No | Help::Unknown => observations(&|_| true),
        };
        Some(Other { would_help, sentence, observations: cited })
    }

    fn check(&self, vantage: &str, given: &[IpAddr], addresses: &[Tried]) -> Vec<Check> {
        let port =
            self.config.canaries.iter().find(|(name, _)| name == self.name.as_str()).map_or(443, |(_, c)| c.port);
        let connects = given.iter().take(SPELLED_MAX).map(|address| curl(self.name, port, *address));
        let mut checks = vec![
            Check {
                place: format!("on the LAN of {vantage}"),
                commands: std::iter::once(dig(self.name)).chain(connects).collect(),
            },
            Check {
                place: format!("on a RouterOS router at {vantage}"),
                commands: routeros(self.name, port, given.first().copied()),
            },
        ];
        let elsewhere = addresses.iter().find(|one| one.given && !one.works_at.is_empty());
        if let Some(one) = elsewhere {
            checks.push(Check {
                place: format!("at {}, where it works", list(&one.works_at, SPELLED_MAX)),
                commands: vec![curl(self.name, port, one.address)],
            });
        }
        checks
    }
}

fn standing_words(stored: Option<&Stored>, verdict: Option<VantageVerdict>) -> String {
    let Some((verdict, stored)) = verdict.zip(stored) else { return "not judged by then".to_owned() };
    let found: Option<VantageJudgement> = serde_json::from_value(stored.reason.clone()).ok();
    let controls = found.map(|found| {
        let (reached, failed) = (found.controls_reached.len(), found.controls_failed.len());
        format!(", {reached} of {} reached", words::count(reached + failed, "control"))
    });
    format!("{}{}: {}", vantage_word(verdict), controls.unwrap_or_default(), vantage_sentence(verdict))
}

fn ids(of: &[parallax_decide::observation::ObservationId]) -> Vec<i64> {
    let mut ids: Vec<i64> = of.iter().map(|id| id.0).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Keys as people cite them: `#1 #2 and 3 more`, in brackets.
fn cited(ids: &[i64]) -> String {
    if ids.is_empty() {
        return String::new();
    }
    let shown: Vec<String> = ids.iter().take(CITED_MAX).map(|id| format!("#{id}")).collect();
    let more = ids.len().saturating_sub(CITED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(" [{}{more}]", shown.join(" "))
}
