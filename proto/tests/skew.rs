//! The wire one version apart. The bytes here are put together by field number, as protocol 1 had them, and not by the
//! types under test: a number or a type that changes breaks every agent that is not upgraded on the same day.

#![expect(clippy::unwrap_used, reason = "a panic is how a test says no, in its helpers too")]

use parallax_proto::v1::{self, agent_message, coordinator_message, observation};
use prost::Message;

const BOOT: &str = "000000000000000000000000000b0071";

fn varint(mut n: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(n & 0x7f).unwrap();
        n >>= 7;
        if n == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

/// A number under a field.
fn number(field: u64, n: u64) -> Vec<u8> {
    [varint(field << 3), varint(n)].concat()
}

/// A text, bytes or a message under a field.
fn bytes(field: u64, content: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(u64::try_from(content.len()).unwrap()), content.to_vec()].concat()
}

fn from_agent(bytes: &[u8]) -> agent_message::Message {
    v1::AgentMessage::decode(bytes).unwrap().message.unwrap()
}

fn to_agent(bytes: &[u8]) -> coordinator_message::Message {
    v1::CoordinatorMessage::decode(bytes).unwrap().message.unwrap()
}

/// What a later version might add anywhere: fields of every kind of encoding that nobody knows here.
fn additions() -> Vec<u8> {
    let fixed64 = [varint(902 << 3 | 1), vec![0; 8]].concat();
    let fixed32 = [varint(903 << 3 | 5), vec![0; 4]].concat();
    [number(900, 5), bytes(901, b"later"), fixed64, fixed32].concat()
}

/// Hello of protocol 1: protocol, agent_version, boot_id, assignment_version.
fn hello() -> Vec<u8> {
    [number(1, 1), bytes(2, b"0.1.0"), bytes(3, BOOT.as_bytes()), number(4, 1_764_500_000)].concat()
}

/// A resolution of protocol 1: name, resolver, family, outcome, addresses, ttl_s.
fn resolution(outcome: u64) -> Vec<u8> {
    [
        bytes(1, b"cdnjs.cloudflare.com"),
        bytes(2, b"live"),
        number(3, 1),
        number(4, outcome),
        bytes(5, &[8, 6, 112, 0]),
        bytes(5, &[8, 47, 69, 0]),
        number(6, 300),
    ]
    .concat()
}

/// Observation: sequence, age_ms, purpose, duration_us, fact.
fn measured(sequence: u64, resolution: &[u8]) -> Vec<u8> {
    [number(1, sequence), number(2, 10), number(3, 1), number(5, 900), bytes(6, resolution)].concat()
}

/// Batch: boot_id, observations, lane.
fn batch(observations: &[Vec<u8>]) -> Vec<u8> {
    let all: Vec<u8> = observations.iter().flat_map(|one| bytes(2, one)).collect();
    [bytes(1, BOOT.as_bytes()), all, number(3, 1)].concat()
}

#[test]
fn what_an_agent_of_protocol_1_says_reads_as_it_did_and_is_written_the_same() {
    let sent = bytes(1, &hello());
    let agent_message::Message::Hello(read) = from_agent(&sent) else { panic!("no Hello") };
    assert_eq!((read.protocol, read.agent_version.as_str(), read.boot_id.as_str()), (1, "0.1.0", BOOT));
    assert_eq!((read.assignment_version, read.epoch, read.protocol_min), (1_764_500_000, 0, 0));
    let again = v1::AgentMessage { message: Some(agent_message::Message::Hello(read)) };
    assert_eq!(again.encode_to_vec(), sent);

    let sent = bytes(2, &batch(&[measured(1, &resolution(1))]));
    let agent_message::Message::Batch(read) = from_agent(&sent) else { panic!("no Batch") };
    let one = &read.observations[0];
    let Some(observation::Fact::Resolution(fact)) = &one.fact else { panic!("no resolution") };
    assert_eq!((one.sequence, one.age_ms, one.duration_us, one.purpose()), (1, 10, 900, v1::Purpose::Scheduled));
    assert_eq!((fact.name.as_str(), fact.resolver.as_str(), fact.ttl_s), ("cdnjs.cloudflare.com", "live", 300));
    assert_eq!((fact.family(), fact.outcome()), (v1::Family::V4, v1::Outcome::Answered));
    assert_eq!(fact.addresses, [vec![8, 6, 112, 0], vec![8, 47, 69, 0]]);
    assert_eq!(read.lane(), v1::Lane::Urgent);
    assert_eq!(v1::AgentMessage { message: Some(agent_message::Message::Batch(read)) }.encode_to_vec(), sent);

    // ChangeReport: task_id, plan_id, outcome, found, detail. Ping: nonce.
    let report = [number(1, 9), number(2, 7), number(3, 1), bytes(4, &[1, 2, 3, 4]), bytes(5, b"done")].concat();
    let agent_message::Message::ChangeReport(read) = from_agent(&bytes(3, &report)) else { panic!("no report") };
    assert_eq!(
        (read.task_id, read.plan_id, read.outcome(), read.detail.as_str()),
        (9, 7, v1::ChangeOutcome::Applied, "done")
    );
    let agent_message::Message::Ping(read) = from_agent(&bytes(4, &number(1, 77))) else { panic!("no Ping") };
    assert_eq!(read.nonce, 77);
}

