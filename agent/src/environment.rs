//! The variables that the agent reads. One that begins as ours and is none of them is refused: a misspelt limit of what
//! may be contacted would silently be none.

use std::collections::BTreeSet;

use clap::CommandFactory as _;

use crate::cli::Cli;
use crate::failure::Failure;

/// Begins all that belong to flags.
const PREFIX: &str = "PARALLAX_AGENT_";

/// A name further from every known one than so many slips gets no suggestion.
const SLIPS_MAX: usize = 4;

/// Looks at the names of these variables.
///
/// # Errors
/// The first that is misspelt, with the one that was probably meant.
pub fn check(names: impl Iterator<Item = String>) -> Result<(), Failure> {
    let known = known();
    // Sorted, so that the same one is told each time.
    let unknown: BTreeSet<String> = names.filter(|name| name.starts_with(PREFIX) && !known.contains(name)).collect();
    let Some(name) = unknown.first() else { return Ok(()) };
    let nearest = known.iter().map(|one| (slips(one, name), one)).min().filter(|(slips, _)| *slips <= SLIPS_MAX);
    let (why, fix) = match nearest {
        Some((_, meant)) => (
            format!("the variable {name} is none of the agent's, did you mean {meant}?"),
            format!("write {meant}, or take the variable out of the environment"),
        ),
        None => {
            let all = known.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let fix = "take it out of the environment".to_owned();
            (format!("the variable {name} is none of the agent's; there are {all}"), fix)
        }
    };
    Err(Failure::configuration("E0440", "variable_unknown", why, &fix))
}

/// The variables of all flags.
fn known() -> BTreeSet<String> {
    let command = Cli::command();
    let arguments = command.get_subcommands().flat_map(clap::Command::get_arguments);
    arguments.filter_map(|one| one.get_env()?.to_str().map(str::to_owned)).collect()
}

/// Characters to change, insert or leave out to make one of the other (Levenshtein).
fn slips(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (number, a) in one.bytes().enumerate() {
        let mut before = number;
        let mut left = number + 1;
        for (cell, b) in row.iter_mut().skip(1).zip(other.bytes()) {
            let here = (before + usize::from(a != b)).min(left + 1).min(*cell + 1);
            (before, left) = (*cell, here);
            *cell = here;
        }
        if let Some(first) = row.first_mut() {
            *first = number + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_variable_is_refused_with_the_one_that_was_meant() {
        let told = |name: &str| check([name.to_owned(), "PATH".to_owned()].into_iter());
        for good in ["PARALLAX_AGENT_STATE", "PARALLAX_AGENT_COORDINATOR", "PARALLAX_AGENT_LOG", "PARALLAX_TOKEN"] {
            assert_eq!(told(good), Ok(()), "{good}");
        }
        let refused = told("PARALLAX_AGENT_COORDINATER").unwrap_err();
        assert!(refused.why.contains("did you mean PARALLAX_AGENT_COORDINATOR?"), "{refused}");
        assert_eq!((refused.exit.code(), refused.code), (2, "E0440"));
        assert!(told("PARALLAX_AGENT_PROXIES").unwrap_err().why.contains("PARALLAX_AGENT_PROXY?"));
        let far = told("PARALLAX_AGENT_SOMETHING_ELSE").unwrap_err();
        assert!(far.why.contains("there are PARALLAX_AGENT_COORDINATOR, "), "{far}");
    }

    #[test]
    fn slips_are_counted() {
        for (one, other, many) in [("", "", 0), ("abc", "abc", 0), ("abc", "abd", 1), ("abc", "ac", 1), ("", "xy", 2)] {
            assert_eq!((slips(one, other), slips(other, one)), (many, many), "{one} {other}");
        }
    }
}
