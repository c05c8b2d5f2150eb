//! The records of a message, walked once from its first to its last byte.
//!
//! The walk is bounded by the message's own size: the names of the first records are parsed (each
//! follows at most 255 pointers, which lead backwards only), later ones are stepped over.

use std::net::IpAddr;

use domain::base::header::HeaderCounts;
use domain::base::iana::{Class, Rtype};
use domain::base::{ParsedName, Ttl};
use domain::dep::octseq::Parser;

use super::HEADER_BYTES;
use crate::probe::remark::harmless;

/// Most records that are looked at.
pub(super) const RECORDS_MAX: usize = 256;

/// Longest text of an extended error that is kept, in bytes.
const EXTENDED_TEXT_MAX: usize = 120;

/// Option codes of an OPT record: RFC 5001 and RFC 8914.
const NSID: u16 = 3;
const EXTENDED_ERROR: u16 = 15;

/// A name of the message.
pub(super) type MessageName<'a> = ParsedName<&'a [u8]>;

/// What the records of a message say, as far as it is of use here.
#[derive(Debug, Default)]
pub(super) struct Sections<'a> {
    /// CNAME records of the answer: owner and target.
    pub(super) aliases: Vec<(MessageName<'a>, MessageName<'a>)>,
    /// Address records of the answer of the family asked for.
    pub(super) addresses: Vec<(MessageName<'a>, IpAddr, u32)>,
    /// How many records the answer has.
    pub(super) answers: usize,
    /// There are name servers in the authority section.
    pub(super) referral: bool,
    /// How long a negative answer may be kept (RFC 2308, 5), when there is a SOA record.
    pub(super) negative_ttl_s: Option<u32>,
    /// The OPT record.
    pub(super) opt: Option<Options>,
    /// Where the message ends by its counts.
    pub(super) end: usize,
}

/// What an OPT record says (RFC 6891).
#[derive(Debug, Default)]
pub(super) struct Options {
    /// Upper eight bits of the response code.
    pub(super) rcode_high: u16,
    pub(super) nsid: Vec<u8>,
    pub(super) extended_error: Option<u16>,
    pub(super) extended_text: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Answer,
    Authority,
    Additional,
}

struct Record<'a> {
    owner: MessageName<'a>,
    rtype: Rtype,
    class: u16,
    ttl: u32,
    /// Stands at the data; ends where the data end, though names in it may point before it.
    data: Parser<'a, [u8]>,
    length: usize,
}

impl<'a> Sections<'a> {
    /// Walks the message; `None` when it contradicts its own counts or lengths.
    pub(super) fn read(bytes: &'a [u8], counts: HeaderCounts, wanted: Rtype) -> Option<Self> {
        let mut parser = Parser::from_ref(bytes);
        parser.advance(HEADER_BYTES).ok()?;
        for _ in 0..counts.qdcount() {
            ParsedName::skip(&mut parser).ok()?;
            parser.advance(4).ok()?;
        }
        let mut sections = Self { answers: usize::from(counts.ancount()), ..Self::default() };
        let mut looked = 0;
        for (section, count) in [
            (Section::Answer, counts.ancount()),
            (Section::Authority, counts.nscount()),
            (Section::Additional, counts.arcount()),
        ] {
            for _ in 0..count {
                if looked < RECORDS_MAX {
                    looked += 1;
                    let record = Record::parse(&mut parser)?;
                    sections.take(section, record, wanted)?;
                } else {
                    Record::skip(&mut parser)?;
                }
            }
        }
        sections.end = parser.pos();
        Some(sections)
    }

