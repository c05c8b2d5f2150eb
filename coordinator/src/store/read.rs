//! What the page, the API and the operator's tool read. Mostly from the views people use as well,
//! so that nobody sees two truths. Every query has a limit.
//!
//! - [`now`]: how things stand. [`incident`]: what happened. [`counts`]: numbers for `/metrics`.

pub mod counts;
pub mod incident;
pub mod now;
