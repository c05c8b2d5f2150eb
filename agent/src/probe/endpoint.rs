//! One cold question to a resolver's endpoint: does it work, and if not, which stage failed?

use parallax_decide::observation::{EndpointCheck, Fact, ResolutionOutcome, Stage, StageOutcome};

use super::Limits;
use super::ask::{Asked, ask};
use super::message::Question;
use crate::assignment::Resolver;
use crate::measured::{Measured, Said};
use crate::site::Site;

/// Asks for a name that is known to have addresses.
pub async fn check(site: &Site, limits: &Limits, resolver: &Resolver, known: &Question) -> Measured {
    let Asked { ended, trace, duration } = ask(site, limits, resolver, known).await;
    let (stage, outcome) = match ended {
        Ok(reply) => (Stage::Dns, of_reply(reply.outcome)),
        Err(outcome) => (trace.stage, outcome),
    };
    let fact = EndpointCheck { resolver: resolver.name.clone(), address: trace.address, stage, outcome };
    Measured { fact: Fact::EndpointCheck(fact), details: trace.details, duration }
}

/// What a reply for a name that has addresses says about the endpoint.
fn of_reply(outcome: ResolutionOutcome) -> StageOutcome {
    use ResolutionOutcome as R;
    match outcome {
        R::Answered => StageOutcome::Ok,
        R::Empty | R::Nxdomain => StageOutcome::Empty,
        R::Servfail => StageOutcome::Servfail,
        // It speaks DNS and will not answer: NOTIMP and the like are refusals in other words.
        R::Refused | R::OtherRcode => StageOutcome::RefusedRcode,
        R::Timeout => StageOutcome::Timeout,
        R::Unreachable => StageOutcome::Unreachable,
        R::TlsFailed => StageOutcome::Alert,
        R::HttpFailed => StageOutcome::Status,
        R::Malformed => StageOutcome::Malformed,
        R::OwnTrouble => StageOutcome::OwnTrouble,
        R::RefusedByPolicy => StageOutcome::RefusedByPolicy,
    }
}

/// What an outcome says of the endpoint: a first failure is worth confirming at once.
#[must_use]
pub fn said(outcome: StageOutcome) -> Said {
    match outcome {
        StageOutcome::Ok => Said::Works,
        StageOutcome::OwnTrouble | StageOutcome::RefusedByPolicy => Said::Nothing,
        StageOutcome::Refused
        | StageOutcome::Reset
        | StageOutcome::Timeout
        | StageOutcome::Unreachable
        | StageOutcome::Certificate
        | StageOutcome::Alert
        | StageOutcome::Status
        | StageOutcome::Malformed
        | StageOutcome::Servfail
        | StageOutcome::RefusedRcode
        | StageOutcome::Empty => Said::Fails,
    }
}
