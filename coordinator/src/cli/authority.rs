//! `parallax authority`: list the certificate authorities of STATE/ca, put a new one beside them, retire an old one;
//! and the same for the keys that sign orders ([`signer`]).
//! A running coordinator sees the change by itself within seconds.

use clap::{Args, Subcommand};
use parallax_proto::token::Fingerprint;
use serde_json::json;
use time::format_description::well_known::Rfc3339;

use super::config::ConfigFile;
use super::database::Database;
use super::reading::{connect, failed};
use super::who::{By, check_reason, note};
use super::{Global, print, print_json};
use crate::clock;
use crate::error::{Exit, Failure};
use crate::hex::hex;
use crate::identity::bundle::{self, Bundle, Making};
use crate::store::certificate;

pub mod signer;

/// `parallax authority …`
#[derive(Debug, Subcommand)]
pub enum AuthorityCommand {
    /// List the authorities that are trusted and the keys that sign orders, and how many vantages need or lack each.
    List(List),
    /// Make a new authority beside the old one: it issues from now on, and both are trusted.
    Rotate(Rotate),
    /// Trust an old authority no more and destroy its key.
    Retire(Retire),
    /// Make another key that signs orders: agents are told of it, and the old one signs until it is retired.
    RotateSigner(By),
    /// Trust a key that signs orders no more and destroy it: the next one signs.
    RetireSigner(signer::Retire),
    /// After a loss: take the key that signs orders in STATE/ca, or a new one, for this installation's.
    ResetSigner(By),
}

/// `parallax authority list`
#[derive(Debug, Args)]
pub struct List {
    /// Configuration, for an authority of the operator's own.
    #[command(flatten)]
    pub config: ConfigFile,
    /// State directory, and where certificates are recorded.
    #[command(flatten)]
    pub database: Database,
}

/// `parallax authority rotate`
#[derive(Debug, Args)]
pub struct Rotate {
    /// Configuration, for an authority of the operator's own.
    #[command(flatten)]
    pub config: ConfigFile,
    /// Why, who does it, and where it is written down.
    #[command(flatten)]
    pub by: By,
}

/// `parallax authority retire`
#[derive(Debug, Args)]
pub struct Retire {
    /// Beginning of its fingerprint.
    pub fingerprint: String,
    /// Also while vantages need it: their agents must join again.
    #[arg(long)]
    pub force: bool,
    /// Configuration, for an authority of the operator's own.
    #[command(flatten)]
    pub config: ConfigFile,
    /// Why, who does it, and where it is written down.
    #[command(flatten)]
    pub by: By,
}

/// Runs it.
///
/// # Errors
/// What happened, why, and how to fix it.
pub async fn run(command: AuthorityCommand, global: &Global) -> Result<(), Failure> {
    match command {
        AuthorityCommand::List(one) => list(&one, global).await,
        AuthorityCommand::Rotate(one) => rotate(&one, global).await,
        AuthorityCommand::Retire(one) => retire(&one, global).await,
        AuthorityCommand::RotateSigner(one) => signer::rotate(&one, global).await,
        AuthorityCommand::RetireSigner(one) => signer::retire(&one, global).await,
        AuthorityCommand::ResetSigner(one) => signer::reset(&one, global).await,
    }
}

/// What no count can know.
const NOT_COUNTED: &str =
    "Not counted: identities made with  parallax vantage issue  whose agents have not connected yet.\n";

/// Those of the operator's are replaced by the operator: in the files.
fn built_in(config: &ConfigFile) -> Result<(), Failure> {
    match config.load()?.identity.authority {
        None => Ok(()),
        Some(pair) => Err(Failure::new(Exit::Refused, "the authority is the operator's own")
            .why(format!("the configuration takes it from {}", pair.certificates.display()))
            .fix("put the new certificate first in that file, leave the old one behind it, and replace the key file; the old one goes when no agent holds a certificate of it")),
    }
}

