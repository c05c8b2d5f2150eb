//! Through an HTTP proxy with CONNECT (RFC 9110, 9.3.6). TLS to the coordinator runs inside, so the
//! proxy learns where we go and no more.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use super::address::Coordinator;
use super::certificate::harmless;
use super::date;

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

/// NO_PROXY: hosts, domains (with or without a leading dot, each with everything below), addresses
/// and networks, separated by commas; `*` is everything. There is no standard; this is what the
/// common programs agree on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exceptions(Vec<String>);

impl Exceptions {
    fn parse(text: &str) -> Self {
        let items = text.split([',', ' ']).map(|item| item.trim().to_ascii_lowercase());
        Self(items.filter(|item| !item.is_empty()).collect())
    }

    fn hold(&self, coordinator: &Coordinator) -> bool {
        let host = coordinator.host.to_ascii_lowercase();
        let address = coordinator.literal();
        self.0.iter().any(|item| {
            if let (Some(address), Ok(network)) = (address, item.parse::<ipnet::IpNet>()) {
                return network.contains(&address);
            }
            if let (Some(address), Ok(literal)) = (address, item.parse::<IpAddr>()) {
                return literal == address;
            }
            let item = item.strip_suffix(&format!(":{}", coordinator.port)).unwrap_or(item);
            let item = item.trim_start_matches('.');
            item == "*" || host == item || host.strip_suffix(item).is_some_and(|before| before.ends_with('.'))
        })
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
    let line = text.trim_ascii();
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
mod tests {
    use super::*;

    fn to(text: &str) -> Coordinator {
        text.parse().unwrap()
    }

    /// What a proxy that answers so says to us.
    async fn answered(proxy: &Proxy, answer: &[u8]) -> (Result<Option<i64>, ProxyTrouble>, String, Vec<u8>) {
        let (mut ours, mut theirs) = tokio::io::duplex(64 << 10);
        theirs.write_all(answer).await.unwrap();
        theirs.shutdown().await.unwrap();
        let outcome = proxy.connect(&mut ours, &to("c.example:8443")).await;
        let mut left = Vec::new();
        ours.read_to_end(&mut left).await.unwrap();
        drop(ours);
        let mut asked = String::new();
        theirs.read_to_string(&mut asked).await.unwrap();
        (outcome, asked, left)
    }

    #[tokio::test]
    async fn what_a_proxy_says_is_told_apart() {
        let proxy = Proxy::parse("http://10.0.0.1:3128").unwrap();
        let word = |text: &'static str| (text.as_bytes(), proxy.clone());
        for ((answer, proxy), part) in [
            (
                word("HTTP/1.1 407 Auth\r\nProxy-Authenticate: NTLM\r\nProxy-Authenticate: Basic realm=\"x\"\r\n\r\n"),
                "NTLM, Basic",
            ),
            (word("HTTP/1.1 403 Forbidden\r\n\r\n"), "forbids"),
            (word("HTTP/1.0 502 Bad Gateway\r\n\r\n"), "cannot reach"),
            (word("HTTP/1.1 302 Found\r\nLocation: http://login/\r\n\r\n"), "status 302"),
            (word("SSH-2.0-OpenSSH\r\n"), "no HTTP"),
            (word("HTTP/1.1 xx\r\n\r\n"), "no HTTP"),
            (word(""), "closed"),
        ] {
            let trouble = answered(&proxy, answer).await.0.unwrap_err().to_string();
            assert!(trouble.contains(part), "{trouble}");
        }
        let endless = vec![b'H'; HEAD_BYTES_MAX * 2];
        assert!(matches!(answered(&proxy, &endless).await.0, Err(ProxyTrouble::Rubbish(_))));
    }

    #[tokio::test]
    async fn an_open_way_is_used_and_nothing_of_it_is_eaten() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "kazan:pa:ss\n").unwrap();
        let proxy = Proxy::parse("http://10.0.0.1:3128/").unwrap().with_credentials(file.path()).unwrap();
        let answer = b"HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\nafter";
        let (outcome, asked, left) = answered(&proxy, answer).await;
        assert_eq!((outcome, left.as_slice()), (Ok(Some(784_111_777)), b"after".as_slice()));
        assert!(asked.starts_with("CONNECT c.example:8443 HTTP/1.1\r\nHost: c.example:8443\r\n"), "{asked}");
        assert!(asked.contains("Proxy-Authorization: Basic a2F6YW46cGE6c3M=\r\n"), "{asked}");
        let refused = answered(&proxy, b"HTTP/1.1 407 No\r\n\r\n").await.0.unwrap_err();
        assert!(matches!(&refused, ProxyTrouble::CredentialsRefused { schemes } if schemes == "nothing"));
        assert!(!format!("{proxy:?} {refused}").contains("pa:ss"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_proxy_that_says_nothing_is_left() {
        let (mut ours, _theirs) = tokio::io::duplex(1 << 10);
        let proxy = Proxy::parse("http://10.0.0.1:3128").unwrap();
        assert_eq!(proxy.connect(&mut ours, &to("c:1")).await, Err(ProxyTrouble::NoReply));
    }

    #[test]
    fn credentials_are_refused_where_others_can_read_them_and_never_repeated() {
        for (bad, part) in [
            ("http://kazan:hunter2@10.0.0.1:3128", "proxy_credentials_file"),
            ("socks5://kazan:hunter2@10.0.0.1:1080", "only HTTP"),
            ("https://hunter2:443", "only HTTP"),
            ("http://", "http://HOST:PORT"),
        ] {
            let error = Proxy::parse(bad).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("hunter2"), "{bad}: {error}");
        }
        assert_eq!(Proxy::parse("proxy.example").unwrap().at, to("proxy.example:80"));
        let none = Proxy::parse("a:1").unwrap().with_credentials(Path::new("/nonexistent"));
        assert!(none.unwrap_err().to_string().contains("/nonexistent"));
    }

    #[test]
    fn the_environment_counts_only_when_the_owner_says_so() {
        let variables = |name: &str| match name {
            "https_proxy" => Some("http://user:p%40ss@proxy:3128".to_owned()),
            "NO_PROXY" => Some(".corp.example, 10.0.0.0/8,192.0.2.7,host:8443".to_owned()),
            _ => None,
        };
        assert_eq!(ProxySetting::default().to(&to("a:1")), None);
        let setting = ProxySetting::parse("environment", None, variables).unwrap();
        let proxy = setting.to(&to("c.example:8443")).unwrap();
        assert_eq!((&proxy.at, proxy.credentials.as_deref()), (&to("proxy:3128"), Some("dXNlcjpwQHNz")));
        for excepted in ["a.corp.example:1", "corp.example:1", "10.2.3.4:1", "192.0.2.7:1", "host:8443"] {
            assert_eq!(setting.to(&to(excepted)), None, "{excepted}");
        }
        for other in ["xcorp.example:1", "11.2.3.4:1", "host:1"] {
            assert!(setting.to(&to(other)).is_some(), "{other}");
        }
        let all =
            ProxySetting::parse("environment", None, |name| Some(if name == "NO_PROXY" { "*" } else { "a:1" }.into()));
        assert_eq!(all.unwrap().to(&to("c:1")), None);
    }
}
