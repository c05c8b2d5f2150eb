//! An order as bytes of the wire, signed by a coordinator that is hostile, and whom to trust from it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use parallax_agent::assignment::Assignment;
use parallax_agent::certificate;
use parallax_agent::identity::trusted::Trusted;
use parallax_agent::uplink::orders;
use parallax_proto::v1::{self, order};
use parallax_proto::{COORDINATORS_MAX, TRUSTED_MAX};
use prost::Message as _;

fuzz_target!(|bytes: &[u8]| {
    let Ok(wire) = v1::Order::decode(bytes) else { return };
    match wire.order {
        Some(order::Order::Assignment(wire)) => drop(Assignment::try_from(&wire)),
        Some(order::Order::Task(wire)) => drop(orders::task(wire)),
        Some(order::Order::Trust(wire)) => {
            for der in &wire.authorities {
                let _ = (certificate::Certificate::read(der), certificate::public_key(der));
            }
            let Ok(trusted) = Trusted::try_from(&wire) else { return };
            assert!(trusted.authorities.len() <= TRUSTED_MAX && trusted.signers.len() <= TRUSTED_MAX);
            assert!(trusted.coordinators.len() <= COORDINATORS_MAX);
        }
        None => {}
    }
});
