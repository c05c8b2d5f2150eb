//! Pure decisions: observations become verdicts, verdicts findings, findings incidents, incidents
//! plans, and plans are verified.
//!
//! In the order of the flow:
//!
//! * values: [`names`], [`address`], [`time`]
//! * what comes in: [`observation`] (facts of agents), [`topology`] (what the operator configured), [`operator`] (whose
//!   the controls are)
//! * [`fold`]: observations in commit order become the state that judging reads
//! * how much evidence is enough: [`chance`] (runs), [`gray`] (single attempts)
//! * verdicts, one table a file: [`vantage`], [`reach`], [`answer`], [`endpoint`], [`node`]; their words in
//!   [`verdict`]; all of them at one moment in [`judge`]; what they mean to a user in [`presence`]
//! * [`finding`]: verdicts of all vantages compared; [`call`]: what each calls for besides a change
//! * [`incident`]: findings that outlast hysteresis, from opening to closing
//! * [`wanted`]: which evidence is missing and who shall be asked for it; [`trace`]: which paths
//! * [`change`], [`plan`]: a remedy made concrete; [`guard`] judges any plan before it runs
//! * [`verify`]: proof after a change, from the client's side
//!
//! Absent on purpose: a runtime, SQL, a network, a clock, randomness and logs. `now` is an
//! argument, maps are ordered, and every decision returns its reasons as data.

pub mod address;
pub mod answer;
pub mod call;
pub mod chance;
pub mod change;
pub mod elsewhere;
pub mod endpoint;
pub mod finding;
pub mod fold;
pub mod gray;
pub mod guard;
pub mod incident;
pub mod judge;
pub mod names;
pub mod node;
pub mod observation;
pub mod operator;
pub mod plan;
pub mod presence;
pub mod reach;
pub mod time;
pub mod topology;
pub mod trace;
pub mod vantage;
pub mod verdict;
pub mod verify;
pub mod wanted;
