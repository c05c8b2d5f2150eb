//! Puts the parts together and runs them.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use parallax_driver::unbound::{Unbound, UnboundConfig};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::assignment::epoch::{self, Epoch};
use crate::assignment::kept::{self, Kept};
use crate::beginning::NotBegun;
use crate::cli::Run;
use crate::clock;
use crate::descriptors;
use crate::dial::Dialer;
use crate::identity::folder::Folder;
use crate::join::joining::Joining;
use crate::join::token;
use crate::local::{Local, PinDriver};
use crate::offset::ClockOffset;
use crate::pins::{self, Pins};
use crate::policy::Policy;
use crate::probe::live::LiveServers;
use crate::probe::worked::Worked;
use crate::recorder::Recorder;
use crate::rounds::Rounds;
use crate::schedule::{Kind, Timeline};
use crate::site::Site;
use crate::spool::{BootId, Limits, Spool};
use crate::standing;
use crate::tasks::{self, Tasks};
use crate::tls::Trust;
use crate::uplink::Uplink;
use crate::uplink::address::COORDINATORS_MAX;
use crate::uplink::connector::Connector;
use crate::uplink::expiry::Expiry;
use crate::uplink::flight::Cut;
use crate::uplink::identity::Identity;
use crate::uplink::known::Known;
use crate::uplink::proxy::ProxySetting;
use crate::uplink::renewal::Renewal;
use crate::uplink::status::Status;
use crate::uplink::stream::Disobeyed;
use crate::uplink::timing::Timing;

/// Longest wait for one command to a local driver.
const DRIVER_WAIT_MAX: Duration = Duration::from_secs(3);

/// Fewest places for scheduled probes.
const PLACES_MIN: usize = 16;

/// Runs the agent until SIGTERM or SIGINT.
///
/// # Errors
/// When it cannot start, or the coordinator refuses its identity; see [`crate::beginning::failure`].
pub async fn run(options: Run) -> anyhow::Result<()> {
    let mut local = Local::read(options.local.as_deref())?;
    options.owner.add_to(&mut local);
    if options.coordinator.len() > COORDINATORS_MAX {
        return Err(NotBegun::TooManyCoordinators(options.coordinator.len()).into());
    }
    let proxy = ProxySetting::of(options.proxy.as_deref(), &local)?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let _lock = patient_lock(&options.state).await?;
    let mut identity = Identity::new(options.identity());
    if identity.folder().is_writable() {
        identity.folder().finish()?;
    }
    tokio::select! {
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
        joined = Box::pin(join(&options, identity.folder(), proxy.clone())) => joined?,
    }
    identity.whole().await?;
    let held = identity.credentials()?;
    if options.coordinator.is_empty() && held.coordinators.is_empty() {
        return Err(NotBegun::NoCoordinator.into());
    }
    let boot = BootId::random()?;
    let limits = Limits { bytes_max: local.spool_bytes_max, age_max: local.spool_age_max };
    let spool = Spool::open(options.state.join("spool"), boot, limits, clock::boottime_ms());
    let recorder = Recorder::new(spool);
    let trust = Trust::load(local.tls_roots.as_deref())?;
    let live = LiveServers::new(local.live_resolver.clone());
    let site = Site {
        worked: Worked::open(&options.state),
        offset: recorder.clock().clone(),
        life: recorder.life().clone(),
        ..Site::new(dialer(&options), Policy::new(local.allow.clone()), trust, live)
    };
    let kept = Arc::new(Kept::open(&options.state, &held.signers, &held.vantage));
    let pins = match &local.drivers.pin {
        None => {
            let left = pins::left_standing(&options.state);
            if left > 0 {
                tracing::warn!(
                    left,
                    "pins of an earlier run still stand and nobody removes them: the owner's file has no drivers.pin any more; put it back until they are gone"
                );
            }
            None
        }
        Some(PinDriver::Unbound { control }) => {
            let driver = Unbound::new(UnboundConfig { control: control.clone(), timeout: DRIVER_WAIT_MAX });
            Some(Arc::new(Pins::open(&options.state, driver)))
        }
    };
    let (send_tasks, take_tasks) = mpsc::channel(tasks::WAITING_MAX);
    let (send_reports, reports) = mpsc::channel(tasks::WAITING_MAX);
    let (stop, stopping) = watch::channel(false);
    let places = descriptors::probes().saturating_sub(tasks::PROBES_MAX).max(PLACES_MIN);
    let timeline = Timeline::begin(Duration::from_millis(clock::unix_ms()));
    let rounds = Rounds::new(site, recorder.clone(), timeline, places);
    let tasks = Tasks::new(
        Arc::clone(&rounds),
        recorder.clone(),
        kept.follow(),
        pins.clone(),
        local.changes.clone(),
        send_reports,
    );
    tracing::info!(%boot, version = env!("CARGO_PKG_VERSION"), assignment = kept.version(), state = %options.state.display(), "started");

    let mut loops = JoinSet::new();
    for kind in Kind::ALL {
        loops.spawn(Arc::clone(&rounds).follow(kind, kept.follow()));
    }
    let (pooling, assignments) = (Arc::clone(&rounds), kept.follow());
    loops.spawn(async move { pooling.site.pool.follow(assignments).await });
    loops.spawn(tasks.run(take_tasks));
    let syncing = recorder.clone();
    loops.spawn(async move { syncing.keep_synced().await });
    if let Some(pins) = pins {
        loops.spawn(async move { pins.keep().await });
    }
    let status = Status::new(recorder.clone());
    let (showing, state) = (status.clone(), options.state.clone());
    loops.spawn(async move { standing::keep(&state, showing).await });
    // The loops must outlive the uplink: when both end, the uplink's reason is the one to tell.
    let (_tasks_stay_open, _assignments_stay_open) = (send_tasks.clone(), Arc::clone(&kept));
    let uplink = Uplink {
        coordinators: options.coordinator.clone(),
        connector: Connector::new(proxy, Known::open(&options.state), recorder.clock().clone()),
        identity,
        recorder: recorder.clone(),
        kept,
        epoch: Epoch::open(&options.state),
        disobeyed: Disobeyed::default(),
        renewal: Renewal::default(),
        tasks: send_tasks,
        reports,
        status: status.clone(),
        expiry: Expiry::default(),
        cut: Cut::default(),
        timing: Timing::default(),
    };
    let mut uplink = tokio::spawn(uplink.run(stopping));

    let outcome = tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        ended = &mut uplink => match ended {
            Ok(Ok(())) => Err(anyhow::anyhow!("the uplink ended by itself")),
            Ok(Err(refused)) => Err(refused.into()),
            Err(panicked) => Err(anyhow::Error::new(panicked).context("the uplink broke down")),
        },
        // A loop never ends by itself; a process without one of its parts must not look alive.
        Some(ended) = loops.join_next() => Err(match ended {
            Ok(()) => anyhow::anyhow!("a part of the agent ended by itself"),
            Err(panicked) => anyhow::Error::new(panicked).context("a part of the agent broke down"),
        }),
    };
    tracing::info!("stopping");
    // No new measurements; then a moment for the last acknowledgements.
    loops.abort_all();
    stop.send_replace(true);
    if outcome.is_ok() {
        match uplink.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "while stopping"),
            Err(error) => tracing::warn!(%error, "the uplink broke down while stopping"),
        }
    }
    recorder.spool().sync();
    outcome
}

