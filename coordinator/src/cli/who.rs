//! Who does it, for the audit table.

use clap::Args;
use serde_json::Value;
use sqlx::PgConnection;

use super::database::Database;
use super::reading::failed;
use crate::error::{Exit, Failure};
use crate::store::audit::{self, Deed};

/// Longest name that is kept, in characters.
const NAME_CHARS_MAX: usize = 100;

/// Longest reason, in characters.
const REASON_CHARS_MAX: usize = 500;

/// Refuses a reason that says nothing, or is no line.
///
/// # Errors
/// When it is.
pub fn check_reason(reason: &str) -> Result<(), Failure> {
    if reason.trim().is_empty() || reason.chars().count() > REASON_CHARS_MAX || reason.chars().any(char::is_control) {
        return Err(Failure::new(Exit::Usage, "give a --reason of 1 to 500 characters, in one line")
            .why("whoever reads the audit table later must understand it"));
    }
    Ok(())
}

/// Leaves a row in the audit table; in a transaction with the deed, where the deed is in the database.
///
/// # Errors
/// When the database refuses.
pub async fn note(
    connection: &mut PgConnection,
    (what, subject): (&'static str, &str),
    (who, reason): (&Who, &str),
    detail: Value,
) -> Result<(), Failure> {
    let deed = Deed { who: &who.name(), what, subject, reason };
    audit::write(connection, deed, &detail).await.map_err(failed)
}

/// Why something is done, who does it, and the database that is told.
#[derive(Debug, Args)]
pub struct By {
    /// Why, for the audit table.
    #[arg(long)]
    pub reason: String,
    /// Who does it.
    #[command(flatten)]
    pub who: Who,
    /// Where it is written down.
    #[command(flatten)]
    pub database: Database,
}

impl By {
    /// Who, and why, as [`note`] takes it.
    #[must_use]
    pub fn deed(&self) -> (&Who, &str) {
        (&self.who, &self.reason)
    }
}

/// Who does it.
#[derive(Debug, Clone, Args)]
pub struct Who {
    /// Who does it, for the audit table [default: the user of this machine].
    #[arg(id = "who", long = "as", value_name = "WHO")]
    pub given: Option<String>,
}

impl Who {
    /// The name: as given, else the user's; behind sudo, whoever called it.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.given.clone().unwrap_or_else(|| {
            let own = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten().map(|user| user.name);
            let own = own.unwrap_or_else(|| nix::unistd::getuid().to_string());
            match std::env::var("SUDO_USER") {
                Ok(caller) if nix::unistd::getuid().is_root() && !caller.is_empty() => format!("{caller} (as {own})"),
                Ok(_) | Err(_) => own,
            }
        });
        let name: String = name.chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect();
        if name.trim().is_empty() { "unknown".to_owned() } else { name }
    }
}
