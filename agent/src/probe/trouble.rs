//! What a kernel error says, in one place.

use std::io;

use nix::errno::Errno;
use parallax_decide::observation::{Outcome, Stage};

use crate::dial::{errno, told};

/// The kernel's errors as the few kinds that matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// RST to our SYN, or ICMP port unreachable.
    Refused,
    /// Reset or closed in mid-exchange.
    Reset,
    /// Nothing came back.
    Silent,
    /// ICMP: host unreachable. Before Linux 6.2 also what IPv4 prohibits over TCP (the table
    /// `icmp_err_convert` of the kernel).
    HostUnreachable,
    /// ICMP: network unreachable.
    NetUnreachable,
    /// ICMP: administratively prohibited.
    AdminProhibited,
    /// This machine has no route to the address, while its family has one elsewhere.
    NoRoute,
    /// This machine has no way out for the whole family.
    FamilyUnavailable,
    /// No descriptor, no source port, no memory, a local filter: says nothing about the peer.
    Own,
}

/// What an error says. An error we do not know is own trouble: it must accuse nobody.
#[must_use]
pub fn trouble(error: &io::Error) -> Trouble {
    if let Some(outcome) = told(error) {
        return Trouble::of(outcome);
    }
    match errno(error) {
        Some(Errno::ECONNREFUSED) => return Trouble::Refused,
        // A peer that resets right after its SYN-ACK leaves a socket that is "not connected".
        Some(Errno::ECONNRESET | Errno::ECONNABORTED | Errno::EPIPE | Errno::ENOTCONN) => return Trouble::Reset,
        Some(Errno::ETIMEDOUT) => return Trouble::Silent,
        // The last one: ICMP "protocol unreachable".
        Some(Errno::EHOSTUNREACH | Errno::EHOSTDOWN | Errno::ENOPROTOOPT) => return Trouble::HostUnreachable,
        // So arrives what IPv6 prohibits where there is no error queue to read.
        Some(Errno::EACCES) => return Trouble::AdminProhibited,
        Some(Errno::ENETUNREACH | Errno::ENONET) => return Trouble::NetUnreachable,
        Some(_) | None => {}
    }
    // Errors made by libraries carry a kind and no number.
    if error.kind() == io::ErrorKind::ConnectionRefused {
        Trouble::Refused
    } else if matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
    ) {
        Trouble::Reset
    } else if error.kind() == io::ErrorKind::TimedOut {
        Trouble::Silent
    } else {
        Trouble::Own
    }
}

impl Trouble {
    /// An outcome that the dialer told.
    fn of(outcome: Outcome) -> Self {
        [
            (Outcome::ConnectionRefused, Self::Refused),
            (Outcome::HostUnreachable, Self::HostUnreachable),
            (Outcome::NetUnreachable, Self::NetUnreachable),
            (Outcome::AdminProhibited, Self::AdminProhibited),
            (Outcome::NoRoute, Self::NoRoute),
            (Outcome::FamilyUnavailable, Self::FamilyUnavailable),
        ]
        .into_iter()
        .find_map(|(told, trouble)| (told == outcome).then_some(trouble))
        .unwrap_or(Self::Own)
    }

    /// As the outcome of a question that had come to this stage.
    #[must_use]
    pub fn at(self, stage: Stage) -> Outcome {
        match self {
            Self::Refused => Outcome::ConnectionRefused,
            Self::Silent => silence(stage),
            Self::HostUnreachable => Outcome::HostUnreachable,
            Self::NetUnreachable => Outcome::NetUnreachable,
            Self::AdminProhibited => Outcome::AdminProhibited,
            Self::NoRoute => Outcome::NoRoute,
            Self::FamilyUnavailable => Outcome::FamilyUnavailable,
            Self::Own => Outcome::OwnTrouble,
            Self::Reset => match stage {
                Stage::Bootstrap | Stage::Tcp => Outcome::Reset,
                Stage::Tls => Outcome::TlsReset,
                Stage::Http => Outcome::HttpClosed,
                Stage::Dns => Outcome::DnsClosed,
            },
        }
    }
}

/// Nothing came back before the deadline at this stage.
#[must_use]
pub fn silence(stage: Stage) -> Outcome {
    match stage {
        Stage::Tcp => Outcome::Silent,
        Stage::Tls => Outcome::TlsSilent,
        Stage::Http => Outcome::HttpSilent,
        // The bootstrap is a question too.
        Stage::Bootstrap | Stage::Dns => Outcome::DnsSilent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_their_names() {
        for (number, expected) in [
            (Errno::ECONNREFUSED, Trouble::Refused),
            (Errno::ECONNRESET, Trouble::Reset),
            (Errno::ENOTCONN, Trouble::Reset),
            (Errno::ETIMEDOUT, Trouble::Silent),
            (Errno::EHOSTUNREACH, Trouble::HostUnreachable),
            (Errno::ENETUNREACH, Trouble::NetUnreachable),
            (Errno::EACCES, Trouble::AdminProhibited),
            (Errno::EMFILE, Trouble::Own),
            (Errno::EADDRNOTAVAIL, Trouble::Own),
            (Errno::EPERM, Trouble::Own),
        ] {
            assert_eq!(trouble(&io::Error::from(number)), expected, "{number}");
        }
        assert_eq!(trouble(&io::ErrorKind::UnexpectedEof.into()), Trouble::Reset);
        assert_eq!(trouble(&io::Error::other("what is this")), Trouble::Own);
    }
}
