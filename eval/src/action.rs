//! The words for what is done: those of `expect.do` and `expect.never`, and what came of a run.
//!
//! | word | what it is in the product |
//! |---|---|
//! | `alert` | an incident opens, or its finding changes |
//! | `confirm` | a burst or a cross-check is asked for, because too little is known |
//! | `hold` | the planner says why nothing is changed; of managed records, and of endpoints when no candidate is left |
//! | `freeze` | the fleet's finding |
//! | `vantage_alert:V` | an incident about the vantage itself |
//! | `path_ticket:V` | the incident keeps evidence for the network provider |
//! | `override_answer:V` | a pin is planned |
//! | `switch_resolver:V:R` | a switch of the place's resolver to another endpoint is offered |
//! | `failover:NODE`, `return` | a repoint is planned, away and back |
//! | `none` | nothing of all this |

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One action, as the file writes it: a word, and after colons where and to what.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String")]
pub struct Action(String);

/// A word that no case may use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no action; known are {list}", list = known())]
pub struct UnknownAction(String);

/// Every word, and how many parts may follow it at most.
const WORDS: [(&str, usize); 23] = [
    ("alert", 0),
    ("none", 0),
    ("hold", 0),
    ("confirm", 0),
    ("freeze", 0),
    ("backoff", 1),
    ("security", 0),
    ("fix_config", 0),
    ("fix_clock", 1),
    ("ask_operator", 0),
    ("vantage_alert", 1),
    ("exclude", 1),
    ("path_ticket", 1),
    ("override_answer", 1),
    ("switch_resolver", 2),
    ("flush_cache", 1),
    ("disqualify_fallback", 1),
    ("failover", 1),
    ("return", 0),
    // What no planner can say: written as forbidden all the same.
    ("downgrade_plain", 1),
    ("probe_private", 1),
    ("disable_tls_verify", 1),
    ("disable_validation", 1),
];

fn known() -> String {
    let words: Vec<&str> = WORDS.iter().map(|(word, _)| *word).collect();
    words.join(", ")
}

impl Action {
    /// A word alone.
    #[must_use]
    pub fn plain(word: &str) -> Self {
        Self(word.to_owned())
    }

    /// A word with where or to what.
    #[must_use]
    pub fn of(word: &str, what: impl fmt::Display) -> Self {
        Self(format!("{word}:{what}"))
    }

    /// Nothing is done.
    #[must_use]
    pub fn none() -> Self {
        Self::plain("none")
    }

    /// The action as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn word(&self) -> &str {
        self.0.split(':').next().unwrap_or_default()
    }

    /// Whether it is one of these, each of which stands for everything that begins with it.
    #[must_use]
    pub fn is_among(&self, patterns: &BTreeSet<Action>) -> bool {
        patterns.iter().any(|pattern| {
            let rest = self.0.strip_prefix(pattern.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        })
    }

    /// Whether it changes what users are given.
    #[must_use]
    pub fn changes(&self) -> bool {
        ["override_answer", "switch_resolver", "flush_cache", "failover", "return"].contains(&self.word())
    }
}

impl FromStr for Action {
    type Err = UnknownAction;

    fn from_str(text: &str) -> Result<Self, UnknownAction> {
        let mut parts = text.split(':');
        let word = parts.next().unwrap_or_default();
        let rest: Vec<&str> = parts.collect();
        let fits = WORDS.iter().any(|(known, most)| *known == word && rest.len() <= *most);
        if fits && rest.iter().all(|part| !part.is_empty()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(UnknownAction(text.to_owned()))
        }
    }
}

impl TryFrom<String> for Action {
    type Error = UnknownAction;

    fn try_from(text: String) -> Result<Self, UnknownAction> {
        text.parse()
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
