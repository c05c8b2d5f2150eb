//! Dates of certificates and of HTTP, as seconds since 1970-01-01T00:00:00Z and back.
//!
//! Days are counted in the proleptic Gregorian calendar; a year begins in March here, so that the
//! leap day is its last.

/// Seconds of a day.
const DAY_S: i64 = 86_400;

/// Names of the months in an HTTP date (RFC 9110, 5.6.7).
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Seconds since 1970 of a moment of UTC; `None` when it is none.
#[must_use]
pub fn unix_s(year: i64, month: i64, day: i64, hour: i64, minute: i64, second: i64) -> Option<i64> {
    let fits = (0..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        // A leap second is written 60.
        && (0..=60).contains(&second);
    if !fits {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days * DAY_S + hour * 3600 + minute * 60 + second)
}

/// `2026-11-30T11:05:29Z`.
#[must_use]
pub fn text(unix_s: i64) -> String {
    let (days, second) = (unix_s.div_euclid(DAY_S) + 719_468, unix_s.rem_euclid(DAY_S));
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Seconds since 1970 of an HTTP date in its fixed form, `Sun, 06 Nov 1994 08:49:37 GMT`. The two
/// obsolete forms are not read: nothing rests on a date alone.
#[must_use]
pub fn http(text: &str) -> Option<i64> {
    let mut words = text.trim().split(' ');
    let _weekday = words.next()?;
    let day = number(words.next()?)?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|known| *known == month).and_then(|at| i64::try_from(at + 1).ok())?;
    let year = number(words.next()?)?;
    let mut time = words.next()?.splitn(3, ':').map(number);
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    (words.next() == Some("GMT")).then(|| unix_s(year, month, day, hour, minute, second))?
}

/// A number of one to four digits.
pub(crate) fn number(text: &str) -> Option<i64> {
    let digits = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_go_both_ways() {
        for (unix, written) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_583_020_799, "2020-02-29T23:59:59Z"),
            (1_796_000_000, "2026-11-30T00:53:20Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(text(unix), written);
            let part = |from: usize, to: usize| number(&written[from..to]).unwrap();
            let back = unix_s(part(0, 4), part(5, 7), part(8, 10), part(11, 13), part(14, 16), part(17, 19));
            assert_eq!(back, Some(unix));
        }
        assert_eq!(unix_s(2026, 13, 1, 0, 0, 0), None);
    }

    #[test]
    fn an_http_date_is_read_and_rubbish_is_not() {
        assert_eq!(http("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        for bad in ["", "Sun, 06 Nov 1994 08:49:37", "Sun, 6x Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT"]
        {
            assert_eq!(http(bad), None, "{bad}");
        }
    }
}
