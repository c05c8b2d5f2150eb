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

/// The branch is handed a pair that has no path from there, and nobody may pin it.
async fn branch_suffers() -> World {
    let mut world = World::suffering(std::time::Duration::from_secs(3600)).await;
    world.pass(8).await;
    world.play().steer_branch();
    world.until("select count(*) = 1 from incident", 20).await;
    world.pass(10).await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_explained_at_the_place_that_suffers_with_what_says_that_no_other_resolver_would_help() {
    let world = branch_suffers().await;
    let at = crate::report::moment::At(world.app.clock.now()).iso();
    let said = world.types("explain name cdnjs.cloudflare.com --at", &[&at]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for part in [
        "branch-kazan  # unroutable",
        "row 18 of the table of answers",
        "would another one help? no: 2 of 2 hand out unroutable addresses [#",
        "8.6.112.0    from here it stays silent",
        "works at de-fra and wan-gw",
        "curl -sS",
        "wan-gw        o usable",
        "Incident     #1 unroutable answer",
        "v_reach where during @> timestamptz",
    ] {
        assert!(said.out.contains(part), "{part} is not in\n{}", said.out);
    }
    let name = world.types("explain name cdnjs.cloudflare.com --json --vantage branch-kazan --at", &[&at]).json();
    let place = &name["places"][0];
    assert_eq!(place["verdict"], "answer_unroutable_here");
    assert_eq!(place["another_resolver"]["would_help"], "no");
    // The statements that are shown are answered.
    for statement in name["sql"].as_array().unwrap() {
        let statement = statement.as_str().unwrap().trim_end_matches(';').to_owned();
        sqlx::query(sqlx::AssertSqlSafe(statement)).fetch_all(&world.app.pool).await.unwrap();
    }
    // When nobody judges any more, that is said beside what was said last.
    let before = world.types("explain name cdnjs.cloudflare.com --json --vantage branch-kazan --at", &["58m"]).json();
    assert!(before["notes"][0].as_str().unwrap().contains("nobody judged"), "{before:#}");
    let wrong = world.types("explain name cdnjs.cloudfare.com", &[]);
    assert!(wrong.code == Some(3) && wrong.err.contains("did you mean cdnjs.cloudflare.com?"), "{wrong:?}");
    let wrong = world.types("explain name cdnjs.cloudflare.com --vantage branch-kazn", &[]);
    assert!(wrong.code == Some(3) && wrong.err.contains("did you mean branch-kazan?"), "{wrong:?}");
    let told = world.types("explain incident 1", &[]);
    assert!(told.code == Some(0) && told.out.contains("Not known"), "{told:?}");
}
