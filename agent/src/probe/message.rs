//! DNS messages: the question we send, and a hostile reply read with bounds.
//!
//! A reply counts only when its id and question are ours. What its response code says stands,
//! whatever records come along; addresses count only when the chain of aliases from the name asked
//! for leads to them. Bytes after the end of the message are ignored: some routers pad.

use std::net::IpAddr;
use std::str::FromStr as _;

use domain::base::iana::{Class, OptRcode, Rcode, Rtype};
use domain::base::message_builder::MessageBuilder;
use domain::base::name::{Name, ToName as _};
use domain::base::opt::ExtendedError;
use domain::base::{Message, ParsedName};
use domain::rdata::{A, Aaaa, Cname};
use parallax_decide::names::DomainName;
use parallax_decide::observation::{Family, Outcome};

/// Largest reply that is read, in bytes: all that a DNS message can be (RFC 1035, 4.2.2).
pub const REPLY_BYTES_MAX: usize = 65_535;

/// UDP payload we offer, in bytes: no fragmentation on usual paths (DNS flag day 2020).
pub const UDP_PAYLOAD: u16 = 1232;

/// Longest chain of aliases that is followed.
pub const CHAIN_MAX: usize = 8;

/// Most answer records that are looked at.
const RECORDS_MAX: usize = 256;

type OwnedName = Name<Vec<u8>>;

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Name asked for.
    pub name: DomainName,
    /// A or AAAA.
    pub family: Family,
}

/// What a reply says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Answered, empty, or the response code's word.
    pub outcome: Outcome,
    /// Addresses in answer order, without repetitions; empty unless answered.
    pub addresses: Vec<IpAddr>,
    /// Smallest TTL of the address records, in seconds.
    pub ttl_s: u32,
    /// Extended DNS error (RFC 8914).
    pub extended_error: Option<u16>,
    /// AD bit.
    pub authentic_data: bool,
    /// TC bit: ask again over TCP.
    pub truncated: bool,
    /// The server did not understand the form of the question: ask again without EDNS.
    pub format_error: bool,
}

/// Why bytes are no reply to the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// Another id or question, or no reply at all: somebody else's, keep waiting.
    NotOurs,
    /// The right id, but not a DNS message that can be read.
    Malformed,
}

impl Question {
    fn rtype(&self) -> Rtype {
        match self.family {
            Family::V4 => Rtype::A,
            Family::V6 => Rtype::AAAA,
        }
    }

    fn dns_name(&self) -> Option<OwnedName> {
        Name::from_str(self.name.as_str()).ok()
    }

    /// The question as a message; AD asks for the AD bit back (RFC 6840, 5.7). `None` for a name
    /// that is no DNS name (longer than 255 bytes on the wire).
    #[must_use]
    pub fn message(&self, id: u16, edns: bool) -> Option<Vec<u8>> {
        let mut message = MessageBuilder::new_vec();
        message.header_mut().set_id(id);
        message.header_mut().set_rd(true);
        message.header_mut().set_ad(true);
        let mut question = message.question();
        question.push((self.dns_name()?, self.rtype())).ok()?;
        let mut additional = question.additional();
        if edns {
            additional
                .opt(|opt| {
                    opt.set_udp_payload_size(UDP_PAYLOAD);
                    Ok(())
                })
                .ok()?;
        }
        Some(additional.finish())
    }

    /// Reads a reply.
    ///
    /// # Errors
    /// When the bytes are not a reply to this question.
    pub fn read(&self, id: u16, bytes: &[u8]) -> Result<Reply, Unfit> {
        if bytes.get(..2) != Some(&id.to_be_bytes()) {
            return Err(Unfit::NotOurs);
        }
        let message = Message::from_octets(bytes).map_err(|_| Unfit::Malformed)?;
        let header = message.header();
        if !header.qr() {
            return Err(Unfit::NotOurs);
        }
        self.check_question(&message)?;
        let mut reply = Reply {
            outcome: Outcome::OtherRcode,
            addresses: Vec::new(),
            ttl_s: 0,
            extended_error: extended_error(&message),
            authentic_data: header.ad(),
            truncated: header.tc(),
            format_error: header.rcode() == Rcode::FORMERR,
        };
        let code = header.rcode();
        reply.outcome = if code == Rcode::NOERROR && message.opt_rcode() != OptRcode::NOERROR {
            // The code goes on in the OPT record (RFC 6891, 6.1.3): its lower part alone looks like success.
            Outcome::OtherRcode
        } else if code == Rcode::NOERROR {
            if !reply.truncated {
                (reply.addresses, reply.ttl_s) = self.addresses(&message)?;
            }
            match reply.addresses.is_empty() {
                true => Outcome::Empty,
                false => Outcome::Answered,
            }
        } else if code == Rcode::NXDOMAIN {
            Outcome::Nxdomain
        } else if code == Rcode::SERVFAIL {
            Outcome::Servfail
        } else if code == Rcode::REFUSED {
            Outcome::Refused
        } else {
            Outcome::OtherRcode
        };
        Ok(reply)
    }

