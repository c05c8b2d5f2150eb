//! What goes down a stream, and the answers to it.

use super::*;

#[tokio::test]
async fn tasks_go_down_and_reports_come_back_to_the_one_who_waits() {
    let world = world().await;
    let (mut agent, _) = world.agent("branch-kazan").await.unwrap();
    let kazan: VantageName = "branch-kazan".parse().unwrap();
    let task = Task {
        purpose: Purpose::CrossCheck,
        deadline: Duration::from_secs(5),
        work: Work::Connect {
            target: Target::Name("example.com".parse().unwrap()),
            address: "8.6.112.0".parse().unwrap(),
            repeat: 3,
            gap: Duration::from_millis(250),
        },
    };
    let id = world.app.hub.send_task(&kazan, task.clone(), 1).unwrap();
    let ToAgent::Task(sent) = agent.next().await.unwrap() else { panic!("no task") };
    assert_eq!((sent.task_id, sent.deadline_ms), (id.0, 5000));
    let absent: VantageName = "de-fra".parse().unwrap();
    assert_eq!(world.app.hub.send_task(&absent, task, 1), Err(NotConnected(absent)));

    let change =
        ChangeTask { plan_id: 7, epoch: 3, change: LocalChange::Read { name: "example.com".parse().unwrap() } };
    let asking = {
        let (app, kazan) = (Arc::clone(&world.app), kazan.clone());
        let change = change.clone();
        tokio::spawn(async move { app.hub.change(&kazan, change, Duration::from_secs(30)).await })
    };
    let ToAgent::Task(sent) = agent.next().await.unwrap() else { panic!("no task") };
    agent
        .send(FromAgent::ChangeReport(v1::ChangeReport {
            task_id: sent.task_id,
            plan_id: 7,
            outcome: v1::ChangeOutcome::Read.into(),
            found: vec![vec![104, 26, 4, 10]],
            detail: "read".to_owned(),
        }))
        .await;
    let report = asking.await.unwrap().unwrap();
    assert_eq!(report.outcome, ChangeOutcome::Read);
    assert_eq!(report.found, ["104.26.4.10".parse::<std::net::IpAddr>().unwrap()]);
    let silent = world.app.hub.change(&kazan, change, Duration::from_millis(20)).await;
    assert_eq!(silent, Err(ChangeFailed::Timeout(kazan)));
}
