use std::sync::{Mutex as StdMutex, PoisonError};

use parallax_decide::change::Standing;

use super::*;

/// A resolver in memory, which can be told to fail.
#[derive(Debug, Default)]
struct Fake {
    inner: StdMutex<Inner>,
}

/// How long a resolver that hangs keeps its asker waiting.
const HANG: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct Inner {
    hangs: bool,
    data: BTreeMap<DomainName, Reading>,
    writes: usize,
    /// What the next apply answers instead of doing its work.
    trouble: Option<DriverError>,
    /// The journal file as it was when the last write was made.
    journal_at_write: Option<Vec<u8>>,
    journal: PathBuf,
}

impl Fake {
    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver for Fake {
    async fn read(&self, name: &DomainName) -> Result<Reading, DriverError> {
        let hangs = self.inner().hangs;
        if hangs {
            tokio::time::sleep(HANG).await;
            return Err(unreachable());
        }
        Ok(self.inner().data.get(name).cloned().unwrap_or(Reading::Nothing))
    }

    async fn apply(&self, change: &Change) -> Result<Applied, DriverError> {
        let found = self.read(change.name()).await?;
        let mut inner = self.inner();
        if let Some(trouble) = inner.trouble.take() {
            return Err(trouble);
        }
        match found.standing(change) {
            Standing::AlreadySet => Ok(Applied::Already),
            Standing::Foreign => Err(DriverError::Conflict { found }),
            Standing::AsExpected => {
                inner.writes += 1;
                inner.journal_at_write = std::fs::read(&inner.journal).ok();
                match change.sets() {
                    Some(set) => {
                        let reading = Reading::Set { addresses: set.clone(), ttl_s: 5 };
                        inner.data.insert(change.name().clone(), reading)
                    }
                    None => inner.data.remove(change.name()),
                };
                Ok(Applied::Written)
            }
        }
    }
}

fn name() -> DomainName {
    "example.com".parse().unwrap()
}

fn set(text: &str) -> Addresses {
    Addresses::one(text.parse().unwrap()).unwrap()
}

fn standing(text: &str) -> Reading {
    Reading::Set { addresses: set(text), ttl_s: 5 }
}

const GOOD: &str = "104.26.4.10";
const LIFE: Duration = Duration::from_secs(600);

fn open(state: &Path) -> Pins<Fake> {
    let fake = Fake::default();
    fake.inner().journal = state.join(FILE);
    Pins::open(state, fake)
}

async fn order(pins: &Pins<Fake>, epoch: u64, what: What) -> Report {
    pins.change(1, Order { plan_id: 7, epoch, what }, now() + Duration::from_secs(3)).await
}

async fn pin(pins: &Pins<Fake>) -> Outcome {
    order(pins, 1, What::Pin { name: name(), addresses: set(GOOD), ttl_s: 5, life: LIFE }).await.outcome
}

async fn unpin(pins: &Pins<Fake>) -> Outcome {
    order(pins, 1, What::Unpin { name: name(), expects: set(GOOD) }).await.outcome
}

fn found(pins: &Pins<Fake>) -> Option<Reading> {
    pins.driver.inner().data.get(&name()).cloned()
}

fn unreachable() -> DriverError {
    DriverError::Unreachable { server: "fake".into(), why: "away".into() }
}

fn uncertain() -> DriverError {
    DriverError::Uncertain { server: "fake".into(), why: "cut off".into() }
}

#[tokio::test(start_paused = true)]
async fn a_pin_is_journalled_before_it_is_written_and_done_once() {
    let state = tempfile::tempdir().unwrap();
    let pins = open(state.path());
    assert_eq!(pin(&pins).await, Outcome::Applied);
    assert_eq!(found(&pins), Some(standing(GOOD)));
    let journal = pins.driver.inner().journal_at_write.clone().unwrap();
    assert!(String::from_utf8_lossy(&journal).contains(GOOD), "on disk before on the resolver");
    assert_eq!(pin(&pins).await, Outcome::Already);
    assert_eq!(pins.driver.inner().writes, 1);
    assert_eq!(unpin(&pins).await, Outcome::Applied);
    assert_eq!(unpin(&pins).await, Outcome::Already);
    assert_eq!(found(&pins), None);
}

#[tokio::test(start_paused = true)]
async fn a_lower_epoch_is_refused_also_after_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let pins = open(state.path());
    assert_eq!(order(&pins, 5, What::Read { name: name() }).await.outcome, Outcome::Read);
    let report = order(&pins, 4, What::Read { name: name() }).await;
    assert_eq!(report.outcome, Outcome::Refused);
    assert!(report.detail.contains('5'), "{}", report.detail);
    let pins = open(state.path());
    assert_eq!(pin(&pins).await, Outcome::Refused);
    assert_eq!(found(&pins), None);
}

