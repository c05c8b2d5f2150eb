//! One signed message over TCP and its verified reply.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use domain::base::Message;
use domain::base::iana::{Opcode, Rcode, TsigRcode};
use domain::rdata::tsig::{Time48, Tsig};
use domain::tsig::{ClientTransaction, Key, ValidationError};
use parallax_decide::names::DomainName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Clock;
use super::key::TsigAlgorithm;
use super::message::Draft;
use crate::Refusal;

/// Most bytes of a reply. 17 addresses of each family and a signature need under 1 KiB; what is larger
/// has far too many records to be ours.
const REPLY_BYTES_MAX: u16 = 16 << 10;

/// Why an exchange gave no verified reply.
#[derive(Debug)]
pub(super) enum Failure {
    /// The message did not leave.
    NotSent(String),
    /// Sent, and no whole reply came.
    Lost(String),
    /// A reply that is not one to this message, or is not signed by the key's holder.
    Garbage(String),
    /// The server does not accept the signature, and nothing proves that it was the server who said so.
    Refused(Refusal),
}

/// A server and the key it shares with us.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) key: Arc<Key>,
    pub(super) key_name: DomainName,
    pub(super) algorithm: TsigAlgorithm,
    pub(super) timeout: Duration,
    pub(super) clock: Clock,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DNS server {}", self.address)
    }
}

impl Server {
    /// Signs and sends a message on a connection of its own and verifies the reply.
    pub(super) async fn exchange(&self, mut draft: Draft) -> Result<Message<Vec<u8>>, Failure> {
        let transaction = ClientTransaction::request(Arc::clone(&self.key), &mut draft, self.now())
            .map_err(|error| Failure::NotSent(format!("a message too long to sign: {error}")))?;
        let sent = draft.finish();
        let mut written = false;
        let talk = async {
            let mut stream = TcpStream::connect(self.address).await.map_err(|e| Failure::NotSent(e.to_string()))?;
            written = true;
            stream.write_all(sent.as_stream_slice()).await.map_err(|error| lost(&error))?;
            let length = stream.read_u16().await.map_err(|error| lost(&error))?;
            if length > REPLY_BYTES_MAX {
                return Err(Failure::Garbage(format!("a reply of {length} bytes, over {REPLY_BYTES_MAX}")));
            }
            let mut reply = vec![0; usize::from(length)];
            stream.read_exact(&mut reply).await.map_err(|error| lost(&error))?;
            Ok(reply)
        };
        let reply = match timeout(self.timeout, talk).await {
            Ok(reply) => reply?,
            Err(_) if written => return Err(Failure::Lost(format!("no whole reply within {:?}", self.timeout))),
            Err(_) => return Err(Failure::NotSent(format!("no connection within {:?}", self.timeout))),
        };
        let asked = Message::from_octets(sent.as_dgram_slice()).map_err(|error| garbage(&error))?;
        self.verified(&transaction, &asked, reply)
    }

    fn verified(
        &self,
        transaction: &ClientTransaction<Arc<Key>>,
        asked: &Message<&[u8]>,
        reply: Vec<u8>,
    ) -> Result<Message<Vec<u8>>, Failure> {
        let mut reply = Message::from_octets(reply).map_err(|error| garbage(&error))?;
        let (header, question) = (reply.header(), asked.header());
        if !header.qr() || header.id() != question.id() || header.opcode() != question.opcode() {
            return Err(Failure::Garbage("a message that is not the reply to this one".to_owned()));
        }
        if let Err(error) = transaction.answer(&mut reply, self.now()) {
            return Err(match clock_difference(&reply) {
                Some(ahead_s) => Failure::Refused(Refusal::BadTime { ahead_s }),
                None => self.not_verified(&error, header.rcode()),
            });
        }
        if header.tc() {
            return Err(Failure::Garbage("a truncated reply over TCP".to_owned()));
        }
        // A refusal may leave the question out, and an update's reply its sections (RFC 2136, 3.8).
        let answers = header.rcode() == Rcode::NOERROR || header.rcode() == Rcode::NXDOMAIN;
        if header.opcode() == Opcode::QUERY && answers && reply.question() != asked.question() {
            return Err(Failure::Garbage("an answer to another question".to_owned()));
        }
        Ok(reply)
    }

    fn not_verified(&self, error: &ValidationError, rcode: Rcode) -> Failure {
        let key = self.key_name.clone();
        match error {
            ValidationError::ServerBadKey => {
                Failure::Refused(Refusal::BadKey { key, algorithm: self.algorithm.as_str() })
            }
            ValidationError::ServerBadSig => Failure::Refused(Refusal::BadSignature { key }),
            ValidationError::ServerUnsigned if rcode != Rcode::NOERROR => {
                Failure::Refused(Refusal::Unsigned { rcode: rcode.to_string() })
            }
            ValidationError::ServerUnsigned => {
                Failure::Garbage("an unsigned success, which is not believed".to_owned())
            }
            ValidationError::BadTime => {
                Failure::Garbage("a reply signed at a time that is not now: a replay, or its clock is wrong".to_owned())
            }
            ValidationError::BadAlg
            | ValidationError::BadOther
            | ValidationError::BadSig
            | ValidationError::BadTrunc
            | ValidationError::BadKey
            | ValidationError::FormErr
            | ValidationError::ServerBadTime { .. }
            | ValidationError::TooManyUnsigned => Failure::Garbage(format!("a reply with a wrong signature: {error}")),
        }
    }

