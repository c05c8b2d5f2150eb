//! When a server says that it wants to be left alone (RFC 9110, 10.2.3).

use std::time::Duration;

use crate::date;

/// Longest wait that is believed. A server that asks for more is asked for its reasons by people.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);

/// The wait that a `Retry-After` value asks for: seconds, or a date seen from `now_s` (seconds since
/// 1970, by the server's own clock where it says it). `None` when it is neither.
#[must_use]
pub fn retry_after(value: &[u8], now_s: i64) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let seconds = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are still a number.
        text.parse().unwrap_or(u64::MAX)
    } else {
        // A date in the past asks for no wait.
        u64::try_from(date::http(text)?.saturating_sub(now_s)).unwrap_or(0)
    };
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read_and_bounded() {
        let now = 784_111_777;
        let s = |seconds| Some(Duration::from_secs(seconds));
        for (value, wait) in [
            ("120", s(120)),
            (" 0 ", s(0)),
            ("99999999999999999999999999", Some(RETRY_AFTER_MAX)),
            ("Sun, 06 Nov 1994 08:51:37 GMT", s(120)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", s(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(RETRY_AFTER_MAX)),
            ("-5", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(retry_after(value.as_bytes(), now), wait, "{value}");
        }
        assert_eq!(retry_after(&[0xff, 0xfe], now), None);
    }
}
