//! Our certificate has ended: a branch that was dark for weeks comes back by itself, with the key it had.

use super::Uplink;
use super::address::Coordinator;
use super::backoff::Pace;
use super::credentials::Credentials;
use super::enrolment::{By, NotEnrolled, ask};
use super::session::{Ended, Lost};
use crate::clock;

impl Uplink {
    /// Asks for a new certificate when ours has ended by this machine's clock. `Ok`: go on with what the
    /// identity folder holds now.
    ///
    /// # Errors
    /// How the session ended before it began.
    pub(super) async fn renew_late(&mut self, to: &Coordinator, held: &Credentials) -> Result<(), Ended> {
        let now_s = i64::try_from(clock::unix_ms() / 1000).unwrap_or(i64::MAX);
        let folder = self.identity.folder().clone();
        if held.validity.not_after_s >= now_s || !folder.is_writable() {
            return Ok(());
        }
        // A key of another kind came from elsewhere, and so must its certificate.
        let Some(key) = folder.key() else { return Ok(()) };
        let Ok(bare) = held.without_certificate() else { return Ok(()) };
        let asked = ask(&mut self.connector, to, &bare, (By::Key, &key), &self.timing).await;
        let kept = asked.and_then(|enrolled| {
            enrolled.keep(&folder, &key)?;
            Ok(enrolled)
        });
        match kept {
            Ok(enrolled) => {
                tracing::info!(coordinator = %to, vantage = %enrolled.vantage, "the certificate had ended and was renewed");
                Ok(())
            }
            Err(NotEnrolled::NotOffered) => Ok(()),
            Err(NotEnrolled::Refused { word, why }) => Err(Ended::IdentityRefused(format!("{word}: {why}"))),
            Err(not) => Err(Ended::Lost(lost(not))),
        }
    }
}

fn lost(not: NotEnrolled) -> Lost {
    let slowly = |word, why| Lost { pace: Pace::Slow, connected: false, ..Lost::alone(word, why) };
    match not {
        NotEnrolled::Trouble(trouble) => trouble.into(),
        NotEnrolled::Clock { offset_ms, why } => {
            let apart =
                offset_ms.map_or_else(String::new, |ms| format!(" (this machine's less the coordinator's: {ms} ms)"));
            Lost {
                about_time: true,
                ..slowly("clock_skew", format!("{why}{apart}; set the wrong clock; the identity stays"))
            }
        }
        NotEnrolled::Later { pace, why } => Lost { pace, ..slowly("certificate_ended", why) },
        NotEnrolled::Answer(why) => slowly("certificate_ended", why),
        NotEnrolled::Refused { why, .. } => slowly("identity_refused", why),
        NotEnrolled::NotOffered => slowly("certificate_ended", "the coordinator is older than this agent".to_owned()),
    }
}