/// Joins with the token of the environment where nobody has joined yet: a container is given one and never
/// anything else. One that is still there after that is not looked at.
async fn join(options: &Run, folder: &Folder, proxy: ProxySetting) -> anyhow::Result<()> {
    if folder.is_joined() {
        if token::is_in_environment() {
            tracing::info!("this agent has joined already; the token in its environment is not used");
        }
        return Ok(());
    }
    let Some(token) = token::of_environment()? else { return Ok(()) };
    epoch::forget(&options.state);
    kept::forget(&options.state);
    let connector = Connector::new(proxy, Known::open(&options.state), ClockOffset::default());
    let coordinators = options.coordinator.clone();
    let mut joining = Joining { token, folder: folder.clone(), coordinators, connector, timing: Timing::default() };
    let joined = joining.patiently().await?;
    tracing::info!(coordinator = %joined.coordinator, clock_offset_ms = joined.enrolled.clock_offset_ms, "joined as {}", joined.enrolled.vantage);
    Ok(())
}

fn dialer(options: &Run) -> Dialer {
    #[cfg(feature = "lab")]
    if let Some(file) = &options.lab_map {
        tracing::warn!(map = %file.display(), "laboratory: addresses are mapped, nothing real is measured");
        return Dialer::mapped(file.clone());
    }
    let _ = options;
    Dialer::direct()
}

/// How often the lock is tried: `status` holds it for a moment.
const LOCK_TRIES: u32 = 5;
const LOCK_AGAIN: Duration = Duration::from_millis(100);

async fn patient_lock(state: &Path) -> anyhow::Result<Option<File>> {
    for _ in 1..LOCK_TRIES {
        if let Ok(held) = lock(state) {
            return Ok(held);
        }
        tokio::time::sleep(LOCK_AGAIN).await;
    }
    lock(state)
}

/// Two agents on one folder would mix their spools. A disk that takes no lock ends nothing: `None`.
fn lock(state: &Path) -> anyhow::Result<Option<File>> {
    let path = state.join("lock");
    let opened =
        std::fs::create_dir_all(state).and_then(|()| File::create(&path)).or_else(|error| match is_disks(&error) {
            // Read only, but perhaps there: a lock needs no writing.
            true => File::open(&path).map_err(|_| error),
            false => Err(error),
        });
    let file = match opened {
        Err(error) if is_disks(&error) => {
            tracing::warn!(file = %path.display(), %error, "the disk takes no lock; take care that no second agent uses the same state folder");
            return Ok(None);
        }
        opened => opened.map_err(|source| NotBegun::StateUnwritable { path: path.clone(), source })?,
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => Err(NotBegun::StateInUse(state.to_owned()).into()),
        Err(std::fs::TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

/// Whether an error is the disk's trouble, and not a slip in what the owner wrote.
fn is_disks(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let kinds = [QuotaExceeded, ReadOnlyFilesystem, StorageFull];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(nix::libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_folder_has_one_agent() {
        let state = tempfile::tempdir().unwrap();
        let held = lock(state.path()).unwrap();
        assert!(lock(state.path()).unwrap_err().is::<NotBegun>());
        drop(held);
        assert!(lock(state.path()).is_ok());
    }
}
