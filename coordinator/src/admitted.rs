//! Vantages that a person approved although the configuration does not list them: they are taken in as if it
//! did, each its own failure domain, with the labels of its token. Listed, the configuration counts.

use std::sync::Arc;

use parallax_decide::topology::{Mode, Vantage};

use crate::config::Config;
use crate::hub::News;
use crate::reload;
use crate::state::App;
use crate::store::config_version::How;
use crate::store::configured;
use crate::store::vantage::VantageRow;
use crate::store::{StoreError, word};

/// The configuration with those among the rows that are approved, and without those that are no more.
#[must_use]
pub fn with<'a>(mut config: Config, rows: impl IntoIterator<Item = &'a VantageRow>) -> Config {
    for name in std::mem::take(&mut config.admitted) {
        config.topology.vantages.remove(&name);
        config.labels.remove(&name);
    }
    for row in rows.into_iter().filter(|row| is_approved(row)) {
        let Ok(failure_domain) = row.name.as_str().parse() else { continue };
        if config.topology.vantages.contains_key(&row.name) {
            continue;
        }
        let vantage = Vantage {
            failure_domain,
            upstream: None,
            pin_driver: None,
            pin_mode: Mode::Observe,
            switch_by_hand: false,
            audience: true,
        };
        config.topology.vantages.insert(row.name.clone(), vantage);
        config.labels.insert(row.name.clone(), row.labels.clone());
        config.admitted.insert(row.name.clone());
    }
    config
}

fn is_approved(row: &VantageRow) -> bool {
    row.admitted_at.is_some() && row.retired_at.is_none()
}

/// Has a running coordinator take in those that were approved meanwhile, and let go those that were removed or have
/// another name.
///
/// # Errors
/// When the database refuses.
pub async fn take_in<'a>(app: &App, rows: impl Iterator<Item = &'a VantageRow>) -> Result<(), StoreError> {
    let now = app.config.load_full();
    let config = with(Config::clone(&now), rows);
    if config.admitted == now.admitted {
        return Ok(());
    }
    let config = Arc::new(config);
    let taker = reload::taker(app, How::Request);
    word(async { configured::put_in_force(&mut *app.pool.acquire().await?, &config, &taker).await }).await?;
    // A reload in between has read the rows itself.
    let before = app.config.compare_and_swap(&now, Arc::clone(&config));
    if Arc::ptr_eq(&before, &now) {
        for vantage in config.admitted.difference(&now.admitted) {
            tracing::info!(%vantage, "approved: taken in");
        }
        for vantage in now.admitted.difference(&config.admitted) {
            tracing::info!(%vantage, "removed or renamed: let go");
        }
        app.hub.announce(News::Vantages);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::vantage;
    use crate::testing;

    #[tokio::test]
    async fn an_approved_vantage_is_taken_in_with_its_labels_and_a_listed_one_stays_as_it_is() {
        let app = testing::app().await;
        let mut connection = app.pool.acquire().await.unwrap();
        let new = "branch-omsk".parse().unwrap();
        let row = vantage::find_or_make(&mut connection, &new).await.unwrap();
        let labels = [("site".to_owned(), "omsk".to_owned())].into();
        vantage::set_labels(&mut connection, row.id, &labels).await.unwrap();
        let rows = vantage::all(&mut connection).await.unwrap();
        take_in(&app, rows.iter()).await.unwrap();
        assert!(!app.config.load().topology.vantages.contains_key(&new), "nobody approved it");
        vantage::change::approve(&mut connection, row.id, "anna").await.unwrap();
        let rows = vantage::all(&mut connection).await.unwrap();
        take_in(&app, rows.iter()).await.unwrap();
        let config = app.config.load();
        assert_eq!(config.topology.vantages[&new].failure_domain.as_str(), "branch-omsk");
        assert_eq!(config.labels[&new], labels);
        assert!(vantage::is_listed(&mut connection, &new).await.unwrap());
        let listed = "branch-kazan".parse().unwrap();
        assert_eq!(config.topology.vantages[&listed], testing::example().topology.vantages[&listed]);
        // Renamed, it is there once, under its name of now; removed, not at all; the file's own stay.
        let renamed = "branch-2".parse().unwrap();
        assert!(vantage::change::rename(&mut connection, row.id, &renamed).await.unwrap());
        take_in(&app, vantage::all(&mut connection).await.unwrap().iter()).await.unwrap();
        let config = app.config.load();
        assert!(config.topology.vantages.contains_key(&renamed) && !config.topology.vantages.contains_key(&new));
        vantage::change::remove(&mut connection, row.id).await.unwrap();
        take_in(&app, vantage::all(&mut connection).await.unwrap().iter()).await.unwrap();
        assert_eq!(*app.config.load_full(), testing::example());
        assert!(!vantage::is_listed(&mut connection, &renamed).await.unwrap());
    }
}
