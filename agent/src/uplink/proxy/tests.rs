//! What proxies say, and what owners write.

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

/// What editors and habits put around a password is understood or named, never sent along.
#[test]
fn a_file_of_credentials_with_a_mark_is_read_and_one_in_quotes_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let read = |bytes: &[u8]| {
        std::fs::write(file.path(), bytes).unwrap();
        Proxy::parse("a:1").unwrap().with_credentials(file.path()).map(|proxy| proxy.credentials)
    };
    let plain = read(b"kazan:hunter2\n").unwrap();
    assert_eq!(read(b"\xef\xbb\xbfkazan:hunter2\r\n").unwrap(), plain, "with an editor's mark");
    for (bad, part) in [
        (&b"\"kazan:hunter2\"\n"[..], "in quotes"),
        (b"'kazan:hunter2'", "in quotes"),
        (b"\xef\xbb\xbf\"kazan:hunter2\"", "in quotes"),
        (b"\xff\xfek\0a\0:\0b\0", "UTF-16"),
        (b"\"", "one line"),
        (b"", "one line"),
    ] {
        let error = read(bad).unwrap_err().to_string();
        assert!(error.contains(part) && !error.contains("hunter2"), "{error}");
    }
    assert!(read(b"\"kazan:hunter2").is_ok(), "a quote on one side may be part of a name");
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
