//! The uplink against a real gRPC server with mutual TLS in the same process.

use std::time::Duration;

use parallax_proto::v1::{self, agent_message, coordinator_message};
use tonic::Status;

use super::*;
use crate::probe::testing::Authority;

mod command;
mod cut;
pub(crate) mod enrolling;
mod flow;
mod lanes;
mod late;
mod life;
mod renewal;
mod rig;
mod store;
mod way;
mod world;
