//! What a round of one subject asks and tries, and the burst that a first failure starts.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use parallax_decide::names::ADDRESSES_MAX;
use parallax_decide::observation::{Family, MissedReason, Outcome, Says};
use tokio::task::yield_now;
use tokio::time::{sleep, sleep_until};

use super::Rounds;
use super::controls::Families;
use super::turn::turn;
use crate::assignment::{Assignment, Canary, Node, Resolver, Transport};
use crate::burst::Subject;
use crate::clock::{self, Instant};
use crate::measured::{Measured, Reason};
use crate::probe::message::Question;
use crate::probe::resolution::Resolved;
use crate::probe::tried::Tried;
use crate::probe::{Limits, endpoint, resolution};
use crate::schedule::{Grid, Kind};

/// The live resolver is asked again after its answer expired, but not more often than this, and not
/// more often than so many times a round: an answer that expires at once must not use up the owner's
/// allowance of questions.
const REFRESH_MIN: Duration = Duration::from_secs(1);
const REFRESHES_MAX: u32 = 12;

/// So many questions of one canary begin, or end, before everything else that is due gets its turn: beginning one
/// costs the agent's one thread about 50 us, and a canary may have a hundred of them at the same moment.
pub(super) const TURN: usize = 8;

/// Questions to one resolver about one name: A and AAAA.
const FAMILIES: usize = 2;

impl Rounds {
    /// One canary: every resolver, both families, and each address as soon as it is known.
    pub(super) async fn canary(self: Arc<Self>, assignment: Arc<Assignment>, canary: Canary) {
        let next = self.timeline.next(Grid::of(Kind::Canaries, &assignment.schedule), clock::now());
        let pause = refresh_pause(assignment.schedule.canary_every);
        let (asked, left_alone): (Vec<&Resolver>, Vec<&Resolver>) = assignment
            .resolvers
            .iter()
            .filter(|resolver| !canary.live_only || resolver.transport == Transport::Live)
            .partition(|resolver| self.site.throttle.until(&resolver.name).is_none());
        self.not_asked(MissedReason::Throttled, &canary, left_alone.len() * FAMILIES);
        let mut tried = BTreeSet::new();
        let expires = self.ask_and_try(&assignment, &canary, &asked, &mut tried).await;
        if refresh_at(expires, clock::now() + pause, next).is_some() {
            // Not part of the round: a slow last refresh must not cost the next one.
            tokio::spawn(self.refresh(Arc::clone(&assignment), canary, tried, expires, next));
        }
    }

    /// Asks the live resolver again whenever its answer has expired, until the next round.
    async fn refresh(
        self: Arc<Self>,
        assignment: Arc<Assignment>,
        canary: Canary,
        mut tried: BTreeSet<IpAddr>,
        mut expires: Option<Instant>,
        next: Instant,
    ) {
        let live: Vec<&Resolver> =
            assignment.resolvers.iter().filter(|resolver| resolver.transport == Transport::Live).collect();
        let pause = refresh_pause(assignment.schedule.canary_every);
        while let Some(at) = refresh_at(expires, clock::now() + pause, next) {
            sleep_until(at).await;
            expires = self.ask_and_try(&assignment, &canary, &live, &mut tried).await;
        }
    }

