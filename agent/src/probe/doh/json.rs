//! The JSON form of an answer, made into the DNS message it stands for.
//!
//! There is no standard: the large public services agree on `Status`, flags, `Question`, `Answer`
//! and `Authority`, and on little else. The document is parsed into bounded records and written as
//! a DNS message, so that one reader ([`Question::read`]) judges answers of every form. What it may
//! look like besides (other fields, another order, numbers as texts, names with and without the
//! closing dot) does not matter; a document without `Status` is no answer.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr as _;

use domain::base::iana::{Class, ExtendedErrorCode, OptRcode, Rcode, Rtype};
use domain::base::message_builder::MessageBuilder;
use domain::base::name::Name;
use domain::base::opt::ExtendedError;
use domain::base::{Serial, Ttl};
use domain::rdata::{A, Aaaa, Cname, Ns, Soa};
use parallax_decide::observation::Family;
use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, SeqAccess, Visitor};

use crate::probe::message::{Question, Unfit};

/// Most records of one section that are kept; the rest is read and forgotten.
const RECORDS_MAX: usize = 256;

/// Longest comment that is kept for people, in bytes.
const COMMENT_BYTES_MAX: usize = 512;

type OwnedName = Name<Vec<u8>>;

/// A document as the message it stands for, and what else it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The message, with id 0 and the question asked.
    pub message: Vec<u8>,
    /// Its comment, as it came.
    pub comment: String,
}

/// Writes the document that answers a question as a DNS message.
///
/// # Errors
/// When it is no such document, or the answer to another question.
pub fn written(question: &Question, document: &[u8]) -> Result<Written, Unfit> {
    let document: Document = serde_json::from_slice(document).map_err(|error| {
        tracing::debug!(%error, "not a DNS answer in JSON");
        Unfit::Malformed
    })?;
    if !document.question.0.iter().all(|asked| asked.is(question)) {
        return Err(Unfit::OtherQuestion);
    }
    let message = document.message(question).ok_or(Unfit::Malformed)?;
    Ok(Written { message, comment: document.comment.0 })
}

#[derive(Debug, Deserialize)]
struct Document {
    #[serde(rename = "Status")]
    status: Number,
    #[serde(rename = "TC", default)]
    truncated: bool,
    #[serde(rename = "RD", default)]
    recursion_desired: bool,
    #[serde(rename = "RA", default)]
    recursion_available: bool,
    #[serde(rename = "AD", default)]
    authentic_data: bool,
    #[serde(rename = "CD", default)]
    checking_disabled: bool,
    #[serde(rename = "Question", default)]
    question: Few<Asked>,
    #[serde(rename = "Answer", default)]
    answer: Few<Record>,
    #[serde(rename = "Authority", default)]
    authority: Few<Record>,
    #[serde(rename = "Comment", default)]
    comment: Comment,
    #[serde(default)]
    extended_dns_errors: Few<Extended>,
}

#[derive(Debug, Deserialize)]
struct Asked {
    name: String,
    #[serde(rename = "type")]
    rtype: Number,
}

#[derive(Debug, Deserialize)]
struct Record {
    name: String,
    #[serde(rename = "type")]
    rtype: Number,
    #[serde(rename = "TTL", default)]
    ttl: Number,
    #[serde(default)]
    data: Text,
}

#[derive(Debug, Deserialize)]
struct Extended {
    info_code: Number,
}

impl Asked {
    fn is(&self, question: &Question) -> bool {
        let name = self.name.strip_suffix('.').unwrap_or(&self.name);
        name.eq_ignore_ascii_case(question.name.as_str()) && self.rtype.0 == u64::from(rtype(question).to_int())
    }
}

fn rtype(question: &Question) -> Rtype {
    match question.family {
        Family::V4 => Rtype::A,
        Family::V6 => Rtype::AAAA,
    }
}

