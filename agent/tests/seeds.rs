//! The fuzz targets' seeds, each cut at every length and with every bit turned once, through the same
//! functions that the targets call: what `./x soak fuzz` does for minutes, in short.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its seeds has failed")]

use std::path::{Path, PathBuf};

use parallax_agent::assignment::Assignment;
use parallax_agent::identity::trusted::Trusted;
use parallax_agent::probe::doh::{json, retry};
use parallax_agent::probe::message::Question;
use parallax_agent::spool::segment;
use parallax_agent::uplink::orders;
use parallax_decide::observation::Family;
use parallax_proto::v1;
use prost::Message as _;

/// Every seed of one target, by name.
fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds").join(target);
    let mut seeds: Vec<(PathBuf, Vec<u8>)> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    seeds.sort();
    assert!(seeds.len() >= 2, "{} holds too few seeds", folder.display());
    seeds
}

/// Calls the function with every spoilt form of every seed; it must only not break down.
fn spoil(target: &str, read: fn(&[u8])) {
    for (_, seed) in seeds(target) {
        // Long seeds are sampled: the targets themselves do the rest.
        let step = (seed.len() / 512).max(1);
        for end in (0..=seed.len()).step_by(step) {
            read(&seed[..end]);
        }
        for bit in (0..seed.len() * 8).step_by(step) {
            let mut spoilt = seed.clone();
            spoilt[bit / 8] ^= 1 << (bit % 8);
            read(&spoilt);
        }
    }
}

fn question(flags: u8) -> Question {
    let family = if flags & 1 == 0 { Family::V4 } else { Family::V6 };
    Question { name: "www.example.com".parse().unwrap(), family }
}

#[test]
fn dns_replies() {
    spoil("dns_reply", |bytes| {
        let Some((flags, message)) = bytes.split_first() else { return };
        let id = message.get(..2).map_or(0, |id| u16::from_be_bytes([id[0], id[1]]));
        let _ = question(*flags).read(id, message);
    });
}

#[test]
fn doh_documents_and_headers() {
    spoil("doh_json", |bytes| {
        let Some((flags, document)) = bytes.split_first() else { return };
        let _ = json::written(&question(*flags), document);
        let _ = retry::retry_after(document, 1_700_000_000);
    });
}

#[test]
fn spool_segments() {
    spoil("spool_segment", |bytes| {
        let _ = segment::read(bytes);
    });
}

#[test]
fn assignments() {
    spoil("assignment", |bytes| {
        let Ok(wire) = v1::Assignment::decode(bytes) else { return };
        let _ = Assignment::try_from(&wire);
    });
    for (path, seed) in seeds("assignment") {
        let wire = v1::Assignment::decode(seed.as_slice()).unwrap();
        assert!(Assignment::try_from(&wire).is_ok(), "{} must be a good one", path.display());
    }
}

#[test]
fn orders_and_whom_to_trust() {
    fn read(bytes: &[u8]) {
        let Ok(wire) = v1::Order::decode(bytes) else { return };
        match wire.order {
            Some(v1::order::Order::Assignment(wire)) => drop(Assignment::try_from(&wire)),
            Some(v1::order::Order::Task(wire)) => drop(orders::task(wire)),
            Some(v1::order::Order::Trust(wire)) => drop(Trusted::try_from(&wire)),
            None => {}
        }
    }
    spoil("order", read);
    for (path, seed) in seeds("order") {
        let wire = v1::Order::decode(seed.as_slice()).unwrap();
        let good = match wire.order.unwrap() {
            v1::order::Order::Assignment(wire) => Assignment::try_from(&wire).is_ok(),
            v1::order::Order::Task(wire) => orders::task(wire).is_ok(),
            v1::order::Order::Trust(wire) => Trusted::try_from(&wire).is_ok(),
        };
        assert!(good, "{} must be a good one", path.display());
    }
}
