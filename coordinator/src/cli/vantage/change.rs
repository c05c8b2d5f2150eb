//! What people do to a vantage. Each needs a reason and leaves a row in the audit table, in the transaction that
//! does it; running coordinators hear of it at once.

use clap::Args;
use parallax_decide::names::VantageName;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, Postgres, Transaction};

use super::{parse, unknown};
use crate::cli::database::Database;
use crate::cli::reading::{connect, failed};
use crate::cli::who::{By, Who, check_reason, note};
use crate::cli::{Global, print, print_json};
use crate::error::{Exit, Failure};
use crate::store::vantage::{self, VantageRow, change};

/// `parallax vantage replace` and `remove`
#[derive(Debug, Args)]
pub struct Change {
    /// Name of the vantage.
    pub name: String,
    /// Why, who does it, and where it is written down.
    #[command(flatten)]
    pub by: By,
}

/// `parallax vantage approve`
#[derive(Debug, Args)]
pub struct Approve {
    /// Name of the vantage.
    pub name: String,
    /// Why, for the audit table.
    #[arg(long, default_value = "approved")]
    pub reason: String,
    /// Who does it.
    #[command(flatten)]
    pub who: Who,
    /// Where it is stored.
    #[command(flatten)]
    pub database: Database,
}

/// `parallax vantage rename`
#[derive(Debug, Args)]
pub struct Rename {
    /// Its name now.
    pub name: String,
    /// Its name from now on.
    pub new: String,
    /// Why, who does it, and where it is written down.
    #[command(flatten)]
    pub by: By,
}

/// `parallax vantage revoke`
#[derive(Debug, Args)]
pub struct Revoke {
    /// Name of the vantage.
    pub name: String,
    /// Only the key of this certificate, by the beginning of its serial number (`parallax vantage show`).
    #[arg(long, value_name = "SERIAL")]
    pub certificate: Option<String>,
    /// Why, who does it, and where it is written down.
    #[command(flatten)]
    pub by: By,
}

/// A change that has begun: the vantage is there, the reason is one.
struct Begun<'a> {
    transaction: Transaction<'a, Postgres>,
    name: VantageName,
    row: VantageRow,
}

async fn begin<'a>(connection: &'a mut PgConnection, name: &str, reason: &str) -> Result<Begun<'a>, Failure> {
    let name = parse(name)?;
    check_reason(reason)?;
    let mut transaction = connection.begin().await.map_err(|error| failed(error.into()))?;
    let row = vantage::by_name(&mut transaction, &name).await.map_err(failed)?.ok_or_else(|| unknown(&name))?;
    Ok(Begun { transaction, name, row })
}

impl Begun<'_> {
    async fn end(mut self, what: &'static str, (who, reason): (&Who, &str), detail: Value) -> Result<(), Failure> {
        let subject = format!("vantage {}", self.name);
        note(&mut self.transaction, (what, &subject), (who, reason), detail).await?;
        self.transaction.commit().await.map_err(|error| failed(error.into()))
    }
}

pub(super) async fn approve(one: &Approve, global: &Global) -> Result<(), Failure> {
    let mut connection = connect(&one.database).await?;
    let mut begun = begin(&mut connection, &one.name, &one.reason).await?;
    let (name, row) = (begun.name.clone(), begun.row.clone());
    if row.revoked_at.is_some() || row.retired_at.is_some() {
        return Err(Failure::new(Exit::Refused, format!("vantage {name} was revoked or removed"))
            .why("approving would bring back keys that were refused for good")
            .fix(format!("parallax vantage replace {name} --reason …, then parallax token create {name}")));
    }
    change::approve(&mut begun.transaction, row.id, &one.who.name()).await.map_err(failed)?;
    begun.end("vantage_approved", (&one.who, &one.reason), json!({})).await?;
    if global.json {
        return print_json(&json!({ "schema": 1, "vantage": name, "approved": true }));
    }
    print(&format!(
        "approved {name}; running coordinators take it in at once. To set its failure domain or a pin, list it under vantages:\n"
    ))
}

