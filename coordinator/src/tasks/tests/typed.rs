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
        "wan-gw  o usable",
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
    for part in ["Not known", "the path was not traced", "no coordinator judged", "Ruled out", "[evidence #"] {
        assert!(told.out.contains(part), "{part} is not in\n{}", told.out);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_matrix_of_a_moment_the_timeline_and_the_lists_of_incidents_say_what_was_so_then() {
    let mut world = branch_suffers().await;
    let suffered = crate::report::moment::At(world.app.clock.now()).iso();
    world.play().heal_branch();
    world.until("select bool_and(closed_at is not null) from incident", 60).await;
    world.play().silent.insert("de-fra");
    world.pass(20).await;
    let silent = crate::report::moment::At(world.app.clock.now()).iso();
    let then = world.types("matrix --at", &[&suffered]).out;
    let line = |text: &str, vantage: &str| {
        text.lines().find(|line| line.starts_with(vantage)).map(str::to_owned).unwrap_or_default()
    };
    assert!(line(&then, "branch-kazan").contains("# 0/2 unroutable"), "{then}");
    assert!(line(&then, "wan-gw").contains("o 1/1") && then.contains("! #1 unroutable answer"), "{then}");
    let later = world.types("matrix --at", &[&silent]).out;
    assert!(line(&later, "de-fra").contains("? silent") && line(&later, "branch-kazan").contains("o 1/1"), "{later}");
    let never = world.types("matrix --json --at", &["2h"]).json();
    let cells: Vec<&Value> =
        never["vantages"].as_array().unwrap().iter().flat_map(|line| line["cells"].as_array().unwrap()).collect();
    assert!(cells.len() == 3 && cells.iter().all(|cell| cell["state"] == "unobserved"), "{never:#}");

    let told = world.types("timeline --name cdnjs.cloudflare.com --vantage branch-kazan --from 2h", &[]).out;
    for part in [
        "incident 1 opened: unroutable answer",
        "incident 1 closed",
        "by live: unroutable (before: not enough evidence)",
        "nobody judged for",
    ] {
        assert!(told.contains(part), "{part} is not in\n{told}");
    }
    let all = world.types("timeline --json --from 2h", &[]).json();
    let entries = all["entries"].as_array().unwrap();
    assert!(entries.iter().any(|entry| entry["text"] == "vantage de-fra: silent (before: ok)"), "{all:#}");
    assert!(entries.iter().is_sorted_by_key(|entry| entry["at"].as_str().unwrap().to_owned()));
    assert!(world.types("timeline --service fi --from 2h", &[]).out.contains("node fi"));
    assert!(world.types("timeline --from 2h --to 90m", &[]).out.contains("nobody judged for"));
    let wrong = world.types("timeline --node fy", &[]);
    assert!(wrong.code == Some(3), "{wrong:?}");

    let ids = |options: &[&str]| {
        let list = world.types("incidents --json", options).json();
        list["incidents"].as_array().unwrap().iter().map(|one| one["id"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    assert!(ids(&[]).contains(&1) && ids(&["--open"]).iter().all(|id| *id != 1));
    assert_eq!(ids(&["--kind", "unroutable-answer", "--vantage", "branch-kazan"]), [1]);
    assert!(ids(&["--kind", "answer_unroutable_here", "--until", "90m"]).is_empty());
    assert!(ids(&["--vantage", "wan-gw"]).is_empty());
    let wrong = world.types("incidents --kind unroutable-anwser", &[]);
    assert!(wrong.code == Some(3) && wrong.err.contains("did you mean unroutable-answer?"), "{wrong:?}");
    assert!(world.types("incidents --open --kind unroutable-answer", &[]).out.contains("No incident in that time"));
}
