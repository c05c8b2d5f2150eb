//! Through an HTTP proxy with CONNECT (RFC 9110, 9.3.6). TLS to the coordinator runs inside, so the
//! proxy learns where we go and no more.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use super::address::Coordinator;
use crate::certificate::harmless;
use crate::date;
use crate::local::Local;
pub use exceptions::Exceptions;

mod exceptions;

/// Longest wait for the proxy's answer. It may itself look up a name and connect.
const REPLY_MAX: Duration = Duration::from_secs(15);

/// Largest head of an answer that is read, in bytes.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// Largest file of credentials, in bytes.
const CREDENTIALS_BYTES_MAX: u64 = 1 << 10;

/// Port of a proxy whose address names none: what such URLs mean by default (RFC 9110, 4.2.1).
const PORT: u16 = 80;

/// The owner's word on proxies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ProxySetting {
    /// Connect directly, whatever the environment says.
    #[default]
    None,
    /// Through this one.
    Through(Proxy),
    /// As HTTPS_PROXY and NO_PROXY say.
    Environment {
        /// Value of HTTPS_PROXY, read.
        proxy: Option<Proxy>,
        /// Value of NO_PROXY.
        except: Exceptions,
    },
}

/// A proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Where it is.
    pub at: Coordinator,
    /// `user:password`, already encoded for the header. Never shown.
    credentials: Option<String>,
    /// Where they are kept, to be read at each connection.
    file: Option<PathBuf>,
}

/// Why a proxy's setting cannot be used. Never repeats the setting: it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot use the proxy of {from}: {why}")]
pub struct NoProxySetting {
    from: &'static str,
    why: String,
}

/// How the proxy did not let us through.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProxyTrouble {
    /// The file of our credentials is not usable any more.
    #[error("{0}")]
    Credentials(String),
    /// Status 407 and we had no credentials.
    #[error(
        "it wants credentials (status 407; it offers {schemes}); write user:password into a file and name it as proxy_credentials_file in the owner's file"
    )]
    CredentialsWanted {
        /// Schemes it offers.
        schemes: String,
    },
    /// Status 407 in spite of our credentials.
    #[error(
        "it does not accept the credentials of proxy_credentials_file (status 407; it offers {schemes}, this agent speaks Basic)"
    )]
    CredentialsRefused {
        /// Schemes it offers.
        schemes: String,
    },
    /// Status 403 or 405.
    #[error("it forbids the connection (status {0}); have CONNECT to the coordinator's host and port allowed")]
    Forbidden(u16),
    /// Status 502, 503, 504 and the like.
    #[error("it cannot reach the coordinator (status {0}); can the proxy look up and reach that host?")]
    CannotReach(u16),
    /// Any other status.
    #[error("it answered with status {0} instead of opening the connection")]
    OtherStatus(u16),
    /// Nothing came.
    #[error("it did not answer CONNECT within {} s", REPLY_MAX.as_secs())]
    NoReply,
    /// It closed or reset the connection.
    #[error("it closed the connection instead of answering CONNECT")]
    Closed,
    /// Not HTTP.
    #[error("what it answered to CONNECT is no HTTP (it begins {0:?}); is this an HTTP proxy's port?")]
    Rubbish(String),
}

impl Proxy {
    /// Reads `http://HOST:PORT`.
    ///
    /// # Errors
    /// When it is none, or holds credentials: a command line and a configuration are read by many.
    pub fn parse(url: &str) -> Result<Self, NoProxySetting> {
        let proxy = Self::read(url, "--proxy or `proxy:`")?;
        match proxy.credentials {
            None => Ok(proxy),
            Some(_) => Err(NoProxySetting {
                from: "--proxy or `proxy:`",
                why: "it holds credentials, which others could read there; write user:password into a file and name it as proxy_credentials_file in the owner's file".into(),
            }),
        }
    }

