//! The two policies that ship, their schedules, and single settings on top.

use std::time::Duration;

use parallax_decide::topology::Policy;
use serde::Deserialize;

use super::Schedule;
use super::file::PolicyName;

/// Longest interval, time-out or life that is accepted: a year.
const DURATION_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Longest pause before a confirming probe, and latest start of an own attempt.
const GAP_MAX: Duration = Duration::from_secs(30);

/// Longest TTL of a pin, seconds: its removal takes effect only after that.
const PIN_TTL_S_MAX: u32 = 3600;

/// The policy of a name.
#[must_use]
pub fn policy(name: PolicyName) -> Policy {
    match name {
        PolicyName::Default => Policy::careful(),
        PolicyName::Fast => Policy::fast(),
    }
}

/// Most jitter (`verdicts`: up to 10 % of the round).
const JITTER_PERMILLE_MAX: u32 = 100;

/// Longest wait for a second UDP reply that agents take.
const UDP_HOLD_MAX: Duration = Duration::from_secs(5);

/// The schedule of a name. With the burst, a black hole gives `k_min` failures over `span_min`
/// from one round: the first failure, then each burst probe after its gap, each lasting until the end
/// of its TCP phase. A failure that is seen at once (a reset) lasts less; there the
/// next round adds what the span still wants.
#[must_use]
pub fn schedule(name: PolicyName) -> Schedule {
    let ms = |values: &[u64]| values.iter().copied().map(Duration::from_millis).collect();
    match name {
        PolicyName::Default => Schedule {
            endpoint_every: Duration::from_secs(30),
            attempt_at: ms(&[0, 500, 1000, 1500]),
            connect_timeout: Duration::from_millis(3000),
            tls_timeout: Duration::from_millis(4000),
            http_timeout: Duration::from_millis(3000),
            resolve_timeout: Duration::from_millis(5000),
            udp_hold: Duration::from_millis(2000),
            jitter_permille: 100,
            probe_budget_permille: 500,
            burst_gaps: ms(&[0, 2000]),
        },
        PolicyName::Fast => Schedule {
            endpoint_every: Duration::from_secs(5),
            attempt_at: ms(&[0, 250]),
            connect_timeout: Duration::from_millis(1000),
            tls_timeout: Duration::from_millis(1500),
            http_timeout: Duration::from_millis(1500),
            resolve_timeout: Duration::from_millis(2000),
            udp_hold: Duration::from_millis(1000),
            jitter_permille: 20,
            // In a laboratory nothing is slow for long.
            probe_budget_permille: 1000,
            burst_gaps: ms(&[250, 1000]),
        },
    }
}

macro_rules! overrides {
    (durations { $($field:ident: $s:ident | $ms:ident),* $(,)? } numbers { $($number:ident: $type:ty),* $(,)? }) => {
        /// `policy_overrides:` the settings of a policy, each duration in whole seconds (`_s`) or in
        /// milliseconds (`_ms`).
        #[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct Overrides {
            $(
                $s: Option<u64>,
                $ms: Option<u64>,
            )*
            $($number: Option<$type>,)*
            endpoint_every_s: Option<u64>,
            attempt_at_ms: Option<Vec<u64>>,
            connect_timeout_ms: Option<u64>,
            tls_timeout_ms: Option<u64>,
            http_timeout_ms: Option<u64>,
            resolve_timeout_ms: Option<u64>,
            udp_hold_ms: Option<u64>,
            jitter_permille: Option<u32>,
            probe_budget_permille: Option<u32>,
            burst_gap_ms: Option<Vec<u64>>,
        }

        impl Overrides {
            /// Puts the settings over a policy and a schedule.
            ///
            /// # Errors
            /// When one is given in both units, or out of bounds, or the whole makes no sense.
            pub fn apply(&self, policy: &mut Policy, schedule: &mut Schedule) -> Result<(), String> {
                $(
                    if let Some(value) = one_of(stringify!($field), self.$s, self.$ms)? {
                        policy.$field = value;
                    }
                )*
                $(
                    if let Some(value) = self.$number {
                        policy.$number = value;
                    }
                )*
                self.apply_schedule(schedule)
            }
        }
    };
}

