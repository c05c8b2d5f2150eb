//! Pure decisions: observations become verdicts, verdicts findings, findings incidents, incidents
//! plans, and plans are verified.
//!
//! In the order of the flow: [`names`], [`address`] and [`time`] are the values; [`observation`]
//! is what agents measured; [`topology`] what the operator configured; [`change`] a change of DNS.
//!
//! Absent on purpose: a runtime, SQL, a network, a clock, randomness and logs. `now` is an
//! argument, maps are ordered, and every decision returns its reasons as data.

pub mod address;
pub mod change;
pub mod names;
pub mod observation;
pub mod time;
pub mod topology;
