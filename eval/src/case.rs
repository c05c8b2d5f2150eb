//! The format of a file of cases. Unknown keys and words are errors that say where.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use parallax_decide::names::{DomainName, FailureDomain, ResolverName, VantageName};
use serde::de::{Deserializer, Error as _, Visitor};
use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::token::{AddressToken, EndpointToken};

/// Why a file cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The file cannot be read.
    #[error("{path}: {error}; name a file of cases, for example scenarios/cases.yaml")]
    Unreadable {
        /// As given.
        path: String,
        /// The system's reason.
        error: std::io::Error,
    },
    /// It holds something that is no case.
    #[error("{path}: {error}")]
    Format {
        /// As given.
        path: String,
        /// What and where.
        error: Box<serde_saphyr::Error>,
    },
    /// A case contradicts itself.
    #[error("{path}: case {id}: {what}")]
    Case {
        /// As given.
        path: String,
        /// Which case.
        id: String,
        /// What is wrong with it.
        what: String,
    },
}

/// A file of cases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: Version,
    scenarios: Vec<Case>,
}

/// The only version there is.
#[derive(Debug, Deserialize)]
#[serde(try_from = "u32")]
struct Version;

impl TryFrom<u32> for Version {
    type Error = String;

    fn try_from(version: u32) -> Result<Self, String> {
        if version == 1 { Ok(Self) } else { Err(format!("version {version} is unknown; this program reads version 1")) }
    }
}

/// One labelled case.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Short name.
    pub id: String,
    /// What it is about.
    pub title: String,
    /// What is really so.
    pub truth: String,
    /// What is judged.
    pub subject: Subject,
    /// A managed record's history.
    #[serde(default)]
    pub state: State,
    /// The coordinator's own controls fail.
    #[serde(default)]
    pub coordinator_isolated: bool,
    /// What each vantage observed.
    pub observe: BTreeMap<VantageName, Seen>,
    /// What is right.
    pub expect: Expect,
}

/// What is judged.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// Which of the three.
    pub kind: Kind,
    /// Name that is asked for (answer).
    pub canary: Option<DomainName>,
    /// Resolver in use (answer).
    pub resolver: Option<ResolverName>,
    /// Host name of the managed record.
    pub host: Option<DomainName>,
    /// That resolver is meant to filter.
    #[serde(default)]
    pub filtering_wanted: bool,
    /// Addresses that are known to stand for a block.
    #[serde(default)]
    pub stubs: BTreeSet<IpAddr>,
    /// The record's policy allows a failover for the audience alone.
    #[serde(default)]
    pub audience_failover: bool,
}

/// What is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// What a resolver answers for a name.
    Answer,
    /// A resolver's endpoint.
    Endpoint,
    /// A node of ours behind a managed record.
    Managed,
}

/// A managed record's history.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Node that it points to; native when absent.
    pub record: Option<Node>,
    /// Good rounds in a row of the native node.
    pub ok_streak: Option<u32>,
    /// What they span, in seconds.
    pub ok_for_s: Option<u32>,
    /// Since the last change of the record, in seconds.
    pub since_switch_s: Option<u32>,
    /// Relapses within the last hour.
    #[serde(default)]
    pub relapses: u32,
    /// The incident made all the changes it may.
    #[serde(default)]
    pub budget_spent: bool,
}

/// A node behind the managed record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Node {
    /// Serves when all is well.
    Native,
    /// First fallback.
    Fallback1,
    /// Second fallback.
    Fallback2,
}

impl Node {
    /// All, in order of preference.
    pub const ALL: [Self; 3] = [Self::Native, Self::Fallback1, Self::Fallback2];

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Fallback1 => "fallback1",
            Self::Fallback2 => "fallback2",
        }
    }
}

