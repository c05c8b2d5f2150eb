//! `identity:`: who vouches for agents and for the coordinator, and where agents reach it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use parallax_proto::{COORDINATORS_MAX, TEXT_BYTES_MAX};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::error::Found;
use crate::span;

/// Life of an agent's certificate, where nothing is said.
const LIFE: Duration = Duration::from_secs(30 * 86_400);
/// Shortest life: an agent renews at half of it, and must get through a restart of the coordinator.
const LIFE_MIN: Duration = Duration::from_secs(3600);
/// Longest life.
const LIFE_MAX: Duration = Duration::from_secs(366 * 86_400);

/// `identity:` as it is written.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdentityFile {
    /// Certificate of the operator's own authority; further ones are trusted besides it.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub authority_file: Option<Spanned<PathBuf>>,
    /// Its private key.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub authority_key_file: Option<Spanned<PathBuf>>,
    /// Certificate of this coordinator, with those between it and the authority.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub server_certificate_file: Option<Spanned<PathBuf>>,
    /// Its private key.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub server_key_file: Option<Spanned<PathBuf>>,
    /// Life of an agent's certificate.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub certificate_life: Option<Spanned<String>>,
    /// Where agents reach the coordinators, HOST:PORT, in the order in which they are tried.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub advertise: Vec<Spanned<String>>,
}

/// Two files that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Certificates in PEM.
    pub certificates: PathBuf,
    /// Private key in PEM.
    pub key: PathBuf,
}

/// `identity:` as it is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The operator's own authority; none: the built-in one.
    pub authority: Option<Pair>,
    /// The operator's certificate for this coordinator; none: the authority makes one.
    pub server: Option<Pair>,
    /// Life of an agent's certificate.
    pub certificate_life: Duration,
    /// Where agents reach the coordinators; empty: where this one listens, unless that is a wildcard.
    pub advertise: Vec<String>,
}

impl Default for Identity {
    fn default() -> Self {
        Self { authority: None, server: None, certificate_life: LIFE, advertise: Vec::new() }
    }
}

/// Checks the section.
pub fn check(file: &IdentityFile, found: &mut Found) -> Identity {
    let authority =
        pair(("authority_file", &file.authority_file), ("authority_key_file", &file.authority_key_file), found);
    let server = pair(
        ("server_certificate_file", &file.server_certificate_file),
        ("server_key_file", &file.server_key_file),
        found,
    );
    let certificate_life = match &file.certificate_life {
        None => LIFE,
        Some(text) => match span::any(&text.value) {
            Ok(life) if (LIFE_MIN..=LIFE_MAX).contains(&life) => life,
            Ok(_) => {
                found.at(text, "`certificate_life` must be from 1h to 366d");
                LIFE
            }
            Err(why) => {
                found.at(text, format!("`certificate_life`: {why}"));
                LIFE
            }
        },
    };
    if let Some(one) = file.advertise.get(COORDINATORS_MAX) {
        found.at(
            one,
            format!("`advertise` names {} places; agents keep at most {COORDINATORS_MAX}", file.advertise.len()),
        );
    }
    let mut advertise = Vec::new();
    for one in &file.advertise {
        match place(&one.value) {
            Ok(()) if advertise.contains(&one.value) => found.at(one, format!("`{}` is there twice", one.value)),
            Ok(()) => advertise.push(one.value.clone()),
            Err(why) => found.at(one, format!("`advertise`: {why}")),
        }
    }
    Identity { authority, server, certificate_life, advertise }
}

type Named<'a> = (&'a str, &'a Option<Spanned<PathBuf>>);

fn pair((name, file): Named<'_>, (key_name, key): Named<'_>, found: &mut Found) -> Option<Pair> {
    for one in [file, key].into_iter().flatten() {
        if !one.value.is_absolute() {
            found.at(one, format!("`{}` must be an absolute path", one.value.display()));
        }
    }
    match (file, key) {
        (Some(file), Some(key)) => Some(Pair { certificates: path(&file.value), key: path(&key.value) }),
        (Some(one), None) => {
            found.at(one, format!("`{name}` needs `{key_name}` beside it"));
            None
        }
        (None, Some(one)) => {
            found.at(one, format!("`{key_name}` needs `{name}` beside it"));
            None
        }
        (None, None) => None,
    }
}

