//! What the other coordinators must learn: streams that began or ended here, and news.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

use parallax_decide::names::VantageName;
use tokio::sync::Notify;
use uuid::Uuid;

use super::{Hub, News, lock};
use crate::store::session::Held;

/// Changes that are remembered one by one; with more, everything is written anew.
const CHANGES_MAX: usize = 4096;

/// What has changed since somebody last asked.
#[derive(Debug, Default)]
pub(super) struct Stirs {
    changes: Mutex<Changes>,
    changed: Notify,
    news: AtomicU8,
    told: Notify,
}

#[derive(Debug, Default)]
struct Changes {
    began: BTreeSet<VantageName>,
    ended: Vec<(VantageName, Uuid)>,
    too_many: bool,
}

/// Streams that began or ended here.
#[derive(Debug, Default)]
pub(crate) struct Stirred {
    /// Those that began and still are, with the hub's own numbers.
    pub(crate) began: Vec<(u64, Held)>,
    /// Those that ended.
    pub(crate) ended: Vec<(VantageName, Uuid)>,
    /// There were more than are listed.
    pub(crate) too_many: bool,
}

impl Stirs {
    pub(super) fn began(&self, vantage: VantageName) {
        lock(&self.changes).began.insert(vantage);
        self.changed.notify_one();
    }

    pub(super) fn ended(&self, vantage: VantageName, boot: Uuid) {
        let mut changes = lock(&self.changes);
        if changes.ended.len() < CHANGES_MAX {
            changes.ended.push((vantage, boot));
        } else {
            changes.too_many = true;
        }
        drop(changes);
        self.changed.notify_one();
    }

    pub(super) fn news(&self, news: News) {
        if let Some(bit) = bit(news) {
            self.news.fetch_or(bit, Ordering::Relaxed);
            self.told.notify_one();
        }
    }
}

impl Hub {
    /// Returns when streams have begun or ended here.
    pub(crate) async fn stirred(&self) {
        self.stirs.changed.notified().await;
    }

    /// The streams that began or ended since the last call.
    pub(crate) fn stirs(&self) -> Stirred {
        let Changes { began, ended, too_many } = std::mem::take(&mut *lock(&self.stirs.changes));
        let mut held = self.held();
        held.retain(|(_, one)| began.contains(&one.vantage));
        Stirred { began: held, ended, too_many }
    }

    /// Every stream held here, with the hub's own numbers.
    pub(crate) fn held(&self) -> Vec<(u64, Held)> {
        let live = lock(&self.live);
        let held = live.iter().filter(|(_, live)| !live.moved).map(|(vantage, live)| {
            let (remote, age) = (live.remote.to_string(), live.entered.elapsed());
            (live.session, Held { vantage: vantage.clone(), boot: live.boot, remote, age })
        });
        held.collect()
    }

    /// Notes that the others can know of these streams now.
    pub(crate) fn noted(&self, held: &[(u64, Held)]) {
        let mut live = lock(&self.live);
        for (session, one) in held {
            if let Some(live) = live.get_mut(&one.vantage).filter(|live| live.session == *session) {
                live.noted = true;
            }
        }
    }

    /// Waits for news that the other coordinators should hear.
    pub(crate) async fn news_to_tell(&self) -> String {
        loop {
            let bits = self.stirs.news.swap(0, Ordering::Relaxed);
            if bits != 0 {
                let words = TOLD.into_iter().filter(|(_, bit, _)| bits & bit != 0).map(|(word, ..)| word);
                return words.collect::<Vec<_>>().join(" ");
            }
            self.stirs.told.notified().await;
        }
    }

    /// Takes in news of another coordinator, by word.
    pub(crate) fn hear_word(&self, word: &str) {
        for (_, _, news) in TOLD.into_iter().filter(|(known, ..)| *known == word) {
            self.hear(news);
        }
    }
}

/// News that is told. Vantages and observations tell of themselves: by their own channels.
const TOLD: [(&str, u8, News); 3] =
    [("verdicts", 1, News::Verdicts), ("incidents", 2, News::Incidents), ("plans", 4, News::Plans)];

fn bit(news: News) -> Option<u8> {
    TOLD.into_iter().find(|(_, _, told)| *told == news).map(|(_, bit, _)| bit)
}
