//! A batch: checked, on its way to the database, answered.

use std::future::Future;
use std::pin::Pin;

use parallax_decide::observation::Lane;
use parallax_proto::v1::agent_message::Message as FromAgent;
use parallax_proto::v1::coordinator_message::Message as ToAgent;
use parallax_proto::{TEXT_BYTES_MAX, v1};
use tonic::Status;
use uuid::Uuid;

use super::{Held, Session};
use crate::clock::monotonic;
use crate::ingest::committer::NotStored;
use crate::ingest::convert;
use crate::ingest::in_hand::Share;
use crate::ingest::validate::{self, Checked, Context};
use crate::room::Level;
use crate::store::commit::Delivery;
use crate::store::refusal::Refused;

/// Most characters of a boot id that are repeated to the agent: a valid one has 32.
const BOOT_ID_CHARS_MAX: usize = 32;

pub(super) type Storing = Pin<Box<dyn Future<Output = Result<(), NotStored>> + Send>>;

/// A batch on its way to the database.
pub(super) struct UnderWay {
    _share: Option<Share>,
    pub(super) storing: Storing,
    refusals: Vec<v1::Refusal>,
    ack: Option<v1::Ack>,
}

impl Session {
    /// Handles one message that [`Self::take_at_once`] left; something is then under way.
    pub(super) fn take(&self, held: Held, boot: Uuid) -> Option<UnderWay> {
        let fault = match held.message.message {
            Some(FromAgent::Batch(batch)) => {
                let under_way = self.take_batch(&batch, boot);
                return Some(UnderWay { _share: held.share, ..under_way });
            }
            Some(FromAgent::Ping(_) | FromAgent::Renewal(_)) => return None,
            Some(FromAgent::ChangeReport(report)) => convert::report(&report).err()?,
            Some(FromAgent::Hello(_)) => ("second_hello", "Hello comes once, first".to_owned()),
            None => ("no_message", "a message of no known kind".to_owned()),
        };
        Some(self.refuse_whole(fault, boot, None))
    }

    pub(super) fn take_batch(&self, batch: &v1::Batch, boot: Uuid) -> UnderWay {
        let config = self.app.config.load();
        let held = self.keeper.held();
        let context =
            Context { vantage: self.id, boot, topology: &config.topology, life: Some(self.life(&config, &held)) };
        let checked = match validate::batch(batch, context) {
            Ok(checked) => self.within_room(checked),
            Err(fault) => return self.refuse_whole(fault, boot, Some(batch)),
        };
        let numbered = checked.items.iter().filter_map(|item| {
            let refused = item.content.as_ref().err()?;
            Some((item.sequence.unsigned_abs(), refused))
        });
        let refusals: Vec<v1::Refusal> = numbered
            .chain(checked.stray.iter().map(|(sequence, refused)| (*sequence, refused)))
            .map(|(sequence, refused)| v1::Refusal {
                boot_id: batch.boot_id.clone(),
                sequence,
                reason: reason(refused.reason, &refused.detail),
                lane: batch.lane,
            })
            .collect();
        let ack = checked.items.last().map(|item| v1::Ack {
            boot_id: batch.boot_id.clone(),
            sequence: item.sequence.unsigned_abs(),
            lane: batch.lane,
        });
        let delivery = Delivery {
            vantage: self.id,
            boot: checked.boot,
            lane: checked.lane,
            received: monotonic(),
            items: checked.items,
            stray: checked.stray.into_iter().map(|(_, refused)| refused).collect(),
        };
        UnderWay { _share: None, storing: Box::pin(self.committer.clone().store(delivery)), refusals, ack }
    }

    /// At the cap of the embedded database rows that say "as before" are refused, so that evidence still has room.
    pub(super) fn within_room(&self, mut checked: Checked) -> Checked {
        if checked.lane == Lane::Routine && self.app.room.level() >= Level::Full {
            for item in &mut checked.items {
                let detail = "the embedded database is at its cap (database.embedded.disk_max)".to_owned();
                item.content = Err(Refused { vantage: self.id, reason: "no_room", detail });
            }
        }
        checked
    }

    /// A message that cannot be taken at all is counted and answered, and the stream goes on.
    /// A refusal of a batch carries the batch's own boot id and lane as they were sent: the agent must not
    /// take another batch for the refused one.
    pub(super) fn refuse_whole(
        &self,
        (word, detail): (&'static str, String),
        boot: Uuid,
        batch: Option<&v1::Batch>,
    ) -> UnderWay {
        let boot_id = batch.map(|batch| batch.boot_id.chars().take(BOOT_ID_CHARS_MAX).collect()).unwrap_or_default();
        let lane = batch.map(|batch| batch.lane).unwrap_or_default();
        let refusal = v1::Refusal { boot_id, sequence: 0, reason: reason(word, &detail), lane };
        let stray = vec![Refused { vantage: self.id, reason: word, detail }];
        // Without an observation the lane means nothing.
        let (lane, items) = (Lane::Urgent, Vec::new());
        let delivery = Delivery { vantage: self.id, boot, lane, received: monotonic(), items, stray };
        let storing: Storing = Box::pin(self.committer.clone().store(delivery));
        UnderWay { _share: None, storing, refusals: vec![refusal], ack: None }
    }

    pub(super) async fn answer(&self, done: UnderWay) -> Result<(), Status> {
        if let Some(first) = done.refusals.first() {
            let count = done.refusals.len();
            tracing::warn!(vantage = %self.vantage, count, sequence = first.sequence, reason = first.reason, "refused");
        }
        for refusal in done.refusals {
            self.send(ToAgent::Refusal(refusal)).await?;
        }
        match done.ack {
            Some(ack) => self.send(ToAgent::Ack(ack)).await,
            None => Ok(()),
        }
    }
}

/// Reason as the wire carries it, within its limit.
fn reason(word: &str, detail: &str) -> String {
    let mut text = format!("{word}: {detail}");
    while text.len() > TEXT_BYTES_MAX {
        text.pop();
    }
    text
}
