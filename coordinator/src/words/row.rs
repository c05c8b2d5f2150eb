//! Which row of the table of answers decided, in words: `decide/src/answer.rs` has the table.

use parallax_decide::verdict::AnswerVerdict;

/// The row that a verdict of an answer comes from: its number and what it asks for.
#[must_use]
pub fn answer(verdict: AnswerVerdict) -> (&'static str, &'static str) {
    match verdict {
        AnswerVerdict::NotObtained => ("2", "no DNS answer"),
        AnswerVerdict::Injected => ("3", "two different replies to one question"),
        AnswerVerdict::Forged => ("4", "a signed name fails the agent's own validation, its clock being right"),
        AnswerVerdict::BogusAtResolver => {
            ("5", "SERVFAIL, and the resolver says that the zone's signatures do not hold")
        }
        AnswerVerdict::Servfail => ("5", "SERVFAIL"),
        AnswerVerdict::Refused => ("5", "REFUSED, or another code that is no answer"),
        AnswerVerdict::Denied => ("6", "NXDOMAIN here, and answered elsewhere"),
        AnswerVerdict::CanaryGone => ("6", "NXDOMAIN, and answered nowhere by anybody"),
        AnswerVerdict::Filtered => ("6, 7 or 10", "a filter's mark, or 0.0.0.0 or ::, and nothing proven"),
        AnswerVerdict::Private => ("8", "a special-purpose address"),
        AnswerVerdict::Stub => ("9", "only addresses that stand for a block, none proven"),
        AnswerVerdict::DanglingCname => ("10", "an alias that leads to no address"),
        AnswerVerdict::Empty => ("10", "NOERROR without an address"),
        AnswerVerdict::FamilyUnusable => ("11", "only addresses of a family that the place lacks"),
        AnswerVerdict::PartlyDead => ("12", "some addresses proven from here, some dead"),
        AnswerVerdict::SteeredByVantage => (
            "13",
            "proven from here, and disjoint from what the same resolver gives another place, which is proven there",
        ),
        AnswerVerdict::Ok => ("14", "proven from here"),
        AnswerVerdict::Impostor => ("16", "every address shows a stranger's certificate"),
        AnswerVerdict::PathPartial => ("17", "a part of the flows reaches some of the addresses, and none is proven"),
        AnswerVerdict::UnroutableHere => {
            ("18", "every address is dead from here, and another vantage proves one of these same addresses")
        }
        AnswerVerdict::DeadEverywhere => {
            ("19", "every address is dead from here and from another sane vantage, and proven nowhere")
        }
        AnswerVerdict::InsufficientEvidence => {
            ("1, 15 or 20", "nothing measured or stale, too few agreeing probes, or the place may not accuse")
        }
    }
}
