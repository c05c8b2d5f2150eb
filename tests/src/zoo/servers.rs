//! The real servers of the zoo: BIND as authority, dnsdist as every public resolver, an Unbound at each place, and the
//! lab's web server in all its manners.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::answers::{self, STUB, canaries};
use super::doors::FRESH;
use super::ground::{Ground, resolver_host};
use super::machines::{self, machines};
use super::place::{CACHED, HQ, PLACES, Place};
use super::public::{
    AUTHORITY, CF, CONTROLS, Culprit, ENDPOINTS, GOOGLE, LONG_TTL_S, NO_CONTENT, PLAIN, SIGNPOST, TSIG_NAME, TTL_S,
    ZONE, endpoint, endpoint_at, host,
};
use crate::lab::certs::ServerFiles;
use crate::lab::look;
use crate::lab::process::{self, Process};
use crate::lab::programs;
use crate::lab::run_dir::{private, random_key, write_private};
use crate::lab::servers::web::{self, Manner};
use crate::lab::servers::{ROUTER, START_MAX};

const CONSOLE: &str = "127.0.0.1:5199";

/// Every public address at which something listens or once did.
#[must_use]
pub fn addresses() -> Vec<Ipv4Addr> {
    let resolvers = [CF, GOOGLE, PLAIN, SIGNPOST].into_iter().chain((0..ENDPOINTS.len()).map(endpoint_at));
    let machines = machines().map(|machine| machines::address(machine.name));
    let culprits = [*Culprit::Hangs.at().ip()];
    let others = [AUTHORITY, NO_CONTENT, STUB].into_iter().chain(CONTROLS.map(|(_, address)| address)).chain(culprits);
    let mut all: Vec<Ipv4Addr> =
        answers::servers().into_iter().chain(resolvers).chain(machines).chain(others).collect();
    all.sort();
    all.dedup();
    all
}

/// Starts all of them and waits until they answer.
///
/// # Errors
/// One does not start.
pub async fn start(ground: &Ground) -> Result<Vec<Process>> {
    let mut all = vec![authority(ground).await?];
    all.push(public(ground).await?);
    let web_at = |address: Ipv4Addr| SocketAddrV4::new(address, 443);
    let pages = answers::servers().into_iter().chain(machines().map(|m| machines::address(m.name)));
    let pages: Vec<SocketAddrV4> = pages.chain(CONTROLS.map(|(_, address)| address)).map(web_at).collect();
    all.push(serve(ground, "pages", &pages, &ground.servers, Manner::Serve).await?);
    let stub = [web_at(STUB)];
    all.push(serve(ground, "stub", &stub, &ground.stranger, Manner::Serve).await?);
    let no_content = [SocketAddrV4::new(NO_CONTENT, 80)];
    all.push(serve(ground, "no-content", &no_content, &ground.servers, Manner::NoContent).await?);
    for culprit in Culprit::ALL {
        let (files, manner) = match culprit {
            Culprit::Hangs => (&ground.servers, Manner::HangInTls),
            Culprit::Stranger => (&ground.stranger, Manner::Serve),
            Culprit::Expired => (&ground.expired, Manner::Serve),
            Culprit::Unknown => (&ground.unknown, Manner::Serve),
            Culprit::Mute => (&ground.resolvers, Manner::Mute),
            Culprit::Sheds => (&ground.resolvers, Manner::Shed),
            Culprit::Portal => (&ground.servers, Manner::Portal),
        };
        all.push(serve(ground, culprit.name(), &[culprit.at()], files, manner).await?);
    }
    let lives = PLACES.into_iter().filter(|place| *place != HQ).map(|place| live(ground, place));
    all.extend(futures_util::future::try_join_all(lives).await?);
    Ok(all)
}

async fn serve(
    ground: &Ground,
    name: &str,
    at: &[SocketAddrV4],
    files: &ServerFiles,
    manner: Manner,
) -> Result<Process> {
    web::start_at(Some(ROUTER), &ground.log(&format!("web-{name}")), name, at, files, manner).await
}

