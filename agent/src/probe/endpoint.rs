//! One cold question to a resolver's endpoint: does it work, and if not, which stage failed?

use parallax_decide::observation::{EndpointCheck, Stage};

use super::Limits;
use super::ask::{Asked, ask};
use super::message::Question;
use crate::assignment::Resolver;
use crate::measured::{EndpointParticulars, Measured, What};
use crate::site::Site;

/// Asks for a name that is known to have addresses.
pub async fn check(site: &Site, limits: &Limits, resolver: &Resolver, known: &Question) -> Measured {
    let Asked { ended, trace, duration } = ask(site, limits, resolver, known).await;
    let (stage, outcome) = match ended {
        Ok(reply) => (Stage::Dns, reply.outcome),
        Err(outcome) => (trace.stage, outcome),
    };
    let fact = EndpointCheck {
        resolver: resolver.name.clone(),
        address: trace.address,
        stage,
        outcome,
        fresh: None,
        missing: None,
        worked_before: false,
    };
    let kept = EndpointParticulars {
        stages: trace.stages,
        http_status: trace.http_status,
        retry_after: trace.retry_after,
        certificate: trace.certificate,
        remark: trace.remark,
    };
    Measured { what: What::EndpointCheck(fact, kept), duration }
}
