//! What there is to say about the uplink, for people and for metrics.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::certificate::Validity;
use crate::clock::{Instant, now, since};
use crate::recorder::Recorder;

/// The uplink's state, shared. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Status {
    inner: Arc<Mutex<Inner>>,
    recorder: Recorder,
}

#[derive(Debug, Default)]
struct Inner {
    connected: Option<(String, Instant)>,
    last_ack: Option<Instant>,
    trouble: Option<&'static str>,
    certificate: Option<Validity>,
    connects: u64,
    set_aside: u64,
    not_obeyed: u64,
}

/// The state at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// The coordinator with which a stream stands, as `HOST:PORT`.
    pub coordinator: Option<String>,
    /// For how long it has stood, in seconds.
    pub connected_s: Option<u64>,
    /// Since the last acknowledgement, in seconds.
    pub last_ack_age_s: Option<u64>,
    /// Why there is no stream, in one word.
    pub trouble: Option<&'static str>,
    /// Last second in which our certificate holds, in seconds since 1970.
    pub certificate_not_after_s: Option<i64>,
    /// This machine's wall clock less the coordinator's, in ms.
    pub clock_offset_ms: Option<i64>,
    /// Streams since the start.
    pub connects: u64,
    /// Observations the coordinator could not take, set aside.
    pub set_aside: u64,
    /// Orders since the start that were not obeyed, because of who signed them.
    pub not_obeyed: u64,
    /// Whether observations wait to be sent.
    pub unsent: bool,
    /// Observations that were dropped since the start.
    pub lost: u64,
    /// Why the disk takes no observations; `None`: it does.
    pub disk_trouble: Option<String>,
}

impl Status {
    /// Of the uplink that sends what is recorded there.
    #[must_use]
    pub fn new(recorder: Recorder) -> Self {
        Self { inner: Arc::default(), recorder }
    }

    /// The state now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let (unsent, lost, disk_trouble) = {
            let spool = self.recorder.spool();
            (spool.has_unsent(), spool.lost(), spool.trouble().map(str::to_owned))
        };
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        Snapshot {
            coordinator: inner.connected.as_ref().map(|(coordinator, _)| coordinator.clone()),
            connected_s: inner.connected.as_ref().map(|(_, at)| since(*at).as_secs()),
            last_ack_age_s: inner.last_ack.map(|at| since(at).as_secs()),
            trouble: inner.trouble,
            certificate_not_after_s: inner.certificate.map(|validity| validity.not_after_s),
            clock_offset_ms: self.recorder.clock().ms(),
            connects: inner.connects,
            set_aside: inner.set_aside,
            not_obeyed: inner.not_obeyed,
            unsent,
            lost,
            disk_trouble,
        }
    }

    pub(super) fn connected(&self, coordinator: String) {
        self.with(|inner| {
            inner.connected = Some((coordinator, now()));
            inner.trouble = None;
            inner.connects = inner.connects.saturating_add(1);
        });
    }

    pub(super) fn lost(&self, word: &'static str) {
        self.with(|inner| {
            inner.connected = None;
            inner.trouble = Some(word);
        });
    }

    pub(super) fn acked(&self) {
        self.with(|inner| inner.last_ack = Some(now()));
    }

    pub(super) fn set_aside(&self) {
        self.with(|inner| inner.set_aside = inner.set_aside.saturating_add(1));
    }

    pub(super) fn not_obeyed(&self) {
        self.with(|inner| inner.not_obeyed = inner.not_obeyed.saturating_add(1));
    }

    pub(super) fn holds(&self, certificate: Validity) {
        self.with(|inner| inner.certificate = Some(certificate));
    }

    fn with(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
