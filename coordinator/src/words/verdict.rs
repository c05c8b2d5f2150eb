//! Verdicts as states, short words and sentences.

use parallax_decide::verdict::{
    AddressVerdict, AnswerVerdict, EndpointVerdict, FleetVerdict, NodeVerdict, VantageVerdict,
};

use super::State;

/// What the cell of an answer looks like.
#[must_use]
pub fn answer_state(verdict: AnswerVerdict) -> State {
    match verdict {
        AnswerVerdict::Ok | AnswerVerdict::SteeredByVantage => State::Usable,
        AnswerVerdict::PartlyDead | AnswerVerdict::PathPartial => State::Partial,
        AnswerVerdict::UnroutableHere | AnswerVerdict::DeadEverywhere => State::Unroutable,
        AnswerVerdict::NotObtained
        | AnswerVerdict::BogusAtResolver
        | AnswerVerdict::Servfail
        | AnswerVerdict::Refused
        | AnswerVerdict::Denied
        | AnswerVerdict::CanaryGone
        | AnswerVerdict::Empty
        | AnswerVerdict::DanglingCname => State::NoAnswer,
        AnswerVerdict::Injected
        | AnswerVerdict::Forged
        | AnswerVerdict::Filtered
        | AnswerVerdict::Private
        | AnswerVerdict::Stub
        | AnswerVerdict::Impostor => State::WrongContent,
        AnswerVerdict::InsufficientEvidence | AnswerVerdict::FamilyUnusable => State::Unobserved,
    }
}

/// An answer's verdict in a word or two.
#[must_use]
pub fn answer_word(verdict: AnswerVerdict) -> &'static str {
    match verdict {
        AnswerVerdict::Ok => "usable",
        AnswerVerdict::SteeredByVantage => "usable",
        AnswerVerdict::PartlyDead => "partly dead",
        AnswerVerdict::PathPartial => "partial path",
        AnswerVerdict::Injected => "injected",
        AnswerVerdict::Forged => "forged",
        AnswerVerdict::BogusAtResolver => "bogus zone",
        AnswerVerdict::Stub => "stub address",
        AnswerVerdict::UnroutableHere => "unroutable",
        AnswerVerdict::DeadEverywhere => "dead everywhere",
        AnswerVerdict::NotObtained => "no answer",
        AnswerVerdict::Servfail => "SERVFAIL",
        AnswerVerdict::Refused => "refused",
        AnswerVerdict::Denied => "NXDOMAIN here",
        AnswerVerdict::CanaryGone => "name gone",
        AnswerVerdict::Empty => "empty answer",
        AnswerVerdict::DanglingCname => "dangling alias",
        AnswerVerdict::Filtered => "filtered",
        AnswerVerdict::Private => "private address",
        AnswerVerdict::Impostor => "impostor",
        AnswerVerdict::InsufficientEvidence => "not enough evidence",
        AnswerVerdict::FamilyUnusable => "other family only",
    }
}

/// What an answer's verdict means, as a sentence about the answer.
#[must_use]
pub fn answer_sentence(verdict: AnswerVerdict) -> &'static str {
    match verdict {
        AnswerVerdict::Ok => "every address of the answer that was tried works",
        AnswerVerdict::SteeredByVantage => {
            "the answer works, and differs from what other vantages are given: normal for a CDN"
        }
        AnswerVerdict::PartlyDead => "some addresses of the answer work and some do not",
        AnswerVerdict::PathPartial => "the path to the answer's addresses loses a part of the flows",
        AnswerVerdict::Injected => "two different replies came to one question: somebody on the path forges them",
        AnswerVerdict::Forged => "the name is signed, and the answer fails validation: it is forged",
        AnswerVerdict::BogusAtResolver => {
            "the resolver says that the zone's signatures do not hold (SERVFAIL): the zone's fault"
        }
        AnswerVerdict::Stub => "the answer holds only addresses that are known to stand for a block",
        AnswerVerdict::UnroutableHere => {
            "DNS answered, nothing at the answer can be reached from there, and other vantages reach these same addresses"
        }
        AnswerVerdict::DeadEverywhere => {
            "DNS answered, and nothing at the answer can be reached from anywhere that tried"
        }
        AnswerVerdict::NotObtained => "the resolver gave no answer",
        AnswerVerdict::Servfail => "the resolver answered SERVFAIL",
        AnswerVerdict::Refused => "the resolver refused the question",
        AnswerVerdict::Denied => "the resolver says that the name does not exist, and another resolver answers it",
        AnswerVerdict::CanaryGone => "every resolver says that the name does not exist",
        AnswerVerdict::Empty => "the resolver answered without an address",
        AnswerVerdict::DanglingCname => "the resolver answered with an alias (CNAME) that leads to no address",
        AnswerVerdict::Filtered => "the answer is kept back: 0.0.0.0 or ::, or a reply that says so",
        AnswerVerdict::Private => "the answer holds a special-purpose address, which a public name cannot have",
        AnswerVerdict::Impostor => "whoever answers at the addresses has a certificate for something else",
        AnswerVerdict::InsufficientEvidence => "too few agreeing probes to say anything",
        AnswerVerdict::FamilyUnusable => {
            "the answer holds only addresses of a family this place does not have; no fault"
        }
    }
}

