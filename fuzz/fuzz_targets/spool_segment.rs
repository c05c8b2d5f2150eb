//! A segment of the spool as a broken disk may give it back.

#![no_main]

use libfuzzer_sys::fuzz_target;
use parallax_agent::spool::segment;

fuzz_target!(|bytes: &[u8]| {
    let _ = segment::read(bytes);
});
