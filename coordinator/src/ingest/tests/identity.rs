//! The life of an identity after joining: renewed, revoked, replaced, renamed; authorities and the server's own certificate.

use parallax_proto::v1::order::Order;
use rcgen::KeyPair;
use tonic::Code;

use super::enrolment::{Joined, SECRET, pem_text, request, word};
use super::*;
use crate::hex::hex;
use crate::identity::authority::Authority;
use crate::identity::bundle;
use crate::identity::request::sha256;
use crate::identity::signer;
use crate::ingest::order;
use crate::store;
use crate::store::certificate;
use crate::store::vantage::{self, change};

#[tokio::test]
async fn a_key_renews_for_ninety_days_after_its_certificate_ended() {
    let world = world().await;
    let joined = world.joined("de-fra", SECRET).await;
    let stranger = KeyPair::generate().unwrap();
    assert_eq!(word(&world.late(&stranger).await.unwrap_err()), "key_unknown");
    let ended = |days: i32| {
        let pool = world.app.pool.clone();
        async move {
            sqlx::query("update agent_certificate set not_after = clock_timestamp() - make_interval(days => $1)")
                .bind(days)
                .execute(&pool)
                .await
                .unwrap()
        }
    };
    ended(89).await;
    let renewed = world.late(&joined.key).await.unwrap().identity.unwrap();
    world.stream(&world.folder(&joined.key, &renewed)).await.unwrap().next().await.unwrap();
    ended(91).await;
    assert_eq!(word(&world.late(&joined.key).await.unwrap_err()), "renewal_too_late");
    ended(1).await;
    change::revoke(&mut world.app.pool.acquire().await.unwrap(), &"de-fra".parse().unwrap()).await.unwrap();
    assert_eq!(word(&world.late(&joined.key).await.unwrap_err()), "vantage_revoked");
}

#[tokio::test]
async fn b67_a_certificate_is_renewed_over_the_stream_with_a_fresh_key() {
    let world = world().await;
    let (_, signer, mut agent) = world.begun("de-fra", SECRET).await;
    agent.send(FromAgent::Renewal(v1::Renewal { request: vec![0; 9] })).await;
    let ToAgent::Renewed(v1::Renewed { answer: Some(v1::renewed::Answer::Refused(why)) }) = agent.next().await.unwrap()
    else {
        panic!("not refused")
    };
    assert!(why.contains("PKCS #10"), "{why}");
    let fresh = KeyPair::generate().unwrap();
    agent.send(FromAgent::Renewal(v1::Renewal { request: request(&fresh) })).await;
    let ToAgent::Renewed(v1::Renewed { answer: Some(v1::renewed::Answer::Identity(identity)) }) =
        agent.next().await.unwrap()
    else {
        panic!("not renewed")
    };
    assert_eq!(identity.vantage, "de-fra");
    // The stream that asked goes on; the new certificate opens another.
    agent.batch(BOOT, vec![control(1)]).await;
    assert_eq!(agent.acked().await, 1);
    world.stream(&world.folder(&fresh, &identity)).await.unwrap().begin(&signer).await;
    let how: Vec<String> =
        sqlx::query_scalar("select how from agent_certificate where remote = '127.0.0.1' order by recorded_at")
            .fetch_all(&world.app.pool)
            .await
            .unwrap();
    assert_eq!(how, ["join", "renewal"]);
}

#[tokio::test]
async fn a_task_is_signed_and_a_change_carries_its_own_epoch() {
    let world = world().await;
    let joined = world.joined("de-fra", SECRET).await;
    let signer = joined.identity().trust.clone().unwrap().signers[0].clone();
    let mut agent = world.stream(&joined.folder(&world)).await.unwrap();
    let begun = agent.begin(&signer).await.0.epoch;
    let generation = world.app.installation.generation();
    let under = |epoch| store::order::joined(generation, epoch);
    assert_eq!((begun, generation), (under(0), 1));
    let (hub, name): (_, VantageName) = (&world.app.hub, "de-fra".parse().unwrap());
    let change = |epoch| {
        let change = LocalChange::Read { name: "example.com".parse().unwrap() };
        hub.change(&name, ChangeTask { plan_id: 1, epoch, change }, Duration::from_millis(1))
    };
    assert!(change(9).await.is_err());
    assert_eq!(agent.order(&signer).await.epoch, under(9));
    let work =
        Work::Resolve { name: "example.com".parse().unwrap(), resolver: "live".parse().unwrap(), connect: false };
    hub.send_task(&name, Task { purpose: Purpose::Confirm, deadline: Duration::from_secs(1), work }, 9).unwrap();
    let order = agent.order(&signer).await;
    assert!(matches!(order.order, Some(Order::Task(_))));
    assert_eq!(order.epoch, under(9), "evidence is asked for as of the newest plan");
    // One of a coordinator that was overtaken says so, and the agent refuses it.
    assert!(change(8).await.is_err());
    assert_eq!(agent.order(&signer).await.epoch, under(8));
}

