//! Finding the programs the lab is made of, and saying in one screen what is missing.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Administrators' directories that an ordinary user's PATH often lacks.
const ADMIN_DIRECTORIES: [&str; 4] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin"];

/// PATH with the administrators' directories at its end, for what we start.
///
/// # Errors
/// PATH cannot be put together again.
pub fn path() -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::env::split_paths(&path).chain(ADMIN_DIRECTORIES.iter().map(PathBuf::from));
    std::env::join_paths(all).context("PATH has an entry that cannot be used")
}

/// The full path of a program, if it is installed.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let path = path().ok()?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|candidate| candidate.is_file())
}

/// The DNS servers of the lab.
#[derive(Debug, Clone)]
pub struct Programs {
    /// BIND.
    pub named: PathBuf,
    /// Unbound.
    pub unbound: PathBuf,
    /// dnsdist.
    pub dnsdist: PathBuf,
}

impl Programs {
    /// Finds the servers. Where AppArmor is on, copies them to `bin`: the distribution's profiles attach by path and
    /// allow system directories only.
    ///
    /// # Errors
    /// A server is not installed, or cannot be copied.
    pub fn locate(bin: &Path) -> Result<Self> {
        let wanted = [("named", "bind9"), ("unbound", "unbound"), ("dnsdist", "dnsdist")];
        let missing: Vec<&str> =
            wanted.iter().filter(|(program, _)| find(program).is_none()).map(|(_, package)| *package).collect();
        if !missing.is_empty() {
            let list = missing.join(" ");
            bail!(
                "the lab needs servers that are not installed: {list}\n  apt-get install --no-install-recommends {list}"
            );
        }
        let confined =
            std::fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|v| v.starts_with('Y'));
        let place = |name: &str| -> Result<PathBuf> {
            let installed = find(name).with_context(|| format!("{name} disappeared"))?;
            if !confined {
                return Ok(installed);
            }
            std::fs::create_dir_all(bin)?;
            let copy = bin.join(name);
            std::fs::copy(&installed, &copy).with_context(|| format!("copying {}", installed.display()))?;
            Ok(copy)
        };
        Ok(Self { named: place("named")?, unbound: place("unbound")?, dnsdist: place("dnsdist")? })
    }
}

/// A binary of ours: beside the running one, or one directory up (where Cargo puts test executables' neighbours).
///
/// # Errors
/// It was not built.
pub fn ours(name: &str) -> Result<PathBuf> {
    let me = std::env::current_exe().context("finding the running executable")?;
    let beside = me.parent().map(|d| d.join(name));
    let above = me.parent().and_then(Path::parent).map(|d| d.join(name));
    let found = [beside, above].into_iter().flatten().find(|p| p.is_file());
    found.with_context(|| {
        format!(
            "{name} is not beside {}; build it with: cargo build -p parallax-coordinator -p parallax-agent --features parallax-agent/lab",
            me.display()
        )
    })
}
