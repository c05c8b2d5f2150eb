//! Proof of life of a node over a real stream: what is stored, and what judging makes of it.

use parallax_decide::observation::Proof;
use parallax_decide::time::Timestamp;
use parallax_proto::{LIFE_QUESTION, life_message};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};

use super::*;
use crate::config::{Config, builtin};
use crate::hex::hex;
use crate::ingest::life::{AGE_MAX, Life, REPLAYED_AFTER};
use crate::store::log::{Position, observations_after};

/// A node's key.
fn node_key() -> Ed25519KeyPair {
    let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    Ed25519KeyPair::from_pkcs8(made.as_ref()).unwrap()
}

fn config(key: &Ed25519KeyPair) -> Config {
    let proof = format!(
        "port: 443, proof: {{ key: {}, port: 7443 }}, server_name: fi.montana.quest, http",
        hex(key.public_key().as_ref())
    );
    let text = builtin::EXAMPLE.replacen("port: 443, server_name: fi.montana.quest, http", &proof, 1);
    Config::parse(&text, "example").unwrap()
}

fn proof(nonce: &v1::LifeNonce, key: &Ed25519KeyPair) -> v1::LifeProof {
    v1::LifeProof {
        issued_ms: nonce.issued_ms,
        maker: nonce.maker.clone(),
        key: key.public_key().as_ref()[..8].to_vec(),
        signature: key.sign(&life_message(&nonce.nonce)).as_ref().to_vec(),
        trouble: 0,
    }
}

fn alive(sequence: u64, life: Option<v1::LifeProof>) -> v1::Observation {
    let fact = v1::Connection {
        target: Some(v1::connection::Target::Node("fi".to_owned())),
        address: vec![95, 216, 10, 10],
        port: 443,
        outcome: v1::Outcome::TlsOk.into(),
        attempts: 1,
        attempts_connected: 1,
        life,
        ..v1::Connection::default()
    };
    let fact = Some(v1::observation::Fact::Connection(fact));
    v1::Observation { fact, ..control(sequence) }
}

impl Agent {
    async fn nonce(&mut self) -> v1::LifeNonce {
        self.send(FromAgent::Ping(v1::Ping { nonce: 1 })).await;
        let ToAgent::Pong(pong) = self.next().await.unwrap() else { panic!("no answer") };
        pong.life.expect("a nonce")
    }
}

#[tokio::test]
async fn a_true_proof_is_valid_and_a_forged_replayed_or_borrowed_one_is_not() {
    let (key, stranger) = (node_key(), node_key());
    let world = world().await;
    world.app.config.store(Arc::new(config(&key)));
    let (mut agent, assignment) = world.agent("de-fra").await.unwrap();
    let told = assignment.nodes.iter().find(|node| node.name == "fi").unwrap().life.clone().unwrap();
    assert_eq!((told.port, told.public_key.as_slice()), (7443, key.public_key().as_ref()));
    let first = agent.nonce().await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let second = agent.nonce().await;
    assert_ne!(first.nonce, second.nonce, "each is fresh");
    let (mut other, _) = world.agent("wan-gw").await.unwrap();
    let borrowed = other.nonce().await;
    let forged = v1::LifeProof { key: key.public_key().as_ref()[..8].to_vec(), ..proof(&second, &stranger) };
    let replayed = v1::LifeProof { issued_ms: second.issued_ms, ..proof(&first, &key) };
    let unknown_key = proof(&second, &stranger);
    let trouble = v1::LifeProof { trouble: v1::LifeTrouble::NotReached.into(), ..v1::LifeProof::default() };
    let sent = [
        (Some(proof(&second, &key)), "valid"),
        (Some(proof(&first, &key)), "valid"),
        (Some(forged), "invalid"),
        (Some(replayed), "invalid"),
        (Some(proof(&borrowed, &key)), "invalid"),
        (Some(unknown_key), "absent"),
        (Some(trouble), "absent"),
        (None, "absent"),
    ];
    let rows = sent.iter().zip(1..).map(|((life, _), sequence)| alive(sequence, life.clone())).collect();
    agent.batch(BOOT, rows).await;
    assert_eq!(agent.acked().await, 8);
    let mut connection = world.app.pool.acquire().await.unwrap();
    let page = observations_after(&mut connection, Position::since(Timestamp(0)), 100).await.unwrap();
    let found: Vec<&str> = page.observations.iter().map(|one| one.particulars.proof.map_or("-", Proof::word)).collect();
    assert_eq!(found, sent.map(|(_, word)| word));
    let troubles: Vec<String> =
        sqlx::query_scalar("select detail ->> 'proof_trouble' from observation where detail ? 'proof_trouble'")
            .fetch_all(&world.app.pool)
            .await
            .unwrap();
    assert_eq!(troubles, ["not_reached"]);
    let short = v1::LifeProof { signature: vec![0; 63], ..proof(&second, &key) };
    agent.batch(BOOT, vec![alive(9, Some(short))]).await;
    assert!(agent.refused().await.1.contains("another length"));
}

