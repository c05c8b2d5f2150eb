//! `parallax token`: make one-use tokens with which agents join, list them, take them back.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use parallax_decide::names::VantageName;
use parallax_decide::time::Timestamp;
use parallax_proto::token::{Fingerprint, SECRET_BYTES, encode};
use parallax_proto::{COORDINATORS_MAX, v1};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::json;
use sqlx::Connection;
use time::format_description::well_known::Rfc3339;

use super::database::Database;
use super::reading::{Shown, connect, failed};
use super::who::Who;
use super::{Global, print, print_json};
use crate::config::identity::place;
use crate::error::{Exit, Failure};
use crate::identity::request::sha256;
use crate::report::moment;
use crate::span;
use crate::store::audit::{self, Deed};
use crate::store::token::{self, NewToken, TakenBack, TokenRow};
use crate::store::{self, StoreError, enrolment, vantage};

mod routeros;

/// Longest life of a token.
const TTL_MAX: Duration = Duration::from_secs(24 * 3600);
/// Shortest: time to paste it.
const TTL_MIN: Duration = Duration::from_secs(60);
/// Most labels, and longest word of one, in characters.
const LABELS_MAX: usize = 16;
const LABEL_CHARS_MAX: usize = 63;

/// Where the agent is after the build that deploy/README.md describes.
const AGENT: &str = "target/x86_64-unknown-linux-gnu/agent/parallax-agent";

/// `parallax token …`
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token with which one agent becomes this vantage, and print the commands to paste.
    Create(Create),
    /// List tokens, never their secrets.
    List(Listing),
    /// Take an unused token back.
    Revoke(Revoke),
}

/// `parallax token create`
#[derive(Debug, Args)]
pub struct Create {
    /// Name of the vantage. One that the configuration does not list waits for `parallax vantage approve`.
    pub name: String,
    /// Word that describes the vantage, as in site=kazan; used while the configuration does not list it.
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub labels: Vec<String>,
    /// How long it can be used: at most 24h.
    #[arg(long, default_value = "60m", value_name = "SPAN")]
    pub ttl: String,
    /// Where agents reach the coordinators; repeat it for several [default: as the coordinator advertises itself].
    #[arg(long = "coordinator", value_name = "HOST:PORT")]
    pub coordinators: Vec<String>,
    /// Print what to paste on this kind of machine.
    #[arg(long = "for", value_enum, value_name = "KIND")]
    pub machine: Option<Machine>,
    /// Version of its system (RouterOS: as in 7.24).
    #[arg(long, value_name = "V", requires = "machine")]
    pub version: Option<String>,
    /// Its processor (RouterOS: arm64, arm, armv5 or x86).
    #[arg(long, value_name = "A", requires = "machine")]
    pub arch: Option<String>,
    /// Who makes it.
    #[command(flatten)]
    pub who: Who,
    /// Where it is stored.
    #[command(flatten)]
    pub database: Database,
    /// How times are shown.
    #[command(flatten)]
    pub shown: Shown,
}

/// Kind of machine an agent runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Machine {
    /// A MikroTik router with containers.
    Routeros,
}

/// `parallax token list`
#[derive(Debug, Args)]
pub struct Listing {
    /// Where they are stored.
    #[command(flatten)]
    pub database: Database,
    /// How times are shown.
    #[command(flatten)]
    pub shown: Shown,
}

/// `parallax token revoke`
#[derive(Debug, Args)]
pub struct Revoke {
    /// Number of the token, as listed.
    pub id: i64,
    /// Why, for the audit table.
    #[arg(long, default_value = "taken back")]
    pub reason: String,
    /// Who takes it back.
    #[command(flatten)]
    pub who: Who,
    /// Where it is stored.
    #[command(flatten)]
    pub database: Database,
}

/// Runs it.
///
/// # Errors
/// What happened, why, and how to fix it.
pub async fn run(command: TokenCommand, global: &Global) -> Result<(), Failure> {
    match command {
        TokenCommand::Create(one) => create(&one, global).await,
        TokenCommand::List(listing) => list(&listing, global).await,
        TokenCommand::Revoke(one) => revoke(&one, global).await,
    }
}

