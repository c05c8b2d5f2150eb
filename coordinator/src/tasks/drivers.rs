//! The drivers that the coordinator itself uses, as the configuration has them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use parallax_decide::change::Change;
use parallax_decide::names::{DomainName, DriverName};
use parallax_driver::rfc2136::{Rfc2136, Rfc2136Config, TsigAlgorithm};
use parallax_driver::{Applied, Driver, DriverError, Reading};

use crate::clock;
use crate::config;
use crate::state::App;

/// Longest wait for one exchange with a DNS server; one apply is at most four in a row.
const EXCHANGE_WITHIN: Duration = Duration::from_secs(2);

/// A driver of any vendor.
pub(crate) trait AnyDriver: Send + Sync {
    /// See [`Driver::read`].
    fn read<'a>(&'a self, name: &'a DomainName) -> BoxFuture<'a, Result<Reading, DriverError>>;
    /// See [`Driver::apply`].
    fn apply<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<Applied, DriverError>>;
}

impl<T: Driver + Send + Sync> AnyDriver for T {
    fn read<'a>(&'a self, name: &'a DomainName) -> BoxFuture<'a, Result<Reading, DriverError>> {
        Box::pin(Driver::read(self, name))
    }

    fn apply<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<Applied, DriverError>> {
        Box::pin(Driver::apply(self, change))
    }
}

/// Finds a driver by its configured name.
pub(crate) type Drivers = Arc<dyn Fn(&DriverName) -> Option<Arc<dyn AnyDriver>> + Send + Sync>;

/// The drivers of the configuration in force at the moment of use.
pub(crate) fn configured(app: &Arc<App>) -> Drivers {
    let app = Arc::clone(app);
    Arc::new(move |name| match app.config.load().drivers.get(name)? {
        config::Driver::Rfc2136(rfc2136) => Some(Arc::new(WithSecretFile { config: rfc2136.clone() })),
    })
}

/// Reads the secret at each use: a rotated key works without a restart, and none lies in memory
/// between two uses.
struct WithSecretFile {
    config: config::Rfc2136,
}

impl WithSecretFile {
    async fn open(&self) -> Result<Rfc2136, DriverError> {
        let config = &self.config;
        let unusable = |why: String| DriverError::Unreachable { server: config.server.to_string(), why };
        let source = config.tsig_secret.clone();
        let read = tokio::task::spawn_blocking(move || source.read()).await;
        let secret = read
            .map_err(|error| unusable(error.to_string()))?
            .map_err(|error| unusable(format!("its TSIG secret, {error}")))?;
        let algorithm = match config.tsig_algorithm {
            config::TsigAlgorithm::HmacSha256 => TsigAlgorithm::HmacSha256,
            config::TsigAlgorithm::HmacSha384 => TsigAlgorithm::HmacSha384,
            config::TsigAlgorithm::HmacSha512 => TsigAlgorithm::HmacSha512,
        };
        let rfc2136 = Rfc2136Config {
            server: config.server,
            zone: config.zone.clone(),
            key_name: config.tsig_name.clone(),
            algorithm,
            secret,
            timeout: EXCHANGE_WITHIN,
        };
        // Signatures are checked against the server's wall clock.
        let wall = Arc::new(|| SystemTime::from(clock::wall()));
        Rfc2136::new(rfc2136, wall).map_err(|error| unusable(format!("{}: {error}", config.tsig_secret)))
    }
}

impl Driver for WithSecretFile {
    async fn read(&self, name: &DomainName) -> Result<Reading, DriverError> {
        Driver::read(&self.open().await?, name).await
    }

    async fn apply(&self, change: &Change) -> Result<Applied, DriverError> {
        Driver::apply(&self.open().await?, change).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_secret_that_cannot_be_used_is_explained_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tsig");
        let driver = WithSecretFile {
            config: config::Rfc2136 {
                server: "127.0.0.1:1".parse().unwrap(),
                zone: "montana.quest".parse().unwrap(),
                tsig_name: "parallax".parse().unwrap(),
                tsig_algorithm: config::TsigAlgorithm::HmacSha256,
                tsig_secret: crate::secret::Source::File(file.clone()),
                mode: parallax_decide::topology::Mode::Act,
            },
        };
        let name: DomainName = "fi.montana.quest".parse().unwrap();
        for (content, says) in [
            (None, "cannot be read"),
            (Some("hunter2!"), "not base64"),
            (Some("hunter2 again"), "illegal characters"),
            (Some(""), "empty"),
        ] {
            if let Some(content) = content {
                std::fs::write(&file, content).unwrap();
            }
            let error = AnyDriver::read(&driver, &name).await.unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("tsig") && !error.contains("hunter2"), "{error}");
        }
        // Read at each use: a key put right needs no restart, and the next trouble is the server's.
        std::fs::write(&file, "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=").unwrap();
        let error = AnyDriver::read(&driver, &name).await.unwrap_err().to_string();
        assert!(error.contains("127.0.0.1:1") && !error.contains("secret"), "{error}");
    }
}
