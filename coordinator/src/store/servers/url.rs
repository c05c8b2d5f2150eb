//! A connection URL that may name several servers, as libpq takes it:
//! `postgres://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE?target_session_attrs=read-write`. Every other
//! setting, TLS among them, holds for each server.

use sqlx::postgres::PgConnectOptions;

use super::Target;

/// Servers that one URL may name: a cluster has three or five.
pub const SERVERS_MAX: usize = 16;

/// Why a URL is not understood. Never the URL itself: it holds a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Not a URL of Postgres.
    #[error("it is not shown, since it may hold a password")]
    Form,
    /// Too many.
    #[error("it names more than {SERVERS_MAX} servers")]
    TooMany,
    /// As many ports as hosts, or one, or none.
    #[error("it names {hosts} hosts and {ports} ports")]
    Ports {
        /// How many hosts.
        hosts: usize,
        /// How many ports.
        ports: usize,
    },
    /// The coordinator writes.
    #[error(
        "target_session_attrs={0} is not possible here; read-write and primary are, and any for commands that read"
    )]
    Attributes(String),
}

/// The servers of a URL, in its order, and which sessions will do.
pub(super) fn parse(text: &str) -> Result<(Vec<PgConnectOptions>, Target), UrlError> {
    let text = text.trim();
    let (scheme, rest) = text.split_once("://").ok_or(UrlError::Form)?;
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    // A password may hold an @ that nobody encoded: the last one counts, as in libpq.
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), authority),
    };
    let query = Query::read(query)?;
    let hosts: Vec<&str> = hosts.split(',').collect();
    let count = hosts.len().max(query.hosts.len());
    if count > SERVERS_MAX {
        return Err(UrlError::TooMany);
    }
    if !query.hosts.is_empty() && hosts.len() > 1 && hosts.len() != query.hosts.len() {
        return Err(UrlError::Form);
    }
    let ports = query.ports.len();
    if ports > 1 && ports != count {
        return Err(UrlError::Ports { hosts: count, ports });
    }
    let options = (0..count).map(|number| {
        let host = hosts.get(number).or(hosts.first()).copied().unwrap_or_default();
        // A user without a host is no URL, but libpq's way to give the host behind the question mark.
        let host = if host.is_empty() && !user.is_empty() { "localhost" } else { host };
        let mut parameters = query.others.clone();
        let port = query.ports.get(number).or(query.ports.first());
        for (key, value) in [("host", query.hosts.get(number)), ("port", port)] {
            parameters.extend(value.filter(|value| !value.is_empty()).map(|value| format!("{key}={value}")));
        }
        let url = format!("{scheme}://{user}{host}{path}?{}", parameters.join("&"));
        let options: PgConnectOptions = url.trim_end_matches('?').parse().map_err(|_| UrlError::Form)?;
        // The driver keeps the brackets of an IPv6 address, and would look them up as a name.
        let bare = options.get_host().strip_prefix('[').and_then(|host| host.strip_suffix(']')).map(str::to_owned);
        Ok(match bare {
            Some(bare) => options.host(&bare),
            None => options,
        })
    });
    Ok((options.collect::<Result<_, _>>()?, query.target))
}

/// What stands behind the question mark.
struct Query {
    hosts: Vec<String>,
    ports: Vec<String>,
    others: Vec<String>,
    target: Target,
}

impl Query {
    fn read(text: &str) -> Result<Self, UrlError> {
        let mut query = Self { hosts: Vec::new(), ports: Vec::new(), others: Vec::new(), target: Target::ReadWrite };
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let list = || value.replace("%2C", ",").replace("%2c", ",").split(',').map(str::to_owned).collect();
            match key {
                "host" | "hostaddr" => query.hosts = list(),
                "port" => query.ports = list(),
                "target_session_attrs" => {
                    query.target = match value {
                        "read-write" | "primary" => Target::ReadWrite,
                        "any" | "prefer-standby" => Target::Any,
                        other => return Err(UrlError::Attributes(other.to_owned())),
                    };
                }
                // libpq's, about which of several servers: here they are tried in their order.
                "load_balance_hosts" => {}
                _ => query.others.push(pair.to_owned()),
            }
        }
        Ok(query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(text: &str) -> Vec<String> {
        parse(text).unwrap().0.iter().map(super::super::name).collect()
    }

    #[test]
    fn one_server_or_several_in_the_forms_of_libpq() {
        assert_eq!(servers("postgres://u:p@db/parallax"), ["db:5432"]);
        assert_eq!(servers("postgres://u:p@a:5433,b,[2001:db8::1]:6000/x"), ["a:5433", "b:5432", "2001:db8::1:6000"]);
        assert_eq!(servers("postgresql:///x?host=/run/a,/run/b&user=u"), ["/run/a:5432", "/run/b:5432"]);
        assert_eq!(servers("postgres://u@/x?host=a,b&port=1,2"), ["a:1", "b:2"]);
        assert_eq!(servers("postgres://u@/x?host=a%2Cb&port=7"), ["a:7", "b:7"]);
    }

    #[test]
    fn every_other_setting_holds_for_each_server() {
        let (options, target) =
            parse("postgres://me:a@b@one,two:2/log?sslmode=verify-full&target_session_attrs=any").unwrap();
        assert_eq!(target, Target::Any);
        for one in &options {
            assert_eq!((one.get_username(), one.get_database()), ("me", Some("log")));
            assert!(matches!(one.get_ssl_mode(), sqlx::postgres::PgSslMode::VerifyFull));
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_and_no_password_is_repeated() {
        for (text, why) in [
            ("db:5432/x", UrlError::Form),
            ("postgres://u:secret@db:notaport/x", UrlError::Form),
            ("postgres://u@/x?host=a,b,c&port=1,2", UrlError::Ports { hosts: 3, ports: 2 }),
            ("postgres://u@a,b/x?target_session_attrs=standby", UrlError::Attributes("standby".to_owned())),
        ] {
            assert_eq!(parse(text).unwrap_err(), why, "{text}");
            assert!(!why.to_string().contains("secret"));
        }
        let many = vec!["h"; SERVERS_MAX + 1].join(",");
        assert_eq!(parse(&format!("postgres://{many}/x")).unwrap_err(), UrlError::TooMany);
    }
}
