//! `parallax serve`: the coordinator from start to end.
//!
//! Start: certificates, database, migrations, partitions, sockets, and then the line `parallax:
//! ready`. End, on SIGTERM or SIGINT: no new agents, streams ended, batches under way stored,
//! tasks stopped, the lease given up, the embedded database stopped. SIGHUP reads the configuration
//! again; a faulty one changes nothing.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::config::ConfigFile;
use super::database::Database;
use crate::clock::{self, Clock};
use crate::config::Config;
use crate::embedded::Embedded;
use crate::error::{Exit, Failure};
use crate::identity::keeper::{Keeper, REFRESH_EVERY};
use crate::ingest;
use crate::state::{self, App};
use crate::store::certificate::FORGOTTEN_MAX;
use crate::store::config_version::How;
use crate::store::enrolment::{self, Enrolment};
use crate::store::servers::Servers;
use crate::store::{self, StoreError, certificate, partition, setup, signer, token};
use crate::web::listen::WebListener;
use crate::{installation, relay, reload, revocation, room, signers, tasks, web};

/// How often certificates that ended long ago are forgotten.
const PRUNE_EVERY: Duration = Duration::from_secs(3600);

/// How long an end may take, the embedded database's own apart. What is cut off then was not
/// acknowledged or not answered: a page's reader or an agent that takes nothing, a database that hangs.
const END_WITHIN: Duration = Duration::from_secs(10);

/// `parallax serve`
#[derive(Debug, Args)]
pub struct Serve {
    /// Configuration.
    #[command(flatten)]
    pub config: ConfigFile,
    /// Database and state directory.
    #[command(flatten)]
    pub database: Database,
    /// Folder with initdb and postgres, for the embedded database.
    #[arg(long, env = "PARALLAX_PG_BIN", value_name = "DIR")]
    pub pg_bin: Option<PathBuf>,
    /// Do not bring the schema of an external database up to date; fail if it is not.
    #[arg(long)]
    pub no_migrate: bool,
    /// Accept agents and store, and leave deciding to the other coordinators of this database.
    #[arg(long)]
    pub accept_only: bool,
}

/// Runs the coordinator.
///
/// # Errors
/// When it cannot start, or one of its servers fails.
pub async fn run(serve: Serve) -> Result<(), Failure> {
    let config = serve.config.load()?;
    let state_dir = serve.database.state.path()?;
    make_state_dir(&state_dir)?;
    let keeper = Keeper::open(state_dir.clone(), config.listen.grpc, &config.identity, clock::wall())?;
    let shutdown = CancellationToken::new();
    listen_to_signals(&shutdown)?;
    let (servers, mut embedded) = match serve.database.external()? {
        Some(servers) => (servers, None),
        None => {
            let embedded = Embedded::start(&state_dir, serve.pg_bin.as_deref()).await?;
            (crate::embedded::connect_options(&state_dir)?.into(), Some(embedded))
        }
    };
    let serving = with_database(&serve, config, state_dir, keeper, servers, embedded.is_some(), shutdown.clone());
    let serving = async {
        tokio::select! {
            result = serving => result,
            () = overdue(&shutdown) => {
                tracing::warn!("not everything ended in time; the rest is cut off");
                Ok(())
            }
        }
    };
    let result = match &mut embedded {
        Some(embedded) => tokio::select! {
            result = serving => result,
            never = embedded.keep_running() => match never {},
        },
        None => serving.await,
    };
    if let Some(embedded) = embedded {
        embedded.stop().await;
    }
    result
}

/// Returns when an end takes too long.
async fn overdue(shutdown: &CancellationToken) {
    shutdown.cancelled().await;
    tokio::time::sleep(END_WITHIN).await;
}

async fn with_database(
    serve: &Serve,
    config: Config,
    state_dir: PathBuf,
    keeper: Keeper,
    servers: Servers,
    is_embedded: bool,
    shutdown: CancellationToken,
) -> Result<(), Failure> {
    let listen = config.listen.clone();
    let (pool, follower) = servers.clone().pool();
    let database = serve.database.clone();
    let follower = follower.reading_again(Box::new(move || database.again()));
    let app = App::new(pool, config, Clock::system(), state_dir);
    // Nobody else sets it.
    let _ = app.config_file.set(serve.config.path.clone());
    prepare(&app, &servers, serve.no_migrate && !is_embedded).await?;
    let grpc = ingest::listen(listen.grpc).map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot listen on {} for agents", listen.grpc))
            .why(error)
            .fix("choose another listen.grpc in the configuration, or stop what uses it")
    })?;
    let web = WebListener::open(&listen.web).await?;
    let grpc_address = grpc.local_addr().map_err(anyhow::Error::new)?;
    let following = tokio::spawn(follower.run(shutdown.clone()));
    let keeper = Arc::new(keeper);
    reload::start(&app).await.map_err(|error| {
        Failure::from(anyhow::Error::new(error).context("the configuration cannot be stored in the database"))
    })?;
    // Before any agent is let in: it would be told to obey a key that others do not know.
    signers::check(&mut *app.pool.acquire().await.map_err(anyhow::Error::new)?, &keeper.held().signers).await?;
    // Before the line that says ready: whoever waits for it may make a token next.
    publish(&app, &keeper).await.map_err(|error| {
        Failure::from(anyhow::Error::new(error).context("what tokens say cannot be stored in the database"))
    })?;
    let kind = if is_embedded { "embedded" } else { "external" };
    // Whoever read it may have gone; that is no reason to fail.
    let _ = writeln!(std::io::stderr(), "parallax: ready web={web} grpc={grpc_address} database={kind}");
    let upkeep = tokio::spawn(upkeep(Arc::clone(&app), Arc::clone(&keeper), serve.config.clone(), shutdown.clone()));
    let revocations = tokio::spawn(revocation::run(Arc::clone(&app), shutdown.clone()));
    let relay = tokio::spawn(relay::run(Arc::clone(&app), name(grpc_address.port()), shutdown.clone()));
    let room = is_embedded.then(|| room::watch(Arc::clone(&app), app.state_dir.join("pg"), shutdown.clone()));
    let room = tokio::spawn(async move {
        if let Some(watching) = room {
            watching.await
        }
    });
    let looks = tokio::spawn(installation::run(Arc::clone(&app), shutdown.clone()));
    let tasks = match serve.accept_only {
        true => tokio::spawn(async {}),
        false => tokio::spawn(tasks::run(Arc::clone(&app), shutdown.clone())),
    };
    let agents = ingest::serve(Arc::clone(&app), grpc, keeper, shutdown.clone());
    let pages = async {
        let ended = web.serve(web::router(Arc::clone(&app), shutdown.clone()), shutdown.clone()).await;
        // One server that fails ends the other: half a coordinator would look alive.
        shutdown.cancel();
        ended
    };
    let ((), pages) = tokio::join!(agents, pages);
    for task in [upkeep, revocations, relay, looks, room, tasks, following] {
        if let Err(error) = task.await {
            tracing::error!(%error, "a task ended badly");
        }
    }
    app.pool.close().await;
    tracing::info!("ended");
    pages.map_err(|error| Failure::from(error.context("a server of the coordinator failed")))
}

