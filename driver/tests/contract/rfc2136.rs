//! RFC 2136 against BIND.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parallax_decide::change::{Change, Standing};
use parallax_driver::rfc2136::{Rfc2136, Rfc2136Config, TsigAlgorithm};
use parallax_driver::{Applied, Driver, DriverError, Reading, Refusal};
use secrecy::SecretString;

use crate::story::story;
use crate::support::named::{self, Named, WRONG_SECRET};
use crate::support::relay::{Act, relay};
use crate::support::{IMPATIENT, free_port, name, pin, repoint, set};

const NATIVE: &[&str] = &["95.216.10.10"];
const FALLBACK: &[&str] = &["49.12.20.20"];
const STRANGERS: &[&str] = &["5.161.30.30"];

fn fi() -> Change {
    repoint("fi.example.net", NATIVE, FALLBACK)
}

fn refusal(result: Result<Applied, DriverError>) -> Refusal {
    match result {
        Err(DriverError::Refused { reason, .. }) => reason,
        other => panic!("not a refusal: {other:?}"),
    }
}

async fn foreign(driver: &Rfc2136, host: &str) -> String {
    match driver.read(&name(host)).await {
        Ok(Reading::Foreign { what }) => what,
        other => panic!("{host} is not foreign: {other:?}"),
    }
}

/// A driver that talks to `address` in place of the server, and does not wait long.
fn through(address: SocketAddr) -> Rfc2136 {
    named::driver(Rfc2136Config { timeout: IMPATIENT, ..named::config(address) }, Duration::ZERO)
}

#[tokio::test]
async fn the_story_with_each_algorithm_and_any_mix_of_families() {
    let Some(server) = Named::start().await else { return };
    let stranger = server.driver();
    let two = &["95.216.10.10", "95.216.10.11", "2a01:4f8::10"][..];
    let changes = [
        (fi(), "key-sha256", TsigAlgorithm::HmacSha256),
        (repoint("two.example.net", two, FALLBACK), "key-sha384", TsigAlgorithm::HmacSha384),
        (repoint("two.example.net", two, &["49.12.20.20", "2a01:4f9::20"]), "key-sha512", TsigAlgorithm::HmacSha512),
        (repoint("v6.example.net", &["2a01:4f8::6"], FALLBACK), "key-sha256", TsigAlgorithm::HmacSha256),
    ];
    for (change, key, algorithm) in changes {
        let config = Rfc2136Config { key_name: name(key), algorithm, ..named::config(server.address) };
        let Change::Repoint { name, expects, ttl_s, .. } = change.clone() else { panic!("a repoint") };
        let meddling = Change::Repoint { name, expects, sets: set(STRANGERS), ttl_s };
        let meddle = async || assert_eq!(stranger.apply(&meddling).await, Ok(Applied::Written));
        let restore = async || assert_eq!(stranger.apply(&meddling.undo()).await, Ok(Applied::Written));
        story(&named::driver(config, Duration::ZERO), &change, meddle, restore).await;
    }
}

#[tokio::test]
async fn what_is_there_is_never_mistaken_for_nothing() {
    let Some(server) = Named::start().await else { return };
    let driver = server.driver();
    let read = async |host: &str| driver.read(&name(host)).await;
    assert_eq!(read("fi.example.net").await, Ok(Reading::Set { addresses: set(NATIVE), ttl_s: 5 }));
    assert_eq!(read("mail.example.net").await, Ok(Reading::Nothing), "an MX is not in the way");
    assert_eq!(read("missing.example.net").await, Ok(Reading::Nothing));
    assert!(foreign(&driver, "private.example.net").await.contains("private"));
    assert!(foreign(&driver, "alias.example.net").await.contains("CNAME"));
    assert!(foreign(&driver, "dangling.example.net").await.contains("CNAME"), "its NXDOMAIN is the target's");
    assert!(foreign(&driver, "many.example.net").await.contains("at most 16"));
    let delegated = read("www.child.example.net").await;
    assert!(matches!(&delegated, Err(DriverError::Refused { reason: Refusal::NotServed { .. }, .. })), "{delegated:?}");
}

#[tokio::test]
async fn a_stranger_of_the_other_family_is_a_conflict() {
    let Some(server) = Named::start().await else { return };
    let driver = server.driver();
    let half = repoint("two.example.net", &["95.216.10.10", "95.216.10.11"], FALLBACK);
    assert!(matches!(driver.apply(&half).await, Err(DriverError::Conflict { .. })));
}

