//! Times and spans as people read them. Inside everything is UTC; a zone belongs to the display.

use std::fmt;
use std::time::Duration;

use jiff::tz::TimeZone;
use parallax_decide::time::Timestamp;
use serde::{Serialize, Serializer};

/// A moment, in JSON as RFC 3339 in UTC with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct At(pub Timestamp);

impl At {
    /// `2026-10-26T11:02:10.123Z`.
    #[must_use]
    pub fn iso(self) -> String {
        format!("{:.3}", civil(self.0))
    }

    /// `2026-10-26 11:02:10 UTC`.
    #[must_use]
    pub fn utc(self) -> String {
        Zone::utc().date_time(self.0)
    }

    /// `11:02:10`, UTC.
    #[must_use]
    pub fn clock(self) -> String {
        Zone::utc().clock(self.0)
    }

    /// How long before `now`: `4 s`, `12 min`, `3 d`.
    #[must_use]
    pub fn age(self, now: &At) -> String {
        coarse(now.0.since(self.0))
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.utc())
    }
}

impl Serialize for At {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.iso())
    }
}

/// The zone times are shown in.
#[derive(Debug, Clone)]
pub struct Zone(TimeZone);

impl Zone {
    /// Coordinated universal time: pages, whose readers' zones are not known here.
    #[must_use]
    pub fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// The zone of this machine or of `TZ`; UTC when neither is known.
    #[must_use]
    pub fn system() -> Self {
        Self(TimeZone::try_system().unwrap_or(TimeZone::UTC))
    }

    /// A zone by its POSIX rule, such as `MSK-3`; none when it is no such rule.
    #[must_use]
    pub fn posix(rule: &str) -> Option<Self> {
        TimeZone::posix(rule).ok().map(Self)
    }

    /// Reads `2026-10-26 14:02`, `2026-10-26T14:02:10`, `2026-10-26` (its begin), all in this zone, or
    /// `2026-10-26T11:02:10Z`, which brings its own. None when it is no such moment.
    #[must_use]
    pub fn read(&self, text: &str) -> Option<Timestamp> {
        let text = text.trim();
        if let Ok(moment) = text.parse::<jiff::Timestamp>() {
            return Some(Timestamp(moment.as_millisecond()));
        }
        let civil = text.parse::<jiff::civil::DateTime>().ok()?;
        Some(Timestamp(self.0.to_timestamp(civil).ok()?.as_millisecond()))
    }

    /// `2026-10-26 14:02:10 MSK`.
    #[must_use]
    pub fn date_time(&self, at: Timestamp) -> String {
        self.format(at, "%Y-%m-%d %H:%M:%S %Z")
    }

    /// `2026-10-26 14:02`.
    #[must_use]
    pub fn minute(&self, at: Timestamp) -> String {
        self.format(at, "%Y-%m-%d %H:%M")
    }

    /// `14:02:10`.
    #[must_use]
    pub fn clock(&self, at: Timestamp) -> String {
        self.format(at, "%H:%M:%S")
    }

    /// `14:02:10 MSK`: inside a sentence.
    #[must_use]
    pub fn clock_named(&self, at: Timestamp) -> String {
        self.format(at, "%H:%M:%S %Z")
    }

    /// Abbreviation in force at a moment, such as `MSK`.
    #[must_use]
    pub fn abbreviation(&self, at: Timestamp) -> String {
        self.format(at, "%Z")
    }

    /// `11:02:10Z` beside a local time, nothing where that is UTC already.
    #[must_use]
    pub fn and_utc(&self, at: Timestamp) -> String {
        if self.0.to_offset(civil(at)).is_zero() { String::new() } else { format!(" ({}Z)", Self::utc().clock(at)) }
    }

    fn format(&self, at: Timestamp, pattern: &str) -> String {
        civil(at).to_zoned(self.0.clone()).strftime(pattern).to_string()
    }
}

