//! The only source of randomness: the operating system's, through the TLS library.

use std::time::Duration;

/// The operating system gave no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the operating system gave no random bytes; is /dev/urandom missing in this container?")]
pub struct NoEntropy;

/// `N` random bytes.
///
/// # Errors
/// When the operating system gives none.
pub fn bytes<const N: usize>() -> Result<[u8; N], NoEntropy> {
    let mut bytes = [0; N];
    rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes).map_err(|_| NoEntropy)?;
    Ok(bytes)
}

/// For the library that makes keys and signs with them.
#[must_use]
pub fn for_keys() -> ring::rand::SystemRandom {
    ring::rand::SystemRandom::new()
}

/// A random DNS message id.
///
/// # Errors
/// When the operating system gives no randomness: a guessable id must not be sent.
pub fn message_id() -> Result<u16, NoEntropy> {
    bytes().map(u16::from_be_bytes)
}

/// A random duration below `limit` ("full jitter"); `limit` itself when there is no randomness,
/// because waiting long is the harmless side.
#[must_use]
pub fn below(limit: Duration) -> Duration {
    match bytes::<4>() {
        Ok(bytes) => limit.mul_f64(f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX)),
        Err(NoEntropy) => limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_below_its_limit() {
        for _ in 0..100 {
            assert!(below(Duration::from_secs(1)) <= Duration::from_secs(1));
        }
        assert_eq!(below(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn two_draws_differ() {
        assert_ne!(bytes::<16>().unwrap(), bytes::<16>().unwrap());
    }
}