    /// A reply repeats the question. Some servers leave it out of an error, so that is taken as
    /// ours by its id alone; a success without a question is an easy forgery and is not.
    fn check_question(&self, message: &Message<&[u8]>) -> Result<(), Unfit> {
        match message.header_counts().qdcount() {
            0 if message.header().rcode() != Rcode::NOERROR => Ok(()),
            1 => {
                let question = message.sole_question().map_err(|_| Unfit::Malformed)?;
                let same = self.dns_name().is_some_and(|name| question.qname().name_eq(&name))
                    && question.qtype() == self.rtype()
                    && question.qclass() == Class::IN;
                if same { Ok(()) } else { Err(Unfit::NotOurs) }
            }
            _ => Err(Unfit::NotOurs),
        }
    }

    /// The addresses the chain of aliases leads to, at most
    /// [`parallax_decide::names::ADDRESSES_MAX`], and their smallest TTL.
    fn addresses(&self, message: &Message<&[u8]>) -> Result<(Vec<IpAddr>, u32), Unfit> {
        let malformed = |_| Unfit::Malformed;
        let mut aliases: Vec<(OwnedName, OwnedName)> = Vec::new();
        let mut found: Vec<(OwnedName, IpAddr, u32)> = Vec::new();
        for record in message.answer().map_err(malformed)?.take(RECORDS_MAX) {
            let record = record.map_err(malformed)?;
            if record.class() != Class::IN {
                continue;
            }
            let owner = record.owner().to_vec();
            // A TTL with the top bit set is zero (RFC 2181, 8).
            let ttl_s = i32::try_from(record.ttl().as_secs()).map_or(0, i32::unsigned_abs);
            let address = match record.rtype() {
                Rtype::CNAME => {
                    let alias = record.to_record::<Cname<ParsedName<&[u8]>>>().map_err(|_| Unfit::Malformed)?;
                    if let Some(alias) = alias {
                        aliases.push((owner, alias.data().cname().to_vec()));
                    }
                    continue;
                }
                Rtype::A if self.family == Family::V4 => record
                    .to_record::<A>()
                    .map_err(|_| Unfit::Malformed)?
                    .map(|record| IpAddr::V4(record.data().addr())),
                Rtype::AAAA if self.family == Family::V6 => record
                    .to_record::<Aaaa>()
                    .map_err(|_| Unfit::Malformed)?
                    .map(|record| IpAddr::V6(record.data().addr())),
                _ => None,
            };
            if let Some(address) = address {
                found.push((owner, address, ttl_s));
            }
        }
        let mut name = self.dns_name().ok_or(Unfit::Malformed)?;
        let mut followed = 0;
        while let Some((_, target)) = aliases.iter().find(|(owner, _)| *owner == name) {
            followed += 1;
            if followed > CHAIN_MAX {
                return Err(Unfit::Malformed);
            }
            name = target.clone();
        }
        let (mut addresses, mut smallest) = (Vec::new(), None);
        for (_, address, ttl_s) in found.iter().filter(|(owner, ..)| *owner == name) {
            smallest = Some(smallest.map_or(*ttl_s, |ttl: u32| ttl.min(*ttl_s)));
            if !addresses.contains(address) && addresses.len() < parallax_decide::names::ADDRESSES_MAX {
                addresses.push(*address);
            }
        }
        Ok((addresses, smallest.unwrap_or(0)))
    }
}

