//! `parallax-agent status`: how things stand, read from the state folder beside a running agent.
//!
//! A running agent writes a few lines into its state folder when its link changes, and not otherwise: flash
//! wears. What else there is to know lies there anyway.

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::assignment::epoch::Epoch;
use crate::assignment::kept::Kept;
use crate::assignment::operators;
use crate::cli::STATE;
use crate::clock;
use crate::date;
use crate::failure::{Exit, Failure};
use crate::identity::folder::{FOLDER, Folder};
use crate::uplink::identity::Identity;
use crate::uplink::status::{Snapshot, Status};

/// Name of the file in the state folder.
const FILE: &str = "status.json";

/// Largest such file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// How often a running agent looks whether there is something new to write.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Seconds of a day.
const DAY_S: i64 = 86_400;

/// Flags of `status`.
#[derive(Debug, Clone, Args)]
pub struct Standing {
    /// Folder of the state, as for `run`.
    #[arg(long, value_name = "DIR", env = "PARALLAX_AGENT_STATE", default_value = STATE)]
    pub state: PathBuf,

    /// Folder of the identity, as for `run`. [default: identity in the state folder]
    #[arg(long, value_name = "DIR", env = "PARALLAX_AGENT_IDENTITY")]
    pub identity: Option<PathBuf>,

    /// One JSON document on standard output.
    #[arg(long)]
    pub json: bool,
}

/// Whether an agent runs on this state folder.
#[must_use]
pub fn is_running(state: &Path) -> bool {
    // Shared and for a moment: an agent that starts just now tries again.
    File::open(state.join("lock"))
        .is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock)))
}

