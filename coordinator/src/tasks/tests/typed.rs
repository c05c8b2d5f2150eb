//! The operator's commands as they are typed: the built program against the database of a played story.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::world::World;

/// The program that was built beside this test.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().and_then(|deps| deps.parent()).unwrap().join("parallax");
    assert!(built.exists(), "{} is not built: run all targets of the package", built.display());
    built
}

/// What a command said and how it ended.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

impl Said {
    /// Standard output as one JSON document.
    pub(super) fn json(&self) -> Value {
        let document: Value = serde_json::from_str(&self.out).unwrap();
        assert_eq!(document["schema"], 1);
        document
    }
}

impl World {
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let options = self.app.pool.connect_options();
        let socket = options.get_socket().unwrap().display().to_string();
        let (name, user) = (options.get_database().unwrap(), options.get_username());
        let mut command = Command::new(program());
        command.args(arguments).stdin(Stdio::null());
        command.env("PARALLAX_DATABASE_URL", format!("postgres:///{name}?host={socket}&user={user}"));
        command.env("TZ", "UTC").env_remove("PARALLAX_LOG");
        command
    }

    /// Types a command of some words and options.
    pub(super) fn types(&self, words: &str, options: &[&str]) -> Said {
        let arguments: Vec<&str> = words.split(' ').chain(options.iter().copied()).collect();
        let output = self.command(&arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let said = Said { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) };
        // For whoever wants to see what the story looks like on a terminal.
        if std::env::var_os("PARALLAX_TEST_SHOW").is_some() {
            eprintln!("$ parallax {}\n{}{}", arguments.join(" "), said.out, said.err);
        }
        assert!(!said.out.contains('\u{1b}') && !said.err.contains('\u{1b}'), "colours without a terminal: {said:?}");
        said
    }
}