overrides! {
    durations {
        span_min: span_min_s | span_min_ms,
        canary_every: canary_every_s | canary_every_ms,
        node_every: node_every_s | node_every_ms,
        control_every: control_every_s | control_every_ms,
        silent_after: silent_after_s | silent_after_ms,
        fresh_for: fresh_for_s | fresh_for_ms,
        open_after: open_after_s | open_after_ms,
        proof_age_max: proof_age_max_s | proof_age_max_ms,
        return_span: return_span_s | return_span_ms,
        dwell: dwell_s | dwell_ms,
        dwell_max: dwell_max_s | dwell_max_ms,
        relapse_window: relapse_window_s | relapse_window_ms,
        verify_within: verify_within_s | verify_within_ms,
        pin_life: pin_life_s | pin_life_ms,
        ask_again_after: ask_again_after_s | ask_again_after_ms,
    }
    numbers {
        k_min: u32,
        k_max: u32,
        fallback_provers_min: usize,
        return_rounds: u32,
        changes_max: u32,
        pin_ttl_s: u32,
    }
}

impl Overrides {
    fn apply_schedule(&self, schedule: &mut Schedule) -> Result<(), String> {
        let ms = |values: &Vec<u64>| values.iter().copied().map(Duration::from_millis).collect();
        if let Some(seconds) = self.endpoint_every_s {
            schedule.endpoint_every = Duration::from_secs(seconds);
        }
        if let Some(values) = &self.attempt_at_ms {
            schedule.attempt_at = ms(values);
        }
        if let Some(values) = &self.burst_gap_ms {
            schedule.burst_gaps = ms(values);
        }
        for (value, field) in [
            (self.connect_timeout_ms, &mut schedule.connect_timeout),
            (self.tls_timeout_ms, &mut schedule.tls_timeout),
            (self.http_timeout_ms, &mut schedule.http_timeout),
            (self.resolve_timeout_ms, &mut schedule.resolve_timeout),
            (self.udp_hold_ms, &mut schedule.udp_hold),
        ] {
            if let Some(value) = value {
                *field = Duration::from_millis(value);
            }
        }
        for (value, field) in [
            (self.jitter_permille, &mut schedule.jitter_permille),
            (self.probe_budget_permille, &mut schedule.probe_budget_permille),
        ] {
            if let Some(value) = value {
                *field = value;
            }
        }
        Ok(())
    }
}

fn one_of(field: &str, seconds: Option<u64>, millis: Option<u64>) -> Result<Option<Duration>, String> {
    let value = match (seconds, millis) {
        (Some(_), Some(_)) => return Err(format!("{field} is given in seconds and in milliseconds; keep one")),
        (Some(seconds), None) => Some(Duration::from_secs(seconds)),
        (None, millis) => millis.map(Duration::from_millis),
    };
    match value {
        Some(value) if value > DURATION_MAX => Err(format!("{field} is longer than a year")),
        value => Ok(value),
    }
}

