//! What travels, in which order, and how often.

use parallax_decide::observation::Lane;

use super::rig::{Agent, Line, Rig, greeting, numbers};
use super::*;
use crate::spool::BootId;
use crate::spool::{Limits, Spool};

#[tokio::test]
async fn nothing_is_sent_before_the_greeting_and_what_is_not_acknowledged_comes_again() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let mut rig = Rig::start(&authority).await;
    let agent = Agent::start(state.path(), &authority, &rig);
    agent.record(3);

    let mut first = rig.sessions.recv().await.unwrap();
    assert_eq!((first.hello.protocol, first.hello.assignment_version), (2, 0));
    assert_eq!(first.hello.boot_id, agent.boot.to_string());
    first.say(greeting()).await;
    let batch = first.batch().await;
    assert_eq!(numbers(&batch), [1, 2, 3]);
    assert!(batch.observations.iter().all(|observation| observation.age_ms < 60_000));
    first.ack(&v1::Batch { observations: batch.observations[..2].to_vec(), ..batch }).await;
    agent.record(1);
    assert_eq!(numbers(&first.batch().await), [4]);
    drop(first);

    let mut second = rig.sessions.recv().await.unwrap();
    assert_eq!(second.hello.assignment_version, 3, "the assignment was taken");
    assert_eq!(agent.kept.version(), 3);
    second.say(greeting()).await;
    let batch = second.batch().await;
    assert_eq!(numbers(&batch), [3, 4]);
    second.ack(&batch).await;
    agent.record(1);
    let batch = second.batch().await;
    assert_eq!(numbers(&batch), [5]);
    second.ack(&batch).await;
    agent.stop().await;
}

#[tokio::test]
async fn after_a_restart_the_earlier_boot_is_drained_under_its_own_name() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let mut rig = Rig::start(&authority).await;
    let agent = Agent::start(state.path(), &authority, &rig);
    let earlier = agent.boot.to_string();
    agent.record(2);
    let mut session = rig.sessions.recv().await.unwrap();
    session.say(greeting()).await;
    assert_eq!(numbers(&session.batch().await), [1, 2]);
    // Stopped without an acknowledgement: the farewell waits for it in vain.
    agent.stop().await;
    drop(session);

    let agent = Agent::start(state.path(), &authority, &rig);
    agent.record(1);
    let mut session = rig.sessions.recv().await.unwrap();
    assert_ne!(session.hello.boot_id, earlier);
    session.say(greeting()).await;
    let live = session.batch().await;
    assert_eq!((live.boot_id.clone(), numbers(&live)), (agent.boot.to_string(), vec![1]));
    let left = session.batch().await;
    assert_eq!((left.boot_id.clone(), numbers(&left), left.ages_hold), (earlier, vec![1, 2], false));
    session.ack(&live).await;
    session.ack(&left).await;
    agent.stop().await;
    assert_eq!(std::fs::read_dir(state.path().join("spool")).unwrap().count(), 1, "the earlier boot is gone");
}

/// Hours without a coordinator: the last part of what was measured is the boot of the greeting and comes first; the
/// part before it follows under its own name, with ages that hold.
#[tokio::test]
async fn after_a_long_outage_the_last_part_comes_first_and_the_others_ages_hold() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let Line { mut uplink, tasks, reports } =
        Line::new(state.path(), &authority, &authority, &["127.0.0.1:1".to_owned()]);
    let recorder = uplink.recorder.clone();
    let encoded = prost::Message::encode_to_vec(&v1::Observation::default());
    let now_ms = clock::boottime_ms();
    let before = {
        let mut spool = recorder.spool();
        spool.release();
        let before = spool.hold();
        spool.release();
        spool.append(Lane::Urgent, now_ms, false, &encoded);
        spool.tick(now_ms + 3_600_000);
        spool.append(Lane::Urgent, now_ms, false, &encoded);
        before.to_string()
    };
    let mut rig = Rig::start(&authority).await;
    uplink.coordinators = vec![rig.address.to_string().parse().unwrap()];
    let agent = Line { uplink, tasks, reports }.run();
    let mut session = rig.greeted().await;
    assert_ne!(session.hello.boot_id, before);
    let (last, earlier) = (session.batch().await, session.batch().await);
    assert_eq!((&last.boot_id, numbers(&last)), (&session.hello.boot_id, vec![1]));
    assert_eq!((earlier.boot_id.clone(), numbers(&earlier), earlier.ages_hold), (before, vec![1], true));
    session.ack(&last).await;
    session.ack(&earlier).await;
    agent.stop().await;
}

