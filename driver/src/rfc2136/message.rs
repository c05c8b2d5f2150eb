//! The messages: a query, an update, and what an answer says.

use std::net::IpAddr;

use domain::base::iana::{Class, Opcode, Rtype};
use domain::base::message_builder::{AdditionalBuilder, MessageBuilder, PushError};
use domain::base::name::FromStrError;
use domain::base::rdata::{ComposeRecordData, RecordData};
use domain::base::wire::Composer;
use domain::base::{Message, Name, StreamTarget};
use domain::rdata::{A, Aaaa};
use parallax_decide::names::{ADDRESSES_MAX, Addresses, DomainName};

/// A name as it is sent.
pub(super) type WireName = Name<Vec<u8>>;
/// A message that is being built, with its length in front.
pub(super) type Draft = AdditionalBuilder<StreamTarget<Vec<u8>>>;

/// What an answer says about one type of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Addresses (perhaps none; at most one more than a set may hold) and their longest TTL in seconds.
    Addresses(Vec<IpAddr>, u32),
    /// Something else stands at the name.
    Foreign(String),
}

pub(super) fn wire_name(name: &DomainName) -> Result<WireName, FromStrError> {
    Name::vec_from_str(name.as_str())
}

/// A query for one type, without recursion: this server's own data are wanted.
pub(super) fn query(name: &WireName, rtype: Rtype) -> Result<Draft, PushError> {
    let mut builder = MessageBuilder::new_stream_vec();
    builder.header_mut().set_random_id();
    let mut question = builder.question();
    question.push((name, rtype, Class::IN))?;
    Ok(question.additional())
}

/// The update that turns `expects` into `sets` or does nothing (RFC 2136, sections 2.4 and 2.5): the
/// zone stands in the question section, prerequisites in the answer section, updates in the authority
/// section.
pub(super) fn update(
    zone: &WireName,
    name: &WireName,
    expects: &Addresses,
    sets: &Addresses,
    ttl_s: u32,
) -> Result<Draft, PushError> {
    let mut builder = MessageBuilder::new_stream_vec();
    builder.header_mut().set_random_id();
    builder.header_mut().set_opcode(Opcode::UPDATE);
    let mut question = builder.question();
    question.push((zone, Rtype::SOA, Class::IN))?;

    let mut prerequisites = question.answer();
    for rtype in [Rtype::A, Rtype::AAAA] {
        if of_type(expects, rtype).next().is_none() {
            // "RRset does not exist": a stranger's other family is a conflict too.
            prerequisites.push((name, Class::NONE, 0, Empty(rtype)))?;
        }
    }
    for address in expects.iter() {
        match address {
            IpAddr::V4(v4) => prerequisites.push((name, Class::IN, 0, A::new(v4)))?,
            IpAddr::V6(v6) => prerequisites.push((name, Class::IN, 0, Aaaa::new(v6)))?,
        }
    }

    let mut updates = prerequisites.authority();
    for rtype in [Rtype::A, Rtype::AAAA] {
        if of_type(expects, rtype).next().is_some() {
            updates.push((name, Class::ANY, 0, Empty(rtype)))?;
        }
    }
    for address in sets.iter() {
        match address {
            IpAddr::V4(v4) => updates.push((name, Class::IN, ttl_s, A::new(v4)))?,
            IpAddr::V6(v6) => updates.push((name, Class::IN, ttl_s, Aaaa::new(v6)))?,
        }
    }
    Ok(updates.additional())
}

/// Reads the answer section of a reply to [`query`].
///
/// # Errors
/// A text that says what is malformed.
pub(super) fn addresses(reply: &Message<Vec<u8>>, name: &WireName, rtype: Rtype) -> Result<Answer, String> {
    let section = reply.answer().map_err(|error| format!("a malformed question: {error}"))?;
    let (mut found, mut longest_s) = (Vec::new(), 0);
    for record in section {
        let record = record.map_err(|error| format!("a malformed answer: {error}"))?;
        if record.rtype() != rtype || record.owner() != name || record.class() != Class::IN {
            // A CNAME or DNAME: whatever follows is not this name's own address.
            return Ok(Answer::Foreign(format!("{} {}", record.owner(), record.rtype())));
        }
        let malformed = |error| format!("a malformed {rtype} record: {error}");
        let address: Option<IpAddr> = if rtype == Rtype::A {
            record.to_record::<A>().map_err(malformed)?.map(|record| record.data().addr().into())
        } else {
            record.to_record::<Aaaa>().map_err(malformed)?.map(|record| record.data().addr().into())
        };
        let address = address.ok_or_else(|| format!("a {} record in place of {rtype}", record.rtype()))?;
        if found.len() <= ADDRESSES_MAX {
            found.push(address);
        }
        longest_s = longest_s.max(record.ttl().as_secs());
    }
    Ok(Answer::Addresses(found, longest_s))
}