pub(super) async fn rename(one: &Rename, global: &Global) -> Result<(), Failure> {
    let new = parse(&one.new)?;
    let mut connection = connect(&one.by.database).await?;
    let mut begun = begin(&mut connection, &one.name, &one.by.reason).await?;
    let (name, id, listed) = (begun.name.clone(), begun.row.id, begun.row.admitted_at.is_none());
    if name == new {
        return Err(Failure::new(Exit::Usage, format!("{name} has this name already")));
    }
    if !change::rename(&mut begun.transaction, id, &new).await.map_err(failed)? {
        return Err(Failure::new(Exit::Refused, format!("another vantage has the name {new}"))
            .why("two histories would become one")
            .fix("choose another name; parallax vantage list --all shows those that are taken"));
    }
    begun.end("vantage_renamed", one.by.deed(), json!({ "new_name": new })).await?;
    if global.json {
        return print_json(&json!({ "schema": 1, "vantage": new, "before": name, "renamed": true }));
    }
    let mut out = format!("renamed {name} to {new}; its certificate names it anew at its next renewal\n");
    if listed {
        out.push_str(
            "Write the new name under vantages: in the configuration and reload it; until then the agent waits and keeps what it measures.\n",
        );
    }
    print(&out)
}

pub(super) async fn replace(one: &Change, global: &Global) -> Result<(), Failure> {
    let mut connection = connect(&one.by.database).await?;
    let mut begun = begin(&mut connection, &one.name, &one.by.reason).await?;
    let name = begun.name.clone();
    let refused = change::replace(&mut begun.transaction, begun.row.id).await.map_err(failed)?;
    begun.end("vantage_replaced", one.by.deed(), json!({ "certificates": refused })).await?;
    if global.json {
        return print_json(&json!({ "schema": 1, "vantage": name, "certificates_refused": refused }));
    }
    print(&format!(
        "{name} takes new keys; {refused} certificates are refused for good.\nNext: parallax token create {name}\n"
    ))
}

pub(super) async fn remove(one: &Change, global: &Global) -> Result<(), Failure> {
    let mut connection = connect(&one.by.database).await?;
    let mut begun = begin(&mut connection, &one.name, &one.by.reason).await?;
    let (name, id) = (begun.name.clone(), begun.row.id);
    // One that was approved goes by itself.
    let listed =
        begun.row.admitted_at.is_none() && vantage::is_listed(&mut begun.transaction, &name).await.map_err(failed)?;
    let refused = change::remove(&mut begun.transaction, id).await.map_err(failed)?;
    begun.end("vantage_removed", one.by.deed(), json!({ "certificates": refused })).await?;
    if global.json {
        return print_json(&json!({ "schema": 1, "vantage": name, "removed": true, "still_listed": listed }));
    }
    let mut out = format!("removed {name}; its history stays, its certificates are refused for good\n");
    if listed {
        out.push_str("The configuration still lists it: take it out there too, or it is shown as silent.\n");
    }
    print(&out)
}

pub(super) async fn revoke(one: &Revoke, global: &Global) -> Result<(), Failure> {
    let mut connection = connect(&one.by.database).await?;
    let mut begun = begin(&mut connection, &one.name, &one.by.reason).await?;
    let name = begun.name.clone();
    let Some(start) = &one.certificate else {
        change::revoke(&mut begun.transaction, &name).await.map_err(failed)?;
        begun.end("vantage_revoked", one.by.deed(), json!({})).await?;
        if global.json {
            return print_json(&json!({ "schema": 1, "vantage": name, "revoked": true }));
        }
        return print(&format!("revoked {name}; its stream is cut and its certificates refused from now on\n"));
    };
    let start = start.replace(':', "").to_ascii_lowercase();
    if start.len() < 8 || !start.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Failure::new(Exit::Usage, "--certificate wants at least 8 hexadecimal digits of a serial number")
            .fix(format!("parallax vantage show {name}")));
    }
    let done = change::revoke_key(&mut begun.transaction, begun.row.id, &start).await.map_err(failed)?;
    if done == 0 {
        return Err(Failure::new(
            Exit::NotFound,
            format!("{name} has no certificate {start}, or several that begin so"),
        )
        .fix(format!("parallax vantage show {name}")));
    }
    begun.end("certificate_revoked", one.by.deed(), json!({ "certificate": start })).await?;
    if global.json {
        return print_json(&json!({ "schema": 1, "vantage": name, "certificates_refused": done }));
    }
    print(&format!("revoked that key of {name} ({done} certificates); a stream that uses it is cut\n"))
}
