//! Who this agent is and whom it obeys: what stands in the identity folder, and how it gets there.
//!
//! ```text
//! ca.pem            authorities: whoever shows a certificate of theirs for a coordinator is one
//! certificate.pem   our own certificate
//! key.pem           its private key, 0600; made here, never sent
//! signers.txt       keys that may sign orders, one a line in base64
//! coordinators.txt  where coordinators are, one HOST:PORT a line
//! key.new, certificate.new    the next pair, until it has taken its place
//! ```
//!
//! [`key`] makes keys and certificate requests, [`folder`] writes the files so that a crash between any
//! two steps leaves a pair that fits, [`trusted`] reads whom to trust, [`signers`] says whether an order
//! is one, [`vouched`] whether a certificate is ours. Reading the folder for a connection is [`crate::uplink::identity`]'s.

pub mod folder;
pub mod key;
pub mod signers;
pub mod trusted;
pub mod vouched;
