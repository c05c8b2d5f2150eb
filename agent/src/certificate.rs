//! What a person needs to know of a certificate: who issued it, for whom, and from when to when.
//!
//! Reads DER (X.690) only as far as that (RFC 5280, 4.1), from bytes that anybody on the way may
//! have made up: nothing is trusted here, it is only told.

use crate::date::{self, number};

/// Longest name that is shown, in characters.
const SHOWN_MAX: usize = 64;

/// Tags (X.680, 8.6).
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT: u8 = 0x06;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const BMP_STRING: u8 = 0x1e;

const BOOLEAN: u8 = 0x01;
const OCTET_STRING: u8 = 0x04;
/// `[3]` of a certificate's body, and `[6]` of a general name (RFC 5280, 4.1 and 4.2.1.6).
const EXTENSIONS: u8 = 0xa3;
const URI: u8 = 0x86;

/// Object identifier 2.5.29.17: subject alternative name.
const ALTERNATIVE_NAME: [u8; 3] = [0x55, 0x1d, 0x11];

/// Start of the URI that names a vantage in its certificate.
const VANTAGE_URI: &str = "parallax://vantage/";

/// Object identifiers 2.5.4.3 and 2.5.4.10: common name, organisation.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
const ORGANISATION: [u8; 3] = [0x55, 0x04, 0x0a];

/// A certificate's particulars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Who issued it, fit to be shown.
    pub issuer: String,
    /// For whom it is, fit to be shown.
    pub subject: String,
    /// From when to when it holds.
    pub validity: Validity,
}

/// From when to when a certificate holds, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// First second.
    pub not_before_s: i64,
    /// Last second.
    pub not_after_s: i64,
}

impl Certificate {
    /// Reads one; `None` when it is none.
    #[must_use]
    pub fn read(der: &[u8]) -> Option<Self> {
        let mut tbs = Der(Der(Der(der).take(SEQUENCE)?).take(SEQUENCE)?);
        if tbs.peek() == Some(VERSION) {
            tbs.next()?;
        }
        tbs.next()?; // serial number
        tbs.take(SEQUENCE)?; // signature algorithm
        let issuer = shown(tbs.take(SEQUENCE)?);
        let mut validity = Der(tbs.take(SEQUENCE)?);
        let validity = Validity { not_before_s: validity.time()?, not_after_s: validity.time()? };
        Some(Self { issuer, subject: shown(tbs.take(SEQUENCE)?), validity })
    }
}

/// The vantage that a certificate of an agent is for: by its one URI of that kind (RFC 5280, 4.2.1.6), else
/// by its common name; `None` when it is no certificate, or names several.
#[must_use]
pub fn vantage(der: &[u8]) -> Option<String> {
    let read = Certificate::read(der)?;
    let mut tbs = Der(Der(Der(der).take(SEQUENCE)?).take(SEQUENCE)?);
    let mut names = Vec::new();
    while let Some((tag, contents)) = tbs.next() {
        if tag != EXTENSIONS {
            continue;
        }
        let mut extensions = Der(Der(contents).take(SEQUENCE)?);
        while let Some(extension) = extensions.take(SEQUENCE) {
            let mut extension = Der(extension);
            if extension.take(OBJECT)? != ALTERNATIVE_NAME {
                continue;
            }
            if extension.peek() == Some(BOOLEAN) {
                extension.next()?;
            }
            let mut alternatives = Der(Der(extension.take(OCTET_STRING)?).take(SEQUENCE)?);
            while let Some((tag, name)) = alternatives.next() {
                let name = std::str::from_utf8(name).ok().filter(|_| tag == URI);
                names.extend(name.and_then(|name| name.strip_prefix(VANTAGE_URI)).map(harmless));
            }
        }
    }
    match names.len() {
        0 => Some(read.subject),
        1 => names.pop(),
        _ => None,
    }
}

/// The public key of a certificate, as it stands there (SubjectPublicKeyInfo in DER); `None` when it is
/// no certificate.
#[must_use]
pub fn public_key(der: &[u8]) -> Option<&[u8]> {
    let mut tbs = Der(Der(Der(der).take(SEQUENCE)?).take(SEQUENCE)?);
    if tbs.peek() == Some(VERSION) {
        tbs.next()?;
    }
    // Serial number, signature algorithm, issuer, validity, subject.
    for _ in 0..5 {
        tbs.next()?;
    }
    let before = tbs.0;
    tbs.take(SEQUENCE)?;
    before.get(..before.len() - tbs.0.len())
}

impl Validity {
    /// Whether it holds at this second.
    #[must_use]
    pub fn holds(self, unix_s: i64) -> bool {
        (self.not_before_s..=self.not_after_s).contains(&unix_s)
    }
}

impl std::fmt::Display for Validity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} to {}", date::text(self.not_before_s), date::text(self.not_after_s))
    }
}

