//! What replies say, and what hostile ones cannot do.

use domain::rdata::{A, Aaaa, Cname};

use super::sections::RECORDS_MAX;
use super::*;
use crate::probe::testing::rig1::{In, Said};

const ID: u16 = 0x1234;

fn said(question: &Question) -> Said {
    Said::to(&question.message(ID, true).unwrap())
}

fn question(family: Family) -> Question {
    Question { name: "example.com".parse().unwrap(), family }
}

/// A reply with the given code and answer records, as zone-file-like triples.
fn reply(question: &Question, code: Rcode, records: &[(&str, u32, &str)]) -> Vec<u8> {
    let mut message = MessageBuilder::new_vec();
    message.header_mut().set_id(ID);
    message.header_mut().set_qr(true);
    message.header_mut().set_rcode(code);
    let mut body = message.question();
    body.push((question.dns_name().unwrap(), question.rtype())).unwrap();
    let mut answer = body.answer();
    for (owner, ttl, data) in records {
        let owner = Name::<Vec<u8>>::from_str(owner).unwrap();
        let ttl = domain::base::Ttl::from_secs(*ttl);
        match data.parse::<IpAddr>() {
            Ok(IpAddr::V4(v4)) => answer.push((owner, Class::IN, ttl, A::new(v4))).unwrap(),
            Ok(IpAddr::V6(v6)) => answer.push((owner, Class::IN, ttl, Aaaa::new(v6))).unwrap(),
            Err(_) => {
                let target = Name::<Vec<u8>>::from_str(data).unwrap();
                answer.push((owner, Class::IN, ttl, Cname::new(target))).unwrap();
            }
        }
    }
    answer.finish()
}

#[test]
fn a_question_is_a_recursive_query_with_edns() {
    let bytes = question(Family::V6).message(ID, true).unwrap();
    let message = Message::from_octets(&bytes).unwrap();
    assert!(message.header().rd() && message.header().ad() && !message.header().qr());
    assert_eq!(message.sole_question().unwrap().qtype(), Rtype::AAAA);
    assert_eq!(message.opt().unwrap().udp_payload_size(), UDP_PAYLOAD);
    let plain = question(Family::V4).message(ID, false).unwrap();
    assert!(Message::from_octets(&plain).unwrap().opt().is_none());
}

#[test]
fn addresses_come_in_order_through_aliases_with_the_smallest_ttl() {
    let q = question(Family::V4);
    let bytes = reply(
        &q,
        Rcode::NOERROR,
        &[
            ("EXAMPLE.com", 60, "www.example.net"),
            ("www.example.net", 300, "8.47.69.0"),
            ("www.example.net", 20, "8.6.112.0"),
            ("www.example.net", 20, "8.6.112.0"),
            ("elsewhere.example", 1, "9.9.9.9"),
        ],
    );
    let reply = q.read(ID, &bytes).unwrap();
    assert_eq!(reply.outcome, Outcome::Answered);
    assert_eq!(reply.addresses, ["8.47.69.0".parse::<IpAddr>().unwrap(), "8.6.112.0".parse().unwrap()]);
    assert_eq!(reply.ttl_s, 20);
}

#[test]
fn somebody_elses_reply_is_not_ours() {
    let q = question(Family::V4);
    let good = reply(&q, Rcode::NOERROR, &[("example.com", 60, "8.6.112.0")]);
    assert_eq!(q.read(ID + 1, &good), Err(Unfit::OtherId));
    assert_eq!(question(Family::V6).read(ID, &good), Err(Unfit::OtherQuestion), "wrong type");
    let other = Question { name: "example.org".parse().unwrap(), family: Family::V4 };
    assert_eq!(other.read(ID, &good), Err(Unfit::OtherQuestion), "wrong name");
    assert_eq!(q.read(ID, &q.message(ID, true).unwrap()), Err(Unfit::Malformed), "our own question back");
    assert_eq!(q.read(ID, &[]), Err(Unfit::Malformed));
}

