//! Which packet to send next, and what the answers add up to. Takes times and answers, gives orders:
//! no socket here.

use std::net::IpAddr;
use std::time::Duration;

use super::super::icmp::Cause;
use crate::clock::Instant;
use crate::measured::Hop;

/// Most hops that are looked at, as traceroute(8) does.
pub(super) const HOPS_MAX: u8 = 30;

/// Most packets to one hop.
pub(super) const PACKETS_MAX: u8 = 3;

/// The walk ends after so many silent hops in a row. So far ahead of the last answer packets are sent
/// at once, so that silence costs its waiting time once and not five times.
pub(super) const SILENT_MAX: u8 = 5;

/// A hop that has said nothing for so long is asked again, or given up. An answer after that still counts
/// while the walk goes on.
pub(super) const WAIT: Duration = Duration::from_secs(1);

/// One packet of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet {
    /// Its time to live.
    pub(super) ttl: u8,
    /// Which of the hop's packets it is, from 0.
    pub(super) count: u8,
}

impl Packet {
    /// Its place among all packets of a walk.
    pub(super) fn number(self) -> u16 {
        u16::from(self.ttl.saturating_sub(1)) * u16::from(PACKETS_MAX) + u16::from(self.count)
    }

    /// The packet of a place.
    pub(super) fn of(number: u16) -> Option<Self> {
        let ttl = u8::try_from(number / u16::from(PACKETS_MAX)).ok()?.checked_add(1)?;
        let count = u8::try_from(number % u16::from(PACKETS_MAX)).ok()?;
        (ttl <= HOPS_MAX).then_some(Self { ttl, count })
    }
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Send this packet.
    Send(Packet),
    /// Wait for answers until then.
    Wait(Instant),
    /// The walk is over.
    Over,
}

/// Who answered, and with what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    /// Who.
    pub(super) from: IpAddr,
    /// What it said; `None`: a datagram of its own.
    pub(super) cause: Option<Cause>,
}

/// A walk towards an address.
#[derive(Debug)]
pub(super) struct Walk {
    target: IpAddr,
    /// The hops so far, from a time to live of 1 on.
    hops: Vec<Asked>,
    /// Where the target answered.
    reached: Option<u8>,
    /// Where somebody else said that there is no way on.
    refused: Option<u8>,
}

/// One hop that was asked.
#[derive(Debug, Default, Clone, Copy)]
struct Asked {
    sent: [Option<Instant>; PACKETS_MAX as usize],
    answer: Option<(IpAddr, Duration)>,
}

impl Asked {
    fn count(&self) -> u8 {
        u8::try_from(self.sent.iter().flatten().count()).unwrap_or(PACKETS_MAX)
    }

    /// When the last packet to it was waited for long enough.
    fn waits_until(&self) -> Option<Instant> {
        Some(*self.sent.iter().flatten().last()? + WAIT)
    }
}

impl Walk {
    pub(super) fn new(target: IpAddr) -> Self {
        Self { target, hops: Vec::with_capacity(usize::from(HOPS_MAX)), reached: None, refused: None }
    }

    /// What to do now.
    pub(super) fn step(&self, now: Instant) -> Step {
        let mut waits_until: Option<Instant> = None;
        for ttl in 1..=self.end() {
            let hop = self.hop(ttl);
            if hop.answer.is_some() {
                continue;
            }
            let until = hop.waits_until().filter(|until| *until > now);
            match until {
                Some(until) => waits_until = Some(waits_until.map_or(until, |earlier| earlier.min(until))),
                None if hop.count() < PACKETS_MAX => return Step::Send(Packet { ttl, count: hop.count() }),
                None => {}
            }
        }
        waits_until.map_or(Step::Over, Step::Wait)
    }

    /// The highest time to live worth sending: the end of the path where it is known.
    fn end(&self) -> u8 {
        let ahead = self.last_answered().unwrap_or(0).saturating_add(SILENT_MAX).min(HOPS_MAX);
        [self.reached, self.refused].into_iter().flatten().fold(ahead, u8::min)
    }

