//! What a place says of its own state.

/// Own clock and controls in a few words; empty: it has said neither lately.
#[must_use]
pub fn condition(clock_offset_ms: Option<i64>, controls: Option<(i64, i64)>) -> String {
    let clock = clock_offset_ms.map(clock);
    let controls = controls.map(|(failures, checks)| format!("controls {failures} of {checks} failed in 20 min"));
    clock.into_iter().chain(controls).collect::<Vec<_>>().join(", ")
}

/// That two machines use one identity, with the addresses they come from.
#[must_use]
pub fn cloned((one, other): &(String, String)) -> String {
    format!("two machines use its identity: {one} and {other}")
}

/// How far its clock is from the coordinator's: `clock 12 ms`, `clock 3.5 s behind`.
fn clock(offset_ms: i64) -> String {
    let off = offset_ms.unsigned_abs();
    let side = if offset_ms < 0 { "behind" } else { "ahead" };
    match off {
        0..1000 => format!("clock {off} ms"),
        1000..120_000 => format!("clock {}.{} s {side}", off / 1000, off % 1000 / 100),
        _ => format!("clock {} min {side}", off / 60_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_reads_in_a_few_words() {
        assert_eq!(condition(Some(12), Some((0, 180))), "clock 12 ms, controls 0 of 180 failed in 20 min");
        assert_eq!(condition(Some(-3500), None), "clock 3.5 s behind");
        assert_eq!(condition(Some(7_200_000), None), "clock 120 min ahead");
        assert_eq!(condition(None, None), "");
        assert!(condition(Some(i64::MIN), None).contains("behind"));
    }
}