impl Document {
    /// `None` when a record contradicts its own type, or the message would be too long to be one.
    fn message(&self, question: &Question) -> Option<Vec<u8>> {
        // Twelve bits (RFC 6891, 6.1.3).
        let status = u16::try_from(self.status.0).ok().filter(|status| *status <= 0xfff)?;
        let mut message = MessageBuilder::new_vec();
        let header = message.header_mut();
        header.set_qr(true);
        header.set_tc(self.truncated);
        header.set_rd(self.recursion_desired);
        header.set_ra(self.recursion_available);
        header.set_ad(self.authentic_data);
        header.set_cd(self.checking_disabled);
        header.set_rcode(Rcode::masked_from_int(u8::try_from(status & 0xf).ok()?));
        let mut section = message.question();
        section.push((name(question.name.as_str())?, rtype(question))).ok()?;
        let mut section = section.answer();
        for record in &self.answer.0 {
            let (owner, ttl) = (name(&record.name)?, record.ttl());
            let rtype = record.rtype();
            let data = record.data.0.as_str();
            if rtype == Rtype::A {
                section.push((owner, Class::IN, ttl, A::new(data.trim().parse().ok()?))).ok()?;
            } else if rtype == Rtype::AAAA {
                section.push((owner, Class::IN, ttl, Aaaa::new(data.trim().parse().ok()?))).ok()?;
            } else if rtype == Rtype::CNAME {
                section.push((owner, Class::IN, ttl, Cname::new(name(data)?))).ok()?;
            }
        }
        let mut section = section.authority();
        for record in &self.authority.0 {
            // Only tells how long a negative answer lasts: what cannot be read is left out.
            let Some(owner) = name(&record.name) else { continue };
            if record.rtype() == Rtype::SOA
                && let Some(soa) = soa(&record.data.0)
            {
                section.push((owner, Class::IN, record.ttl(), soa)).ok()?;
            } else if record.rtype() == Rtype::NS
                && let Some(server) = name(&record.data.0)
            {
                section.push((owner, Class::IN, record.ttl(), Ns::new(server))).ok()?;
            }
        }
        let mut section = section.additional();
        let extended = self.extended_error();
        if status > 0xf || extended.is_some() {
            section
                .opt(|opt| {
                    opt.set_rcode(OptRcode::masked_from_int(status));
                    match extended {
                        Some(code) => opt.push(&ExtendedError::<Vec<u8>>::from(ExtendedErrorCode::from_int(code))),
                        None => Ok(()),
                    }
                })
                .ok()?;
        }
        Some(section.finish())
    }

    /// The extended error (RFC 8914): from a field of its own, or from a comment that begins with its
    /// code, `EDE(22): …`.
    fn extended_error(&self) -> Option<u16> {
        let own = self.extended_dns_errors.0.first().map(|error| error.info_code.0);
        let told = || self.comment.0.strip_prefix("EDE(")?.split_once(')')?.0.trim().parse().ok();
        own.or_else(told).and_then(|code| u16::try_from(code).ok())
    }
}

impl Record {
    fn rtype(&self) -> Rtype {
        Rtype::from_int(u16::try_from(self.rtype.0).unwrap_or(0))
    }

    fn ttl(&self) -> Ttl {
        Ttl::from_secs(u32::try_from(self.ttl.0).unwrap_or(u32::MAX))
    }
}

fn name(text: &str) -> Option<OwnedName> {
    Name::from_str(text.trim()).ok()
}

/// SOA data as a zone file has it (RFC 1035, 3.3.13).
fn soa(data: &str) -> Option<Soa<OwnedName>> {
    let mut words = data.split_ascii_whitespace();
    let (server, mailbox) = (name(words.next()?)?, name(words.next()?)?);
    let mut number = || words.next()?.parse::<u32>().ok();
    let serial = Serial::from(number()?);
    let (refresh, retry, expire, minimum) = (number()?, number()?, number()?, number()?);
    let s = Ttl::from_secs;
    Some(Soa::new(server, mailbox, serial, s(refresh), s(retry), s(expire), s(minimum)))
}

/// A number, also one written as a text.
#[derive(Debug, Clone, Copy, Default)]
struct Number(u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reads;

        impl Visitor<'_> for Reads {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number that is not negative")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Number, E> {
                Ok(Number(number))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Number, E> {
                text.trim().parse().map(Number).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Reads)
    }
}

/// A text; anything else in its place is read as none.
#[derive(Debug, Default)]
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Texts).map(Self)
    }
}

/// A text, or several of which the first is taken; shortened.
#[derive(Debug, Default)]
struct Comment(String);

impl<'de> Deserialize<'de> for Comment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(Texts)?;
        Ok(Self(text.char_indices().take_while(|(at, _)| *at < COMMENT_BYTES_MAX).map(|(_, one)| one).collect()))
    }
}

struct Texts;

impl<'de> Visitor<'de> for Texts {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_unit<E: de::Error>(self) -> Result<String, E> {
        Ok(String::new())
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<String, E> {
        Ok(String::new())
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<String, E> {
        Ok(String::new())
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<String, E> {
        Ok(String::new())
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<String, E> {
        Ok(String::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<String, A::Error> {
        let first: Option<Text> = list.next_element()?;
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(first.unwrap_or_default().0)
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<String, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(String::new())
    }
}

/// The first few of a list; also a single one without the list, and nothing at all.
#[derive(Debug)]
struct Few<T>(Vec<T>);

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reads<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reads<T> {
            type Value = Few<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_unit<E: de::Error>(self) -> Result<Few<T>, E> {
                Ok(Few::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Few<T>, A::Error> {
                let mut few = Vec::new();
                while few.len() < RECORDS_MAX {
                    let Some(one) = list.next_element()? else { return Ok(Few(few)) };
                    few.push(one);
                }
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Few(few))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Few<T>, A::Error> {
                T::deserialize(de::value::MapAccessDeserializer::new(map)).map(|one| Few(vec![one]))
            }
        }

        deserializer.deserialize_any(Reads(PhantomData))
    }
}

#[cfg(test)]
mod tests;
