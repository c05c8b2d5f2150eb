//! A zoo of faults: one world in which everything that a lab can make go wrong does so at the same time, each at a name, a
//! machine, an endpoint or a place of its own; and the rows of three installations that must show every one for what it is.
//!
//! [`case`] is what a case is; [`answers`], [`machines`], [`doors`] and [`troubles`] are the cases as data, made of
//! [`fault`]s between [`place`]s and the [`public`] internet. [`network`] and [`servers`] build that on its [`ground`],
//! [`installation`] runs our programs in it, told by [`configuration`]; [`rows`] reads what they found, and [`play`] is the
//! run: all is well, everything breaks, everything is seen, everything heals.

pub mod answers;
pub mod case;
pub mod configuration;
pub mod doors;
pub mod fault;
pub mod ground;
pub mod installation;
pub mod machines;
pub mod network;
pub mod place;
pub mod play;
pub mod public;
pub mod rows;
pub mod servers;
pub mod troubles;
