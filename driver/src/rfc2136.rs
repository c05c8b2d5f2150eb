//! Repoints by dynamic update (RFC 2136) signed with TSIG (RFC 8945), over TCP.
//!
//! **One update is one compare-and-set.** Its prerequisites name the whole A set and the whole AAAA set
//! that the change expects (a type it does not expect must not exist); its updates replace both. The
//! server checks and applies all of it or nothing, so addresses of both families move together, a
//! stranger's record is never overwritten, and the name is never without an answer in between.
//!
//! **Queries are signed too.** A reply that decides about a write must come from the holder of the key,
//! and servers choose a view by it: the set that is read is the set that is updated. A wrong key shows
//! at the first reading, before anything is written.
//!
//! **What it does not do.** UDP (an update may be large, and a reply must not be guessable), zone
//! transfers, zones directly below the root, and records of other types at the name: an HTTPS record
//! with address hints keeps pointing where it did.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use domain::base::iana::Rcode;
use domain::base::{Message, Rtype};
use parallax_decide::change::{Change, Standing};
use parallax_decide::names::{Addresses, DomainName};
use secrecy::SecretString;
use tokio::sync::Mutex;

use crate::{Applied, Driver, DriverError, Reading, Refusal};
use exchange::{Failure, Server};
use message::{Answer, WireName};

mod exchange;
mod key;
mod message;

pub use key::{ConfigError, TsigAlgorithm};

/// A zone at an authoritative server that takes dynamic updates.
#[derive(Debug, Clone)]
pub struct Rfc2136Config {
    /// The zone's primary.
    pub server: SocketAddr,
    /// The zone's apex, exactly as the server has it.
    pub zone: DomainName,
    /// Name of the TSIG key, as the server has it.
    pub key_name: DomainName,
    /// Algorithm of the TSIG key.
    pub algorithm: TsigAlgorithm,
    /// The secret in base64, as a secret file holds it: a byte-order mark and blanks around it are
    /// allowed.
    pub secret: SecretString,
    /// Longest wait for one exchange, connecting included. One apply is at most three in a row.
    pub timeout: Duration,
}

/// Tells the time, for TSIG. The wall clock is read in one place of a program, so it comes from there.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// A zone that can be changed.
pub struct Rfc2136 {
    server: Server,
    zone: DomainName,
    zone_wire: WireName,
    /// One change of the zone at a time.
    turn: Mutex<()>,
}

impl fmt::Debug for Rfc2136 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rfc2136({}, zone {})", self.server, self.zone)
    }
}

impl Rfc2136 {
    /// A driver; connects only when asked something.
    ///
    /// # Errors
    /// When the secret is not usable or the zone lies directly below the root.
    pub fn new(config: Rfc2136Config, clock: Clock) -> Result<Self, ConfigError> {
        if !config.zone.as_str().contains('.') {
            return Err(ConfigError::ZoneTooHigh { zone: config.zone });
        }
        let zone_wire =
            message::wire_name(&config.zone).map_err(|_| ConfigError::Name { name: config.zone.clone() })?;
        let key = key::parse(&config.key_name, config.algorithm, &config.secret)?;
        let server = Server {
            address: config.server,
            key: Arc::new(key),
            key_name: config.key_name,
            algorithm: config.algorithm,
            timeout: config.timeout,
            clock,
        };
        Ok(Self { server, zone: config.zone, zone_wire, turn: Mutex::new(()) })
    }
}

impl Driver for Rfc2136 {
    async fn read(&self, name: &DomainName) -> Result<Reading, DriverError> {
        let wire = self.name_in_zone(name)?;
        let ((v4, ttl4), (v6, ttl6)) =
            match tokio::try_join!(self.ask(name, &wire, Rtype::A), self.ask(name, &wire, Rtype::AAAA))? {
                (Answer::Addresses(v4, ttl4), Answer::Addresses(v6, ttl6)) => ((v4, ttl4), (v6, ttl6)),
                (Answer::Foreign(what), Answer::Addresses(..) | Answer::Foreign(_))
                | (Answer::Addresses(..), Answer::Foreign(what)) => return Ok(Reading::Foreign { what }),
            };
        if v4.is_empty() && v6.is_empty() {
            return Ok(Reading::Nothing);
        }
        Ok(match Addresses::new(v4.into_iter().chain(v6)) {
            Ok(addresses) => Reading::Set { addresses, ttl_s: ttl4.max(ttl6) },
            Err(error) => Reading::Foreign { what: format!("records that can never be ours: {error}") },
        })
    }