#[tokio::test(start_paused = true)]
async fn foreign_data_is_left_alone() {
    let state = tempfile::tempdir().unwrap();
    let pins = open(state.path());
    pins.driver.inner().data.insert(name(), standing("9.9.9.9"));
    let report = order(&pins, 1, What::Pin { name: name(), addresses: set(GOOD), ttl_s: 5, life: LIFE }).await;
    assert_eq!(report.outcome, Outcome::Conflict);
    assert_eq!(report.found, ["9.9.9.9".parse::<IpAddr>().unwrap()]);
    assert_eq!(unpin(&pins).await, Outcome::Conflict);
    assert_eq!(found(&pins), Some(standing("9.9.9.9")));
    assert_eq!(pins.driver.inner().writes, 0);
}

#[tokio::test(start_paused = true)]
async fn the_owners_own_data_is_not_adopted() {
    let state = tempfile::tempdir().unwrap();
    let pins = open(state.path());
    pins.driver.inner().data.insert(name(), standing(GOOD));
    assert_eq!(pin(&pins).await, Outcome::Already);
    tokio::time::advance(LIFE * 2).await;
    pins.tick().await;
    assert_eq!(found(&pins), Some(standing(GOOD)));
    assert_eq!(unpin(&pins).await, Outcome::Conflict, "it says what our pin would say, and is not ours");
    assert_eq!(found(&pins), Some(standing(GOOD)));
}

#[tokio::test(start_paused = true)]
async fn what_is_no_set_of_addresses_does_not_look_like_nothing() {
    let state = tempfile::tempdir().unwrap();
    let pins = open(state.path());
    pins.driver.inner().data.insert(name(), Reading::Foreign { what: "a CNAME".into() });
    let report = order(&pins, 1, What::Read { name: name() }).await;
    assert_eq!((report.outcome, report.detail.as_str()), (Outcome::Conflict, "a CNAME"));
}

#[tokio::test(start_paused = true)]
async fn a_lost_pin_is_written_again_and_a_foreign_one_yielded_to() {
    let state = tempfile::tempdir().unwrap();
    let pins = open(state.path());
    pin(&pins).await;
    pins.driver.inner().data.clear();
    pins.tick().await;
    assert_eq!(found(&pins), Some(standing(GOOD)));
    pins.driver.inner().data.insert(name(), standing("9.9.9.9"));
    pins.tick().await;
    pins.driver.inner().data.clear();
    pins.tick().await;
    assert_eq!(found(&pins), None, "after yielding it is no longer ours");
}

#[tokio::test(start_paused = true)]
async fn an_expired_pin_is_taken_away_and_a_renewed_one_is_not() {
    let state = tempfile::tempdir().unwrap();
    let pins = open(state.path());
    pin(&pins).await;
    tokio::time::advance(LIFE - Duration::from_secs(1)).await;
    assert_eq!(pin(&pins).await, Outcome::Already);
    tokio::time::advance(Duration::from_secs(2)).await;
    pins.tick().await;
    assert_eq!(found(&pins), Some(standing(GOOD)), "renewed");
    tokio::time::advance(LIFE).await;
    pins.driver.inner().trouble = Some(unreachable());
    pins.tick().await;
    assert_eq!(found(&pins), Some(standing(GOOD)), "the resolver was away");
    pins.tick().await;
    assert_eq!(found(&pins), None);
}