#[tokio::test]
async fn a_refusal_is_done_with_and_does_not_come_again() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let mut rig = Rig::start(&authority).await;
    let agent = Agent::start(state.path(), &authority, &rig);
    agent.record(2);
    let mut session = rig.sessions.recv().await.unwrap();
    session.say(greeting()).await;
    let batch = session.batch().await;
    let refusal = |sequence| {
        let reason = "its outcome is not known".to_owned();
        coordinator_message::Message::Refusal(v1::Refusal {
            boot_id: batch.boot_id.clone(),
            sequence,
            reason,
            lane: batch.lane,
        })
    };
    session.say(refusal(2)).await;
    let ack = v1::Ack { boot_id: batch.boot_id.clone(), sequence: 1, lane: batch.lane };
    session.say(coordinator_message::Message::Ack(ack)).await;
    agent.record(1);
    assert_eq!(numbers(&session.batch().await), [3]);
    session.say(refusal(0)).await;
    agent.record(1);
    assert_eq!(numbers(&session.batch().await), [4]);
    drop(session);
    let mut session = rig.sessions.recv().await.unwrap();
    session.say(greeting()).await;
    assert_eq!(numbers(&session.batch().await), [4]);
}

#[tokio::test]
async fn a_row_that_is_no_observation_is_left_out_and_holds_up_nothing() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let mut rig = Rig::start(&authority).await;
    let agent = Agent::start(state.path(), &authority, &rig);
    agent.record(1);
    agent.recorder.spool().append(Lane::Urgent, 0, false, &[0xff; 9]);
    let mut session = rig.sessions.recv().await.unwrap();
    session.say(greeting()).await;
    let batch = session.batch().await;
    assert_eq!(numbers(&batch), [1]);
    agent.recorder.spool().rewind();
    agent.record(1);
    // What is before the bad row waits for its acknowledgement; the bad row itself is told as lost, once.
    let (mut came, mut lost) = (Vec::new(), Vec::new());
    while lost.is_empty() {
        let again = session.batch().await;
        came.extend(numbers(&again));
        for observation in &again.observations {
            if let Some(v1::observation::Fact::Loss(loss)) = &observation.fact {
                lost.push((loss.first_sequence, loss.last_sequence, loss.count));
            }
        }
        session.ack(&again).await;
    }
    assert_eq!(came, [1, 3, 4]);
    assert_eq!(lost, [(2, 2, 1)]);
    agent.stop().await;
    let spool = Spool::open(state.path().join("spool"), BootId::random().unwrap(), Limits::default(), 0);
    assert!(!spool.has_unsent(), "acknowledged past the bad row");
}

#[tokio::test]
async fn reports_wait_for_a_place_without_being_lost() {
    let (send, mut sent) = mpsc::channel(1);
    let (hand_in, mut reports) = mpsc::channel(2);
    let report = Report {
        task_id: 1,
        plan_id: 1,
        outcome: crate::pins::Outcome::Applied,
        found: Vec::new(),
        detail: String::new(),
    };
    send.try_send(v1::AgentMessage { message: None }).unwrap();
    hand_in.try_send(report.clone()).unwrap();
    let early = tokio::time::timeout(Duration::from_millis(10), stream::report_with_place(&send, &mut reports)).await;
    assert!(early.is_err(), "there is no place");
    sent.recv().await.unwrap();
    let (_, taken) = stream::report_with_place(&send, &mut reports).await.unwrap();
    assert_eq!(taken, report);
}

#[tokio::test]
async fn batches_in_flight_are_bounded() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let mut rig = Rig::start(&authority).await;
    let agent = Agent::start(state.path(), &authority, &rig);
    agent.record(500 * 6);
    let mut session = rig.sessions.recv().await.unwrap();
    session.say(greeting()).await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        let batch = session.batch().await;
        assert_eq!(batch.observations.len(), 500);
        seen.push(batch);
    }
    let early = tokio::time::timeout(Duration::from_millis(200), session.received()).await;
    assert!(early.is_err(), "a fifth batch before an acknowledgement");
    session.ack(&seen[3]).await;
    assert_eq!(numbers(&session.batch().await)[0], 2001);
}

#[tokio::test]
async fn tasks_and_reports_travel() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let mut rig = Rig::start(&authority).await;
    let mut agent = Agent::start(state.path(), &authority, &rig);
    let mut session = rig.sessions.recv().await.unwrap();
    session.say(greeting()).await;
    let change = |epoch, change| v1::ChangeTask { plan_id: 5, epoch, change };
    let task = |task_id, work| {
        let work = Some(v1::task::Work::Change(work));
        coordinator_message::Message::Task(v1::Task { task_id, deadline_ms: 1000, work, purpose: 0 })
    };
    let read = v1::change_task::Change::Read(v1::ReadPin { name: "example.com".into() });
    session.say(task(7, change(1, Some(read)))).await;
    let taken = agent.tasks.recv().await.unwrap();
    assert_eq!(taken.id, 7);

    session.say(task(8, change(1, None))).await;
    let agent_message::Message::ChangeReport(report) = session.next().await else { panic!("not a report") };
    assert_eq!((report.task_id, report.outcome()), (8, v1::ChangeOutcome::Refused));

    let outcome = crate::pins::Outcome::Applied;
    let report =
        Report { task_id: 7, plan_id: 5, outcome, found: vec![[104, 26, 4, 10].into()], detail: "done".into() };
    agent.reports.send(report).await.unwrap();
    let agent_message::Message::ChangeReport(report) = session.next().await else { panic!("not a report") };
    assert_eq!((report.task_id, report.plan_id, report.found), (7, 5, vec![vec![104, 26, 4, 10]]));
}