    fn read(url: &str, from: &'static str) -> Result<Self, NoProxySetting> {
        let bad = |why: &str| NoProxySetting { from, why: why.to_owned() };
        let rest = match url.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some(_) => return Err(bad("only HTTP proxies are spoken to; write it as http://HOST:PORT")),
            None => url,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (credentials, place) = match rest.rsplit_once('@') {
            Some((credentials, place)) => (Some(decoded(credentials)), place),
            None => (None, rest),
        };
        let at = place.parse::<Coordinator>().or_else(|_| format!("{place}:{PORT}").parse::<Coordinator>());
        let at = at.map_err(|_| bad("write it as http://HOST:PORT"))?;
        Ok(Self { at, credentials: credentials.map(|plain| encoded(&plain)), file: None })
    }

    /// With the `user:password` of a file. It is read now, and again at each connection.
    ///
    /// # Errors
    /// When the file cannot be read, or holds something else.
    pub fn with_credentials(mut self, file: &Path) -> Result<Self, NoProxySetting> {
        self.credentials = Some(credentials(file)?);
        self.file = Some(file.to_owned());
        Ok(self)
    }

    /// Asks for a way to the coordinator on a connection to the proxy. Gives the wall clock of the
    /// answer's Date, in seconds since 1970, where it has one.
    ///
    /// # Errors
    /// How the proxy did not let us through.
    pub async fn connect<S>(&self, stream: &mut S, to: &Coordinator) -> Result<Option<i64>, ProxyTrouble>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut head = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\nUser-Agent: parallax-agent\r\n");
        let credentials = match &self.file {
            None => self.credentials.clone(),
            Some(file) => Some(credentials(file).map_err(|error| ProxyTrouble::Credentials(error.to_string()))?),
        };
        if let Some(credentials) = credentials {
            head.push_str("Proxy-Authorization: Basic ");
            head.push_str(&credentials);
            head.push_str("\r\n");
        }
        head.push_str("\r\n");
        let answered = timeout(REPLY_MAX, async {
            stream.write_all(head.as_bytes()).await.map_err(|_| ProxyTrouble::Closed)?;
            read_head(stream).await
        });
        let head = answered.await.map_err(|_| ProxyTrouble::NoReply)??;
        self.judge(&head)
    }

    fn judge(&self, head: &[u8]) -> Result<Option<i64>, ProxyTrouble> {
        let head = String::from_utf8_lossy(head);
        let mut lines = head.split("\r\n").flat_map(|line| line.split('\n'));
        let status = lines.next().unwrap_or_default();
        let rubbish = || ProxyTrouble::Rubbish(harmless(status));
        let rest = status.strip_prefix("HTTP/1.").and_then(|rest| rest.split_once(' ')).ok_or_else(rubbish)?.1;
        let code = rest.get(..3).and_then(|code| code.parse::<u16>().ok()).ok_or_else(rubbish)?;
        let fields: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(':')).collect();
        let named = |name: &str| {
            let fields: Vec<&str> = fields
                .iter()
                .filter(|(key, _)| key.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.trim())
                .collect();
            fields
        };
        if (200..300).contains(&code) {
            return Ok(named("date").first().and_then(|text| date::http(text)));
        }
        let schemes = || {
            let offered: Vec<String> = named("proxy-authenticate")
                .iter()
                .filter_map(|value| value.split([' ', ',']).next())
                .map(harmless)
                .collect();
            if offered.is_empty() { "nothing".to_owned() } else { offered.join(", ") }
        };
        Err(match code {
            407 if self.credentials.is_none() => ProxyTrouble::CredentialsWanted { schemes: schemes() },
            407 => ProxyTrouble::CredentialsRefused { schemes: schemes() },
            403 | 405 => ProxyTrouble::Forbidden(code),
            // 404: some proxies say so of a host whose name they cannot look up.
            404 | 500 | 502..=504 => ProxyTrouble::CannotReach(code),
            _ => ProxyTrouble::OtherStatus(code),
        })
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({})", self.at)
    }
}

