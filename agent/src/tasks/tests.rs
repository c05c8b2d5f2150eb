use parallax_driver::unbound::{Unbound, UnboundConfig};

use super::*;
use crate::rounds::tests::{GOOD, World, assignment};

struct Asked {
    world: World,
    send: mpsc::Sender<Task>,
    reports: mpsc::Receiver<Report>,
    _assign: watch::Sender<Option<Arc<Assignment>>>,
}

async fn asked() -> Asked {
    asked_with(None, Changes::default()).await
}

async fn asked_with(pins: Option<Arc<Pins<Unbound>>>, changes: Changes) -> Asked {
    let world = World::with_answers(&[GOOD]).await;
    let (assign, follow) = watch::channel(Some(assignment(|_| {})));
    let (send_reports, reports) = mpsc::channel(WAITING_MAX);
    let (send, take) = mpsc::channel(WAITING_MAX);
    let (rounds, recorder) = (Arc::clone(&world.rounds), world.recorder.clone());
    let tasks = Tasks::<Unbound>::new(rounds, recorder, follow, pins, changes, send_reports);
    tokio::spawn(tasks.run(take));
    Asked { world, send, reports, _assign: assign }
}

fn task(id: u64, work: Work) -> Task {
    Task { id, deadline: Duration::from_secs(60), purpose: Purpose::CrossCheck, work }
}

fn connect(target: Target, repeat: u32) -> Work {
    Work::Connect { target, address: GOOD.parse().unwrap(), repeat, gap: Duration::from_secs(1) }
}

fn canary() -> Target {
    Target::Name("example.com".parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn an_address_is_tried_as_often_as_asked_and_once_a_task() {
    let asked = asked().await;
    asked.send.send(task(4, connect(canary(), 3))).await.unwrap();
    asked.send.send(task(4, connect(canary(), 3))).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let seen = asked.world.seen();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|one| one.task_id == 4 && one.purpose() == parallax_proto::v1::Purpose::CrossCheck));
}