/// What people know this coordinator by: the machine and the port for agents.
fn name(port: u16) -> String {
    format!("{}:{port}", state::host())
}

/// Schema and partitions; looks whether the database went back; aligns the clock.
async fn prepare(app: &App, servers: &Servers, no_migrate: bool) -> Result<(), Failure> {
    let unreachable = |why: String| {
        Failure::new(Exit::Unreachable, "no server of the database can be used")
            .why(why)
            .fix("check the servers and the URL; one of them must take writes")
    };
    let mut connection = servers.connect().await.map_err(|error| unreachable(error.to_string()))?;
    if no_migrate {
        setup::check_schema(&mut connection).await?;
    } else {
        let applied = setup::migrate(&mut connection).await?;
        if !applied.is_empty() {
            tracing::info!(?applied, "the schema was brought up to date");
        }
    }
    let prepared = async {
        // Before the first row of ours: what a database lacks is seen only while it is as it was found.
        installation::look(app, &mut connection).await?;
        partition::ensure(&mut connection).await?;
        app.clock.align(store::database_now(&mut connection).await?);
        Ok::<(), StoreError>(())
    };
    prepared.await.map_err(|error| Failure::from(anyhow::Error::new(error).context("the database cannot be prepared")))
}

/// Has new tokens say what holds now, and notes new keys that sign orders.
async fn publish(app: &App, keeper: &Keeper) -> Result<(), StoreError> {
    let held = keeper.held();
    let enrolment = Enrolment { coordinators: held.advertise.clone(), authority_sha256: held.pin };
    store::word(async {
        let mut connection = app.pool.acquire().await?;
        signer::note(&mut connection, &held.signers.public()).await?;
        enrolment::write(&mut connection, &enrolment).await
    })
    .await
}

/// Looks at keys and certificates again and again, and reads the configuration on SIGHUP.
async fn upkeep(app: Arc<App>, keeper: Arc<Keeper>, file: ConfigFile, shutdown: CancellationToken) {
    let mut hangup = match signal(SignalKind::hangup()) {
        Ok(hangup) => hangup,
        Err(error) => {
            tracing::error!(%error, "cannot listen to SIGHUP");
            return shutdown.cancelled().await;
        }
    };
    let mut looks = tokio::time::interval(REFRESH_EVERY);
    let mut prunings = tokio::time::interval(PRUNE_EVERY);
    let mut published = false;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = looks.tick() => {}
            _ = prunings.tick() => {
                if let Err(error) = prune(&app).await {
                    tracing::debug!(%error, "old certificates and tokens are not all forgotten; tried again within the hour");
                }
                continue;
            }
            _ = hangup.recv() => {
                reload::again(&app, file.load(), How::Sighup).await;
            }
        }
        let identity = app.config.load().identity.clone();
        published &= !keeper.refresh(&identity, clock::wall());
        if !published {
            match publish(&app, &keeper).await {
                Ok(()) => published = true,
                Err(error) => tracing::debug!(%error, "what tokens say is not published; tried again"),
            }
        }
    }
}

/// Forgets certificates and tokens of long ago, in small steps.
async fn prune(app: &App) -> Result<(), StoreError> {
    let step = u64::try_from(FORGOTTEN_MAX).unwrap_or(u64::MAX);
    let mut connection = app.pool.acquire().await?;
    while store::word(certificate::prune(&mut connection)).await? >= step {}
    while store::word(token::prune(&mut connection)).await? >= step {}
    Ok(())
}

fn listen_to_signals(shutdown: &CancellationToken) -> Result<(), Failure> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals =
            signal(kind).map_err(|error| Failure::new(Exit::Failed, "cannot listen to signals").why(error))?;
        let shutdown = shutdown.clone();
        tokio::spawn(async move {
            signals.recv().await;
            tracing::info!("ending");
            shutdown.cancel();
        });
    }
    Ok(())
}

fn make_state_dir(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path).map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot make the state directory {}", path.display()))
            .why(error)
            .fix("choose another with --state")
    })
}
