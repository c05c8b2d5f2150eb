//! Whom the agent obeys, when whoever answers has the coordinator's certificate.

use std::path::Path;

use parallax_proto::v1::order::Order;

use super::rig::{Agent, Line, Rig, Session};
use super::*;
use crate::assignment::wire::tests::wire as assignment;
use crate::identity::folder::{COORDINATORS, SIGNERS};
use crate::identity::signers;
use crate::identity::signers::tests::Hand;

const HERE: &str = "branch-kazan";

/// An agent that knows who signs.
fn knowing(state: &Path, authority: &Authority, rig: &Rig, hand: &Hand) -> Agent {
    let folder = state.join("identity");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(SIGNERS), signers::to_text(&[hand.signer()])).unwrap();
    Line::new(state, authority, authority, &[rig.address.to_string()]).run()
}

fn of_version(version: u64) -> v1::Assignment {
    v1::Assignment { version, ..assignment() }
}

fn task(task_id: u64) -> v1::Task {
    let connect = v1::ConnectTask {
        target: Some(v1::connect_task::Target::Node("fi".into())),
        address: vec![95, 216, 10, 10],
        repeat: 1,
        gap_ms: 0,
    };
    let purpose = v1::Purpose::CrossCheck.into();
    v1::Task { task_id, deadline_ms: 1000, work: Some(v1::task::Work::Connect(connect)), purpose }
}

/// Whatever was said before this is through with when it returns.
async fn settled(session: &mut Session, agent: &Agent) {
    agent.record(1);
    let batch = session.batch().await;
    session.ack(&batch).await;
    let before = agent.status.snapshot().not_obeyed;
    session.say(coordinator_message::Message::Signed(v1::Signed::default())).await;
    let counted = async {
        while agent.status.snapshot().not_obeyed == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), counted).await.expect("not read");
}

async fn session(rig: &mut Rig) -> Session {
    tokio::time::timeout(Duration::from_secs(60), rig.sessions.recv()).await.expect("no session").unwrap()
}

#[tokio::test]
async fn a_stolen_server_certificate_without_the_signers_key_makes_the_agent_do_nothing() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let (hand, thief) = (Hand::new(), Hand::new());
    let mut rig = Rig::start(&authority).await;
    let mut agent = knowing(state.path(), &authority, &rig, &hand);
    let mut session = session(&mut rig).await;
    use coordinator_message::Message::{Assignment, Renewed, Signed, Task, Trust};
    let identity = v1::Identity {
        vantage: HERE.to_owned(),
        certificates: vec![Authority::new().der()],
        trust: Some(v1::Trust { signers: vec![thief.bytes()], ..v1::Trust::default() }),
    };
    for message in [
        Assignment(of_version(7)),
        Task(task(1)),
        // His own signer, and orders signed by it.
        Trust(v1::Trust { signers: vec![thief.bytes()], ..v1::Trust::default() }),
        Trust(v1::Trust { authorities: vec![Authority::new().der()], ..v1::Trust::default() }),
        Trust(v1::Trust { coordinators: vec!["thief.example:443".to_owned()], ..v1::Trust::default() }),
        Signed(thief.sign(HERE, u64::MAX, Order::Assignment(of_version(9)))),
        Signed(thief.sign(HERE, u64::MAX, Order::Task(task(2)))),
        // What he has heard elsewhere: orders for another vantage.
        Signed(hand.sign("branch-ufa", 1, Order::Assignment(of_version(9)))),
        // A certificate that nobody asked for.
        Renewed(v1::Renewed { answer: Some(v1::renewed::Answer::Identity(identity)) }),
    ] {
        session.say(message).await;
    }
    settled(&mut session, &agent).await;
    assert_eq!(agent.kept.version(), 0);
    assert!(agent.tasks.try_recv().is_err());
    assert_eq!(agent.status.snapshot().not_obeyed, 9);
    assert!(!state.path().join("assignment").exists() && !state.path().join("epoch").exists());
    // And the real one is obeyed still.
    session.say(Signed(hand.sign(HERE, 1, Order::Assignment(of_version(3))))).await;
    session.say(Signed(hand.sign(HERE, 1, Order::Task(task(3))))).await;
    let task = tokio::time::timeout(Duration::from_secs(20), agent.tasks.recv()).await.unwrap().unwrap();
    assert_eq!((task.id, agent.kept.version()), (3, 3));
    agent.stop().await;
}

#[tokio::test]
async fn a_coordinator_that_lost_the_lease_is_not_obeyed_after_a_restart_either() {
    let (authority, state, hand) = (Authority::new(), tempfile::tempdir().unwrap(), Hand::new());
    let mut rig = Rig::start(&authority).await;
    use coordinator_message::Message::Signed;
    let agent = knowing(state.path(), &authority, &rig, &hand);
    let mut session = session(&mut rig).await;
    assert_eq!(session.hello.epoch, 0);
    session.say(Signed(hand.sign(HERE, 6, Order::Assignment(of_version(3))))).await;
    settled(&mut session, &agent).await;
    agent.stop().await;
    drop(session);
    let mut agent = knowing(state.path(), &authority, &rig, &hand);
    assert_eq!(agent.kept.version(), 3, "verified and in force again");
    let mut session = self::session(&mut rig).await;
    assert_eq!((session.hello.epoch, session.hello.assignment_version), (6, 3));
    session.say(Signed(hand.sign(HERE, 5, Order::Assignment(of_version(8))))).await;
    session.say(Signed(hand.sign(HERE, 5, Order::Task(task(1))))).await;
    // The next generation of a restored database counts from lower versions on.
    session.say(Signed(hand.sign(HERE, 1 << 32, Order::Assignment(of_version(2))))).await;
    settled(&mut session, &agent).await;
    assert_eq!(agent.kept.version(), 2);
    assert!(agent.tasks.try_recv().is_err());
    agent.stop().await;
}

