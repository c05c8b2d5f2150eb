//! What one resolver answers to one question.

use std::sync::Arc;
use std::time::Duration;

use parallax_decide::observation::{Outcome, Resolution};

use super::Limits;
use super::ask::{Asked, ask};
use super::message::Question;
use super::plain::Hold;
use crate::assignment::Resolver;
use crate::clock;
use crate::measured::{Measured, Reason, ResolutionParticulars, What};
use crate::recorder::Recorder;
use crate::site::Site;

/// What a resolver answered. Over UDP the socket stays open for a while after the reply, because a
/// second one tells of somebody who injects: use the addresses at once, and leave the record to
/// [`Resolved::record`].
#[derive(Debug)]
pub struct Resolved {
    /// What it answered.
    pub fact: Resolution,
    kept: ResolutionParticulars,
    duration: Duration,
    ended_ms: u64,
    hold: Option<Arc<Hold>>,
}

/// Asks, and names the outcome.
pub async fn resolve(site: &Site, limits: &Limits, resolver: &Resolver, question: &Question) -> Resolved {
    let Asked { ended, trace, duration } = ask(site, limits, resolver, question).await;
    let mut kept = ResolutionParticulars {
        server: trace.server(),
        // Without a size nothing was read.
        reply: (trace.reply.size > 0).then_some(trace.reply),
        odd_replies: trace.odd_replies,
        remark: trace.remark,
        ..ResolutionParticulars::default()
    };
    let (outcome, addresses, ttl_s) = match ended {
        Ok(reply) => {
            kept.extended_error = reply.extended_error;
            kept.authentic_data = reply.authentic_data;
            kept.addresses_not_used = reply.addresses_not_used;
            kept.addresses_skipped = reply.addresses_skipped;
            (reply.outcome, reply.addresses, reply.ttl_s)
        }
        Err(outcome) => (outcome, Vec::new(), 0),
    };
    let fact = Resolution {
        name: question.name.clone(),
        resolver: resolver.name.clone(),
        family: question.family,
        outcome,
        addresses,
        ttl_s,
    };
    Resolved { fact, kept, duration, ended_ms: clock::boottime_ms(), hold: trace.hold }
}

impl Resolved {
    /// Records it: at once, or when its socket has listened to the end, with the time when the reply
    /// came. An agent that is stopped in between loses the record, as it loses every probe under way.
    pub fn record(self, recorder: &Recorder, reason: Reason) {
        let ended_ms = self.ended_ms;
        if self.hold.is_none() {
            recorder.record_at(reason, &self.measured(), ended_ms);
            return;
        }
        let recorder = recorder.clone();
        tokio::spawn(async move { recorder.record_at(reason, &self.finish().await, ended_ms) });
    }

    /// Adds own validation, where there is something to validate: what was answered, or a failure that
    /// bad signatures may explain.
    pub async fn validate(&mut self, site: &Site, limits: &Limits, resolver: &Resolver) {
        let worth = matches!(
            self.fact.outcome,
            Outcome::Answered | Outcome::Empty | Outcome::DanglingCname | Outcome::Nxdomain | Outcome::Servfail
        );
        if worth {
            let server = self.kept.server;
            self.kept.validation = Some(site.validator.validate(site, limits, resolver, &self.fact, server).await);
        }
    }

    /// Listens to the end; the whole of what was measured.
    pub async fn finish(mut self) -> Measured {
        if let Some(hold) = self.hold.take() {
            hold.listen(|odd| odd.note(&mut self.kept.odd_replies)).await;
        }
        self.measured()
    }

    fn measured(self) -> Measured {
        Measured { what: What::Resolution(self.fact, self.kept), duration: self.duration }
    }
}

#[cfg(test)]
mod tests;