/// Bytes of DER yet to be read.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The next element: its tag and contents.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let mut length = usize::from(first);
        if first >= 0x80 {
            // Long form; four bytes of length are more than any certificate has.
            let count = usize::from(first & 0x7f);
            if count == 0 || count > 4 {
                return None;
            }
            let (bytes, after) = rest.split_at_checked(count)?;
            length = bytes.iter().fold(0, |length, byte| (length << 8) | usize::from(*byte));
            rest = after;
        }
        let (contents, after) = rest.split_at_checked(length)?;
        self.0 = after;
        Some((tag, contents))
    }

    /// The contents of the next element, which must have this tag.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, contents)| contents)
    }

    /// The next element as a time (RFC 5280, 4.1.2.5): always UTC, always with seconds.
    fn time(&mut self) -> Option<i64> {
        let (tag, contents) = self.next()?;
        let text = std::str::from_utf8(contents).ok()?.strip_suffix('Z')?;
        let digits = match tag {
            UTC_TIME => 2,
            GENERALIZED_TIME => 4,
            _ => return None,
        };
        let (year, rest) = text.split_at_checked(digits)?;
        let mut year = number(year)?;
        if tag == UTC_TIME {
            year += if year >= 50 { 1900 } else { 2000 };
        }
        let part = |at: usize| number(rest.get(at..at + 2)?);
        (rest.len() == 10).then(|| date::unix_s(year, part(0)?, part(2)?, part(4)?, part(6)?, part(8)?))?
    }
}

/// The common name of a distinguished name, else the organisation, else "unnamed".
fn shown(name: &[u8]) -> String {
    let mut found = [None, None];
    let mut sets = Der(name);
    while let Some(set) = sets.take(SET) {
        let mut attributes = Der(set);
        while let Some(attribute) = attributes.take(SEQUENCE) {
            let mut attribute = Der(attribute);
            let (Some(object), Some((tag, text))) = (attribute.take(OBJECT), attribute.next()) else { continue };
            let [common, organisation] = &mut found;
            if object == COMMON_NAME {
                *common = Some((tag, text));
            } else if object == ORGANISATION {
                *organisation = Some((tag, text));
            }
        }
    }
    let [common, organisation] = found;
    let Some((tag, text)) = common.or(organisation) else { return "unnamed".to_owned() };
    if tag == BMP_STRING {
        let units = text.chunks_exact(2).map(|pair| pair.iter().fold(0, |unit, byte| (unit << 8) | u16::from(*byte)));
        return harmless(&char::decode_utf16(units).map(|one| one.unwrap_or('\u{fffd}')).collect::<String>());
    }
    harmless(&String::from_utf8_lossy(text))
}

/// A stranger's text, fit for a log line: short, and nothing in it that acts on a terminal or hides.
#[must_use]
pub fn harmless(text: &str) -> String {
    crate::probe::remark::harmless(text, SHOWN_MAX)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

    use super::*;

    fn der(names: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::new(["x.example".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, text) in names {
            params.distinguished_name.push(kind.clone(), *text);
        }
        params.not_before = date_time_ymd(2020, 1, 2);
        params.not_after = date_time_ymd(2051, 1, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn names_and_times_are_read() {
        let read = Certificate::read(&der(&[(DnType::OrganizationName, "Acme"), (DnType::CommonName, "Inspector")]));
        let read = read.unwrap();
        assert_eq!((read.issuer.as_str(), read.subject.as_str()), ("Inspector", "Inspector"));
        assert_eq!(read.validity.to_string(), "2020-01-02T00:00:00Z to 2051-01-01T00:00:00Z");
        assert!(read.validity.holds(1_700_000_000) && !read.validity.holds(0));
        assert_eq!(Certificate::read(&der(&[(DnType::OrganizationName, "Acme")])).unwrap().issuer, "Acme");
        assert_eq!(Certificate::read(&der(&[])).unwrap().issuer, "unnamed");
    }

    #[test]
    fn a_vantage_is_named_by_its_uri_and_only_else_by_the_common_name() {
        let named = |uris: &[&str]| {
            let mut params = CertificateParams::new(["x.example".to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, "host-17");
            params.is_ca = rcgen::IsCa::ExplicitNoCa;
            let uris = uris.iter().map(|uri| rcgen::SanType::URI((*uri).try_into().unwrap()));
            params.subject_alt_names.extend(uris);
            vantage(params.self_signed(&KeyPair::generate().unwrap()).unwrap().der())
        };
        assert_eq!(named(&[]).as_deref(), Some("host-17"));
        assert_eq!(named(&["https://example.com", "parallax://vantage/branch-kazan"]).as_deref(), Some("branch-kazan"));
        assert_eq!(named(&["parallax://vantage/a", "parallax://vantage/b"]), None);
        assert_eq!(vantage(&[0x30, 0]), None);
    }

    #[test]
    fn a_public_key_is_found() {
        use rcgen::PublicKeyData as _;
        let key = KeyPair::generate().unwrap();
        let made = CertificateParams::new(["x.example".to_owned()]).unwrap().self_signed(&key).unwrap();
        assert_eq!(public_key(made.der()).unwrap(), key.subject_public_key_info());
        assert_eq!(public_key(&[0x30, 0]), None);
    }

    #[test]
    fn a_strangers_name_does_nothing_to_a_terminal() {
        let long = "я".repeat(500);
        let read = Certificate::read(&der(&[(DnType::CommonName, "a\u{1b}[2Jb\nc\u{202e}")])).unwrap();
        assert_eq!(read.issuer, "a·[2Jb c·");
        assert_eq!(Certificate::read(&der(&[(DnType::CommonName, &long)])).unwrap().issuer.chars().count(), 64);
    }

    #[test]
    fn a_cut_or_changed_certificate_is_read_or_not_but_never_breaks() {
        let whole = der(&[(DnType::CommonName, "Inspector")]);
        for end in 0..whole.len() {
            let _ = (Certificate::read(&whole[..end]), public_key(&whole[..end]), vantage(&whole[..end]));
        }
        for at in 0..whole.len() {
            for value in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                let _ = (Certificate::read(&changed), public_key(&changed), vantage(&changed));
            }
        }
    }
}