    /// Asks resolvers and tries addresses not tried in this round; when the live answer expires.
    async fn ask_and_try(
        self: &Arc<Self>,
        assignment: &Arc<Assignment>,
        canary: &Canary,
        resolvers: &[&Resolver],
        tried: &mut BTreeSet<IpAddr>,
    ) -> Option<Instant> {
        let limits = &assignment.schedule.limits;
        let (mut expires, mut ends, mut limited) = (None, 0_usize, 0_usize);
        let mut work: FuturesUnordered<BoxFuture<'_, Option<Resolved>>> = FuturesUnordered::new();
        let mut waiting = resolvers.iter().flat_map(|resolver| [(*resolver, Family::V4), (*resolver, Family::V6)]);
        let mut unbegun = resolvers.len() * FAMILIES;
        loop {
            let begun = unbegun.min(TURN);
            unbegun -= begun;
            for (resolver, family) in waiting.by_ref().take(begun) {
                let question = Question { name: canary.name.clone(), family };
                work.push(Box::pin(async move {
                    let _place = self.place().await?;
                    Some(resolution::resolve(&self.site, limits, resolver, &question).await)
                }));
            }
            let ended = tokio::select! {
                biased;
                ended = work.next() => ended,
                () = turn(), if unbegun > 0 => continue,
            };
            let Some(ended) = ended else { break };
            // Many that were asked at the same moment hang to about the same moment: what is due by now has its turn.
            ends += 1;
            if ends % TURN == 0 {
                yield_now().await;
            }
            let Some(resolved) = ended else { continue };
            if resolved.fact.outcome == Outcome::RateLimited {
                // Nothing was asked. A row for each would fill the spool with what the owner's limits keep out of the network.
                limited += 1;
                continue;
            }
            let resolution = resolved.fact.clone();
            // Its socket may go on listening for a while; the addresses are tried at once.
            self.record(assignment, canary, resolved);
            if resolution.outcome != Outcome::Answered {
                continue;
            }
            if assignment.resolver(&resolution.resolver).is_some_and(|resolver| resolver.transport == Transport::Live) {
                let ends = clock::now() + Duration::from_secs(u64::from(resolution.ttl_s));
                expires = Some(expires.map_or(ends, |earlier: Instant| earlier.min(ends)));
            }
            for address in &resolution.addresses {
                if tried.len() < ADDRESSES_MAX && tried.insert(*address) {
                    let target = Tried::canary(canary, *address);
                    work.push(Box::pin(async move {
                        self.connect(assignment, &target).await;
                        None
                    }));
                }
            }
        }
        self.not_asked(MissedReason::Limited, canary, limited);
        expires
    }

    /// Records questions of a canary's round that were not asked, in one row.
    fn not_asked(&self, reason: MissedReason, canary: &Canary, questions: usize) {
        if questions > 0 {
            self.missed(reason, canary.name.to_string(), u64::try_from(questions).unwrap_or(u64::MAX));
        }
    }

    /// Records a resolution: with own validation where the canary asks for it, which delays nothing else.
    fn record(self: &Arc<Self>, assignment: &Arc<Assignment>, canary: &Canary, mut resolved: Resolved) {
        let resolver = assignment.resolver(&resolved.fact.resolver).filter(|_| canary.validate).cloned();
        let Some(resolver) = resolver else { return resolved.record(&self.recorder, Reason::SCHEDULED) };
        let (rounds, assignment) = (Arc::clone(self), Arc::clone(assignment));
        tokio::spawn(Box::pin(async move {
            resolved.validate(&rounds.site, &assignment.schedule.limits, &resolver).await;
            resolved.record(&rounds.recorder, Reason::SCHEDULED);
        }));
    }

    /// One node.
    pub(super) async fn node(self: Arc<Self>, assignment: Arc<Assignment>, node: Node) {
        self.connect(&assignment, &Tried::node(&node)).await;
    }

    /// One scheduled connection, and the burst that its failure starts.
    async fn connect(self: &Arc<Self>, assignment: &Arc<Assignment>, tried: &Tried) {
        let Some(place) = self.place().await else { return };
        let measured = tried.measure(&self.site, &assignment.schedule.limits).await;
        let said = measured.what.says();
        drop(place);
        self.recorder.record(Reason::SCHEDULED, &measured);
        let subject = Subject::Connection(tried.target.clone(), tried.address);
        let tried = tried.clone();
        self.confirm(assignment, subject, said, move |rounds, limits| {
            let tried = tried.clone();
            Box::pin(async move { tried.measure(&rounds.site, &limits).await })
        });
    }

