//! Says that somebody judges, so that time in which nobody did is known as such.

use std::time::Duration;

use parallax_decide::time::Timestamp;

use super::moment::Moment;
use crate::store::{StoreError, watch};

/// How often it is said: well within the pause that counts as absence.
const EVERY: Duration = Duration::from_secs(5);

/// When it was said last.
#[derive(Debug, Default)]
pub(crate) struct Watcher {
    said: Option<Timestamp>,
}

impl Watcher {
    /// Says it when it is time. Call it after the verdicts of the moment are stored.
    pub(crate) async fn step(&mut self, moment: &Moment<'_>) -> Result<(), StoreError> {
        if self.said.is_some_and(|said| moment.now >= said && moment.now.since(said) < EVERY) {
            return Ok(());
        }
        let mut transaction = moment.begin().await?;
        watch::keep(&mut transaction, moment.epoch, moment.now).await?;
        transaction.commit().await?;
        self.said = Some(moment.now);
        Ok(())
    }
}
