//! Joining at a coordinator that follows a script, over real sockets.

use std::sync::Arc;

use parallax_proto::v1;
use tonic::Status;

use super::*;
use crate::certificate::public_key;
use crate::failure::Exit;
use crate::identity::signers::tests::Hand;
use crate::probe::testing::{Authority, refused_port};
use crate::uplink::enrolment::NotEnrolled;
use crate::uplink::tests::enrolling::{Act, Office};

fn pin(authority: &Authority) -> Vec<u8> {
    ring::digest::digest(&ring::digest::SHA256, public_key(&authority.der()).unwrap()).as_ref().to_vec()
}

fn joining(state: &tempfile::TempDir, pin: &[u8], to: &[String]) -> Joining {
    let token = token::Token::read(&token::tests::text(pin, to)).unwrap();
    let folder = Folder::new(state.path().join(FOLDER));
    let connector = Connector::new(ProxySetting::None, Known::default(), ClockOffset::default());
    Joining { token, folder, coordinators: Vec::new(), connector, timing: Timing::default() }
}

fn trust(authority: &Authority) -> v1::Trust {
    v1::Trust {
        authorities: vec![authority.der()],
        signers: vec![Hand::new().bytes()],
        coordinators: vec!["a.example:8443".to_owned()],
    }
}

#[tokio::test]
async fn a_token_becomes_an_identity_that_can_be_used() {
    let (authority, state) = (Arc::new(Authority::new()), tempfile::tempdir().unwrap());
    let office = Office::open(&authority, trust(&authority), [Act::Give(3600)]).await;
    // The first coordinator of the list is not there.
    let mut joining = joining(&state, &pin(&authority), &[refused_port().to_string(), office.address.to_string()]);
    let joined = joining.now().await.unwrap();
    assert_eq!(
        (joined.enrolled.vantage.as_str(), joined.coordinator.to_string()),
        ("branch-kazan", office.address.to_string())
    );
    assert!(joined.enrolled.clock_offset_ms.abs() < 1000);
    let held = Identity::new(state.path().join(FOLDER)).credentials().unwrap();
    assert_eq!((held.signers.len(), held.coordinators.len(), held.vantage.as_str()), (1, 1, "branch-kazan"));
    assert!(coordinator(&joined, &joining.token).found.contains("key matches the token (SHA256 "));
    assert!(certificate(&held).found.contains("renews itself"));
}

#[tokio::test]
async fn b70_an_answer_that_was_lost_is_asked_for_again_with_the_same_key_also_by_another_process() {
    let (authority, state) = (Arc::new(Authority::new()), tempfile::tempdir().unwrap());
    let script = [Act::Lose, Act::Lose, Act::Lose, Act::Lose, Act::Give(3600)];
    let office = Office::open(&authority, trust(&authority), script).await;
    let to = [office.address.to_string()];
    let failure = joining(&state, &pin(&authority), &to).now().await.unwrap_err();
    assert_eq!((failure.exit, failure.code), (Exit::Unreachable, "E0502"));
    assert!(failure.fix.contains("same token"), "{failure}");
    joining(&state, &pin(&authority), &to).now().await.unwrap();
    let asked = office.asked.lock().unwrap().clone();
    let keys: Vec<Vec<u8>> = asked
        .iter()
        .map(|der| {
            use rcgen::PublicKeyData as _;
            let read = rcgen::CertificateSigningRequestParams::from_der(&der.clone().into()).unwrap();
            read.public_key.subject_public_key_info()
        })
        .collect();
    assert_eq!(keys.len(), 5);
    assert!(keys.iter().all(|key| *key == keys[0]), "another key would be refused");
    assert_eq!(Folder::new(state.path().join(FOLDER)).key().unwrap().public(), keys[0]);
}

