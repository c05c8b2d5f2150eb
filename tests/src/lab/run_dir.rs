//! The private directory of one run: everything the lab makes is in it, and goes with it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Leaves room for the directory's own name and `/coordinator/pg/socket/.s.PGSQL.5432`.
const PARENT_BYTES_MAX: usize = 50;

/// A directory that removes itself.
#[derive(Debug)]
pub struct RunDir {
    directory: tempfile::TempDir,
}

impl RunDir {
    /// Makes it under `$TMPDIR` or /tmp.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn create() -> Result<Self> {
        let parent = parent();
        let directory = tempfile::Builder::new()
            .prefix("parallax-lab-")
            .tempdir_in(&parent)
            .with_context(|| format!("making a private directory in {}", parent.display()))?;
        passable(directory.path())?;
        Ok(Self { directory })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Leaves it on disk and returns where it is.
    #[must_use]
    pub fn keep(self) -> PathBuf {
        self.directory.keep()
    }
}

/// `$TMPDIR` where it will do: the namespace world covers /run, and Postgres' socket below it must fit 107 bytes.
fn parent() -> PathBuf {
    let wanted = std::env::temp_dir();
    if wanted.starts_with("/run") || wanted.starts_with("/var/run") || wanted.as_os_str().len() > PARENT_BYTES_MAX {
        return PathBuf::from("/tmp");
    }
    wanted
}

/// Makes a directory only its owner can enter.
///
/// # Errors
/// The file system refuses.
pub fn private(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).with_context(|| format!("making {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
    Ok(())
}

/// Makes a directory that only its owner can read. As root the embedded Postgres runs under another user, who must be able
/// to walk through.
///
/// # Errors
/// The file system refuses.
pub fn passable(path: &Path) -> Result<()> {
    let mode = if nix::unistd::geteuid().is_root() { 0o711 } else { 0o700 };
    std::fs::create_dir_all(path).with_context(|| format!("making {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// Writes a file that only its owner can read.
///
/// # Errors
/// The file system refuses.
pub fn write_private(path: &Path, content: &str) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("writing {}", path.display()))?;
    file.write_all(content.as_bytes())?;
    Ok(())
}

/// Random bytes for the run's own keys, in base64.
///
/// # Errors
/// The system's source of randomness cannot be read.
pub fn random_key() -> Result<String> {
    use base64::Engine;
    use std::io::Read;
    let mut bytes = [0_u8; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes).context("reading /dev/urandom")?;
    Ok(base64::engine::general_purpose::STANDARD.encode(bytes))
}
