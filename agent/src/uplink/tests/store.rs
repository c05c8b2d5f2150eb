//! A coordinator's store, as small as it can be: a cursor for each lane of each boot.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::rig::{Rig, Session};
use super::*;

/// Numbers by boot and lane.
type Lanes = BTreeMap<(String, i32), Vec<u64>>;

/// What was stored, shared by all streams.
#[derive(Debug, Clone, Default)]
pub(super) struct Store(Arc<Mutex<Lanes>>);

impl Store {
    /// Takes what is new in a batch.
    pub(super) fn take(&self, batch: &v1::Batch) {
        let mut lanes = self.0.lock().unwrap();
        let stored = lanes.entry((batch.boot_id.clone(), batch.lane)).or_default();
        for observation in &batch.observations {
            if stored.last().is_none_or(|last| observation.sequence > *last) {
                stored.push(observation.sequence);
            }
        }
    }

    /// How many rows, in all.
    pub(super) fn rows(&self) -> usize {
        self.0.lock().unwrap().values().map(Vec::len).sum()
    }

    /// Every lane holds each number from 1 on, once.
    pub(super) fn is_whole(&self) -> bool {
        self.0.lock().unwrap().values().all(|stored| stored.iter().copied().eq(1..=stored.len() as u64))
    }

    /// Greets each stream, stores and acknowledges what comes, and ends with the rig.
    pub(super) fn serve(&self, mut rig: Rig) -> Arc<Mutex<u32>> {
        let (store, streams) = (self.clone(), Arc::new(Mutex::new(0)));
        let count = Arc::clone(&streams);
        tokio::spawn(async move {
            loop {
                let session = rig.greeted().await;
                *count.lock().unwrap() += 1;
                tokio::spawn(store.clone().serve_one(session));
            }
        });
        streams
    }

    /// Stores and acknowledges until the stream ends.
    pub(super) async fn serve_one(self, mut session: Session) {
        while let Some(message) = session.received().await {
            if let agent_message::Message::Batch(batch) = message {
                self.take(&batch);
                session.ack(&batch).await;
            }
        }
    }

    /// Waits until so many rows are stored.
    pub(super) async fn holds(&self, rows: usize) {
        let holds = async {
            while self.rows() < rows {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), holds).await.expect("not all came");
        assert!(self.is_whole() && self.rows() == rows, "{self:?}");
    }
}
