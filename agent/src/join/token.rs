//! Where a token comes from. It is a secret: one use and an hour, but until then whoever has it is us.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use parallax_proto::token::{SECRET_BYTES, TokenError, parse};
use parallax_proto::v1;

use crate::failure::{Exit, Failure};
use crate::uplink::address::Coordinator;

/// Longest file that is read: the longest token has half of that.
const FILE_BYTES_MAX: u64 = 16 * 1024;

/// Where a token may stand besides the command line.
const VARIABLE: &str = "PARALLAX_TOKEN";
const FILE_VARIABLE: &str = "PARALLAX_TOKEN_FILE";
/// Set by systemd for `LoadCredential=` and the like.
const CREDENTIALS_VARIABLE: &str = "CREDENTIALS_DIRECTORY";
const CREDENTIAL: &str = "token";

/// A token that makes sense. Shows nothing of its secret.
#[derive(Clone)]
pub struct Token {
    wire: v1::Token,
    /// SHA-256 of the authority's public key.
    pub authority_sha256: [u8; SECRET_BYTES],
    /// Where coordinators are, at least one.
    pub coordinators: Vec<Coordinator>,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("vantage", &self.wire.vantage).finish_non_exhaustive()
    }
}

impl Token {
    /// Reads the text of one.
    ///
    /// # Errors
    /// When it is none, damaged, or senseless.
    pub fn read(text: &str) -> Result<Self, TokenError> {
        let wire = parse(text)?;
        let authority_sha256 = wire.authority_sha256.as_slice().try_into();
        let authority_sha256 =
            authority_sha256.map_err(|_| TokenError::Senseless("its fingerprint has not 32 bytes"))?;
        let coordinators: Result<Vec<Coordinator>, _> = wire.coordinators.iter().map(|one| one.parse()).collect();
        let coordinators = coordinators.map_err(|_| TokenError::Senseless("a coordinator in it is not HOST:PORT"))?;
        Ok(Self { wire, authority_sha256, coordinators })
    }

    /// What proves to the coordinator that we were given it.
    #[must_use]
    pub fn secret(&self) -> &[u8] {
        &self.wire.secret
    }

    /// The vantage it was made for.
    #[must_use]
    pub fn vantage(&self) -> &str {
        &self.wire.vantage
    }
}

/// What is to be read, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    /// Given as text; not shown.
    Text(String, &'static str),
    File(PathBuf, &'static str),
}

/// The token of the environment: `PARALLAX_TOKEN`, the file of `PARALLAX_TOKEN_FILE`, or systemd's
/// credential `token`.
///
/// # Errors
/// When there is one and it is of no use.
pub fn of_environment() -> Result<Option<Token>, Failure> {
    source(|variable| std::env::var_os(variable)).map(read).transpose()
}

/// Whether the environment has a token at all, good or not.
#[must_use]
pub fn is_in_environment() -> bool {
    source(|variable| std::env::var_os(variable)).is_some()
}

/// The token of the command line, else of the environment.
///
/// # Errors
/// When there is none, or it is of no use.
pub fn given(text: Option<&str>, file: Option<&Path>) -> Result<Token, Failure> {
    if let Some(text) = text {
        return read(Source::Text(text.to_owned(), "the command line"));
    }
    if let Some(file) = file {
        return read(Source::File(file.to_owned(), "--token-file"));
    }
    of_environment()?.ok_or_else(|| {
        unusable(
            "there is no token to join with",
            "none was given".to_owned(),
            "give it as an argument, with --token-file FILE, or in PARALLAX_TOKEN or PARALLAX_TOKEN_FILE; `parallax token create NAME` on the coordinator prints one",
        )
    })
}

fn source(variable: impl Fn(&str) -> Option<OsString>) -> Option<Source> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    let text = set(VARIABLE).map(|text| Source::Text(text.to_string_lossy().into_owned(), VARIABLE));
    let file = || set(FILE_VARIABLE).map(|file| Source::File(file.into(), FILE_VARIABLE));
    let credential = || {
        let file = PathBuf::from(set(CREDENTIALS_VARIABLE)?).join(CREDENTIAL);
        if file.exists() { Some(Source::File(file, CREDENTIALS_VARIABLE)) } else { None }
    };
    text.or_else(file).or_else(credential)
}