#[tokio::test]
async fn who_shows_a_false_proof_is_suspect_and_a_failover_is_not_held_up_by_it() {
    let key = node_key();
    let world = world().await;
    world.app.config.store(Arc::new(config(&key)));
    let (mut agent, _) = world.agent("de-fra").await.unwrap();
    let nonce = agent.nonce().await;
    let forged = v1::LifeProof { signature: vec![7; 64], ..proof(&nonce, &key) };
    agent.batch(BOOT, vec![control(1), alive(2, Some(forged))]).await;
    assert_eq!(agent.acked().await, 2);
    let mut connection = world.app.pool.acquire().await.unwrap();
    let page = observations_after(&mut connection, Position::since(Timestamp(0)), 100).await.unwrap();
    let config = world.app.config.load();
    let now = page.observations.iter().map(|one| one.received_at).max().unwrap();
    let mut fold = parallax_decide::fold::Fold::listening_since(now);
    page.observations.iter().for_each(|one| fold.apply(&config.topology, one));
    let judged = parallax_decide::judge::judge(&config.topology, &fold, now);
    assert_eq!(judged.vantages[&"de-fra".parse().unwrap()].verdict.word(), "vantage_suspect");
    assert!(judged.nodes[&"fi".parse().unwrap()].alive_at.is_empty());
}

#[tokio::test]
async fn a_proof_is_worth_less_as_it_gets_older() {
    let key = node_key();
    let world = world().await;
    let (held, config) = (world.keeper.held(), config(&key));
    let id = crate::store::vantage::VantageId(1);
    let life = |now: Timestamp| Life { held: &held, nodes: &config.node_proofs, vantage: id, now };
    let made = Timestamp(1_800_000_000_000);
    let nonce = life(made).nonce().unwrap();
    let node = "fi".parse().unwrap();
    let at = |at: Timestamp| life(at).proof(&node, true, Some(&proof(&nonce, &key)), at).unwrap();
    let ms = Duration::from_millis(1);
    assert_eq!(at(made), Proof::Valid);
    assert_eq!(at(made.plus(AGE_MAX)), Proof::Valid);
    assert_eq!(at(made.plus(AGE_MAX + ms)), Proof::Absent);
    assert_eq!(at(made.plus(REPLAYED_AFTER)), Proof::Absent);
    assert_eq!(at(made.plus(REPLAYED_AFTER + ms)), Proof::Invalid, "somebody kept it");
    assert_eq!(at(made.minus(AGE_MAX + ms)), Proof::Absent, "the clock went back");
    assert_eq!(life(made).proof(&"de".parse().unwrap(), true, None, made), None, "it proves nothing");
    assert_eq!(life(made).proof(&node, false, None, made), None, "it does not work from there");
    let nobody = crate::testing::example();
    assert_eq!(Life { nodes: &nobody.node_proofs, ..life(made) }.nonce(), None);
    assert_eq!(LIFE_QUESTION.len(), 8);
}

#[test]
fn two_nodes_with_one_key_and_a_key_of_another_length_are_told_with_their_place() {
    let hex64 = "ab".repeat(32);
    let with = |fi: &str, de: &str| {
        let text = builtin::EXAMPLE
            .replacen("address: 95.216.10.10,", &format!("address: 95.216.10.10, proof: {{ key: {fi} }},"), 1)
            .replacen("address: 49.12.20.20,", &format!("address: 49.12.20.20, proof: {{ key: {de} }},"), 1);
        Config::parse(&text, "x")
    };
    let same = with(&hex64, &hex64).unwrap_err().to_string();
    assert!(same.contains("have the same key"), "{same}");
    let short = with("abcd", &hex64).unwrap_err().to_string();
    assert!(short.contains("64 hexadecimal digits"), "{short}");
    let config = with(&hex64, &"cd".repeat(32)).unwrap();
    assert_eq!(config.node_proofs[&"fi".parse().unwrap()].port, 7443);
    assert!(
        config.topology.nodes[&"de".parse().unwrap()].proof && !config.topology.nodes[&"us".parse().unwrap()].proof
    );
}