/// What was made.
struct Made {
    id: i64,
    text: String,
    coordinators: Vec<String>,
    authority_sha256: [u8; 32],
    expires_at: Timestamp,
    waits: bool,
}

async fn create(one: &Create, global: &Global) -> Result<(), Failure> {
    let name: VantageName =
        one.name.parse().map_err(|error| Failure::new(Exit::Usage, "not a name for a vantage").why(error))?;
    let ttl = span::any(&one.ttl).map_err(|why| Failure::new(Exit::Usage, "--ttl cannot be understood").why(why))?;
    if !(TTL_MIN..=TTL_MAX).contains(&ttl) {
        return Err(Failure::new(Exit::Usage, "--ttl must be from 1m to 24h")
            .why("whoever finds the token until then becomes this vantage"));
    }
    let labels = labels(&one.labels)?;
    let paste = match one.machine {
        Some(Machine::Routeros) => Some(routeros::Router::of(one.version.as_deref(), one.arch.as_deref())?),
        None => None,
    };
    let made = make(one, &name, ttl, &labels).await?;
    if global.json {
        return print_json(&json!({
            "schema": 1, "id": made.id, "vantage": name, "token": made.text, "expires_at": text(made.expires_at),
            "coordinators": made.coordinators, "authority": Fingerprint(&made.authority_sha256).to_string(),
            "waits_for_approval": made.waits,
            "paste": paste.as_ref().map(|router| router.paste(&name, &made.text)),
        }));
    }
    let zone = one.shown.style().zone;
    let life = moment::coarse(ttl);
    let mut out = match &paste {
        Some(router) => router.paste(&name, &made.text),
        None => format!(
            "Token for vantage {name}, one use, ends in {life} ({}). Shown once.\n\
             {linux}\
             # RouterOS: repeat with --for routeros --version 7.24 --arch arm64 and paste what it prints.\n\
             # The token carries where the coordinator is ({}) and its key's fingerprint; no other setting is needed.\n",
            zone.clock_named(made.expires_at),
            made.coordinators.join(", "),
            linux = linux(&made.text),
        ),
    };
    if made.waits {
        out.push_str(&format!(
            "{}{name} is not in the configuration: it joins, and reports once it is listed under vantages: or after\n\
             {}  parallax vantage approve {name}\n",
            if paste.is_some() { "# " } else { "" },
            if paste.is_some() { "# " } else { "" },
        ));
    }
    print(&out)
}

/// What to paste on a Linux machine, in a tree of the source with the agent built.
fn linux(token: &str) -> String {
    format!(
        "# Linux with systemd, in the source tree with the agent built (deploy/README.md):\n\
         sudo install -m 755 {AGENT} /usr/bin/parallax-agent\n\
         sudo install -m 644 deploy/systemd/parallax-agent.service /etc/systemd/system/parallax-agent.service\n\
         sudo install -D -m 644 deploy/systemd/parallax-agent.sysusers.conf /etc/sysusers.d/parallax-agent.conf\n\
         sudo install -D -m 644 deploy/systemd/parallax-agent.tmpfiles.conf /etc/tmpfiles.d/parallax-agent.conf\n\
         sudo systemd-sysusers && sudo systemd-tmpfiles --create && sudo systemctl daemon-reload\n\
         sudo parallax-agent join {token}\n\
         # Without systemd, the program alone; keep it running by what there is:\n\
         sudo parallax-agent join --no-service {token} && sudo parallax-agent run --state /var/lib/parallax-agent\n"
    )
}

