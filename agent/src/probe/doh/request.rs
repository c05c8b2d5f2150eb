//! The request of each form.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{Request, Uri};
use hyper::body::Bytes;
use parallax_decide::observation::{Family, Outcome};

use super::media::{DNS_JSON, DNS_MESSAGE};
use super::{DohEndpoint, Form, HttpVersion};
use crate::probe::message::Question;

/// The request for one question. The message has id 0, so that HTTP caches can share answers (RFC
/// 8484, 4.1).
///
/// # Errors
/// [`Outcome::OwnTrouble`] for a name or URL that cannot be asked for.
pub(super) fn request(
    endpoint: &DohEndpoint,
    question: &Question,
    version: HttpVersion,
) -> Result<Request<Bytes>, Outcome> {
    let message = || question.message(0, true).ok_or(Outcome::OwnTrouble);
    let parts = match endpoint.form {
        Form::WirePost | Form::WireGet => of_message(endpoint, message()?)?,
        Form::Json => {
            let rtype = match question.family {
                Family::V4 => "A",
                Family::V6 => "AAAA",
            };
            // A name of ours holds no character that means something in a URL.
            let query = format!("name={}&type={rtype}", question.name);
            Parts { post: false, path: path(&endpoint.url, Some(&query))?, body: Vec::new(), accept: DNS_JSON }
        }
    };
    build(endpoint, parts, version)
}

/// The request for a message that is written already.
///
/// # Errors
/// [`Outcome::OwnTrouble`] where the endpoint takes none, or for a URL that cannot be asked for.
pub(super) fn request_of(
    endpoint: &DohEndpoint,
    message: Vec<u8>,
    version: HttpVersion,
) -> Result<Request<Bytes>, Outcome> {
    build(endpoint, of_message(endpoint, message)?, version)
}

struct Parts {
    post: bool,
    path: PathAndQuery,
    body: Vec<u8>,
    accept: &'static str,
}

fn of_message(endpoint: &DohEndpoint, message: Vec<u8>) -> Result<Parts, Outcome> {
    match endpoint.form {
        Form::WirePost => {
            Ok(Parts { post: true, path: path(&endpoint.url, None)?, body: message, accept: DNS_MESSAGE })
        }
        Form::WireGet => {
            // Without padding (RFC 8484, 6): some services refuse '='.
            let query = format!("dns={}", URL_SAFE_NO_PAD.encode(message));
            let path = path(&endpoint.url, Some(&query))?;
            Ok(Parts { post: false, path, body: Vec::new(), accept: DNS_MESSAGE })
        }
        Form::Json => Err(Outcome::OwnTrouble),
    }
}

fn build(endpoint: &DohEndpoint, parts: Parts, version: HttpVersion) -> Result<Request<Bytes>, Outcome> {
    let Parts { post, path, body, accept } = parts;
    let authority = endpoint.url.authority().ok_or(Outcome::OwnTrouble)?;
    let builder = if post { Request::post("/") } else { Request::get("/") };
    let builder = match version {
        HttpVersion::Http2 => builder.version(http::Version::HTTP_2).uri(whole(&endpoint.url, path)?),
        // HTTP/1.1 to an origin server names the path alone, and the host apart (RFC 9112, 3.2.1).
        HttpVersion::Http1 => {
            builder.version(http::Version::HTTP_11).uri(Uri::from(path)).header(HOST, authority.as_str())
        }
    };
    let builder = builder.header(ACCEPT, accept).header(USER_AGENT, "parallax-agent");
    let builder = match post {
        true => builder.header(CONTENT_TYPE, DNS_MESSAGE).header(CONTENT_LENGTH, body.len()),
        false => builder,
    };
    builder.body(Bytes::from(body)).map_err(|_| Outcome::OwnTrouble)
}

/// The path and query of the URL, with more of a query after its own.
fn path(url: &Uri, query: Option<&str>) -> Result<PathAndQuery, Outcome> {
    let text = match (query, url.query()) {
        (None, None) => url.path().to_owned(),
        (None, Some(own)) => format!("{}?{own}", url.path()),
        (Some(more), None | Some("")) => format!("{}?{more}", url.path()),
        (Some(more), Some(own)) => format!("{}?{own}&{more}", url.path()),
    };
    text.parse().map_err(|_| Outcome::OwnTrouble)
}

fn whole(url: &Uri, path: PathAndQuery) -> Result<Uri, Outcome> {
    let mut parts = url.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).map_err(|_| Outcome::OwnTrouble)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(url: &'static str, form: Form, version: HttpVersion) -> Request<Bytes> {
        let endpoint = DohEndpoint {
            url: Uri::from_static(url),
            host: String::new(),
            port: 443,
            addresses: Vec::new(),
            bootstrap: Vec::new(),
            form,
            http: None,
        };
        let question = Question { name: "example.com".parse().unwrap(), family: Family::V6 };
        request(&endpoint, &question, version).unwrap()
    }

    #[test]
    fn b15_each_form_has_its_request_and_base64_goes_without_padding() {
        let get = asked("https://d.example/dns-query", Form::WireGet, HttpVersion::Http2);
        let query = get.uri().query().unwrap();
        assert!(query.starts_with("dns=AAAB"), "{query}");
        assert!(!query["dns=".len()..].contains(['=', '+', '/', '&']), "{query}");
        assert_eq!(get.uri().to_string(), format!("https://d.example/dns-query?{query}"));

        let json = asked("https://d.example:8443/resolve?ct=x", Form::Json, HttpVersion::Http1);
        assert_eq!(json.uri().to_string(), "/resolve?ct=x&name=example.com&type=AAAA");
        assert_eq!(json.headers()[HOST], "d.example:8443");
        assert_eq!(json.headers()[ACCEPT], "application/dns-json");

        let post = asked("https://[2001:db8::53]/q", Form::WirePost, HttpVersion::Http1);
        assert_eq!((post.method().as_str(), post.uri().to_string().as_str()), ("POST", "/q"));
        assert_eq!(
            (&post.headers()[HOST], &post.headers()[CONTENT_TYPE]),
            (&"[2001:db8::53]".parse().unwrap(), &DNS_MESSAGE.parse().unwrap())
        );
    }
}
