//! `parallax-agent leave`: forgets who this agent is.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;

use clap::Args;

use crate::assignment::{epoch, kept};
use crate::cli::STATE;
use crate::failure::{Exit, Failure};
use crate::identity::folder::{FOLDER, Folder};
use crate::standing;
use crate::uplink::identity::Identity;

/// Flags of `leave`.
#[derive(Debug, Clone, Args)]
pub struct Leave {
    /// Folder of the state, as for `run`.
    #[arg(long, value_name = "DIR", env = "PARALLAX_AGENT_STATE", default_value = STATE)]
    pub state: PathBuf,

    /// Folder of the identity, as for `run`. [default: identity in the state folder]
    #[arg(long, value_name = "DIR", env = "PARALLAX_AGENT_IDENTITY")]
    pub identity: Option<PathBuf>,

    /// Do not ask.
    #[arg(long)]
    pub yes: bool,

    /// Never ask: without --yes nothing is done.
    #[arg(long)]
    pub no_input: bool,
}

/// Wipes the identity. What to tell whoever did it.
///
/// # Errors
/// When an agent runs on it, nobody agreed, or the disk does not let it.
pub fn run(options: &Leave) -> Result<String, Failure> {
    let path = options.identity.clone().unwrap_or_else(|| options.state.join(FOLDER));
    let folder = Folder::new(path.clone());
    if !folder.is_joined() {
        return Ok(format!("no identity in {}: nothing to forget\n", path.display()));
    }
    if standing::is_running(&options.state) {
        return Err(failure(
            "an agent is running with this identity",
            format!("it holds {}", options.state.display()),
            "stop it first: systemctl disable --now parallax-agent, or end the process or container",
        ));
    }
    let vantage = Identity::new(path.clone()).credentials().map(|held| held.vantage.clone()).unwrap_or_default();
    if !options.yes && (options.no_input || !agreed(&vantage)) {
        return Err(failure(
            "nothing was done",
            "nobody agreed to it".to_owned(),
            "say --yes: the identity is gone then, and a new one takes a token",
        ));
    }
    folder.wipe().map_err(|error| {
        failure("the identity could not be wiped", error.to_string(), "run it as root or as the agent's user")
    })?;
    // A new identity may be of another coordinator, whose epochs and versions count from lower on.
    epoch::forget(&options.state);
    kept::forget(&options.state);
    let shown = if vantage.is_empty() { "NAME" } else { &vantage };
    Ok(format!(
        "left: the identity of {shown} was wiped from {}\nThe coordinator does not know yet. There, to refuse the old certificate:  parallax vantage revoke {shown}\nor, for another machine at that place:  parallax vantage replace {shown}\nUnsent observations stay in {} until they are deleted by hand.\n",
        path.display(),
        options.state.display()
    ))
}

/// Asks at a terminal; elsewhere nobody agrees.
fn agreed(vantage: &str) -> bool {
    if !std::io::stdin().is_terminal() {
        return false;
    }
    let _ = write!(std::io::stderr(), "Wipe the identity of {vantage} from this machine? Type yes: ");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).is_ok() && line.trim() == "yes"
}

fn failure(what: &str, why: String, fix: &str) -> Failure {
    let (what, fix) = (what.to_owned(), fix.to_owned());
    Failure { exit: Exit::Failed, code: "E0441", word: "not_left", what, why, fix }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::folder::{CERTIFICATE, KEY};

    #[test]
    fn nothing_is_wiped_without_a_word_and_then_nothing_is_left() {
        let state = tempfile::tempdir().unwrap();
        let mut options = Leave { state: state.path().to_owned(), identity: None, yes: false, no_input: true };
        assert!(run(&options).unwrap().contains("nothing to forget"));
        let folder = state.path().join(FOLDER);
        std::fs::create_dir(&folder).unwrap();
        for file in [CERTIFICATE, KEY] {
            std::fs::write(folder.join(file), "x").unwrap();
        }
        assert!(run(&options).unwrap_err().fix.contains("--yes"));
        assert!(folder.join(KEY).exists());
        options.yes = true;
        let lock = std::fs::File::create(state.path().join("lock")).unwrap();
        lock.lock().unwrap();
        assert!(run(&options).unwrap_err().what.contains("running"));
        drop(lock);
        for file in ["epoch", "assignment"] {
            std::fs::write(state.path().join(file), "of the coordinator that is left").unwrap();
        }
        assert!(run(&options).unwrap().contains("vantage revoke"));
        for file in ["epoch", "assignment"] {
            assert!(!state.path().join(file).exists(), "{file}");
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    }
}
