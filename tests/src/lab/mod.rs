//! A small internet on one machine: places, public servers, and switches for what goes wrong between them.
//!
//! In the order things happen: [`enter`] decides which world is possible and enters it; [`atlas`] says who exists and
//! [`layout`] where they listen; [`topology`] builds the network of the namespace world, [`map`] the map files of the
//! loopback world; [`certs`] and [`servers`] bring the public internet up; [`world`] is all of it together; [`faults`]
//! are its switches; [`fleet`] runs our own programs in it, told by [`configuration`]: one of [`coordinators`] or two that
//! share a [`database`] or a cluster under [`patroni`]; [`building`] makes those for tests. [`look`] shows what a place sees,
//! and [`self_check`] whether that is what the lab promises.

pub mod atlas;
pub mod blackhole;
pub mod building;
pub mod certs;
pub mod configuration;
pub mod coordinators;
pub mod database;
pub mod enter;
pub mod faults;
pub mod fleet;
pub mod layout;
pub mod look;
pub mod map;
pub mod patroni;
pub mod process;
pub mod programs;
pub mod run_dir;
pub mod self_check;
pub mod servers;
pub mod topology;
pub mod world;
