//! The TSIG key: from a secret file's text to something that signs.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use domain::tsig::{Algorithm, Key, KeyName};
use parallax_decide::names::DomainName;
use secrecy::{ExposeSecret, SecretSlice, SecretString};

/// Fewest bytes of a secret. RFC 8945, section 8 wants as many as the digest has; 128 bits are what
/// older tools made, and less can be guessed.
const SECRET_BYTES_MIN: usize = 16;

/// Why a configuration cannot be used. Never shows any of the secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The secret is empty.
    #[error("the TSIG secret is empty; put the key's base64 text into its file")]
    SecretEmpty,
    /// The secret is not base64.
    #[error(
        "the TSIG secret is not base64; its file must hold nothing but the key's base64 text (what BIND's key file has between the quotes after 'secret')"
    )]
    SecretNotBase64,
    /// The secret is too short.
    #[error("the TSIG secret has {bytes} bytes, at least {SECRET_BYTES_MIN} are needed; make one with tsig-keygen")]
    SecretTooShort {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The zone has one label only.
    #[error("zone {zone} lies directly below the root; give the zone that holds the service's name, as its SOA has it")]
    ZoneTooHigh {
        /// The zone.
        zone: DomainName,
    },
    /// A zone or key name that cannot be written as a DNS name.
    #[error("{name} cannot be written as a DNS name")]
    Name {
        /// The name.
        name: DomainName,
    },
    /// An algorithm that is not supported.
    #[error("TSIG algorithm '{text}' is not one of hmac-sha256, hmac-sha384, hmac-sha512")]
    Algorithm {
        /// The text, shortened.
        text: String,
    },
}

/// A TSIG algorithm. MD5 and SHA-1 are left out on purpose (RFC 8945, section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TsigAlgorithm {
    /// hmac-sha256, the default of every current server.
    HmacSha256,
    /// hmac-sha384.
    HmacSha384,
    /// hmac-sha512.
    HmacSha512,
}

impl TsigAlgorithm {
    /// Its name, as servers write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HmacSha256 => "hmac-sha256",
            Self::HmacSha384 => "hmac-sha384",
            Self::HmacSha512 => "hmac-sha512",
        }
    }
}

impl fmt::Display for TsigAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for TsigAlgorithm {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let name = text.strip_suffix('.').unwrap_or(text);
        [Self::HmacSha256, Self::HmacSha384, Self::HmacSha512]
            .into_iter()
            .find(|algorithm| name.eq_ignore_ascii_case(algorithm.as_str()))
            .ok_or_else(|| ConfigError::Algorithm { text: crate::error::quoted(text) })
    }
}

/// Makes the key. The decoded secret is wiped from memory when it has been taken over.
pub(super) fn parse(name: &DomainName, algorithm: TsigAlgorithm, secret: &SecretString) -> Result<Key, ConfigError> {
    // Editors on some systems put a byte-order mark in front; every editor ends with a newline.
    let text = secret.expose_secret().trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        return Err(ConfigError::SecretEmpty);
    }
    let bytes: SecretSlice<u8> = STANDARD.decode(text).map_err(|_| ConfigError::SecretNotBase64)?.into();
    let bytes = bytes.expose_secret();
    if bytes.len() < SECRET_BYTES_MIN {
        return Err(ConfigError::SecretTooShort { bytes: bytes.len() });
    }
    let key_name = KeyName::from_str(name.as_str()).map_err(|_| ConfigError::Name { name: name.clone() })?;
    let algorithm = match algorithm {
        TsigAlgorithm::HmacSha256 => Algorithm::Sha256,
        TsigAlgorithm::HmacSha384 => Algorithm::Sha384,
        TsigAlgorithm::HmacSha512 => Algorithm::Sha512,
    };
    // The only error is about truncated signatures, which are not asked for.
    Key::new(algorithm, bytes, key_name, None, None).map_err(|_| ConfigError::Name { name: name.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

    fn parsed(text: &str) -> Result<Key, ConfigError> {
        parse(&"upd".parse().unwrap(), TsigAlgorithm::HmacSha256, &SecretString::from(text))
    }

    #[test]
    fn a_secret_may_come_with_what_editors_add() {
        for text in [SECRET.to_owned(), format!("\u{feff}{SECRET}\r\n"), format!("  {SECRET}\n\n")] {
            assert!(parsed(&text).is_ok());
        }
    }

    #[test]
    fn a_bad_secret_is_explained_and_never_shown() {
        let cases = [
            ("", ConfigError::SecretEmpty),
            ("\u{feff} \n", ConfigError::SecretEmpty),
            ("secret \"hunter2hunter2\";", ConfigError::SecretNotBase64),
            ("aHVudGVyMg==", ConfigError::SecretTooShort { bytes: 7 }),
        ];
        for (text, expected) in cases {
            let error = parsed(text).unwrap_err();
            assert_eq!(error, expected);
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("hunter2") && !shown.contains("aHVu"), "{shown}");
        }
    }

    #[test]
    fn algorithms_are_those_servers_write() {
        assert_eq!("HMAC-SHA512.".parse(), Ok(TsigAlgorithm::HmacSha512));
        assert!("hmac-md5".parse::<TsigAlgorithm>().unwrap_err().to_string().contains("hmac-sha256"));
    }
}
