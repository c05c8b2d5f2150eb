//! The lab, the demo, and the end-to-end tests of Parallax.
//!
//! - [`lab`]: a small internet on one machine, with real DNS servers and switches for its faults;
//! - [`demo`]: the two field cases played in it;
//! - [`zoo`]: every verdict that a world of real servers can show, staged at the same time;
//! - [`mod@bench`]: what the agent costs, beside comparable programs;
//! - [`outer`] and [`page`]: the process that stays outside of it, cleans up, and carries the page to the host;
//! - [`clock`]: the only file that reads clocks.

pub mod bench;
pub mod clock;
pub mod demo;
pub mod detection;
pub mod lab;
pub mod outer;
pub mod page;
pub mod zoo;
