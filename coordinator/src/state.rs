//! What every part of a running coordinator shares.

use std::path::PathBuf;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use sqlx::PgPool;
use uuid::Uuid;

use crate::clock::Clock;
use crate::config::Config;
use crate::hub::Hub;
use crate::ingest::standing::Standing;
use crate::installation::Installation;
use crate::reload::Refused;
use crate::room::Room;

/// This machine's name, as people know it. Not from /proc, of which a unit may show a part only.
#[must_use]
pub fn host() -> String {
    let host = nix::unistd::gethostname().ok().and_then(|host| host.into_string().ok());
    host.unwrap_or_else(|| "unknown".to_owned())
}

/// A running coordinator.
#[derive(Debug)]
pub struct App {
    /// Connections to Postgres. `app.pool.acquire().await` gives what the functions of `store` take.
    pub pool: PgPool,
    /// The configuration in force; `app.config.load()` for reading.
    pub config: ArcSwap<Config>,
    /// The file it comes from, which a request to read it again means; not set: there is nobody to ask.
    pub config_file: OnceLock<Option<PathBuf>>,
    /// Why the last one was refused; none: it was taken.
    pub refused: ArcSwapOption<Refused>,
    /// Connected vantages, tasks to them, and the news for the live page.
    pub hub: Hub,
    /// The time, aligned with the database's.
    pub clock: Clock,
    /// Random identity of this process, the lease's holder.
    pub instance: Uuid,
    /// Highest epoch of the lease that this process has seen; 0: none yet.
    pub epoch_seen: AtomicI64,
    /// The streams that stand here, by their keys.
    pub standing: Standing,
    /// Which database this is, and how far it was seen.
    pub installation: Installation,
    /// Room on the disk of the embedded database.
    pub room: Room,
    /// Where certificates and secrets are kept.
    pub state_dir: PathBuf,
}

impl App {
    /// Puts the parts together.
    #[must_use]
    pub fn new(pool: PgPool, config: Config, clock: Clock, state_dir: PathBuf) -> Arc<Self> {
        let hub = Hub::new(clock.clone());
        let instance = Uuid::new_v4();
        let installation = Installation::open(&state_dir);
        Arc::new(Self {
            pool,
            config: ArcSwap::from_pointee(config),
            config_file: OnceLock::new(),
            refused: ArcSwapOption::empty(),
            hub,
            clock,
            instance,
            epoch_seen: AtomicI64::new(0),
            standing: Standing::default(),
            installation,
            room: Room::default(),
            state_dir,
        })
    }
}