    /// A packet was sent, or could not be: it is not sent again either way.
    pub(super) fn sent(&mut self, packet: Packet, now: Instant) {
        let index = usize::from(packet.ttl.saturating_sub(1));
        if self.hops.len() <= index {
            self.hops.resize(index + 1, Asked::default());
        }
        let sent = self.hops.get_mut(index).and_then(|hop| hop.sent.get_mut(usize::from(packet.count)));
        if let Some(sent) = sent {
            *sent = Some(now);
        }
    }

    /// Somebody answered a packet. The first answer of a hop counts.
    pub(super) fn heard(&mut self, packet: Packet, answer: Answer, now: Instant) {
        let Some(hop) = self.hops.get_mut(usize::from(packet.ttl.saturating_sub(1))) else { return };
        let Some(sent) = hop.sent.get(usize::from(packet.count)).copied().flatten() else { return };
        // The packet did not end there: it was too big, which is another's business.
        if matches!(answer.cause, Some(Cause::TooBig(_))) {
            return;
        }
        if hop.answer.is_none() {
            hop.answer = Some((answer.from, now.saturating_duration_since(sent)));
        }
        let lower = |so_far: Option<u8>| Some(so_far.map_or(packet.ttl, |so_far| so_far.min(packet.ttl)));
        if answer.from == self.target {
            self.reached = lower(self.reached);
        } else if answer.cause != Some(Cause::TimeExceeded) {
            self.refused = lower(self.refused);
        }
    }

    /// Whether the target itself answered. Another's "port unreachable" is a filter's word and proves
    /// nothing of the target.
    pub(super) fn is_reached(&self) -> bool {
        self.reached.is_some()
    }

    /// The last hop that answered, as its time to live.
    pub(super) fn last_answered(&self) -> Option<u8> {
        let end = self.reached.unwrap_or(HOPS_MAX);
        (1..=end).rev().find(|ttl| self.hop(*ttl).answer.is_some())
    }

    /// The hops up to the end of the path, the silent ones that were asked among them.
    pub(super) fn hops(&self) -> Vec<Hop> {
        let mut hops: Vec<Hop> = (1..=self.end())
            .map(|ttl| (ttl, self.hop(ttl)))
            .take_while(|(_, hop)| hop.count() > 0)
            .map(|(ttl, hop)| Hop {
                ttl,
                address: hop.answer.map(|(address, _)| address),
                rtt: hop.answer.map_or(Duration::ZERO, |(_, rtt)| rtt),
            })
            .collect();
        // A router that has no way on answers twice: when time runs out there, and for the next packet.
        if let [.., before, last] = hops.as_slice()
            && last.address.is_some()
            && last.address == before.address
            && Some(last.ttl) == self.refused
        {
            hops.pop();
        }
        hops
    }