async fn make(
    one: &Create,
    name: &VantageName,
    ttl: Duration,
    labels: &BTreeMap<String, String>,
) -> Result<Made, Failure> {
    let mut connection = connect(&one.database).await?;
    let published = enrolment::read(&mut connection).await.map_err(failed)?.ok_or_else(|| {
        Failure::new(Exit::Refused, "no coordinator has run with this database yet")
            .why("a token carries the fingerprint of the coordinator's key, which is made at its first start")
            .fix("parallax serve")
    })?;
    let coordinators = if one.coordinators.is_empty() { published.coordinators } else { one.coordinators.clone() };
    for given in &coordinators {
        place(given).map_err(|why| Failure::new(Exit::Usage, "--coordinator cannot be understood").why(why))?;
    }
    if coordinators.is_empty() || coordinators.len() > COORDINATORS_MAX {
        return Err(Failure::new(Exit::Usage, "the token must say where the coordinator is")
            .why("it listens on every address of its machine, and its configuration does not say by which one agents reach it")
            .fix("set identity: { advertise: [\"HOST:PORT\"] } in the configuration, or give --coordinator HOST:PORT"));
    }
    let mut secret = [0; SECRET_BYTES];
    SystemRandom::new()
        .fill(&mut secret)
        .map_err(|_| Failure::new(Exit::Failed, "the system gives no random bytes"))?;
    let who = one.who.name();
    let mut transaction = connection.begin().await.map_err(|error| failed(error.into()))?;
    let listed = vantage::is_listed(&mut transaction, name).await.map_err(failed)?;
    let row = vantage::find_or_make(&mut transaction, name).await.map_err(failed)?;
    if row.revoked_at.is_some() || row.retired_at.is_some() {
        let state = if row.retired_at.is_some() { "removed" } else { "revoked" };
        return Err(Failure::new(Exit::Refused, format!("vantage {name} was {state}"))
            .why("a token would bring it back by accident")
            .fix(format!(
                "parallax vantage replace {name} --reason …  refuses its old keys for good and takes a new one"
            )));
    }
    if !labels.is_empty() {
        vantage::set_labels(&mut transaction, row.id, labels).await.map_err(failed)?;
    }
    let new = NewToken { vantage: row.id, secret_sha256: &sha256(&secret), ttl, made_by: &who };
    let (id, expires_at) = token::create(&mut transaction, new).await.map_err(failed)?;
    let deed =
        Deed { who: &who, what: "token_created", subject: &format!("vantage {name}"), reason: "for an agent to join" };
    audit::write(&mut transaction, deed, &json!({ "token": id, "ttl_s": ttl.as_secs() })).await.map_err(failed)?;
    transaction.commit().await.map_err(|error| failed(StoreError::from(error)))?;
    let token = v1::Token {
        secret: secret.to_vec(),
        authority_sha256: published.authority_sha256.to_vec(),
        coordinators: coordinators.clone(),
        vantage: name.to_string(),
        expires_unix_s: u64::try_from(expires_at.0 / 1000).unwrap_or(0),
    };
    Ok(Made {
        id,
        text: encode(&token),
        coordinators,
        authority_sha256: published.authority_sha256,
        expires_at,
        waits: !listed && row.admitted_at.is_none(),
    })
}

fn labels(given: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let wrong = |why: String| {
        Failure::new(Exit::Usage, "--label cannot be understood")
            .why(why)
            .fix("write --label KEY=VALUE, as in --label site=kazan")
    };
    let mut labels = BTreeMap::new();
    for one in given {
        let (key, value) = one.split_once('=').ok_or_else(|| wrong(format!("`{one}` has no =")))?;
        let bad = |word: &str| {
            word.is_empty()
                || word.chars().count() > LABEL_CHARS_MAX
                || word.chars().any(|c| c.is_control() || c == '=')
        };
        if bad(key) || bad(value) {
            return Err(wrong(format!("`{one}`: key and value have 1 to {LABEL_CHARS_MAX} characters")));
        }
        if labels.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(wrong(format!("`{key}` is there twice")));
        }
    }
    if labels.len() > LABELS_MAX {
        return Err(wrong(format!("there are more than {LABELS_MAX}")));
    }
    Ok(labels)
}

/// What a token is now, in one word.
fn state(row: &TokenRow, now: Timestamp) -> &'static str {
    match row {
        TokenRow { used_at: Some(_), .. } => "used",
        TokenRow { revoked_at: Some(_), .. } => "revoked",
        TokenRow { expires_at, .. } if *expires_at <= now => "expired",
        TokenRow { .. } => "valid",
    }
}

