//! The operator's tool as people and scripts meet it: a process with arguments, an environment, two outputs and an
//! exit code.

#![expect(clippy::disallowed_methods, reason = "no runtime here whose thread could be blocked")]
#![expect(clippy::unwrap_used, reason = "a panic is how a test says no, in its helpers too")]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use clap::CommandFactory;
use parallax_coordinator::cli::Cli;
use parallax_coordinator::config::builtin::EXAMPLE;
use serde_json::Value;
use tempfile::TempDir;

fn parallax(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_parallax"));
    command.args(arguments).stdin(Stdio::null());
    for name in ["PARALLAX_CONFIG", "PARALLAX_STATE", "PARALLAX_DATABASE_URL", "PARALLAX_LOG"] {
        command.env_remove(name);
    }
    command
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    // Postgres runs as another user when we are root.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// A running coordinator, killed in the end; its embedded database is stopped by hand.
struct Serving {
    child: Child,
    log: PathBuf,
    web: String,
}

impl Serving {
    fn start(mut command: Command, log: PathBuf) -> Self {
        let out = std::fs::File::create(&log).unwrap();
        let mut child = command.stdout(out.try_clone().unwrap()).stderr(out).spawn().unwrap();
        loop {
            let text = std::fs::read_to_string(&log).unwrap();
            if let Some(line) = text.lines().find(|line| line.starts_with("parallax: ready")) {
                let web = line.split("web=").nth(1).unwrap().split(' ').next().unwrap().to_owned();
                return Self { child, log, web };
            }
            assert!(child.try_wait().unwrap().is_none(), "{text}");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.web).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Ends it in good order and returns everything it ever said.
    fn end(mut self) -> String {
        self.signal("TERM");
        assert!(self.child.wait().unwrap().success());
        std::fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            self.signal("TERM");
            self.child.wait().unwrap();
        }
    }
}

/// The example on ports that are free, with this secret file.
fn configuration(folder: &Path, secret: &Path) -> PathBuf {
    let file = folder.join("parallax.yaml");
    let text = EXAMPLE
        .replace("127.0.0.1:8080", "127.0.0.1:0")
        .replace("127.0.0.1:8443", "127.0.0.1:0")
        .replace("/etc/parallax/tsig", &secret.display().to_string());
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn b136_ten_bad_files_are_refused_by_check_and_by_serve_with_place_and_suggestion() {
    let folder = folder();
    let file = folder.path().join("parallax.yaml");
    let path = file.display().to_string();
    let state = folder.path().join("state");
    for (from, to, message) in [
        ("dwell_s: 300", "intervall: 10s", "unknown key `intervall`"),
        ("ttl_s: 60", "tll_s: 60", "unknown key `tll_s`, did you mean `ttl_s`?"),
        ("listen: { web:", "listen: { ttl_s: 60, web:", "(`ttl_s` belongs to a service)"),
        ("policy: default", "policy: default\npolicy: fast", "duplicate key `policy`"),
        ("canaries:\n", "canaries:\n\t- { name: example.org }\n", "tab"),
        ("hostname: fi.montana.quest", "hostname: 12", "12"),
        ("dwell_s: 300", "dwell_s: 10m", "at `10m`"),
        ("kind: doh,", "kind: doh-jason,", "unknown value `doh-jason`"),
        ("driver: auth", "driver: auht", "unknown driver `auht`, did you mean `auth`?"),
        ("native: fi", "native: fo", "unknown node `fo`"),
        ("upstream: doh-cf\n    pin", "upstream: doh-cg\n    pin", "unknown resolver `doh-cg`, did you mean `doh-cf`?"),
    ] {
        assert!(EXAMPLE.contains(from), "{from}");
        std::fs::write(&file, EXAMPLE.replacen(from, to, 1)).unwrap();
        let check = parallax(&["config", "check", "--config", &path]).output().unwrap();
        let serve = parallax(&["serve", "--config", &path, "--state", &state.display().to_string()]).output().unwrap();
        for output in [check, serve] {
            let text = said(&output);
            assert_eq!(output.status.code(), Some(2), "{to}: {text}");
            let place = format!("{path}:");
            assert!(text.contains(&place) && text.contains(message) && text.contains("fix:"), "{to}: {text}");
            // The line itself with a mark under the place.
            assert!(text.lines().any(|line| line.trim_start().starts_with('|') && line.ends_with('^')), "{text}");
        }
        assert!(!state.exists(), "nothing is made of a configuration that is refused");
    }
    // A variable with a typing error would be silently ignored.
    let output = parallax(&["config", "check"]).env("PARALLAX_CONFG", &path).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("did you mean PARALLAX_CONFIG?"), "{}", said(&output));
}

/// Every command that has none below it, as arguments.
fn verbs(command: &clap::Command, before: &[String], into: &mut BTreeSet<Vec<String>>) {
    let mut path = before.to_vec();
    path.push(command.get_name().to_owned());
    if command.get_subcommands().next().is_none() {
        into.insert(path.split_off(1));
        return;
    }
    command.get_subcommands().for_each(|below| verbs(below, &path, into));
}

#[test]
fn b137_every_verb_gives_exactly_one_document_on_stdout_at_any_log_level() {
    let folder = folder();
    let state = folder.path().join("state").display().to_string();
    std::fs::write(folder.path().join("tsig"), "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=").unwrap();
    let file = configuration(folder.path(), &folder.path().join("tsig")).display().to_string();
    let bad = folder.path().join("bad.yaml").display().to_string();
    std::fs::write(&bad, "version: 1\nnonsense: true\n").unwrap();
    let out = folder.path().join("identity").display().to_string();
    let serving =
        Serving::start(parallax(&["serve", "--config", &file, "--state", &state]), folder.path().join("serve.log"));
    let one = |arguments: &[&str]| -> (Option<i32>, Value) {
        let mut with = arguments.to_vec();
        with.extend(["--json", "--log", "trace"]);
        let output = parallax(&with).output().unwrap();
        let stdout = String::from_utf8(output.stdout.clone()).unwrap();
        let document: Result<Value, _> = serde_json::from_str(&stdout);
        assert!(document.is_ok(), "{arguments:?} is no single document: {stdout}\n{}", said(&output));
        assert!(!said(&output).contains('\u{1b}'), "{arguments:?} has colours without a terminal");
        let document = document.unwrap();
        assert!(document.get("schema").is_some() || document.get("$schema").is_some(), "{arguments:?}: {document}");
        (output.status.code(), document)
    };
    let with_state = ["--state", state.as_str()];
    let mut told = BTreeSet::new();
    for (words, options, code) in [
        ("config check", vec!["--config", &file], 0),
        ("config check", vec!["--config", &bad], 2),
        ("config example", vec![], 0),
        ("config show", vec!["--config", &file], 0),
        ("config schema", vec![], 0),
        ("config diff", vec!["--config", &file, "--against", &file], 0),
        ("migrate", vec![with_state[0], with_state[1]], 0),
        ("migrate", vec!["--check", with_state[0], with_state[1]], 0),
        ("vantage issue", vec!["wan-gw", "--out", &out, with_state[0], with_state[1]], 0),
        ("vantage list", vec![with_state[0], with_state[1]], 0),
        ("matrix", vec![with_state[0], with_state[1]], 0),
        ("incidents", vec![with_state[0], with_state[1]], 0),
        ("explain incident", vec!["7", with_state[0], with_state[1]], 3),
        ("explain name", vec!["example.com", with_state[0], with_state[1]], 0),
        ("explain name", vec!["example.con", with_state[0], with_state[1]], 3),
        ("matrix", vec!["--at", "1h", with_state[0], with_state[1]], 0),
        ("timeline", vec!["--from", "1h", with_state[0], with_state[1]], 0),
        ("incidents", vec!["--open", "--until", "1h", with_state[0], with_state[1]], 0),
        ("replay", vec!["--from", "1h", with_state[0], with_state[1]], 3),
        ("failover status", vec![with_state[0], with_state[1]], 0),
        ("failover freeze", vec!["--reason", "a test", with_state[0], with_state[1]], 0),
        ("failover thaw", vec![with_state[0], with_state[1]], 0),
        ("token create", vec!["branch-omsk", "--coordinator", "192.0.2.1:8443", with_state[0], with_state[1]], 0),
        ("token create", vec!["de-fra", "--coordinator", "192.0.2.1:8443", with_state[0], with_state[1]], 0),
        ("token list", vec![with_state[0], with_state[1]], 0),
        ("token revoke", vec!["2", with_state[0], with_state[1]], 0),
        ("vantage approve", vec!["branch-omsk", "--reason", "known", with_state[0], with_state[1]], 0),
        ("vantage show", vec!["branch-omsk", with_state[0], with_state[1]], 0),
        ("vantage rename", vec!["branch-omsk", "omsk-2", "--reason", "moved", with_state[0], with_state[1]], 0),
        ("vantage revoke", vec!["omsk-2", "--reason", "stolen", with_state[0], with_state[1]], 0),
        ("vantage replace", vec!["omsk-2", "--reason", "new machine", with_state[0], with_state[1]], 0),
        ("vantage remove", vec!["omsk-2", "--reason", "closed", with_state[0], with_state[1]], 0),
        ("authority list", vec!["--config", &file, with_state[0], with_state[1]], 0),
        ("authority rotate", vec!["--config", &file, "--reason", "yearly", with_state[0], with_state[1]], 0),
        ("completions", vec!["bash"], 0),
        ("database move", vec!["--to", "postgres://u@h/d", with_state[0], with_state[1]], 4),
    ] {
        let path: Vec<&str> = words.split(' ').collect();
        told.insert(path.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let mut arguments = path.clone();
        arguments.extend(options.iter().map(|one| &**one));
        let (found, document) = one(&arguments);
        assert_eq!(found, Some(code), "{arguments:?}: {document}");
    }
    // The other spelling of the same.
    let output = parallax(&["-o", "json", "vantage", "list", "--state", &state]).output().unwrap();
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(listed["schema"], 1);
    let output = parallax(&["vantage", "list", "-o", "json", "--no-such-option"]).output().unwrap();
    assert!(serde_json::from_slice::<Value>(&output.stdout).is_ok(), "{}", said(&output));
    let output = parallax(&["vantage", "list", "-o", "table", "--state", &state]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("NAME"), "{}", said(&output));
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(parallax(&["completions", shell]).output().unwrap().stdout).unwrap();
        assert!(script.contains("revoke") && script.contains("parallax"), "{shell}");
    }
    // The others, without what they need: they still say so in one document.
    let mut all = BTreeSet::new();
    verbs(&Cli::command(), &[], &mut all);
    for path in all.difference(&told).filter(|path| path[0] != "serve") {
        let mut arguments: Vec<&str> = path.iter().map(String::as_str).collect();
        arguments.push("--no-such-option");
        let (found, document) = one(&arguments);
        assert_eq!(found, Some(2), "{path:?}: {document}");
    }
    serving.end();
}

#[test]
fn a_configuration_is_compared_taken_and_refused_while_the_coordinator_runs() {
    let folder = folder();
    let state = folder.path().join("state").display().to_string();
    let path = configuration(folder.path(), &folder.path().join("tsig"));
    let file = path.display().to_string();
    let serving =
        Serving::start(parallax(&["serve", "--config", &file, "--state", &state]), folder.path().join("serve.log"));
    let web = serving.web.clone();
    let run = |arguments: &[&str], code: i32| {
        let output = parallax(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", said(&output));
        said(&output)
    };
    let diff = ["config", "diff", "--config", &file, "--state", &state];
    assert!(run(&diff, 0).contains("Nothing would change"));
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("ttl_s: 60", "ttl_s: 30")).unwrap();
    assert_eq!(run(&diff, 7).trim(), "~ services[fi].ttl_s: 60 -> 30");
    let reload = ["config", "reload", "--at", &web];
    run(&reload, 0);
    assert!(run(&diff, 0).contains("Nothing would change"));
    // A bad one changes nothing, and everybody is told.
    std::fs::write(&path, text.replace("ttl_s: 60", "tll_s: 60")).unwrap();
    assert!(run(&reload, 2).contains("did you mean `ttl_s`?"));
    let shown = run(&["config", "show", "--running", "--state", &state, "--json"], 0);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["configuration"]["services"][0]["ttl_s"], 30);
    assert_eq!(shown["last_reloads"][0]["taken"], false);
    assert!(shown["last_reloads"][0]["error"].as_str().unwrap().contains("tll_s"));
    assert!(serving.get("/-/ready").contains("an older one is in force"));
    assert!(serving.get("/metrics").contains("parallax_config_refused 1"));
    // Somebody elsewhere, carried here by a proxy or a browser, may not ask.
    for header in ["X-Forwarded-For: 192.0.2.7", "Origin: https://example.net"] {
        let mut stream = TcpStream::connect(&web).unwrap();
        write!(stream, "POST /-/reload HTTP/1.1\r\nHost: x\r\n{header}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    }
    std::fs::write(&path, text).unwrap();
    serving.signal("HUP");
    while !serving.get("/-/ready").ends_with("ready\n") {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    serving.end();
}

#[test]
fn b141_no_secret_is_in_any_output_at_trace_level() {
    const PASSWORD: &str = "hunter2-of-the-database";
    const TSIG: &str = "aHVudGVyMi1vZi10aGUtem9uZS1pcy1oaWRkZW4=";
    let folder = folder();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    std::fs::write(folder.path().join("tsig"), format!("\u{feff}{TSIG}\r\n")).unwrap();
    let file = configuration(folder.path(), &folder.path().join("tsig")).display().to_string();
    // One coordinator's embedded database is the external one of the other; it lets everybody in.
    let first = Serving::start(
        parallax(&["serve", "--config", &file, "--state", &one.display().to_string()]),
        folder.path().join("one.log"),
    );
    let url = folder.path().join("url");
    let socket = one.join("pg/socket");
    std::fs::write(&url, format!("postgres://parallax:{PASSWORD}@/parallax?host={}\r\n", socket.display())).unwrap();
    let url = url.display().to_string();
    let arguments = [
        "serve",
        "--config",
        &file,
        "--state",
        &two.display().to_string(),
        "--database-url-file",
        &url,
        "--log",
        "trace",
    ];
    // Coordinators of one installation share their authority and what signs orders.
    std::fs::create_dir(&two).unwrap();
    assert!(Command::new("cp").arg("-a").args([one.join("ca"), two.join("ca")]).status().unwrap().success());
    let second = Serving::start(parallax(&arguments), folder.path().join("two.log"));
    let mut outputs = String::new();
    for path in ["/", "/failover", "/matrix.json", "/metrics", "/-/ready", "/api/v1/status/failover"] {
        outputs.push_str(&second.get(path));
    }
    let second_pid = second.child.id();
    outputs.push_str(&std::fs::read_to_string(format!("/proc/{second_pid}/cmdline")).unwrap());
    second.signal("HUP");
    for arguments in [
        &["config", "show", "--config", &file, "--log", "trace"][..],
        &["config", "check", "--config", &file, "--log", "trace", "--json"],
        &["failover", "status", "--database-url-file", &url, "--log", "trace", "--json"],
    ] {
        outputs.push_str(&said(&parallax(arguments).output().unwrap()));
    }
    // And when it cannot be used.
    std::fs::write(folder.path().join("bad-url"), format!("postgres://parallax:{PASSWORD}@[/x")).unwrap();
    let bad = folder.path().join("bad-url").display().to_string();
    outputs.push_str(&said(&parallax(&["matrix", "--database-url-file", &bad, "--log", "trace"]).output().unwrap()));
    let trace = second.end();
    // Libraries trace only when somebody connects over HTTP/2; what is below `info` shows that the level is obeyed.
    assert!(trace.contains("DEBUG"), "it did trace");
    outputs.push_str(&trace);
    outputs.push_str(&first.end());
    for secret in [PASSWORD, TSIG, "hunter2", "aHVudGVy"] {
        assert!(!outputs.contains(secret), "{secret} was shown");
    }
}
