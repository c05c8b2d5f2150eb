//! What people do to vantages, as they do it.

use parallax_decide::names::VantageName;

use super::change::{self, Approve, Change, Rename, Revoke};
use super::show;
use crate::cli::StateDir;
use crate::cli::authority::{self, AuthorityCommand};
use crate::cli::config::ConfigFile;
use crate::cli::database::Database;
use crate::cli::reading::Shown;
use crate::cli::testing::{database, global, who};
use crate::cli::who::By;
use crate::clock;
use crate::error::{Exit, Failure};
use crate::hex::hex;
use crate::identity::bundle::{Bundle, Making};
use crate::identity::signer::Signers;
use crate::store::vantage;

fn by(reason: &str, database: &Database) -> By {
    By { reason: reason.to_owned(), who: who("anna"), database: database.clone() }
}

fn change(name: &str, reason: &str, database: &Database) -> Change {
    Change { name: name.to_owned(), by: by(reason, database) }
}

async fn rename(name: &str, new: &str, database: &Database) -> Result<(), Failure> {
    let one = Rename { name: name.to_owned(), new: new.to_owned(), by: by("moved house", database) };
    change::rename(&one, &global()).await
}

async fn approve(name: &str, database: &Database) -> Result<(), Failure> {
    let (name, reason) = (name.to_owned(), "approved".to_owned());
    change::approve(&Approve { name, reason, who: who("boris"), database: database.clone() }, &global()).await
}

async fn revoke(name: &str, certificate: Option<&str>, database: &Database) -> Result<(), Failure> {
    let (name, certificate) = (name.to_owned(), certificate.map(str::to_owned));
    let one = Revoke { name, certificate, by: by("stolen", database) };
    change::revoke(&one, &global()).await
}