    /// The clock's time as TSIG has it: 48 bits of seconds.
    fn now(&self) -> Time48 {
        let now: SystemTime = (self.clock)();
        let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Time48::from_u64(seconds.min((1 << 48) - 1))
    }
}

/// How far ahead of the server's clock ours is, in seconds, when that is what the reply complains about.
/// Read here, unverified: `domain` 0.12.3 digests the server's time as 8 bytes where RFC 8945, section
/// 4.3.3 has 6, and so takes every BADTIME for a bad signature.
fn clock_difference(reply: &Message<Vec<u8>>) -> Option<i64> {
    let record = reply.get_last_additional::<Tsig<_, _>>()?;
    let tsig = record.data();
    let server = tsig.other_time().filter(|_| tsig.error() == TsigRcode::BADTIME)?;
    Some(seconds(tsig.time_signed()).saturating_sub(seconds(server)))
}

fn seconds(time: Time48) -> i64 {
    i64::try_from(u64::from(time)).unwrap_or(i64::MAX)
}

fn lost(error: &std::io::Error) -> Failure {
    Failure::Lost(format!("the connection broke before its reply: {error}"))
}

fn garbage(error: &impl fmt::Display) -> Failure {
    Failure::Garbage(format!("what is not a DNS message: {error}"))
}

#[cfg(test)]
mod tests {
    use super::super::{key, message};
    use super::*;
    use domain::base::message_builder::MessageBuilder;
    use domain::base::{Name, Rtype};
    use domain::rdata::A;
    use domain::tsig::ServerTransaction;
    use secrecy::SecretString;

    fn server() -> Server {
        let secret = SecretString::from("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=");
        let (key_name, algorithm) = ("upd".parse().unwrap(), TsigAlgorithm::HmacSha256);
        let key = Arc::new(key::parse(&key_name, algorithm, &secret).unwrap());
        let clock: Clock = Arc::new(|| UNIX_EPOCH + Duration::from_secs(1_800_000_000));
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        Server { address, key, key_name, algorithm, timeout: Duration::ZERO, clock }
    }

    /// A question, what proves the reply, and a signed reply.
    fn exchange(server: &Server) -> (Vec<u8>, ClientTransaction<Arc<Key>>, Vec<u8>) {
        let name = Name::vec_from_str("fi.example.net").unwrap();
        let mut draft = message::query(&name, Rtype::A).unwrap();
        let client = ClientTransaction::request(Arc::clone(&server.key), &mut draft, server.now()).unwrap();
        let asked = draft.finish().as_dgram_slice().to_vec();
        let mut seen = Message::from_octets(asked.clone()).unwrap();
        let signer = ServerTransaction::request(&server.key, &mut seen, server.now()).unwrap().unwrap();
        let mut answer = MessageBuilder::new_vec().start_answer(&seen, Rcode::NOERROR).unwrap();
        answer.push((&name, 5, A::from_octets(95, 216, 10, 10))).unwrap();
        let mut answer = answer.additional();
        signer.answer(&mut answer, server.now()).unwrap();
        (asked, client, answer.finish())
    }

    #[test]
    fn no_changed_byte_changes_what_is_believed_and_none_panics() {
        let server = server();
        let (asked, client, reply) = exchange(&server);
        let asked = Message::from_octets(asked.as_slice()).unwrap();
        let name = Name::vec_from_str("fi.example.net").unwrap();
        let believed = |reply| {
            let verified = server.verified(&client, &asked, reply).ok()?;
            Some(message::addresses(&verified, &name, Rtype::A))
        };
        let truth = believed(reply.clone());
        assert!(matches!(truth, Some(Ok(_))));
        for position in 0..reply.len() {
            for flip in [0x01, 0x20, 0x80, 0xff] {
                let mut bad = reply.clone();
                bad[position] ^= flip;
                // The case of names and the signature record's own class and TTL may change: they say nothing.
                let found = believed(bad);
                assert!(found.is_none() || found == truth, "byte {position} changed by {flip:#x}");
            }
            assert_eq!(believed(reply[..position].to_vec()), None, "cut at {position}");
        }
    }

    #[test]
    fn a_reply_to_another_message_is_not_a_reply() {
        let server = server();
        let ((first, client, _), (.., mut reply)) = (exchange(&server), exchange(&server));
        // Even with the right id.
        reply[..2].copy_from_slice(&first[..2]);
        let first = Message::from_octets(first.as_slice()).unwrap();
        assert!(matches!(server.verified(&client, &first, reply), Err(Failure::Garbage(_))));
    }
}
