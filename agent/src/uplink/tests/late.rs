//! A certificate that has ended is renewed with its key, before anything else.

use std::path::Path;

use super::enrolling::{Act, Office};
use super::rig::Line;
use super::*;
use crate::identity::folder::Folder;
use crate::identity::key::Key;
use crate::identity::signers::tests::Hand;
use crate::identity::trusted::Trusted;

/// An agent whose certificate ended so many seconds ago.
fn ended(state: &Path, authority: &Authority, office: &Office) -> (Line, Folder) {
    let line = Line::new(state, authority, authority, &[office.address.to_string()]);
    let folder = Folder::new(state.join("identity"));
    let key = Key::generate().unwrap();
    let now_s = i64::try_from(clock::unix_ms() / 1000).unwrap();
    let certificate = authority.certify_between(&key.request().unwrap(), "branch-kazan", now_s - 7200..now_s - 3600);
    folder.put(&key, &[certificate]).unwrap();
    (line, folder)
}

#[tokio::test]
async fn b67_a_branch_that_was_dark_for_weeks_renews_with_its_old_key_and_comes_back() {
    let (authority, state) = (Arc::new(Authority::new()), tempfile::tempdir().unwrap());
    let office = Office::open(&authority, v1::Trust::default(), [Act::Give(3600)]).await;
    let (mut line, folder) = ended(state.path(), &authority, &office);
    let key = folder.key().unwrap().public();
    // This coordinator offers no sessions; what counts is what happened before.
    let _ = line.ended().await;
    assert_eq!(office.asked(), 1);
    assert_eq!(folder.key().unwrap().public(), key, "the same key");
    let held = line.uplink.identity.credentials().unwrap();
    assert!(held.validity.holds(i64::try_from(clock::unix_ms() / 1000).unwrap()));
    let _ = line.ended().await;
    assert_eq!(office.asked(), 1, "it is good now");
}

#[tokio::test]
async fn b72_what_is_for_good_ends_the_agent_and_what_is_about_the_clock_does_not() {
    let (authority, state) = (Arc::new(Authority::new()), tempfile::tempdir().unwrap());
    let mut skew = Status::failed_precondition("the agent's clock is 600 s behind the coordinator's");
    skew.metadata_mut().insert("clock-offset-ms", "-600000".parse().unwrap());
    let script = [
        Act::refuse(skew, "clock_skew"),
        Act::refuse(Status::unavailable("the database is away"), "unavailable"),
        Act::refuse(Status::invalid_argument("the request cannot be read"), "request_invalid"),
        Act::refuse(Status::permission_denied("ended more than 90 days ago"), "renewal_too_late"),
    ];
    let office = Office::open(&authority, v1::Trust::default(), script).await;
    let (mut line, folder) = ended(state.path(), &authority, &office);
    let key = folder.key().unwrap().public();
    let lost = line.lost().await;
    assert_eq!((lost.word, lost.pace, lost.about_time), ("clock_skew", Pace::Slow, true));
    assert!(lost.why.contains("-600000 ms"), "{}", lost.why);
    assert_eq!(line.lost().await.word, "certificate_ended");
    let lost = line.lost().await;
    assert_eq!(
        (lost.word, lost.pace),
        ("certificate_ended", Pace::Slow),
        "a slip in a form ends no branch: {}",
        lost.why
    );
    let Ended::IdentityRefused(why) = line.ended().await else { panic!("it goes on") };
    assert!(why.contains("renewal_too_late"), "{why}");
    assert_eq!(folder.key().unwrap().public(), key, "and nothing was changed");
}

#[tokio::test]
async fn whoever_answers_an_agent_whose_certificate_ended_cannot_make_it_trust_others() {
    let (authority, state) = (Arc::new(Authority::new()), tempfile::tempdir().unwrap());
    let thief = Arc::new(Authority::new());
    let stolen = v1::Trust {
        authorities: vec![thief.der()],
        signers: vec![Hand::new().bytes()],
        coordinators: vec!["thief.example:8443".to_owned()],
    };
    let script = [Act::Forge(Arc::clone(&thief)), Act::Give(3600)];
    let office = Office::open(&authority, stolen, script).await;
    let (mut line, folder) = ended(state.path(), &authority, &office);
    let known = v1::Trust {
        authorities: vec![authority.der()],
        signers: vec![Hand::new().bytes()],
        coordinators: vec![office.address.to_string()],
    };
    let known = Trusted::try_from(&known).unwrap();
    folder.trust(&known).unwrap();
    let trusts = |line: &mut Line| {
        let held = line.uplink.identity.credentials().unwrap();
        let (roots, signers) = (held.roots.clone(), held.signers.clone());
        Trusted { authorities: roots, signers, coordinators: held.coordinators.clone() }
    };
    let lost = line.lost().await;
    assert_eq!(lost.word, "certificate_ended");
    assert!(lost.why.contains("no certificate of ours"), "{}", lost.why);
    assert_eq!(trusts(&mut line), known);
    // A certificate that our own authority vouches for is taken, and nothing else of the answer.
    let _ = line.ended().await;
    assert_eq!((office.asked(), trusts(&mut line)), (2, known));
    let held = line.uplink.identity.credentials().unwrap();
    assert!(held.validity.holds(i64::try_from(clock::unix_ms() / 1000).unwrap()));
}