#[tokio::test]
async fn a_refusal_ends_it_at_once_and_whoever_cannot_prove_itself_is_not_asked() {
    let (authority, state) = (Arc::new(Authority::new()), tempfile::tempdir().unwrap());
    let used = Status::permission_denied(
        "the join token was refused: it was used at 14:31 by branch-ufa (192.0.2.44)\u{1b}[2J",
    );
    let office = Office::open(&authority, trust(&authority), [Act::refuse(used, "token_used"), Act::Give(60)]).await;
    let to = [office.address.to_string()];
    let failure = joining(&state, &pin(&authority), &to).patiently().await.unwrap_err();
    assert_eq!((failure.exit, failure.code, failure.word), (Exit::Refused, "E0412", "token_used"));
    assert!(failure.why.starts_with("it was used at 14:31") && !failure.why.contains('\u{1b}'), "{failure}");
    assert_eq!(office.asked(), 1, "no second try");
    // Another authority than the token's: nobody is told the secret.
    let failure = joining(&state, &[9; 32], &to).now().await.unwrap_err();
    assert_eq!((failure.exit, failure.code), (Exit::Unreachable, "E0501"), "{failure}");
    assert_eq!(office.asked(), 1);
    let nobody = joining(&state, &pin(&authority), &[refused_port().to_string()]).now().await.unwrap_err();
    assert_eq!((nobody.exit, nobody.word), (Exit::Unreachable, "unreachable"));
}

#[tokio::test]
async fn b72_a_clock_that_is_off_is_named_and_the_key_stays() {
    let (authority, state) = (Arc::new(Authority::new()), tempfile::tempdir().unwrap());
    let mut skew = Status::failed_precondition("the agent's clock is 600 s behind the coordinator's");
    skew.metadata_mut().insert("clock-offset-ms", "-600000".parse().unwrap());
    let script = [Act::refuse(skew.clone(), "clock_skew"), Act::refuse(skew, "clock_skew"), Act::Give(3600)];
    let office = Office::open(&authority, trust(&authority), script).await;
    let mut joining = joining(&state, &pin(&authority), &[office.address.to_string()]);
    let not = joining.once().await.unwrap_err();
    assert!(matches!(not, NotEnrolled::Clock { offset_ms: Some(-600_000), .. }), "{not:?}");
    let key = joining.folder.pending_key().unwrap().public();
    let failure = joining.now().await.unwrap_err();
    assert_eq!((failure.exit, failure.code), (Exit::Failed, "E0421"));
    joining.now().await.unwrap();
    assert_eq!(joining.folder.key().unwrap().public(), key);
}

#[tokio::test]
async fn what_a_coordinator_gives_must_be_ours() {
    let (authority, other, state) = (Arc::new(Authority::new()), Authority::new(), tempfile::tempdir().unwrap());
    // It proves itself by the token's authority, and names another one that does not vouch for the certificate.
    let office = Office::open(&authority, trust(&other), [Act::Give(3600)]).await;
    let mut joining = joining(&state, &pin(&authority), &[office.address.to_string()]);
    let failure = joining.now().await.unwrap_err();
    assert_eq!((failure.exit, failure.code), (Exit::Failed, "E0504"), "{failure}");
    assert!(!joining.folder.is_joined());
}

#[tokio::test]
async fn who_has_joined_ignores_a_token_whatever_is_in_it() {
    use clap::Parser as _;
    let (authority, state) = (Arc::new(Authority::new()), tempfile::tempdir().unwrap());
    let office = Office::open(&authority, trust(&authority), [Act::Give(3600)]).await;
    joining(&state, &pin(&authority), &[office.address.to_string()]).now().await.unwrap();
    let line = ["parallax-agent", "join", "rubbish", "--state", &state.path().display().to_string()];
    let crate::cli::Command::Join(options) = crate::cli::Cli::try_parse_from(line).unwrap().command else {
        panic!("not join")
    };
    let done = run(&options).await.unwrap();
    assert!(text(&done).contains("already joined: branch-kazan"), "{done:?}");
    assert_eq!(office.asked(), 1);
}
