//! The coordinator, in the order in which a fact becomes a change:
//!
//! - [`ingest`] takes the agents' streams: mutual TLS, validation, commit, acknowledgement.
//! - [`store`] holds all SQL: the log of observations, cursors, partitions, the lease.
//! - [`tasks`] runs on the coordinator that holds the lease: detect, plan, execute, verify.
//! - [`judging`] is what they share with [`replay`], which runs the stored log once more and changes nothing.
//! - [`hub`] is where tasks meet the connected agents; [`relay`] is the way to those of other coordinators.
//! - [`report`] turns rows into what people read, [`words`] data into sentences.
//! - [`web`] and [`api`] serve the page and the API.
//!
//! Around them: [`cli`] the operator's tool, [`config`] the file, [`identity`] keys and certificates,
//! [`embedded`] the Postgres that comes along when none is given, [`clock`] the only clock,
//! [`installation`] whether the database went back, [`mailbox`] the queue of one stream, [`reload`] how a configuration is taken, [`admitted`] the taking in of
//! approved vantages, [`revocation`] the cutting off, [`room`] the embedded database's room, [`secret`] what is in no message,
//! [`signers`] whether orders are signed by whom agents know, [`span`] how spans are written, [`state`] what all share,
//! [`error`] how a command says that it failed, [`hex`] bytes as people read them.
//!
//! Absent on purpose: judgement, which is pure and lives in `parallax-decide`; and any way for a
//! type of the wire to get past [`ingest`] or for SQL to get out of [`store`].

pub mod admitted;
pub mod api;
pub mod cli;
pub mod clock;
pub mod config;
pub mod embedded;
pub mod error;
pub mod hex;
pub mod hub;
pub mod identity;
pub mod ingest;
pub mod installation;
pub mod judging;
pub mod mailbox;
pub mod relay;
pub mod reload;
pub mod replay;
pub mod report;
pub mod revocation;
pub mod room;
pub mod secret;
pub mod signers;
pub mod span;
pub mod state;
pub mod store;
pub mod tasks;
#[cfg(test)]
pub(crate) mod testing;
pub mod web;
pub mod words;
