//! A join token as text: one word that carries everything an agent needs for its first contact.
//!
//! `vt1.` and the URL-safe base64 (RFC 4648, 5; no padding) of a [`v1::Token`] followed by its CRC-32C,
//! big endian: a token that lost a letter on its way through a chat is told from one that was
//! refused, before anybody is asked.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prost::Message as _;

use crate::{COORDINATORS_MAX, TEXT_BYTES_MAX, v1};

/// What every token begins with; 1 is the version of what follows.
pub const PREFIX: &str = "vt1.";

/// Length of the secret and of the fingerprint, in bytes.
pub const SECRET_BYTES: usize = 32;

/// Longest token that is read, in characters: 16 addresses of 255 bytes and the rest.
const TEXT_MAX: usize = 8 * 1024;

/// Length of the checksum at the end, in bytes.
const CHECKSUM_BYTES: usize = 4;

/// Why a text is no token. Never repeats the text: it may be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It does not begin as one.
    #[error("a token begins with vt1.; copy the whole line that `parallax token create` printed")]
    NoToken,
    /// It is of a later version.
    #[error("the token is of a later version than this agent reads; install the agent that belongs to the coordinator")]
    Later,
    /// It was cut, or a letter changed.
    #[error("the token is damaged: a part is missing or changed; copy the whole of it again")]
    Damaged,
    /// Whole, but not something the coordinator makes.
    #[error("the token is whole and makes no sense ({0}); make a new one with `parallax token create`")]
    Senseless(&'static str),
}

/// The text of a token.
#[must_use]
pub fn encode(token: &v1::Token) -> String {
    let mut bytes = token.encode_to_vec();
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend(checksum.to_be_bytes());
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
}

/// Reads the text of a token; blanks and line ends around it are ignored.
///
/// # Errors
/// When it is no token, damaged, or senseless.
pub fn parse(text: &str) -> Result<v1::Token, TokenError> {
    let text = text.trim();
    let Some(body) = text.strip_prefix(PREFIX) else {
        let later = text
            .strip_prefix("vt")
            .and_then(|rest| rest.split_once('.'))
            .is_some_and(|(version, _)| !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit()));
        return Err(if later { TokenError::Later } else { TokenError::NoToken });
    };
    if body.len() > TEXT_MAX {
        return Err(TokenError::Damaged);
    }
    let bytes = URL_SAFE_NO_PAD.decode(body).map_err(|_| TokenError::Damaged)?;
    let (content, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(TokenError::Damaged)?;
    if crc32c::crc32c(content) != u32::from_be_bytes(*checksum) {
        return Err(TokenError::Damaged);
    }
    let token = v1::Token::decode(content).map_err(|_| TokenError::Senseless("its content cannot be read"))?;
    let senseless = if token.secret.len() != SECRET_BYTES {
        Some("its secret has not 32 bytes")
    } else if token.authority_sha256.len() != SECRET_BYTES {
        Some("its fingerprint has not 32 bytes")
    } else if token.coordinators.is_empty() || token.coordinators.len() > COORDINATORS_MAX {
        Some("it names no coordinator, or more than 16")
    } else if token.coordinators.iter().any(|one| one.len() > TEXT_BYTES_MAX) || token.vantage.len() > TEXT_BYTES_MAX {
        Some("a name in it is longer than 255 bytes")
    } else {
        None
    };
    senseless.map_or(Ok(token), |why| Err(TokenError::Senseless(why)))
}

/// A fingerprint as people compare it: `SHA256 9c:41:…`.
#[derive(Debug, Clone, Copy)]
pub struct Fingerprint<'a>(
    /// The hash.
    pub &'a [u8],
);

impl fmt::Display for Fingerprint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SHA256 ")?;
        for (place, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if place == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> v1::Token {
        v1::Token {
            secret: vec![7; SECRET_BYTES],
            authority_sha256: vec![9; SECRET_BYTES],
            coordinators: vec!["parallax.example.net:8443".to_owned(), "[2001:db8::1]:8443".to_owned()],
            vantage: "branch-kazan".to_owned(),
            expires_unix_s: 1_800_000_000,
        }
    }

    #[test]
    fn what_is_written_is_read_with_blanks_around_it() {
        assert_eq!(parse(&format!(" {}\r\n", encode(&token()))).unwrap(), token());
    }

    #[test]
    fn a_changed_a_missing_and_a_doubled_letter_are_damage_and_not_a_refusal() {
        let text = encode(&token());
        for place in PREFIX.len()..text.len() {
            let mut cut = text.clone();
            cut.remove(place);
            assert_eq!(parse(&cut), Err(TokenError::Damaged), "without letter {place}");
            let mut changed = text.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            assert_eq!(parse(std::str::from_utf8(&changed).unwrap()), Err(TokenError::Damaged), "letter {place}");
        }
        assert_eq!(parse(&format!("{text}{text}")), Err(TokenError::Damaged));
    }

    #[test]
    fn what_is_no_token_is_told_from_a_later_one() {
        for text in ["", "vt", "vt.", "vtx.abc", "password", "vt1"] {
            assert_eq!(parse(text), Err(TokenError::NoToken), "{text}");
        }
        assert_eq!(parse("vt2.abc"), Err(TokenError::Later));
        assert_eq!(parse("vt1."), Err(TokenError::Damaged));
        assert_eq!(parse(&format!("vt1.{}", "A".repeat(1 << 20))), Err(TokenError::Damaged));
    }

    #[test]
    fn a_whole_token_must_make_sense() {
        for wrong in [
            v1::Token { secret: vec![1], ..token() },
            v1::Token { authority_sha256: vec![], ..token() },
            v1::Token { coordinators: vec![], ..token() },
            v1::Token { coordinators: vec!["a:1".to_owned(); 17], ..token() },
            v1::Token { vantage: "x".repeat(256), ..token() },
        ] {
            assert!(matches!(parse(&encode(&wrong)), Err(TokenError::Senseless(_))), "{wrong:?}");
        }
    }

    #[test]
    fn an_error_never_repeats_the_text() {
        let text = encode(&token());
        let shown = parse(&text[..text.len() - 2]).unwrap_err().to_string();
        assert!(!shown.contains(&text[10..20]), "{shown}");
    }

    #[test]
    fn a_fingerprint_is_written_as_people_compare_it() {
        assert_eq!(Fingerprint(&[0x9c, 0x41, 0x07]).to_string(), "SHA256 9c:41:07");
    }
}