async fn list(listing: &Listing, global: &Global) -> Result<(), Failure> {
    let mut connection = connect(&listing.database).await?;
    let rows = token::all(&mut connection).await.map_err(failed)?;
    let now = store::database_now(&mut connection).await.map_err(failed)?;
    if global.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                json!({
                    "id": row.id, "vantage": row.vantage, "state": state(row, now), "made_at": text(row.made_at),
                    "made_by": row.made_by, "expires_at": text(row.expires_at), "used_at": row.used_at.map(text),
                    "used_from": row.used_from, "revoked_at": row.revoked_at.map(text),
                    "refused_after_use": row.refused_count,
                })
            })
            .collect();
        return print_json(&json!({ "schema": 1, "tokens": rows }));
    }
    let zone = listing.shown.style().zone;
    let mut out =
        format!("{:<6} {:<24} {:<8} {:<17} {:<17} {:<14} {}\n", "ID", "VANTAGE", "STATE", "MADE", "ENDS", "BY", "USED");
    for row in rows {
        let used = match (row.used_at, &row.used_from) {
            (Some(at), from) => format!("{} from {}", zone.minute(at), from.as_deref().unwrap_or("?")),
            (None, _) => String::new(),
        };
        let refused = match row.refused_count {
            0 => String::new(),
            count => format!("; REFUSED {count} times since, another key came with it"),
        };
        let line = format!(
            "{:<6} {:<24} {:<8} {:<17} {:<17} {:<14} {used}{refused}",
            row.id,
            row.vantage,
            state(&row, now),
            zone.minute(row.made_at),
            zone.minute(row.expires_at),
            row.made_by,
        );
        out.push_str(line.trim_end());
        out.push('\n');
    }
    print(&out)
}

async fn revoke(one: &Revoke, global: &Global) -> Result<(), Failure> {
    let mut connection = connect(&one.database).await?;
    let mut transaction = connection.begin().await.map_err(|error| failed(error.into()))?;
    let name = match token::revoke(&mut transaction, one.id).await.map_err(failed)? {
        None => {
            return Err(
                Failure::new(Exit::NotFound, format!("there is no token {}", one.id)).fix("parallax token list")
            );
        }
        Some(TakenBack::Used { vantage }) => {
            return Err(Failure::new(Exit::Refused, format!("token {} was used already, by {vantage}", one.id))
                .why("taking it back would change nothing")
                .fix(format!("parallax vantage revoke {vantage}  cuts that agent off")));
        }
        Some(TakenBack::Done { vantage }) => vantage,
    };
    let deed =
        Deed { who: &one.who.name(), what: "token_revoked", subject: &format!("vantage {name}"), reason: &one.reason };
    audit::write(&mut transaction, deed, &json!({ "token": one.id })).await.map_err(failed)?;
    transaction.commit().await.map_err(|error| failed(StoreError::from(error)))?;
    if global.json {
        return print_json(&json!({ "schema": 1, "id": one.id, "vantage": name, "revoked": true }));
    }
    print(&format!("took back token {} of {name}\n", one.id))
}

