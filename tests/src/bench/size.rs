//! P4: the shipped file itself.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::figure::Figure;
use crate::lab::process;

/// Bytes of ELF's program header entry, little-endian 64 bit (elf(5)).
const HEADER_BYTES: usize = 56;
/// Type of the entry that names a dynamic linker.
const PT_INTERP: u32 = 3;
/// Type of a section with symbols.
const SHT_SYMTAB: u32 = 2;

/// The figures.
///
/// # Errors
/// The file cannot be read or does not run.
pub async fn figures(binary: &Path) -> Result<Vec<Figure>> {
    let bytes = std::fs::read(binary).with_context(|| format!("reading {}", binary.display()))?;
    let version = process::run(None, binary, &["--version"]).await?;
    let facts = Elf::read(&bytes).with_context(|| format!("{} is no 64-bit ELF file", binary.display()))?;
    ensure!(version.contains("parallax-agent"), "{} says {version:?}", binary.display());
    let note = format!(
        "{}, {}; it runs: {}",
        if facts.interpreter { "needs a dynamic linker" } else { "static" },
        if facts.symbols { "with symbols" } else { "stripped" },
        version.trim()
    );
    let megabytes = megabytes(bytes.len());
    let figure = Figure::new("P4.size", "MB", Some(megabytes), Some(6.0)).note(&note);
    // One file or it does not count.
    Ok(vec![Figure { ok: Some(megabytes <= 6.0 && !facts.interpreter && !facts.symbols), ..figure }])
}

#[expect(clippy::cast_precision_loss, reason = "some megabytes")]
fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

/// What `file` and `ldd` would tell.
#[derive(Debug, PartialEq, Eq)]
struct Elf {
    interpreter: bool,
    symbols: bool,
}

impl Elf {
    fn read(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize, length: usize| -> Option<u64> {
            let bytes = bytes.get(at..at.checked_add(length)?)?;
            Some(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
        };
        let place = |at: usize| usize::try_from(number(at, 8)?).ok();
        let short = |at: usize| usize::try_from(number(at, 2)?).ok();
        // Magic, 64 bit, little-endian.
        if bytes.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let (programs, sections) = (place(32)?, place(40)?);
        let (program_count, section_size, section_count) = (short(56)?, short(58)?, short(60)?);
        let kind = |at: usize| number(at, 4).and_then(|kind| u32::try_from(kind).ok());
        let interpreter = (0..program_count).any(|n| kind(programs + n * HEADER_BYTES) == Some(PT_INTERP));
        let symbols = (0..section_count).any(|n| kind(sections + n * section_size + 4) == Some(SHT_SYMTAB));
        Some(Self { interpreter, symbols })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_test_is_an_elf_file_with_symbols() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        assert!(Elf::read(&bytes).unwrap().symbols);
        assert_eq!(Elf::read(b"#!/bin/sh"), None);
    }
}