fn extended_error(message: &Message<&[u8]>) -> Option<u16> {
    let opt = message.opt()?;
    opt.opt().iter::<ExtendedError<_>>().find_map(Result::ok).map(|error| error.code().to_int())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: u16 = 0x1234;

    fn question(family: Family) -> Question {
        Question { name: "example.com".parse().unwrap(), family }
    }

    /// A reply with the given code and answer records, as zone-file-like triples.
    fn reply(question: &Question, code: Rcode, records: &[(&str, u32, &str)]) -> Vec<u8> {
        let mut message = MessageBuilder::new_vec();
        message.header_mut().set_id(ID);
        message.header_mut().set_qr(true);
        message.header_mut().set_rcode(code);
        let mut body = message.question();
        body.push((question.dns_name().unwrap(), question.rtype())).unwrap();
        let mut answer = body.answer();
        for (owner, ttl, data) in records {
            let owner = Name::<Vec<u8>>::from_str(owner).unwrap();
            let ttl = domain::base::Ttl::from_secs(*ttl);
            match data.parse::<IpAddr>() {
                Ok(IpAddr::V4(v4)) => answer.push((owner, Class::IN, ttl, A::new(v4))).unwrap(),
                Ok(IpAddr::V6(v6)) => answer.push((owner, Class::IN, ttl, Aaaa::new(v6))).unwrap(),
                Err(_) => {
                    let target = Name::<Vec<u8>>::from_str(data).unwrap();
                    answer.push((owner, Class::IN, ttl, Cname::new(target))).unwrap();
                }
            }
        }
        answer.finish()
    }

    #[test]
    fn a_question_is_a_recursive_query_with_edns() {
        let bytes = question(Family::V6).message(ID, true).unwrap();
        let message = Message::from_octets(&bytes).unwrap();
        assert!(message.header().rd() && message.header().ad() && !message.header().qr());
        assert_eq!(message.sole_question().unwrap().qtype(), Rtype::AAAA);
        assert_eq!(message.opt().unwrap().udp_payload_size(), UDP_PAYLOAD);
        let plain = question(Family::V4).message(ID, false).unwrap();
        assert!(Message::from_octets(&plain).unwrap().opt().is_none());
    }

    #[test]
    fn addresses_come_in_order_through_aliases_with_the_smallest_ttl() {
        let q = question(Family::V4);
        let bytes = reply(
            &q,
            Rcode::NOERROR,
            &[
                ("EXAMPLE.com", 60, "www.example.net"),
                ("www.example.net", 300, "8.47.69.0"),
                ("www.example.net", 20, "8.6.112.0"),
                ("www.example.net", 20, "8.6.112.0"),
                ("elsewhere.example", 1, "9.9.9.9"),
            ],
        );
        let reply = q.read(ID, &bytes).unwrap();
        assert_eq!(reply.outcome, Outcome::Answered);
        assert_eq!(reply.addresses, ["8.47.69.0".parse::<IpAddr>().unwrap(), "8.6.112.0".parse().unwrap()]);
        assert_eq!(reply.ttl_s, 20);
    }

    #[test]
    fn somebody_elses_reply_is_not_ours() {
        let q = question(Family::V4);
        let good = reply(&q, Rcode::NOERROR, &[("example.com", 60, "8.6.112.0")]);
        assert_eq!(q.read(ID + 1, &good), Err(Unfit::NotOurs), "wrong id");
        assert_eq!(question(Family::V6).read(ID, &good), Err(Unfit::NotOurs), "wrong type");
        let other = Question { name: "example.org".parse().unwrap(), family: Family::V4 };
        assert_eq!(other.read(ID, &good), Err(Unfit::NotOurs), "wrong name");
        assert_eq!(q.read(ID, &q.message(ID, true).unwrap()), Err(Unfit::NotOurs), "our own question back");
        assert_eq!(q.read(ID, &[]), Err(Unfit::NotOurs));
    }

    #[test]
    fn a_success_without_its_question_is_not_ours_but_an_error_is() {
        let q = question(Family::V4);
        let bare = |code: u8| {
            let mut bytes = ID.to_be_bytes().to_vec();
            bytes.extend([0x80, code, 0, 0, 0, 0, 0, 0, 0, 0]);
            bytes
        };
        assert_eq!(q.read(ID, &bare(0)), Err(Unfit::NotOurs));
        assert_eq!(q.read(ID, &bare(5)).unwrap().outcome, Outcome::Refused);
        assert!(q.read(ID, &bare(1)).unwrap().format_error);
    }

    #[test]
    fn the_code_rules_whatever_records_come_along() {
        let q = question(Family::V4);
        for (code, outcome) in [
            (Rcode::SERVFAIL, Outcome::Servfail),
            (Rcode::REFUSED, Outcome::Refused),
            (Rcode::NXDOMAIN, Outcome::Nxdomain),
            (Rcode::NOTIMP, Outcome::OtherRcode),
        ] {
            let read = q.read(ID, &reply(&q, code, &[("example.com", 60, "8.6.112.0")])).unwrap();
            assert_eq!((read.outcome, read.addresses), (outcome, vec![]));
        }
        assert_eq!(q.read(ID, &reply(&q, Rcode::NOERROR, &[])).unwrap().outcome, Outcome::Empty);
    }

    #[test]
    fn a_code_that_goes_on_in_the_opt_record_is_no_success() {
        let q = question(Family::V4);
        let mut bytes = q.message(ID, true).unwrap();
        bytes[2] |= 0x80;
        assert_eq!(q.read(ID, &bytes).unwrap().outcome, Outcome::Empty);
        // The OPT record ends the message: root, type (2), class (2), extended code, …, length (2).
        let extended = bytes.len() - 6;
        bytes[extended] = 1;
        assert_eq!(q.read(ID, &bytes).unwrap().outcome, Outcome::OtherRcode, "BADVERS");
    }

    #[test]
    fn a_loop_of_aliases_and_a_chain_too_long_are_malformed() {
        let q = question(Family::V4);
        let looped = [("example.com", 60, "b.example"), ("b.example", 60, "example.com")];
        assert_eq!(q.read(ID, &reply(&q, Rcode::NOERROR, &looped)), Err(Unfit::Malformed));
        let names: Vec<String> = (0..20).map(|i| format!("n{i}.example")).collect();
        let mut chain = vec![("example.com", 60, names[0].as_str())];
        chain.extend(names.windows(2).map(|pair| (pair[0].as_str(), 60, pair[1].as_str())));
        chain.truncate(CHAIN_MAX);
        assert_eq!(q.read(ID, &reply(&q, Rcode::NOERROR, &chain)).unwrap().outcome, Outcome::Empty);
        chain.push((names[CHAIN_MAX - 1].as_str(), 60, names[CHAIN_MAX].as_str()));
        assert_eq!(q.read(ID, &reply(&q, Rcode::NOERROR, &chain)), Err(Unfit::Malformed));
    }

    #[test]
    fn every_truncation_is_malformed_or_not_ours_and_padding_is_ignored() {
        let q = question(Family::V4);
        let good = reply(&q, Rcode::NOERROR, &[("example.com", 60, "8.6.112.0"), ("example.com", 60, "8.47.69.0")]);
        for cut in 0..good.len() {
            assert!(q.read(ID, &good[..cut]).is_err(), "cut at {cut}");
        }
        let padded = [good.as_slice(), &[0; 40]].concat();
        assert_eq!(q.read(ID, &padded), q.read(ID, &good));
    }

    #[test]
    fn a_pointer_to_itself_ends() {
        let q = question(Family::V4);
        let mut bytes = reply(&q, Rcode::NOERROR, &[]);
        bytes[7] = 1;
        let here = u8::try_from(bytes.len()).unwrap();
        bytes.extend([0xc0, here, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 8, 6, 112, 0]);
        assert_eq!(q.read(ID, &bytes), Err(Unfit::Malformed));
    }

    #[test]
    fn at_most_sixteen_addresses_are_kept() {
        let q = question(Family::V4);
        let texts: Vec<String> = (0..64).map(|i| format!("8.8.4.{i}")).collect();
        let records: Vec<_> = texts.iter().map(|text| ("example.com", 60, text.as_str())).collect();
        assert_eq!(q.read(ID, &reply(&q, Rcode::NOERROR, &records)).unwrap().addresses.len(), 16);
    }

    #[test]
    fn truncation_is_flagged_and_its_partial_records_are_left_alone() {
        let q = question(Family::V4);
        let mut bytes = reply(&q, Rcode::NOERROR, &[("example.com", 60, "8.6.112.0")]);
        bytes[2] |= 2;
        let read = q.read(ID, &bytes).unwrap();
        assert!(read.truncated && read.addresses.is_empty());
    }

    #[test]
    fn random_bytes_never_panic() {
        let q = question(Family::V4);
        let good = reply(&q, Rcode::NOERROR, &[("example.com", 60, "b.example"), ("b.example", 60, "8.6.112.0")]);
        for position in 2..good.len() {
            for value in [0, 1, 0x3f, 0x7f, 0xc0, 0xff] {
                let mut bytes = good.clone();
                bytes[position] = value;
                let _ = q.read(ID, &bytes);
            }
        }
    }
}