    fn hop(&self, ttl: u8) -> Asked {
        self.hops.get(usize::from(ttl.saturating_sub(1))).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const TARGET: &str = "9.9.9.9";

    /// Walks through routers 10.0.0.1, 10.0.0.2, … of which some are silent, until `last` and then nowhere,
    /// or to the target after it. Each packet takes 10 ms to be sent, each answer comes at once.
    fn walked(silent: &[u8], last: u8, then: Option<Answer>) -> (Walk, Vec<Packet>) {
        let mut walk = Walk::new(TARGET.parse().unwrap());
        let mut packets = Vec::new();
        let mut now = clock::now();
        loop {
            match walk.step(now) {
                Step::Over => return (walk, packets),
                Step::Wait(until) => now = until,
                Step::Send(packet) => {
                    walk.sent(packet, now);
                    packets.push(packet);
                    now += Duration::from_millis(10);
                    if packet.ttl > last {
                        if let Some(answer) = then {
                            walk.heard(packet, answer, now);
                        }
                    } else if !silent.contains(&packet.ttl) {
                        walk.heard(packet, router(packet.ttl), now);
                    }
                }
            }
        }
    }

    fn router(ttl: u8) -> Answer {
        Answer { from: IpAddr::from([10, 0, 0, ttl]), cause: Some(Cause::TimeExceeded) }
    }

    fn target(cause: Cause) -> Option<Answer> {
        Some(Answer { from: TARGET.parse().unwrap(), cause: Some(cause) })
    }

    fn addresses(walk: &Walk) -> Vec<String> {
        walk.hops().iter().map(|hop| hop.address.map_or("*".to_owned(), |address| address.to_string())).collect()
    }

    #[test]
    fn a_path_ends_where_the_target_answers() {
        let (walk, packets) = walked(&[], 3, target(Cause::PortUnreachable));
        assert!(walk.is_reached());
        assert_eq!(addresses(&walk), ["10.0.0.1", "10.0.0.2", "10.0.0.3", TARGET]);
        assert_eq!(packets.len(), 4, "one packet a hop is enough when it answers");
        assert_eq!(walk.hops()[0].rtt, Duration::from_millis(10));
    }

    #[test]
    fn a_silent_router_is_asked_three_times_and_does_not_end_the_walk() {
        let (walk, packets) = walked(&[2], 3, target(Cause::PortUnreachable));
        assert!(walk.is_reached());
        assert_eq!(addresses(&walk), ["10.0.0.1", "*", "10.0.0.3", TARGET]);
        assert_eq!(packets.iter().filter(|packet| packet.ttl == 2).count(), 3);
    }

    #[test]
    fn five_silent_hops_in_a_row_end_it() {
        let (walk, packets) = walked(&[], 2, None);
        assert!(!walk.is_reached());
        assert_eq!(walk.last_answered(), Some(2));
        assert_eq!(addresses(&walk), ["10.0.0.1", "10.0.0.2", "*", "*", "*", "*", "*"]);
        assert_eq!(packets.len(), 2 + 5 * 3);
    }

    #[test]
    fn a_loop_ends_after_thirty_hops() {
        let (walk, packets) = walked(&[], HOPS_MAX, None);
        assert!(!walk.is_reached());
        assert_eq!((walk.hops().len(), packets.len()), (30, 30));
    }

    #[test]
    fn a_router_without_a_way_on_is_the_last_hop() {
        let refusal = Answer { cause: Some(Cause::HostUnreachable), ..router(2) };
        let (walk, packets) = walked(&[], 2, Some(refusal));
        assert!(!walk.is_reached());
        assert_eq!(addresses(&walk), ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(packets.len(), 3);
    }

    #[test]
    fn a_filter_that_answers_for_the_target_proves_nothing_of_it() {
        let filter = Answer { from: "10.9.9.9".parse().unwrap(), cause: Some(Cause::PortUnreachable) };
        let (walk, _) = walked(&[], 1, Some(filter));
        assert!(!walk.is_reached());
        assert_eq!(addresses(&walk), ["10.0.0.1", "10.9.9.9"]);
    }

    #[test]
    fn an_answer_that_comes_late_still_counts_and_one_to_a_packet_never_sent_does_not() {
        let start = clock::now();
        let mut walk = Walk::new(TARGET.parse().unwrap());
        let first = Packet { ttl: 1, count: 0 };
        walk.heard(first, router(1), start);
        assert_eq!(walk.step(start), Step::Send(first));
        walk.sent(first, start);
        walk.sent(Packet { ttl: 1, count: 1 }, start + WAIT);
        walk.heard(Packet { ttl: 1, count: 2 }, router(1), start + WAIT);
        assert_eq!(walk.last_answered(), None);
        walk.heard(first, router(1), start + WAIT * 2);
        assert_eq!(walk.hops()[0].rtt, WAIT * 2);
    }

    #[test]
    fn packets_are_numbered_without_gaps() {
        let packet = Packet { ttl: 30, count: 2 };
        assert_eq!((Packet { ttl: 1, count: 0 }.number(), packet.number()), (0, 89));
        assert_eq!((Packet::of(89), Packet::of(90)), (Some(packet), None));
    }
}