#[tokio::test(start_paused = true)]
async fn a_restart_keeps_pins_and_their_expiry() {
    let state = tempfile::tempdir().unwrap();
    let pins = open(state.path());
    assert_eq!(left_standing(state.path()), 0);
    pin(&pins).await;
    assert_eq!(left_standing(state.path()), 1);
    let pins = open(state.path());
    pins.tick().await;
    assert_eq!(found(&pins), Some(standing(GOOD)), "written again into the restarted resolver");
    tokio::time::advance(LIFE).await;
    pins.tick().await;
    assert_eq!(found(&pins), None);
    assert!(open(state.path()).journal.lock().await.pins.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_uncertain_write_is_settled_by_reading_back() {
    let state = tempfile::tempdir().unwrap();
    let pins = open(state.path());
    pins.driver.inner().trouble = Some(uncertain());
    assert_eq!(pin(&pins).await, Outcome::Uncertain);
    pins.tick().await;
    assert_eq!(found(&pins), Some(standing(GOOD)));

    pins.driver.inner().trouble = Some(uncertain());
    assert_eq!(unpin(&pins).await, Outcome::Uncertain);
    pins.tick().await;
    assert_eq!(found(&pins), None, "once told to go it is not written again");
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_leaves_nothing_behind() {
    let state = tempfile::tempdir().unwrap();
    let pins = open(state.path());
    pins.driver.inner().trouble = Some(unreachable());
    assert_eq!(pin(&pins).await, Outcome::Failed);
    pins.tick().await;
    assert_eq!(found(&pins), None);
}

#[tokio::test(start_paused = true)]
async fn a_change_waits_no_longer_than_its_deadline() {
    let state = tempfile::tempdir().unwrap();
    let pins = open(state.path());
    let busy = pins.journal.lock().await;
    assert_eq!(pin(&pins).await, Outcome::Failed);
    drop(busy);
    assert_eq!(pin(&pins).await, Outcome::Applied);
}

#[tokio::test(start_paused = true)]
async fn an_order_waits_for_one_look_at_a_resolver_that_hangs_and_not_for_all() {
    let state = tempfile::tempdir().unwrap();
    let pins = open(state.path());
    for number in 0..5 {
        let name: DomainName = format!("n{number}.example").parse().unwrap();
        order(&pins, 1, What::Pin { name, addresses: set(GOOD), ttl_s: 5, life: LIFE }).await;
    }
    pins.driver.inner().hangs = true;
    let asked = async {
        tokio::task::yield_now().await;
        let begun = now();
        let order = Order { plan_id: 7, epoch: 1, what: What::Read { name: name() } };
        let report = pins.change(1, order, now() + HANG * 4).await;
        assert!(report.detail.contains("away"), "it had its turn: {}", report.detail);
        assert!(now() - begun <= HANG * 3);
    };
    tokio::join!(pins.tick(), asked);
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_cannot_be_read_is_set_aside_and_ends_nothing() {
    let state = tempfile::tempdir().unwrap();
    std::fs::write(state.path().join(FILE), "rubbish").unwrap();
    let pins = open(state.path());
    let aside: Vec<PathBuf> = std::fs::read_dir(state.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert!(aside[0].file_name().unwrap().to_str().unwrap().starts_with("pins.damaged-"), "{aside:?}");
    assert_eq!(std::fs::read(&aside[0]).unwrap(), b"rubbish", "nothing of it is lost");
    pin(&pins).await;
    assert_eq!(left_standing(state.path()), 1, "a new one is kept");
}