    /// One resolver's endpoint, and the burst that its failure starts.
    pub(super) async fn endpoint(self: Arc<Self>, assignment: Arc<Assignment>, resolver: Resolver) {
        let Some(questions) = endpoint::Questions::of(&assignment) else {
            tracing::debug!(resolver = %resolver.name, "no name to ask for; endpoint not checked");
            return;
        };
        if self.site.throttle.until(&resolver.name).is_some() {
            self.missed(MissedReason::Throttled, resolver.name.to_string(), 1);
            return;
        }
        let Some(place) = self.place().await else { return };
        let measured = endpoint::check(&self.site, &assignment.schedule.limits, &resolver, &questions).await;
        drop(place);
        self.recorder.record(Reason::SCHEDULED, &measured);
        if measured.what.outcome() == Outcome::HttpThrottled {
            // It is the last thing that an endpoint wants that it be asked again at once.
            return;
        }
        let said = measured.what.says();
        let subject = Subject::Endpoint(resolver.name.clone());
        self.confirm(&assignment, subject, said, move |rounds, limits| {
            let (resolver, questions) = (resolver.clone(), questions.clone());
            Box::pin(async move { endpoint::check(&rounds.site, &limits, &resolver, &questions).await })
        });
    }

    /// Probes again after each gap of the schedule when this was a first failure; ends at the first
    /// success.
    fn confirm(
        self: &Arc<Self>,
        assignment: &Arc<Assignment>,
        subject: Subject,
        said: Says,
        probe: impl Fn(Arc<Self>, Limits) -> BoxFuture<'static, Measured> + Send + 'static,
    ) {
        if assignment.schedule.burst_gaps.is_empty() {
            return;
        }
        if !self.bursts.lock().unwrap_or_else(PoisonError::into_inner).starts(&subject, said) {
            return;
        }
        let (rounds, assignment) = (Arc::clone(self), Arc::clone(assignment));
        let families = match &subject {
            Subject::Connection(_, address) => Families::one(Family::of(*address)),
            Subject::Endpoint(_) => Families::ALL,
        };
        tokio::spawn(async move {
            let ending = Ending { rounds: Arc::clone(&rounds), subject, recovered: false };
            rounds.bracket(&assignment, families);
            if !rounds.burst(&assignment, ending, probe).await {
                rounds.bracket(&assignment, families);
            }
        });
    }

    /// Probes after each gap until one succeeds; whether one did.
    async fn burst(
        self: &Arc<Self>,
        assignment: &Assignment,
        mut ending: Ending,
        probe: impl Fn(Arc<Self>, Limits) -> BoxFuture<'static, Measured>,
    ) -> bool {
        for gap in &assignment.schedule.burst_gaps {
            sleep(*gap).await;
            let Some(place) = self.place().await else { continue };
            let measured = probe(Arc::clone(self), assignment.schedule.limits.clone()).await;
            drop(place);
            self.recorder.record(Reason::CONFIRM, &measured);
            if measured.what.says() == Says::Works {
                ending.recovered = true;
                break;
            }
        }
        ending.recovered
    }
}

/// Notes the end of a burst, however it ends.
struct Ending {
    rounds: Arc<Rounds>,
    subject: Subject,
    recovered: bool,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.rounds.bursts.lock().unwrap_or_else(PoisonError::into_inner).ended(&self.subject, self.recovered);
    }
}

/// Least pause before the live resolver is asked again, at this interval of rounds.
fn refresh_pause(every: Duration) -> Duration {
    (every / REFRESHES_MAX).max(REFRESH_MIN)
}

/// When to ask the live resolver again: right after its answer expires, if that is before the next
/// round, and not before `earliest`.
fn refresh_at(expires: Option<Instant>, earliest: Instant, next_round: Instant) -> Option<Instant> {
    let at = expires?.max(earliest);
    (at < next_round).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_expire_at_once_cost_a_bounded_number_of_questions() {
        for every in [Duration::from_secs(5), Duration::from_secs(60), Duration::from_secs(3600)] {
            let begin = clock::now();
            let (mut now, mut asked) = (begin, 0);
            while let Some(at) = refresh_at(Some(now), now + refresh_pause(every), begin + every) {
                (now, asked) = (at, asked + 1);
            }
            assert!((4..REFRESHES_MAX).contains(&asked), "{asked} in {every:?}");
        }
    }
}
