//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tracing_subscriber::filter::LevelFilter;

use crate::by_hand;
use crate::doctor::Doctor;
use crate::identity::folder::FOLDER;
use crate::join::Join;
use crate::leave::Leave;
use crate::local::Local;
use crate::policy::never::openable;
use crate::respond::Respond;
use crate::standing::Standing;
use crate::uplink::address::Coordinator;

/// The agent of Parallax: measures from where the clients are, and sends what it saw to the coordinator.
#[derive(Debug, Parser)]
#[command(name = "parallax-agent", version, after_help = AFTER_HELP)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The state folder, unless another is named: a container's volume is mounted there.
pub const STATE: &str = "/var/lib/parallax-agent";

const RESPOND_HELP: &str = "Exit codes: 0 stopped by SIGTERM or SIGINT, or the key was printed, 1 failed, 2 usage.";

const DOCTOR_HELP: &str = "Exit codes: 0 nothing is wrong (warnings may be), 1 something is, 2 usage.";

const JOIN_HELP: &str = "Exit codes: 0 joined, or had joined before, 1 failed, 2 usage, configuration or a damaged token, 4 refused by the coordinator, 5 no coordinator answered.";

const STATUS_HELP: &str = "Exit codes: 0 there is an identity, 1 it cannot be used, 2 usage, 3 nobody has joined here.";

const PROBE_HELP: &str = "Exit codes: 0 the name can be used from here, 1 failed, 2 usage or configuration, 5 this machine has no way out, 6 the name cannot be used from here.";

const AFTER_HELP: &str = "Exit codes: 0 stopped by SIGTERM or SIGINT, 1 failed, 2 usage or configuration, 4 identity or token refused by the coordinator.";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure and send until SIGTERM or SIGINT.
    ///
    /// The coordinator says what to measure; the owner's file says what may be contacted at all.
    /// Without a connection the agent goes on measuring by the last assignment and keeps what it
    /// saw on disk until the coordinator has acknowledged it. Without an identity it joins with the token
    /// in PARALLAX_TOKEN, in the file of PARALLAX_TOKEN_FILE or in the credential `token`.
    #[command(after_help = AFTER_HELP)]
    Run(Run),
    /// Ask resolvers for a name and try every address, now and from here; needs no coordinator.
    ///
    /// Says whether an endpoint is alive and does not resolve, or whether there is no path to it.
    #[command(after_help = PROBE_HELP)]
    Probe(by_hand::Probe),
    /// Get this machine an identity for a token, look whether it can work, and start it.
    ///
    /// The key is made here and never leaves this machine; the coordinator proves itself by the
    /// fingerprint in the token. An agent that has joined ignores further tokens.
    #[command(after_help = JOIN_HELP)]
    Join(Join),
    /// How things stand: identity, certificate, link, buffer, assignment. May run beside a running agent.
    #[command(after_help = STATUS_HELP)]
    Status(Standing),
    /// On a node of ours: prove that it lives, by signing what measuring agents ask it to sign.
    ///
    /// Needs no coordinator and no identity. Its public key goes into the coordinator's configuration, `proof` of the node.
    #[command(after_help = RESPOND_HELP)]
    Respond(Respond),
    /// Forget the identity of this machine; a new one takes a token.
    Leave(Leave),
    /// Look at everything that would keep the agent from its work here: clock, DNS, way out, IPv6,
    /// coordinator, identity, disk. Changes nothing and may run beside a running agent.
    #[command(after_help = DOCTOR_HELP)]
    Doctor(Doctor),
}

/// Flags of `run`.
#[derive(Debug, Clone, Args)]
pub struct Run {
    /// The coordinator's gRPC address; several, by commas or by repeating the flag, are tried in
    /// turn, before those that the identity folder names. Its certificate must be for
    /// `parallax-coordinator`, signed by the authority in the identity folder; so any name or address
    /// will do here. [default: what the token or the coordinators said]
    #[arg(long, value_name = "HOST:PORT", env = "PARALLAX_AGENT_COORDINATOR", value_delimiter = ',', num_args = 1)]
    pub coordinator: Vec<Coordinator>,

    /// Reach the coordinator through this HTTP proxy (CONNECT): http://HOST:PORT, or `environment` for
    /// HTTPS_PROXY and NO_PROXY, which are not looked at otherwise. Credentials come from the file
    /// named as `proxy_credentials_file` in the owner's file, where `proxy` may be written too.
    #[arg(long, value_name = "URL", env = "PARALLAX_AGENT_PROXY", hide_env_values = true)]
    pub proxy: Option<String>,

    /// Folder with ca.pem, certificate.pem and key.pem, made by `join` or by
    /// `parallax vantage issue NAME --out DIR`. [default: identity in the state folder]
    #[arg(long, value_name = "DIR", env = "PARALLAX_AGENT_IDENTITY")]
    pub identity: Option<PathBuf>,

    /// Folder for unsent observations, the identity, the assignment and the journal of pins. Made when
    /// missing; one agent a folder.
    #[arg(long, value_name = "DIR", env = "PARALLAX_AGENT_STATE", default_value = STATE)]
    pub state: PathBuf,

