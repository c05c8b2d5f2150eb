//! How far a long command is: one line on a terminal's stderr, nothing where nobody watches.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use parallax_decide::time::Timestamp;

use crate::clock::monotonic;
use crate::report::moment::coarse;

/// Shortest pause between two lines.
const EVERY: Duration = Duration::from_millis(200);

/// Characters of the bar.
const BAR: usize = 30;

/// A bar from one moment to another.
#[derive(Debug)]
pub struct Progress {
    from: Timestamp,
    to: Timestamp,
    begun: Instant,
    shown: Option<Instant>,
    watched: bool,
}

impl Progress {
    /// A bar, which is shown when stderr is a terminal.
    #[must_use]
    pub fn new(from: Timestamp, to: Timestamp) -> Self {
        Self { from, to, begun: monotonic(), shown: None, watched: std::io::stderr().is_terminal() }
    }

    /// Says how far it is.
    pub fn at(&mut self, moment: Timestamp) {
        if !self.watched || self.shown.is_some_and(|shown| shown.elapsed() < EVERY) {
            return;
        }
        self.shown = Some(monotonic());
        // Whoever closed the terminal wants no bar.
        let _ = write!(std::io::stderr(), "\r{}\x1b[K", line(self.permille(moment), self.begun.elapsed()));
    }

    /// Takes the bar away.
    pub fn end(&self) {
        if self.shown.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    fn permille(&self, moment: Timestamp) -> u64 {
        let ms = |later: Timestamp| u64::try_from(later.since(self.from).as_millis()).unwrap_or(u64::MAX);
        ms(moment.min(self.to)).saturating_mul(1000) / ms(self.to).max(1)
    }
}

fn line(permille: u64, took: Duration) -> String {
    let full = usize::try_from(permille).unwrap_or(0).min(1000) * BAR / 1000;
    let bar: String = std::iter::repeat_n('#', full).chain(std::iter::repeat_n('.', BAR - full)).collect();
    let left = if permille > 20 {
        let left = took.mul_f64(1000.0 / f64::from(u32::try_from(permille).unwrap_or(1000)) - 1.0);
        format!(", {} left", coarse(left))
    } else {
        String::new()
    };
    format!("[{bar}] {:>3} %{left}", permille / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_says_how_much_is_left() {
        assert_eq!(line(500, Duration::from_secs(60)), "[###############...............]  50 %, 60 s left");
        assert_eq!(line(0, Duration::ZERO), "[..............................]   0 %");
        assert!(line(1000, Duration::from_secs(5)).contains("100 %, 0 s left"));
        let progress = Progress::new(Timestamp(0), Timestamp(2000));
        assert_eq!((progress.permille(Timestamp(-5)), progress.permille(Timestamp(9000))), (0, 1000));
    }
}