async fn answering(process: &mut Process, namespace: &str, server: SocketAddrV4, name: &str) -> Result<()> {
    let lab = programs::ours("parallax-lab")?;
    process
        .until("answering", START_MAX, async || {
            look::resolve(Some(namespace), &lab, server, name).await.is_ok_and(|a| !a.is_empty())
        })
        .await
}

async fn authority(ground: &Ground) -> Result<Process> {
    let directory = ground.directory.join("authority");
    private(&directory)?;
    let (here, secret) = (directory.display(), &ground.tsig_secret);
    let configuration = format!(
        r#"controls {{ }};
options {{
    directory "{here}"; pid-file "{here}/named.pid"; session-keyfile "{here}/session.key";
    managed-keys-directory "{here}"; lock-file none;
    listen-on {{ {AUTHORITY}; }}; listen-on-v6 {{ none; }};
    recursion no; dnssec-validation no; notify no; allow-query {{ any; }}; empty-zones-enable no; version none;
}};
key "{TSIG_NAME}" {{ algorithm hmac-sha256; secret "{secret}"; }};
zone "{ZONE}" {{ type primary; file "{ZONE}.db"; update-policy {{ grant {TSIG_NAME} zonesub A AAAA; }}; }};
"#
    );
    write_private(&directory.join("named.conf"), &configuration)?;
    write_private(&directory.join(format!("{ZONE}.db")), &zone())?;
    let mut command = process::command(Some(ROUTER), &ground.programs.named);
    command.arg("-g").args(["-n", "1", "-c"]).arg(directory.join("named.conf"));
    let mut named = Process::start("authority (BIND)", &ground.log("authority"), command)?;
    answering(&mut named, ROUTER, SocketAddrV4::new(AUTHORITY, 53), &host("known")).await?;
    Ok(named)
}

fn zone() -> String {
    let mut zone = format!(
        "$TTL {TTL_S}\n@ IN SOA ns hostmaster 1 3600 600 86400 {TTL_S}\n@ IN NS ns\nns IN A {AUTHORITY}\n\
         known IN A {FRESH}\n*.fresh IN A {FRESH}\nnothing IN TXT \"no address\"\ncaptive IN A {NO_CONTENT}\n"
    );
    for canary in canaries() {
        let ttl = if canary.label == "steady" { LONG_TTL_S } else { TTL_S };
        for address in &canary.addresses {
            let kind = match address {
                IpAddr::V4(_) => "A",
                IpAddr::V6(_) => "AAAA",
            };
            let _ = writeln!(zone, "{} {ttl} IN {kind} {address}", canary.label);
        }
    }
    for machine in machines() {
        let _ = writeln!(zone, "{} IN A {}", machine.name, machines::address(machine.name));
    }
    for (number, name) in ENDPOINTS.iter().enumerate() {
        let _ = writeln!(zone, "{name}.dns IN A {}", endpoint_at(number));
    }
    zone
}

fn console_file(ground: &Ground) -> PathBuf {
    ground.directory.join("public").join("dnsdist.conf")
}

async fn public(ground: &Ground) -> Result<Process> {
    private(&ground.directory.join("public"))?;
    let file = console_file(ground);
    write_private(&file, &configure(ground)?)?;
    let mut command = process::command(Some(ROUTER), &ground.programs.dnsdist);
    command.args(["--supervised", "--disable-syslog", "-C"]).arg(&file);
    let mut dnsdist = Process::start("public resolvers (dnsdist)", &ground.log("public"), command)?;
    answering(&mut dnsdist, ROUTER, SocketAddrV4::new(CF, 53), &host("known")).await?;
    Ok(dnsdist)
}

fn configure(ground: &Ground) -> Result<String> {
    let (certificate, key) = (&ground.resolvers.certificate, &ground.resolvers.key);
    let mut lua = format!("setSecurityPollSuffix(\"\")\nsetACL({{\"0.0.0.0/0\"}})\nsetLocal(\"{SIGNPOST}:53\")\n");
    for address in [CF, GOOGLE].into_iter().chain((0..ENDPOINTS.len()).map(endpoint_at)) {
        let _ = writeln!(lua, "addDOHLocal(\"{address}:443\", {certificate:?}, {key:?}, {{\"/dns-query\"}})");
    }
    for address in [CF, GOOGLE, PLAIN] {
        let _ = writeln!(lua, "addLocal(\"{address}:53\")");
    }
    for address in [CF, endpoint("e15")] {
        let _ = writeln!(lua, "addTLSLocal(\"{address}:853\", {certificate:?}, {key:?})");
    }
    let _ = writeln!(lua, "newServer({{address=\"{AUTHORITY}:53\"}}):setUp()");
    let _ = writeln!(lua, "controlSocket(\"{CONSOLE}\")\nsetKey(\"{}\")", random_key()?);
    lua.push_str(FROM_TO);
    Ok(lua)
}