fn path(path: &Path) -> PathBuf {
    path.to_owned()
}

/// Whether a text is HOST:PORT, with an IPv6 address in brackets.
///
/// # Errors
/// What is wrong with it.
pub fn place(text: &str) -> Result<(), String> {
    let wrong = |why: &str| {
        Err(format!("`{text}` {why}; write HOST:PORT, as in parallax.example.net:8443 or [2001:db8::1]:8443"))
    };
    if text.len() > TEXT_BYTES_MAX {
        return wrong("is longer than 255 bytes");
    }
    let Some((host, port)) = text.rsplit_once(':') else { return wrong("has no port") };
    if port.parse::<u16>().is_ok_and(|port| port > 0) && port.bytes().all(|byte| byte.is_ascii_digit()) {
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        return match bracketed {
            Some(address) if address.parse::<std::net::Ipv6Addr>().is_ok_and(|address| !address.is_unspecified()) => {
                Ok(())
            }
            Some(_) => wrong("holds no IPv6 address between the brackets"),
            None if host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_unspecified()) => {
                wrong("is the address of no machine")
            }
            None => host
                .parse::<parallax_decide::names::DomainName>()
                .map(|_| ())
                .or_else(|_| host.parse::<std::net::Ipv4Addr>().map(|_| ()))
                .or_else(|_| wrong("names no host")),
        };
    }
    wrong("has no port from 1 to 65535")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, builtin};

    fn parse(section: &str) -> Result<Identity, String> {
        let text = format!("{}\nidentity: {section}\n", builtin::DEFAULT);
        Config::parse(&text, "test").map(|config| config.identity).map_err(|faults| faults.to_string())
    }

    #[test]
    fn without_a_word_the_authority_is_built_in_and_certificates_live_thirty_days() {
        let identity = Config::parse(builtin::DEFAULT, "test").unwrap().identity;
        assert_eq!(identity, Identity::default());
        assert_eq!(identity.certificate_life, Duration::from_secs(2_592_000));
    }

    #[test]
    fn what_is_written_is_meant() {
        let identity = parse(
            "{ authority_file: /a, authority_key_file: /b, server_certificate_file: /c, server_key_file: /d, \
               certificate_life: 1h, advertise: [parallax.example.net:8443, '192.0.2.1:443', '[2001:db8::1]:8443'] }",
        )
        .unwrap();
        assert_eq!(identity.authority, Some(Pair { certificates: "/a".into(), key: "/b".into() }));
        assert_eq!(identity.server, Some(Pair { certificates: "/c".into(), key: "/d".into() }));
        assert_eq!((identity.certificate_life, identity.advertise.len()), (Duration::from_secs(3600), 3));
    }

    #[test]
    fn slips_are_named_with_their_place() {
        for (wrong, said) in [
            ("{ authority_fil: /a }", "did you mean `authority_file`?"),
            ("{ authority_file: /a }", "`authority_file` needs `authority_key_file`"),
            ("{ server_key_file: /a }", "`server_key_file` needs `server_certificate_file`"),
            ("{ authority_file: a, authority_key_file: /b }", "must be an absolute path"),
            ("{ certificate_life: 59m }", "from 1h to 366d"),
            ("{ certificate_life: 367d }", "from 1h to 366d"),
            ("{ certificate_life: long }", "is not a span"),
            ("{ advertise: [parallax.example.net] }", "has no port"),
            ("{ advertise: ['0.0.0.0:8443'] }", "address of no machine"),
            ("{ advertise: ['2001:db8::1:8443'] }", "names no host"),
            ("{ advertise: ['[::]:8443'] }", "no IPv6 address"),
            ("{ advertise: ['a.example:0'] }", "has no port from"),
            ("{ advertise: ['a.example:1', 'a.example:1'] }", "is there twice"),
        ] {
            let faults = parse(wrong).unwrap_err();
            assert!(faults.contains(said) && faults.starts_with("test:"), "{wrong}: {faults}");
        }
    }
}
