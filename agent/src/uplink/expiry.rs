//! Warns before our own certificate ends, in time scaled to its life.

use crate::certificate::Validity;
use crate::date;

/// Warned of when this share of its life is left, and again at each next one: 6 days, 3 days, 36
/// hours and 7 hours of a certificate of 30 days.
const SHARES: [i64; 4] = [5, 10, 20, 100];

/// What was said of a certificate.
#[derive(Debug, Default)]
pub struct Expiry {
    of: Option<Validity>,
    told: usize,
}

/// What is to be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Ends { left_s: i64 },
    Ended,
}

impl Expiry {
    /// Looks at the certificate in use, and warns when there is something new to say.
    pub fn look(&mut self, validity: Validity, now_s: i64) {
        let ends = date::text(validity.not_after_s);
        match self.word(validity, now_s) {
            None => {}
            Some(Word::Ends { left_s }) => tracing::warn!(
                reason = "certificate_ends",
                left_s,
                %ends,
                "this agent's certificate ends soon and was not renewed; see why in the lines before (by hand: put a new one in its place in the identity folder, it is used without a restart)"
            ),
            Some(Word::Ended) => tracing::error!(
                reason = "certificate_ended",
                %ends,
                "this agent's certificate has ended by this machine's clock; check the clock; for 90 days it is renewed with the first connection, afterwards join anew with a token of `parallax token create NAME`"
            ),
        }
    }

    fn word(&mut self, validity: Validity, now_s: i64) -> Option<Word> {
        if self.of != Some(validity) {
            *self = Self { of: Some(validity), told: 0 };
        }
        let life_s = validity.not_after_s.saturating_sub(validity.not_before_s);
        let left_s = validity.not_after_s.saturating_sub(now_s);
        let stage = match left_s < 0 {
            true => SHARES.len() + 1,
            false => SHARES.iter().filter(|share| left_s < life_s / **share).count(),
        };
        if stage <= self.told {
            return None;
        }
        self.told = stage;
        Some(if left_s < 0 { Word::Ended } else { Word::Ends { left_s } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b67_the_owner_is_warned_in_time_scaled_to_the_certificates_life_and_not_again_and_again() {
        for life_s in [180, 30 * 86_400] {
            let validity = Validity { not_before_s: 1000, not_after_s: 1000 + life_s };
            let mut expiry = Expiry::default();
            let mut said = Vec::new();
            for left in (-10..=1000).rev() {
                said.extend(expiry.word(validity, validity.not_after_s - life_s * left / 1000));
            }
            assert_eq!(said.len(), SHARES.len() + 1, "{said:?}");
            assert!(matches!(said[0], Word::Ends { left_s } if left_s < life_s / 5 && left_s > life_s / 6));
            assert_eq!(said.last(), Some(&Word::Ended));
            let renewed = Validity { not_after_s: validity.not_after_s + life_s, ..validity };
            assert_eq!(expiry.word(renewed, validity.not_after_s), None);
        }
    }
}