#[tokio::test]
async fn an_identity_of_before_signing_obeys_what_is_signed_too_and_learns_from_it() {
    let (authority, state, hand) = (Authority::new(), tempfile::tempdir().unwrap(), Hand::new());
    let mut rig = Rig::start(&authority).await;
    use coordinator_message::Message::Signed;
    let agent = Agent::start(state.path(), &authority, &rig);
    let mut session = session(&mut rig).await;
    session.say(Signed(hand.sign(HERE, 1, Order::Assignment(of_version(3))))).await;
    let trust = v1::Trust { signers: vec![hand.bytes()], ..v1::Trust::default() };
    session.say(Signed(hand.sign(HERE, 1, Order::Trust(trust)))).await;
    session.say(Signed(Hand::new().sign(HERE, 1, Order::Assignment(of_version(4))))).await;
    settled(&mut session, &agent).await;
    assert_eq!(agent.kept.version(), 3);
    agent.stop().await;
}

#[tokio::test]
async fn an_identity_of_before_signing_learns_its_signers_once_and_is_strict_from_then_on() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let (hand, next) = (Hand::new(), Hand::new());
    let mut rig = Rig::start(&authority).await;
    use coordinator_message::Message::{Assignment, Signed, Trust};
    let agent = Agent::start(state.path(), &authority, &rig);
    let mut session = session(&mut rig).await;
    session.say(Assignment(of_version(3))).await;
    let trust = v1::Trust {
        signers: vec![hand.bytes()],
        coordinators: vec![rig.address.to_string(), "other.example:8443".to_owned()],
        ..v1::Trust::default()
    };
    session.say(Trust(trust)).await;
    session.say(Assignment(of_version(4))).await;
    settled(&mut session, &agent).await;
    assert_eq!(agent.kept.version(), 3, "the second one came unsigned");
    let lines = std::fs::read_to_string(state.path().join("identity").join(COORDINATORS)).unwrap();
    assert_eq!(lines.lines().count(), 2);
    // A signer is replaced: the old one vouches for the new one.
    let both = v1::Trust { signers: vec![hand.bytes(), next.bytes()], ..v1::Trust::default() };
    session.say(Signed(hand.sign(HERE, 1, Order::Trust(both)))).await;
    session.say(Signed(next.sign(HERE, 1, Order::Assignment(of_version(5))))).await;
    let one = v1::Trust { signers: vec![next.bytes()], ..v1::Trust::default() };
    session.say(Signed(next.sign(HERE, 1, Order::Trust(one)))).await;
    session.say(Signed(hand.sign(HERE, 1, Order::Assignment(of_version(6))))).await;
    settled(&mut session, &agent).await;
    assert_eq!(agent.kept.version(), 5);
    agent.stop().await;
}

/// Whoever has the coordinator's certificate and has listened cannot make old orders work again.
#[tokio::test]
async fn an_order_works_once_and_on_its_own_stream_alone() {
    let (authority, state, hand) = (Authority::new(), tempfile::tempdir().unwrap(), Hand::new());
    let mut rig = Rig::start(&authority).await;
    use coordinator_message::Message::Signed;
    let mut agent = knowing(state.path(), &authority, &rig, &hand);
    let mut session = session(&mut rig).await;
    let nonce = session.hello.nonce.clone();
    assert_eq!(nonce.len(), 16);
    let ordered = |nonce: &[u8], number, order| Signed(hand.sign_for(nonce, number, HERE, 1, order));
    session.say(ordered(&nonce, 1, Order::Assignment(of_version(3)))).await;
    let first = ordered(&nonce, 2, Order::Task(task(1)));
    for message in [
        first.clone(),
        first,
        ordered(&nonce, 1, Order::Task(task(2))),
        ordered(b"another stream's", 3, Order::Task(task(3))),
        // As a coordinator of before signed it: not after this one has shown what it can.
        Signed(hand.sign(HERE, 1, Order::Task(task(4)))),
        ordered(&nonce, 3, Order::Task(task(5))),
    ] {
        session.say(message).await;
    }
    settled(&mut session, &agent).await;
    let mut obeyed = Vec::new();
    while let Ok(task) = agent.tasks.try_recv() {
        obeyed.push(task.id);
    }
    assert_eq!((obeyed, agent.status.snapshot().not_obeyed), (vec![1, 5], 5));
    agent.stop().await;
    drop(session);
    // What it was told it can prove from now on, and each stream has its own word.
    let mut agent = knowing(state.path(), &authority, &rig, &hand);
    let mut session = self::session(&mut rig).await;
    let proof = hand.sign(HERE, 1, Order::Trust(v1::Trust::default())).epoch_proof;
    assert_eq!((session.hello.epoch, &session.hello.epoch_proof), (1, &proof));
    assert_ne!(session.hello.nonce, nonce);
    // Also a stream on which nothing was signed for it yet takes nothing old of this epoch; a coordinator that is older
    // was started later, and orders under the next.
    session.say(Signed(hand.sign(HERE, 1, Order::Task(task(6))))).await;
    session.say(ordered(&session.hello.nonce, 1, Order::Assignment(of_version(3)))).await;
    settled(&mut session, &agent).await;
    assert_eq!(agent.status.snapshot().not_obeyed, 2, "it, and the one that settles");
    drop(session);
    let session = self::session(&mut rig).await;
    session.say(Signed(hand.sign(HERE, 2, Order::Task(task(7))))).await;
    let obeyed = tokio::time::timeout(Duration::from_secs(20), agent.tasks.recv()).await.unwrap().unwrap();
    assert_eq!(obeyed.id, 7);
    drop(session);
    agent.stop().await;
}
