//! Moments as people type them: a time in the zone in which times are shown, one with its own zone, or so long ago.

use parallax_decide::time::Timestamp;

use crate::error::{Exit, Failure};
use crate::report::moment::Zone;
use crate::span;

/// Reads a moment.
///
/// # Errors
/// Exit code 2 when it is none.
pub fn read(option: &str, text: &str, zone: &Zone, now: Timestamp) -> Result<Timestamp, Failure> {
    if text == "now" {
        return Ok(now);
    }
    // 7d and -7d both say so long ago: nobody looks into the future.
    if let Ok(ago) = span::any(text.strip_prefix('-').unwrap_or(text)) {
        return Ok(now.minus(ago));
    }
    zone.read(text).ok_or_else(|| {
        Failure::new(Exit::Usage, format!("`{text}` is no moment for {option}")).fix(
            "write '2026-10-26 14:02' (in the zone in which times are shown), 2026-10-26T11:02:10Z, 7d (ago) or now",
        )
    })
}

/// Reads the two ends of a span, of which the second is cut at now.
///
/// # Errors
/// Exit code 2 when one is no moment, or nothing lies between them.
pub fn between((from, to): (&str, &str), zone: &Zone, now: Timestamp) -> Result<(Timestamp, Timestamp), Failure> {
    let (begin, end) = (read("--from", from, zone, now)?, read("--to", to, zone, now)?.min(now));
    if begin >= end {
        return Err(Failure::new(Exit::Usage, "nothing lies between --from and --to")
            .why(format!("{} is not before {}", zone.date_time(begin), zone.date_time(end)))
            .fix("--from is the earlier one, and --to at most now"));
    }
    Ok((begin, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_time_or_so_long_ago() {
        let (zone, now) = (Zone::utc(), Timestamp(1_793_012_530_000));
        let of = |text: &str| read("--from", text, &zone, now).map(|at| now.0 - at.0);
        assert_eq!(of("now"), Ok(0));
        assert_eq!(of("-30d"), of("30d"));
        assert_eq!(of("90s"), Ok(90_000));
        assert_eq!(of("2026-10-26 11:02"), Ok(10_000));
        assert_eq!(of("soon").map_err(|failure| failure.exit), Err(Exit::Usage));
        assert!(between(("1h", "now"), &zone, now).is_ok());
        assert_eq!(between(("1h", "2h"), &zone, now).map_err(|failure| failure.exit), Err(Exit::Usage));
    }
}
