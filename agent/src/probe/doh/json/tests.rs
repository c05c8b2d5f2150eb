//! Documents as resolvers send them, and worse ones.

use parallax_decide::observation::Outcome;

use super::*;
use crate::probe::message::Reply;

fn question() -> Question {
    Question { name: "example.com".parse().unwrap(), family: Family::V4 }
}

fn read(document: &str) -> Result<Reply, Unfit> {
    let written = written(&question(), document.as_bytes())?;
    question().read(0, &written.message)
}

#[test]
fn b13_spacing_order_unknown_fields_dots_and_numbers_as_texts_do_not_matter() {
    for document in [
        r#"{"Status":0,"Answer":[{"name":"example.com","type":1,"TTL":60,"data":"8.6.112.0"}]}"#,
        r#"{ "Status" : 0 , "Answer" : [ { "name" : "example.com." , "type" : 1 , "TTL" : "60" , "data" : "8.6.112.0" } ] }"#,
        r#"{"Answer":[{"data":"8.6.112.0","TTL":60,"type":1,"name":"EXAMPLE.com"}],"x":{"y":[1,{}]},"Status":0,"AD":false}"#,
        r#"{"Status":0,"Question":[{"name":"Example.com.","type":1}],"Answer":[{"name":"example.com","type":1,"TTL":60,"data":"8.6.112.0","extra":null}]}"#,
        r#"{"Status":0,"Question":{"name":"example.com","type":1},"Answer":{"name":"example.com","type":"1","TTL":60,"data":"8.6.112.0"}}"#,
        r#"{"Status":0,"Authority":null,"Answer":[{"name":"example.com","type":46,"TTL":60,"data":{"x":1}},{"name":"example.com","type":1,"TTL":60,"data":"8.6.112.0"}]}"#,
        r#"{"Status":0,"Answer":[{"name":"example.com.","type":5,"TTL":300,"data":"a.example."},{"name":"a.example","type":1,"TTL":60,"data":"8.6.112.0"}]}"#,
    ] {
        let reply = read(document).unwrap();
        assert_eq!(reply.outcome, Outcome::Answered, "{document}");
        assert_eq!(reply.addresses, ["8.6.112.0".parse::<std::net::IpAddr>().unwrap()], "{document}");
        assert_eq!(reply.ttl_s, 60, "{document}");
    }
}

#[test]
fn b13_what_is_no_answer_is_malformed_and_never_a_success() {
    for document in [
        r#"{"error":"..."}"#,
        r#"{"Answer":[{"name":"example.com","type":1,"TTL":60,"data":"8.6.112.0"}]}"#,
        r#"{"Status":null}"#,
        r#"{"Status":-1}"#,
        r#"{"Status":4096}"#,
        r#"{"Status":"ok"}"#,
        r#"{"Status":0,"Answer":[{"name":"example.com","type":1,"TTL":60,"data":"not an address"}]}"#,
        r#"{"Status":0,"Answer":[{"name":"example.com","type":1,"TTL":"soon","data":"8.6.112.0"}]}"#,
        r#"{"Status":0} and more"#,
        r#"{"Status":0"#,
        "<html>\"Status\":0</html>",
        "[]",
        "",
    ] {
        assert_eq!(read(document), Err(Unfit::Malformed), "{document}");
    }
    let other = r#"{"Status":0,"Question":[{"name":"example.org","type":1}]}"#;
    assert_eq!(read(other), Err(Unfit::OtherQuestion));
    let other = r#"{"Status":0,"Question":[{"name":"example.com","type":28}]}"#;
    assert_eq!(read(other), Err(Unfit::OtherQuestion));
}

#[test]
fn the_code_rules_and_its_extension_is_kept() {
    for (document, outcome, extended) in [
        (r#"{"Status":3,"Comment":"Response from 192.0.2.1."}"#, Outcome::Nxdomain, None),
        (r#"{"Status":5}"#, Outcome::Refused, None),
        (r#"{"Status":16}"#, Outcome::OtherRcode, None),
        (r#"{"Status":0}"#, Outcome::Empty, None),
        (r#"{"Status":2,"Comment":["EDE(22): No Reachable Authority","x"]}"#, Outcome::Servfail, Some(22)),
        (r#"{"Status":2,"extended_dns_errors":[{"info_code":9,"extra_text":"x"}]}"#, Outcome::Servfail, Some(9)),
        (
            r#"{"Status":2,"Answer":[{"name":"example.com","type":1,"TTL":60,"data":"8.6.112.0"}]}"#,
            Outcome::Servfail,
            None,
        ),
    ] {
        let reply = read(document).unwrap();
        assert_eq!((reply.outcome, reply.extended_error), (outcome, extended), "{document}");
    }
    let secure = r#"{"Status":0,"AD":true,"Answer":[{"name":"example.com","type":1,"TTL":60,"data":"8.6.112.0"}]}"#;
    assert!(read(secure).unwrap().authentic_data);
}

#[test]
fn a_document_of_any_size_costs_a_bounded_message() {
    let record = r#"{"name":"example.com","type":1,"TTL":60,"data":"8.6.112.0"}"#;
    let document = format!(r#"{{"Status":0,"Answer":[{}]}}"#, vec![record; 1000].join(","));
    let written = written(&question(), document.as_bytes()).unwrap();
    assert!(written.message.len() < 16 * 1024);
    let deep = format!(r#"{{"Status":0,"x":{}}}"#, "[".repeat(60_000));
    assert_eq!(read(&deep), Err(Unfit::Malformed));
}

#[test]
fn a_cut_or_changed_document_is_read_or_not_but_never_breaks() {
    let whole = r#"{"Status":2,"Question":[{"name":"example.com","type":1}],"Answer":[{"name":"example.com","type":5,"TTL":"1","data":"a.example."}],"Authority":[{"name":"example.com","type":6,"TTL":9,"data":"a. b. 1 2 3 4 5"}],"Comment":["EDE(22): x"]}"#;
    assert!(read(whole).is_ok());
    for end in 0..whole.len() {
        assert!(read(&whole[..end]).is_err());
    }
    for at in 0..whole.len() {
        for value in [b'0', b'"', b'{', b']', b'\\', 0xff, b'-'] {
            let mut changed = whole.as_bytes().to_vec();
            changed[at] = value;
            let _ = written(&question(), &changed);
        }
    }
}