#[tokio::test]
async fn what_the_server_objects_to_is_named_and_nothing_is_written() {
    let Some(server) = Named::start().await else { return };
    let good = named::config(server.address);
    let with = |config| named::driver(config, Duration::ZERO);

    let secret = SecretString::from(WRONG_SECRET);
    let wrong = with(Rfc2136Config { secret, ..good.clone() });
    assert_eq!(refusal(wrong.apply(&fi()).await), Refusal::BadSignature { key: name("key-sha256") });
    assert!(!format!("{wrong:?}").contains(WRONG_SECRET));

    let unknown = with(Rfc2136Config { key_name: name("nobody"), ..good.clone() });
    let bad_key = Refusal::BadKey { key: name("nobody"), algorithm: "hmac-sha256" };
    assert_eq!(refusal(unknown.apply(&fi()).await), bad_key);

    let algorithm = TsigAlgorithm::HmacSha512;
    let other = with(Rfc2136Config { algorithm, ..good.clone() });
    assert!(matches!(refusal(other.apply(&fi()).await), Refusal::BadKey { algorithm: "hmac-sha512", .. }));

    let late = named::driver(good.clone(), Duration::from_secs(600));
    let reason = refusal(late.apply(&fi()).await);
    assert!(matches!(reason, Refusal::BadTime { ahead_s: -660..=-600 }), "{reason:?}");

    let reader = with(Rfc2136Config { key_name: name("key-reads"), ..good.clone() });
    assert_eq!(refusal(reader.apply(&fi()).await), Refusal::Policy { key: name("key-reads") });

    let elsewhere = with(Rfc2136Config { zone: name("example.com"), ..good });
    let change = repoint("fi.example.com", NATIVE, FALLBACK);
    assert!(matches!(refusal(elsewhere.apply(&change).await), Refusal::NotServed { .. }));

    assert_eq!(server.driver().read(fi().name()).await.unwrap().standing(&fi()), Standing::AsExpected);
}

#[tokio::test]
async fn what_cannot_work_is_refused_without_a_packet() {
    // Nobody listens there: an attempt would be "unreachable".
    let driver = through(SocketAddr::from(([127, 0, 0, 1], free_port())));
    for host in ["fi.example.org", "fi.notexample.net", "net"] {
        let reason = refusal(driver.apply(&repoint(host, NATIVE, FALLBACK)).await);
        assert_eq!(reason, Refusal::OutsideZone { name: name(host), zone: name("example.net") });
        assert!(matches!(driver.read(&name(host)).await, Err(DriverError::Refused { .. })));
    }
    let pinned = driver.apply(&pin("fi.example.net", FALLBACK)).await;
    assert!(matches!(pinned, Err(DriverError::Unsupported { .. })));
    let zone = Rfc2136Config { zone: name("net"), ..named::config(SocketAddr::from(([127, 0, 0, 1], 1))) };
    assert!(Rfc2136::new(zone, Arc::new(|| std::time::UNIX_EPOCH)).is_err());
}

#[tokio::test]
async fn a_server_that_is_not_there_or_only_listens_is_unreachable() {
    let nobody = through(SocketAddr::from(([127, 0, 0, 1], free_port())));
    assert!(matches!(nobody.apply(&fi()).await, Err(DriverError::Unreachable { .. })));
    for act in [Act::Silent, Act::Cut] {
        let mute =
            through(relay(SocketAddr::from(([127, 0, 0, 1], 1)), move |_| std::future::ready(act.clone())).await);
        assert!(matches!(mute.read(fi().name()).await, Err(DriverError::Unreachable { .. })));
        let applied = mute.apply(&fi()).await;
        assert!(matches!(applied, Err(DriverError::Unreachable { .. })), "it was silent before the write: {applied:?}");
    }
}

/// Applies `fi` through a relay that does `act` with the update and passes queries.
async fn with_update_answered_by(server: &Named, act: Act) -> Result<Applied, DriverError> {
    let script = move |update| std::future::ready(if update { act.clone() } else { Act::Pass });
    through(relay(server.address, script).await).apply(&fi()).await
}

