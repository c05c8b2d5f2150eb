//! How an agent becomes a vantage: real TLS, real Postgres, the real service. What `identity` needs of it is here too.

use std::path::PathBuf;

use parallax_proto::v1::enrolment_client::EnrolmentClient;
use parallax_proto::v1::order::Order;
use parallax_proto::{ORDER_CONTEXT, REASON};
use prost::Message as _;
use rcgen::{CertificateParams, KeyPair};
use ring::signature::{ED25519, UnparsedPublicKey};
use tonic::Code;
use tonic::transport::Channel;

use super::*;
use crate::identity::request::sha256;
use crate::revocation;
use crate::store::token::{self, NewToken};
use crate::store::vantage::{self, change};

pub(super) const SECRET: [u8; 32] = [7; 32];

/// What an agent has after it joined.
pub(super) struct Joined {
    pub(super) key: KeyPair,
    pub(super) reply: v1::JoinReply,
}

pub(super) fn request(key: &KeyPair) -> Vec<u8> {
    // The name in it is not read.
    let params = CertificateParams::new(vec!["somebody-else.example".to_owned()]).unwrap();
    params.serialize_request(key).unwrap().der().to_vec()
}

pub(super) fn now_ms() -> u64 {
    u64::try_from(clock::wall_ms()).unwrap()
}

pub(super) fn word(status: &Status) -> &str {
    status.metadata().get(REASON).map_or("", |word| word.to_str().unwrap())
}

impl World {
    pub(super) async fn token(&self, name: &str, secret: &[u8; 32]) -> i64 {
        let mut connection = self.app.pool.acquire().await.unwrap();
        let row = vantage::find_or_make(&mut connection, &name.parse().unwrap()).await.unwrap();
        let ttl = Duration::from_secs(3600);
        let new = NewToken { vantage: row.id, secret_sha256: &sha256(secret), ttl, made_by: "anna" };
        token::create(&mut connection, new).await.unwrap().0
    }

    /// The service as an agent reaches it that has no certificate.
    pub(super) async fn enrolment(&self) -> EnrolmentClient<Channel> {
        EnrolmentClient::new(self.channel(client_config(None, &self.trust())).await.unwrap())
    }

    /// A folder with the authorities alone, as a token's pin finds them.
    pub(super) fn trust(&self) -> PathBuf {
        let folder = tempfile::tempdir_in(self.state.path()).unwrap().keep();
        let authorities: String = self.keeper.held().bundle.trusted().map(|one| pem_text("CERTIFICATE", one)).collect();
        std::fs::write(folder.join("ca.pem"), authorities).unwrap();
        folder
    }

    pub(super) async fn join_at(&self, secret: &[u8], key: &KeyPair, unix_ms: u64) -> Result<v1::JoinReply, Status> {
        let request = v1::JoinRequest {
            secret: secret.to_vec(),
            request: request(key),
            agent_version: "0.1.0".to_owned(),
            unix_ms,
        };
        Ok(self.enrolment().await.join(request).await?.into_inner())
    }

    pub(super) async fn join(&self, secret: &[u8], key: &KeyPair) -> Result<v1::JoinReply, Status> {
        self.join_at(secret, key, now_ms()).await
    }

    pub(super) async fn joined(&self, name: &str, secret: [u8; 32]) -> Joined {
        self.token(name, &secret).await;
        let key = KeyPair::generate().unwrap();
        let reply = self.join(&secret, &key).await.unwrap();
        Joined { key, reply }
    }

    /// One that has joined and begun its stream, and who signs its orders.
    pub(super) async fn begun(&self, name: &str, secret: [u8; 32]) -> (Joined, Vec<u8>, Agent) {
        let joined = self.joined(name, secret).await;
        let signer = joined.identity().trust.clone().unwrap().signers[0].clone();
        let mut agent = self.stream(&joined.folder(self)).await.unwrap();
        agent.begin(&signer).await;
        (joined, signer, agent)
    }

    pub(super) async fn late(&self, key: &KeyPair) -> Result<v1::JoinReply, Status> {
        let request = v1::LateRenewal { request: request(key), agent_version: "0.1.0".to_owned(), unix_ms: now_ms() };
        Ok(self.enrolment().await.renew(request).await?.into_inner())
    }

    /// Opens a stream of protocol 2 and greets.
    pub(super) async fn stream(&self, folder: &Path) -> Result<Agent, Status> {
        let agent = self.open(Some(folder), folder).await?;
        agent.hello(2, BOOT).await;
        Ok(agent)
    }

    /// How the stream of an identity ends that is not let in.
    pub(super) async fn refused(&self, folder: &Path) -> Status {
        match self.stream(folder).await {
            Err(status) => status,
            Ok(mut agent) => agent.next().await.unwrap_err(),
        }
    }

    pub(super) async fn count(&self, query: &'static str) -> i64 {
        sqlx::query_scalar(query).fetch_one(&self.app.pool).await.unwrap()
    }

