//! Rules and stories of the decisions, told through the public interface.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test says no, helpers included")]

mod endpoints;
mod evidence;
mod proof;
mod rig;
mod safety;
mod steady;
mod story_node;
mod story_unroutable;
mod tables;