/// What is wrong with a policy and its schedule as a whole.
#[must_use]
pub fn faults(policy: &Policy, schedule: &Schedule) -> Vec<String> {
    let mut faults = Vec::new();
    let mut need = |right: bool, fault: String| {
        if !right {
            faults.push(fault);
        }
    };
    let second = Duration::from_secs(1);
    for (name, interval) in [
        ("canary_every", policy.canary_every),
        ("node_every", policy.node_every),
        ("control_every", policy.control_every),
        ("endpoint_every", schedule.endpoint_every),
    ] {
        need(interval >= second && interval <= second * 3600, format!("{name} must be 1 s to 1 h, not {interval:?}"));
    }
    for (name, limit) in [
        ("connect_timeout", schedule.connect_timeout),
        ("tls_timeout", schedule.tls_timeout),
        ("http_timeout", schedule.http_timeout),
        ("resolve_timeout", schedule.resolve_timeout),
    ] {
        need(limit >= second / 10 && limit <= second * 30, format!("{name} must be 100 ms to 30 s, not {limit:?}"));
    }
    need(policy.k_min >= 3, format!("k_min has a floor of 3: fewer failures prove nothing; it is {}", policy.k_min));
    need(policy.fallback_provers_min >= 1, "fallback_provers_min must be at least 1".to_owned());
    need(policy.changes_max >= 1, "changes_max must be at least 1".to_owned());
    need(policy.return_rounds >= 1, "return_rounds must be at least 1".to_owned());
    need((1..=PIN_TTL_S_MAX).contains(&policy.pin_ttl_s), format!("pin_ttl_s must be 1 to {PIN_TTL_S_MAX}"));
    for (name, span) in [
        ("proof_age_max", policy.proof_age_max),
        ("verify_within", policy.verify_within),
        ("ask_again_after", policy.ask_again_after),
    ] {
        need(span >= second, format!("{name} must be at least 1 s, not {span:?}"));
    }
    need(policy.pin_life >= second * 60, format!("pin_life must be at least 60 s, not {:?}", policy.pin_life));
    need(
        policy.fresh_for > policy.canary_every,
        format!(
            "fresh_for ({:?}) must be longer than canary_every ({:?}): else nothing is ever known",
            policy.fresh_for, policy.canary_every
        ),
    );
    need(policy.dwell_max >= policy.dwell, "dwell_max must not be shorter than dwell".to_owned());
    need(
        policy.silent_after > policy.canary_every,
        format!(
            "silent_after ({:?}) must be longer than canary_every ({:?})",
            policy.silent_after, policy.canary_every
        ),
    );
    let attempts = &schedule.attempt_at;
    need(
        (1..=4).contains(&attempts.len()) && attempts.is_sorted() && attempts.first().is_some_and(Duration::is_zero),
        "attempt_at_ms must hold one to four rising times, the first 0".to_owned(),
    );
    need(schedule.burst_gaps.len() <= 8, "burst_gap_ms holds at most 8 gaps".to_owned());
    need(
        attempts.iter().chain(&schedule.burst_gaps).all(|gap| *gap <= GAP_MAX),
        format!("attempt_at_ms and burst_gap_ms hold at most {} ms", GAP_MAX.as_millis()),
    );
    let last = attempts.last().copied().unwrap_or_default();
    need(
        last < schedule.connect_timeout,
        format!(
            "attempt_at_ms starts an attempt after {last:?}, but connect_timeout_ms ends the TCP phase after {:?}",
            schedule.connect_timeout
        ),
    );
    need(
        schedule.jitter_permille <= JITTER_PERMILLE_MAX,
        format!("jitter_permille must be at most {JITTER_PERMILLE_MAX}, not {}", schedule.jitter_permille),
    );
    need(
        (1..=1000).contains(&schedule.probe_budget_permille),
        format!("probe_budget_permille must be 1 to 1000, not {}", schedule.probe_budget_permille),
    );
    need(
        schedule.udp_hold <= UDP_HOLD_MAX,
        format!("udp_hold_ms must be at most {} ms, not {:?}", UDP_HOLD_MAX.as_millis(), schedule.udp_hold),
    );
    let probe = schedule.connect_timeout;
    let burst = schedule.burst_gaps.iter().fold(Duration::ZERO, |sum, gap| sum + *gap + probe);
    need(
        1 + schedule.burst_gaps.len() >= policy.k_min as usize && burst >= policy.span_min,
        format!(
            "a burst gives {} failures over {burst:?}, but k_min is {} over span_min {:?}: add gaps to burst_gap_ms",
            1 + schedule.burst_gaps.len(),
            policy.k_min,
            policy.span_min
        ),
    );
    faults.extend(budget_faults(policy, schedule));
    faults
}

/// The longest a connection may take: TCP, TLS, and HTTP where a target asks for it.
#[must_use]
pub fn connection_budget(schedule: &Schedule, http: bool) -> Duration {
    let http = if http { schedule.http_timeout } else { Duration::ZERO };
    schedule.connect_timeout + schedule.tls_timeout + http
}

/// What a probe may take of its interval.
#[must_use]
pub fn allowance(every: Duration, schedule: &Schedule) -> Duration {
    every.saturating_mul(schedule.probe_budget_permille) / 1000
}