#[tokio::test]
async fn a_rename_takes_the_history_along_and_each_deed_leaves_a_row() {
    let (database, mut connection) = database().await;
    let names: Vec<VantageName> = ["old", "other", "fresh"].map(|name| name.parse().unwrap()).into();
    vantage::ensure(&mut connection, &names).await.unwrap();
    sqlx::raw_sql(
        "update vantage set first_seen_at = now() where name <> 'fresh';
         insert into verdict (at, vantage, subject_kind, subject, verdict, presence, reason, evidence)
         values (now(), 'old', 'vantage', 'old', 'vantage_ok', 'online', '{}', '{}'),
                (now(), 'old', 'answer', 'example.com', 'answer_ok', 'online', '{}', '{}'),
                (now(), 'fresh', 'vantage', 'fresh', 'vantage_silent', 'unknown', '{}', '{}')",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    assert_eq!(rename("nobody", "new", &database).await.unwrap_err().exit, Exit::NotFound);
    assert_eq!(rename("old", "other", &database).await.unwrap_err().exit, Exit::Refused);
    assert_eq!(rename("old", "old", &database).await.unwrap_err().exit, Exit::Usage);
    // The configuration was changed first: a row that never reported makes place.
    rename("old", "fresh", &database).await.unwrap();
    let told: Vec<(String, String)> =
        sqlx::query_as("select vantage, subject from verdict where until is null order by 2")
            .fetch_all(&mut connection)
            .await
            .unwrap();
    let said = |vantage: &str, subject: &str| (vantage.to_owned(), subject.to_owned());
    assert_eq!(told, [said("fresh", "example.com"), said("fresh", "fresh")]);
    let former = vantage::by_any_name(&mut connection, &names[0]).await.unwrap().unwrap();
    assert_eq!(former.name.as_str(), "fresh");
    let audit: Vec<(String, String, String, String)> =
        sqlx::query_as("select who, what, subject, reason from audit").fetch_all(&mut connection).await.unwrap();
    let row = ("anna", "vantage_renamed", "vantage old", "moved house");
    assert_eq!(audit, [(row.0.to_owned(), row.1.to_owned(), row.2.to_owned(), row.3.to_owned())]);
    // The name is free again, for another place.
    rename("other", "old", &database).await.unwrap();
    assert_eq!(vantage::by_any_name(&mut connection, &names[0]).await.unwrap().unwrap().name, names[0]);
}

#[tokio::test]
async fn what_was_refused_for_good_comes_back_by_replacing_alone() {
    let (database, mut connection) = database().await;
    let name: VantageName = "branch-omsk".parse().unwrap();
    assert_eq!(approve("branch-omsk", &database).await.unwrap_err().exit, Exit::NotFound);
    vantage::ensure(&mut connection, [&name]).await.unwrap();
    approve("branch-omsk", &database).await.unwrap();
    revoke("branch-omsk", None, &database).await.unwrap();
    let refused = approve("branch-omsk", &database).await.unwrap_err();
    assert!(refused.exit == Exit::Refused && refused.to_string().contains("vantage replace"), "{refused}");
    let short = change::replace(&change("branch-omsk", " ", &database), &global()).await.unwrap_err();
    assert_eq!(short.exit, Exit::Usage, "a reason is wanted");
    change::replace(&change("branch-omsk", "new box", &database), &global()).await.unwrap();
    let row = vantage::by_name(&mut connection, &name).await.unwrap().unwrap();
    assert!(row.revoked_at.is_none() && row.keys_from.is_some() && row.admitted_at.is_some());
    change::remove(&change("branch-omsk", "closed", &database), &global()).await.unwrap();
    let row = vantage::by_name(&mut connection, &name).await.unwrap().unwrap();
    assert!(row.retired_at.is_some() && row.admitted_at.is_none());
    for (certificate, exit) in [("zz", Exit::Usage), ("00112233", Exit::NotFound)] {
        assert_eq!(revoke("branch-omsk", Some(certificate), &database).await.unwrap_err().exit, exit);
    }
    let shown =
        show::Show { name: name.to_string(), database: database.clone(), shown: Shown { utc: true, no_color: true } };
    show::show(&shown, &global()).await.unwrap();
    show::show(&shown, &crate::cli::Global { json: false, ..global() }).await.unwrap();
    let missing = show::Show { name: "nobody".to_owned(), ..shown };
    assert_eq!(show::show(&missing, &global()).await.unwrap_err().exit, Exit::NotFound);
}

#[tokio::test]
async fn an_authority_is_replaced_in_two_steps_that_are_written_down() {
    let (mut database, mut connection) = database().await;
    let state = tempfile::tempdir().unwrap();
    database.state = StateDir { given: Some(state.path().to_owned()) };
    let old = Bundle::open(state.path(), Making::Allowed, clock::wall()).unwrap().issuing().unwrap().key_sha256;
    let config = || ConfigFile { path: None };
    let rotate = authority::Rotate { by: by("due", &database), config: config() };
    authority::run(AuthorityCommand::Rotate(rotate), &global()).await.unwrap();
    sqlx::query("with v as (insert into vantage (name) values ('de-fra') returning id)
                 insert into agent_certificate (serial, vantage_id, key_sha256, authority_sha256, how, not_before, not_after)
                 select '\\x01', id, sha256('k'), $1, 'join', now() - interval '100 days', now() - interval '80 days' from v")
        .bind(old.as_slice())
        .execute(&mut connection)
        .await
        .unwrap();
    let retire = |force| {
        let (fingerprint, database) = (hex(&old)[..12].to_owned(), database.clone());
        let one = authority::Retire { fingerprint, force, by: by("done", &database), config: config() };
        Box::pin(async move { authority::run(AuthorityCommand::Retire(one), &global()).await })
    };
    let refused = retire(false).await.unwrap_err();
    assert!(refused.exit == Exit::Refused && refused.to_string().contains("1 vantages need"), "{refused}");
    retire(true).await.unwrap();
    authority::run(AuthorityCommand::List(authority::List { config: config(), database }), &global()).await.unwrap();
    let said: Vec<String> =
        sqlx::query_scalar("select what from audit order by id").fetch_all(&mut connection).await.unwrap();
    assert_eq!(said, ["authority_made", "authority_retired"]);
    assert_eq!(Bundle::open(state.path(), Making::Forbidden, clock::wall()).unwrap().able().len(), 1);
}

#[tokio::test]
async fn a_key_that_signs_orders_is_replaced_in_two_steps_and_not_before_agents_know() {
    let (mut database, mut connection) = database().await;
    let state = tempfile::tempdir().unwrap();
    database.state = StateDir { given: Some(state.path().to_owned()) };
    Bundle::open(state.path(), Making::Allowed, clock::wall()).unwrap();
    let folder = state.path().join("ca");
    let old = Signers::open(&folder).unwrap();
    crate::signers::check(&mut connection, &old).await.unwrap();
    // It was seen yesterday, and may come back.
    sqlx::query(
        "with v as (insert into vantage (name, last_seen_at) values ('de-fra', now() - interval '1 day') returning id)
                 insert into agent_certificate (serial, vantage_id, key_sha256, how, not_before, not_after)
                 select '\\x01', id, sha256('k'), 'renewal', now(), now() + interval '1 day' from v",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    let rotate = by("due", &database);
    authority::run(AuthorityCommand::RotateSigner(rotate), &global()).await.unwrap();
    let retire = |force| {
        let (fingerprint, database) = (old.signing().fingerprint()[..12].to_owned(), database.clone());
        let one = authority::signer::Retire { fingerprint, force, by: by("due", &database) };
        Box::pin(async move { authority::run(AuthorityCommand::RetireSigner(one), &global()).await })
    };
    let refused = retire(false).await.unwrap_err();
    assert!(refused.exit == Exit::Refused && refused.to_string().contains("1 vantages were not told"), "{refused}");
    let list = || authority::List { config: ConfigFile { path: None }, database: database.clone() };
    authority::run(AuthorityCommand::List(list()), &global()).await.unwrap();
    authority::run(AuthorityCommand::List(list()), &crate::cli::Global { json: false, ..global() }).await.unwrap();
    // It came back, long enough after.
    sqlx::query("update vantage set last_seen_at = now() + interval '2 minutes'")
        .execute(&mut connection)
        .await
        .unwrap();
    retire(false).await.unwrap();
    let left = Signers::open(&folder).unwrap();
    assert_eq!(left.public().len(), 1);
    crate::signers::check(&mut connection, &left).await.unwrap();
    assert!(crate::signers::check(&mut connection, &old).await.is_err());
    // It is lost.
    std::fs::remove_file(folder.join("signer-2.key")).unwrap();
    let reset = by("due", &database);
    authority::run(AuthorityCommand::ResetSigner(reset), &global()).await.unwrap();
    let anew = Signers::open(&folder).unwrap();
    assert_ne!(anew.public(), left.public());
    crate::signers::check(&mut connection, &anew).await.unwrap();
    let said: Vec<String> =
        sqlx::query_scalar("select what from audit order by id").fetch_all(&mut connection).await.unwrap();
    assert_eq!(said, ["signer_made", "signer_retired", "signer_reset"]);
}