    /// Follows revocations, as `parallax serve` does.
    pub(super) async fn follow(&self) {
        tokio::spawn(revocation::run(Arc::clone(&self.app), self.shutdown.clone()));
        // Heard is what is told from now on.
        let listening =
            "select count(*) from pg_stat_activity where datname = current_database() and query ilike 'listen%'";
        let before = tokio::time::timeout(Duration::from_secs(30), async {
            while self.count(listening).await == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        before.await.unwrap();
    }

    pub(super) fn folder(&self, key: &KeyPair, identity: &v1::Identity) -> PathBuf {
        let folder = tempfile::tempdir_in(self.state.path()).unwrap().keep();
        let pem = |der: &[u8]| pem_text("CERTIFICATE", der);
        let trust = identity.trust.as_ref().unwrap();
        std::fs::write(folder.join("ca.pem"), trust.authorities.iter().map(|der| pem(der)).collect::<String>())
            .unwrap();
        std::fs::write(folder.join("certificate.pem"), pem(&identity.certificates[0])).unwrap();
        std::fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
        folder
    }
}

impl Joined {
    pub(super) fn identity(&self) -> &v1::Identity {
        self.reply.identity.as_ref().unwrap()
    }

    pub(super) fn folder(&self, world: &World) -> PathBuf {
        world.folder(&self.key, self.identity())
    }
}

impl Agent {
    /// The next order, its signature checked.
    pub(super) async fn order(&mut self, signer: &[u8]) -> v1::Order {
        let message = self.next().await.unwrap();
        let ToAgent::Signed(signed) = message else { panic!("expected an order, not {message:?}") };
        let bytes = [ORDER_CONTEXT, &signed.order].concat();
        UnparsedPublicKey::new(&ED25519, signer).verify(&bytes, &signed.signature).unwrap();
        v1::Order::decode(signed.order.as_slice()).unwrap()
    }

    /// Assignment and trust, as every stream of protocol 2 begins.
    pub(super) async fn begin(&mut self, signer: &[u8]) -> (v1::Order, v1::Trust) {
        let assignment = self.order(signer).await;
        assert!(matches!(assignment.order, Some(Order::Assignment(_))), "{assignment:?}");
        let ToAgent::Trust(open) = self.next().await.unwrap() else { panic!("no trust") };
        let Some(Order::Trust(trust)) = self.order(signer).await.order else { panic!("no signed trust") };
        // What is not signed names the signers alone.
        assert_eq!(open, v1::Trust { signers: trust.signers.clone(), ..v1::Trust::default() });
        (assignment, trust)
    }
}

#[tokio::test]
async fn a_token_makes_an_agent_a_vantage_whose_orders_are_signed() {
    let world = world().await;
    let joined = world.joined("de-fra", SECRET).await;
    assert_eq!(joined.identity().vantage, "de-fra");
    assert!(joined.reply.unix_ms.abs_diff(now_ms()) < 60_000);
    let trust = joined.identity().trust.clone().unwrap();
    assert_eq!((trust.authorities.len(), trust.signers.len()), (1, 1));
    assert_eq!(trust.coordinators, [world.address.to_string()]);
    let mut agent = world.stream(&joined.folder(&world)).await.unwrap();
    let (order, told) = agent.begin(&trust.signers[0]).await;
    assert_eq!((order.vantage.as_str(), told), ("de-fra", trust));
    let recorded: (String, i64) = sqlx::query_as(
        "select v.name, count(*) over () from agent_certificate c join vantage v on v.id = c.vantage_id where c.how = 'join'",
    )
    .fetch_one(&world.app.pool)
    .await
    .unwrap();
    assert_eq!(recorded, ("de-fra".to_owned(), 1));
    assert_eq!(world.count("select count(*) from join_token where secret_sha256 = '\\x07'").await, 0);
}

#[tokio::test]
async fn an_agent_that_joins_is_shown_the_authority_that_its_token_pins() {
    let world = world().await;
    let tcp = TcpStream::connect(world.address).await.unwrap();
    let config = client_config(None, &world.trust());
    let name = ServerName::try_from(SERVER_NAME).unwrap();
    let stream = tokio_rustls::TlsConnector::from(config).connect(name, tcp).await.unwrap();
    let shown = stream.get_ref().1.peer_certificates().unwrap();
    let (_, last) = x509_parser::parse_x509_certificate(shown.last().unwrap()).unwrap();
    assert_eq!((shown.len(), sha256(last.public_key().raw)), (2, world.keeper.held().pin));
}

#[tokio::test]
async fn b70_a_lost_answer_is_given_again_to_the_same_key_and_to_no_other() {
    let world = world().await;
    let vantages = world.count("select count(*) from vantage").await;
    let first = world.joined("de-fra", SECRET).await;
    // The answer was lost, also past the token's end.
    sqlx::query("update join_token set expires_at = clock_timestamp() - interval '1 h'")
        .execute(&world.app.pool)
        .await
        .unwrap();
    let again = world.join(&SECRET, &first.key).await.unwrap().identity.unwrap();
    assert_eq!(again.vantage, "de-fra");
    assert_eq!(world.count("select count(*) from vantage").await, vantages);
    assert_eq!(world.count("select count(*) from join_token where used_at is not null").await, 1);
    // Somebody else has the token too: refused with when and from where, counted, and written down once.
    for _ in 0..2 {
        let status = world.join(&SECRET, &KeyPair::generate().unwrap()).await.unwrap_err();
        assert_eq!((status.code(), word(&status)), (Code::PermissionDenied, "token_used"));
        assert!(status.message().contains("from 127.0.0.1 to join as de-fra"), "{}", status.message());
    }
    assert_eq!(world.count("select refused_count from join_token").await, 2);
    assert_eq!(world.count("select count(*) from audit where what = 'token_used_twice'").await, 1);
    // The holder goes on, with both of its certificates.
    for folder in [first.folder(&world), world.folder(&first.key, &again)] {
        world.stream(&folder).await.unwrap().next().await.unwrap();
    }
}

#[tokio::test]
async fn b72_a_wrong_clock_is_told_so_with_its_size_and_makes_no_second_vantage() {
    let world = world().await;
    world.token("de-fra", &SECRET).await;
    let vantages = world.count("select count(*) from vantage").await;
    let key = KeyPair::generate().unwrap();
    for (offset_ms, side) in [(600_000_i64, "ahead of"), (-600_000, "behind")] {
        let status = world.join_at(&SECRET, &key, now_ms().saturating_add_signed(offset_ms)).await.unwrap_err();
        assert_eq!((status.code(), word(&status)), (Code::FailedPrecondition, "clock_skew"));
        assert!(status.message().contains(side), "{}", status.message());
        let number = |name: &str| status.metadata().get(name).unwrap().to_str().unwrap().parse::<i64>().unwrap();
        assert!((number("clock-offset-ms") - offset_ms).abs() < 60_000);
        assert!(number("server-unix-ms").abs_diff(clock::wall_ms()) < 60_000);
    }
    world.join_at(&SECRET, &key, now_ms() + 200_000).await.unwrap();
    assert_eq!(world.count("select count(*) from vantage").await, vantages);
}

#[tokio::test]
async fn each_refusal_has_its_word() {
    let world = world().await;
    let key = KeyPair::generate().unwrap();
    let refused = |secret: Vec<u8>| {
        let (world, key) = (&world, &key);
        Box::pin(async move { word(&world.join(&secret, key).await.unwrap_err()).to_owned() })
    };
    assert_eq!(refused(vec![1; 32]).await, "token_unknown");
    assert_eq!(refused(vec![1; 5]).await, "token_unknown");
    let id = world.token("de-fra", &SECRET).await;
    token::revoke(&mut world.app.pool.acquire().await.unwrap(), id).await.unwrap();
    assert_eq!(refused(SECRET.to_vec()).await, "token_revoked");
    world.token("de-fra", &[8; 32]).await;
    sqlx::query("update join_token set expires_at = clock_timestamp()").execute(&world.app.pool).await.unwrap();
    assert_eq!(refused(vec![8; 32]).await, "token_expired");
    world.token("de-fra", &[9; 32]).await;
    change::revoke(&mut world.app.pool.acquire().await.unwrap(), &"de-fra".parse().unwrap()).await.unwrap();
    assert_eq!(refused(vec![9; 32]).await, "vantage_revoked");
    let bad = v1::JoinRequest {
        secret: vec![9; 32],
        request: vec![1, 2, 3],
        agent_version: "x".to_owned(),
        unix_ms: now_ms(),
    };
    let status = world.enrolment().await.join(bad).await.unwrap_err();
    assert_eq!((status.code(), word(&status)), (Code::InvalidArgument, "request_invalid"));
    // Each of them cost six tries of sixty.
    while word(&world.join(&[1; 32], &key).await.unwrap_err()) == "token_unknown" {}
    let status = world.join(&[1; 32], &key).await.unwrap_err();
    assert_eq!((status.code(), word(&status)), (Code::ResourceExhausted, "slow_down"));
    assert!(status.metadata().get("grpc-retry-pushback-ms").unwrap().to_str().unwrap().parse::<u64>().unwrap() > 0);
}

#[tokio::test]
async fn a_stream_without_a_certificate_is_refused_and_may_enrol_all_the_same() {
    let world = world().await;
    let known = world.identity("wan-gw");
    let status = match world.open(None, &known).await {
        Err(status) => status,
        Ok(mut agent) => agent.next().await.unwrap_err(),
    };
    assert_eq!((status.code(), word(&status)), (Code::Unauthenticated, "no_certificate"));
}

pub(super) fn pem_text(label: &str, der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}
