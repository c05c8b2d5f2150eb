//! What a running coordinator is and whom it trusts, read again while it runs: a new authority, a new
//! certificate of the operator's, its own certificate once a day. Streams that stand are not touched.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;
use tokio::sync::watch;

use super::authority::ServerIdentity;
use super::bundle::{Bundle, Making};
use super::server;
use super::signer::{self, Signers};
use crate::config::identity::Identity;
use crate::error::{Exit, Failure};

/// How often files are looked at again.
pub const REFRESH_EVERY: Duration = Duration::from_secs(10);

/// The coordinator's own certificate is made anew at this age.
const RENEW_AFTER: time::Duration = time::Duration::days(1);

/// A certificate of the operator's that ends sooner than this is warned of.
const WARN_BEFORE: time::Duration = time::Duration::days(7);

/// Everything that is in use at one time; replaced as a whole.
#[derive(Debug)]
pub struct Held {
    /// The authorities.
    pub bundle: Bundle,
    /// The keys that sign orders.
    pub signers: Signers,
    /// TLS towards agents, for the next connection.
    pub tls: Arc<ServerConfig>,
    /// SHA-256 of the key of the authority that the server's chain ends with: what a token pins.
    pub pin: [u8; 32],
    /// Life of an agent's certificate.
    pub life: Duration,
    /// Where agents reach the coordinators, HOST:PORT.
    pub advertise: Vec<String>,
    settings: Identity,
    chain: Vec<CertificateDer<'static>>,
    made_at: OffsetDateTime,
}

/// Keeps it.
#[derive(Debug)]
pub struct Keeper {
    state: PathBuf,
    listen: SocketAddr,
    held: ArcSwap<Held>,
    changed: watch::Sender<()>,
    said: Mutex<Option<String>>,
}

impl Keeper {
    /// Opens what a coordinator needs, making its authority at the first start.
    ///
    /// # Errors
    /// When keys or certificates are missing, readable by others, or do not belong together.
    pub fn open(state: PathBuf, listen: SocketAddr, settings: &Identity, now: OffsetDateTime) -> Result<Self, Failure> {
        let first = read(&state, settings, Making::Allowed, now)?;
        let held = hold(first, settings, listen, now)?;
        Ok(Self {
            state,
            listen,
            held: ArcSwap::from_pointee(held),
            changed: watch::Sender::new(()),
            said: Mutex::default(),
        })
    }

    /// What is in use.
    #[must_use]
    pub fn held(&self) -> Arc<Held> {
        self.held.load_full()
    }

    /// Tells of each change of what agents must know: authorities, signers, addresses.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Looks at the files again. What cannot be used changes nothing, and is said once.
    /// Returns whether something changed that agents or new tokens must know.
    pub fn refresh(&self, settings: &Identity, now: OffsetDateTime) -> bool {
        match self.try_refresh(settings, now) {
            Ok(changed) => {
                if self.said.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
                    tracing::info!("keys and certificates can be used again");
                }
                if changed {
                    self.changed.send_replace(());
                }
                changed
            }
            Err(error) => {
                let error = error.to_string();
                let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
                if said.as_ref() != Some(&error) {
                    tracing::warn!(%error, "keys and certificates stay as they were; looked at again by itself");
                    *said = Some(error);
                }
                false
            }
        }
    }

    fn try_refresh(&self, settings: &Identity, now: OffsetDateTime) -> Result<bool, Failure> {
        let held = self.held.load();
        let new = read(&self.state, settings, Making::Forbidden, now)?;
        let same_trust =
            new.bundle.trusted().eq(held.bundle.trusted()) && new.signers.public() == held.signers.public();
        if !held.signers.public().iter().any(|known| known == new.signers.signing().public()) {
            return Err(Failure::new(
                Exit::Refused,
                "the key that signs orders was replaced by one that agents were not told of",
            )
            .why("they would obey nothing that it signs")
            .fix("put the former one back; parallax authority rotate-signer makes a new one beside it"));
        }
        let same_chain = match &new.operator {
            Some((identity, _)) => identity.chain == held.chain,
            // Our own is made anew with the day, and when another authority serves.
            None => held.settings.server.is_none() && now - held.made_at < RENEW_AFTER,
        };
        if same_trust && same_chain && *settings == held.settings {
            return Ok(false);
        }
        let new = hold(new, settings, self.listen, now)?;
        let news = !same_trust || new.advertise != held.advertise || new.pin != held.pin || new.life != held.life;
        drop(held);
        self.held.store(Arc::new(new));
        Ok(news)
    }
}

struct Read {
    bundle: Bundle,
    signers: Signers,
    operator: Option<(ServerIdentity, OffsetDateTime)>,
}

fn read(state: &std::path::Path, settings: &Identity, making: Making, now: OffsetDateTime) -> Result<Read, Failure> {
    let bundle = match &settings.authority {
        Some(pair) => {
            if making == Making::Allowed {
                signer::make_first(&state.join("ca"))?;
            }
            Bundle::of_operator(&pair.certificates, &pair.key)?
        }
        None => Bundle::open(state, making, now)?,
    };
    let signers = Signers::open(&state.join("ca"))?;
    let operator = match &settings.server {
        Some(pair) => Some(server::of_operator(&bundle, (&pair.certificates, &pair.key), now)?),
        None => None,
    };
    Ok(Read { bundle, signers, operator })
}

fn hold(read: Read, settings: &Identity, listen: SocketAddr, now: OffsetDateTime) -> Result<Held, Failure> {
    let Read { bundle, signers, operator } = read;
    let identity = match operator {
        Some((identity, not_after)) => {
            if not_after - now < WARN_BEFORE {
                tracing::warn!(%not_after, "the operator's server certificate ends soon; put a new one in its place");
            }
            identity
        }
        None => bundle.serving()?.server_identity(listen.ip(), now)?,
    };
    let (chain, pin) = (identity.chain.clone(), server::pin(&identity.chain)?);
    let tls = server::config(&bundle, identity)?;
    let advertise = match settings.advertise.as_slice() {
        // An address that is a place and not a wildcard can be dialled as it is.
        [] if !listen.ip().is_unspecified() => vec![listen.to_string()],
        given => given.to_vec(),
    };
    let life = settings.certificate_life;
    Ok(Held { bundle, signers, tls, pin, life, advertise, settings: settings.clone(), chain, made_at: now })
}
