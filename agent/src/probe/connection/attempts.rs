//! The TCP phase: own attempts at fixed times, each from a new source port, each told apart.
//!
//! The kernel repeats a lost SYN on a schedule that depends on its version, and always from the
//! same source port, which a load balancer may send into the same hole. So the probe makes its own
//! attempts and counts them. The first completed one carries the probe on; no further one is started.
//! Earlier ones that are still under way then get a `GRACE`: what completes in it is counted as
//! connected, what does not is silent. So the first attempt of every probe has its own outcome, and
//! a path that loses every fourth source port shows in the attempts long before a whole probe fails.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use parallax_decide::observation::Outcome;
use tokio::net::TcpStream;
use tokio::time::{sleep_until, timeout_at};

use crate::clock::{Instant, now, since};
use crate::dial::{Dialer, Segments};
use crate::measured::Attempt;
use crate::probe::Limits;
use crate::probe::trouble::{Trouble, trouble};

/// How long an earlier attempt may still complete after another one did. It was given half a second
/// (or the schedule's gap) more than that one already; this is for the paths where that is not enough
/// for a reply (satellites: 600 ms and more there and back).
const GRACE: Duration = Duration::from_millis(250);

/// How the TCP phase ended.
pub struct TcpPhase<'a> {
    /// The stream of the first completed attempt, or the one outcome of all.
    pub outcome: Result<TcpStream, Outcome>,
    attempts: Vec<Attempt>,
    open: Open<'a>,
    begun: Instant,
    settled_by: Instant,
}

/// Attempts under way, by their place in the list.
type Open<'a> = FuturesUnordered<BoxFuture<'a, (usize, io::Result<TcpStream>)>>;

/// Ends with the first completed attempt, when every attempt has failed, or at the limit.
pub async fn connect<'a>(dialer: &'a Dialer, limits: &Limits, segments: Segments, to: SocketAddr) -> TcpPhase<'a> {
    let begun = now();
    let mut starts: VecDeque<Instant> = VecDeque::new();
    starts.extend(limits.attempt_at.iter().filter(|at| **at < limits.connect).map(|at| begun + *at));
    let mut phase =
        TcpPhase { outcome: Err(Outcome::Silent), attempts: Vec::new(), open: Open::new(), begun, settled_by: begun };
    loop {
        let next = starts.front().copied();
        if next.is_none() && phase.open.is_empty() {
            break;
        }
        tokio::select! {
            biased;
            Some((place, ended)) = phase.open.next(), if !phase.open.is_empty() => {
                let outcome = said(to, &ended);
                phase.note(place, outcome);
                if let Ok(stream) = ended {
                    phase.settled_by = now() + GRACE;
                    phase.outcome = Ok(stream);
                    return phase;
                }
                // Nothing left this machine, and half a second later nothing would.
                if matches!(outcome, Outcome::NoRoute | Outcome::FamilyUnavailable) {
                    break;
                }
            },
            () = sleep_until(next.unwrap_or(begun)), if next.is_some() => {
                starts.pop_front();
                let place = phase.attempts.len();
                // What an attempt that never ends has come to.
                phase.attempts.push(Attempt { started: since(begun), outcome: Outcome::Silent, duration: Duration::ZERO });
                phase.open.push(Box::pin(async move { (place, dialer.tcp_in(segments, to).await) }));
            }
            () = sleep_until(begun + limits.connect) => break,
        }
    }
    phase.give_up();
    phase.outcome = Err(summary(&phase.attempts));
    phase
}

impl TcpPhase<'_> {
    /// Lets attempts that were under way when another one completed end by themselves, for a while.
    pub async fn settle(&mut self) {
        while !self.open.is_empty() {
            let Ok(Some((place, ended))) = timeout_at(self.settled_by, self.open.next()).await else { break };
            let outcome = match &ended {
                Ok(_) => Outcome::TcpOk,
                // The address was reached by another one: this is about the path, and routes exist.
                Err(error) => of_trouble(trouble(error)),
            };
            self.note(place, outcome);
        }
        self.give_up();
    }

    /// Each attempt, in order of starting.
    pub fn attempts(self) -> Vec<Attempt> {
        self.attempts
    }

    fn note(&mut self, place: usize, outcome: Outcome) {
        let elapsed = since(self.begun);
        if let Some(attempt) = self.attempts.get_mut(place) {
            (attempt.outcome, attempt.duration) = (outcome, elapsed.saturating_sub(attempt.started));
        }
    }

    fn give_up(&mut self) {
        self.open.clear();
        let elapsed = since(self.begun);
        for attempt in &mut self.attempts {
            if attempt.duration.is_zero() {
                attempt.duration = elapsed.saturating_sub(attempt.started);
            }
        }
    }
}

/// What one attempt came to.
fn said(to: SocketAddr, ended: &io::Result<TcpStream>) -> Outcome {
    let Err(error) = ended else { return Outcome::TcpOk };
    let outcome = of_trouble(trouble(error));
    if outcome == Outcome::OwnTrouble {
        tracing::debug!(%to, %error, "own trouble while connecting");
    }
    outcome
}

