//! Two lanes, and messages that are too large.

use parallax_decide::observation::Lane;
use parallax_proto::MESSAGE_BYTES_MAX;
use prost::Message as _;

use super::rig::{Agent, Rig, Session, numbers};
use super::*;

/// Appends rows of about so many bytes.
fn append(agent: &Agent, lane: Lane, count: usize, bytes: usize) {
    let check = v1::ControlCheck { control: "x".repeat(bytes), ..v1::ControlCheck::default() };
    let fact = Some(v1::observation::Fact::ControlCheck(check));
    let encoded = v1::Observation { fact, ..v1::Observation::default() }.encode_to_vec();
    for _ in 0..count {
        agent.recorder.spool().append(lane, clock::boottime_ms(), true, &encoded);
    }
}

#[tokio::test]
async fn what_is_urgent_never_waits_for_a_routine_backlog_which_comes_at_a_pace() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let mut rig = Rig::start(&authority).await;
    let agent = Agent::start(state.path(), &authority, &rig);
    append(&agent, Lane::Routine, 3000, 20);
    agent.record(2);
    let mut session = rig.greeted().await;
    let first = session.batch().await;
    assert_eq!((first.lane(), numbers(&first)), (v1::Lane::Urgent, vec![1, 2]), "before the backlog");
    let backlog = session.batch().await;
    assert_eq!((backlog.lane(), backlog.observations.len()), (v1::Lane::Routine, 500));
    // Nothing is acknowledged: the routine lane fills its room, and the urgent one has its own.
    assert_eq!(session.batch().await.lane(), v1::Lane::Routine);
    agent.record(1);
    let urgent = session.batch().await;
    assert_eq!((urgent.lane(), numbers(&urgent)), (v1::Lane::Urgent, vec![3]));
    // An acknowledgement of one lane is none of the other.
    session.ack(&urgent).await;
    agent.record(1);
    assert_eq!(numbers(&session.batch().await), [4]);
    session.ack(&backlog).await;
    let next = session.batch().await;
    assert_eq!((next.lane(), numbers(&next)[0]), (v1::Lane::Routine, 1001));
}

#[tokio::test]
async fn b77_a_backlog_of_large_rows_is_cut_by_bytes_and_one_beyond_measure_holds_up_nothing() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let mut rig = Rig::start(&authority).await;
    let agent = Agent::start(state.path(), &authority, &rig);
    append(&agent, Lane::Urgent, 300, 14_000);
    append(&agent, Lane::Urgent, 1, 5 << 20);
    agent.record(1);
    let mut session = rig.greeted().await;
    let mut seen = Vec::new();
    let mut lost = Vec::new();
    while lost.is_empty() || !seen.contains(&302) {
        let batch = session.batch().await;
        assert!(batch.encoded_len() < MESSAGE_BYTES_MAX / 4, "{}", batch.encoded_len());
        session.ack(&batch).await;
        seen.extend(numbers(&batch));
        lost.extend(batch.observations.into_iter().filter_map(|row| match row.fact {
            Some(v1::observation::Fact::Loss(loss)) => Some(loss),
            _ => None,
        }));
        // Losses are written down when the spool is looked after.
        agent.recorder.spool().tick(clock::boottime_ms() + 60_000);
        agent.record(1);
    }
    assert!(seen.starts_with(&(1..=300).collect::<Vec<_>>()), "{seen:?}");
    assert!(!seen.contains(&301));
    assert_eq!((lost[0].count, lost[0].first_sequence, lost[0].last_sequence), (1, 301, 301), "{lost:?}");
}

/// Ends the stream as the gRPC library does when this batch was too large; `None`: it was not.
async fn refuse_if(mut session: Session, too_large: impl Fn(&v1::Batch) -> bool) -> Vec<u64> {
    let mut taken = Vec::new();
    loop {
        let wait = tokio::time::timeout(Duration::from_secs(2), session.received());
        let Ok(Some(message)) = wait.await else { return taken };
        let agent_message::Message::Batch(batch) = message else { continue };
        if too_large(&batch) {
            session.end(Status::out_of_range("decoded message length too large: found 4299161 bytes")).await;
            return taken;
        }
        session.ack(&batch).await;
        taken.extend(numbers(&batch));
    }
}

#[tokio::test]
async fn b77_what_was_refused_for_its_size_is_not_sent_unchanged() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let mut rig = Rig::start(&authority).await;
    let agent = Agent::start(state.path(), &authority, &rig);
    append(&agent, Lane::Urgent, 300, 20);
    let mut taken = Vec::new();
    while taken.len() < 300 {
        let session = rig.greeted().await;
        taken.extend(refuse_if(session, |batch| batch.observations.len() > 40).await);
    }
    assert_eq!(taken, (1..=300).collect::<Vec<_>>());
}

#[tokio::test]
async fn b77_a_single_row_that_is_never_taken_is_set_aside_and_recorded_as_lost() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let mut rig = Rig::start(&authority).await;
    let agent = Agent::start(state.path(), &authority, &rig);
    append(&agent, Lane::Urgent, 20, 20);
    let mut taken = Vec::new();
    while !taken.contains(&20) {
        let session = rig.greeted().await;
        taken.extend(refuse_if(session, |batch| numbers(batch).contains(&7)).await);
    }
    let wanted: Vec<u64> = (1..=20).filter(|number| *number != 7).collect();
    assert!(taken.starts_with(&wanted), "{taken:?}");
    assert_eq!(agent.status.snapshot().set_aside, 1);
    assert_eq!(agent.recorder.spool().lost(), 1);
}