    /// The owner's file: what may be contacted, the live resolver, local drivers.
    /// [default: /etc/parallax-agent/local.yaml when it exists]
    #[arg(long, value_name = "FILE", env = "PARALLAX_AGENT_LOCAL")]
    pub local: Option<PathBuf>,

    /// Narrower or wider than the owner's file.
    #[command(flatten)]
    pub owner: OwnerFlags,

    /// How much to log, on standard error.
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = Level::Info, env = "PARALLAX_AGENT_LOG")]
    pub log: Level,

    /// Laboratory only: JSON file that maps public "address:port" to local "address:port". Every
    /// dial of a target, resolver or control goes through it; an address not in it is unreachable.
    #[cfg(feature = "lab")]
    #[arg(long, value_name = "FILE")]
    pub lab_map: Option<PathBuf>,
}

impl Run {
    /// Where the identity is.
    #[must_use]
    pub fn identity(&self) -> PathBuf {
        self.identity.clone().unwrap_or_else(|| self.state.join(FOLDER))
    }
}

/// What the owner of the place allows, by flags: for a container without a file. They add to the file.
#[derive(Debug, Clone, Default, Args)]
pub struct OwnerFlags {
    /// A TCP port that targets may be contacted on besides those of the file; may be repeated.
    #[arg(long = "allow-port", value_name = "PORT")]
    pub ports: Vec<u16>,

    /// A private or other special network that may be contacted after all; may be repeated. Loopback,
    /// link-local and metadata addresses stay shut.
    #[arg(long = "allow-private", value_name = "CIDR", value_parser = private)]
    pub private: Vec<ipnet::IpNet>,

    /// Change nothing at this place, whatever the file and the coordinator say.
    #[arg(long)]
    pub no_changes: bool,
}

impl OwnerFlags {
    /// Adds them to the owner's file.
    pub fn add_to(&self, local: &mut Local) {
        local.allow.ports.extend(&self.ports);
        local.allow.private.extend(&self.private);
        local.changes.allowed &= !self.no_changes;
    }
}

/// A network that the owner may open.
fn private(text: &str) -> Result<ipnet::IpNet, String> {
    let network = text.parse().map_err(|error| format!("{error}; write it like 10.1.0.0/16"))?;
    openable(network).map(|()| network).map_err(|shut| shut.to_string())
}

/// How much to log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// What needs a person.
    Error,
    /// And what will need one if it goes on.
    Warn,
    /// And what changed.
    Info,
    /// And every measurement.
    Debug,
    /// And what the libraries trace; in builds for development alone.
    Trace,
}

impl From<Level> for LevelFilter {
    fn from(level: Level) -> Self {
        match level {
            Level::Error => Self::ERROR,
            Level::Warn => Self::WARN,
            Level::Info => Self::INFO,
            Level::Debug => Self::DEBUG,
            Level::Trace => Self::TRACE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }

    #[test]
    fn the_owners_flags_add_to_the_file_and_can_forbid_changes() {
        let line = "parallax-agent run --coordinator a:8443 --identity i --state s --allow-port 8443 --allow-private 10.1.0.0/16 --no-changes";
        let Command::Run(run) = Cli::try_parse_from(line.split(' ')).unwrap().command else { panic!("{line}") };
        let mut local = Local::default();
        run.owner.add_to(&mut local);
        assert_eq!(local.allow.ports, [443, 8443]);
        assert_eq!(local.allow.private.len(), 1);
        assert!(!local.changes.allowed);
    }

    #[test]
    fn the_owners_flags_open_no_loopback() {
        for (bad, part) in [("127.0.0.0/8", "live_resolver"), ("::1/128", "take it out"), ("10.1", "10.1.0.0/16")] {
            let line = format!("parallax-agent run --coordinator a:1 --identity i --state s --allow-private {bad}");
            let error = Cli::try_parse_from(line.split(' ')).unwrap_err().to_string();
            assert!(error.contains(part), "{bad}: {error}");
        }
    }

    #[test]
    fn run_needs_no_flag_and_no_made_up_address() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' '));
        let Command::Run(run) = parse("parallax-agent run --state s").unwrap().command else { panic!("not run") };
        assert_eq!((run.identity(), run.coordinator.len()), (PathBuf::from("s/identity"), 0));
        assert!(parse("parallax-agent run").is_ok());
        assert!(parse("parallax-agent run --coordinator [::1]:8443 --identity i --state s").is_ok());
        for bad in ["nothing", "host:", ":8443", "host:0", "host:99999", "2001:db8::1", "2001:db8::1:8443"] {
            let error = parse(&format!("parallax-agent run --coordinator {bad} --identity i --state s")).unwrap_err();
            assert!(error.to_string().contains("HOST:PORT"), "{bad}: {error}");
        }
    }

    #[test]
    fn several_coordinators_are_given_by_commas_or_by_repeating() {
        for line in ["--coordinator a:1,[::1]:2", "--coordinator a:1 --coordinator [::1]:2"] {
            let line = format!("parallax-agent run {line} --identity i --state s");
            let Ok(Cli { command: Command::Run(run) }) = Cli::try_parse_from(line.split(' ')) else { panic!("{line}") };
            let shown: Vec<String> = run.coordinator.iter().map(ToString::to_string).collect();
            assert_eq!(shown, ["a:1", "[::1]:2"]);
        }
    }
}
