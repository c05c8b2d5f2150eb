//! What a coordinator's refusal means for whoever stands at this machine.

use crate::failure::{Exit, Failure};
use crate::uplink::enrolment::NotEnrolled;

/// What the coordinator puts before each of its reasons.
const PREFIX: &str = "the join token was refused: ";

/// The failure that a refusal is. `vantage` is whom the token or the certificate is for.
#[must_use]
pub fn failure(refused: &NotEnrolled, vantage: &str) -> Failure {
    let again = format!("on the coordinator run  parallax token create {vantage}   and try again with what it prints");
    match refused {
        NotEnrolled::Trouble(trouble) => Failure {
            exit: Exit::Unreachable,
            code: "E0501",
            word: trouble.word(),
            what: "no coordinator could be asked".to_owned(),
            why: trouble.to_string(),
            fix: "put that right and try again: the token was not used".to_owned(),
        },
        NotEnrolled::Refused { word, why } => refusal(word, why.strip_prefix(PREFIX).unwrap_or(why), vantage, again),
        NotEnrolled::Clock { offset_ms, why } => Failure {
            exit: Exit::Failed,
            code: "E0421",
            word: "clock_skew",
            what: match offset_ms {
                Some(ms) => format!("this machine's clock and the coordinator's are {ms} ms apart (positive: this one is ahead)"),
                None => "this machine's clock and the coordinator's are too far apart".to_owned(),
            },
            why: why.clone(),
            fix: "compare both with a third, set the wrong one (a time service: systemd-timesyncd, chrony) and try again: the token was not used".to_owned(),
        },
        NotEnrolled::Later { why, .. } => Failure {
            exit: Exit::Unreachable,
            code: "E0502",
            word: "not_now",
            what: "the coordinator did not answer as it should".to_owned(),
            why: why.clone(),
            fix: "try again: the same token from this machine is answered again, also when it was used by a try whose answer was lost".to_owned(),
        },
        NotEnrolled::NotOffered => Failure {
            exit: Exit::Failed,
            code: "E0503",
            word: "not_offered",
            what: "the coordinator does not know how to let an agent join".to_owned(),
            why: "it is older than this agent".to_owned(),
            fix: "upgrade the coordinator".to_owned(),
        },
        NotEnrolled::Answer(why) => Failure {
            exit: Exit::Failed,
            code: "E0504",
            word: "answer_unusable",
            what: "the coordinator's answer could not be used".to_owned(),
            why: why.clone(),
            fix: "put that right and try again with the same token: it is answered again on this machine".to_owned(),
        },
    }
}

fn refusal(word: &str, why: &str, vantage: &str, again: String) -> Failure {
    let token = "the coordinator refused this join token";
    let key = "the coordinator does not renew this agent's certificate";
    let (code, word, what, fix) = match word {
        "token_unknown" => ("E0411", "token_unknown", token, again),
        "token_used" => ("E0412", "token_used", token, again),
        "token_expired" => ("E0413", "token_expired", token, again),
        "token_revoked" => ("E0414", "token_revoked", token, again),
        "vantage_revoked" => (
            "E0415",
            "vantage_revoked",
            "the coordinator has revoked this vantage",
            format!(
                "if it shall measure again, run on the coordinator  parallax vantage replace {vantage}   and join with the token it prints"
            ),
        ),
        "vantage_unknown" => (
            "E0416",
            "vantage_unknown",
            "the coordinator does not have this vantage",
            format!("put {vantage} under vantages: in parallax.yaml, then: {again}"),
        ),
        "request_invalid" => (
            "E0417",
            "request_invalid",
            "the coordinator could not read this agent's request",
            "install the agent that belongs to the coordinator".to_owned(),
        ),
        "key_unknown" => ("E0418", "key_unknown", key, again),
        "renewal_too_late" => ("E0419", "renewal_too_late", key, again),
        _ => ("E0410", "refused", "the coordinator refused this agent", again),
    };
    Failure { exit: Exit::Refused, code, word, what: what.to_owned(), why: why.to_owned(), fix }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_reason_has_a_code_of_its_own_and_ends_without_another_try() {
        let words = [
            "token_unknown",
            "token_used",
            "token_expired",
            "token_revoked",
            "vantage_revoked",
            "vantage_unknown",
            "request_invalid",
            "key_unknown",
            "renewal_too_late",
            "of_a_later_version",
        ];
        let told = words.map(|word| {
            let why = format!("{PREFIX}it was used at 14:31 by branch-ufa (192.0.2.44)");
            failure(&NotEnrolled::Refused { word: word.to_owned(), why }, "branch-kazan")
        });
        let codes: BTreeSet<&str> = told.iter().map(|one| one.code).collect();
        assert_eq!(codes.len(), words.len());
        assert!(told.iter().all(|one| one.exit == Exit::Refused));
        assert_eq!(
            told[1].to_string(),
            "error[E0412]: the coordinator refused this join token\n  why: it was used at 14:31 by branch-ufa (192.0.2.44)\n  fix: on the coordinator run  parallax token create branch-kazan   and try again with what it prints"
        );
        assert!(!format!("{:#}", told[1]).contains('\n'));
    }

    #[test]
    fn b72_a_clock_is_named_with_its_offset_and_is_no_refusal() {
        let clock = NotEnrolled::Clock { offset_ms: Some(-600_000), why: "behind".to_owned() };
        let told = failure(&clock, "branch-kazan");
        assert_eq!((told.exit, told.code), (Exit::Failed, "E0421"));
        assert!(told.to_string().contains("-600000 ms"), "{told}");
    }
}