fn of_trouble(trouble: Trouble) -> Outcome {
    match trouble {
        Trouble::Refused => Outcome::ConnectionRefused,
        Trouble::Reset => Outcome::Reset,
        Trouble::Silent => Outcome::Silent,
        Trouble::HostUnreachable => Outcome::HostUnreachable,
        Trouble::NetUnreachable => Outcome::NetUnreachable,
        Trouble::AdminProhibited => Outcome::AdminProhibited,
        Trouble::NoRoute => Outcome::NoRoute,
        Trouble::FamilyUnavailable => Outcome::FamilyUnavailable,
        Trouble::Own => Outcome::OwnTrouble,
    }
}

/// One outcome of several failed attempts. What happened here comes first, because then nothing was
/// measured; an ICMP answer beats silence; "refused" needs an RST to every attempt.
fn summary(attempts: &[Attempt]) -> Outcome {
    const FIRST_COMES: [Outcome; 6] = [
        Outcome::FamilyUnavailable,
        Outcome::OwnTrouble,
        Outcome::NoRoute,
        Outcome::AdminProhibited,
        Outcome::NetUnreachable,
        Outcome::HostUnreachable,
    ];
    let any = |wanted: Outcome| attempts.iter().any(|attempt| attempt.outcome == wanted);
    if let Some(first) = FIRST_COMES.into_iter().find(|outcome| any(*outcome)) {
        return first;
    }
    if any(Outcome::Silent) || attempts.is_empty() {
        return Outcome::Silent;
    }
    match any(Outcome::Reset) {
        true => Outcome::Reset,
        false => Outcome::ConnectionRefused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::testing::{limits, refused_port, silent_port};

    async fn phase(to: SocketAddr) -> (Option<Outcome>, Vec<Attempt>) {
        let dialer = Dialer::direct();
        let mut phase = connect(&dialer, &limits(), Segments::Usual, to).await;
        phase.settle().await;
        (phase.outcome.as_ref().err().copied(), phase.attempts())
    }

    fn words(attempts: &[Attempt]) -> Vec<Outcome> {
        attempts.iter().map(|attempt| attempt.outcome).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn each_attempt_starts_on_time_and_has_its_own_end() {
        let (outcome, attempts) = phase(refused_port()).await;
        assert_eq!(outcome, Some(Outcome::ConnectionRefused));
        assert_eq!(words(&attempts), [Outcome::ConnectionRefused; 4]);
        let started: Vec<u128> = attempts.iter().map(|attempt| attempt.started.as_millis()).collect();
        for (started, due) in started.iter().zip([0, 250, 500, 750]) {
            assert!((due..due + 10).contains(started), "{started} ms instead of {due}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_lasts_until_the_limit_of_the_whole_phase() {
        let (to, _held) = silent_port().await;
        let (outcome, attempts) = phase(to).await;
        assert_eq!(outcome, Some(Outcome::Silent));
        assert_eq!(words(&attempts), [Outcome::Silent; 4]);
        for attempt in &attempts {
            let ended = (attempt.started + attempt.duration).as_millis();
            assert!((2000..2010).contains(&ended), "{ended}");
        }
    }

    #[tokio::test]
    async fn one_that_was_lost_before_another_completed_is_told_as_silent() {
        // The backlog is full for the first attempt. Then its one connection is accepted, and the next
        // SYN of a new port gets in before the kernel repeats the first one (after a second).
        let (to, (listener, _filler)) = silent_port().await;
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                held.push(stream);
            }
        });
        let (outcome, attempts) = phase(to).await;
        assert_eq!((outcome, words(&attempts)), (None, vec![Outcome::Silent, Outcome::TcpOk]));
        let (lost, done) = (&attempts[0], &attempts[1]);
        assert!(lost.duration >= done.started + done.duration - lost.started + GRACE, "it had its grace: {attempts:?}");
    }

    #[tokio::test]
    async fn one_that_completes_in_its_grace_counts() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        let dialer = Dialer::direct();
        let mut phase = connect(&dialer, &limits(), Segments::Usual, to).await;
        let place = phase.attempts.len();
        phase.attempts.push(Attempt { started: Duration::ZERO, outcome: Outcome::Silent, duration: Duration::ZERO });
        phase.open.push(Box::pin(async move { (place, Dialer::direct().tcp_in(Segments::Usual, to).await) }));
        phase.settle().await;
        assert_eq!(words(&phase.attempts()), [Outcome::TcpOk; 2]);
    }

    #[test]
    fn several_failures_have_one_summary() {
        let of = |outcomes: &[Outcome]| {
            let attempt = |outcome: &Outcome| Attempt {
                started: Duration::ZERO,
                outcome: *outcome,
                duration: Duration::from_millis(1),
            };
            summary(&outcomes.iter().map(attempt).collect::<Vec<_>>())
        };
        use Outcome as O;
        assert_eq!(of(&[]), O::Silent);
        assert_eq!(of(&[O::ConnectionRefused, O::ConnectionRefused]), O::ConnectionRefused);
        assert_eq!(of(&[O::ConnectionRefused, O::Silent]), O::Silent);
        assert_eq!(of(&[O::ConnectionRefused, O::Reset]), O::Reset);
        assert_eq!(of(&[O::HostUnreachable, O::ConnectionRefused, O::Silent]), O::HostUnreachable);
        assert_eq!(of(&[O::ConnectionRefused, O::OwnTrouble]), O::OwnTrouble);
        assert_eq!(of(&[O::NetUnreachable, O::AdminProhibited]), O::AdminProhibited);
        assert_eq!(of(&[O::Silent, O::NoRoute]), O::NoRoute);
    }
}
