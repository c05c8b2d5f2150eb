//! Who is who: the authorities that vouch for agents and for the coordinator, and the key that signs orders.
//!
//! - [`authority`]: one certificate authority. [`bundle`]: those that are trusted, and their replacement.
//! - [`signer`]: the keys that sign what agents are ordered to do. [`retired`]: what is trusted no more.
//! - [`request`]: what an agent asks a certificate for. [`folder`]: an identity issued by hand.
//! - [`server`]: TLS towards agents.
//! - [`keeper`]: what a running coordinator uses of all that, read again while it runs.
//! - [`files`]: keys and certificates on disk.

pub mod authority;
pub mod bundle;
pub mod files;
pub mod folder;
pub mod keeper;
pub mod request;
pub mod retired;
pub mod server;
pub mod signer;

/// Name that agents check, whatever address they dial.
pub const SERVER_NAME: &str = "parallax-coordinator";

/// Start of the URI that names a vantage in its certificate.
pub const VANTAGE_URI: &str = "parallax://vantage/";
