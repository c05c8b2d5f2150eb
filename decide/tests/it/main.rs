//! Rules and stories of the decisions, told through the public interface.

mod rig;
mod safety;
mod story_node;
mod story_unroutable;
mod tables;
