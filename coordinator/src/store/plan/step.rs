//! The words of a plan's journal.

/// A step of a plan, in its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Written before the change is sent.
    Intent,
    /// What the driver found.
    Read,
    /// Written and read back.
    Applied,
    /// Stood already.
    Already,
    /// Somebody else's data was there.
    Conflict,
    /// A guard, the server or the branch's owner said no.
    Refused,
    /// The driver failed; nothing was changed.
    Failed,
    /// Perhaps applied.
    Uncertain,
    /// A vantage's clients see and use it.
    Proof,
    /// Nobody did in time.
    ProofFailed,
    /// Everybody concerned does.
    Verified,
    /// Another holder of the lease goes on with it.
    TakenOver,
    /// A pin's life was extended.
    Renewed,
    /// Not applied in time.
    Expired,
}

impl Step {
    /// The word in SQL.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Intent => "intent",
            Self::Read => "read",
            Self::Applied => "applied",
            Self::Already => "already",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Uncertain => "uncertain",
            Self::Proof => "proof",
            Self::ProofFailed => "proof_failed",
            Self::Verified => "verified",
            Self::TakenOver => "taken_over",
            Self::Renewed => "renewed",
            Self::Expired => "expired",
        }
    }
}
