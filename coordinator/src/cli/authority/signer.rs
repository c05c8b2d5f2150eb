//! The keys that sign orders: put a new one beside the old one, retire it, or begin anew after a loss.

use clap::Args;
use parallax_decide::time::Timestamp;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use time::format_description::well_known::Rfc3339;

use crate::cli::database::Database;
use crate::cli::reading::{connect, failed};
use crate::cli::who::{By, check_reason, note};
use crate::cli::{Global, print, print_json};
use crate::error::{Exit, Failure};
use crate::identity::signer::{self as files, Signers, fingerprint};
use crate::store::{self, signer};

/// `parallax authority retire-signer`
#[derive(Debug, Args)]
pub struct Retire {
    /// Beginning of its fingerprint.
    pub fingerprint: String,
    /// Also while agents were not told of the one that signs next: they obey nothing until they join again.
    #[arg(long)]
    pub force: bool,
    /// Why, who does it, and where it is written down.
    #[command(flatten)]
    pub by: By,
}

/// What `parallax authority list` says of them.
pub(super) struct Listed {
    /// For programs.
    pub(super) rows: Vec<Value>,
    /// For people.
    pub(super) text: String,
}

pub(super) async fn listed(database: &Database, connection: &mut PgConnection) -> Result<Listed, Failure> {
    let signers = Signers::open(&database.state.path()?.join("ca"))?;
    let known = signer::all(connection).await.map_err(failed)?;
    let mut listed = Listed { rows: Vec::new(), text: "keys that sign orders\n".to_owned() };
    for one in signers.all() {
        let (fingerprint, signs) = (one.fingerprint(), one.public() == signers.signing().public());
        let row = known.iter().find(|row| row.public_key == one.public());
        let (noted_at, not_told) = (row.map(|row| shown(row.noted_at)), row.map(|row| row.not_told));
        listed.rows.push(
            json!({ "fingerprint": fingerprint, "signs": signs, "noted_at": noted_at, "vantages_not_told": not_told }),
        );
        let role = if signs { "signs" } else { "signs once those before it are retired" };
        let told = match not_told {
            Some(count) => format!("{count} vantages were not told of it yet"),
            None => "no coordinator has seen it yet".to_owned(),
        };
        listed.text.push_str(&format!("{fingerprint}\n  {role}; {told}\n"));
    }
    Ok(listed)
}

pub(super) async fn rotate(by: &By, global: &Global) -> Result<(), Failure> {
    check_reason(&by.reason)?;
    let folder = by.database.state.path()?.join("ca");
    let mut connection = connect(&by.database).await?;
    let public = files::rotate(&folder)?;
    let fingerprint = fingerprint(&public);
    signer::note(&mut connection, &[public]).await.map_err(failed)?;
    let subject = format!("signer {fingerprint}");
    note(&mut connection, ("signer_made", &subject), by.deed(), json!({})).await?;
    if global.json {
        return print_json(&json!({ "schema": 1, "fingerprint": fingerprint }));
    }
    print(&format!(
        "made key {fingerprint}; connected agents are told of it, and the old one signs until it is retired.\n\
         With several coordinators: copy {} to each of them now, keeping modes.\n\
         When  parallax authority list  says that every vantage was told:  parallax authority retire-signer\n",
        folder.display()
    ))
}

pub(super) async fn retire(one: &Retire, global: &Global) -> Result<(), Failure> {
    check_reason(&one.by.reason)?;
    let folder = one.by.database.state.path()?.join("ca");
    let mut connection = connect(&one.by.database).await?;
    let signers = Signers::open(&folder)?;
    let wanted = signers.find(&one.fingerprint)?.public().to_vec();
    let next = signers.all().find(|other| other.public() != wanted);
    let known = signer::all(&mut connection).await.map_err(failed)?;
    // Whoever does not know the one that signs next obeys nothing then.
    let left = match next {
        Some(next) if signers.signing().public() == wanted => {
            known.iter().find(|row| row.public_key == next.public()).map_or(i64::MAX, |row| row.not_told)
        }
        Some(_) | None => 0,
    };
    if left > 0 && !one.force {
        let what = match left {
            i64::MAX => "no coordinator has told agents of the key that signs next".to_owned(),
            count => format!("{count} vantages were not told of the key that signs next"),
        };
        return Err(Failure::new(Exit::Refused, what)
            .why("they were not seen since it was made, and would obey nothing until they join again")
            .fix("wait until they were connected, see `parallax authority list`; remove vantages that never come back, or --force and let them join again"));
    }
    let public = files::retire(&folder, &one.fingerprint)?;
    let fingerprint = fingerprint(&public);
    signer::retire(&mut connection, &public).await.map_err(failed)?;
    let (subject, detail) = (format!("signer {fingerprint}"), json!({ "vantages_not_told": left }));
    note(&mut connection, ("signer_retired", &subject), one.by.deed(), detail).await?;
    if global.json {
        return print_json(&json!({ "schema": 1, "fingerprint": fingerprint, "retired": true }));
    }
    print(&format!("retired key {fingerprint}; it is destroyed. With several coordinators: copy the folder again.\n"))
}

pub(super) async fn reset(by: &By, global: &Global) -> Result<(), Failure> {
    check_reason(&by.reason)?;
    let folder = by.database.state.path()?.join("ca");
    let mut connection = connect(&by.database).await?;
    let signs = fingerprint(&files::reset(&folder)?);
    let public = Signers::open(&folder)?.public();
    let mut transaction = connection.begin().await.map_err(|error| failed(error.into()))?;
    signer::reset(&mut transaction, &public).await.map_err(failed)?;
    let subject = format!("signer {signs}");
    note(&mut transaction, ("signer_reset", &subject), by.deed(), json!({})).await?;
    transaction.commit().await.map_err(|error| failed(error.into()))?;
    if global.json {
        return print_json(&json!({ "schema": 1, "fingerprint": signs, "reset": true }));
    }
    print(&format!(
        "key {signs} signs from the next start of the coordinator on; agents that do not know it obey nothing until they \
         join again (parallax vantage list, parallax token create NAME).\n\
         With several coordinators: copy {} to each of them before they start.\n",
        folder.display()
    ))
}

fn shown(at: Timestamp) -> String {
    store::offset(at).format(&Rfc3339).unwrap_or_default()
}
