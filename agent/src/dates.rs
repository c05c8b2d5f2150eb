//! Notices that certificates fail for their dates wherever we look: then it is our own clock, and
//! not theirs (field case B64).

use parallax_decide::observation::Outcome;

use crate::offset::ClockOffset;

/// So many such failures in a row, without one TLS handshake that came about between them. Controls
/// of several operators are among what is measured, so this is more than one careless server.
const ROW: u32 = 5;

/// What was seen of TLS lately.
#[derive(Debug, Default)]
pub struct Dates {
    row: u32,
}

impl Dates {
    /// Something was measured. Tells the owner once when it comes to that.
    pub fn saw(&mut self, outcome: Outcome, clock: &ClockOffset) {
        if self.is_suspect(outcome) {
            let doubt = clock.doubt(None);
            tracing::warn!(
                reason = "clock_suspected",
                evidence = ?doubt.evidence,
                "local clock suspected: TLS fails wherever it is tried because certificates are out of their time by this machine's clock; set the clock (a machine without a battery clock needs a time service that works without TLS, as NTP does)"
            );
        }
    }

    /// Whether this outcome completes the row.
    fn is_suspect(&mut self, outcome: Outcome) -> bool {
        if matches!(outcome, Outcome::CertificateExpired | Outcome::CertificateNotYetValid) {
            self.row = self.row.saturating_add(1);
            return self.row == ROW;
        }
        if matches!(outcome, Outcome::TlsOk | Outcome::HttpOk) {
            self.row = 0;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b64_when_every_certificate_is_out_of_its_time_the_clock_is_suspected_once() {
        let mut dates = Dates::default();
        let mut told = |outcomes: &[Outcome]| outcomes.iter().filter(|one| dates.is_suspect(**one)).count();
        // One careless server among others that work says nothing.
        assert_eq!(told(&[Outcome::CertificateExpired, Outcome::TlsOk].repeat(20)), 0);
        // What is not about TLS changes nothing.
        assert_eq!(told(&[Outcome::CertificateNotYetValid, Outcome::Answered].repeat(20)), 1);
        assert_eq!(told(&[Outcome::TlsOk]), 0);
        assert_eq!(told(&[Outcome::CertificateExpired].repeat(5)), 1);
    }
}
