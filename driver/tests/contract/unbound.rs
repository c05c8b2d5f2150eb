//! Unbound's control socket.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use domain::base::Rtype;
use domain::base::iana::Rcode;
use parallax_decide::change::Change;
use parallax_driver::unbound::{Unbound, UnboundConfig};
use parallax_driver::{Applied, Driver, DriverError, Reading, Refusal};

use crate::story::story;
use crate::support::control::{Act, ControlRelay};
use crate::support::named::Named;
use crate::support::resolver::{self, Resolver};
use crate::support::{IMPATIENT, name, pin, repoint};

const HOST: &str = "fi.example.net";
const GOOD: &[&str] = &["104.26.4.10", "172.66.40.20", "2606:4700::10"];

fn one() -> Change {
    pin(HOST, &["104.26.4.10"])
}

fn impatient(socket: &Path) -> Unbound {
    Unbound::new(UnboundConfig { control: socket.to_owned(), timeout: IMPATIENT })
}

#[tokio::test]
async fn the_story_with_one_and_with_several_addresses() {
    let Some(server) = Resolver::start(None).await else { return };
    let before = server.state();
    for change in [one(), pin(HOST, &["2606:4700::10"]), pin(HOST, GOOD)] {
        let meddle = async || assert_eq!(server.control("local_data fi.example.net. 30 IN A 5.161.30.30"), "ok\n");
        let restore = async || {
            assert_eq!(server.control("local_data_remove fi.example.net."), "ok\n");
            assert_eq!(server.control("local_zone_remove fi.example.net."), "ok\n");
        };
        story(&server.driver(), &change, meddle, restore).await;
        assert_eq!(server.state(), before, "nothing of ours stays");
    }
}

#[tokio::test]
async fn a_pin_beats_the_cache_and_unpinning_brings_the_native_answer_of_now() {
    let Some(upstream) = Named::start().await else { return };
    let Some(server) = Resolver::start(Some(upstream.address)).await else { return };
    let driver = server.driver();
    let ask = async |host: &str, rtype| server.ask(host, rtype).await;
    let answer = |text: &str| (Rcode::NOERROR, vec![text.parse().unwrap()]);

    assert_eq!(ask("long.example.net", Rtype::A).await, answer("95.216.10.10"), "now it is cached for 300 s");
    let change = pin("long.example.net", &["104.26.4.10"]);
    assert_eq!(driver.apply(&change).await, Ok(Applied::Written));
    for _ in 0..8 {
        assert_eq!(ask("LONG.example.net", Rtype::A).await, answer("104.26.4.10"), "in each thread");
    }
    let moved = repoint("long.example.net", &["95.216.10.10"], &["49.12.20.20"]);
    assert_eq!(upstream.driver().apply(&moved).await, Ok(Applied::Written));
    assert_eq!(driver.apply(&change.undo()).await, Ok(Applied::Written));
    assert_eq!(ask("long.example.net", Rtype::A).await, answer("49.12.20.20"), "not what was cached before the pin");
}

#[tokio::test]
async fn other_types_of_a_pinned_name_have_no_data_and_names_below_are_untouched() {
    let Some(upstream) = Named::start().await else { return };
    let Some(server) = Resolver::start(Some(upstream.address)).await else { return };
    let change = pin("two.example.net", &["104.26.4.10"]);
    assert_eq!(server.driver().apply(&change).await, Ok(Applied::Written));
    assert_eq!(server.ask("two.example.net", Rtype::AAAA).await, (Rcode::NOERROR, vec![]), "no way past the pin");
    assert_eq!(server.ask("two.example.net", Rtype::HTTPS).await, (Rcode::NOERROR, vec![]));
    let below = server.ask("below.two.example.net", Rtype::A).await;
    assert_eq!(below, (Rcode::NOERROR, vec!["95.216.10.99".parse().unwrap()]));
    assert_eq!(server.driver().apply(&change.undo()).await, Ok(Applied::Written));
    assert_eq!(server.ask("two.example.net", Rtype::AAAA).await.1.len(), 1, "the native answer is back");
}

#[tokio::test]
async fn what_the_operator_made_is_foreign_and_left_alone() {
    let Some(server) = Resolver::start(None).await else { return };
    let driver = server.driver();
    let before = server.state();
    for (host, part) in [
        ("text.example", "TXT"),
        ("private.example", "private"),
        ("known.operators.example", "static"),
        ("new.operators.example", "static"),
        ("any.leaky.example", "typetransparent"),
        ("localhost", "redirect"),
    ] {
        let found = driver.read(&name(host)).await.unwrap();
        assert!(matches!(&found, Reading::Foreign { what } if what.contains(part)), "{host}: {found}");
        let change = pin(host, GOOD);
        for change in [change.undo(), change] {
            assert_eq!(driver.apply(&change).await, Err(DriverError::Conflict { found: found.clone() }));
        }
    }
    assert!(matches!(driver.apply(&repoint(HOST, GOOD, GOOD)).await, Err(DriverError::Unsupported { .. })));
    assert_eq!(server.state(), before);
}

