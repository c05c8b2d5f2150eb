//! What an HTTP answer is worth: the bytes of a DNS answer, or the word for what it is instead.

use std::time::Duration;

use http::header::{DATE, HeaderMap, LOCATION, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body as _, Bytes};
use parallax_decide::observation::Outcome;
use tokio::time::timeout;

use super::Form;
use super::media::Media;
use super::retry::retry_after;
use crate::clock::unix_ms;
use crate::date;
use crate::probe::ask::Trace;
use crate::probe::message::REPLY_BYTES_MAX;
use crate::probe::remark::{add, harmless};

/// Most of a page that is read for its title, in bytes, and the longest wait for it: the outcome is
/// known before.
const PAGE_BYTES_MAX: usize = 4096;
const PAGE_WAIT_MAX: Duration = Duration::from_millis(500);

/// Longest part of a stranger's text in a remark, in characters.
const TOLD_MAX: usize = 80;

/// Clocks that differ by this much or less are the same: the header has whole seconds, and the
/// answer was under way.
const CLOCK_TOLERANCE_S: i64 = 2;

/// The body of an answer, of either version of HTTP.
pub(super) type Answer = UnsyncBoxBody<Bytes, Broken>;

/// How a body broke off.
#[derive(Debug, thiserror::Error)]
#[error("the body broke off: {0}")]
pub(super) struct Broken(pub(super) Outcome);

/// The body of a good answer.
///
/// # Errors
/// The word for what came instead; `trace` has the particulars.
pub(super) async fn body(response: Response<Answer>, form: Form, trace: &mut Trace) -> Result<Bytes, Outcome> {
    let status = response.status();
    trace.http_status = status.as_u16();
    let server_now = server_clock(response.headers(), trace);
    if let Some(outcome) = refusal(status, form, response.headers(), server_now, trace) {
        if outcome == Outcome::HttpStatus {
            page(response, trace).await;
        }
        return Err(outcome);
    }
    let media = Media::of(response.headers());
    let body = response.body();
    if body.is_end_stream() || body.size_hint().exact() == Some(0) {
        return Err(Outcome::HttpEmpty);
    }
    if !media.answers(form) {
        unfit(response, media, form, trace).await;
        return Err(Outcome::HttpNotDns);
    }
    // A length that is too large is believed: nothing of it is read.
    if body.size_hint().lower() > u64::try_from(REPLY_BYTES_MAX).unwrap_or(u64::MAX) {
        return Err(Outcome::HttpTooLarge);
    }
    let whole = match Limited::new(response.into_body(), REPLY_BYTES_MAX).collect().await {
        Ok(whole) => whole.to_bytes(),
        Err(error) => {
            return Err(match error.downcast::<Broken>() {
                Ok(broken) => broken.0,
                // The only other error is the limit.
                Err(_) => Outcome::HttpTooLarge,
            });
        }
    };
    match whole.first() {
        None => Err(Outcome::HttpEmpty),
        // No message of ours begins so (its id is 0), and no document: a page without a media type.
        Some(b'<') if media == Media::Unsaid => {
            add(&mut trace.remark, &page_remark(&whole));
            Err(Outcome::HttpNotDns)
        }
        Some(_) => Ok(whole),
    }
}

/// The word for a status other than 2xx; `None` for those: only they carry a DNS answer (RFC 8484, 4.2.1).
fn refusal(status: StatusCode, form: Form, headers: &HeaderMap, now_s: i64, trace: &mut Trace) -> Option<Outcome> {
    let wait = headers.get(RETRY_AFTER).and_then(|value| retry_after(value.as_bytes(), now_s));
    let asks_to_slow_down = status == StatusCode::TOO_MANY_REQUESTS
        || (status == StatusCode::SERVICE_UNAVAILABLE && headers.contains_key(RETRY_AFTER));
    if status.is_success() {
        None
    } else if asks_to_slow_down {
        trace.retry_after = wait;
        Some(Outcome::HttpThrottled)
    } else if status.is_redirection() {
        let target = headers.get(LOCATION).map(|value| harmless(&String::from_utf8_lossy(value.as_bytes()), TOLD_MAX));
        add(&mut trace.remark, &format!("redirects to {}, not followed", target.as_deref().unwrap_or("nowhere")));
        Some(Outcome::HttpRedirect)
    } else if matches!(status.as_u16(), 400 | 404 | 405 | 415) {
        add(&mut trace.remark, &format!("answers {} to {}", status.as_u16(), form.in_words()));
        Some(Outcome::HttpUnsupported)
    } else {
        if status == StatusCode::NETWORK_AUTHENTICATION_REQUIRED {
            add(&mut trace.remark, "a captive portal wants a login (RFC 6585, 6)");
        }
        Some(Outcome::HttpStatus)
    }
}

