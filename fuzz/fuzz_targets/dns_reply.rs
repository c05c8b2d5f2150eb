//! A DNS message of a hostile resolver, over UDP and over a stream.

#![no_main]

use libfuzzer_sys::fuzz_target;
use parallax_agent::probe::message::Question;
use parallax_decide::observation::Family;

fuzz_target!(|bytes: &[u8]| {
    let Some((flags, message)) = bytes.split_first() else { return };
    let family = if flags & 1 == 0 { Family::V4 } else { Family::V6 };
    let Ok(name) = "www.example.com".parse() else { return };
    let question = Question { name, family };
    // The id that the message claims, so that what lies behind that check is reached.
    let id = message.get(..2).map_or(0, |id| u16::from_be_bytes([id[0], id[1]]));
    if let Ok(reply) = question.read(id, message) {
        assert!(reply.addresses.len() <= parallax_decide::names::ADDRESSES_MAX);
    }
});