#[tokio::test]
async fn an_interrupted_pin_is_completed_or_removed() {
    let Some(server) = Resolver::start(None).await else { return };
    let (driver, change, before) = (server.driver(), pin(HOST, GOOD), server.state());
    let interrupted = || assert_eq!(server.control("local_data fi.example.net. 30 IN A 104.26.4.10"), "ok\n");
    interrupted();
    assert_eq!(driver.apply(&change).await, Ok(Applied::Written));
    assert_eq!(driver.apply(&change).await, Ok(Applied::Already));
    assert_eq!(driver.apply(&change.undo()).await, Ok(Applied::Written));
    interrupted();
    assert_eq!(driver.apply(&change.undo()).await, Ok(Applied::Written));
    assert_eq!(server.state(), before);
}

#[tokio::test]
async fn an_interrupted_unpin_is_completed() {
    let Some(server) = Resolver::start(None).await else { return };
    let (driver, before) = (server.driver(), server.state());
    assert_eq!(driver.apply(&one()).await, Ok(Applied::Written));
    assert_eq!(server.control("local_data_remove fi.example.net."), "ok\n");
    assert_ne!(server.state(), before, "its empty zone stays");
    assert_eq!(driver.apply(&one().undo()).await, Ok(Applied::Written));
    assert_eq!(server.state(), before);
    assert_eq!(driver.apply(&one().undo()).await, Ok(Applied::Already));
}

#[tokio::test]
async fn zones_that_matter_to_others_survive_an_unpin() {
    let Some(server) = Resolver::start(None).await else { return };
    let driver = server.driver();
    // The operator exempts a name from a static zone; removing that zone would block the name.
    assert_eq!(server.control("local_zone free.operators.example. transparent"), "ok\n");
    let before = server.state();
    let change = pin("free.operators.example", GOOD);
    assert_eq!(driver.apply(&change).await, Ok(Applied::Written));
    assert_eq!(driver.apply(&change.undo()).await, Ok(Applied::Written));
    assert_eq!(driver.apply(&change.undo()).await, Ok(Applied::Already));
    assert_eq!(server.state(), before);

    // Somebody adds a name below a pinned one: it lives in the pin's zone.
    assert_eq!(driver.apply(&one()).await, Ok(Applied::Written));
    assert_eq!(server.control("local_data below.fi.example.net. 30 IN A 95.216.10.99"), "ok\n");
    assert_eq!(driver.apply(&one().undo()).await, Ok(Applied::Written));
    assert_eq!(server.ask("below.fi.example.net", Rtype::A).await.1.len(), 1);
    assert_eq!(driver.apply(&one()).await, Ok(Applied::Written), "and can be pinned again");
}

#[tokio::test]
async fn a_reload_loses_pins_and_applying_again_restores_them() {
    let Some(server) = Resolver::start(None).await else { return };
    let driver = server.driver();
    assert_eq!(driver.apply(&one()).await, Ok(Applied::Written));
    assert_eq!(server.control("reload"), "ok\n");
    assert_eq!(driver.read(&name(HOST)).await, Ok(Reading::Nothing));
    assert_eq!(driver.apply(&one()).await, Ok(Applied::Written));
}

#[tokio::test]
async fn no_socket_a_silent_one_or_a_forbidden_one_is_told_apart() {
    let folder = tempfile::TempDir::new().unwrap();
    let absent = folder.path().join("absent");
    let error = impatient(&absent).apply(&one()).await.unwrap_err();
    assert!(matches!(&error, DriverError::Unreachable { why, .. } if why.contains("control-enable")), "{error}");

    let silent = ControlRelay::start(&absent, |_, _| Act::Silent);
    let error = impatient(&silent.socket()).apply(&one()).await.unwrap_err();
    assert!(matches!(&error, DriverError::Unreachable { why, .. } if why.contains("no whole reply")), "{error}");

    let forbidden = folder.path().join("forbidden");
    let _listener = std::os::unix::net::UnixListener::bind(&forbidden).unwrap();
    std::fs::set_permissions(&forbidden, std::fs::Permissions::from_mode(0o000)).unwrap();
    // Root may do everything; so this thread stops being root for files.
    if nix::unistd::geteuid().is_root() {
        nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65534));
    }
    let refused = impatient(&forbidden).apply(&one()).await;
    nix::unistd::setfsuid(nix::unistd::geteuid());
    assert!(matches!(&refused, Err(DriverError::Refused { reason: Refusal::Permission { .. }, .. })), "{refused:?}");
}