/// What one vantage observed; what is absent is as in the defaults.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Seen {
    /// Whether it reports.
    pub report: Report,
    /// Positive controls reached, of 3.
    #[serde(deserialize_with = "three_at_most")]
    pub controls: usize,
    /// The negative control.
    pub neg: Negative,
    /// The captive-portal question.
    pub portal: Portal,
    /// Its clock against the coordinator's, in seconds.
    pub skew_s: i64,
    /// Proof of life.
    pub proof: Proof,
    /// Whether it has IPv6.
    pub v6: V6,
    /// Failure domain; its own name when absent.
    pub domain: Option<FailureDomain>,
    /// Whether it stands for the users of the managed record.
    pub audience: bool,
    /// Agreeing probes in a row.
    #[serde(deserialize_with = "one_at_least")]
    pub n: u32,
    /// What they span, in seconds.
    pub span_s: u32,
    /// Upper bound of the rate of false failures here.
    #[serde(deserialize_with = "rate")]
    pub f0: f64,
    /// The incident made all the changes it may at this vantage.
    pub budget_spent: bool,
    /// The endpoint never once worked with this kind of probe.
    pub never_ok: bool,
    /// What each resolver answers.
    pub ans: BTreeMap<ResolverName, Given>,
    /// What became of each address.
    pub addr: BTreeMap<IpAddr, AddressToken>,
    /// The endpoint in use.
    #[serde(rename = "E1")]
    pub e1: Option<EndpointToken>,
    /// The next in the chain.
    #[serde(rename = "E2")]
    pub e2: Option<EndpointToken>,
    /// The router's own resolver.
    pub live: Option<EndpointToken>,
    /// The native node.
    pub native: Option<AddressToken>,
    /// The first fallback.
    pub fallback1: Option<AddressToken>,
    /// The second fallback.
    pub fallback2: Option<AddressToken>,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            report: Report::Fresh,
            controls: 3,
            neg: Negative::Silent,
            portal: Portal::Open,
            skew_s: 0,
            proof: Proof::None,
            v6: V6::Works,
            domain: None,
            audience: true,
            n: 3,
            span_s: 10,
            f0: 0.0,
            budget_spent: false,
            never_ok: false,
            ans: BTreeMap::new(),
            addr: BTreeMap::new(),
            e1: None,
            e2: None,
            live: None,
            native: None,
            fallback1: None,
            fallback2: None,
        }
    }
}

impl Seen {
    /// What it sees of a node.
    #[must_use]
    pub fn node(&self, node: Node) -> AddressToken {
        let token = match node {
            Node::Native => self.native,
            Node::Fallback1 => self.fallback1,
            Node::Fallback2 => self.fallback2,
        };
        token.unwrap_or(AddressToken::NotRun)
    }
}

/// Whether a vantage reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// Now.
    Fresh,
    /// Now, of things older than two rounds.
    Late,
    /// Not.
    Absent,
}

/// The negative control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Negative {
    /// As it must be.
    Silent,
    /// Somebody answers in its place.
    Answered,
}

/// The captive-portal question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Portal {
    /// Status 204.
    Open,
    /// A page of somebody else.
    Captive,
}

/// Proof of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// Every node that is reported as alive proved it.
    Ok,
    /// Not asked for.
    None,
    /// Invalid, or the reports of one identity contradict each other.
    Bad,
}

/// Whether a vantage has IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum V6 {
    /// `true`
    Works,
    /// `false`: it had it.
    Lost,
    /// `none`: it never had it.
    Never,
}

impl<'de> Deserialize<'de> for V6 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Word;
        impl Visitor<'_> for Word {
            type Value = V6;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or none")
            }

            fn visit_bool<E>(self, works: bool) -> Result<V6, E> {
                Ok(if works { V6::Works } else { V6::Lost })
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<V6, E> {
                match word {
                    "true" => Ok(V6::Works),
                    "false" => Ok(V6::Lost),
                    "none" => Ok(V6::Never),
                    other => Err(E::custom(format!("v6 is true, false or none, not '{other}'"))),
                }
            }
        }
        deserializer.deserialize_any(Word)
    }
}

/// What one resolver answers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Given {
    /// Response code.
    pub rcode: Rcode,
    /// Addresses of both families.
    pub a: Vec<IpAddr>,
    /// Extended DNS error.
    pub ede: Option<u16>,
    /// The reply's RA bit is clear.
    pub ra0: bool,
    /// An alias that leads to no address.
    pub cname_only: bool,
    /// A second, different reply came.
    pub two_replies: bool,
    /// Own validation of a signed canary.
    pub dnssec: Option<Dnssec>,
    /// How it was asked; encrypted when absent.
    pub transport: Option<Transport>,
    /// Whether the resolver validates.
    pub validates: bool,
}

