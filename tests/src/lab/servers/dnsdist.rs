//! dnsdist as the public resolvers: plain DNS, DoH and DoT, with answers that depend on who asks whom. The rules are
//! changed live through its console.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use super::{Ground, START_MAX, text};
use crate::lab::atlas::{
    CANARIES, CDN_RESOLVER, OTHER_RESOLVER, PUBLIC_RESOLVERS, Place, PublicResolver, TTL_S, VANTAGES,
};
use crate::lab::layout::{Kind, Layout};
use crate::lab::look;
use crate::lab::process::{self, Process};
use crate::lab::run_dir::{private, random_key, write_private};

/// Writes the configuration, starts dnsdist and waits until it answers every place.
///
/// # Errors
/// It does not start.
pub async fn start(ground: &Ground) -> Result<Process> {
    let path = configuration_path(ground);
    private(&ground.directory.join("public"))?;
    write_private(&path, &configure(ground)?)?;
    let mut command = process::command(ground.router(), &ground.programs.dnsdist);
    command.args(["--supervised", "--disable-syslog", "-C"]).arg(&path);
    let mut dnsdist = Process::start("public resolvers (dnsdist)", &ground.log("public"), command)?;
    let lab = ground.lab_binary()?;
    for place in VANTAGES {
        for resolver in [CDN_RESOLVER, OTHER_RESOLVER] {
            let server = ground.layout.resolver(place, resolver, 53);
            dnsdist
                .until("answering", START_MAX, async || {
                    look::resolve(ground.namespace(place), &lab, server, CANARIES[0].name)
                        .await
                        .is_ok_and(|a| !a.is_empty())
                })
                .await
                .with_context(|| format!("public resolver {} for {}", resolver.address, place.name()))?;
        }
    }
    Ok(dnsdist)
}

fn configuration_path(ground: &Ground) -> PathBuf {
    ground.directory.join("public").join("dnsdist.conf")
}

/// Runs one Lua statement in the running dnsdist.
///
/// # Errors
/// The console cannot be reached, or refuses the statement (it says so in its output and still exits 0).
pub async fn console(ground: &Ground, statement: &str) -> Result<()> {
    let (configuration, at) = (text(&configuration_path(ground)), ground.layout.console().to_string());
    let arguments = ["-C", &configuration, "-c", &at, "-e", statement];
    let said = process::run(ground.router(), &ground.programs.dnsdist, &arguments).await?;
    if said.trim_start().starts_with("Error") {
        bail!("dnsdist refused `{statement}`: {said}");
    }
    Ok(())
}

/// A rule that gives a place these addresses for a name, when it asks one of the resolvers `at`.
#[must_use]
pub fn spoof(
    layout: &Layout,
    rule: &str,
    place: Place,
    at: &[PublicResolver],
    name: &str,
    addresses: &[Ipv4Addr],
) -> String {
    // Places differ by source; on loopback by the listener they are sent to.
    let source = match layout.kind {
        Kind::Namespaces => format!("10.10.{}.0/24", place.number()),
        Kind::Loopback => "0.0.0.0/0".to_owned(),
    };
    let asked = list(at.iter().map(|r| layout.resolver(place, *r, 53).ip().to_string()));
    let answer = list(addresses.iter().map(Ipv4Addr::to_string));
    format!(
        "addAction(AndRule({{fromTo({source:?}, {asked}), makeRule({name:?}), QTypeRule(DNSQType.A)}}), \
         SpoofAction({answer}, {{ttl={TTL_S}}}), {{name={rule:?}}})"
    )
}

/// A Lua list of strings.
fn list(items: impl Iterator<Item = String>) -> String {
    let quoted: Vec<String> = items.map(|i| format!("{i:?}")).collect();
    format!("{{{}}}", quoted.join(", "))
}

fn configure(ground: &Ground) -> Result<String> {
    let layout = &ground.layout;
    let files = &ground.certificates.resolvers;
    let (certificate, key) = (text(&files.certificate), text(&files.key));
    let mut lua = String::from("setSecurityPollSuffix(\"\")\nsetACL({\"0.0.0.0/0\"})\nsetVerboseHealthChecks(false)\n");
    // A namespace world has one set of listeners for all places; the loopback world has one for each.
    let mut plain = Vec::new();
    for place in VANTAGES {
        for resolver in PUBLIC_RESOLVERS {
            let at = layout.resolver(place, resolver, 53);
            if plain.contains(&at) {
                continue;
            }
            plain.push(at);
            let _ = writeln!(lua, "addLocal(\"{at}\")");
            let doh = layout.resolver(place, resolver, 443);
            let _ = writeln!(lua, "addDOHLocal(\"{doh}\", {certificate:?}, {key:?}, {{\"/dns-query\"}})");
            let dot = layout.resolver(place, resolver, 853);
            let _ = writeln!(lua, "addTLSLocal(\"{dot}\", {certificate:?}, {key:?})");
        }
    }
    // The first addLocal replaces the default listener only when setLocal was called before it.
    if let Some(first) = plain.first() {
        lua = lua.replacen(&format!("addLocal(\"{first}\")"), &format!("setLocal(\"{first}\")"), 1);
    }
    let _ = writeln!(lua, "newServer({{address=\"{}\"}}):setUp()", layout.authority());
    let _ = writeln!(lua, "controlSocket(\"{}\")\nsetKey(\"{}\")", layout.console(), random_key()?);
    lua.push_str(FROM_TO);
    for canary in CANARIES {
        for (place, addresses) in [(Place::Wan, canary.wan), (Place::Fra, canary.fra)] {
            if addresses != canary.native {
                let rule = format!("native {} {}", place.name(), canary.name);
                let _ = writeln!(lua, "{}", spoof(layout, &rule, place, &PUBLIC_RESOLVERS, canary.name, &addresses));
            }
        }
    }
    Ok(lua)
}

/// Matches questions from a network to one of these addresses.
const FROM_TO: &str = r"
function fromTo(source, asked)
  local from, to = newNMG(), newNMG()
  from:addMask(source)
  for _, address in ipairs(asked) do to:addMask(address) end
  return AndRule({NetmaskGroupRule(from, true), NetmaskGroupRule(to, false)})
end
";
