//! The one place of these tests that reads a clock: real servers compare TSIG times with theirs.

use std::time::SystemTime;

#[expect(clippy::disallowed_methods, reason = "the clock of the contract tests")]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}