impl ProxySetting {
    /// The owner's word: the flag, else the file.
    ///
    /// # Errors
    /// When it is no setting.
    pub fn of(flag: Option<&str>, local: &Local) -> Result<Self, NoProxySetting> {
        let file = local.proxy_credentials_file.as_deref();
        match flag.or(local.proxy.as_deref()) {
            None => Ok(Self::None),
            Some(text) => Self::parse(text, file, |name| std::env::var(name).ok()),
        }
    }

    /// As the owner wrote it: an URL, or the word `environment`; with a file of credentials for the former.
    ///
    /// # Errors
    /// When it is neither, the environment's is none, or the file is not usable.
    pub fn parse(
        text: &str,
        file: Option<&Path>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, NoProxySetting> {
        if text != "environment" {
            let proxy = Proxy::parse(text)?;
            return Ok(Self::Through(match file {
                Some(file) => proxy.with_credentials(file)?,
                None => proxy,
            }));
        }
        let either = |upper: &str, lower: &str| variable(upper).or_else(|| variable(lower)).filter(|v| !v.is_empty());
        let proxy = either("HTTPS_PROXY", "https_proxy").map(|url| Proxy::read(&url, "HTTPS_PROXY")).transpose()?;
        Ok(Self::Environment { proxy, except: Exceptions::parse(&either("NO_PROXY", "no_proxy").unwrap_or_default()) })
    }

    /// The proxy for this coordinator.
    #[must_use]
    pub fn to(&self, coordinator: &Coordinator) -> Option<&Proxy> {
        match self {
            Self::None => None,
            Self::Through(proxy) => Some(proxy),
            Self::Environment { proxy, except } => proxy.as_ref().filter(|_| !except.hold(coordinator)),
        }
    }
}

/// The `user:password` of a file, encoded for the header.
fn credentials(file: &Path) -> Result<String, NoProxySetting> {
    let from = "proxy_credentials_file";
    let bad = |why: String| NoProxySetting { from, why: format!("{}: {why}", file.display()) };
    let bytes = std::fs::metadata(file).map_err(|error| bad(error.to_string()))?.len();
    if bytes > CREDENTIALS_BYTES_MAX {
        return Err(bad(format!("it has {bytes} bytes; it must hold one line, user:password")));
    }
    let text = std::fs::read(file).map_err(|error| bad(error.to_string()))?;
    if text.starts_with(&[0xff, 0xfe]) || text.starts_with(&[0xfe, 0xff]) {
        return Err(bad("it is UTF-16, as some editors write it; save it as UTF-8".into()));
    }
    // An editor's mark of UTF-8 is no part of a name.
    let line = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text).trim_ascii();
    if let [first @ (b'"' | b'\''), .., last] = line
        && first == last
    {
        return Err(bad("it is in quotes, which would be sent along; write user:password without them".into()));
    }
    if !line.contains(&b':') || line.contains(&b'\n') {
        return Err(bad("it must hold one line, user:password".into()));
    }
    Ok(encoded(line))
}

/// Reads up to the empty line and no further: what follows belongs to TLS.
async fn read_head<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Vec<u8>, ProxyTrouble> {
    let mut head = Vec::new();
    while !(head.ends_with(b"\r\n\r\n") || head.ends_with(b"\n\n")) {
        // One at a time: TLS waits for our greeting, so nothing is to follow, and nothing may be eaten.
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) if head.is_empty() => return Err(ProxyTrouble::Closed),
            Err(_) => break,
        }
        let hopeless = head.len() >= 5 && !head.starts_with(b"HTTP/");
        if hopeless || head.len() >= HEAD_BYTES_MAX {
            return Err(ProxyTrouble::Rubbish(harmless(&String::from_utf8_lossy(&head))));
        }
    }
    Ok(head)
}

fn encoded(plain: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(plain)
}

/// Without percent-encoding (RFC 3986, 2.1); what is no such encoding stays.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            Some(_) | None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests;
