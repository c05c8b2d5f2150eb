//! An assignment of a hostile coordinator, as bytes of the wire.

#![no_main]

use libfuzzer_sys::fuzz_target;
use parallax_agent::assignment::Assignment;
use parallax_agent::assignment::wire::SUBJECTS_MAX;
use parallax_proto::v1;
use prost::Message as _;

fuzz_target!(|bytes: &[u8]| {
    let Ok(wire) = v1::Assignment::decode(bytes) else { return };
    if let Ok(assignment) = Assignment::try_from(&wire) {
        assert!(assignment.canaries.len() <= SUBJECTS_MAX && assignment.resolvers.len() <= SUBJECTS_MAX);
        assert!(!assignment.schedule.canary_every.is_zero());
    }
});