impl Default for Given {
    fn default() -> Self {
        Self {
            rcode: Rcode::Noerror,
            a: Vec::new(),
            ede: None,
            ra0: false,
            cname_only: false,
            two_replies: false,
            dnssec: None,
            transport: None,
            validates: true,
        }
    }
}

/// Response codes, and none at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Rcode {
    /// 0
    Noerror,
    /// 1
    Formerr,
    /// 2
    Servfail,
    /// 3
    Nxdomain,
    /// 4
    Notimp,
    /// 5
    Refused,
    /// No reply.
    None,
}

/// What own validation came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dnssec {
    /// Signed, and the signatures hold.
    #[serde(alias = "ok")]
    Secure,
    /// Not signed.
    Insecure,
    /// Signed, and they do not.
    Bogus,
}

/// How a resolver is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Plain DNS over UDP.
    Udp,
    /// Plain DNS over TCP.
    Tcp,
    /// DNS over TLS.
    Dot,
    /// DNS over HTTPS.
    Doh,
}

impl Transport {
    /// Whether nobody on the path can read or change it.
    #[must_use]
    pub fn encrypted(self) -> bool {
        match self {
            Self::Udp | Self::Tcp => false,
            Self::Dot | Self::Doh => true,
        }
    }
}

/// What is right.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Vantages that are not ok, and what they are.
    #[serde(default)]
    pub vantage: BTreeMap<VantageName, String>,
    /// Verdicts of the subject at some vantages.
    #[serde(default)]
    pub per_vantage: BTreeMap<VantageName, String>,
    /// The finding: each fault with its vantage, sorted, or the node's verdict.
    pub fused: String,
    /// The whole set of actions.
    #[serde(rename = "do")]
    pub actions: BTreeSet<Action>,
    /// What must not be among them.
    #[serde(default)]
    pub never: BTreeSet<Action>,
}

fn three_at_most<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    match usize::deserialize(deserializer)? {
        controls @ 0..=3 => Ok(controls),
        other => Err(D::Error::custom(format!("{other} controls; there are 3"))),
    }
}

fn one_at_least<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        n @ 1..=1000 => Ok(n),
        other => Err(D::Error::custom(format!("n is {other}; 1 to 1000 probes make a case"))),
    }
}

fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let rate = f64::deserialize(deserializer)?;
    if (0.0..1.0).contains(&rate) { Ok(rate) } else { Err(D::Error::custom(format!("f0 is {rate}; it is below 1"))) }
}

/// Reads the cases of a file.
///
/// # Errors
/// [`CaseError`], with the place of what is wrong.
pub fn read(path: &Path) -> Result<Vec<Case>, CaseError> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| CaseError::Unreadable { path: shown.clone(), error })?;
    parse(&shown, &text)
}

/// The cases of a text; `path` names it in errors.
///
/// # Errors
/// [`CaseError`], with the place of what is wrong.
pub fn parse(path: &str, text: &str) -> Result<Vec<Case>, CaseError> {
    let file: File = serde_saphyr::from_str(text)
        .map_err(|error| CaseError::Format { path: path.to_owned(), error: Box::new(error) })?;
    let Version = file.version;
    let mut known = BTreeSet::new();
    for case in &file.scenarios {
        let wrong =
            if known.insert(case.id.as_str()) { case.contradiction() } else { Some("the id is used twice".into()) };
        if let Some(what) = wrong {
            return Err(CaseError::Case { path: path.to_owned(), id: case.id.clone(), what });
        }
    }
    Ok(file.scenarios)
}

impl Case {
    /// What in it cannot be.
    fn contradiction(&self) -> Option<String> {
        let subject = &self.subject;
        if self.observe.is_empty() {
            return Some("no vantage observes anything".to_owned());
        }
        match subject.kind {
            Kind::Answer if subject.canary.is_none() || subject.resolver.is_none() => {
                Some("an answer needs a canary and a resolver".to_owned())
            }
            Kind::Managed if subject.host.is_none() => Some("a managed record needs a host".to_owned()),
            Kind::Answer | Kind::Endpoint | Kind::Managed => self
                .expect
                .vantage
                .keys()
                .chain(self.expect.per_vantage.keys())
                .find(|vantage| !self.observe.contains_key(*vantage))
                .map(|vantage| format!("{vantage} is expected something of and observes nothing")),
        }
    }
}