fn read(source: Source) -> Result<Token, Failure> {
    let (text, place) = match source {
        Source::Text(text, place) => (text, place.to_owned()),
        Source::File(file, place) => {
            let mut text = String::new();
            let read = File::open(&file).and_then(|open| open.take(FILE_BYTES_MAX).read_to_string(&mut text));
            let place = format!("{} ({place})", file.display());
            if let Err(error) = read {
                return Err(unusable(
                    "the token's file cannot be read",
                    format!("{place}: {error}"),
                    "name the file that holds the token, and let the agent's user read it",
                ));
            }
            (text, place)
        }
    };
    Token::read(&text).map_err(|error| {
        unusable(
            "the token is of no use",
            format!("{place}: {error}"),
            "copy the whole line that `parallax token create NAME` printed; nobody was asked yet",
        )
    })
}

fn unusable(what: &str, why: String, fix: &str) -> Failure {
    let (what, fix) = (what.to_owned(), fix.to_owned());
    Failure { exit: Exit::Usage, code: "E0401", word: "token_unusable", what, why, fix }
}

#[cfg(test)]
pub(crate) mod tests {
    use parallax_proto::token::encode;

    use super::*;

    /// A token as text.
    pub(crate) fn text(authority_sha256: &[u8], coordinators: &[String]) -> String {
        encode(&v1::Token {
            secret: vec![7; SECRET_BYTES],
            authority_sha256: authority_sha256.to_vec(),
            coordinators: coordinators.to_vec(),
            vantage: "branch-kazan".to_owned(),
            expires_unix_s: 1_900_000_000,
        })
    }

    fn good() -> String {
        text(&[9; 32], &["a.example:8443".to_owned()])
    }

    #[test]
    fn a_token_is_found_where_it_may_stand_and_the_nearest_counts() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(CREDENTIAL), good() + "\n").unwrap();
        let directory = folder.path().as_os_str().to_owned();
        let file = folder.path().join(CREDENTIAL).into_os_string();
        let text = OsString::from(good());
        for (set, expected) in [
            (vec![], None),
            (vec![(VARIABLE, OsString::new())], None),
            (vec![(CREDENTIALS_VARIABLE, directory.clone())], Some(CREDENTIALS_VARIABLE)),
            (vec![(CREDENTIALS_VARIABLE, OsString::from("/nonexistent"))], None),
            (vec![(CREDENTIALS_VARIABLE, directory.clone()), (FILE_VARIABLE, file.clone())], Some(FILE_VARIABLE)),
            (vec![(FILE_VARIABLE, file), (VARIABLE, text)], Some(VARIABLE)),
        ] {
            let found =
                source(|name| set.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.clone()));
            let place = found.as_ref().map(|found| match found {
                Source::Text(_, place) | Source::File(_, place) => *place,
            });
            assert_eq!(place, expected);
            if let Some(found) = found {
                assert_eq!(read(found).unwrap().vantage(), "branch-kazan");
            }
        }
    }

    #[test]
    fn a_damaged_token_is_told_before_anybody_is_asked_and_never_repeated() {
        let whole = good();
        for bad in [&whole[..whole.len() - 1], "password", "", &text(&[9; 32], &["nothing".to_owned()])] {
            let failure = given(Some(bad), None).unwrap_err();
            assert_eq!((failure.exit, failure.code), (Exit::Usage, "E0401"));
            assert!(bad.len() < 20 || !failure.to_string().contains(&bad[8..20]), "{failure}");
        }
        assert_eq!(given(None, Some(Path::new("/nonexistent"))).unwrap_err().exit, Exit::Usage);
        let token = given(Some(&whole), None).unwrap();
        assert_eq!(format!("{token:?}"), "Token { vantage: \"branch-kazan\", .. }");
    }
}