    /// Takes what is of use; `None` when the record's data are broken.
    fn take(&mut self, section: Section, mut record: Record<'a>, wanted: Rtype) -> Option<()> {
        if section == Section::Additional && record.rtype == Rtype::OPT {
            // The first one counts; a second is forbidden (RFC 6891, 6.1.1).
            if self.opt.is_none() {
                self.opt = Some(Options::read(&record)?);
            }
            return Some(());
        }
        if record.class != Class::IN.to_int() {
            return Some(());
        }
        let (at, ttl_s) = (record.data.pos(), seconds(record.ttl));
        match (section, record.rtype) {
            (Section::Answer, Rtype::CNAME) => {
                let target = MessageName::parse(&mut record.data).ok()?;
                self.aliases.push((record.owner, target));
            }
            (Section::Answer, Rtype::A) if wanted == Rtype::A => {
                let address: [u8; 4] = octets(&mut record.data)?;
                self.addresses.push((record.owner, address.into(), ttl_s));
            }
            (Section::Answer, Rtype::AAAA) if wanted == Rtype::AAAA => {
                let address: [u8; 16] = octets(&mut record.data)?;
                self.addresses.push((record.owner, address.into(), ttl_s));
            }
            (Section::Authority, Rtype::NS) => {
                self.referral = true;
                return Some(());
            }
            (Section::Authority, Rtype::SOA) => {
                ParsedName::skip(&mut record.data).ok()?;
                ParsedName::skip(&mut record.data).ok()?;
                // Serial, refresh, retry and expire stand before the minimum.
                record.data.advance(16).ok()?;
                let minimum = u32::from_be_bytes(octets(&mut record.data)?);
                self.negative_ttl_s = Some(ttl_s.min(seconds(minimum)));
            }
            _ => return Some(()),
        }
        // The data are exactly as long as they say.
        (record.data.pos() - at == record.length).then_some(())
    }
}

impl<'a> Record<'a> {
    fn parse(parser: &mut Parser<'a, [u8]>) -> Option<Self> {
        let owner = MessageName::parse(parser).ok()?;
        let (rtype, class) = (parser.parse_u16_be().ok()?, parser.parse_u16_be().ok()?);
        let ttl = parser.parse_u32_be().ok()?;
        let length = usize::from(parser.parse_u16_be().ok()?);
        let data = *parser;
        parser.advance(length).ok()?;
        Some(Self { owner, rtype: Rtype::from_int(rtype), class, ttl, data, length })
    }

    fn skip(parser: &mut Parser<'_, [u8]>) -> Option<()> {
        ParsedName::skip(parser).ok()?;
        parser.advance(8).ok()?;
        let length = usize::from(parser.parse_u16_be().ok()?);
        parser.advance(length).ok()
    }
}

impl Options {
    fn read(record: &Record<'_>) -> Option<Self> {
        let mut options = Self { rcode_high: u16::from(record.ttl.to_be_bytes()[0]), ..Self::default() };
        let mut data = record.data;
        let mut left = record.length;
        while left > 0 {
            let (code, length) = (data.parse_u16_be().ok()?, usize::from(data.parse_u16_be().ok()?));
            left = left.checked_sub(4)?.checked_sub(length)?;
            let value = data.parse_octets(length).ok()?;
            if code == NSID {
                options.nsid = value.iter().copied().take(parallax_proto::NSID_BYTES_MAX).collect();
            } else if code == EXTENDED_ERROR && options.extended_error.is_none() {
                let (info, text) = value.split_first_chunk::<2>()?;
                options.extended_error = Some(u16::from_be_bytes(*info));
                let text = text.get(..EXTENDED_TEXT_MAX).unwrap_or(text);
                options.extended_text = harmless(&String::from_utf8_lossy(text), EXTENDED_TEXT_MAX);
            }
        }
        Some(options)
    }
}

/// A TTL with the top bit set is zero (RFC 2181, 8).
fn seconds(ttl: u32) -> u32 {
    i32::try_from(Ttl::from_secs(ttl).as_secs()).map_or(0, i32::unsigned_abs)
}

fn octets<const N: usize>(parser: &mut Parser<'_, [u8]>) -> Option<[u8; N]> {
    let mut octets = [0; N];
    parser.parse_buf(&mut octets).ok()?;
    Some(octets)
}