#[test]
fn what_a_coordinator_of_protocol_1_says_reads_as_it_did() {
    // Assignment: version, vantage, a live resolver, a canary, a control, a node, the schedule.
    let assignment = [
        number(1, 1_764_500_000),
        bytes(2, b"branch-kazan"),
        bytes(3, &[bytes(1, b"live"), bytes(2, b"")].concat()),
        bytes(4, &[bytes(1, b"example.com"), number(2, 443), number(3, 1)].concat()),
        bytes(5, &[bytes(1, b"control-cf"), bytes(2, &[1, 0, 0, 1]), number(3, 443)].concat()),
        bytes(6, &[bytes(1, b"fi"), bytes(2, &[95, 216, 10, 10]), number(3, 443)].concat()),
        bytes(7, &[number(1, 60_000), bytes(6, &[0, 200, 7])].concat()),
    ]
    .concat();
    let coordinator_message::Message::Assignment(read) = to_agent(&bytes(1, &assignment)) else { panic!("another") };
    assert_eq!((read.version, read.vantage.as_str()), (1_764_500_000, "branch-kazan"));
    assert!(matches!(read.resolvers[0].kind, Some(v1::resolver::Kind::Live(_))));
    assert_eq!(
        (read.canaries[0].name.as_str(), read.canaries[0].port, read.canaries[0].tls),
        ("example.com", 443, true)
    );
    assert_eq!((read.controls[0].name.as_str(), read.nodes[0].name.as_str()), ("control-cf", "fi"));
    let schedule = read.schedule.unwrap();
    assert_eq!((schedule.canary_every_ms, schedule.attempt_at_ms), (60_000, vec![0, 968]));

    // Ack: boot_id, sequence, lane. Refusal: boot_id, sequence, reason, lane. Pong: nonce, unix_ms.
    let ack = [bytes(1, BOOT.as_bytes()), number(2, 12), number(3, 2)].concat();
    let coordinator_message::Message::Ack(read) = to_agent(&bytes(2, &ack)) else { panic!("another") };
    assert_eq!((read.boot_id.as_str(), read.sequence, read.lane()), (BOOT, 12, v1::Lane::Routine));
    let refusal = [bytes(1, BOOT.as_bytes()), number(2, 3), bytes(3, b"unknown_word: 99"), number(4, 1)].concat();
    let coordinator_message::Message::Refusal(read) = to_agent(&bytes(3, &refusal)) else { panic!("another") };
    assert_eq!((read.sequence, read.reason.as_str()), (3, "unknown_word: 99"));
    let coordinator_message::Message::Pong(read) = to_agent(&bytes(5, &[number(1, 77), number(2, 5)].concat())) else {
        panic!("another")
    };
    assert_eq!((read.nonce, read.unix_ms), (77, 5));

    // A change: task_id, deadline_ms, ChangeTask { plan_id, epoch, Pin { name, addresses, ttl_s, expires_in_ms } }.
    let pin = [bytes(1, b"example.com"), bytes(2, &[192, 0, 2, 1]), number(3, 60), number(4, 86_400_000)].concat();
    let change = [number(1, 7), number(2, 3), bytes(3, &pin)].concat();
    let task = [number(1, 9), number(2, 5000), bytes(5, &change)].concat();
    let coordinator_message::Message::Task(read) = to_agent(&bytes(4, &task)) else { panic!("another") };
    let Some(v1::task::Work::Change(read)) = read.work else { panic!("another") };
    let Some(v1::change_task::Change::Pin(pin)) = read.change else { panic!("another") };
    assert_eq!((read.plan_id, read.epoch, pin.ttl_s, pin.expires_in_ms), (7, 3, 60, 86_400_000));
}

#[test]
fn what_a_later_version_adds_is_ignored_at_every_depth() {
    let plain = bytes(2, &batch(&[measured(1, &resolution(1))]));
    let fact = [resolution(1), additions()].concat();
    let later =
        [bytes(2, &[batch(&[[measured(1, &fact), additions()].concat()]), additions()].concat()), additions()].concat();
    assert_eq!(from_agent(&later), from_agent(&plain));
    let plain = bytes(1, &hello());
    let later = bytes(1, &[hello(), additions()].concat());
    assert_eq!(from_agent(&later), from_agent(&plain));
    let ack = [bytes(1, BOOT.as_bytes()), number(2, 12), number(3, 2)].concat();
    assert_eq!(to_agent(&bytes(2, &[ack.clone(), additions()].concat())), to_agent(&bytes(2, &ack)));
}

#[test]
fn a_word_or_a_message_that_is_not_known_is_seen_as_such() {
    // An outcome of a later version keeps its number, so that the refusal can name it; its neighbour is not touched.
    let sent = bytes(2, &batch(&[measured(1, &resolution(999)), measured(2, &resolution(1))]));
    let agent_message::Message::Batch(read) = from_agent(&sent) else { panic!("no Batch") };
    let outcomes: Vec<Result<v1::Outcome, i32>> = read
        .observations
        .iter()
        .map(|one| {
            let Some(observation::Fact::Resolution(fact)) = &one.fact else { panic!("no resolution") };
            v1::Outcome::try_from(fact.outcome).map_err(|_| fact.outcome)
        })
        .collect();
    assert_eq!(outcomes, [Err(999), Ok(v1::Outcome::Answered)]);
    // A kind of fact, of message, of task of a later version is none.
    let fact = [number(1, 1), number(3, 1), bytes(90, b"later")].concat();
    let agent_message::Message::Batch(read) = from_agent(&bytes(2, &batch(&[fact]))) else { panic!("no Batch") };
    assert_eq!(read.observations[0].fact, None);
    assert_eq!(v1::AgentMessage::decode(&*bytes(90, b"later")).unwrap().message, None);
    assert_eq!(v1::CoordinatorMessage::decode(&*bytes(90, b"later")).unwrap().message, None);
}
