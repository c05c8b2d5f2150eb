//! Names as DNSSEC compares and signs them.

use std::cmp::Ordering;

use domain::base::ParsedName;
use domain::base::name::{Name, ToName as _};
use domain::dep::octseq::Parser;
use parallax_decide::names::DomainName;

/// A name in canonical form: uncompressed and in lower case (RFC 4034, 6.2), as on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Canonical(Vec<u8>);

impl Canonical {
    pub(super) fn root() -> Self {
        Self(vec![0])
    }

    /// `None` for a name that is longer than the wire allows.
    pub(super) fn of(name: &DomainName) -> Option<Self> {
        let wire: Name<Vec<u8>> = name.as_str().parse().ok()?;
        Some(Self::lower(wire.as_slice().to_vec()))
    }

    /// The next name of a message, which may be compressed.
    pub(super) fn parse(parser: &mut Parser<'_, [u8]>) -> Option<Self> {
        let name: Name<Vec<u8>> = ParsedName::<&[u8]>::parse(parser).ok()?.try_to_name().ok()?;
        Some(Self::lower(name.into_octets()))
    }

    /// A label's length is at most 63 and so is no letter.
    fn lower(mut wire: Vec<u8>) -> Self {
        wire.make_ascii_lowercase();
        Self(wire)
    }

    pub(super) fn wire(&self) -> &[u8] {
        &self.0
    }

    /// Its labels without the root, from the left.
    pub(super) fn labels(&self) -> Vec<&[u8]> {
        let (mut labels, mut rest) = (Vec::new(), self.0.as_slice());
        while let Some((length, after)) = rest.split_first() {
            let Some((label, next)) = after.split_at_checked(usize::from(*length)).filter(|_| *length > 0) else {
                break;
            };
            labels.push(label);
            rest = next;
        }
        labels
    }

    pub(super) fn depth(&self) -> usize {
        self.labels().len()
    }

    /// Its last labels: the name itself when it has no more.
    pub(super) fn ancestor(&self, depth: usize) -> Self {
        let drop = self.depth().saturating_sub(depth);
        let bytes: usize = self.labels().iter().take(drop).map(|label| label.len() + 1).sum();
        Self(self.0.get(bytes..).unwrap_or(&[0]).to_vec())
    }

    /// Whether it is the other or below it.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.depth() >= other.depth() && self.ancestor(other.depth()) == *other
    }

    /// The wildcard right below it.
    pub(super) fn wildcard(&self) -> Self {
        Self([b"\x01*", self.0.as_slice()].concat())
    }

    /// How many labels both end with.
    pub(super) fn common(&self, other: &Self) -> usize {
        let (one, two) = (self.labels(), other.labels());
        one.iter().rev().zip(two.iter().rev()).take_while(|(one, two)| one == two).count()
    }
}

/// The canonical order of names: by labels from the right (RFC 4034, 6.1).
impl Ord for Canonical {
    fn cmp(&self, other: &Self) -> Ordering {
        self.labels().iter().rev().cmp(other.labels().iter().rev())
    }
}

impl PartialOrd for Canonical {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Canonical {
        Canonical::of(&text.parse().unwrap()).unwrap()
    }

    #[test]
    fn the_order_is_that_of_the_rfc() {
        // The example of RFC 4034, 6.1, without the labels that no name of ours can have.
        let sorted = ["example", "a.example", "yljkjljk.a.example", "z.a.example", "zabc.a.example", "z.example"];
        let names: Vec<_> = sorted.iter().map(|text| name(text)).collect();
        assert!(names.is_sorted() && Canonical::root() < names[0]);
    }

    #[test]
    fn ancestors_end_a_name() {
        let www = name("WWW.example.com");
        assert_eq!(www.ancestor(2), name("example.com"));
        assert_eq!((www.ancestor(0), www.ancestor(9)), (Canonical::root(), name("www.example.com")));
        assert!(
            www.is_within(&name("com"))
                && www.is_within(&www)
                && !name("notexample.com").is_within(&name("example.com"))
        );
        assert_eq!(www.common(&name("a.www2.example.com")), 2);
    }
}
