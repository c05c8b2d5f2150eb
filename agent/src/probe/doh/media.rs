//! Which media types carry a DNS answer.
//!
//! Type and subtype are compared without case and parameters (RFC 9110, 8.3.1).

use http::HeaderMap;
use http::header::CONTENT_TYPE;

use super::Form;

/// The media type of a DNS message (RFC 8484, 6).
pub const DNS_MESSAGE: &str = "application/dns-message";

/// The media type that is asked for in the JSON form.
pub const DNS_JSON: &str = "application/dns-json";

/// What services of the JSON form send it as; the standard knows none.
const JSONS: [&str; 7] = [
    DNS_JSON,
    "application/json",
    "text/json",
    "text/javascript",
    "application/javascript",
    "application/x-javascript",
    "application/dns+json",
];

const HTML: [&str; 2] = ["text/html", "application/xhtml+xml"];

/// What a body is, by its media type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Media {
    /// A DNS message.
    Message,
    /// A JSON document.
    Json,
    /// A page for people.
    Page,
    /// Anything else.
    Other,
    /// Not said.
    Unsaid,
}

impl Media {
    /// As a header value says it.
    #[must_use]
    pub fn read(value: &[u8]) -> Self {
        let Some(essence) = value.split(|byte| *byte == b';').next().map(<[u8]>::trim_ascii) else {
            return Self::Unsaid;
        };
        let among = |known: &[&str]| known.iter().any(|one| essence.eq_ignore_ascii_case(one.as_bytes()));
        if essence.is_empty() {
            Self::Unsaid
        } else if among(&[DNS_MESSAGE]) {
            Self::Message
        } else if among(&JSONS) {
            Self::Json
        } else if among(&HTML) {
            Self::Page
        } else {
            Self::Other
        }
    }

    /// As the headers say it.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        headers.get(CONTENT_TYPE).map_or(Self::Unsaid, |value| Self::read(value.as_bytes()))
    }

    /// Whether a body of this kind can be the answer to a question of this form.
    #[must_use]
    pub fn answers(self, form: Form) -> bool {
        match form {
            Form::WirePost | Form::WireGet => matches!(self, Self::Message | Self::Unsaid),
            Form::Json => matches!(self, Self::Json | Self::Unsaid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b13_case_spacing_and_parameters_do_not_matter() {
        for (value, media) in [
            ("application/dns-json", Media::Json),
            ("application/json", Media::Json),
            ("application/json; charset=UTF-8", Media::Json),
            ("Application/JSON;charset=utf-8", Media::Json),
            ("text/javascript", Media::Json),
            ("application/x-javascript; charset=UTF-8", Media::Json),
            (" application/dns-message ; charset=utf-8", Media::Message),
            ("text/HTML; charset=windows-1251", Media::Page),
            ("application/jsonp", Media::Other),
            ("", Media::Unsaid),
            (";", Media::Unsaid),
        ] {
            assert_eq!(Media::read(value.as_bytes()), media, "{value}");
        }
        assert!(Media::Unsaid.answers(Form::Json) && Media::Unsaid.answers(Form::WireGet));
        assert!(!Media::Json.answers(Form::WirePost) && !Media::Message.answers(Form::Json));
    }
}
