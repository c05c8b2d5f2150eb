//! What keeps the agent, or a command of it, from beginning: each with its code, its exit and its cure.

use std::path::PathBuf;

use crate::by_hand::ProbeError;
use crate::failure::{Exit, Failure};
use crate::local::LocalError;
use crate::tls::TrustError;
use crate::uplink::IdentityRefused;
use crate::uplink::address::COORDINATORS_MAX;
use crate::uplink::identity::IdentityError;
use crate::uplink::proxy::NoProxySetting;

/// Why the agent did not begin, where no other part has an error of its own.
#[derive(Debug, thiserror::Error)]
pub enum NotBegun {
    /// Neither a flag nor the identity folder says where a coordinator is.
    #[error("nothing says where a coordinator is: the identity folder has no coordinators.txt")]
    NoCoordinator,
    /// More than are tried.
    #[error("{0} coordinators are given, at most {COORDINATORS_MAX} are tried")]
    TooManyCoordinators(usize),
    /// Another agent holds the state folder.
    #[error("another agent uses the state folder {0}")]
    StateInUse(PathBuf),
    /// The state folder cannot be written.
    #[error("cannot write in the state folder: {path}: {source}")]
    StateUnwritable {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// What whoever started it reads: every way not to begin has a code and an exit of its own kind; what is left is
/// trouble of this machine, exit 1.
#[must_use]
pub fn failure(error: &anyhow::Error) -> Failure {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.clone();
    }
    let why = format!("{error:#}");
    if let Some(not) = error.downcast_ref::<NotBegun>() {
        return not.failure(why);
    }
    if error.is::<IdentityRefused>() {
        return Failure {
            exit: Exit::Refused,
            code: "E0420",
            word: "identity_refused",
            what: "the coordinator does not accept this agent".to_owned(),
            why,
            fix: "`parallax-agent leave`, then join with a token of `parallax token create NAME`".to_owned(),
        };
    }
    if error.is::<LocalError>() {
        return owner_file(why);
    }
    if error.is::<IdentityError>() {
        return Failure {
            what: "this agent has no identity to begin with".to_owned(),
            ..Failure::configuration(
                "E0434",
                "identity_unusable",
                why,
                "join with a token: `parallax token create NAME` on the coordinator, `parallax-agent join TOKEN` here",
            )
        };
    }
    if error.is::<NoProxySetting>() {
        return Failure::configuration("E0436", "proxy_setting", why, "correct it in the owner's file or in --proxy");
    }
    if error.is::<TrustError>() {
        return roots(why);
    }
    Failure {
        exit: Exit::Failed,
        code: "E0450",
        word: "failed",
        what: "the agent cannot go on".to_owned(),
        why,
        fix: "see what the system says; start it again".to_owned(),
    }
}

impl NotBegun {
    fn failure(&self, why: String) -> Failure {
        match self {
            Self::NoCoordinator => {
                Failure::configuration("E0435", "no_coordinator", why, "name one with --coordinator HOST:PORT")
            }
            Self::TooManyCoordinators(_) => {
                Failure::configuration("E0438", "too_many_coordinators", why, "name fewer with --coordinator")
            }
            Self::StateInUse(_) => Failure {
                exit: Exit::Failed,
                code: "E0442",
                word: "state_in_use",
                what: "the state folder is taken".to_owned(),
                why,
                fix: "stop the other one, or give each its own with --state".to_owned(),
            },
            Self::StateUnwritable { .. } => Failure {
                exit: Exit::Failed,
                code: "E0431",
                word: "state_unwritable",
                what: "the state folder cannot be used".to_owned(),
                why,
                fix: "give it to the agent's user, or name another with --state".to_owned(),
            },
        }
    }
}

/// As [`failure`], for `probe`.
#[must_use]
pub fn of_probe(error: &ProbeError) -> Failure {
    match error {
        ProbeError::Local(error) => owner_file(error.to_string()),
        ProbeError::Trust(error) => roots(error.to_string()),
        ProbeError::Resolvers(_) => Failure {
            what: "nothing was measured".to_owned(),
            ..Failure::configuration("E0439", "too_many_resolvers", error.to_string(), "name fewer with --resolver")
        },
    }
}

fn owner_file(why: String) -> Failure {
    Failure::configuration("E0433", "owner_file", why, "correct the owner's file, or name another with --local")
}

fn roots(why: String) -> Failure {
    Failure::configuration(
        "E0437",
        "roots_unusable",
        why,
        "install ca-certificates, or correct tls_roots in the owner's file",
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::local::Local;
    use crate::uplink::identity::Identity;
    use crate::uplink::proxy::Proxy;

    #[test]
    fn every_way_not_to_begin_has_its_code_and_its_exit() {
        let identity = Identity::new("/nonexistent".into()).credentials().unwrap_err();
        let unwritable =
            NotBegun::StateUnwritable { path: "/s".into(), source: std::io::ErrorKind::PermissionDenied.into() };
        let told: Vec<(&str, u8)> = [
            anyhow::Error::from(IdentityRefused("revoked".into())),
            Local::read(Some(Path::new("/nonexistent"))).unwrap_err().into(),
            identity.into(),
            NotBegun::NoCoordinator.into(),
            NotBegun::TooManyCoordinators(99).into(),
            Proxy::parse("socks://a:1").unwrap_err().into(),
            NotBegun::StateInUse("/s".into()).into(),
            unwritable.into(),
            anyhow::anyhow!("else"),
        ]
        .iter()
        .map(|error| {
            let failure = failure(error);
            assert!(!failure.fix.is_empty() && !failure.why.is_empty(), "{failure}");
            (failure.code, failure.exit.code())
        })
        .collect();
        let exits: Vec<u8> = told.iter().map(|(_, exit)| *exit).collect();
        assert_eq!(exits, [4, 2, 2, 2, 2, 2, 1, 1, 1]);
        assert_eq!(told.iter().map(|(code, _)| *code).collect::<BTreeSet<_>>().len(), told.len());
    }

    #[test]
    fn a_context_around_it_changes_nothing() {
        let error = anyhow::Error::from(NotBegun::NoCoordinator).context("while starting");
        assert_eq!((failure(&error).code, failure(&error).exit), ("E0435", Exit::Usage));
    }
}
