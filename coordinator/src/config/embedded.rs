//! `database.embedded:` how much of the disk the embedded database may use. Sizes are written with their unit: 20GiB.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::error::Found;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// Where nothing is said: a month of a network of twenty places at the default intervals takes a few GiB.
pub const DISK_MAX_DEFAULT: u64 = 20 * GIB;

/// Less than this holds hardly more than Postgres' own write-ahead log.
const DISK_MAX_MIN: u64 = GIB;

/// More than this is no embedded database any more.
const DISK_MAX_MAX: u64 = 64 * TIB;

/// `embedded:` of `database:`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmbeddedFile {
    /// Most that it may use of the disk, as in 20GiB.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub disk_max: Option<Spanned<String>>,
}

/// Checks `database.embedded`; the cap in bytes.
pub fn check(file: &EmbeddedFile, found: &mut Found) -> u64 {
    let Some(text) = &file.disk_max else { return DISK_MAX_DEFAULT };
    match bytes(&text.value) {
        Ok(cap) if (DISK_MAX_MIN..=DISK_MAX_MAX).contains(&cap) => return cap,
        Ok(_) => found.at(text, format!("disk_max must be {} to {}", word(DISK_MAX_MIN), word(DISK_MAX_MAX))),
        Err(why) => found.at(text, why),
    }
    DISK_MAX_DEFAULT
}

/// A size as it is written.
#[must_use]
pub fn word(bytes: u64) -> String {
    for (unit, name) in [(TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB")] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{}{name}", bytes / unit);
        }
    }
    format!("{}MiB", bytes.div_ceil(MIB))
}

fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "MiB" => MIB,
        "GiB" => GIB,
        "TiB" => TIB,
        "" => return Err(format!("`{text}` has no unit; write {text}GiB")),
        "G" | "GB" | "g" | "gb" | "M" | "MB" | "T" | "TB" => {
            return Err(format!("`{text}`: write {number}{}iB", unit.trim().to_uppercase().trim_end_matches('B')));
        }
        _ => return Err(format!("`{text}` is no size; write a number with MiB, GiB or TiB, as in 20GiB")),
    };
    let number: u64 = number.parse().map_err(|_| format!("`{text}` needs a whole number before its unit"))?;
    number.checked_mul(unit).ok_or_else(|| format!("`{text}` is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_write_as_people_say_them() {
        for text in ["20GiB", "1536MiB", "2TiB"] {
            assert_eq!(word(bytes(text).unwrap()), text);
        }
        for (wrong, said) in [
            ("20", "write 20GiB"),
            ("20GB", "write 20GiB"),
            ("20 gb", "write 20GiB"),
            ("GiB", "needs a whole number"),
            ("a lot", "is no size"),
            ("99999999999999TiB", "is too large"),
            ("", "has no unit"),
        ] {
            let error = bytes(wrong).unwrap_err();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }
}