/// Exact to the second, short: `7s`, `41m12s`, `3h05m`, `12d4h`.
#[must_use]
pub fn span(span: Duration) -> String {
    let s = span.as_secs();
    let (m, h, d) = (s / 60, s / 3600, s / 86_400);
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{m}m{:02}s", s % 60),
        3600..86_400 => format!("{h}h{:02}m", m % 60),
        _ => format!("{d}d{}h", h % 24),
    }
}

/// One unit, for ages: `4 s`, `12 min`, `3 h`, `5 d`.
#[must_use]
pub fn coarse(span: Duration) -> String {
    let s = span.as_secs();
    match s {
        0..120 => format!("{s} s"),
        120..7200 => format!("{} min", s / 60),
        7200..172_800 => format!("{} h", s / 3600),
        _ => format!("{} d", s / 86_400),
    }
}

/// Microseconds as milliseconds or seconds: `0.4 ms`, `38 ms`, `3.0 s`.
#[must_use]
pub fn measured(us: i64) -> String {
    let us = us.max(0);
    if us < 1_000 {
        format!("0.{} ms", us / 100)
    } else if us < 1_000_000 {
        format!("{} ms", us / 1_000)
    } else {
        format!("{}.{} s", us / 1_000_000, us % 1_000_000 / 100_000)
    }
}

fn civil(at: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(at.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Timestamp = Timestamp(1_793_012_530_123);

    #[test]
    fn a_time_is_shown_in_its_zone_and_in_utc() {
        let moscow = Zone::posix("MSK-3").unwrap();
        assert_eq!(At(AT).iso(), "2026-10-26T11:02:10.123Z");
        assert_eq!(moscow.date_time(AT), "2026-10-26 14:02:10 MSK");
        assert_eq!(moscow.and_utc(AT), " (11:02:10Z)");
        assert_eq!(Zone::utc().and_utc(AT), "");
        assert_eq!(At(AT).to_string(), "2026-10-26 11:02:10 UTC");
    }

    #[test]
    fn spans_are_short_and_exact_enough() {
        let s = Duration::from_secs;
        for (secs, text) in [(7, "7s"), (65, "1m05s"), (2472, "41m12s"), (11_100, "3h05m"), (1_051_200, "12d4h")] {
            assert_eq!(span(s(secs)), text);
        }
        for (secs, text) in [(4, "4 s"), (119, "119 s"), (360, "6 min"), (7200, "2 h"), (400_000, "4 d")] {
            assert_eq!(coarse(s(secs)), text);
        }
        for (us, text) in [(400, "0.4 ms"), (38_900, "38 ms"), (3_004_000, "3.0 s"), (-1, "0.0 ms")] {
            assert_eq!(measured(us), text);
        }
    }

    #[test]
    fn a_moment_is_read_in_the_zone_of_the_reader_unless_it_brings_its_own() {
        let moscow = Zone::posix("MSK-3").unwrap();
        let minute = |zone: &Zone, text: &str| zone.read(text).map(|at| At(at).iso());
        for (text, read) in [
            ("2026-10-26 14:02", "2026-10-26T11:02:00.000Z"),
            ("2026-10-26T14:02:10", "2026-10-26T11:02:10.000Z"),
            ("2026-10-26", "2026-10-25T21:00:00.000Z"),
            ("2026-10-26T11:02:10Z", "2026-10-26T11:02:10.000Z"),
            ("2026-10-26T11:02:10.123+02:00", "2026-10-26T09:02:10.123Z"),
        ] {
            assert_eq!(minute(&moscow, text).as_deref(), Some(read), "{text}");
        }
        for wrong in ["", "yesterday", "14:02", "2026-13-01", "-1d"] {
            assert_eq!(minute(&moscow, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_time_out_of_range_does_not_fail() {
        assert_eq!(At(Timestamp(i64::MAX)).iso(), "1970-01-01T00:00:00.000Z");
    }
}