#[tokio::test]
async fn an_error_before_anything_was_written_is_a_refusal() {
    let Some(server) = Resolver::start(None).await else { return };
    for refused in ["list_local_data", "list_local_zones", "local_data fi.example.net. 30 IN A 104.26.4.10"] {
        let script = move |command: &str, _| if command == refused { Act::Text("error no such\n") } else { Act::Pass };
        let relay = ControlRelay::start(&server.socket(), script);
        let error = resolver::driver(&relay.socket()).apply(&one()).await.unwrap_err();
        let reply = "error no such".to_owned();
        assert!(
            matches!(&error, DriverError::Refused { reason: Refusal::Command { reply: said }, .. } if *said == reply),
            "{refused}: {error}"
        );
    }
    assert_eq!(server.driver().read(&name(HOST)).await, Ok(Reading::Nothing));
}

#[tokio::test]
async fn an_error_half_way_is_uncertain_and_applying_again_repairs() {
    let Some(server) = Resolver::start(None).await else { return };
    let script = |command: &str, _| {
        if command.contains("172.66.40.20") { Act::Text("error out of memory\n") } else { Act::Pass }
    };
    let relay = ControlRelay::start(&server.socket(), script);
    let applied = resolver::driver(&relay.socket()).apply(&pin(HOST, GOOD)).await;
    assert!(
        matches!(&applied, Err(DriverError::Uncertain { why, .. }) if why.contains("out of memory")),
        "{applied:?}"
    );
    assert_eq!(relay.writes().len(), 2, "it stopped there");
    assert_eq!(server.driver().apply(&pin(HOST, GOOD)).await, Ok(Applied::Written));
}

#[tokio::test]
async fn a_lost_reply_is_settled_by_reading_back() {
    let Some(server) = Resolver::start(None).await else { return };
    let lossy = |lost: &'static str| {
        ControlRelay::start(
            &server.socket(),
            move |command, _| {
                if command.starts_with(lost) { Act::PassThenCut } else { Act::Pass }
            },
        )
    };
    let relay = lossy("local_data ");
    assert_eq!(impatient(&relay.socket()).apply(&one()).await, Ok(Applied::Written));
    assert_eq!(relay.writes().len(), 1, "nothing is retried");
    let relay = lossy("local_data_remove ");
    assert_eq!(impatient(&relay.socket()).apply(&one().undo()).await, Ok(Applied::Written));
    assert_eq!(relay.writes().len(), 3, "the rest of unpinning follows");

    // A write that did not arrive.
    let relay =
        ControlRelay::start(
            &server.socket(),
            |command, _| {
                if command.starts_with("local_data ") { Act::Silent } else { Act::Pass }
            },
        );
    let applied = impatient(&relay.socket()).apply(&one()).await;
    assert!(matches!(applied, Err(DriverError::Uncertain { .. })), "{applied:?}");
}

#[tokio::test]
async fn a_lost_flush_is_done_again_by_the_next_unpin() {
    let Some(server) = Resolver::start(None).await else { return };
    assert_eq!(server.driver().apply(&one()).await, Ok(Applied::Written));
    let relay = ControlRelay::start(&server.socket(), |command, before| {
        if command.starts_with("flush") && before == 0 { Act::Silent } else { Act::Pass }
    });
    let driver = impatient(&relay.socket());
    let unpinned = driver.apply(&one().undo()).await;
    assert!(matches!(&unpinned, Err(DriverError::Uncertain { why, .. }) if why.contains("flushed")), "{unpinned:?}");
    assert_eq!(driver.apply(&one().undo()).await, Ok(Applied::Already));
    assert_eq!(relay.writes().last().map(String::as_str), Some("flush fi.example.net."));
}

#[tokio::test]
async fn replies_that_are_not_lists_are_not_empty_lists() {
    let nobody = Path::new("/nonexistent");
    for text in ["", "\n\n", "<html></html>\n", "ok\n", "fi.example.net. static\n"] {
        let relay = ControlRelay::start(nobody, move |_, _| Act::Text(text));
        let read = resolver::driver(&relay.socket()).read(&name(HOST)).await;
        assert!(matches!(read, Err(DriverError::Unexpected { .. })), "{text:?}: {read:?}");
    }
    let relay = ControlRelay::start(nobody, |_, _| Act::Text("x. 30 IN A 1.1.1.1\n\ny. 30 I"));
    let read = resolver::driver(&relay.socket()).read(&name(HOST)).await;
    assert!(matches!(read, Err(DriverError::Unreachable { .. })), "cut: {read:?}");
}

#[tokio::test]
async fn an_endless_list_ends() {
    let relay = ControlRelay::start(Path::new("/nonexistent"), |_, _| Act::Endless);
    let read = resolver::driver(&relay.socket()).read(&name(HOST)).await;
    assert!(matches!(&read, Err(DriverError::Unexpected { what, .. }) if what.contains("64 MiB")), "{read:?}");
}