/// Writes what changed of the uplink, for as long as the agent runs.
pub async fn keep(state: &Path, status: Status) {
    let (path, fresh) = (state.join(FILE), state.join("status.new"));
    let mut written = None;
    loop {
        let snapshot = status.snapshot();
        let now = settled(&snapshot);
        if written.as_ref() != Some(&now) {
            let text = json!({ "unix_ms": clock::unix_ms(), "uplink": &snapshot }).to_string();
            // Not made durable: after a crash nobody asks for it.
            let done = std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, &path));
            if let Err(error) = done {
                tracing::debug!(%error, "the status is not written");
            }
            written = Some(now);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What of it is worth a write when it changes: not what only counts on.
fn settled(snapshot: &Snapshot) -> Snapshot {
    Snapshot {
        connected_s: None,
        last_ack_age_s: None,
        clock_offset_ms: None,
        unsent: false,
        lost: 0,
        ..snapshot.clone()
    }
}

/// How things stand. Fields are only ever added; `schema` rises when that is broken.
#[must_use]
pub fn document(options: &Standing) -> Value {
    let path = options.identity.clone().unwrap_or_else(|| options.state.join(FOLDER));
    let held = Identity::new(path).credentials();
    let now_s = i64::try_from(clock::unix_ms() / 1000).unwrap_or(i64::MAX);
    let (identity, kept) = match &held {
        Ok(held) => {
            let ends_s = held.validity.not_after_s;
            let identity = json!({
                "vantage": held.vantage, "certificate_until": date::text(ends_s),
                "certificate_days_left": ends_s.saturating_sub(now_s).div_euclid(DAY_S),
                "signers": held.signers.len(),
                "coordinators": held.coordinators.iter().map(ToString::to_string).collect::<Vec<_>>(),
            });
            (identity, Kept::open(&options.state, &held.signers, &held.vantage).follow().borrow().clone())
        }
        Err(error) => (json!({ "trouble": error.to_string() }), None),
    };
    let assignment = kept.map(|kept| {
        json!({
            "version": kept.version, "canaries": kept.canaries.len(), "resolvers": kept.resolvers.len(),
            "nodes": kept.nodes.len(), "controls": kept.controls.len(),
            "controls_of_one_operator": operators::is_one(&kept.controls),
        })
    });
    let (bytes, files) = size(&options.state.join("spool"));
    json!({
        "schema": 1,
        "running": is_running(&options.state),
        "identity": identity,
        "link": written(&options.state),
        "buffer": { "bytes": bytes, "files": files },
        "assignment": assignment,
        "epoch": Epoch::open(&options.state).highest(),
    })
}

/// Why `status` does not end with 0: there is no identity here, or none that can be used.
#[must_use]
pub fn failure(options: &Standing, document: &Value) -> Option<Failure> {
    let why = document["identity"]["trouble"].as_str()?.to_owned();
    let path = options.identity.clone().unwrap_or_else(|| options.state.join(FOLDER));
    let fix = "join with a token: `parallax token create NAME` on the coordinator, `parallax-agent join TOKEN` here"
        .to_owned();
    Some(match Folder::new(path).is_joined() {
        false => {
            let what = "this machine has no identity".to_owned();
            Failure { exit: Exit::NotFound, code: "E0443", word: "not_joined", what, why, fix }
        }
        true => {
            let what = "the identity of this machine cannot be used".to_owned();
            Failure { exit: Exit::Failed, code: "E0434", word: "identity_unusable", what, why, fix }
        }
    })
}

/// What the agent wrote last.
fn written(state: &Path) -> Option<Value> {
    use std::io::Read as _;
    let mut text = String::new();
    File::open(state.join(FILE)).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Bytes and files below a folder of folders.
fn size(spool: &Path) -> (u64, u64) {
    let inside = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = inside(spool).flat_map(|boot| inside(&boot.path())).filter_map(|file| file.metadata().ok());
    files.filter(std::fs::Metadata::is_file).fold((0, 0), |(bytes, count), file| (bytes + file.len(), count + 1))
}

/// As lines for a terminal.
#[must_use]
pub fn text(document: &Value) -> String {
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut out = String::new();
    let running = if document["running"] == true { "running" } else { "not running" };
    let _ = writeln!(out, "agent       {running}, version {}", env!("CARGO_PKG_VERSION"));
    let identity = &document["identity"];
    let _ = match identity["trouble"].as_str() {
        Some(trouble) => writeln!(out, "identity    {trouble}"),
        None => writeln!(
            out,
            "identity    {}, certificate until {} ({} days left)",
            word(&identity["vantage"]),
            word(&identity["certificate_until"]),
            identity["certificate_days_left"]
        ),
    };
    let (uplink, at_ms) = (&document["link"]["uplink"], document["link"]["unix_ms"].as_i64());
    let since = at_ms.map_or_else(|| "never".to_owned(), |ms| date::text(ms / 1000));
    let _ = match (uplink["coordinator"].as_str(), uplink["trouble"].as_str()) {
        (Some(coordinator), _) => writeln!(out, "link        connected to {coordinator} (as of {since})"),
        (None, Some(trouble)) => writeln!(out, "link        not connected: {trouble} (as of {since})"),
        (None, None) => writeln!(out, "link        not connected"),
    };
    let buffer = &document["buffer"];
    let _ = writeln!(out, "buffer      {} bytes in {} files", buffer["bytes"], buffer["files"]);
    let assignment = &document["assignment"];
    let _ = match assignment.is_null() {
        true => writeln!(out, "assignment  none yet"),
        false => writeln!(
            out,
            "assignment  version {}: {} names, {} resolvers, {} machines, {} controls",
            assignment["version"],
            assignment["canaries"],
            assignment["resolvers"],
            assignment["nodes"],
            assignment["controls"]
        ),
    };
    if assignment["controls_of_one_operator"] == true {
        let _ = writeln!(
            out,
            "            its positive controls seem to be of one operator: put some of others under controls: in parallax.yaml"
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::testing::Authority;

    #[test]
    fn it_says_what_is_there_and_what_is_not() {
        let state = tempfile::tempdir().unwrap();
        let options = Standing { state: state.path().to_owned(), identity: None, json: true };
        let told = text(&document(&options));
        let exit = |options: &Standing| failure(options, &document(options)).map(|failure| failure.exit.code());
        assert_eq!(exit(&options), Some(3), "nobody has joined");
        assert!(told.contains("not running") && told.contains("cannot use") && told.contains("none yet"), "{told}");
        let (authority, folder) = (Authority::new(), state.path().join(FOLDER));
        let (certificate, key) = authority.issue("branch-kazan");
        std::fs::create_dir(&folder).unwrap();
        for (file, content) in [("ca.pem", authority.pem()), ("certificate.pem", certificate), ("key.pem", key)] {
            std::fs::write(folder.join(file), content).unwrap();
        }
        assert_eq!(exit(&options), None);
        std::fs::write(state.path().join(FILE), r#"{"unix_ms":0,"uplink":{"trouble":"unreachable"}}"#).unwrap();
        let lock = File::create(state.path().join("lock")).unwrap();
        lock.lock().unwrap();
        std::fs::rename(folder.join("key.pem"), folder.join("away")).unwrap();
        assert_eq!(exit(&options), Some(1), "half of it is there");
        std::fs::rename(folder.join("away"), folder.join("key.pem")).unwrap();
        let document = document(&options);
        assert_eq!((&document["running"], &document["identity"]["signers"]), (&json!(true), &json!(0)));
        assert!(text(&document).contains("not connected: unreachable (as of 1970-"), "{}", text(&document));
    }
}