/// Probes that cannot be over before the next one, and answers that come too late to count: a slow
/// failure would then never be seen.
fn budget_faults(policy: &Policy, schedule: &Schedule) -> Vec<String> {
    let mut faults = Vec::new();
    let connection = connection_budget(schedule, false);
    let share = share_words(schedule);
    for (every, interval, limits, budget) in [
        ("canary_every", policy.canary_every, "connect_timeout_ms plus tls_timeout_ms", connection),
        ("node_every", policy.node_every, "connect_timeout_ms plus tls_timeout_ms", connection),
        ("control_every", policy.control_every, "connect_timeout_ms plus tls_timeout_ms", connection),
        ("canary_every", policy.canary_every, "resolve_timeout_ms", schedule.resolve_timeout),
        ("endpoint_every", schedule.endpoint_every, "resolve_timeout_ms", schedule.resolve_timeout),
    ] {
        if budget > allowance(interval, schedule) {
            faults.push(format!(
                "a probe may take {budget:?} ({limits}), which is more than {share} {every} ({interval:?}): \
                 lower {limits}, or raise {every} to at least {:?}",
                needed(budget, schedule)
            ));
        }
    }
    let latest = policy.canary_every + schedule.resolve_timeout + connection;
    for (name, limit) in [("silent_after", policy.silent_after), ("fresh_for", policy.fresh_for)] {
        if limit > policy.canary_every && limit <= latest {
            faults.push(format!(
                "a slow failure is known {latest:?} after the one before (canary_every, resolve_timeout_ms, \
                 connect_timeout_ms and tls_timeout_ms together), too late for {name} ({limit:?}): raise {name} above \
                 {latest:?}"
            ));
        }
    }
    faults
}

/// The shortest interval that leaves room for a probe.
#[must_use]
pub fn needed(budget: Duration, schedule: &Schedule) -> Duration {
    let permille = u64::from(schedule.probe_budget_permille.max(1));
    let ms = u64::try_from(budget.as_millis()).unwrap_or(u64::MAX).saturating_mul(1000).div_ceil(permille);
    Duration::from_millis(ms)
}

/// The share of its interval that a probe may take, as a message says it.
#[must_use]
pub fn share_words(schedule: &Schedule) -> String {
    match schedule.probe_budget_permille {
        500 => "half of".to_owned(),
        1000 => "the whole of".to_owned(),
        permille => format!("{permille} thousandths (probe_budget_permille) of"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_policies_pass_their_own_check() {
        for name in [PolicyName::Default, PolicyName::Fast] {
            assert_eq!(faults(&policy(name), &schedule(name)), Vec::<String>::new(), "{name:?}");
        }
    }

    #[test]
    fn settings_are_put_over_a_policy() {
        let (mut p, mut s) = (policy(PolicyName::Fast), schedule(PolicyName::Fast));
        let overrides: Overrides =
            serde_saphyr::from_str("{ dwell_s: 40, span_min_ms: 2500, k_min: 4, burst_gap_ms: [0, 0, 500] }").unwrap();
        overrides.apply(&mut p, &mut s).unwrap();
        assert_eq!((p.dwell, p.span_min, p.k_min), (Duration::from_secs(40), Duration::from_millis(2500), 4));
        assert_eq!(faults(&p, &s), Vec::<String>::new());
        let both: Overrides = serde_saphyr::from_str("{ dwell_s: 40, dwell_ms: 1 }").unwrap();
        assert!(both.apply(&mut p, &mut s).unwrap_err().contains("keep one"));
    }

    #[test]
    fn settings_under_which_nothing_could_work_are_refused() {
        for (yaml, said) in [
            ("{ return_rounds: 0 }", "return_rounds must be at least 1"),
            ("{ pin_ttl_s: 0 }", "pin_ttl_s must be 1 to 3600"),
            ("{ pin_ttl_s: 4000000000 }", "pin_ttl_s must be 1 to 3600"),
            ("{ proof_age_max_s: 0 }", "proof_age_max must be at least 1 s"),
            ("{ verify_within_ms: 1 }", "verify_within must be at least 1 s"),
            ("{ pin_life_s: 1 }", "pin_life must be at least 60 s"),
            ("{ fresh_for_s: 5 }", "fresh_for (5s) must be longer than canary_every (60s)"),
            ("{ burst_gap_ms: [0, 18446744073709551615] }", "hold at most 30000 ms"),
        ] {
            let (mut p, mut s) = (policy(PolicyName::Default), schedule(PolicyName::Default));
            let overrides: Overrides = serde_saphyr::from_str(yaml).unwrap();
            overrides.apply(&mut p, &mut s).unwrap();
            let faults = faults(&p, &s);
            assert!(faults.len() == 1 && faults[0].contains(said), "{yaml}: {faults:?}");
        }
    }

    #[test]
    fn a_burst_too_short_for_the_span_is_refused() {
        let p = policy(PolicyName::Default);
        let mut s = schedule(PolicyName::Default);
        s.burst_gaps.truncate(1);
        assert!(faults(&p, &s)[0].contains("a burst gives 2 failures"), "{:?}", faults(&p, &s));
    }
}