/// A vantage's standing in a word or two.
#[must_use]
pub fn vantage_word(verdict: VantageVerdict) -> &'static str {
    match verdict {
        VantageVerdict::Ok => "ok",
        VantageVerdict::Silent => "silent",
        VantageVerdict::Late => "late",
        VantageVerdict::Suspect => "suspect",
        VantageVerdict::ClockSkewed => "clock wrong",
        VantageVerdict::Unmeasured => "unmeasured",
        VantageVerdict::Captive => "captive portal",
        VantageVerdict::UplinkDown => "uplink down",
        VantageVerdict::Intercepted => "intercepted",
        VantageVerdict::Degraded => "degraded",
    }
}

/// What a vantage's standing means for everything else it says.
#[must_use]
pub fn vantage_sentence(verdict: VantageVerdict) -> &'static str {
    match verdict {
        VantageVerdict::Ok => "its controls pass; what it reports counts",
        VantageVerdict::Silent => "no report lately; nothing is known from there",
        VantageVerdict::Suspect => {
            "it showed a proof of life that does not hold, or two machines use its identity; nothing it says counts"
        }
        VantageVerdict::Late => "reports again, so far only what is too old to count",
        VantageVerdict::ClockSkewed => "its clock is wrong; what it says of a certificate's time does not count",
        VantageVerdict::Unmeasured => "no control was measured lately; its failures do not count",
        VantageVerdict::Captive => {
            "a captive portal answers there instead of the network; nothing it says counts until someone signs in"
        }
        VantageVerdict::UplinkDown => "its own uplink is down (no control was reached); it accuses nobody",
        VantageVerdict::Intercepted => "something on its path accepts every connection; only what TLS proves counts",
        VantageVerdict::Degraded => "most of its controls fail; its failures do not count",
    }
}

/// Whether a cell of that vantage may show more than "unobserved".
#[must_use]
pub fn vantage_speaks(verdict: VantageVerdict) -> bool {
    match verdict {
        VantageVerdict::Ok | VantageVerdict::Intercepted | VantageVerdict::Degraded | VantageVerdict::ClockSkewed => {
            true
        }
        VantageVerdict::Silent
        | VantageVerdict::Late
        | VantageVerdict::Suspect
        | VantageVerdict::Unmeasured
        | VantageVerdict::Captive
        | VantageVerdict::UplinkDown => false,
    }
}

/// What a vantage finds at an address, as the end of "from there it …".
#[must_use]
pub fn address_phrase(verdict: AddressVerdict) -> &'static str {
    match verdict {
        AddressVerdict::Ok => "completes TLS with the right certificate",
        AddressVerdict::OkUnproven => "accepts TCP (TLS is not asked of it)",
        AddressVerdict::PartialPath => "answers some attempts and loses others, by their source port",
        AddressVerdict::Refused => "refuses connections",
        AddressVerdict::Silent => "stays silent",
        AddressVerdict::OpenButDead => "accepts TCP and then says nothing",
        AddressVerdict::PmtuBlackhole => "accepts TCP, and loses every large packet on the way",
        AddressVerdict::HttpFailed => "completes TLS, and its HTTP answer is wrong or missing",
        AddressVerdict::Impostor => "shows a stranger's certificate",
        AddressVerdict::CertTime => "shows a certificate out of its time",
        AddressVerdict::RefusedByPolicy => "may not be contacted, by its owner's policy",
        AddressVerdict::FamilyUnavailable => "is of a family the place does not have",
        AddressVerdict::Unmeasured => "was not measured enough",
    }
}

/// A node's verdict, as the end of "node fi …".
#[must_use]
pub fn node_phrase(verdict: NodeVerdict) -> &'static str {
    match verdict {
        NodeVerdict::Ok => "is alive",
        NodeVerdict::PathPartial => "is alive, and the path to it loses a part of the flows",
        NodeVerdict::UnroutableForAudience => "is alive elsewhere, and its users' networks cannot reach it",
        NodeVerdict::UnroutableFromSome => "is alive, and cannot be reached from some places",
        NodeVerdict::InsufficientEvidence => "cannot be judged: too few witnesses",
        NodeVerdict::ImpostorEverywhere => "shows a stranger's certificate everywhere",
        NodeVerdict::CertInvalidEverywhere => "shows a certificate out of its time everywhere",
        NodeVerdict::OpenButDead => "accepts TCP everywhere and then says nothing",
        NodeVerdict::RefusingEverywhere => "refuses connections everywhere",
        NodeVerdict::DeadEverywhere => "is dead from everywhere that may judge",
    }
}