fn of_type(addresses: &Addresses, rtype: Rtype) -> impl Iterator<Item = IpAddr> + '_ {
    addresses.iter().filter(move |address| address.is_ipv4() == (rtype == Rtype::A))
}

/// The data of a record that has none: "any value of this type" in prerequisites and deletions.
struct Empty(Rtype);

impl RecordData for Empty {
    fn rtype(&self) -> Rtype {
        self.0
    }
}

impl ComposeRecordData for Empty {
    fn rdlen(&self, _compress: bool) -> Option<u16> {
        Some(0)
    }

    fn compose_rdata<Target: Composer + ?Sized>(&self, _target: &mut Target) -> Result<(), Target::AppendError> {
        Ok(())
    }

    fn compose_canonical_rdata<Target: Composer + ?Sized>(
        &self,
        _target: &mut Target,
    ) -> Result<(), Target::AppendError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::base::iana::Rcode;

    fn name(text: &str) -> WireName {
        wire_name(&text.parse().unwrap()).unwrap()
    }

    fn set(texts: &[&str]) -> Addresses {
        Addresses::new(texts.iter().map(|text| text.parse().unwrap())).unwrap()
    }

    fn message(draft: Draft) -> Message<Vec<u8>> {
        Message::from_octets(draft.finish().as_dgram_slice().to_vec()).unwrap()
    }

    fn lines<'a>(section: impl Iterator<Item = domain::base::ParsedRecord<'a, Vec<u8>>>) -> Vec<String> {
        section.map(|r| format!("{} {} {} {}", r.class(), r.rtype(), r.ttl().as_secs(), r.rdlen())).collect()
    }

    #[test]
    fn an_update_names_whole_sets_of_both_families() {
        let draft = update(
            &name("example.net"),
            &name("fi.example.net"),
            &set(&["95.216.10.10", "95.216.10.11"]),
            &set(&["49.12.20.20", "2a01:4f8::1"]),
            5,
        );
        let update = message(draft.unwrap());
        assert_eq!(update.header().opcode(), Opcode::UPDATE);
        let zone = update.sole_question().unwrap();
        assert_eq!((zone.qname().to_string(), zone.qtype()), ("example.net".to_owned(), Rtype::SOA));
        let prerequisites = lines(update.answer().unwrap().map(Result::unwrap));
        assert_eq!(prerequisites, ["NONE AAAA 0 0", "IN A 0 4", "IN A 0 4"]);
        let updates = lines(update.authority().unwrap().map(Result::unwrap));
        assert_eq!(updates, ["* A 0 0", "IN A 5 4", "IN AAAA 5 16"]);
    }

    fn reply(records: impl FnOnce(&mut domain::base::message_builder::AnswerBuilder<Vec<u8>>)) -> Message<Vec<u8>> {
        let query = message(query(&name("fi.example.net"), Rtype::A).unwrap());
        let mut answer = MessageBuilder::new_vec().start_answer(&query, Rcode::NOERROR).unwrap();
        records(&mut answer);
        Message::from_octets(answer.finish()).unwrap()
    }

    #[test]
    fn an_alias_is_foreign_whatever_follows_it() {
        let target = name("elsewhere.example.org");
        let alias = reply(|answer| {
            answer.push((name("fi.example.net"), 5, domain::rdata::Cname::new(target.clone()))).unwrap();
            answer.push((target.clone(), 5, A::from_octets(1, 1, 1, 1))).unwrap();
        });
        let answer = addresses(&alias, &name("fi.example.net"), Rtype::A).unwrap();
        assert_eq!(answer, Answer::Foreign("fi.example.net CNAME".to_owned()));
    }

    #[test]
    fn more_addresses_than_a_set_holds_are_seen_but_not_kept() {
        let many = reply(|answer| {
            (0..200).for_each(|n| answer.push((name("FI.example.net"), 5, A::from_octets(95, 216, 10, n))).unwrap());
        });
        let answer = addresses(&many, &name("fi.example.net"), Rtype::A).unwrap();
        assert!(matches!(answer, Answer::Addresses(found, 5) if found.len() == ADDRESSES_MAX + 1));
    }

    #[test]
    fn no_byte_of_an_answer_can_make_it_panic() {
        let good = reply(|answer| {
            answer.push((name("fi.example.net"), 5, A::from_octets(95, 216, 10, 10))).unwrap();
            answer.push((name("fi.example.net"), 9, A::from_octets(95, 216, 10, 11))).unwrap();
        })
        .into_octets();
        for position in 0..good.len() {
            for value in [0, 1, 0x3f, 0x40, 0xc0, 0xff] {
                let mut bad = good.clone();
                bad[position] = value;
                let _either = addresses(&Message::from_octets(bad).unwrap(), &name("fi.example.net"), Rtype::A);
            }
            if let Ok(cut) = Message::from_octets(good[..position].to_vec()) {
                assert!(addresses(&cut, &name("fi.example.net"), Rtype::A).is_err(), "cut at {position}");
            }
        }
    }
}