async fn list(one: &List, global: &Global) -> Result<(), Failure> {
    let identity = one.config.load()?.identity;
    let bundle = match &identity.authority {
        Some(pair) => Bundle::of_operator(&pair.certificates, &pair.key)?,
        None => Bundle::open(&one.database.state.path()?, Making::Forbidden, clock::wall())?,
    };
    let mut connection = connect(&one.database).await?;
    let counts = certificate::vantages_by_authority(&mut connection).await.map_err(failed)?;
    let (issues, serves) = (bundle.issuing()?.key_sha256, bundle.serving()?.key_sha256);
    let mut rows = Vec::new();
    let mut out = String::new();
    for authority in bundle.able() {
        let count = counts.get(&Some(authority.key_sha256)).copied().unwrap_or(0);
        let until = authority.not_after.format(&Rfc3339).unwrap_or_default();
        let role = match (authority.key_sha256 == issues, authority.key_sha256 == serves) {
            (true, true) => "issues agents' certificates and the coordinator's",
            (true, false) => "issues agents' certificates",
            (false, true) => "issues the coordinator's own, for agents that know no newer one",
            (false, false) => "trusted",
        };
        let may_retire = authority.key_sha256 != issues && count == 0;
        rows.push(json!({
            "fingerprint": hex(&authority.key_sha256), "not_after": until, "role": role, "vantages": count,
            "may_be_retired": may_retire,
        }));
        out.push_str(&format!(
            "{}\n  {role}; {count} vantages need it; until {until}{}\n",
            Fingerprint(&authority.key_sha256),
            if may_retire { "; may be retired" } else { "" },
        ));
    }
    let signers = signer::listed(&one.database, &mut connection).await?;
    let by_hand = counts.get(&None).copied().unwrap_or(0);
    if global.json {
        return print_json(
            &json!({ "schema": 1, "authorities": rows, "vantages_by_hand": by_hand, "signers": signers.rows }),
        );
    }
    if by_hand > 0 {
        out.push_str(&format!(
            "{by_hand} vantages use an identity made by hand, and it is not known of which authority: look before you retire one\n"
        ));
    }
    out.push_str(NOT_COUNTED);
    out.push_str(&signers.text);
    print(&out)
}

async fn rotate(one: &Rotate, global: &Global) -> Result<(), Failure> {
    check_reason(&one.by.reason)?;
    built_in(&one.config)?;
    let state = one.by.database.state.path()?;
    let mut connection = connect(&one.by.database).await?;
    let fingerprint = bundle::rotate(&state, clock::wall())?;
    let subject = format!("authority {fingerprint}");
    note(&mut connection, ("authority_made", &subject), one.by.deed(), json!({})).await?;
    if global.json {
        return print_json(&json!({ "schema": 1, "fingerprint": fingerprint }));
    }
    print(&format!(
        "made authority {fingerprint}; it issues from now on, the old one stays trusted.\n\
         With several coordinators: copy {} to each of them now, keeping modes.\n\
         When  parallax authority list  says that the old one may be retired:  parallax authority retire\n",
        state.join("ca").display()
    ))
}

async fn retire(one: &Retire, global: &Global) -> Result<(), Failure> {
    check_reason(&one.by.reason)?;
    built_in(&one.config)?;
    let state = one.by.database.state.path()?;
    let mut connection = connect(&one.by.database).await?;
    let wanted = one.fingerprint.replace(':', "").to_ascii_lowercase();
    let counts = certificate::vantages_by_authority(&mut connection).await.map_err(failed)?;
    let of_it = |authority: &Option<[u8; 32]>| authority.is_some_and(|one| hex(&one).starts_with(&wanted));
    let left: i64 = counts.iter().filter(|(authority, _)| of_it(authority)).map(|(_, count)| count).sum();
    let unknown = counts.get(&None).copied().unwrap_or(0);
    if unknown > 0 && !one.force {
        return Err(Failure::new(Exit::Refused, format!("{unknown} vantages may need this authority"))
            .why("they use an identity made by hand, and it is not known of which authority")
            .fix("have them join with a token (parallax token create NAME), or --force"));
    }
    if left > 0 && !one.force {
        return Err(Failure::new(Exit::Refused, format!("{left} vantages need this authority"))
            .why("their latest certificate is of it and holds, or ended within 90 days and can still be renewed; their agents would be locked out")
            .fix("wait: each gets a new one at half to two thirds of its certificate's life, see `parallax authority list`; remove vantages that never come back, or --force and let those agents join again"));
    }
    let fingerprint = bundle::retire(&state, &wanted, clock::wall())?;
    let detail = json!({ "vantages": left });
    let subject = format!("authority {fingerprint}");
    note(&mut connection, ("authority_retired", &subject), one.by.deed(), detail).await?;
    if global.json {
        return print_json(&json!({ "schema": 1, "fingerprint": fingerprint, "retired": true }));
    }
    print(&format!(
        "retired authority {fingerprint}; its key is destroyed. With several coordinators: copy the folder again.\n\
         {NOT_COUNTED}"
    ))
}
