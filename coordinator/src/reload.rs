//! Taking a configuration: at the start, and again while running. One that has faults changes
//! nothing, and everybody is told: the log, the page, the metrics, `/-/ready`, and a row.

use std::sync::Arc;

use crate::admitted;
use crate::config::Config;
use crate::error::Failure;
use crate::ingest::standing::{Cut, Stream};
use crate::state::{self, App};
use crate::store::config_version::{self, How, Taker};
use crate::store::{StoreError, configured, vantage, word};

/// Why the last configuration was refused, while an older one is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Every fault, one a line.
    pub why: String,
}

/// Puts the configuration in force with which the coordinator starts.
///
/// # Errors
/// When the database refuses.
pub async fn start(app: &App) -> Result<(), StoreError> {
    let mut connection = app.pool.acquire().await?;
    vantage::ensure(&mut connection, app.config.load().topology.vantages.keys()).await?;
    let config = admitted::with(Config::clone(&app.config.load()), &vantage::all(&mut connection).await?);
    app.config.store(Arc::new(config.clone()));
    let number = configured::put_in_force(&mut connection, &config, &taker(app, How::Start)).await?;
    tracing::info!(number, "the configuration is in force");
    warn(&config);
    Ok(())
}

/// Puts another one in force, or keeps the one that is. True: it was taken.
pub async fn again(app: &App, loaded: Result<Config, Failure>, how: How) -> bool {
    let taken = match loaded {
        Ok(config) => take(app, config, how).await.map_err(|error| format!("it cannot be stored: {error}")),
        Err(faults) => Err(faults.to_string()),
    };
    let Err(why) = taken else {
        app.refused.store(None);
        return true;
    };
    tracing::error!(error = %why, "the configuration stays as it was");
    // First what needs no database, which may be the trouble.
    app.refused.store(Some(Arc::new(Refused { why: why.clone() })));
    let noted = word(async { config_version::refused(&mut *app.pool.acquire().await?, &taker(app, how), &why).await });
    if let Err(error) = noted.await {
        tracing::warn!(%error, "that a configuration was refused cannot be stored");
    }
    false
}

async fn take(app: &App, config: Config, how: How) -> Result<(), StoreError> {
    if config.listen != app.config.load().listen {
        tracing::warn!("a change of listen: takes effect at the next start");
    }
    let (config, number) = word(async {
        let mut connection = app.pool.acquire().await?;
        vantage::ensure(&mut connection, config.topology.vantages.keys()).await?;
        let config = admitted::with(config, &vantage::all(&mut connection).await?);
        let number = configured::put_in_force(&mut connection, &config, &taker(app, how)).await?;
        Ok((Arc::new(config), number))
    })
    .await?;
    // Before anything is cut: who comes back must meet the new one.
    app.config.store(Arc::clone(&config));
    let listed = |stream: &Stream| config.topology.vantages.contains_key(&stream.name);
    let streams = app.standing.cut(|stream| (!listed(stream)).then_some(Cut::NotListed));
    if streams > 0 {
        tracing::warn!(streams, "cut off: no longer in the configuration");
    }
    app.hub.reassign();
    tracing::info!(number, "the configuration was read again");
    warn(&config);
    Ok(())
}

/// Says what is allowed in it and hardly meant.
fn warn(config: &Config) {
    for one in config.warnings.iter().flat_map(|warnings| &warnings.faults) {
        tracing::warn!(line = one.line, column = one.column, "configuration: {}", one.message);
    }
}

/// This process, as the taker of a configuration.
pub(crate) fn taker(app: &App, how: How) -> Taker {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten().map(|user| user.name);
    Taker {
        coordinator: app.instance,
        host: state::host(),
        by: user.unwrap_or_else(|| format!("uid {}", nix::unistd::getuid())),
        how,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::clock::Clock;
    use crate::config::builtin;
    use crate::error::Exit;
    use crate::hex::hex;
    use crate::testing;

    fn changed() -> Config {
        Config::parse(&builtin::EXAMPLE.replace("dwell_s: 300", "dwell_s: 301"), "example").unwrap()
    }

    async fn versions(app: &App) -> Vec<(i32, String)> {
        sqlx::query_as("select number, how from v_config order by at").fetch_all(&app.pool).await.unwrap()
    }

    #[tokio::test]
    async fn equal_content_is_one_version_whoever_reads_it_and_history_keeps_what_each_named() {
        let app = testing::app().await;
        start(&app).await.unwrap();
        assert!(again(&app, Ok(changed()), How::Sighup).await);
        assert!(again(&app, Ok(testing::example()), How::Sighup).await);
        // Another coordinator with the same file, listening elsewhere.
        let mut elsewhere = testing::example();
        elsewhere.listen.grpc.set_port(9999);
        let other = App::new(app.pool.clone(), elsewhere, Clock::system(), PathBuf::from("/nonexistent"));
        start(&other).await.unwrap();
        let said = |number, how: &str| (number, how.to_owned());
        assert_eq!(versions(&app).await, [said(1, "start"), said(2, "sighup"), said(1, "sighup"), said(1, "start")]);
        let (named, same): (i64, bool) = sqlx::query_as(
            "select count(*), bool_and(v.detail = c.detail and v.position = c.position)
             from v_configured v left join configured c using (kind, name) where v.number = 1",
        )
        .fetch_one(&app.pool)
        .await
        .unwrap();
        assert!(named > 10 && same, "{named}");
        let stored: Vec<(String, serde_json::Value)> =
            sqlx::query_as("select distinct sha256, content from v_config").fetch_all(&app.pool).await.unwrap();
        assert_eq!(stored.len(), 2);
        for (sha256, content) in stored {
            assert_eq!(sha256, hex(&crate::identity::request::sha256(content.to_string().as_bytes())));
        }
    }

    #[tokio::test]
    async fn a_faulty_one_changes_nothing_and_everybody_is_told_until_a_good_one_comes() {
        let app = testing::app().await;
        start(&app).await.unwrap();
        let faults = Config::parse("version: 1\nvantagess: []\n", "parallax.yaml").unwrap_err();
        let before = app.config.load_full();
        let failure = Failure::new(Exit::Usage, "the configuration has one fault").why(faults);
        assert!(!again(&app, Err(failure), How::Sighup).await);
        assert_eq!(*app.config.load_full(), *before);
        let refused = app.refused.load_full().unwrap();
        assert!(refused.why.contains("parallax.yaml:2"), "{}", refused.why);
        let mut connection = app.pool.acquire().await.unwrap();
        let told = config_version::refusals(&mut connection).await.unwrap();
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].number, told[0].error.as_str()), (Some(1), refused.why.as_str()));
        let shown = crate::report::matrix::read(&mut connection).await.unwrap();
        assert_eq!(shown.refused_configurations.len(), 1);
        assert_eq!(versions(&app).await.len(), 1, "nothing else came into force");
        assert!(again(&app, Ok(changed()), How::Request).await);
        assert!(app.refused.load().is_none());
        assert!(config_version::refusals(&mut connection).await.unwrap().is_empty());
    }
}
