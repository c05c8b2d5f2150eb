//! What a verdict means for who uses its subject: online, offline or unknown. Uptime counts these.
//!
//! Partial is online, and so is what only some places cannot reach: somebody is served. What is not
//! known is never counted as either.

use crate::observation::word_enum;
use crate::verdict::{AddressVerdict, AnswerVerdict, EndpointVerdict, NodeVerdict, VantageVerdict};
use serde::{Deserialize, Serialize};

word_enum! {
    /// Whether it can be used.
    Presence {
        /// It can.
        Online = "online",
        /// It is known that it cannot.
        Offline = "offline",
        /// Nobody knows.
        Unknown = "unknown",
    }
}

impl From<VantageVerdict> for Presence {
    fn from(verdict: VantageVerdict) -> Self {
        match verdict {
            VantageVerdict::Ok | VantageVerdict::Degraded | VantageVerdict::ClockSkewed => Self::Online,
            VantageVerdict::Captive | VantageVerdict::UplinkDown | VantageVerdict::Intercepted => Self::Offline,
            VantageVerdict::Silent | VantageVerdict::Late | VantageVerdict::Suspect | VantageVerdict::Unmeasured => {
                Self::Unknown
            }
        }
    }
}

impl From<AddressVerdict> for Presence {
    fn from(verdict: AddressVerdict) -> Self {
        match verdict {
            AddressVerdict::Ok | AddressVerdict::OkUnproven | AddressVerdict::PartialPath => Self::Online,
            AddressVerdict::Refused
            | AddressVerdict::Silent
            | AddressVerdict::OpenButDead
            | AddressVerdict::Impostor
            | AddressVerdict::CertTime
            | AddressVerdict::PmtuBlackhole
            | AddressVerdict::HttpFailed => Self::Offline,
            AddressVerdict::RefusedByPolicy | AddressVerdict::FamilyUnavailable | AddressVerdict::Unmeasured => {
                Self::Unknown
            }
        }
    }
}

impl From<AnswerVerdict> for Presence {
    fn from(verdict: AnswerVerdict) -> Self {
        match verdict {
            AnswerVerdict::Ok
            | AnswerVerdict::SteeredByVantage
            | AnswerVerdict::PartlyDead
            | AnswerVerdict::PathPartial => Self::Online,
            AnswerVerdict::NotObtained
            | AnswerVerdict::Injected
            | AnswerVerdict::Forged
            | AnswerVerdict::BogusAtResolver
            | AnswerVerdict::Stub
            | AnswerVerdict::Servfail
            | AnswerVerdict::Refused
            | AnswerVerdict::Denied
            | AnswerVerdict::CanaryGone
            | AnswerVerdict::Filtered
            | AnswerVerdict::Private
            | AnswerVerdict::Empty
            | AnswerVerdict::DanglingCname
            | AnswerVerdict::Impostor
            | AnswerVerdict::UnroutableHere
            | AnswerVerdict::DeadEverywhere => Self::Offline,
            AnswerVerdict::InsufficientEvidence | AnswerVerdict::FamilyUnusable => Self::Unknown,
        }
    }
}

impl From<EndpointVerdict> for Presence {
    fn from(verdict: EndpointVerdict) -> Self {
        match verdict {
            // Served from its cache is served, as long as that lasts.
            EndpointVerdict::Ok | EndpointVerdict::ServingStale | EndpointVerdict::StaleCacheMasking => Self::Online,
            EndpointVerdict::Rewrites
            | EndpointVerdict::NoPath
            | EndpointVerdict::Refused
            | EndpointVerdict::PmtuBlackhole
            | EndpointVerdict::TlsFailed
            | EndpointVerdict::HttpFailed
            | EndpointVerdict::Silent
            | EndpointVerdict::AliveNotResolving => Self::Offline,
            EndpointVerdict::InsufficientEvidence | EndpointVerdict::Throttled | EndpointVerdict::Misconfigured => {
                Self::Unknown
            }
        }
    }
}

impl From<NodeVerdict> for Presence {
    fn from(verdict: NodeVerdict) -> Self {
        match verdict {
            NodeVerdict::Ok
            | NodeVerdict::PathPartial
            | NodeVerdict::UnroutableForAudience
            | NodeVerdict::UnroutableFromSome => Self::Online,
            NodeVerdict::ImpostorEverywhere
            | NodeVerdict::CertInvalidEverywhere
            | NodeVerdict::OpenButDead
            | NodeVerdict::RefusingEverywhere
            | NodeVerdict::DeadEverywhere => Self::Offline,
            NodeVerdict::InsufficientEvidence => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_calls_for_another_node_is_offline_and_what_a_client_can_use_is_online() {
        for verdict in NodeVerdict::ALL {
            assert_eq!(Presence::from(*verdict) == Presence::Offline, verdict.gone(), "{verdict}");
        }
        for verdict in AnswerVerdict::ALL {
            assert_eq!(Presence::from(*verdict) == Presence::Online, verdict.usable(), "{verdict}");
        }
    }
}
