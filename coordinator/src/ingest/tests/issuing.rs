//! A certificate that is issued in the moment in which its vantage is revoked, replaced or removed; and keys that were
//! forgotten. Transactions wait for each other in a real Postgres.

use rcgen::KeyPair;
use sqlx::Connection as _;
use tonic::Code;

use super::enrolment::{SECRET, request, word};
use super::*;
use crate::hex::hex;
use crate::identity::request::AgentKey;
use crate::ingest::enrolment::{For, issue as issue_for};
use crate::store::certificate::{self, How, Presented};
use crate::store::vantage::{self, VantageId, change};

impl World {
    async fn id(&self, name: &str) -> VantageId {
        let mut connection = self.app.pool.acquire().await.unwrap();
        vantage::by_name(&mut connection, &name.parse().unwrap()).await.unwrap().unwrap().id
    }

    /// Returns when somebody waits for a lock, or the work that should has ended without.
    async fn waits<T>(&self, work: &JoinHandle<T>) {
        let waiting = "select count(*) from pg_stat_activity
                       where datname = current_database() and wait_event_type = 'Lock'";
        let seen = async {
            while !work.is_finished() && self.count(waiting).await == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), seen).await.unwrap();
    }

    async fn unrevoked(&self) -> i64 {
        self.count("select count(*) from agent_certificate where revoked_at is null").await
    }
}

fn agent_key(key: &KeyPair) -> AgentKey {
    AgentKey::of_request(&request(key)).unwrap()
}

#[tokio::test]
async fn who_asks_while_its_keys_are_replaced_gets_no_certificate() {
    let world = Arc::new(world().await);
    let (joined, _, mut agent) = world.begun("de-fra", SECRET).await;
    world.token("de-fra", &[9; 32]).await;
    let id = world.id("de-fra").await;
    // Not committed yet: nobody else sees it.
    let mut other = world.app.pool.acquire().await.unwrap();
    let mut replacing = other.begin().await.unwrap();
    assert_eq!(change::replace(&mut replacing, id).await.unwrap(), 1);
    let late = {
        let (world, key) = (Arc::clone(&world), KeyPair::try_from(joined.key.serialize_der()).unwrap());
        tokio::spawn(async move { world.late(&key).await })
    };
    world.waits(&late).await;
    let join = {
        let world = Arc::clone(&world);
        tokio::spawn(async move { world.join(&[9; 32], &KeyPair::generate().unwrap()).await })
    };
    agent.send(FromAgent::Renewal(v1::Renewal { request: request(&KeyPair::generate().unwrap()) })).await;
    world.waits(&join).await;
    replacing.commit().await.unwrap();
    let status = late.await.unwrap().unwrap_err();
    assert_eq!((status.code(), word(&status)), (Code::PermissionDenied, "vantage_revoked"));
    assert_eq!(word(&join.await.unwrap().unwrap_err()), "token_revoked");
    let ToAgent::Renewed(v1::Renewed { answer: Some(v1::renewed::Answer::Refused(why)) }) = agent.next().await.unwrap()
    else {
        panic!("renewed")
    };
    assert!(why.contains("was revoked"), "{why}");
    assert_eq!(world.unrevoked().await, 0);
}

#[tokio::test]
async fn what_is_being_issued_is_found_by_whoever_replaces_or_removes() {
    let world = Arc::new(world().await);
    let joined = world.joined("de-fra", SECRET).await;
    let id = world.id("de-fra").await;
    for removes in [false, true] {
        let fresh = KeyPair::generate().unwrap();
        let mut other = world.app.pool.acquire().await.unwrap();
        let mut issuing = other.begin().await.unwrap();
        let (key, name) = (agent_key(&fresh), "de-fra".parse().unwrap());
        let (how, remote) = (How::Renewal, [127, 0, 0, 1].into());
        let whom = For { vantage: id, name: &name, how, token: None, remote, by_sha256: &key.sha256 };
        issue_for(&mut issuing, &world.app, &world.keeper.held(), &key, whom).await.unwrap().unwrap();
        let changing = {
            let world = Arc::clone(&world);
            tokio::spawn(async move {
                let mut connection = world.app.pool.acquire().await.unwrap();
                let mut transaction = connection.begin().await.unwrap();
                match removes {
                    false => change::replace(&mut transaction, id).await.unwrap(),
                    true => change::remove(&mut transaction, id).await.unwrap(),
                };
                transaction.commit().await.unwrap();
            })
        };
        world.waits(&changing).await;
        issuing.commit().await.unwrap();
        changing.await.unwrap();
        assert_eq!(world.unrevoked().await, 0, "removes: {removes}");
    }
    assert_eq!(word(&world.late(&joined.key).await.unwrap_err()), "vantage_unknown");
}

#[tokio::test]
async fn a_revoked_key_does_not_come_back_with_its_old_token_when_it_is_forgotten() {
    let world = world().await;
    let joined = world.joined("de-fra", SECRET).await;
    for _ in 0..3 {
        world.join(&SECRET, &joined.key).await.unwrap();
    }
    let again = "select count(*) from audit where what = 'token_used_again'";
    assert_eq!(world.count(again).await, 1, "once within the hour");
    let mut connection = world.app.pool.acquire().await.unwrap();
    let revoked = "update agent_certificate set revoked_at = now(), not_after = now() - interval '100 days'";
    sqlx::query(revoked).execute(&mut *connection).await.unwrap();
    assert_eq!(certificate::prune(&mut connection).await.unwrap(), 3);
    let status = world.join(&SECRET, &joined.key).await.unwrap_err();
    assert_eq!((status.code(), word(&status)), (Code::PermissionDenied, "renewal_too_late"));
    // Where no address belongs.
    assert_eq!(world.count("select count(*) from audit where detail::text like '%127.0.0.1%'").await, 0);
}

