//! The certificate is renewed over the open stream.

use std::path::Path;

use parallax_proto::v1::{Identity as Issued, Renewed, Trust, renewed};

use super::rig::{Agent, Line, Rig, Session};
use super::*;
use crate::identity::folder::Folder;
use crate::identity::key::Key;

/// The session's life until it is asked for a certificate.
async fn asked(session: &mut Session) -> Vec<u8> {
    let asked = async {
        loop {
            if let Some(agent_message::Message::Renewal(renewal)) = session.received().await {
                return renewal.request;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), asked).await.expect("not asked")
}

/// An identity whose certificate began and ends so many seconds from now.
fn living(state: &Path, authority: &Authority, rig: &Rig, seconds: std::ops::Range<i64>) -> (Line, Folder) {
    let line = Line::new(state, authority, authority, &[rig.address.to_string()]);
    let folder = Folder::new(state.join("identity"));
    let key = Key::generate().unwrap();
    let now_s = i64::try_from(clock::unix_ms() / 1000).unwrap();
    let seconds = now_s + seconds.start..now_s + seconds.end;
    folder.put(&key, &[authority.certify_between(&key.request().unwrap(), "branch-kazan", seconds)]).unwrap();
    (line, folder)
}

fn given(authority: &Authority, request: &[u8], life_s: i64) -> coordinator_message::Message {
    let certificates = vec![authority.certify(request, "branch-kazan", life_s)];
    let trust = Some(Trust::default());
    let identity = Issued { vantage: "branch-kazan".to_owned(), certificates, trust };
    coordinator_message::Message::Renewed(Renewed { answer: Some(renewed::Answer::Identity(identity)) })
}

/// Shows that the coordinator speaks protocol 2.
async fn greeted(rig: &mut Rig) -> Session {
    let session = rig.greeted().await;
    session.say(coordinator_message::Message::Trust(Trust::default())).await;
    session
}

async fn recorded(session: &mut Session, agent: &Agent) {
    agent.record(1);
    let batch = session.batch().await;
    session.ack(&batch).await;
}

#[tokio::test]
async fn b67_b68_the_certificate_is_renewed_over_the_open_stream_which_outlives_the_old_one() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let mut rig = Rig::start(&authority).await;
    let (line, folder) = living(state.path(), &authority, &rig, 0..6);
    let first = folder.key().unwrap().public();
    let agent = line.run();
    let mut session = greeted(&mut rig).await;
    let old_ends = clock::now() + Duration::from_secs(6);
    let request = asked(&mut session).await;
    session.say(given(&authority, &request, 3600)).await;
    while clock::now() < old_ends + Duration::from_secs(1) {
        recorded(&mut session, &agent).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_ne!(folder.key().unwrap().public(), first, "a fresh key");
    assert_eq!(rig.shown.lock().unwrap().len(), 1, "the stream went on");
    // The next connection shows the new one.
    rig.cuts.all(super::cut::Cut::Reset);
    let mut session = rig.greeted().await;
    recorded(&mut session, &agent).await;
    let shown = rig.shown.lock().unwrap().clone();
    assert!(shown.len() == 2 && shown[0] != shown[1]);
    agent.stop().await;
}

#[tokio::test]
async fn b67_a_refused_a_wrong_and_a_lost_answer_change_nothing_and_it_is_asked_for_again() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let mut rig = Rig::start(&authority).await;
    let (line, folder) = living(state.path(), &authority, &rig, -13..11);
    let held = std::fs::read(folder.path().join("certificate.pem")).unwrap();
    let agent = line.run();
    let mut session = greeted(&mut rig).await;
    let refused = |why: &str| {
        let answer = Some(renewed::Answer::Refused(why.to_owned()));
        coordinator_message::Message::Renewed(Renewed { answer })
    };
    asked(&mut session).await;
    session.say(refused("not now")).await;
    // For another key, by another authority, nothing at all.
    asked(&mut session).await;
    let other = Key::generate().unwrap().request().unwrap();
    session.say(given(&authority, &other, 3600)).await;
    let request = asked(&mut session).await;
    session.say(given(&Authority::new(), &request, 3600)).await;
    asked(&mut session).await;
    session.say(coordinator_message::Message::Renewed(Renewed { answer: None })).await;
    // An answer that never comes.
    asked(&mut session).await;
    let request = asked(&mut session).await;
    assert_eq!(std::fs::read(folder.path().join("certificate.pem")).unwrap(), held);
    session.say(given(&authority, &request, 3600)).await;
    let replaced = async {
        while std::fs::read(folder.path().join("certificate.pem")).unwrap() == held {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), replaced).await.expect("not taken");
    recorded(&mut session, &agent).await;
    agent.stop().await;
}

#[tokio::test]
async fn a_coordinator_of_protocol_1_is_not_asked() {
    let (authority, state) = (Authority::new(), tempfile::tempdir().unwrap());
    let mut rig = Rig::start(&authority).await;
    let (line, _) = living(state.path(), &authority, &rig, -2..2);
    let agent = line.run();
    let mut session = rig.greeted().await;
    let asked = tokio::time::timeout(Duration::from_secs(3), asked(&mut session)).await;
    assert!(asked.is_err(), "it would refuse the message, and be taken for one without heartbeats");
    agent.stop().await;
}