    async fn apply(&self, change: &Change) -> Result<Applied, DriverError> {
        let (name, expects, sets, ttl_s) = match change {
            Change::Repoint { name, expects, sets, ttl_s } => (name, expects, sets, *ttl_s),
            Change::Pin { .. } | Change::Unpin { .. } => {
                return Err(DriverError::Unsupported {
                    driver: "rfc2136",
                    why: "an authoritative server repoints records; names are pinned on a resolver".to_owned(),
                });
            }
        };
        let wire = self.name_in_zone(name)?;
        let _turn = self.turn.lock().await;
        let found = self.read(name).await?;
        match found.standing(change) {
            Standing::AlreadySet => return Ok(Applied::Already),
            Standing::Foreign => return Err(DriverError::Conflict { found }),
            Standing::AsExpected => {}
        }
        let update = message::update(&self.zone_wire, &wire, expects, sets, ttl_s)
            .map_err(|error| self.unexpected(&format!("an update that does not fit a message: {error}")))?;
        match self.server.exchange(update).await {
            Ok(reply) => self.judge(change, name, reply.header().rcode()).await,
            Err(Failure::NotSent(why)) => Err(self.unreachable(why)),
            Err(Failure::Lost(why)) => self.settle(change, name, self.uncertain(&why)).await,
            Err(Failure::Garbage(what)) => self.settle(change, name, self.uncertain(&what)).await,
            // Without a signature that covers it, "no" is no more than a rumour.
            Err(Failure::Refused(reason)) => self.settle(change, name, self.refused(reason)).await,
        }
    }
}

impl Rfc2136 {
    /// Acts on the signed reply code of an update.
    async fn judge(&self, change: &Change, name: &DomainName, rcode: Rcode) -> Result<Applied, DriverError> {
        let code = rcode.to_string();
        match rcode {
            Rcode::NOERROR => {
                let why = "it acknowledged the change but does not serve it";
                self.settle(change, name, self.uncertain(why)).await
            }
            Rcode::NXRRSET | Rcode::YXRRSET | Rcode::NXDOMAIN | Rcode::YXDOMAIN => {
                let broken = self.refused(Refusal::PrerequisiteBroken { rcode: code });
                // What stands already was not written by this call.
                self.settle(change, name, broken).await.map(|_| Applied::Already)
            }
            Rcode::REFUSED => Err(self.refused(Refusal::Policy { key: self.server.key_name.clone() })),
            Rcode::NOTAUTH | Rcode::NOTZONE => Err(self.refused(self.not_served(name, code))),
            _ => self.settle(change, name, self.refused(Refusal::ServerFailed { rcode: code })).await,
        }
    }

    /// Decides a write by reading back once; `otherwise` is the error when the old set still stands.
    async fn settle(&self, change: &Change, name: &DomainName, otherwise: DriverError) -> Result<Applied, DriverError> {
        let found = match self.read(name).await {
            Ok(found) => found,
            Err(error) => return Err(self.uncertain(&format!("{otherwise}; reading back: {error}"))),
        };
        match found.standing(change) {
            Standing::AlreadySet => Ok(Applied::Written),
            Standing::AsExpected => Err(otherwise),
            Standing::Foreign => Err(DriverError::Conflict { found }),
        }
    }

    async fn ask(&self, name: &DomainName, wire: &WireName, rtype: Rtype) -> Result<Answer, DriverError> {
        let query = message::query(wire, rtype).map_err(|error| self.unexpected(&error.to_string()))?;
        let reply = self.server.exchange(query).await.map_err(|failure| match failure {
            Failure::NotSent(why) | Failure::Lost(why) => self.unreachable(why),
            Failure::Garbage(what) => self.unexpected(&what),
            Failure::Refused(reason) => self.refused(reason),
        })?;
        self.answer(name, wire, rtype, &reply)
    }

    fn answer(
        &self,
        name: &DomainName,
        wire: &WireName,
        rtype: Rtype,
        reply: &Message<Vec<u8>>,
    ) -> Result<Answer, DriverError> {
        let header = reply.header();
        match header.rcode() {
            Rcode::NOERROR | Rcode::NXDOMAIN if !header.aa() => {
                Err(self.refused(self.not_served(name, "an answer without authority".to_owned())))
            }
            // NXDOMAIN too may carry an alias, whose target is what does not exist.
            Rcode::NOERROR | Rcode::NXDOMAIN => {
                message::addresses(reply, wire, rtype).map_err(|what| self.unexpected(&what))
            }
            Rcode::REFUSED | Rcode::NOTAUTH => Err(self.refused(self.not_served(name, header.rcode().to_string()))),
            rcode => Err(self.refused(Refusal::ServerFailed { rcode: rcode.to_string() })),
        }
    }

    fn name_in_zone(&self, name: &DomainName) -> Result<WireName, DriverError> {
        let above = name.as_str().strip_suffix(self.zone.as_str());
        if !above.is_some_and(|labels| labels.is_empty() || labels.ends_with('.')) {
            let (name, zone) = (name.clone(), self.zone.clone());
            return Err(self.refused(Refusal::OutsideZone { name, zone }));
        }
        message::wire_name(name)
            .map_err(|why| DriverError::Unsupported { driver: "rfc2136", why: format!("name {name}: {why}") })
    }

    fn not_served(&self, name: &DomainName, rcode: String) -> Refusal {
        Refusal::NotServed { name: name.clone(), zone: self.zone.clone(), rcode }
    }

    fn unreachable(&self, why: String) -> DriverError {
        DriverError::Unreachable { server: self.server.to_string(), why }
    }

    fn refused(&self, reason: Refusal) -> DriverError {
        DriverError::Refused { server: self.server.to_string(), reason }
    }

    fn uncertain(&self, why: &str) -> DriverError {
        DriverError::Uncertain { server: self.server.to_string(), why: why.to_owned() }
    }

    fn unexpected(&self, what: &str) -> DriverError {
        DriverError::Unexpected { server: self.server.to_string(), what: crate::error::quoted(what) }
    }
}