#[tokio::test]
async fn a_lost_reply_is_settled_by_reading_back() {
    let Some(server) = Named::start().await else { return };
    assert_eq!(with_update_answered_by(&server, Act::PassThenCut).await, Ok(Applied::Written));
    assert_eq!(server.driver().apply(&fi().undo()).await, Ok(Applied::Written));
    for act in [Act::Silent, Act::Cut] {
        let applied = with_update_answered_by(&server, act).await;
        assert!(matches!(applied, Err(DriverError::Uncertain { .. })), "{applied:?}");
    }
}

#[tokio::test]
async fn a_lost_reply_and_then_no_server_stays_uncertain() {
    let Some(server) = Named::start().await else { return };
    let queries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&queries);
    let script = move |update: bool| {
        // The two queries before the update pass, those of reading back do not.
        let gone = !update && counted.fetch_add(1, Ordering::Relaxed) >= 2;
        std::future::ready(if update {
            Act::PassThenCut
        } else if gone {
            Act::Cut
        } else {
            Act::Pass
        })
    };
    let driver = through(relay(server.address, script).await);
    assert!(matches!(driver.apply(&fi()).await, Err(DriverError::Uncertain { .. })));
    assert_eq!(server.driver().apply(&fi()).await, Ok(Applied::Already), "it had been applied");
}

#[tokio::test]
async fn replies_that_prove_nothing_are_not_believed() {
    let Some(server) = Named::start().await else { return };
    for bytes in [vec![], b"HTTP/1.1 400 Bad Request\r\n".to_vec(), vec![0xff; 60], vec![0; 40_000]] {
        let noise = through(
            relay(server.address, {
                let bytes = bytes.clone();
                move |_| std::future::ready(Act::Bytes(bytes.clone()))
            })
            .await,
        );
        let read = noise.read(fi().name()).await;
        assert!(matches!(read, Err(DriverError::Unexpected { .. })), "{read:?}");
        let applied = with_update_answered_by(&server, Act::Bytes(bytes)).await;
        assert!(matches!(applied, Err(DriverError::Uncertain { .. })), "{applied:?}");
    }
    // NOERROR that nobody signed.
    let applied = with_update_answered_by(&server, Act::Unsigned(0)).await;
    assert!(matches!(applied, Err(DriverError::Uncertain { .. })), "{applied:?}");
    let liar = through(relay(server.address, |_| std::future::ready(Act::Unsigned(0))).await);
    assert!(matches!(liar.read(fi().name()).await, Err(DriverError::Unexpected { .. })));
    // NOTAUTH that nobody signed.
    assert!(matches!(refusal(with_update_answered_by(&server, Act::Unsigned(9)).await), Refusal::Unsigned { .. }));
}

/// Applies `fi` while somebody else makes `meanwhile` between our reading and our update.
async fn with_a_race(server: &Named, meanwhile: Change) -> Result<Applied, DriverError> {
    let stranger = Arc::new(server.driver());
    let script = move |update: bool| {
        let (stranger, meanwhile) = (Arc::clone(&stranger), meanwhile.clone());
        async move {
            if update {
                assert_eq!(stranger.apply(&meanwhile).await, Ok(Applied::Written));
            }
            Act::Pass
        }
    };
    let address = relay(server.address, script).await;
    named::driver(named::config(address), Duration::ZERO).apply(&fi()).await
}

#[tokio::test]
async fn a_write_in_between_is_seen_by_the_server_itself() {
    let Some(server) = Named::start().await else { return };
    let other = repoint("fi.example.net", NATIVE, STRANGERS);
    let found = Reading::Set { addresses: set(STRANGERS), ttl_s: 5 };
    assert_eq!(with_a_race(&server, other.clone()).await, Err(DriverError::Conflict { found }));
    assert_eq!(server.driver().apply(&other.undo()).await, Ok(Applied::Written));
    assert_eq!(with_a_race(&server, fi()).await, Ok(Applied::Already), "the same write by another coordinator");
}

#[tokio::test]
async fn a_wildcards_answer_is_not_a_record_that_can_be_replaced() {
    let Some(server) = Named::start().await else { return };
    let change = repoint("any.wild.example.net", NATIVE, FALLBACK);
    assert!(matches!(refusal(server.driver().apply(&change).await), Refusal::PrerequisiteBroken { .. }));
}
