//! DNS messages: the question we send, and a hostile reply read with bounds.
//!
//! A reply counts only when its id and question are ours. What its response code says stands,
//! whatever records come along; addresses count only when the chain of aliases from the name asked
//! for leads to them. Bytes after the end of the message are counted and ignored: some routers pad.

use std::net::IpAddr;
use std::str::FromStr as _;

use domain::base::Message;
use domain::base::header::HeaderCounts;
use domain::base::iana::{Class, Rcode, Rtype};
use domain::base::message_builder::MessageBuilder;
use domain::base::name::{Name, ToName as _};
use parallax_decide::names::DomainName;
use parallax_decide::observation::{Family, Outcome};

use self::chain::Chain;
use self::sections::Sections;
use crate::measured::ReplyParticulars;

mod chain;
mod sections;

/// Largest reply that is read, in bytes: all that a DNS message can be (RFC 1035, 4.2.2).
pub const REPLY_BYTES_MAX: usize = 65_535;

/// UDP payload we offer, in bytes: no fragmentation on usual paths (DNS flag day 2020).
pub const UDP_PAYLOAD: u16 = 1232;

/// Longest chain of aliases that is followed.
pub const CHAIN_MAX: usize = parallax_proto::CHAIN_MAX;

/// Size of a message's header in bytes (RFC 1035, 4.1.1).
const HEADER_BYTES: usize = 12;

/// The header's flags, without opcode and response code, in its second 16-bit word.
const FLAGS: u16 = 0x87f0;

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
    /// Addresses beyond the limit, which are left out.
    pub addresses_skipped: u32,
    /// Addresses of a reply whose code says failure: evidence, never contacted.
    pub addresses_not_used: Vec<IpAddr>,
    /// Smallest TTL of the address records, in seconds.
    pub ttl_s: u32,
    /// Extended DNS error (RFC 8914).
    pub extended_error: Option<u16>,
    /// What the server wrote beside it, for people.
    pub remark: String,
    /// AD bit.
    pub authentic_data: bool,
    /// TC bit: ask again over TCP.
    pub truncated: bool,
    /// The server did not understand the form of the question: ask again without EDNS.
    pub format_error: bool,
    /// Everything else that is kept of it.
    pub kept: ReplyParticulars,
}

/// Why bytes are no reply to the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// Another id: somebody else's, or forged.
    OtherId,
    /// Another question: somebody else's, or forged.
    OtherQuestion,
    /// A success without its question: an easy forgery.
    WithoutQuestion,
    /// The right id or none, but not a DNS reply that can be read.
    Malformed,
}

impl Reply {
    /// A reply of which nothing but the outcome is known yet.
    #[must_use]
    pub fn of(outcome: Outcome) -> Self {
        Self {
            outcome,
            addresses: Vec::new(),
            addresses_skipped: 0,
            addresses_not_used: Vec::new(),
            ttl_s: 0,
            extended_error: None,
            remark: String::new(),
            authentic_data: false,
            truncated: false,
            format_error: false,
            kept: ReplyParticulars::default(),
        }
    }

    /// The addresses it names, used or not.
    #[must_use]
    pub fn named(&self) -> &[IpAddr] {
        if self.addresses.is_empty() { &self.addresses_not_used } else { &self.addresses }
    }

