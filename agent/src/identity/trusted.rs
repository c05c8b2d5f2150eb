//! Whom an agent trusts: authorities, signers of orders, coordinators. From the wire into what cannot
//! be wrong: a list of which one part is rubbish changes nothing.

use parallax_proto::{COORDINATORS_MAX, TRUSTED_MAX, v1};
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;

use super::key::pem;
use super::signers::Signer;
use crate::uplink::address::Coordinator;

/// Whom to trust from now on. An empty list replaces nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trusted {
    /// Certificates of authorities.
    pub authorities: Vec<CertificateDer<'static>>,
    /// Keys that may sign orders.
    pub signers: Vec<Signer>,
    /// Coordinators, in the order in which they are tried.
    pub coordinators: Vec<Coordinator>,
}

/// Why a list is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotTrusted {
    /// One of the lists is longer than allowed.
    #[error("it has more than {max} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many are allowed.
        max: usize,
    },
    /// An authority is none.
    #[error("one of its authorities is no certificate that can be trusted: {0}")]
    Authority(String),
    /// A signer is none.
    #[error("one of its signers has not 32 bytes")]
    Signer,
    /// A coordinator is none.
    #[error("one of its coordinators is not HOST:PORT")]
    Coordinator,
}

impl TryFrom<&v1::Trust> for Trusted {
    type Error = NotTrusted;

    fn try_from(wire: &v1::Trust) -> Result<Self, NotTrusted> {
        let counted = [
            ("authorities", wire.authorities.len(), TRUSTED_MAX),
            ("signers", wire.signers.len(), TRUSTED_MAX),
            ("coordinators", wire.coordinators.len(), COORDINATORS_MAX),
        ];
        if let Some((what, _, max)) = counted.into_iter().find(|(_, count, max)| count > max) {
            return Err(NotTrusted::TooMany { what, max });
        }
        let mut store = RootCertStore::empty();
        let authorities = wire.authorities.iter().map(|der| {
            let certificate = CertificateDer::from(der.clone());
            store.add(certificate.clone()).map_err(|error| NotTrusted::Authority(error.to_string()))?;
            Ok(certificate)
        });
        let authorities = authorities.collect::<Result<_, NotTrusted>>()?;
        let signers: Option<_> = wire.signers.iter().map(|bytes| Signer::from_bytes(bytes)).collect();
        let coordinators: Result<_, _> = wire.coordinators.iter().map(|text| text.parse()).collect();
        Ok(Self {
            authorities,
            signers: signers.ok_or(NotTrusted::Signer)?,
            coordinators: coordinators.map_err(|_| NotTrusted::Coordinator)?,
        })
    }
}

impl Trusted {
    /// The authorities as the file `ca.pem` has them.
    #[must_use]
    pub fn authorities_pem(&self) -> String {
        self.authorities.iter().map(|der| pem("CERTIFICATE", der)).collect()
    }

    /// The coordinators as the file `coordinators.txt` has them.
    #[must_use]
    pub fn coordinators_text(&self) -> String {
        self.coordinators.iter().map(|one| format!("{one}\n")).collect()
    }
}

/// Reads the file `coordinators.txt`.
///
/// # Errors
/// What is wrong with it.
pub fn coordinators(text: &[u8]) -> Result<Vec<Coordinator>, &'static str> {
    let text = std::str::from_utf8(text).map_err(|_| "it is no text")?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let read: Result<Vec<Coordinator>, _> = lines.take(COORDINATORS_MAX + 1).map(str::parse).collect();
    let read = read.map_err(|_| "a line of it is not HOST:PORT")?;
    if read.len() > COORDINATORS_MAX { Err("it has more than 16 lines") } else { Ok(read) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::signers::tests::Hand;
    use crate::probe::testing::Authority;

    fn wire() -> v1::Trust {
        v1::Trust {
            authorities: vec![Authority::new().der(), Authority::new().der()],
            signers: vec![Hand::new().bytes()],
            coordinators: vec!["a.example:8443".to_owned(), "[2001:db8::1]:443".to_owned()],
        }
    }

    #[test]
    fn lists_become_files_and_files_lists() {
        let wire = wire();
        let trusted = Trusted::try_from(&wire).unwrap();
        let read = crate::tls::certificates(trusted.authorities_pem().as_bytes()).unwrap();
        assert_eq!(read, trusted.authorities);
        assert_eq!(coordinators(trusted.coordinators_text().as_bytes()).unwrap(), trusted.coordinators);
        assert_eq!(Trusted::try_from(&v1::Trust::default()).unwrap(), Trusted::default());
    }

    #[test]
    fn one_wrong_part_and_nothing_is_taken() {
        for wrong in [
            v1::Trust { authorities: vec![vec![0x30, 0]], ..wire() },
            v1::Trust { authorities: vec![wire().authorities[0].clone(); 9], ..wire() },
            v1::Trust { signers: vec![vec![1; 31]], ..wire() },
            v1::Trust { signers: vec![vec![1; 32]; 9], ..wire() },
            v1::Trust { coordinators: vec!["a:1".to_owned(); 17], ..wire() },
            v1::Trust { coordinators: vec!["a b:1".to_owned()], ..wire() },
            v1::Trust { coordinators: vec!["a:1\nb:2".to_owned()], ..wire() },
        ] {
            assert!(Trusted::try_from(&wrong).is_err(), "{wrong:?}");
        }
        assert!(coordinators("a:1\n".repeat(17).as_bytes()).is_err());
        assert!(coordinators(b"nothing").is_err());
    }
}