#[tokio::test]
async fn a_revocation_cuts_streams_on_every_coordinator_within_two_seconds() {
    let one = world().await;
    let other = world_beside(&one).await;
    other.follow().await;
    let joined = one.joined("de-fra", SECRET).await;
    let folder = joined.folder(&one);
    let kept = one.joined("branch-kazan", [8; 32]).await.folder(&one);
    let (mut cut, mut stays) = (other.stream(&folder).await.unwrap(), other.stream(&kept).await.unwrap());
    for agent in [&mut cut, &mut stays] {
        for _ in 0..3 {
            agent.next().await.unwrap();
        }
    }
    // As `parallax vantage revoke` does, on another machine.
    change::revoke(&mut one.app.pool.acquire().await.unwrap(), &"de-fra".parse().unwrap()).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(2), cut.next()).await.expect("not cut in time");
    let status = ended.unwrap_err();
    assert_eq!((status.code(), word(&status)), (Code::PermissionDenied, "vantage_revoked"));
    for world in [&one, &other] {
        let status = world.refused(&folder).await;
        assert_eq!((status.code(), word(&status)), (Code::PermissionDenied, "vantage_revoked"));
    }
    stays.batch(BOOT, vec![control(1)]).await;
    assert_eq!(stays.acked().await, 1);
}

#[tokio::test]
async fn a_replaced_vantage_takes_a_new_key_and_none_of_its_old_ones() {
    let world = world().await;
    world.follow().await;
    let by_hand = world.identity("de-fra");
    let old = world.joined("de-fra", SECRET).await;
    let folder = old.folder(&world);
    let mut agent = world.stream(&folder).await.unwrap();
    for _ in 0..3 {
        agent.next().await.unwrap();
    }
    let mut connection = world.app.pool.acquire().await.unwrap();
    let id = vantage::by_name(&mut connection, &"de-fra".parse().unwrap()).await.unwrap().unwrap().id;
    change::replace(&mut connection, id).await.unwrap();
    assert_eq!(word(&agent.next().await.unwrap_err()), "vantage_revoked");
    // The one that was seen, and the one made by hand that never was.
    for folder in [&folder, &by_hand] {
        assert_eq!(word(&world.refused(folder).await), "vantage_revoked");
    }
    assert_eq!(word(&world.join(&SECRET, &old.key).await.unwrap_err()), "vantage_revoked");
    let new = world.joined("de-fra", [8; 32]).await;
    world.stream(&new.folder(&world)).await.unwrap().next().await.unwrap();
}

#[tokio::test]
async fn one_key_is_revoked_and_the_other_goes_on() {
    let world = world().await;
    world.follow().await;
    let (lost, kept) = (world.joined("de-fra", SECRET).await, world.joined("de-fra", [8; 32]).await);
    let mut agent = world.stream(&lost.folder(&world)).await.unwrap();
    for _ in 0..3 {
        agent.next().await.unwrap();
    }
    let mut connection = world.app.pool.acquire().await.unwrap();
    let id = vantage::by_name(&mut connection, &"de-fra".parse().unwrap()).await.unwrap().unwrap().id;
    let presented = crate::ingest::tls::presented(&lost.identity().certificates[0]).unwrap();
    let start = hex(&presented.serial)[..8].to_owned();
    assert_eq!(change::revoke_key(&mut connection, id, "ffffffff").await.unwrap(), 0);
    assert_eq!(change::revoke_key(&mut connection, id, &start).await.unwrap(), 1);
    assert_eq!(word(&agent.next().await.unwrap_err()), "vantage_revoked");
    assert_eq!(word(&world.refused(&lost.folder(&world)).await), "vantage_revoked");
    world.stream(&kept.folder(&world)).await.unwrap().next().await.unwrap();
}

