//! Notices that a stream is dead although its connection lives.
//!
//! HTTP/2 pings are answered by whatever is next on the way. So a question goes over the stream
//! itself every few seconds, and a stream on which nothing comes back is left.

use std::time::Duration;

use parallax_proto::v1;

use crate::clock::{self, Instant};

/// The questions of one stream.
#[derive(Debug)]
pub struct Heartbeat {
    every: Duration,
    silence_max: Duration,
    ask_at: Instant,
    nonce: u64,
    /// The last question, until something is heard.
    open: Option<Instant>,
    /// Boot-time clock when the last question was sent, until its answer.
    sent_ms: Option<u64>,
    /// The coordinator does not know these questions (it is older).
    unknown: bool,
}

/// What is to be done now.
#[derive(Debug, Clone, PartialEq)]
pub enum Beat {
    /// Ask this.
    Ask(v1::Ping),
    /// The stream is dead.
    Dead,
    /// Nothing yet.
    Wait,
}

impl Heartbeat {
    /// Asks at once, because the clock is wanted early, and then every `every`; gives up after
    /// `silence_max` without an answer.
    #[must_use]
    pub fn new(now: Instant, every: Duration, silence_max: Duration) -> Self {
        Self { every, silence_max, ask_at: now, nonce: 0, open: None, sent_ms: None, unknown: false }
    }

    /// When to look again; `None`: never.
    #[must_use]
    pub fn at(&self) -> Option<Instant> {
        match self.open {
            _ if self.unknown => None,
            Some(asked) => Some(asked + self.silence_max),
            None => Some(self.ask_at),
        }
    }

    /// What is to be done now.
    pub fn beat(&mut self, now: Instant) -> Beat {
        if self.unknown {
            return Beat::Wait;
        }
        match self.open {
            Some(asked) if now >= asked + self.silence_max => Beat::Dead,
            None if now >= self.ask_at => {
                self.nonce += 1;
                self.open = Some(now);
                self.sent_ms = Some(clock::boottime_ms());
                self.ask_at = now + self.every;
                Beat::Ask(v1::Ping { nonce: self.nonce })
            }
            Some(_) | None => Beat::Wait,
        }
    }

    /// Something came: the stream lives.
    pub fn heard(&mut self) {
        self.open = None;
    }

    /// The answer came. When its question was sent, by the boot-time clock in ms, if it is that of
    /// the last question.
    pub fn answered(&mut self, pong: &v1::Pong) -> Option<u64> {
        self.heard();
        if pong.nonce == self.nonce { self.sent_ms.take() } else { None }
    }

    /// The coordinator refused a message of no known kind: it is older than these questions. HTTP/2
    /// pings and acknowledgements must do then.
    pub fn not_known(&mut self) {
        self.unknown = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    fn heart(start: Instant) -> Heartbeat {
        Heartbeat::new(start, Duration::from_secs(5), Duration::from_secs(10))
    }

    #[test]
    fn a_silent_stream_is_dead_within_fifteen_seconds_of_its_last_word() {
        let start = now();
        let mut heart = heart(start);
        assert_eq!(heart.beat(start), Beat::Ask(v1::Ping { nonce: 1 }));
        assert_eq!(heart.beat(start + Duration::from_secs(9)), Beat::Wait);
        assert!(heart.answered(&v1::Pong { nonce: 1, ..v1::Pong::default() }).is_some());
        assert_eq!(heart.at(), Some(start + Duration::from_secs(5)));
        // The last word came right after the question; from here on, silence.
        assert_eq!(heart.beat(start + Duration::from_secs(5)), Beat::Ask(v1::Ping { nonce: 2 }));
        let dead_at = heart.at().unwrap();
        assert!(dead_at - start <= Duration::from_secs(15));
        assert_eq!(heart.beat(dead_at), Beat::Dead);
    }

    #[test]
    fn any_word_is_life_and_only_the_right_answer_tells_the_time() {
        let start = now();
        let mut heart = heart(start);
        heart.beat(start);
        heart.heard();
        assert_eq!(heart.beat(start + Duration::from_secs(60)), Beat::Ask(v1::Ping { nonce: 2 }));
        assert_eq!(heart.answered(&v1::Pong { nonce: 1, ..v1::Pong::default() }), None);
        assert!(heart.answered(&v1::Pong { nonce: 2, ..v1::Pong::default() }).is_some());
        assert_eq!(heart.answered(&v1::Pong { nonce: 2, ..v1::Pong::default() }), None, "the same answer again");
        heart.not_known();
        assert_eq!((heart.at(), heart.beat(start + Duration::from_secs(600))), (None, Beat::Wait));
    }
}