/// Matches questions from some networks to some addresses.
const FROM_TO: &str = r"
function fromTo(sources, asked)
  local from, to = newNMG(), newNMG()
  for _, source in ipairs(sources) do from:addMask(source) end
  for _, address in ipairs(asked) do to:addMask(address) end
  return AndRule({NetmaskGroupRule(from, true), NetmaskGroupRule(to, false)})
end
";

/// Runs Lua statements in the running dnsdist.
///
/// # Errors
/// The console cannot be reached, or refuses one (it says so in its output and still exits 0).
pub async fn console(ground: &Ground, statements: &[String]) -> Result<()> {
    let file = console_file(ground);
    let statement = statements.join(" ");
    let arguments =
        ["-C".as_ref(), file.as_os_str(), "-c".as_ref(), CONSOLE.as_ref(), "-e".as_ref(), statement.as_ref()];
    let said = process::run(Some(ROUTER), &ground.programs.dnsdist, &arguments).await?;
    if said.trim_start().starts_with("Error") {
        bail!("dnsdist refused `{statement}`: {said}");
    }
    Ok(())
}

/// Where the control socket of a place's resolver is.
#[must_use]
pub fn control_socket(ground: &Ground, place: Place) -> PathBuf {
    live_directory(ground, place).join("control.sock")
}

fn live_directory(ground: &Ground, place: Place) -> PathBuf {
    ground.directory.join(format!("live-{}", place.name))
}

async fn live(ground: &Ground, place: Place) -> Result<Process> {
    let directory = live_directory(ground, place);
    private(&directory)?;
    write_private(&directory.join("unbound.conf"), &live_configuration(ground, place, &directory))?;
    let name = format!("live-{}", place.name);
    let mut command = process::command(Some(place.name), &ground.programs.unbound);
    command.arg("-d").arg("-c").arg(directory.join("unbound.conf"));
    let mut unbound = Process::start(&format!("{name} (Unbound)"), &ground.log(&name), command)?;
    answering(&mut unbound, place.name, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 53), &host("known"))
        .await
        .with_context(|| format!("the resolver of {}", place.name))?;
    Ok(unbound)
}

fn live_configuration(ground: &Ground, place: Place, directory: &Path) -> String {
    let (here, roots, control) =
        (directory.display(), ground.authority.display(), control_socket(ground, place).display().to_string());
    let (upstream, name) = if place == CACHED { (endpoint("e15"), "e15") } else { (CF, "cf") };
    let server_name = resolver_host(name);
    format!(
        r#"server:
    directory: "{here}"
    pidfile: "{here}/unbound.pid"
    username: ""
    chroot: ""
    use-syslog: no
    interface: 127.0.0.1
    do-ip6: no
    num-threads: 1
    access-control: 127.0.0.0/8 allow
    do-not-query-localhost: no
    module-config: "iterator"
    minimal-responses: yes
    qname-minimisation: no
    tls-upstream: yes
    tls-cert-bundle: "{roots}"
    infra-host-ttl: 5
remote-control:
    control-enable: yes
    control-interface: "{control}"
    control-use-cert: no
forward-zone:
    name: "."
    forward-tls-upstream: yes
    forward-addr: {upstream}@853#{server_name}
"#
    )
}

/// How long a server gets to end by itself.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// Stops servers.
///
/// # Errors
/// The system refuses to kill one.
pub async fn stop(servers: &mut [Process]) -> Result<()> {
    let stops = servers.iter_mut().map(|server| server.stop(STOP_PATIENCE));
    for stopped in futures_util::future::join_all(stops).await {
        stopped?;
    }
    Ok(())
}
