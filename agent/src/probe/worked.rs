//! Which endpoints have ever worked from here, each in its form: an endpoint that refuses a form it
//! never took is misconfigured, one that refuses what it used to take is broken.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::assignment::{Resolver, Transport};
use crate::spool::disk::{read_checked, write_checked};

/// Name of the file in the state folder: one endpoint a line, the oldest first.
const FILE: &str = "worked";

/// Most endpoints remembered: four times what an assignment holds, for those that come and go.
const REMEMBERED_MAX: usize = 256;

/// Longest line, in bytes: a resolver's name, its form, and a URL or address.
const LINE_BYTES_MAX: usize = 1024;

/// What worked, in memory and in a file that is written only when something worked for the first time.
#[derive(Debug)]
pub struct Worked {
    file: Option<PathBuf>,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// In order of first success.
    worked: VecDeque<String>,
    /// Misconfigurations that were told.
    told: BTreeSet<String>,
}

impl Worked {
    /// What earlier runs kept in the state folder. A file that cannot be read is left out: it is
    /// learnt again.
    #[must_use]
    pub fn open(state: &Path) -> Self {
        let file = state.join(FILE);
        let bytes = read_checked(&file).unwrap_or_else(|error| {
            tracing::warn!(file = %file.display(), %error, "which endpoints ever worked is not known; it is learnt again");
            None
        });
        let text = String::from_utf8(bytes.unwrap_or_default()).unwrap_or_default();
        let worked = text.lines().filter(|line| line.len() <= LINE_BYTES_MAX).take(REMEMBERED_MAX);
        let held = Held { worked: worked.map(str::to_owned).collect(), told: BTreeSet::new() };
        Self { file: Some(file), held: Mutex::new(held) }
    }

    /// Remembers until the process ends.
    #[must_use]
    pub fn in_memory() -> Self {
        Self { file: None, held: Mutex::default() }
    }

    /// Whether this endpoint has ever worked from here in this form.
    #[must_use]
    pub fn has(&self, resolver: &Resolver) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).worked.contains(&line(resolver))
    }

    /// Notes that it works.
    pub fn note(&self, resolver: &Resolver) {
        let line = line(resolver);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.told.remove(&line);
        if line.len() > LINE_BYTES_MAX || held.worked.contains(&line) {
            return;
        }
        held.worked.push_back(line);
        while held.worked.len() > REMEMBERED_MAX {
            held.worked.pop_front();
        }
        let Some(file) = &self.file else { return };
        let mut text = String::new();
        for line in &held.worked {
            text.push_str(line);
            text.push('\n');
        }
        if let Err(error) = write_checked(file, text.as_bytes()) {
            tracing::warn!(file = %file.display(), %error, "that an endpoint works is remembered only until the next start");
        }
    }

    /// Whether a misconfiguration of this endpoint is to be told: the first time.
    #[must_use]
    pub fn tells(&self, resolver: &Resolver) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.told.len() >= REMEMBERED_MAX {
            held.told.clear();
        }
        held.told.insert(line(resolver))
    }
}

/// An endpoint in its form, as one line.
fn line(resolver: &Resolver) -> String {
    let name = &resolver.name;
    match &resolver.transport {
        Transport::Live => format!("{name} live"),
        Transport::Plain { server } => format!("{name} udp {server}"),
        Transport::Tcp { server } => format!("{name} tcp {server}"),
        Transport::Dot { server, server_name } => format!("{name} dot {server} {server_name}"),
        Transport::Doh(endpoint) => format!("{name} doh {:?} {:?} {}", endpoint.form, endpoint.http, endpoint.url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolver(name: &str, server: &str) -> Resolver {
        Resolver { name: name.parse().unwrap(), transport: Transport::Tcp { server: server.parse().unwrap() } }
    }

    #[test]
    fn it_is_known_after_a_restart_and_another_form_is_another_endpoint() {
        let state = tempfile::tempdir().unwrap();
        let (one, moved) = (resolver("one", "9.9.9.9:53"), resolver("one", "9.9.9.10:53"));
        let worked = Worked::open(state.path());
        assert!(!worked.has(&one));
        worked.note(&one);
        let written = std::fs::metadata(state.path().join(FILE)).unwrap().modified().unwrap();
        worked.note(&one);
        assert_eq!(std::fs::metadata(state.path().join(FILE)).unwrap().modified().unwrap(), written);
        let again = Worked::open(state.path());
        assert!(again.has(&one) && !again.has(&moved));
    }

    #[test]
    fn it_is_bounded_and_a_broken_file_is_left_out() {
        let state = tempfile::tempdir().unwrap();
        let worked = Worked::in_memory();
        for port in 1..=300 {
            worked.note(&resolver("one", &format!("9.9.9.9:{port}")));
        }
        assert!(!worked.has(&resolver("one", "9.9.9.9:44")) && worked.has(&resolver("one", "9.9.9.9:45")));
        std::fs::write(state.path().join(FILE), "rubbish").unwrap();
        assert!(!Worked::open(state.path()).has(&resolver("one", "9.9.9.9:300")));
    }

    #[test]
    fn a_misconfiguration_is_told_once_and_again_after_it_was_put_right() {
        let (worked, one) = (Worked::in_memory(), resolver("one", "9.9.9.9:53"));
        assert!(worked.tells(&one) && !worked.tells(&one));
        worked.note(&one);
        assert!(worked.tells(&one));
    }
}