/// The time that a try takes is part of the pause: else nine seconds of silence would add to seven.
#[tokio::test(start_paused = true)]
async fn tries_begin_the_gap_apart_however_long_each_takes() {
    let asked = asked().await;
    let address = "8.6.112.0".parse().unwrap();
    let work = Work::Connect { target: canary(), address, repeat: 3, gap: Duration::from_secs(30) };
    let begun = now();
    asked.send.send(Task { deadline: Duration::from_secs(300), ..task(6, work) }).await.unwrap();
    let connections = |seen: Vec<parallax_proto::v1::Observation>| {
        let of = |one: &parallax_proto::v1::Observation| {
            matches!(one.fact, Some(parallax_proto::v1::observation::Fact::Connection(_)))
        };
        seen.iter().filter(|one| of(one)).count()
    };
    let mut ended = Vec::new();
    while ended.len() < 3 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        ended.extend(std::iter::repeat_n(now() - begun, connections(asked.world.seen())));
    }
    assert!(ended[0] > Duration::from_secs(1), "a try that takes no time shows nothing: {ended:?}");
    let apart = ended[2] - ended[1];
    assert!((Duration::from_millis(29_700)..Duration::from_millis(30_300)).contains(&apart), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_closed_by_the_controls() {
    let asked = asked().await;
    let address = "8.6.112.0".parse().unwrap();
    let work = Work::Connect { target: canary(), address, repeat: 1, gap: Duration::ZERO };
    asked.send.send(task(5, work)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    use parallax_proto::v1::observation::Fact;
    let facts: Vec<_> = asked.world.seen().into_iter().map(|one| one.fact.unwrap()).collect();
    assert!(matches!(facts.as_slice(), [Fact::Connection(_), Fact::ControlCheck(_)]), "{facts:?}");
}

#[tokio::test(start_paused = true)]
async fn only_the_assignments_targets_are_tried() {
    let asked = asked().await;
    asked.send.send(task(1, connect(Target::Name("else.example".parse().unwrap()), 1))).await.unwrap();
    asked.send.send(task(2, connect(Target::Node("unknown".parse().unwrap()), 1))).await.unwrap();
    let resolver = "unknown".parse().unwrap();
    let resolve = Work::Resolve { name: "example.com".parse().unwrap(), resolver, connect: true };
    asked.send.send(task(3, resolve)).await.unwrap();
    let path = |target| Work::Path { target, address: GOOD.parse().unwrap() };
    asked.send.send(task(4, path(Target::Name("else.example".parse().unwrap())))).await.unwrap();
    asked.send.send(task(5, path(Target::Node("unknown".parse().unwrap())))).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(asked.world.seen().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_name_is_resolved_and_its_addresses_tried() {
    let asked = asked().await;
    let resolver: ResolverName = "live".parse().unwrap();
    let resolve = Work::Resolve { name: "example.com".parse().unwrap(), resolver, connect: true };
    asked.send.send(task(9, resolve)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let facts: Vec<_> = asked.world.seen().into_iter().map(|one| one.fact.unwrap()).collect();
    assert!(
        matches!(
            facts.as_slice(),
            [
                parallax_proto::v1::observation::Fact::Resolution(_),
                parallax_proto::v1::observation::Fact::Connection(_)
            ]
        ),
        "{facts:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_path_is_looked_for_once_a_task() {
    use parallax_proto::v1;

    let asked = asked().await;
    for _ in 0..2 {
        let path = Work::Path { target: canary(), address: GOOD.parse().unwrap() };
        asked.send.send(task(7, path)).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    let seen = asked.world.seen();
    let [v1::Observation { fact: Some(v1::observation::Fact::Path(path)), task_id: 7, .. }] = seen.as_slice() else {
        panic!("{seen:?}");
    };
    // This world has no routers, and says so.
    assert_eq!((path.outcome(), path.hops.len()), (v1::Outcome::OwnTrouble, 0));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_task() {
    let asked = asked().await;
    let long = Task { deadline: Duration::from_millis(1500), ..task(5, connect(canary(), 10)) };
    asked.send.send(long).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(asked.world.seen().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn without_a_driver_every_change_is_refused() {
    let mut asked = asked().await;
    let order = Order { plan_id: 3, epoch: 1, what: crate::pins::What::Read { name: "example.com".parse().unwrap() } };
    asked.send.send(task(6, Work::Change(order))).await.unwrap();
    let report = asked.reports.recv().await.unwrap();
    assert_eq!((report.task_id, report.plan_id, report.outcome), (6, 3, Outcome::Refused));
    assert!(report.detail.contains("drivers.pin"), "{}", report.detail);
}

/// A hostile coordinator: only what the owner allows, for a name of the assignment, to addresses that
/// this agent has seen usable, comes as far as the driver (which fails here: no resolver is there).
#[tokio::test(start_paused = true)]
async fn a_pin_needs_the_owners_leave_and_a_proof_of_our_own() {
    let state = tempfile::tempdir().unwrap();
    let config = UnboundConfig { control: state.path().join("no.ctl"), timeout: Duration::from_secs(1) };
    let pins = Arc::new(Pins::open(state.path(), Unbound::new(config)));
    let pin = |name: &str, address: &str| {
        Work::Change(Order {
            plan_id: 3,
            epoch: 1,
            what: crate::pins::What::Pin {
                name: name.parse().unwrap(),
                addresses: parallax_decide::names::Addresses::one(address.parse().unwrap()).unwrap(),
                ttl_s: 5,
                life: Duration::from_secs(60),
            },
        })
    };
    let forbidding = Changes { allowed: false, ..Changes::default() };
    for (changes, proven, name, address, outcome, part) in [
        (Changes::default(), true, "example.com", GOOD, Outcome::Failed, ""),
        (Changes::default(), false, "example.com", GOOD, Outcome::Refused, "not seen usable"),
        (Changes::default(), true, "example.com", "8.6.112.0", Outcome::Refused, "not seen usable"),
        (Changes::default(), true, "bank.example", GOOD, Outcome::Refused, "no name of the assignment"),
        (forbidding, true, "example.com", GOOD, Outcome::Refused, "owner's file"),
    ] {
        let mut asked = asked_with(Some(Arc::clone(&pins)), changes).await;
        if proven {
            asked.send.send(task(1, connect(canary(), 1))).await.unwrap();
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        asked.send.send(task(2, pin(name, address))).await.unwrap();
        let report = asked.reports.recv().await.unwrap();
        assert_eq!(report.outcome, outcome, "{name} {address}: {}", report.detail);
        assert!(report.detail.contains(part), "{}", report.detail);
    }
}
