//! What this coordinator last saw of each database, in a file of its state directory.
//!
//! ```text
//! STATE/witness.json   { "schema": 1, "seen": { INSTALLATION: { generation, epoch, observation, at_ms } } }
//! ```
//!
//! Written beside its place, synced and renamed, at most every few seconds and only when something rose. A file that
//! cannot be read is moved aside: what it knew is lost, which is no reason not to start.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use parallax_decide::time::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::store::installation::{Found, Position};

/// Most databases that are remembered; the one not seen for longest goes first.
const SEEN_MAX: usize = 8;

/// What is remembered.
#[derive(Debug)]
pub struct Witness {
    file: PathBuf,
    seen: BTreeMap<Uuid, Seen>,
    /// Whether the last write failed: said once.
    failing: bool,
}

/// How far one database was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    #[serde(flatten)]
    position: Position,
    /// When, by its own clock, ms since 1970.
    at_ms: i64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    schema: u32,
    seen: BTreeMap<String, Seen>,
}

/// What a database is, compared with what is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// Nothing is remembered of any database.
    First,
    /// At least as far as it was.
    AsKnown,
    /// Its generation is above the remembered one: it went back, and somebody recorded that.
    Recorded,
    /// It was further.
    WentBack {
        /// How far.
        seen: Position,
        /// When, by its clock.
        seen_at: Timestamp,
    },
    /// Others are remembered, not this one.
    Stranger {
        /// The one seen last.
        known: Uuid,
        /// The highest generation of them.
        above: i32,
        /// When that one was seen.
        seen_at: Timestamp,
    },
}

impl Witness {
    /// Reads the file of a state directory.
    #[must_use]
    pub fn open(state: &Path) -> Self {
        let file = state.join("witness.json");
        let seen = match std::fs::read(&file) {
            Ok(bytes) => match serde_json::from_slice::<Content>(&bytes) {
                Ok(content) => {
                    content.seen.into_iter().filter_map(|(id, seen)| Some((id.parse().ok()?, seen))).collect()
                }
                Err(error) => {
                    tracing::error!(file = %file.display(), %error, "cannot be read, and is moved aside: a database that went back may go unnoticed once");
                    let _ = std::fs::rename(&file, file.with_extension("json.unreadable"));
                    BTreeMap::new()
                }
            },
            Err(error) => {
                if error.kind() != std::io::ErrorKind::NotFound {
                    tracing::error!(file = %file.display(), %error, "cannot be read");
                }
                BTreeMap::new()
            }
        };
        Self { file, seen, failing: false }
    }

    /// Compares.
    #[must_use]
    pub fn judge(&self, found: &Found) -> Judged {
        let Some(seen) = self.seen.get(&found.installation) else {
            let last = self.seen.iter().max_by_key(|(_, seen)| seen.at_ms);
            let above = self.seen.values().map(|seen| seen.position.generation).max();
            return match (last, above) {
                (Some((known, seen)), Some(above)) => {
                    Judged::Stranger { known: *known, above, seen_at: Timestamp(seen.at_ms) }
                }
                _ => Judged::First,
            };
        };
        let (was, is) = (seen.position, found.position);
        if is.generation > was.generation {
            return Judged::Recorded;
        }
        let behind = is.generation < was.generation || is.epoch < was.epoch || is.observation < was.observation;
        if behind { Judged::WentBack { seen: was, seen_at: Timestamp(seen.at_ms) } } else { Judged::AsKnown }
    }

    /// Remembers how far a database is. A file that cannot be written is said once; memory still knows.
    pub async fn remember(&mut self, found: &Found) {
        let now = Seen { position: found.position, at_ms: found.now.0 };
        let before = self.seen.insert(found.installation, now);
        while self.seen.len() > SEEN_MAX {
            let oldest = self.seen.iter().min_by_key(|(_, seen)| seen.at_ms).map(|(id, _)| *id);
            oldest.and_then(|id| self.seen.remove(&id));
        }
        if before.is_some_and(|before| before.position == now.position) && !self.failing {
            return;
        }
        let (file, content) = (
            self.file.clone(),
            Content { schema: 1, seen: self.seen.iter().map(|(id, seen)| (id.to_string(), *seen)).collect() },
        );
        let written = tokio::task::spawn_blocking(move || write(&file, &content)).await;
        match written.map_err(std::io::Error::other).and_then(|result| result) {
            Ok(()) => self.failing = false,
            Err(error) if !self.failing => {
                self.failing = true;
                tracing::error!(file = %self.file.display(), %error, "cannot be written: after a restart a database that went back may go unnoticed");
            }
            Err(_) => {}
        }
    }
}

fn write(file: &Path, content: &Content) -> std::io::Result<()> {
    let new = file.with_extension("json.new");
    let mut out = std::fs::File::create(&new)?;
    out.write_all(&serde_json::to_vec_pretty(content)?)?;
    out.sync_all()?;
    std::fs::rename(&new, file)?;
    match file.parent() {
        Some(folder) => std::fs::File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
