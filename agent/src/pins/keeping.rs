//! Keeps what is held: reads back, writes again, and removes at the end.

use std::time::Duration;

use parallax_decide::names::DomainName;
use parallax_driver::{Applied, Driver, DriverError, Reading};

use super::{Held, Pins};
use crate::clock::now;

/// How often pins are read back.
const READ_BACK_EVERY: Duration = Duration::from_secs(5);

impl<D: Driver> Pins<D> {
    /// Reads back, writes again and removes, again and again.
    pub async fn keep(&self) {
        loop {
            tokio::time::sleep(READ_BACK_EVERY).await;
            self.tick().await;
        }
    }

    /// One look at every pin. The journal is free between two of them: with a resolver that hangs, an
    /// order waits for one look and not for all.
    pub(super) async fn tick(&self) {
        let names: Vec<DomainName> = self.journal.lock().await.pins.keys().cloned().collect();
        for name in names {
            let mut journal = self.journal.lock().await;
            let Some(held) = journal.pins.get(&name).cloned() else { continue };
            let stays = if held.leaving || now() >= held.expires {
                self.take_away(&name, &held).await
            } else {
                self.read_back(&name, &held).await
            };
            if !stays {
                journal.pins.remove(&name);
                self.save_or_log(&journal);
            }
        }
    }

    /// Takes an expired pin away; whether it stays in the journal, to be tried again.
    async fn take_away(&self, name: &DomainName, held: &Held) -> bool {
        match self.driver.apply(&held.pin(name).undo()).await {
            Ok(Applied::Written | Applied::Already) => {
                tracing::info!(%name, plan_id = held.plan_id, "a pin was taken away: it expired or was to go");
                false
            }
            Err(DriverError::Conflict { found }) => {
                tracing::warn!(%name, plan_id = held.plan_id, %found, "a pin was changed by somebody else; left to them");
                false
            }
            Err(error) => {
                tracing::warn!(%name, plan_id = held.plan_id, %error, "a pin cannot be taken away yet; trying again");
                true
            }
        }
    }

    /// Looks whether a pin still stands, and writes it again when it is gone; whether it stays ours.
    async fn read_back(&self, name: &DomainName, held: &Held) -> bool {
        match self.driver.read(name).await {
            Ok(Reading::Set { addresses, .. }) if addresses == held.addresses => return true,
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%name, %error, "a pin cannot be read back; trying again");
                return true;
            }
        }
        match self.driver.apply(&held.pin(name)).await {
            Ok(Applied::Written) => {
                tracing::info!(%name, plan_id = held.plan_id, addresses = %held.addresses, "a pin was lost and is written again");
                true
            }
            Ok(Applied::Already) => true,
            Err(DriverError::Conflict { found }) => {
                tracing::warn!(%name, plan_id = held.plan_id, %found, "somebody else's data stands in place of a pin; yielding");
                false
            }
            Err(error) => {
                tracing::warn!(%name, %error, "a pin cannot be written again yet; trying again");
                true
            }
        }
    }
}
