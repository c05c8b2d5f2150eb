//! A fleet on a moved clock, for many simulated hours: agents that measure as the real ones do, the coordinator's loop around
//! `parallax_decide`, faults and loss drawn from a seed, and an auditor that knows what was really so.
//!
//! One seed is one run, the same each time: nothing here reads a clock, and every random number comes from the seed.
//! `docs/simulation.md` says what is drawn and what is checked.

mod agent;
mod auditor;
mod coordinator;
mod dice;
mod fault;
mod loss;
mod run;
mod scenery;
mod truth;

pub use auditor::clock;
pub use run::{HOURS, Report, Run, run};
