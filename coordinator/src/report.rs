//! The read model: what the page, the API and the operator's tool show, each thing once. Built from
//! rows by plain functions; rendered as HTML by [`crate::web`], as text by [`text`], as JSON by serde.
//!
//! - [`matrix`] (and `cells`): every vantage against every name, now. [`summary`]: an incident in one line.
//! - [`story`]: one incident, from conclusion to command line. [`timeline`], [`check`]: parts of it.
//! - [`failover`]: what each service serves now, and the last changes.
//! - [`name`]: what one name looked like at a moment.
//! - [`replay`]: the stored log once more, beside what really happened.
//! - [`happened`]: what happened between two moments.
//! - [`moment`]: times and spans as people read them.

mod cells;
pub mod check;
pub mod failover;
pub mod happened;
pub mod matrix;
pub mod moment;
pub mod name;
pub mod replay;
pub mod story;
pub mod summary;
pub mod text;
pub mod timeline;
#[cfg(test)]
pub(crate) mod told;

/// Version of the JSON: fields are added, never renamed.
pub const SCHEMA: u32 = 1;

/// A session is heard from every few seconds, and the database notes it to within two: so much
/// later than the policy says a vantage is shown as silent.
pub const SEEN_SLACK: std::time::Duration = std::time::Duration::from_secs(5);
