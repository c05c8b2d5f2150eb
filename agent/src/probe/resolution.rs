//! What one resolver answers to one question.

use parallax_decide::observation::{Fact, Resolution, ResolutionOutcome, Stage, StageOutcome};

use super::Limits;
use super::ask::{Asked, ask};
use super::message::Question;
use crate::assignment::Resolver;
use crate::measured::Measured;
use crate::site::Site;

/// Asks, and names the outcome.
pub async fn resolve(site: &Site, limits: &Limits, resolver: &Resolver, question: &Question) -> Measured {
    let Asked { ended, trace, duration } = ask(site, limits, resolver, question).await;
    let (outcome, addresses, ttl_s) = match ended {
        Ok(reply) => (reply.outcome, reply.addresses, reply.ttl_s),
        Err(outcome) => (failed(trace.stage, outcome), Vec::new(), 0),
    };
    let fact = Resolution {
        name: question.name.clone(),
        resolver: resolver.name.clone(),
        family: question.family,
        outcome,
        addresses,
        ttl_s,
    };
    Measured { fact: Fact::Resolution(fact), details: trace.details, duration }
}

/// A question without a reply: the stage that failed decides the word.
fn failed(stage: Stage, outcome: StageOutcome) -> ResolutionOutcome {
    use ResolutionOutcome as R;
    match outcome {
        StageOutcome::Timeout => R::Timeout,
        StageOutcome::Unreachable | StageOutcome::Refused => R::Unreachable,
        StageOutcome::Certificate | StageOutcome::Alert => R::TlsFailed,
        StageOutcome::Reset => match stage {
            Stage::Tls => R::TlsFailed,
            Stage::Http => R::HttpFailed,
            Stage::Bootstrap | Stage::Tcp | Stage::Dns => R::Unreachable,
        },
        StageOutcome::Status => R::HttpFailed,
        StageOutcome::Malformed => R::Malformed,
        StageOutcome::Servfail => R::Servfail,
        StageOutcome::RefusedRcode => R::Refused,
        StageOutcome::Ok | StageOutcome::Empty => R::Empty,
        StageOutcome::OwnTrouble => R::OwnTrouble,
        StageOutcome::RefusedByPolicy => R::RefusedByPolicy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stage_decides_the_word_of_a_reset() {
        assert_eq!(failed(Stage::Tls, StageOutcome::Reset), ResolutionOutcome::TlsFailed);
        assert_eq!(failed(Stage::Http, StageOutcome::Reset), ResolutionOutcome::HttpFailed);
        assert_eq!(failed(Stage::Dns, StageOutcome::Reset), ResolutionOutcome::Unreachable);
    }

    #[test]
    fn silence_is_a_timeout_at_every_stage() {
        for stage in Stage::ALL {
            assert_eq!(failed(*stage, StageOutcome::Timeout), ResolutionOutcome::Timeout);
        }
    }
}
