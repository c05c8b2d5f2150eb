//! Our certificate is renewed over the open stream, which goes on as it is: the next connection shows the
//! new one.

use parallax_proto::v1::{self, agent_message, renewed};

use super::{Stream, message};
use crate::certificate::harmless;
use crate::clock::{self, now};
use crate::identity::vouched::vouched;

impl Stream<'_> {
    /// The coordinator has shown that it knows the question: perhaps it is overdue.
    pub(super) fn speaks_two(&mut self) {
        if !self.two {
            self.two = true;
            self.renew();
        }
    }

    /// Asks for the next certificate when it is time.
    pub(super) fn renew(&mut self) {
        // An older coordinator does not know the question.
        if !self.two {
            return;
        }
        let renewal = &mut self.uplink.renewal;
        match renewal.due(self.credentials.validity, clock::unix_ms(), now()) {
            Ok(None) => {}
            Ok(Some(_)) if !self.uplink.identity.folder().is_writable() => {
                renewal.failed(now());
                if !renewal.told {
                    renewal.told = true;
                    tracing::warn!(
                        reason = "identity_read_only",
                        folder = %self.uplink.identity.folder().path().display(),
                        "the certificate is due to be renewed and the identity folder cannot be written; give it to the agent's user, or put a new certificate there by hand"
                    );
                }
            }
            Ok(Some(request)) => {
                let renewal = message(agent_message::Message::Renewal(v1::Renewal { request }));
                if self.send.try_send(renewal).is_err() {
                    self.uplink.renewal.failed(now());
                }
            }
            Err(error) => tracing::warn!(%error, "no key for the next certificate can be made"),
        }
    }

    /// The answer.
    pub(super) fn renewed(&mut self, renewed: v1::Renewed) {
        self.speaks_two();
        let Some(key) = self.uplink.renewal.answered() else {
            tracing::warn!("the coordinator sent a certificate that was not asked for; it is left out");
            return;
        };
        let why = match renewed.answer {
            Some(renewed::Answer::Identity(identity)) => {
                // A vantage can have been renamed: any name will do that our authority vouches for, with our key.
                let taken = vouched(&identity.certificates, &self.credentials.roots, "")
                    .map_err(|why| format!("what it sent is no certificate of ours: {why}"))
                    .and_then(|()| {
                        let put = self.uplink.identity.folder().put(&key, &identity.certificates);
                        put.map_err(|error| error.to_string())
                    });
                match taken {
                    Ok(certificate) => {
                        self.look_again();
                        tracing::info!(holds = %certificate.validity, "the certificate was renewed");
                        if self.credentials.vantage != self.vantage {
                            tracing::info!(before = %self.vantage, now = %self.credentials.vantage, "this vantage was renamed");
                            self.renew_at = Some(now());
                        }
                        if let Some(trust) = &identity.trust {
                            self.unsigned_trust(trust);
                        }
                        return;
                    }
                    Err(why) => why,
                }
            }
            Some(renewed::Answer::Refused(why)) => format!("it refused: {}", harmless(&why)),
            None => "its answer is empty; is the agent older than the coordinator?".to_owned(),
        };
        let renewal = &mut self.uplink.renewal;
        renewal.failed(now());
        if !renewal.told {
            renewal.told = true;
            tracing::warn!(
                reason = "certificate_not_renewed", %why, ends = %self.credentials.validity,
                "the certificate could not be renewed; it is tried again until its end, and measuring goes on"
            );
        }
    }
}