#[tokio::test]
async fn a_renamed_vantage_keeps_its_key_and_learns_its_name() {
    let world = world().await;
    world.follow().await;
    let joined = world.joined("branch-old", SECRET).await;
    let folder = joined.folder(&world);
    let signer = joined.identity().trust.clone().unwrap().signers[0].clone();
    assert_eq!(word(&world.refused(&folder).await), "vantage_not_listed");
    let mut connection = world.app.pool.acquire().await.unwrap();
    let id = vantage::by_name(&mut connection, &"branch-old".parse().unwrap()).await.unwrap().unwrap().id;
    let taken = world.identity("branch-kazan");
    world.stream(&taken).await.unwrap().next().await.unwrap();
    assert!(!change::rename(&mut connection, id, &"branch-kazan".parse().unwrap()).await.unwrap(), "it has a history");
    // A row that the configuration made and that never reported makes place.
    assert!(change::rename(&mut connection, id, &"wan-gw".parse().unwrap()).await.unwrap());
    let mut agent = world.stream(&folder).await.unwrap();
    let (order, _) = agent.begin(&signer).await;
    assert_eq!(order.vantage, "branch-old", "signed for the name in the agent's certificate");
    let Some(Order::Assignment(assignment)) = order.order else { panic!("no assignment") };
    assert_eq!(assignment.vantage, "wan-gw");
    agent.send(FromAgent::Renewal(v1::Renewal { request: request(&joined.key) })).await;
    let ToAgent::Renewed(v1::Renewed { answer: Some(v1::renewed::Answer::Identity(identity)) }) =
        agent.next().await.unwrap()
    else {
        panic!("not renewed")
    };
    assert_eq!(identity.vantage, "wan-gw");
    assert!(change::rename(&mut connection, id, &"de-fra".parse().unwrap()).await.unwrap());
    assert!(agent.next().await.is_err(), "the stream of the former name is ended");
}

#[tokio::test]
async fn while_an_authority_is_replaced_both_are_trusted_and_agents_are_told() {
    let world = world().await;
    let old = world.joined("de-fra", SECRET).await;
    let signer = old.identity().trust.clone().unwrap().signers[0].clone();
    let mut agent = world.stream(&old.folder(&world)).await.unwrap();
    agent.begin(&signer).await;
    let by_hand = world.identity("wan-gw");
    bundle::rotate(world.state.path(), clock::wall()).unwrap();
    assert!(world.keeper.refresh(&Identity::default(), clock::wall()));
    assert!(!world.keeper.refresh(&Identity::default(), clock::wall()), "once");
    let Some(Order::Trust(trust)) = agent.order(&signer).await.order else { panic!("no trust") };
    assert_eq!(trust, order::trust(&world.keeper.held()));
    assert_eq!(trust.authorities.len(), 2);
    // A new agent is vouched for by the new one; both get in, and the old one still knows the coordinator.
    let new = world.joined("branch-kazan", [8; 32]).await;
    let issuer = |joined: &Joined| {
        let (_, certificate) = x509_parser::parse_x509_certificate(&joined.identity().certificates[0]).unwrap();
        let trusted = trust.authorities.iter().position(|authority| {
            let (_, authority) = x509_parser::parse_x509_certificate(authority).unwrap();
            certificate.verify_signature(Some(authority.public_key())).is_ok()
        });
        trusted.unwrap()
    };
    assert_eq!((issuer(&new), issuer(&old)), (0, 1));
    for folder in [old.folder(&world), new.folder(&world), by_hand] {
        world.stream(&folder).await.unwrap().next().await.unwrap();
    }
    let mut connection = world.app.pool.acquire().await.unwrap();
    let counts = certificate::vantages_by_authority(&mut connection).await.unwrap();
    let counted = |place: usize| counts.get(&Some(sha256_of(&trust.authorities[place]))).copied();
    assert_eq!((counted(0), counted(1), counts.len()), (Some(1), Some(2), 2), "{counts:?}");
    // Whoever was away knows the old one alone: what it renews late is vouched for by that one.
    let late = world.late(&old.key).await.unwrap();
    assert_eq!(issuer(&Joined { key: KeyPair::generate().unwrap(), reply: late }), 1);
    // The old one goes: its certificates with it.
    bundle::retire(world.state.path(), &hex(&sha256_of(&trust.authorities[1])), clock::wall()).unwrap();
    assert!(world.keeper.refresh(&Identity::default(), clock::wall()));
    world.stream(&new.folder(&world)).await.unwrap().next().await.unwrap();
    assert!(world.stream(&old.folder(&world)).await.is_err());
}

