//! The agent: it measures, remembers and sends, and applies the local remedies it is told to.
//!
//! In the order of the flow:
//!
//! * [`cli`] reads the flags, [`environment`] minds misspelt variables, [`local`] the owner's file, [`agent`] puts the parts
//!   together; [`beginning`] says what keeps it from that.
//! * [`assignment`] is what the coordinator wants measured, kept on disk; [`schedule`] says when;
//!   [`rounds`] starts the probes and [`burst`] repeats a first failure at once.
//! * [`policy`] says what may be contacted at all, [`own`] what is this machine's own, [`dial`] is the only door to the network,
//!   [`tls`] the trust; [`site`] bundles them. [`probe`] holds one file a kind of measurement.
//! * [`measured`] is one fact with its timings; [`recorder`] numbers it into the [`spool`] on disk;
//!   [`uplink`] sends from there and deletes only what was acknowledged.
//! * [`tasks`] is urgent work the coordinator asks for; [`pins`] the remedies held at this place,
//!   journalled, re-asserted and removed at their expiry; [`proofs`] is what may be pinned at all.
//! * [`by_hand`] is the same measuring without a coordinator, for people; [`doctor`] looks at the machine.
//! * [`join`] makes the [`identity`] from a token, [`leave`] forgets it, [`standing`] says how things stand; [`failure`] is what people
//!   read when a command fails.
//! * [`descriptors`] says how much may be in flight. [`clock`] is the only reader of clocks, [`entropy`] the only source of randomness.
//! * [`offset`] is how far our clock is from the coordinator's, [`dates`] suspects it when certificates fail everywhere;
//!   [`certificate`] and [`date`] read what they rest on.
//!
//! Absent on purpose: judgement. The agent classifies what the operating system and the protocols
//! said into one named outcome and stops there; whether a place or the world is broken is decided
//! where several places can be compared. Types of the wire stop at [`uplink`], [`assignment`],
//! [`identity`] and [`join`].

pub mod agent;
pub mod assignment;
pub mod beginning;
pub mod burst;
pub mod by_hand;
pub mod certificate;
pub mod cli;
pub mod clock;
pub mod date;
pub mod dates;
pub mod descriptors;
pub mod dial;
pub mod doctor;
pub mod entropy;
pub mod environment;
pub mod failure;
pub mod identity;
pub mod join;
pub mod leave;
pub mod life;
pub mod local;
pub mod measured;
#[cfg(test)]
mod netns;
pub mod offset;
pub mod own;
pub mod pins;
pub mod policy;
pub mod probe;
pub mod proofs;
pub mod recorder;
pub mod respond;
pub mod rounds;
pub mod schedule;
pub mod site;
pub mod spool;
pub mod standing;
pub mod tasks;
pub mod tls;
pub mod uplink;
pub mod well_known;