#[tokio::test]
async fn a_key_that_asks_again_and_again_leaves_three_rows_and_all_its_certificates_hold() {
    let world = world().await;
    let joined = world.joined("de-fra", SECRET).await;
    for _ in 0..3 {
        world.join(&SECRET, &joined.key).await.unwrap();
        world.late(&joined.key).await.unwrap();
    }
    assert_eq!(world.count("select count(*) from agent_certificate").await, 3);
    // Its first certificate, which is not remembered any more: the key is.
    let folder = joined.folder(&world);
    world.stream(&folder).await.unwrap().next().await.unwrap();
    assert_eq!(world.count("select count(*) from agent_certificate").await, 3);
    let id = world.id("de-fra").await;
    let key = hex(&agent_key(&joined.key).sha256);
    let mut connection = world.app.pool.acquire().await.unwrap();
    assert_eq!(change::revoke_key(&mut connection, id, &key).await.unwrap(), 3);
    assert_eq!(word(&world.refused(&folder).await), "vantage_revoked");
}

#[tokio::test]
async fn a_vantage_is_renewed_to_so_many_keys_an_hour_also_over_many_streams() {
    let world = world().await;
    let joined = world.joined("de-fra", SECRET).await;
    let signer = joined.identity().trust.clone().unwrap().signers[0].clone();
    let ask = || FromAgent::Renewal(v1::Renewal { request: request(&KeyPair::generate().unwrap()) });
    let mut refused = None;
    for _ in 0..certificate::RENEWALS_AN_HOUR_MAX + 1 {
        // One of its own each time: one stream alone may not ask as fast.
        let mut agent = world.stream(&joined.folder(&world)).await.unwrap();
        agent.begin(&signer).await;
        agent.send(ask()).await;
        let ToAgent::Renewed(v1::Renewed { answer: Some(answer) }) = agent.next().await.unwrap() else {
            panic!("no answer")
        };
        assert!(refused.is_none(), "{refused:?}");
        if let v1::renewed::Answer::Refused(why) = answer {
            refused = Some(why);
        }
    }
    assert!(refused.is_some_and(|why| why.contains("12 times within an hour")));
    assert_eq!(world.unrevoked().await, 1 + certificate::RENEWALS_AN_HOUR_MAX);
    // Who is set up anew is not held up by it.
    world.joined("de-fra", [8; 32]).await;
}

#[tokio::test]
async fn tokens_are_forgotten_long_after_their_end_and_their_last_use() {
    let world = world().await;
    let joined = world.joined("de-fra", SECRET).await;
    world.token("wan-gw", &[8; 32]).await;
    let mut connection = world.app.pool.acquire().await.unwrap();
    let ended = "update join_token set expires_at = now() - interval '92 days'";
    sqlx::query(ended).execute(&mut *connection).await.unwrap();
    assert_eq!(crate::store::token::prune(&mut connection).await.unwrap(), 1, "the other was used today");
    sqlx::query("update join_token set used_at = now() - interval '92 days'").execute(&mut *connection).await.unwrap();
    assert_eq!(crate::store::token::prune(&mut connection).await.unwrap(), 1);
    world.late(&joined.key).await.unwrap();
    assert_eq!(world.count("select count(*) from agent_certificate where token_id is null").await, 2);
}

#[tokio::test]
async fn two_certificates_of_one_serial_number_are_two_keys() {
    let world = world().await;
    let mut connection = world.app.pool.acquire().await.unwrap();
    let presented = |key: u8| Presented {
        // As a tool counts that the operator uses beside this one.
        serial: vec![1],
        key_sha256: [key; 32],
        authority_sha256: None,
        name: "de-fra".parse().unwrap(),
        not_before: clock::wall(),
        not_after: clock::wall() + Duration::from_secs(3600),
    };
    for key in [1, 2] {
        certificate::holder(&mut connection, &presented(key), world.app.instance, "192.0.2.1").await.unwrap().unwrap();
    }
    let id = world.id("de-fra").await;
    assert_eq!(change::revoke_key(&mut connection, id, &"02".repeat(32)).await.unwrap(), 1);
    for (key, revoked) in [(1, false), (2, true)] {
        let holder = certificate::holder(&mut connection, &presented(key), world.app.instance, "192.0.2.1").await;
        assert_eq!(holder.unwrap().unwrap().key_revoked, revoked, "key {key}");
    }
}

#[tokio::test]
async fn renewals_that_come_too_fast_are_refused_in_their_order() {
    let world = world().await;
    let (_, _, mut agent) = world.begun("de-fra", SECRET).await;
    let ask = || v1::Renewal { request: request(&KeyPair::generate().unwrap()) };
    agent.send(FromAgent::Renewal(ask())).await;
    let ToAgent::Renewed(v1::Renewed { answer: Some(v1::renewed::Answer::Identity(_)) }) = agent.next().await.unwrap()
    else {
        panic!("not renewed")
    };
    for nonce in 0..3 {
        agent.send(FromAgent::Renewal(ask())).await;
        agent.send(FromAgent::Ping(v1::Ping { nonce })).await;
    }
    for nonce in 0..3 {
        let message = agent.next().await.unwrap();
        let ToAgent::Renewed(v1::Renewed { answer: Some(v1::renewed::Answer::Refused(why)) }) = message else {
            panic!("not refused: {message:?}")
        };
        assert!(why.contains("within 10 s"), "{why}");
        let ToAgent::Pong(pong) = agent.next().await.unwrap() else { panic!("not a pong") };
        assert_eq!(pong.nonce, nonce, "answered before more is read");
    }
    assert_eq!(world.unrevoked().await, 2);
}
