//! What every probe needs: the door, the owner's policy, the trust and the live resolver.

use crate::dial::Dialer;
use crate::life::LifeNonces;
use crate::offset::ClockOffset;
use crate::policy::Policy;
use crate::probe::bootstrap::Bootstrap;
use crate::probe::live::LiveServers;
use crate::probe::plain::Servers;
use crate::probe::pool::Pool;
use crate::probe::throttle::Throttle;
use crate::probe::validation::Validator;
use crate::probe::worked::Worked;
use crate::proofs::Proofs;
use crate::tls::Trust;

/// The place's means.
#[derive(Debug)]
pub struct Site {
    /// Opens sockets.
    pub dialer: Dialer,
    /// What may be contacted.
    pub policy: Policy,
    /// Whom TLS trusts.
    pub trust: Trust,
    /// What clients here use as resolver.
    pub live: LiveServers,
    /// What was shown usable here.
    pub proofs: Proofs,
    /// Which resolvers want to be left alone for a while.
    pub throttle: Throttle,
    /// Which resolvers' endpoints have ever worked from here.
    pub worked: Worked,
    /// What was learnt of plain DNS servers.
    pub servers: Servers,
    /// Where endpoints are whose addresses are not pinned.
    pub bootstrap: Bootstrap,
    /// Open connections to resolvers.
    pub pool: Pool,
    /// How far this machine's wall clock is from the coordinator's; the uplink measures it.
    pub offset: ClockOffset,
    /// What nodes sign to prove their life; the uplink hears it.
    pub life: LifeNonces,
    /// Validates signed answers.
    pub validator: Validator,
}

impl Site {
    /// A place about which nothing is known yet.
    #[must_use]
    pub fn new(dialer: Dialer, policy: Policy, trust: Trust, live: LiveServers) -> Self {
        Self {
            dialer,
            policy,
            trust,
            live,
            proofs: Proofs::default(),
            throttle: Throttle::default(),
            worked: Worked::in_memory(),
            servers: Servers::default(),
            bootstrap: Bootstrap::default(),
            pool: Pool::default(),
            offset: ClockOffset::default(),
            life: LifeNonces::default(),
            validator: Validator::default(),
        }
    }
}
