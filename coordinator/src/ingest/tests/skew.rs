//! One version apart: what is spoken, what is refused and in which words, and what an agent of another time gets.

use super::*;
use crate::store::freeze;

/// Opens a stream and greets as an agent that speaks these versions; the first answer.
async fn greeted(world: &World, name: &str, newest: u32, oldest: u32, epoch: u64) -> (Agent, Result<ToAgent, Status>) {
    let proof = world.keeper.held().signers.signing().sign(&parallax_proto::epoch_message(epoch)).unwrap();
    greeted_with(world, name, (newest, oldest), epoch, proof).await
}

/// The same, with this as proof of its epoch.
async fn greeted_with(
    world: &World,
    name: &str,
    (newest, oldest): (u32, u32),
    epoch: u64,
    epoch_proof: Vec<u8>,
) -> (Agent, Result<ToAgent, Status>) {
    let identity = world.identity(name);
    let mut agent = world.open(Some(&identity), &identity).await.unwrap();
    agent
        .send(FromAgent::Hello(v1::Hello {
            protocol: newest,
            protocol_min: oldest,
            agent_version: "9.9.9".to_owned(),
            boot_id: BOOT.to_owned(),
            epoch,
            epoch_proof,
            nonce: b"of this stream".to_vec(),
            ..v1::Hello::default()
        }))
        .await;
    let first = agent.next().await;
    (agent, first)
}

#[tokio::test]
async fn an_agent_of_protocol_1_and_one_of_the_next_version_are_both_served() {
    let world = world().await;
    // Of the version before: no field of later ones, and unsigned orders.
    let (mut old, first) = greeted(&world, "branch-kazan", 1, 0, 0).await;
    let Ok(ToAgent::Assignment(assignment)) = first else { panic!("{first:?}") };
    assert!(assignment.version > 0 && !assignment.canaries.is_empty());
    old.batch(BOOT, vec![control(1)]).await;
    assert_eq!(old.acked().await, 1);
    // Of the version after this one, which also speaks this one: as today's.
    let (mut new, first) = greeted(&world, "wan-gw", parallax_proto::PROTOCOL + 1, parallax_proto::PROTOCOL, 0).await;
    let Ok(ToAgent::Signed(signed)) = first else { panic!("{first:?}") };
    assert_eq!(signed.signature.len(), 64);
    // A word that only the next version knows costs its own row, and no other.
    let mut later = control(1);
    if let Some(v1::observation::Fact::ControlCheck(check)) = &mut later.fact {
        check.outcome = 999;
    }
    new.batch(BOOT, vec![later, control(2)]).await;
    let mut acked = false;
    let mut refused = false;
    while !(acked && refused) {
        match new.next().await.unwrap() {
            ToAgent::Refusal(refusal) => {
                assert_eq!(refusal.sequence, 1);
                assert!(refusal.reason.contains("999"), "{}", refusal.reason);
                refused = true;
            }
            ToAgent::Ack(ack) => {
                assert_eq!(ack.sequence, 2);
                acked = true;
            }
            other @ (ToAgent::Assignment(_) | ToAgent::Task(_) | ToAgent::Pong(_) | ToAgent::Renewed(_)) => {
                panic!("{other:?}")
            }
            ToAgent::Signed(_) | ToAgent::Trust(_) => {}
        }
    }
    assert_eq!(world.stored().await, 2, "one of each");
}

#[tokio::test]
async fn two_versions_apart_are_refused_in_words_that_name_what_is_spoken() {
    let world = world().await;
    let newer = parallax_proto::PROTOCOL + 1;
    for (newest, oldest) in [(0, 0), (newer + 1, newer)] {
        let (_agent, first) = greeted(&world, "de-fra", newest, oldest, 0).await;
        let refused = first.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
        let spoken = format!("{} to {}", parallax_proto::PROTOCOL_MIN, parallax_proto::PROTOCOL);
        assert!(refused.message().contains(&spoken), "{refused}");
    }
}

#[tokio::test]
async fn an_agent_that_was_told_a_later_epoch_freezes_every_write_and_gets_orders_above_it() {
    let world = world().await;
    let told = (5_u64 << 32) | 12;
    let (_agent, first) = greeted(&world, "branch-kazan", parallax_proto::PROTOCOL, 1, told).await;
    let Ok(ToAgent::Signed(signed)) = first else { panic!("{first:?}") };
    let order = <v1::Order as prost::Message>::decode(&*signed.order).unwrap();
    assert!(order.epoch > told, "{:x}", order.epoch);
    let mut connection = world.app.pool.acquire().await.unwrap();
    let frozen = freeze::current(&mut connection).await.unwrap().unwrap();
    assert!(frozen.needs_reason && frozen.reason.contains("branch-kazan was told"), "{frozen:?}");
}

/// One agent's word freezes nobody: not without a proof, nor with one for another epoch or of another key.
#[tokio::test]
async fn an_epoch_that_an_agent_cannot_prove_freezes_nothing() {
    let world = world().await;
    let told = (5_u64 << 32) | 12;
    let signer = |epoch| world.keeper.held().signers.signing().sign(&parallax_proto::epoch_message(epoch)).unwrap();
    let stranger = tempfile::tempdir().unwrap();
    crate::identity::signer::make_first(stranger.path()).unwrap();
    let other = crate::identity::signer::Signers::open(stranger.path()).unwrap();
    let forged = other.signing().sign(&parallax_proto::epoch_message(told)).unwrap();
    for proof in [Vec::new(), vec![0; 64], signer(told - 1), forged] {
        let (_agent, first) = greeted_with(&world, "branch-kazan", (parallax_proto::PROTOCOL, 1), told, proof).await;
        let Ok(ToAgent::Signed(signed)) = first else { panic!("{first:?}") };
        let order = <v1::Order as prost::Message>::decode(&*signed.order).unwrap();
        assert!(order.epoch < told, "{:x}", order.epoch);
        assert_eq!((order.nonce.as_slice(), order.number), (&b"of this stream"[..], 1));
        // What it gives along proves the epoch of the order, the next time.
        assert_eq!(signed.epoch_proof, signer(order.epoch));
    }
    let mut connection = world.app.pool.acquire().await.unwrap();
    assert!(freeze::current(&mut connection).await.unwrap().is_none());
}