/// What the fleet's verdict means.
#[must_use]
pub fn fleet_sentence(verdict: FleetVerdict) -> &'static str {
    match verdict {
        FleetVerdict::Ok => "at least one vantage reports and passes its controls",
        FleetVerdict::CoordinatorIsolated => {
            "no vantage reports: the coordinator itself may be cut off, so nothing is judged and nothing changed"
        }
        FleetVerdict::ControlsFailed => {
            "vantages report and none of them reaches a control: nothing is judged and nothing changed"
        }
    }
}

/// An endpoint's verdict in a word or two.
#[must_use]
pub fn endpoint_word(verdict: EndpointVerdict) -> &'static str {
    match verdict {
        EndpointVerdict::InsufficientEvidence => "not enough evidence",
        EndpointVerdict::Rewrites => "rewrites answers",
        EndpointVerdict::Ok => "ok",
        EndpointVerdict::Throttled => "throttled",
        EndpointVerdict::Misconfigured => "asked wrongly",
        EndpointVerdict::NoPath => "no path",
        EndpointVerdict::Refused => "refuses connections",
        EndpointVerdict::PmtuBlackhole => "large packets lost",
        EndpointVerdict::TlsFailed => "TLS fails",
        EndpointVerdict::HttpFailed => "HTTP fails",
        EndpointVerdict::Silent => "silent",
        EndpointVerdict::ServingStale => "serving stale",
        EndpointVerdict::AliveNotResolving => "alive, not resolving",
        EndpointVerdict::StaleCacheMasking => "dead behind a cache",
    }
}

/// An endpoint's verdict, as the end of "the endpoint …".
#[must_use]
pub fn endpoint_phrase(verdict: EndpointVerdict) -> &'static str {
    match verdict {
        EndpointVerdict::InsufficientEvidence => "was not measured enough",
        EndpointVerdict::Rewrites => "answers, and gives addresses for names that do not exist",
        EndpointVerdict::Ok => "answers what it is asked",
        EndpointVerdict::Throttled => "asks to be asked less often",
        EndpointVerdict::Misconfigured => "never took what it is asked: the configuration is wrong, not the endpoint",
        EndpointVerdict::NoPath => "cannot be reached: no TCP connection comes about",
        EndpointVerdict::Refused => "refuses connections",
        EndpointVerdict::PmtuBlackhole => "accepts TCP, and the path loses every large packet",
        EndpointVerdict::TlsFailed => "accepts TCP, and the TLS handshake fails",
        EndpointVerdict::HttpFailed => "answers HTTP with something else than DNS",
        EndpointVerdict::Silent => "takes the question and never answers",
        EndpointVerdict::ServingStale => "answers what it has in its cache, and nothing fresh",
        EndpointVerdict::AliveNotResolving => "is alive and does not resolve",
        EndpointVerdict::StaleCacheMasking => "is dead, and the cache in front of it hides that for a while",
    }
}

/// What an endpoint's verdict is drawn as.
#[must_use]
pub fn endpoint_state(verdict: EndpointVerdict) -> State {
    match verdict {
        EndpointVerdict::Ok => State::Usable,
        EndpointVerdict::ServingStale | EndpointVerdict::StaleCacheMasking | EndpointVerdict::Throttled => {
            State::Partial
        }
        EndpointVerdict::Rewrites => State::WrongContent,
        EndpointVerdict::NoPath | EndpointVerdict::PmtuBlackhole => State::Unroutable,
        EndpointVerdict::Refused
        | EndpointVerdict::TlsFailed
        | EndpointVerdict::HttpFailed
        | EndpointVerdict::Silent
        | EndpointVerdict::AliveNotResolving => State::NoAnswer,
        EndpointVerdict::InsufficientEvidence | EndpointVerdict::Misconfigured => State::Unobserved,
    }
}

