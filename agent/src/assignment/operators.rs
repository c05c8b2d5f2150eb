//! Whether positive controls are of different operators, as the vantage's own verdict needs it.

use parallax_decide::operator;

use super::{Control, Trial};

/// Whether all positive controls belong to one operator, as far as names and addresses tell.
#[must_use]
pub fn is_one(controls: &[Control]) -> bool {
    operator::is_one(controls.iter().filter_map(|control| match &control.trial {
        Trial::Positive { at, server_name } => Some((at.ip(), server_name.as_deref())),
        Trial::Negative { .. } | Trial::Captive { .. } => None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_stay_silent_is_of_nobody() {
        let control = |name: &str, trial| Control { name: name.parse().unwrap(), trial };
        let at = |text: &str| text.parse().unwrap();
        let negative = control("n", Trial::Negative { at: at("192.0.2.1:443") });
        assert!(!is_one(std::slice::from_ref(&negative)), "there is none");
        let google = |last| Trial::Positive {
            at: at(&format!("8.8.{last}.{last}:443")),
            server_name: Some("dns.google".to_owned()),
        };
        assert!(is_one(&[control("a", google(4)), negative, control("b", google(8))]));
    }
}
