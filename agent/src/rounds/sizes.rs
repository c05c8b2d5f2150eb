//! What a hung probe holds: the size of what waits.

use parallax_decide::observation::Family;

use super::tests::{World, assignment};
use crate::probe::message::Question;
use crate::probe::resolution;
use crate::probe::tried::Tried;

/// A tenth of what a hung probe costs blackbox_exporter is some four kilobytes, the allocator's and the
/// socket's part included.
const HELD_BYTES_MAX: usize = 2560;

#[tokio::test]
async fn a_hung_probe_holds_low_kilobytes() {
    let world = World::with_answers(&["104.26.4.10"]).await;
    let assignment = assignment(|_| {});
    let (site, limits) = (&world.rounds.site, &assignment.schedule.limits);
    let question = Question { name: "example.com".parse().unwrap(), family: Family::V4 };
    let tried = Tried::node(&assignment.nodes[0]);
    for (what, bytes) in [
        ("a question", size_of_val(&resolution::resolve(site, limits, &assignment.resolvers[0], &question))),
        ("a connection", size_of_val(&tried.measure(site, limits))),
    ] {
        assert!(bytes <= HELD_BYTES_MAX, "{what} holds {bytes} bytes while it waits; box what it seldom needs");
    }
}
