//! A JSON document of a hostile DoH server, and what it may say in its headers.

#![no_main]

use libfuzzer_sys::fuzz_target;
use parallax_agent::probe::doh::{json, retry};
use parallax_agent::probe::message::Question;
use parallax_decide::observation::Family;

fuzz_target!(|bytes: &[u8]| {
    let Some((flags, document)) = bytes.split_first() else { return };
    let family = if flags & 1 == 0 { Family::V4 } else { Family::V6 };
    let Ok(name) = "www.example.com".parse() else { return };
    let _ = json::written(&Question { name, family }, document);
    let _ = retry::retry_after(document, 1_700_000_000);
});
