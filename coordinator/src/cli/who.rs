//! Who does it, for the audit table.

use clap::Args;

/// Longest name that is kept, in characters.
const NAME_CHARS_MAX: usize = 100;

/// Who does it, and why.
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