/// The server's clock in seconds since 1970, or ours where it does not tell; a difference is noted.
fn server_clock(headers: &HeaderMap, trace: &mut Trace) -> i64 {
    let ours = i64::try_from(unix_ms() / 1000).unwrap_or(i64::MAX);
    let told = headers.get(DATE).and_then(|value| value.to_str().ok()).and_then(date::http);
    let Some(its) = told else { return ours };
    if its.saturating_sub(ours).abs() > CLOCK_TOLERANCE_S {
        add(&mut trace.remark, &format!("its clock says {}, ours {}", date::text(its), date::text(ours)));
    }
    its
}

/// Notes what came instead of a DNS answer.
async fn unfit(response: Response<Answer>, media: Media, form: Form, trace: &mut Trace) {
    let told = response.headers().get(http::header::CONTENT_TYPE);
    let told = told.map(|value| harmless(&String::from_utf8_lossy(value.as_bytes()), TOLD_MAX)).unwrap_or_default();
    match media {
        Media::Page => page(response, trace).await,
        Media::Message | Media::Json => {
            let remark = format!("answers {told} to {}; correct the endpoint's format", form.in_words());
            add(&mut trace.remark, &remark);
        }
        Media::Other | Media::Unsaid => add(&mut trace.remark, &format!("answers {told}")),
    }
}

/// Reads the beginning of a page and notes its title.
async fn page(response: Response<Answer>, trace: &mut Trace) {
    if Media::of(response.headers()) != Media::Page {
        return;
    }
    let mut body = response.into_body();
    let mut beginning = Vec::new();
    let reading = async {
        while beginning.len() < PAGE_BYTES_MAX
            && let Some(Ok(frame)) = body.frame().await
        {
            let bytes = frame.data_ref().map_or(&[][..], |bytes| bytes);
            beginning.extend_from_slice(bytes.get(..bytes.len().min(PAGE_BYTES_MAX)).unwrap_or_default());
        }
    };
    // What came until then is enough.
    let _ = timeout(PAGE_WAIT_MAX, reading).await;
    add(&mut trace.remark, &page_remark(&beginning));
}

fn page_remark(page: &[u8]) -> String {
    let text = String::from_utf8_lossy(page.get(..page.len().min(PAGE_BYTES_MAX)).unwrap_or_default());
    let title = title(&text).map(|title| harmless(title, TOLD_MAX)).filter(|title| !title.is_empty());
    match title {
        Some(title) => format!("a web page, as a login page of a captive portal would be: \"{title}\""),
        None => "a web page, as a login page of a captive portal would be".to_owned(),
    }
}

/// What stands between `<title…>` and the next tag.
fn title(page: &str) -> Option<&str> {
    // Lower case of ASCII alone keeps every position.
    let lower = page.to_ascii_lowercase();
    let from = lower.find("<title")?;
    let (_, rest) = page.get(from..)?.split_once('>')?;
    rest.split('<').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pages_title_is_told_and_harmless() {
        for (page, remark) in [
            ("<html><head><TITLE lang=ru>Вход\n в сеть</TITLE>", "would be: \"Вход в сеть\""),
            ("<title>\u{1b}[2J</title>", "\"·[2J\""),
            ("<title", "would be"),
            ("", "would be"),
        ] {
            assert!(page_remark(page.as_bytes()).contains(remark), "{page}: {}", page_remark(page.as_bytes()));
        }
        assert!(page_remark(&[b'<'; 100_000]).len() < 200);
    }
}
