//! Who gets a stream, who is told why not, and who is cut.

use super::*;

#[tokio::test]
async fn connections_that_say_nothing_keep_no_other_source_out() {
    let world = world().await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.77:0".parse().unwrap()).unwrap();
        silent.push(socket.connect(world.address).await.unwrap());
    }
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    agent.batch(BOOT, vec![control(1)]).await;
    assert_eq!(agent.acked().await, 1);
    drop(silent);
}

#[tokio::test]
async fn strangers_get_no_stream() {
    let world = world().await;
    let known = world.identity("de-fra");
    // No certificate at all.
    assert!(first_words(&world, None, &known).await.is_err());
    // A certificate of another authority, which has the very name.
    let other = tempfile::tempdir().unwrap();
    let forged = other.path().join("forged");
    issue(other.path(), "de-fra", &forged, clock::wall());
    assert!(first_words(&world, Some(&forged), &known).await.is_err());
    // A certificate of ours that has expired.
    let expired = world.state.path().join("expired");
    issue(world.state.path(), "de-fra", &expired, clock::wall() - time::Duration::days(60));
    assert!(first_words(&world, Some(&expired), &known).await.is_err());
    assert!(world.app.hub.connected().is_empty());
    // And an agent that trusts another authority does not talk to us.
    assert!(first_words(&world, Some(&known), &forged).await.is_err());
    assert!(first_words(&world, Some(&known), &known).await.is_ok());
}

async fn first_words(world: &World, identity: Option<&Path>, trust: &Path) -> Result<ToAgent, Status> {
    let mut agent = world.open(identity, trust).await?;
    agent.hello(1, BOOT).await;
    agent.next().await
}

#[tokio::test]
async fn a_vantage_outside_the_configuration_hears_why() {
    let world = world().await;
    let Err(status) = world.agent("nowhere").await else { panic!("admitted") };
    // The agent tries again: only a revocation ends it.
    assert_eq!(status.code(), tonic::Code::FailedPrecondition);
    assert!(status.message().contains("nowhere is not in the coordinator's configuration"), "{status}");
}

#[tokio::test]
async fn a_revoked_vantage_is_cut_off_and_does_not_come_back() {
    let world = world().await;
    let listening = tokio::spawn(crate::revocation::run(Arc::clone(&world.app), world.shutdown.clone()));
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    let name: VantageName = "de-fra".parse().unwrap();
    crate::store::vantage::change::revoke(&mut world.app.pool.acquire().await.unwrap(), &name).await.unwrap();
    let status = agent.next().await.unwrap_err();
    assert!(status.message().contains("revoked"), "{status}");
    let Err(status) = world.agent("de-fra").await else { panic!("admitted") };
    assert_eq!(status.code(), tonic::Code::PermissionDenied);
    world.shutdown.cancel();
    listening.await.unwrap();
}

#[tokio::test]
async fn a_revocation_between_the_opening_of_a_stream_and_its_greeting_is_seen() {
    let world = world().await;
    let identity = world.identity("de-fra");
    let mut agent = world.open(Some(&identity), &identity).await.unwrap();
    let name: VantageName = "de-fra".parse().unwrap();
    crate::store::vantage::change::revoke(&mut world.app.pool.acquire().await.unwrap(), &name).await.unwrap();
    agent.hello(1, BOOT).await;
    let status = agent.next().await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::PermissionDenied, "{status}");
    // It was in the hub for a moment only.
    while !world.app.hub.connected().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_greeting_that_is_wrong_is_answered_with_the_reason() {
    let world = world().await;
    let identity = world.identity("de-fra");
    for (protocol, boot, part) in [(0, BOOT, "protocol 0"), (1, "short", "boot_id"), (1, &"0".repeat(32), "boot_id")] {
        let mut agent = world.open(Some(&identity), &identity).await.unwrap();
        agent.hello(protocol, boot).await;
        let status = agent.next().await.unwrap_err();
        assert!(status.message().contains(part), "{status}");
    }
    let mut agent = world.open(Some(&identity), &identity).await.unwrap();
    agent.batch(BOOT, vec![control(1)]).await;
    assert!(agent.next().await.unwrap_err().message().contains("must be Hello"));
}

#[tokio::test]
async fn a_second_stream_of_a_vantage_replaces_the_first() {
    let world = world().await;
    let (mut first, _) = world.agent("de-fra").await.unwrap();
    let (mut second, _) = world.agent("de-fra").await.unwrap();
    let ended = first.next().await.unwrap_err();
    assert!(ended.message().contains("newer stream"));
    assert_eq!(ended.metadata().get("reason").unwrap(), "replaced");
    second.batch(BOOT, vec![control(1)]).await;
    assert_eq!(second.acked().await, 1);
    assert_eq!(world.app.hub.connected().len(), 1);
}

#[tokio::test]
async fn a_vantage_that_the_configuration_lists_no_more_is_cut_with_that_word_and_not_as_revoked() {
    let world = world().await;
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    let (mut other, _) = world.agent("wan-gw").await.unwrap();
    let mut config = testing::example();
    config.topology.vantages.remove(&"de-fra".parse::<VantageName>().unwrap());
    assert!(crate::reload::again(&world.app, Ok(config), crate::store::config_version::How::Request).await);
    let status = agent.next().await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::FailedPrecondition, "the agent waits and comes back: {status:?}");
    assert_eq!(status.metadata().get(parallax_proto::REASON).unwrap(), "vantage_not_listed");
    assert!(status.message().contains("no longer in the coordinator's configuration"), "{status:?}");
    let Err(status) = world.agent("de-fra").await else { panic!("admitted") };
    assert_eq!(status.metadata().get(parallax_proto::REASON).unwrap(), "vantage_not_listed");
    assert!(matches!(other.next().await.unwrap(), ToAgent::Assignment(_)), "the others are told the new one");
}

#[tokio::test]
async fn a_revocation_that_no_notice_told_of_cuts_the_stream_all_the_same() {
    let world = world().await;
    let listening = tokio::spawn(crate::revocation::run(Arc::clone(&world.app), world.shutdown.clone()));
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    // As when the session that listens has lost its other end without a word.
    sqlx::raw_sql(
        "begin; update vantage set revoked_at = now() where name = 'de-fra';
         update vantage_change set number = number + 1; commit",
    )
    .execute(&world.app.pool)
    .await
    .unwrap();
    let status = tokio::time::timeout(Duration::from_secs(15), agent.next()).await.expect("still there").unwrap_err();
    assert!(status.message().contains("revoked"), "{status}");
    world.shutdown.cancel();
    listening.await.unwrap();
}