#[test]
fn a_success_without_its_question_is_not_ours_but_an_error_is() {
    let q = question(Family::V4);
    let bare = |code: u8| {
        let mut bytes = ID.to_be_bytes().to_vec();
        bytes.extend([0x80, code, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes
    };
    assert_eq!(q.read(ID, &bare(0)), Err(Unfit::WithoutQuestion));
    assert_eq!(q.read(ID, &bare(5)).unwrap().outcome, Outcome::Refused);
    assert!(q.read(ID, &bare(1)).unwrap().format_error);
}

#[test]
fn the_code_rules_whatever_records_come_along() {
    let q = question(Family::V4);
    for (code, outcome) in [
        (Rcode::SERVFAIL, Outcome::Servfail),
        (Rcode::REFUSED, Outcome::Refused),
        (Rcode::NXDOMAIN, Outcome::Nxdomain),
        (Rcode::NOTIMP, Outcome::OtherRcode),
    ] {
        let read = q.read(ID, &reply(&q, code, &[("example.com", 60, "8.6.112.0")])).unwrap();
        assert_eq!((read.outcome, read.addresses), (outcome, vec![]));
        assert_eq!(read.addresses_not_used, ["8.6.112.0".parse::<IpAddr>().unwrap()]);
    }
    assert_eq!(q.read(ID, &reply(&q, Rcode::NOERROR, &[])).unwrap().outcome, Outcome::Empty);
}

#[test]
fn a_code_that_goes_on_in_the_opt_record_is_no_success() {
    let q = question(Family::V4);
    let read = q.read(ID, &said(&q).address("8.6.112.0", 60).opt(0, &[]).bytes()).unwrap();
    assert_eq!((read.outcome, read.kept.rcode), (Outcome::Answered, 0));
    let read = q.read(ID, &said(&q).address("8.6.112.0", 60).opt(1, &[]).bytes()).unwrap();
    assert_eq!((read.outcome, read.kept.rcode, read.addresses), (Outcome::OtherRcode, 16, vec![]), "BADVERS");
    // 0x13: its lower part alone is NXDOMAIN.
    let read = q.read(ID, &said(&q).rcode(3).opt(1, &[]).bytes()).unwrap();
    assert_eq!((read.outcome, read.kept.rcode), (Outcome::OtherRcode, 19));
}

#[test]
fn a_loop_of_aliases_and_a_chain_too_long_have_their_word() {
    let q = question(Family::V4);
    let looped = said(&q).alias("example.com", "b.example").alias("b.example", "example.com");
    assert_eq!(q.read(ID, &looped.address("8.6.112.0", 60).bytes()).unwrap().outcome, Outcome::CnameLoop);
    let itself = said(&q).alias("example.com", "EXAMPLE.com");
    assert_eq!(q.read(ID, &itself.bytes()).unwrap().outcome, Outcome::CnameLoop);
    let chain = |length: usize| {
        let names: Vec<String> =
            std::iter::once("example.com".to_owned()).chain((1..=length).map(|i| format!("n{i}.example"))).collect();
        let links = names.windows(2).fold(said(&q), |said, pair| said.alias(&pair[0], &pair[1]));
        (names.clone(), q.read(ID, &links.address_of(&names[length], "8.6.112.0", 60).bytes()).unwrap())
    };
    let (names, read) = chain(CHAIN_MAX);
    assert_eq!((read.outcome, &read.kept.chain[..]), (Outcome::Answered, &names[1..]));
    assert_eq!(chain(CHAIN_MAX + 1).1.outcome, Outcome::CnameLoop);
}

#[test]
fn a_chain_without_an_address_dangles() {
    let q = question(Family::V4);
    let read = q.read(ID, &said(&q).alias("example.com", "gone.example").bytes()).unwrap();
    assert_eq!((read.outcome, read.kept.chain), (Outcome::DanglingCname, vec!["gone.example".to_owned()]));
    let elsewhere = said(&q).alias("example.com", "gone.example").address("8.6.112.0", 60);
    assert_eq!(
        q.read(ID, &elsewhere.bytes()).unwrap().outcome,
        Outcome::DanglingCname,
        "the address is another name's"
    );
}

#[test]
fn a_hostile_name_in_a_chain_is_short_text() {
    let q = question(Family::V4);
    let label = "\u{1}".repeat(63);
    let name = [label.as_str(); 3].join(".");
    let read = q.read(ID, &said(&q).alias("example.com", &name).bytes()).unwrap();
    assert_eq!(read.kept.chain[0].len(), parallax_proto::TEXT_BYTES_MAX);
    assert!(read.kept.chain[0].is_ascii() && !read.kept.chain[0].contains('\u{1}'));
}

#[test]
fn particulars_are_kept() {
    let q = question(Family::V4);
    let reply = said(&q)
        .flags(0x0420, 0x0080)
        .address("8.6.112.0", 300)
        .address("8.47.69.0", 20)
        .address("8.6.112.0", 60)
        .record(In::Answer, "example.com", 65, 60, &[0, 1, 0])
        .opt(0, &[(3, b"fra1"), (15, &[0, 22, b'd', b'o', 0x1b, b'w', b'n']), (15, &[0, 9])]);
    let bytes = reply.bytes();
    let read = q.read(ID, &bytes).unwrap();
    assert_eq!((read.outcome, read.ttl_s, &read.kept.ttls_s[..]), (Outcome::Answered, 20, &[60, 20][..]));
    assert_eq!((read.extended_error, read.remark.as_str()), (Some(22), "do·wn"));
    assert_eq!((read.kept.nsid.as_slice(), read.kept.size as usize), (&b"fra1"[..], bytes.len()));
    assert_eq!((read.kept.flags, read.authentic_data), (0x8520, true), "QR AA RD AD, without opcode and code");
}

#[test]
fn a_ttl_with_the_top_bit_set_is_zero() {
    let q = question(Family::V4);
    let read = q.read(ID, &said(&q).address("8.6.112.0", 0x8000_0001).bytes()).unwrap();
    assert_eq!((read.outcome, read.ttl_s), (Outcome::Answered, 0));
}

#[test]
fn b04_what_cannot_be_read_is_malformed() {
    let q = question(Family::V4);
    let mut beyond = said(&q).record(In::Answer, "example.com", 65, 60, &[0, 1, 0]).bytes();
    let length = beyond.len() - 4;
    beyond[length] = 200;
    assert_eq!(q.read(ID, &beyond), Err(Unfit::Malformed), "RDLENGTH past the end");
    let header = [&ID.to_be_bytes()[..], &[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]].concat();
    assert_eq!(q.read(ID, &header), Err(Unfit::Malformed), "a header alone");
    assert_eq!(q.read(ID, &header[..5]), Err(Unfit::Malformed), "5 bytes");
    let short = said(&q).record(In::Answer, "example.com", 1, 60, &[8, 6, 112]);
    assert_eq!(q.read(ID, &short.bytes()), Err(Unfit::Malformed), "an address of three bytes");
    let long = said(&q).record(In::Answer, "example.com", 1, 60, &[8, 6, 112, 0, 0]);
    assert_eq!(q.read(ID, &long.bytes()), Err(Unfit::Malformed), "an address of five bytes");
    let options = said(&q).record(In::Additional, "", 41, 0, &[0, 3, 0, 9, 1]);
    assert_eq!(q.read(ID, &options.bytes()), Err(Unfit::Malformed), "an option longer than its record");
}

#[test]
fn b05_addresses_of_a_failure_are_evidence_alone() {
    let q = question(Family::V4);
    let good = |rcode| said(&q).rcode(rcode).address("203.0.113.10", 60);
    for (rcode, outcome) in [(2, Outcome::Servfail), (5, Outcome::Refused), (3, Outcome::Nxdomain)] {
        let read = q.read(ID, &good(rcode).bytes()).unwrap();
        assert_eq!((read.outcome, read.addresses, read.ttl_s), (outcome, vec![], 0));
        assert_eq!(read.addresses_not_used, ["203.0.113.10".parse::<IpAddr>().unwrap()]);
    }
    let read = q.read(ID, &said(&q).rcode(2).alias("example.com", "b.example").bytes()).unwrap();
    assert_eq!((read.outcome, read.addresses_not_used), (Outcome::Servfail, vec![]));
}

#[test]
fn b09_nothing_a_referral_and_an_error_are_told_apart() {
    let v6 = question(Family::V6);
    let says = |said: Said| v6.read(ID, &said.bytes()).unwrap().outcome;
    assert_eq!(says(said(&v6)), Outcome::Empty, "no SOA record either");
    assert_eq!(says(said(&v6).soa("example.com", 60, 60)), Outcome::Empty);
    let referral = said(&v6).flags(0, 0x0080).name_server("com", "a.example").name_server("com", "b.example");
    assert_eq!(says(referral), Outcome::Referral);
    let recursive = said(&v6).name_server("com", "a.example").soa("example.com", 60, 60);
    assert_eq!(says(recursive), Outcome::Empty, "a resolver that adds the zone's servers");
    assert_eq!(says(said(&v6).rcode(2)), Outcome::Servfail);
    assert_eq!(says(said(&v6).rcode(3)), Outcome::Nxdomain);
    assert_eq!(says(said(&v6).address("8.6.112.0", 60)), Outcome::Empty, "an address of the other family");
}

#[test]
fn b24_a_stale_answer_carries_its_marks() {
    let q = question(Family::V4);
    let read = q.read(ID, &said(&q).address("203.0.113.10", 30).opt(0, &[(15, &[0, 3])]).bytes()).unwrap();
    assert_eq!((read.outcome, read.ttl_s, read.extended_error), (Outcome::Answered, 30, Some(3)));
}

#[test]
fn b26_how_long_a_missing_name_is_remembered_is_kept() {
    let q = question(Family::V4);
    let lasts = |said: Said| q.read(ID, &said.bytes()).unwrap().kept.negative_ttl_s;
    assert_eq!(lasts(said(&q).rcode(3).soa("example.com", 86400, 86400)), Some(86400));
    assert_eq!(lasts(said(&q).rcode(3).soa("example.com", 3600, 86400)), Some(3600));
    assert_eq!(lasts(said(&q).soa("example.com", 86400, 0)), Some(0), "of an empty answer too");
    assert_eq!(lasts(said(&q).rcode(3)), None);
    assert_eq!(lasts(said(&q).rcode(3).soa("example.com", 0xffff_ffff, 60)), Some(0));
}

#[test]
fn a_cut_message_that_ends_in_a_record_is_asked_again() {
    let q = question(Family::V4);
    let whole = said(&q).cut().address("8.6.112.0", 60).address("8.47.69.0", 60).bytes();
    let read = q.read(ID, &whole[..whole.len() - 3]).unwrap();
    assert!(read.truncated && read.addresses.is_empty());
}

#[test]
fn a_message_full_of_records_is_walked_once() {
    let q = question(Family::V4);
    let mut bytes = said(&q).bytes();
    // A chain of pointers, each to the one before: the longest way to write the root.
    let begin = bytes.len();
    bytes.extend([0, 0, 1, 0, 1, 0, 0, 0, 60, 0, 0]);
    let mut records = 1u16;
    while bytes.len() < REPLY_BYTES_MAX - 12 {
        let back = if (2..=200).contains(&records) { begin + 11 + usize::from(records - 2) * 12 } else { begin };
        let pointer = 0xc000 | u16::try_from(back).unwrap();
        bytes.extend(pointer.to_be_bytes());
        bytes.extend([0, 1, 0, 1, 0, 0, 0, 60, 0, 0]);
        records += 1;
    }
    bytes[6..8].copy_from_slice(&records.to_be_bytes());
    assert!(usize::from(records) > RECORDS_MAX);
    assert_eq!(q.read(ID, &bytes), Err(Unfit::Malformed), "an A record without an address");
    bytes[10..12].copy_from_slice(&records.to_be_bytes());
    bytes[6..8].copy_from_slice(&[0, 0]);
    assert_eq!(q.read(ID, &bytes).unwrap().outcome, Outcome::Empty);
}

#[test]
fn b03_padding_is_counted_and_every_message_cut_short_is_malformed() {
    let q = question(Family::V4);
    let good = reply(&q, Rcode::NOERROR, &[("example.com", 60, "8.6.112.0"), ("example.com", 60, "8.47.69.0")]);
    for cut in 0..good.len() {
        assert!(q.read(ID, &good[..cut]).is_err(), "cut at {cut}");
    }
    for pad in [[0; 40], std::array::from_fn(|i| u8::try_from(i * 37 % 256).unwrap())] {
        let read = q.read(ID, &[good.as_slice(), &pad].concat()).unwrap();
        assert_eq!((read.outcome, read.kept.trailing), (Outcome::Answered, 40));
        assert_eq!(read.addresses, q.read(ID, &good).unwrap().addresses);
    }
}

#[test]
fn a_pointer_to_itself_ends() {
    let q = question(Family::V4);
    let mut bytes = reply(&q, Rcode::NOERROR, &[]);
    bytes[7] = 1;
    let here = u8::try_from(bytes.len()).unwrap();
    bytes.extend([0xc0, here, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 8, 6, 112, 0]);
    assert_eq!(q.read(ID, &bytes), Err(Unfit::Malformed));
}

#[test]
fn b11_at_most_sixteen_addresses_are_kept_and_the_others_counted() {
    let q = question(Family::V4);
    let texts: Vec<String> = (0..64).map(|i| format!("8.8.4.{i}")).collect();
    let records: Vec<_> = texts.iter().map(|text| ("example.com", 60, text.as_str())).collect();
    let read = q.read(ID, &reply(&q, Rcode::NOERROR, &records)).unwrap();
    assert_eq!((read.addresses.len(), read.kept.ttls_s.len(), read.addresses_skipped), (16, 16, 48));
}

#[test]
fn truncation_is_flagged_and_its_partial_records_are_left_alone() {
    let q = question(Family::V4);
    let mut bytes = reply(&q, Rcode::NOERROR, &[("example.com", 60, "8.6.112.0")]);
    bytes[2] |= 2;
    let read = q.read(ID, &bytes).unwrap();
    assert!(read.truncated && read.addresses.is_empty());
}

#[test]
fn random_bytes_never_panic() {
    let q = question(Family::V4);
    let good = reply(&q, Rcode::NOERROR, &[("example.com", 60, "b.example"), ("b.example", 60, "8.6.112.0")]);
    for position in 2..good.len() {
        for value in [0, 1, 0x3f, 0x7f, 0xc0, 0xff] {
            let mut bytes = good.clone();
            bytes[position] = value;
            let _ = q.read(ID, &bytes);
        }
    }
}

#[test]
fn b11_order_and_repetitions_make_no_other_answer() {
    let q = question(Family::V4);
    let read = |addresses: &[&str]| {
        let said = addresses.iter().fold(said(&q), |said, address| said.address(address, 60));
        q.read(ID, &said.bytes()).unwrap()
    };
    let one = read(&["203.0.113.10", "203.0.113.11", "203.0.113.12"]);
    assert!(one.same(&read(&["203.0.113.12", "203.0.113.10", "203.0.113.11", "203.0.113.10"])));
    assert!(!one.same(&read(&["203.0.113.10", "203.0.113.11"])) && !read(&["203.0.113.10"]).same(&one));
}
