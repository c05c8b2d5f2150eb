//! What programs read besides the pages' JSON twins.
//!
//! - [`status`]: host names and where they lead now. [`metrics`]: numbers for Prometheus.

pub mod metrics;
pub mod status;