    /// Whether another reply says the same: order and repetitions do not matter.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        let within = |one: &Self, other: &Self| one.named().iter().all(|address| other.named().contains(address));
        self.outcome == other.outcome && within(self, other) && within(other, self)
    }
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

    /// The question as a message; AD asks for the AD bit back (RFC 6840, 5.7), and with EDNS the
    /// server for its name (RFC 5001). `None` for a name that is no DNS name (longer than 255 bytes
    /// on the wire).
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
                    opt.client_nsid()
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
        let message = Message::from_slice(bytes).map_err(|_| Unfit::Malformed)?;
        let header = message.header();
        if header.id() != id {
            return Err(Unfit::OtherId);
        }
        if !header.qr() {
            return Err(Unfit::Malformed);
        }
        // A server that cannot read the question may send back the header alone, counts and all.
        let bare = bytes.len() == HEADER_BYTES && header.rcode() == Rcode::FORMERR;
        if !bare {
            self.check_question(message)?;
        }
        let counts = if bare { HeaderCounts::default() } else { message.header_counts() };
        let mut sections = match Sections::read(bytes, counts, self.rtype()) {
            Some(sections) => sections,
            // Some servers cut a message in the middle of a record. It is asked for again over TCP.
            None if header.tc() => Sections { end: bytes.len(), ..Sections::default() },
            None => return Err(Unfit::Malformed),
        };
        let name = self.dns_name().ok_or(Unfit::Malformed)?;
        let chain = Chain::follow(&name, &sections);
        let opt = sections.opt.take().unwrap_or_default();
        let rcode = opt.rcode_high << 4 | u16::from(header.rcode().to_int());
        let word = bytes.get(2..4).and_then(|word| word.try_into().ok()).map_or(0, u16::from_be_bytes);
        let mut reply = Reply {
            extended_error: opt.extended_error,
            remark: opt.extended_text,
            authentic_data: header.ad(),
            truncated: header.tc(),
            // NOTIMP: what some servers of before EDNS say to it (RFC 6891, 7).
            format_error: matches!(header.rcode(), Rcode::FORMERR | Rcode::NOTIMP),
            ..Reply::of(self.says(rcode, header.tc(), header.ra(), &sections, &chain))
        };
        reply.kept = ReplyParticulars {
            chain: chain.names,
            rcode,
            flags: word & FLAGS,
            nsid: opt.nsid,
            size: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            trailing: u32::try_from(bytes.len().saturating_sub(sections.end)).unwrap_or(u32::MAX),
            ..ReplyParticulars::default()
        };
        if reply.outcome == Outcome::Answered {
            reply.ttl_s = chain.ttls_s.iter().copied().min().unwrap_or(0);
            (reply.addresses, reply.addresses_skipped) = (chain.addresses, chain.skipped);
            reply.kept.ttls_s = chain.ttls_s;
        } else if !reply.truncated {
            reply.addresses_not_used = chain.addresses;
            reply.kept.negative_ttl_s = sections.negative_ttl_s;
        }
        Ok(reply)
    }

    /// The addresses that a datagram which is not the reply names, a few; for evidence.
    #[must_use]
    pub fn glimpse(&self, bytes: &[u8]) -> Vec<IpAddr> {
        let sections = Message::from_slice(bytes)
            .ok()
            .and_then(|message| Sections::read(bytes, message.header_counts(), self.rtype()))
            .unwrap_or_default();
        sections.addresses.iter().map(|(_, address, _)| *address).take(parallax_proto::ODD_REPLIES_MAX).collect()
    }

    /// The one word for it.
    fn says(&self, rcode: u16, truncated: bool, recurses: bool, sections: &Sections<'_>, chain: &Chain) -> Outcome {
        // Codes above 15 have their upper part in the OPT record (RFC 6891, 6.1.3): the lower alone would mislead.
        match rcode {
            0 if truncated => Outcome::Empty,
            0 if chain.looped => Outcome::CnameLoop,
            0 if !chain.addresses.is_empty() => Outcome::Answered,
            0 if !chain.names.is_empty() => Outcome::DanglingCname,
            0 if sections.answers == 0 && sections.referral && !(recurses && sections.negative_ttl_s.is_some()) => {
                Outcome::Referral
            }
            0 => Outcome::Empty,
            1 => Outcome::Formerr,
            2 => Outcome::Servfail,
            3 => Outcome::Nxdomain,
            5 => Outcome::Refused,
            _ => Outcome::OtherRcode,
        }
    }

    /// A reply repeats the question, in whatever case. Some servers leave it out of an error, so
    /// that is taken as ours by its id alone; a success without a question is an easy forgery and is not.
    fn check_question(&self, message: &Message<[u8]>) -> Result<(), Unfit> {
        match message.header_counts().qdcount() {
            0 if message.header().rcode() != Rcode::NOERROR => Ok(()),
            0 => Err(Unfit::WithoutQuestion),
            1 => {
                let question = message.sole_question().map_err(|_| Unfit::Malformed)?;
                let same = self.dns_name().is_some_and(|name| question.qname().name_eq(&name))
                    && question.qtype() == self.rtype()
                    && question.qclass() == Class::IN;
                if same { Ok(()) } else { Err(Unfit::OtherQuestion) }
            }
            _ => Err(Unfit::OtherQuestion),
        }
    }
}

#[cfg(test)]
mod tests;
