//! Names and addresses that cannot be wrong: parsed once at the boundary.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::address;

/// Why a text is not a usable name or address set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty, or longer than the limit (characters).
    #[error("'{text}' must have 1 to {max} characters")]
    Length {
        /// The text as given, shortened to 80 characters.
        text: String,
        /// Most characters allowed.
        max: usize,
    },
    /// A character outside the allowed set.
    #[error("'{text}' holds {found:?}; allowed are letters, digits, '-', '_' and '.'")]
    Character {
        /// The text as given, shortened to 80 characters.
        text: String,
        /// First character that is not allowed.
        found: char,
    },
    /// An empty label, or a label of more than 63 characters (RFC 1035, 2.3.4).
    #[error("'{text}' has an empty label or one longer than 63 characters")]
    Label {
        /// The text as given, shortened to 80 characters.
        text: String,
    },
    /// An address set without an address.
    #[error("an address set cannot be empty: a name must never be left without an answer")]
    NoAddress,
    /// More addresses than a set may hold.
    #[error("{count} addresses; a set holds at most {ADDRESSES_MAX}")]
    TooManyAddresses {
        /// How many were given.
        count: usize,
    },
    /// A special-purpose address, which can never be an answer of ours.
    #[error("{address} is a special-purpose address ({why}); it can never be served or contacted")]
    Special {
        /// The address.
        address: IpAddr,
        /// Which special-purpose block it belongs to.
        why: &'static str,
    },
}

/// Most addresses a set may hold. A resolver's answer is hostile input and a DNS change is
/// reviewed by people: both stay small.
pub const ADDRESSES_MAX: usize = 16;

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

/// A DNS name in presentation form: lower case, no trailing dot, at most 253 characters. Clones share the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DomainName(Arc<str>);

impl DomainName {
    /// The name as text, lower case and without the trailing dot.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DomainName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if name.is_empty() || name.len() > 253 {
            return Err(NameError::Length { text: shortened(text), max: 253 });
        }
        if let Some(found) = name.chars().find(|c| !(c.is_ascii_alphanumeric() || "-_.".contains(*c))) {
            return Err(NameError::Character { text: shortened(text), found });
        }
        if name.split('.').any(|label| label.is_empty() || label.len() > 63) {
            return Err(NameError::Label { text: shortened(text) });
        }
        Ok(Self(name.into()))
    }
}

/// Most characters of an operator-chosen name.
pub const NAME_MAX: usize = 63;

fn parse_name(text: &str) -> Result<String, NameError> {
    if text.is_empty() || text.len() > NAME_MAX {
        return Err(NameError::Length { text: shortened(text), max: NAME_MAX });
    }
    match text.chars().find(|c| !(c.is_ascii_alphanumeric() || "-_.".contains(*c))) {
        Some(found) => Err(NameError::Character { text: shortened(text), found }),
        None => Ok(text.to_owned()),
    }
}

macro_rules! text_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                parse_name(text).map(|name| Self(name.into()))
            }
        }
    };
}

macro_rules! text_conversions {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }
    )*};
}

text_newtype! {
    /// A vantage: a named place that measures.
    VantageName
}
text_newtype! {
    /// A resolver of the configuration.
    ResolverName
}
text_newtype! {
    /// A machine of ours that can serve a service.
    NodeName
}
text_newtype! {
    /// A service of ours: a host name and the nodes that can serve it.
    ServiceName
}
text_newtype! {
    /// A control: a target used only to learn whether a vantage has a working uplink.
    ControlName
}
text_newtype! {
    /// A configured driver instance.
    DriverName
}
text_newtype! {
    /// What two vantages must not share to count as two witnesses: an uplink.
    FailureDomain
}
text_conversions!(DomainName, VantageName, ResolverName, NodeName, ServiceName, ControlName, DriverName, FailureDomain);

/// A non-empty set of at most [`ADDRESSES_MAX`] global unicast addresses: the only thing a change
/// can ever put into DNS, so a name cannot be left without an answer and a block page's address
/// or HTML cannot become one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<IpAddr>", into = "Vec<IpAddr>")]
pub struct Addresses(BTreeSet<IpAddr>);

impl Addresses {
    /// Parses a set.
    ///
    /// # Errors
    /// When it is empty, too large, or holds a special-purpose address.
    pub fn new(addresses: impl IntoIterator<Item = IpAddr>) -> Result<Self, NameError> {
        let set: BTreeSet<IpAddr> = addresses.into_iter().collect();
        if set.is_empty() {
            return Err(NameError::NoAddress);
        }
        if set.len() > ADDRESSES_MAX {
            return Err(NameError::TooManyAddresses { count: set.len() });
        }
        for &address in &set {
            if let Some(why) = address::special_purpose(address) {
                return Err(NameError::Special { address, why });
            }
        }
        Ok(Self(set))
    }

    /// A set of one.
    ///
    /// # Errors
    /// When the address is special-purpose.
    pub fn one(address: IpAddr) -> Result<Self, NameError> {
        Self::new([address])
    }

    /// The addresses in order.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.0.iter().copied()
    }

    /// The set itself.
    #[must_use]
    pub fn as_set(&self) -> &BTreeSet<IpAddr> {
        &self.0
    }
}

impl TryFrom<Vec<IpAddr>> for Addresses {
    type Error = NameError;

    fn try_from(addresses: Vec<IpAddr>) -> Result<Self, NameError> {
        Self::new(addresses)
    }
}

impl From<Addresses> for Vec<IpAddr> {
    fn from(addresses: Addresses) -> Self {
        addresses.0.into_iter().collect()
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, address) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{address}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_name_is_lower_case_without_the_last_dot() {
        assert_eq!("Example.COM.".parse::<DomainName>().unwrap().as_str(), "example.com");
    }

    #[test]
    fn bad_names_say_what_is_wrong() {
        for (text, part) in [
            ("", "1 to 253"),
            (".", "1 to 253"),
            ("a..b", "empty label"),
            ("exa mple.com", "holds ' '"),
            ("<html>", "holds '<'"),
        ] {
            let error = text.parse::<DomainName>().unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
        assert!("x".repeat(64).parse::<VantageName>().is_err());
        assert!(format!("{}.com", "x".repeat(64)).parse::<DomainName>().is_err());
    }

    #[test]
    fn an_address_set_is_never_empty_nor_special() {
        assert_eq!(Addresses::new([]), Err(NameError::NoAddress));
        for special in ["0.0.0.0", "127.0.0.1", "10.1.2.3", "192.0.2.1", "::", "fe80::1", "::ffff:10.0.0.1"] {
            assert!(Addresses::one(special.parse().unwrap()).is_err(), "{special}");
        }
        assert!(Addresses::one("104.26.4.10".parse().unwrap()).is_ok());
    }

    #[test]
    fn sets_compare_without_order() {
        let a = ["8.47.69.0".parse().unwrap(), "8.6.112.0".parse().unwrap()];
        let b = [a[1], a[0], a[1]];
        assert_eq!(Addresses::new(a), Addresses::new(b));
    }
}