#[tokio::test]
async fn while_the_key_that_signs_is_replaced_the_old_one_vouches_for_the_new_one() {
    let world = world().await;
    let (_, old, mut agent) = world.begun("de-fra", SECRET).await;
    let folder = world.state.path().join("ca");
    let new = signer::rotate(&folder).unwrap();
    assert!(world.keeper.refresh(&Identity::default(), clock::wall()));
    let Some(Order::Trust(trust)) = agent.order(&old).await.order else { panic!("no trust") };
    assert_eq!(trust.signers, [old.clone(), new.clone()]);
    // Whoever joins now knows both from the beginning; the old one still signs for everybody.
    let later = world.joined("branch-kazan", [8; 32]).await;
    assert_eq!(later.identity().trust.clone().unwrap().signers, trust.signers);
    world.stream(&later.folder(&world)).await.unwrap().begin(&old).await;
    signer::retire(&folder, &signer::fingerprint(&old)).unwrap();
    assert!(world.keeper.refresh(&Identity::default(), clock::wall()));
    let Some(Order::Trust(trust)) = agent.order(&new).await.order else { panic!("no trust") };
    assert_eq!((trust.signers.len(), &trust.signers[0]), (1, &new));
    // A key that nobody was told of is not taken from the disk, and neither is its absence.
    std::fs::remove_file(folder.join("signer-2.key")).unwrap();
    assert!(!world.keeper.refresh(&Identity::default(), clock::wall()));
    signer::reset(&folder).unwrap();
    assert!(!world.keeper.refresh(&Identity::default(), clock::wall()));
    assert_eq!(world.keeper.held().signers.public(), [new]);
}

fn sha256_of(authority: &[u8]) -> [u8; 32] {
    let (_, parsed) = x509_parser::parse_x509_certificate(authority).unwrap();
    sha256(parsed.public_key().raw)
}

/// A server certificate of the operator's is replaced while streams stand.
#[tokio::test]
async fn b67_b68_the_servers_certificate_is_replaced_as_a_pair_and_no_stream_ends() {
    let files = tempfile::tempdir().unwrap();
    let made = Authority::make(clock::wall() - time::Duration::days(1), clock::wall()).unwrap();
    let authority = Authority::from_pem(("a", &made.certificate), ("b", &made.key)).unwrap();
    let path = |name: &str| files.path().join(name);
    let private = |name: &str, text: &str| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(path(name), text).unwrap();
        std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    use secrecy::ExposeSecret;
    private("ca.pem", &made.certificate);
    private("ca.key", made.key.expose_secret());
    let pair = || {
        let identity = authority.server_identity("127.0.0.1".parse().unwrap(), clock::wall()).unwrap();
        (pem_text("CERTIFICATE", &identity.chain[0]), pem_text("PRIVATE KEY", identity.key.secret_der()))
    };
    let (first, first_key) = pair();
    private("server.pem", &first);
    private("server.key", &first_key);
    let pair_of = |certificates: &str, key: &str| crate::config::identity::Pair {
        certificates: path(certificates),
        key: path(key),
    };
    let settings = Identity {
        authority: Some(pair_of("ca.pem", "ca.key")),
        server: Some(pair_of("server.pem", "server.key")),
        ..Identity::default()
    };
    let world = world_with(settings.clone()).await;
    let joined = world.joined("de-fra", SECRET).await;
    let folder = joined.folder(&world);
    let mut agent = world.stream(&folder).await.unwrap();
    for _ in 0..3 {
        agent.next().await.unwrap();
    }
    let shown = || async {
        let tcp = TcpStream::connect(world.address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(client_config(Some(&folder), &folder));
        let stream = connector.connect(ServerName::try_from(SERVER_NAME).unwrap(), tcp).await.unwrap();
        pem_text("CERTIFICATE", &stream.get_ref().1.peer_certificates().unwrap()[0])
    };
    let (second, second_key) = pair();
    let half = &second[..second.len() / 2];
    // Certificate without its key, nothing, half of it, not there: the old pair stays, and connections go on.
    for text in [second.as_str(), "", half] {
        private("server.pem", text);
        world.keeper.refresh(&settings, clock::wall());
        assert_eq!(shown().await, first);
    }
    std::fs::remove_file(path("server.pem")).unwrap();
    world.keeper.refresh(&settings, clock::wall());
    assert_eq!(shown().await, first);
    private("server.pem", &second);
    private("server.key", &second_key);
    world.keeper.refresh(&settings, clock::wall());
    assert_eq!(shown().await, second);
    // A link that is turned, as Kubernetes does it.
    let (third, third_key) = pair();
    private("third.pem", &third);
    private("third.key", &third_key);
    for name in ["pem", "key"] {
        let (link, to) = (path(&format!("link.{name}")), path(&format!("server.{name}")));
        std::os::unix::fs::symlink(path(&format!("third.{name}")), &link).unwrap();
        std::fs::rename(link, to).unwrap();
    }
    world.keeper.refresh(&settings, clock::wall());
    assert_eq!(shown().await, third);
    agent.batch(BOOT, vec![control(1)]).await;
    assert_eq!(agent.acked().await, 1);
}
