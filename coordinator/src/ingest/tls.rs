//! What a client certificate says of itself.

use parallax_decide::names::VantageName;
use x509_parser::extensions::GeneralName;

use crate::identity::VANTAGE_URI;
use crate::identity::request::sha256;
use crate::store::certificate::Presented;

/// Longest serial number (RFC 5280, 4.1.2.2), in bytes.
const SERIAL_BYTES_MAX: usize = 20;

/// Reads a certificate that TLS has checked, without who vouches for it.
///
/// # Errors
/// When it names no vantage, or several, or is none of an agent.
pub fn presented(certificate: &[u8]) -> Result<Presented, String> {
    let (_, certificate) =
        x509_parser::parse_x509_certificate(certificate).map_err(|error| format!("not a certificate: {error}"))?;
    let names = certificate.subject_alternative_name().map_err(|error| error.to_string())?;
    let mut uris = names.iter().flat_map(|names| &names.value.general_names).filter_map(|name| {
        // Their enum, not ours: other kinds of name say nothing about the vantage.
        if let GeneralName::URI(uri) = name { uri.strip_prefix(VANTAGE_URI) } else { None }
    });
    let name = match (uris.next(), uris.next()) {
        (Some(name), None) => name.parse().map_err(|error| format!("name of the vantage: {error}"))?,
        (None, _) => return Err(format!("no {VANTAGE_URI}NAME in it; join with a token, or: parallax vantage issue")),
        (Some(_), Some(_)) => return Err("more than one vantage in it".to_owned()),
    };
    let name: VantageName = name;
    let serial = certificate.raw_serial();
    if serial.is_empty() || serial.len() > SERIAL_BYTES_MAX {
        return Err(format!("its serial number has not 1 to {SERIAL_BYTES_MAX} bytes"));
    }
    Ok(Presented {
        serial: serial.to_vec(),
        key_sha256: sha256(certificate.public_key().raw),
        authority_sha256: None,
        name,
        not_before: certificate.validity().not_before.to_datetime(),
        not_after: certificate.validity().not_after.to_datetime(),
    })
}