fn text(at: Timestamp) -> String {
    store::offset(at).format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::testing::{database, global, who};
    use crate::store::enrolment::Enrolment;
    use crate::store::vantage::change;

    fn create(name: &str, database: &Database) -> Create {
        Create {
            name: name.to_owned(),
            labels: vec!["site=kazan".to_owned()],
            ttl: "60m".to_owned(),
            coordinators: Vec::new(),
            machine: None,
            version: None,
            arch: None,
            who: who("anna"),
            database: database.clone(),
            shown: Shown { utc: true, no_color: true },
        }
    }

    async fn made(one: &Create) -> Result<Made, Failure> {
        make(one, &one.name.parse().unwrap(), Duration::from_secs(3600), &labels(&one.labels)?).await
    }

    #[tokio::test]
    async fn a_token_says_what_the_coordinator_published_and_its_secret_is_nowhere() {
        let (database, mut connection) = database().await;
        let one = create("branch-omsk", &database);
        let none = made(&one).await.err().unwrap();
        assert!(none.exit == Exit::Refused && none.to_string().contains("parallax serve"), "{none}");
        let published =
            Enrolment { coordinators: vec!["parallax.example.net:8443".to_owned()], authority_sha256: [9; 32] };
        enrolment::write(&mut connection, &published).await.unwrap();
        let made_one = made(&one).await.unwrap();
        assert!(made_one.waits, "the configuration does not list it");
        let token = parallax_proto::token::parse(&made_one.text).unwrap();
        assert_eq!((token.vantage.as_str(), token.coordinators), ("branch-omsk", published.coordinators));
        assert_eq!(token.authority_sha256, [9; 32]);
        let stored: String = sqlx::query_scalar(
            "select string_agg(t::text, ' ') || (select string_agg(a::text, ' ') from audit a) from join_token t",
        )
        .fetch_one(&mut connection)
        .await
        .unwrap();
        assert!(!stored.contains(&crate::hex::hex(&token.secret)), "{stored}");
        assert!(stored.contains(&crate::hex::hex(&sha256(&token.secret))) && stored.contains("anna"), "{stored}");
        let row = vantage::by_name(&mut connection, &"branch-omsk".parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(row.labels["site"], "kazan");
        // Two tokens have two secrets.
        assert_ne!(parallax_proto::token::parse(&made(&one).await.unwrap().text).unwrap().secret, token.secret);
    }

    #[tokio::test]
    async fn a_revoked_vantage_gets_no_token_before_its_keys_are_replaced() {
        let (database, mut connection) = database().await;
        let published = Enrolment { coordinators: Vec::new(), authority_sha256: [9; 32] };
        enrolment::write(&mut connection, &published).await.unwrap();
        let mut one = create("branch-omsk", &database);
        let nowhere = made(&one).await.err().unwrap();
        assert!(nowhere.exit == Exit::Usage && nowhere.to_string().contains("advertise"), "{nowhere}");
        one.coordinators = vec!["192.0.2.1:8443".to_owned()];
        made(&one).await.unwrap();
        let name = "branch-omsk".parse().unwrap();
        change::revoke(&mut connection, &name).await.unwrap();
        let refused = made(&one).await.err().unwrap();
        assert!(refused.exit == Exit::Refused && refused.to_string().contains("vantage replace"), "{refused}");
        let id = vantage::by_name(&mut connection, &name).await.unwrap().unwrap().id;
        change::replace(&mut connection, id).await.unwrap();
        made(&one).await.unwrap();
    }

    #[tokio::test]
    async fn a_token_is_taken_back_once_and_a_used_one_never() {
        let (database, mut connection) = database().await;
        let published = Enrolment { coordinators: vec!["a.example:1".to_owned()], authority_sha256: [9; 32] };
        enrolment::write(&mut connection, &published).await.unwrap();
        let id = made(&create("branch-omsk", &database)).await.unwrap().id;
        let take = |id| {
            let one = Revoke { id, reason: "lost".to_owned(), who: who("boris"), database: database.clone() };
            async move { revoke(&one, &global()).await }
        };
        take(id).await.unwrap();
        assert_eq!(take(id + 1).await.unwrap_err().exit, Exit::NotFound);
        sqlx::query("update join_token set revoked_at = null, used_at = now(), used_by_sha256 = sha256('x')")
            .execute(&mut connection)
            .await
            .unwrap();
        let used = take(id).await.unwrap_err();
        assert!(used.exit == Exit::Refused && used.to_string().contains("vantage revoke branch-omsk"), "{used}");
        let changed = sqlx::query("update audit set who = 'nobody'").execute(&mut connection).await;
        assert!(changed.unwrap_err().to_string().contains("append only"));
    }

    #[test]
    fn what_is_to_be_pasted_names_files_that_are_there() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let paste = linux("vt1.abc");
        let named: Vec<&str> = paste.split_whitespace().filter(|word| word.starts_with("deploy/systemd/")).collect();
        assert_eq!(named.len(), 3, "{paste}");
        for file in named {
            assert!(root.join(file).is_file(), "{file}");
        }
        assert!(std::fs::read_to_string(root.join("deploy/README.md")).unwrap().contains(AGENT), "{paste}");
        assert!(paste.contains("join vt1.abc\n") && !paste.contains(".deb") && !paste.contains("http"), "{paste}");
    }

    #[test]
    fn labels_are_words() {
        let read = |labels_given: &[&str]| labels(&labels_given.iter().map(|&one| one.to_owned()).collect::<Vec<_>>());
        assert_eq!(read(&["site=kazan", "isp=rt"]).unwrap().len(), 2);
        for wrong in [&["site"][..], &["=x"], &["x="], &["a=b=c"], &["a=1", "a=2"], &["a=\n"]] {
            assert_eq!(read(wrong).unwrap_err().exit, Exit::Usage, "{wrong:?}");
        }
    }
}