/// A short name for the kind of an incident: the word of the verdict it rests on, made readable.
/// Words of a newer version stay as they are.
#[must_use]
pub fn kind_title(kind: &str) -> String {
    if kind == AnswerVerdict::InsufficientEvidence.word() {
        return "insufficient evidence".to_owned();
    }
    if let Some(verdict) = AnswerVerdict::from_word(kind) {
        return match verdict {
            AnswerVerdict::UnroutableHere => "unroutable answer".to_owned(),
            AnswerVerdict::DeadEverywhere => "answer dead everywhere".to_owned(),
            AnswerVerdict::PartlyDead => "answer partly dead".to_owned(),
            AnswerVerdict::NotObtained => "no answer".to_owned(),
            AnswerVerdict::Private => "private address in the answer".to_owned(),
            AnswerVerdict::Filtered => "filtered answer".to_owned(),
            AnswerVerdict::Impostor => "impostor at the answer".to_owned(),
            AnswerVerdict::Injected => "injected answer".to_owned(),
            AnswerVerdict::Forged => "forged answer".to_owned(),
            AnswerVerdict::PathPartial => "partial path to the answer".to_owned(),
            AnswerVerdict::Ok
            | AnswerVerdict::SteeredByVantage
            | AnswerVerdict::BogusAtResolver
            | AnswerVerdict::Stub
            | AnswerVerdict::Servfail
            | AnswerVerdict::Refused
            | AnswerVerdict::Denied
            | AnswerVerdict::CanaryGone
            | AnswerVerdict::Empty
            | AnswerVerdict::DanglingCname
            | AnswerVerdict::InsufficientEvidence
            | AnswerVerdict::FamilyUnusable => answer_word(verdict).to_owned(),
        };
    }
    if let Some(verdict) = EndpointVerdict::from_word(kind) {
        return format!("endpoint: {}", endpoint_word(verdict));
    }
    if let Some(verdict) = NodeVerdict::from_word(kind) {
        return match verdict {
            NodeVerdict::Ok => "node ok",
            NodeVerdict::PathPartial => "partial path to the node",
            NodeVerdict::UnroutableForAudience => "node unroutable for its users",
            NodeVerdict::UnroutableFromSome => "node unroutable from some",
            NodeVerdict::InsufficientEvidence => "insufficient evidence",
            NodeVerdict::ImpostorEverywhere => "impostor node",
            NodeVerdict::CertInvalidEverywhere => "node certificate invalid",
            NodeVerdict::OpenButDead => "node open but dead",
            NodeVerdict::RefusingEverywhere => "node refusing",
            NodeVerdict::DeadEverywhere => "node dead",
        }
        .to_owned();
    }
    if let Some(verdict) = VantageVerdict::from_word(kind) {
        return format!("vantage {}", vantage_word(verdict));
    }
    if let Some(verdict) = FleetVerdict::from_word(kind) {
        return match verdict {
            FleetVerdict::Ok => "fleet ok",
            FleetVerdict::CoordinatorIsolated => "coordinator isolated",
            FleetVerdict::ControlsFailed => "all controls failed",
        }
        .to_owned();
    }
    kind.replace('_', " ")
}

/// The state an incident's kind is drawn with.
#[must_use]
pub fn kind_state(kind: &str) -> State {
    if let Some(verdict) = AnswerVerdict::from_word(kind) {
        return answer_state(verdict);
    }
    if let Some(verdict) = EndpointVerdict::from_word(kind) {
        return endpoint_state(verdict);
    }
    match NodeVerdict::from_word(kind) {
        Some(NodeVerdict::Ok) => State::Usable,
        Some(NodeVerdict::UnroutableFromSome | NodeVerdict::PathPartial | NodeVerdict::UnroutableForAudience) => {
            State::Partial
        }
        Some(NodeVerdict::ImpostorEverywhere | NodeVerdict::CertInvalidEverywhere) => State::WrongContent,
        Some(NodeVerdict::DeadEverywhere | NodeVerdict::OpenButDead | NodeVerdict::RefusingEverywhere) => {
            State::NoAnswer
        }
        Some(NodeVerdict::InsufficientEvidence) | None => State::Unobserved,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usable_answer_looks_usable_or_partial_and_no_other_does() {
        for verdict in AnswerVerdict::ALL {
            let shown = matches!(answer_state(*verdict), State::Usable | State::Partial);
            assert_eq!(shown, verdict.usable(), "{verdict}");
        }
    }

    #[test]
    fn kinds_read_as_words_and_unknown_ones_survive() {
        assert_eq!(kind_title("answer_unroutable_here"), "unroutable answer");
        assert_eq!(kind_title("node_dead_everywhere"), "node dead");
        assert_eq!(kind_title("vantage_uplink_down"), "vantage uplink down");
        assert_eq!(kind_title("freeze_controls_failed"), "all controls failed");
        assert_eq!(kind_title("something_new"), "something new");
        assert_eq!(kind_state("vantage_silent"), State::Unobserved);
        assert_eq!(kind_state("answer_unroutable_here"), State::Unroutable);
        for kind in NodeVerdict::ALL {
            assert!(!kind_title(kind.word()).contains('_'));
        }
    }
}
