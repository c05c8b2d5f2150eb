//! An identity issued by hand, for an agent that cannot join with a token.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parallax_decide::names::VantageName;
use rcgen::KeyPair;
use time::OffsetDateTime;

use super::authority::Issued;
use super::bundle::Bundle;
use super::files::{cannot, write_new};
use super::signer::Signers;
use crate::error::{Exit, Failure};

/// Writes `ca.pem`, `certificate.pem`, `key.pem` (0600) and `signers.txt` of a vantage into a folder.
///
/// # Errors
/// When one of them is there already, or the folder cannot be written.
pub fn write(
    bundle: &Bundle,
    signers: &Signers,
    vantage: &VantageName,
    (folder, life): (&Path, std::time::Duration),
    now: OffsetDateTime,
) -> Result<Issued, Failure> {
    let failed = |why: rcgen::Error| Failure::new(Exit::Failed, "cannot issue the certificate").why(why);
    let files = ["ca.pem", "certificate.pem", "key.pem", "signers.txt"].map(|name| folder.join(name));
    if let Some(there) = files.iter().find(|file| file.exists()) {
        return Err(Failure::new(Exit::Refused, format!("{} is there already", there.display()))
            .why("an identity is never overwritten: an agent may be using it")
            .fix("choose another folder with --out, or move the old identity away"));
    }
    let key = KeyPair::generate().map_err(failed)?;
    let issued = bundle.issuing()?.issue(vantage, &key, life, now).map_err(failed)?;
    fs::create_dir_all(folder).map_err(|error| cannot("make", folder, error))?;
    let [ca_file, certificate_file, key_file, signers_file] = files;
    write_new(&key_file, &key.serialize_pem(), 0o600)?;
    write_new(&certificate_file, &issued.pem, 0o644)?;
    let keys: String = signers.all().map(|one| STANDARD.encode(one.public()) + "\n").collect();
    let about = "# Keys that may sign what this agent is ordered to do: Ed25519, base64, one a line.\n";
    write_new(&signers_file, &format!("{about}{keys}"), 0o644)?;
    write_new(&ca_file, &bundle.trusted().map(|one| pem(one)).collect::<String>(), 0o644)?;
    Ok(issued)
}

/// A certificate as text (RFC 7468).
fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut out = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, further) = rest.split_at(rest.len().min(64));
        out.push_str(line);
        out.push('\n');
        rest = further;
    }
    out.push_str("-----END CERTIFICATE-----\n");
    out
}
