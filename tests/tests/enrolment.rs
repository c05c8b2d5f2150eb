//! An agent's identity from its token to its end, with our real programs: joined, refused a second time, renewed while
//! connected and after its end, cut off, and back on another machine. The agents measure nothing: their laboratory is empty.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test says no, in its helpers too")]
#![expect(
    clippy::disallowed_methods,
    reason = "no runtime here whose thread could be blocked; certificates are made here"
)]

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use parallax_tests::lab::run_dir::RunDir;
use parallax_tests::lab::{building, programs};
use serde_json::Value;

/// Nothing here takes this long on a machine that does nothing else.
const PATIENCE: Duration = Duration::from_secs(60);

/// A revoked vantage's stream is cut within 2 s; then its agent looks once more why, a moment later.
const ENDED_WITHIN: Duration = Duration::from_secs(20);

fn program(name: &str) -> PathBuf {
    building::ours(Path::new(env!("CARGO_BIN_EXE_parallax-lab")), name).unwrap()
}

/// A program that runs until it is dropped.
struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    fn start(mut command: Command, log: PathBuf) -> Self {
        let out = fs::File::create(&log).unwrap();
        let child = command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out).spawn().unwrap();
        Self { child, log }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until its log says so.
    fn says(&mut self, what: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.log().contains(what) {
            assert!(self.child.try_wait().unwrap().is_none(), "ended before it said {what:?}:\n{}", self.log());
            assert!(Instant::now() < until, "did not say {what:?}:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits for its end, by itself.
    fn ended(&mut self) -> Option<i32> {
        let until = Instant::now() + ENDED_WITHIN;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("still runs:\n{}", self.log());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().try_into().unwrap());
        // The coordinator must stop its Postgres.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until && self.child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A coordinator, and places for agents.
struct Place {
    root: RunDir,
}

impl Place {
    fn new() -> Self {
        let root = RunDir::create().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let place = Self { root };
        let configuration = format!(
            "version: 1\nlisten: {{ web: \"unix:{}\", grpc: \"127.0.0.1:{port}\" }}\nvantages:\n  - {{ name: branch-kazan }}\n  - {{ name: wan-gw }}\nresolvers:\n  - {{ name: live, kind: system, role: live }}\ncanaries:\n  - {{ name: example.com, port: 443, tls: true }}\ncontrols:\n  - {{ name: one, address: \"1.1.1.1\", port: 443, server_name: one.one.one.one }}\n",
            place.at("web.sock").display()
        );
        fs::write(place.at("parallax.yaml"), configuration).unwrap();
        fs::write(place.at("map.json"), "{}").unwrap();
        fs::write(place.at("local.yaml"), "version: 1\nlive_resolver: \"127.0.0.1:9\"\n").unwrap();
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn coordinator(&self) -> Running {
        let mut command = Command::new(program("parallax"));
        command.args(["serve", "--config"]).arg(self.at("parallax.yaml")).arg("--state").arg(self.at("coordinator"));
        let mut running = Running::start(command, self.at("coordinator.log"));
        running.says("parallax: ready");
        running
    }

    /// `parallax …` on the coordinator's machine.
    fn operate(&self, arguments: &[&str]) -> Value {
        let mut command = Command::new(program("parallax"));
        let output = command.args(arguments).arg("--json").arg("--state").arg(self.at("coordinator")).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn token(&self, vantage: &str) -> String {
        self.operate(&["token", "create", vantage])["token"].as_str().unwrap().to_owned()
    }

    /// `parallax-agent …` at one place.
    fn agent(&self, place: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program("parallax-agent"));
        command.args(arguments).arg("--state").arg(self.at(place));
        command
    }

    /// The same, in its empty laboratory.
    fn measuring(&self, place: &str, arguments: &[&str]) -> Command {
        let mut command = self.agent(place, arguments);
        command.arg("--local").arg(self.at("local.yaml")).arg("--lab-map").arg(self.at("map.json"));
        command
    }

    fn join(&self, place: &str, token: &str) -> Output {
        self.measuring(place, &["join", token, "--no-service", "--json"]).output().unwrap()
    }

    fn run(&self, place: &str, token: Option<&str>) -> Running {
        let mut command = self.measuring(place, &["run"]);
        if let Some(token) = token {
            command.env("PARALLAX_TOKEN", token);
        }
        Running::start(command, self.at(&format!("{place}.log")))
    }

    /// Gives the agent's key a certificate of the coordinator's own authority, as if it had been issued and had lived
    /// for so long: nobody waits for half an hour here.
    fn age(&self, place: &str, vantage: &str, seconds: std::ops::Range<i64>) {
        let read = |path: &str| fs::read_to_string(self.at(path)).unwrap();
        let authority = rcgen::KeyPair::from_pem(&read("coordinator/ca/ca.key")).unwrap();
        let issuer = rcgen::Issuer::from_ca_cert_pem(&read("coordinator/ca/ca.pem"), authority).unwrap();
        let key = rcgen::KeyPair::from_pem(&read(&format!("{place}/identity/key.pem"))).unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, vantage);
        let uri = format!("parallax://vantage/{vantage}");
        params.subject_alt_names = vec![rcgen::SanType::URI(uri.try_into().unwrap())];
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let now = time::OffsetDateTime::from(SystemTime::now());
        params.not_before = now + time::Duration::seconds(seconds.start);
        params.not_after = now + time::Duration::seconds(seconds.end);
        let certificate = params.signed_by(&key, &issuer).unwrap();
        fs::write(self.at(place).join("identity/certificate.pem"), certificate.pem()).unwrap();
    }

    fn key(&self, place: &str) -> Vec<u8> {
        fs::read(self.at(place).join("identity/key.pem")).unwrap()
    }
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn b67_b70_from_a_token_to_the_end_of_an_identity() {
    if programs::find("initdb").is_none() && fs::read_dir("/usr/lib/postgresql").is_err() {
        assert!(std::env::var_os("CI").is_none(), "CI must be able to run this: Postgres is not installed");
        eprintln!("SKIPPED, LOUDLY: Postgres is not installed");
        return;
    }
    let place = Place::new();
    let _coordinator = place.coordinator();

    // Joined, with a first look at what the coordinator wants watched.
    let token = place.token("branch-kazan");
    let joined = place.join("kazan", &token);
    let told = document(&joined);
    assert_eq!((joined.status.code(), told["vantage"].as_str()), (Some(0), Some("branch-kazan")), "{joined:?}");
    assert_eq!(told["first"]["seen"][0]["name"], "example.com", "{told}");
    // Refused on a second machine, with its reason, and at once; damaged before anybody is asked.
    let second = place.join("elsewhere", &token);
    assert_eq!((second.status.code(), document(&second)["error"]["word"].as_str()), (Some(4), Some("token_used")));
    assert_eq!(place.join("elsewhere", &token[..token.len() - 1]).status.code(), Some(2));

    // A container is given its token for ever. Its certificate is renewed while it is connected.
    let first_key = place.key("kazan");
    place.age("kazan", "branch-kazan", -100..60);
    let mut agent = place.run("kazan", Some(&token));
    agent.says("has joined already");
    agent.says("connected to the coordinator");
    agent.says("the certificate was renewed");
    assert_ne!(place.key("kazan"), first_key);
    let status = place.agent("kazan", &["status", "--json"]).output().unwrap();
    assert_eq!((&document(&status)["running"], &document(&status)["identity"]["signers"]), (&true.into(), &1.into()));
    assert_eq!(agent.log().matches("connected to the coordinator").count(), 1, "{}", agent.log());
    drop(agent);

    // Dark beyond its end: back by itself, with the key it had.
    let second_key = place.key("kazan");
    place.age("kazan", "branch-kazan", -7200..-3600);
    let mut agent = place.run("kazan", None);
    agent.says("had ended and was renewed");
    agent.says("connected to the coordinator");
    assert_eq!(place.key("kazan"), second_key);

    // Cut off for good, and no loop.
    place.operate(&["vantage", "revoke", "branch-kazan", "--reason", "stolen"]);
    assert_eq!(agent.ended(), Some(4), "{}", agent.log());

    // Replaced, it is back under its name on another machine; the old one stays out.
    place.operate(&["vantage", "replace", "branch-kazan", "--reason", "a new machine"]);
    let joined = place.join("kazan-2", &place.token("branch-kazan"));
    assert_eq!(joined.status.code(), Some(0), "{joined:?}");
    let mut new = place.run("kazan-2", None);
    new.says("connected to the coordinator");
    assert_eq!(place.run("kazan", None).ended(), Some(4));
    assert!(new.child.try_wait().unwrap().is_none(), "{}", new.log());
    drop(new);

    // Another one enters by its environment alone, as in a container, and forgets who it was.
    let mut agent = place.run("hq", Some(&place.token("wan-gw")));
    agent.says("joined as wan-gw");
    agent.says("connected to the coordinator");
    drop(agent);
    let left = place.agent("hq", &["leave", "--yes"]).output().unwrap();
    assert!(left.status.success() && !place.at("hq").join("identity/key.pem").exists(), "{left:?}");
}
