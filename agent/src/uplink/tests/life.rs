//! How a stream dies, and what becomes of what it carried.

use std::path::Path;

use super::cut::Cut;
use super::rig::{Agent, Line, Rig, numbers};
use super::store::Store;
use super::*;

/// Rows before, while and after the cut all arrive, each once, over a second stream.
async fn survives(cut: Cut) {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let rig = Rig::start(&authority).await;
    let agent = Agent::start(state.path(), &authority, &rig);
    let (store, cuts) = (Store::default(), rig.cuts.clone());
    let streams = store.serve(rig);
    agent.record(40);
    store.holds(40).await;
    // Some are on their way when it happens, some are measured while nobody has noticed.
    agent.record(20);
    cuts.all(cut);
    agent.record(20);
    tokio::time::sleep(Duration::from_millis(300)).await;
    agent.record(20);
    store.holds(100).await;
    assert_eq!(*streams.lock().unwrap(), 2, "noticed, and noticed once");
    agent.stop().await;
    assert_eq!(store.rows(), 100);
    assert!(store.is_whole());
}

#[tokio::test]
async fn b76_a_hop_that_drops_everything_without_a_word_is_noticed() {
    survives(Cut::Freeze).await;
}

#[tokio::test]
async fn b76_a_hop_that_answers_pings_for_a_dead_stream_is_noticed() {
    survives(Cut::PingsOnly).await;
}

#[tokio::test]
async fn b76_a_hop_that_resets_the_stream_is_noticed() {
    survives(Cut::Reset).await;
}

#[tokio::test]
async fn b76_a_hop_that_winds_the_connection_up_is_noticed() {
    survives(Cut::GoAway).await;
}

/// With an agent's own patience, on a clock that is moved: a stream that dies is left within fifteen seconds, and no
/// live one is.
#[tokio::test(start_paused = true)]
async fn b76_whatever_dies_is_noticed_within_fifteen_seconds() {
    for cut in [Cut::Freeze, Cut::PingsOnly, Cut::Reset, Cut::GoAway] {
        let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
        let mut rig = Rig::start(&authority).await;
        let mut line = Line::new(state.path(), &authority, &authority, &[rig.address.to_string()]);
        line.uplink.timing = Timing::default();
        let agent = line.run();
        let mut session = rig.greeted().await;
        // A minute of silence but for heartbeats ends nothing.
        let quiet = tokio::time::timeout(Duration::from_secs(60), session.received()).await;
        assert!(quiet.is_err() && agent.status.snapshot().trouble.is_none(), "{cut:?}");
        rig.cuts.all(cut);
        let (begun, server) = (now(), tokio::spawn(async move { while session.received().await.is_some() {} }));
        while agent.status.snapshot().trouble.is_none() {
            assert!(now() - begun <= Duration::from_secs(15), "{cut:?} was not noticed");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        server.abort();
        agent.stop().await;
    }
}

#[tokio::test]
async fn a_coordinator_that_knows_no_heartbeats_keeps_its_stream() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let mut rig = Rig::start(&authority).await;
    let agent = Agent::start(state.path(), &authority, &rig);
    let mut session = rig.greeted().await;
    let first = session.from_agent.message().await.unwrap().unwrap().message.unwrap();
    assert!(matches!(first, agent_message::Message::Ping(_)), "the clock is wanted early: {first:?}");
    let refusal = v1::Refusal { reason: "no_message: a message of no known kind".into(), ..v1::Refusal::default() };
    session.say(coordinator_message::Message::Refusal(refusal)).await;
    // Longer than any silence would be borne.
    tokio::time::sleep(Duration::from_secs(3)).await;
    agent.record(1);
    assert_eq!(numbers(&session.batch().await), [1]);
}

#[tokio::test]
async fn the_answer_to_a_heartbeat_tells_the_clocks_offset() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let mut rig = Rig::start(&authority).await;
    let agent = Agent::start(state.path(), &authority, &rig);
    let mut session = rig.greeted().await;
    agent.record(1);
    let batch = session.batch().await;
    session.ack(&batch).await;
    let known = async {
        while agent.status.snapshot().clock_offset_ms.is_none() || agent.status.snapshot().last_ack_age_s.is_none() {
            tokio::select! {
                _ = session.received() => {}
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), known).await.unwrap();
    let shown = agent.status.snapshot();
    assert!(shown.clock_offset_ms.unwrap().abs() < 1000, "one machine has one clock: {shown:?}");
    assert_eq!((shown.coordinator, shown.trouble), (Some(rig.address.to_string()), None));
    assert!(shown.certificate_not_after_s.is_some());
}

#[tokio::test]
async fn b62_a_coordinator_that_says_slow_down_is_obeyed() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let mut status = Status::unavailable("too many agents at once");
    status.metadata_mut().insert("grpc-retry-pushback-ms", "2500".parse().unwrap());
    let rig = Rig::between(&authority, &authority, Some(status)).await;
    let lost = Line::new(state.path(), &authority, &authority, &[rig.address.to_string()]).lost().await;
    assert_eq!((lost.pace, lost.word), (Pace::Asked(Duration::from_millis(2500)), "slow_down"));
}

#[tokio::test]
async fn an_identity_that_another_machine_uses_too_is_named_at_the_second_time() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let mut rig = Rig::start(&authority).await;
    let agent = Agent::start(state.path(), &authority, &rig);
    for expected in ["replaced", "identity_cloned"] {
        let mut status = Status::aborted("closed: replaced by a newer stream of this vantage");
        status.metadata_mut().insert("reason", "replaced".parse().unwrap());
        rig.greeted().await.end(status).await;
        let told = async {
            while agent.status.snapshot().trouble != Some(expected) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), told).await.expect(expected);
    }
}

#[tokio::test]
async fn b67_b68_a_certificate_replaced_on_disk_is_shown_without_a_restart_and_nothing_is_lost() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let rig = Rig::start(&authority).await;
    let agent = Agent::start(state.path(), &authority, &rig);
    let (store, shown) = (Store::default(), Arc::clone(&rig.shown));
    store.serve(rig);
    let folder = state.path().join("identity");
    for round in 1..=3_usize {
        agent.record(10);
        store.holds(10 * round).await;
        let (certificate, key) = authority.issue("branch-kazan");
        replace_slowly(&folder, &certificate, &key).await;
        let renewed = async {
            while shown.lock().unwrap().len() <= round {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), renewed).await.expect("the new one is not shown");
        let last = shown.lock().unwrap().last().unwrap().clone();
        assert_eq!(last, *crate::tls::certificates(certificate.as_bytes()).unwrap()[0]);
    }
    agent.record(10);
    store.holds(40).await;
    agent.stop().await;
}

/// As somebody without care does it: an empty file, half a file, then one after the other.
async fn replace_slowly(folder: &Path, certificate: &str, key: &str) {
    for text in ["", &certificate[..100], certificate] {
        std::fs::write(folder.join("certificate.pem"), text).unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    std::fs::write(folder.join("key.pem"), key).unwrap();
}
