//! What one resolver answers to one question.

use parallax_decide::observation::Resolution;

use super::Limits;
use super::ask::{Asked, ask};
use super::message::Question;
use crate::assignment::Resolver;
use crate::measured::{Measured, ResolutionParticulars, What};
use crate::site::Site;

/// Asks, and names the outcome.
pub async fn resolve(site: &Site, limits: &Limits, resolver: &Resolver, question: &Question) -> Measured {
    let Asked { ended, trace, duration } = ask(site, limits, resolver, question).await;
    let mut kept = ResolutionParticulars { server: trace.server(), ..ResolutionParticulars::default() };
    let (outcome, addresses, ttl_s) = match ended {
        Ok(reply) => {
            kept.extended_error = reply.extended_error;
            kept.authentic_data = reply.authentic_data;
            kept.reply = Some(trace.reply);
            (reply.outcome, reply.addresses, reply.ttl_s)
        }
        Err(outcome) => (outcome, Vec::new(), 0),
    };
    kept.odd_replies = trace.odd_replies;
    let fact = Resolution {
        name: question.name.clone(),
        resolver: resolver.name.clone(),
        family: question.family,
        outcome,
        addresses,
        ttl_s,
    };
    Measured { what: What::Resolution(fact, kept), duration }
}
