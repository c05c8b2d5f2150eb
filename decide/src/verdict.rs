//! The words of judgement. Each is one row of a table; the modules that decide say which.

use serde::{Deserialize, Serialize};

use crate::observation::word_enum;

word_enum! {
    /// May a vantage speak? Decided in [`crate::vantage`].
    VantageVerdict {
        /// No report for longer than the policy's `silent_after`.
        Silent = "vantage_silent",
        /// Reports again, but so far only what is too old to vote.
        Late = "vantage_late",
        /// It showed a proof of life that does not hold, or two machines report under its identity: nothing it says counts.
        Suspect = "vantage_suspect",
        /// Reports, but no control was measured lately: it has not earned its vote.
        Unmeasured = "vantage_unmeasured",
        /// The captive-portal question was answered by somebody else.
        Captive = "vantage_captive",
        /// No positive control was reached: an island.
        UplinkDown = "vantage_uplink_down",
        /// The negative control answered: something accepts every connection.
        Intercepted = "vantage_intercepted",
        /// Only a minority of the positive controls was reached.
        Degraded = "vantage_degraded",
        /// Its clock is wrong: what it says of a certificate's time does not count.
        ClockSkewed = "vantage_clock_skewed",
        /// May accuse and acquit.
        Ok = "vantage_ok",
    }
}

word_enum! {
    /// An address as seen from one vantage. Decided in [`crate::reach`].
    AddressVerdict {
        /// Special-purpose or forbidden by the owner; never contacted.
        RefusedByPolicy = "addr_refused_by_policy",
        /// The vantage lacks the whole family.
        FamilyUnavailable = "addr_family_unavailable",
        /// TLS for the name completed.
        Ok = "addr_ok",
        /// TCP only, by configuration.
        OkUnproven = "addr_ok_unproven",
        /// Some attempts get through and some do not, more than is usual there. Neither proven nor dead.
        PartialPath = "addr_partial_path",
        /// RST to every attempt.
        Refused = "addr_refused",
        /// Nothing came back, or ICMP unreachable.
        Silent = "addr_silent",
        /// TCP works, TLS hangs, is reset or is not spoken.
        OpenButDead = "addr_open_but_dead",
        /// Certificate for another name or of an unknown authority.
        Impostor = "addr_impostor",
        /// Certificate expired or not yet valid.
        CertTime = "addr_cert_time",
        /// TLS hangs, and completes with small segments.
        PmtuBlackhole = "addr_pmtu_blackhole",
        /// An HTTP answer other than expected, or none.
        HttpFailed = "addr_http_failed",
        /// Not measured, stale, or too few agreeing probes.
        Unmeasured = "addr_unmeasured",
    }
}

word_enum! {
    /// One name as one resolver answers it at one vantage. Decided in [`crate::answer`].
    AnswerVerdict {
        /// Too little to say anything.
        InsufficientEvidence = "insufficient_evidence",
        /// The resolver gave no DNS answer; its own check says why.
        NotObtained = "answer_not_obtained",
        /// Two different replies to one question: somebody on the path forges them.
        Injected = "answer_injected",
        /// A signed name whose signatures do not hold here.
        Forged = "answer_forged",
        /// SERVFAIL, because the zone's signatures do not hold: the zone's fault.
        BogusAtResolver = "answer_bogus_at_resolver",
        /// SERVFAIL.
        Servfail = "answer_servfail",
        /// REFUSED or another error code.
        Refused = "answer_refused",
        /// NXDOMAIN here, an answer at another resolver.
        Denied = "answer_denied",
        /// NXDOMAIN at every resolver: the canary itself is gone.
        CanaryGone = "canary_gone",
        /// 0.0.0.0 or ::, or a reply that says that it keeps the answer back.
        Filtered = "answer_filtered",
        /// A special-purpose address for a public name.
        Private = "answer_private",
        /// Only addresses that are known to stand for a block, none of them proven.
        Stub = "answer_stub",
        /// Only addresses of a family this vantage lacks; no fault.
        FamilyUnusable = "answer_family_unusable",
        /// NOERROR without an address.
        Empty = "answer_empty",
        /// NOERROR with a CNAME that leads to no address.
        DanglingCname = "answer_dangling_cname",
        /// Some addresses proven, some dead.
        PartlyDead = "answer_partly_dead",
        /// Proven, and disjoint from another vantage's proven answer; no fault.
        SteeredByVantage = "answer_steered_by_vantage",
        /// Proven.
        Ok = "answer_ok",
        /// None proven, and the path to some loses a part of the flows.
        PathPartial = "answer_path_partial",
        /// Every address answers with a stranger's certificate.
        Impostor = "answer_impostor",
        /// Dead here, and another vantage proves one of these same addresses.
        UnroutableHere = "answer_unroutable_here",
        /// Dead here and at another vantage, proven nowhere.
        DeadEverywhere = "answer_dead_everywhere",
    }
}

impl AnswerVerdict {
    /// Whether a client that gets this answer can use it.
    #[must_use]
    pub fn usable(self) -> bool {
        match self {
            Self::Ok | Self::SteeredByVantage | Self::PartlyDead | Self::PathPartial => true,
            Self::InsufficientEvidence
            | Self::NotObtained
            | Self::Injected
            | Self::Forged
            | Self::BogusAtResolver
            | Self::Stub
            | Self::Servfail
            | Self::Refused
            | Self::Denied
            | Self::CanaryGone
            | Self::Filtered
            | Self::Private
            | Self::FamilyUnusable
            | Self::Empty
            | Self::DanglingCname
            | Self::Impostor
            | Self::UnroutableHere
            | Self::DeadEverywhere => false,
        }
    }
}

word_enum! {
    /// A resolver's endpoint as seen from one vantage, by three cold questions. Decided in [`crate::endpoint`].
    EndpointVerdict {
        /// Too little to say anything.
        InsufficientEvidence = "insufficient_evidence",
        /// Works, and gives an address for a name that does not exist.
        Rewrites = "endpoint_rewrites",
        /// Answers what it is asked.
        Ok = "endpoint_ok",
        /// Asks to be asked less often.
        Throttled = "endpoint_throttled",
        /// Never once took what it is asked: the configuration is wrong, not the endpoint.
        Misconfigured = "probe_misconfigured",
        /// No TCP.
        NoPath = "endpoint_no_path",
        /// RST.
        Refused = "endpoint_refused",
        /// TLS hangs, and completes with small segments.
        PmtuBlackhole = "endpoint_pmtu_blackhole",
        /// TLS hangs, is reset, ends with an alert or a certificate that cannot be accepted.
        TlsFailed = "endpoint_tls_failed",
        /// Another HTTP answer than one with a DNS message.
        HttpFailed = "endpoint_http_failed",
        /// The question was sent, and nothing came back.
        Silent = "endpoint_silent",
        /// Known names from its cache, and nothing fresh.
        ServingStale = "endpoint_serving_stale",
        /// Replies, and resolves nothing.
        AliveNotResolving = "endpoint_alive_not_resolving",
        /// Dead in one of these ways, while the live resolver in front of it still answers from its cache.
        StaleCacheMasking = "stale_cache_masking_dead_endpoint",
    }
}

impl EndpointVerdict {
    /// Whether it does not resolve for us.
    #[must_use]
    pub fn dead(self) -> bool {
        match self {
            Self::NoPath
            | Self::Refused
            | Self::PmtuBlackhole
            | Self::TlsFailed
            | Self::HttpFailed
            | Self::Silent
            | Self::ServingStale
            | Self::AliveNotResolving
            | Self::StaleCacheMasking => true,
            Self::InsufficientEvidence | Self::Rewrites | Self::Ok | Self::Throttled | Self::Misconfigured => false,
        }
    }
}

word_enum! {
    /// A node of ours across all vantages. Decided in [`crate::node`].
    NodeVerdict {
        /// Alive somewhere, dead nowhere.
        Ok = "node_ok",
        /// Partly reached somewhere, dead nowhere.
        PathPartial = "node_path_partial",
        /// Alive outside the audience alone; two places of the audience in two failure domains find it dead.
        UnroutableForAudience = "node_unroutable_for_audience",
        /// Alive somewhere and dead somewhere.
        UnroutableFromSome = "node_unroutable_from_some",
        /// Fewer than two accusers, or all in one failure domain.
        InsufficientEvidence = "insufficient_evidence",
        /// All accusers got a stranger's certificate.
        ImpostorEverywhere = "node_impostor_everywhere",
        /// All accusers got a certificate out of its time.
        CertInvalidEverywhere = "node_cert_invalid_everywhere",
        /// All accusers completed TCP and nothing more.
        OpenButDead = "node_open_but_dead",
        /// All accusers were refused.
        RefusingEverywhere = "node_refusing_everywhere",
        /// All accusers find it dead, each in its way.
        DeadEverywhere = "node_dead_everywhere",
    }
}

impl NodeVerdict {
    /// Whether the verdict calls for serving the name from another node.
    #[must_use]
    pub fn gone(self) -> bool {
        match self {
            Self::ImpostorEverywhere
            | Self::CertInvalidEverywhere
            | Self::OpenButDead
            | Self::RefusingEverywhere
            | Self::DeadEverywhere => true,
            Self::Ok
            | Self::PathPartial
            | Self::UnroutableForAudience
            | Self::UnroutableFromSome
            | Self::InsufficientEvidence => false,
        }
    }
}

word_enum! {
    /// The fleet as a whole. A freeze comes before every other judgement.
    FleetVerdict {
        /// At least one vantage reports and passes its controls.
        Ok = "fleet_ok",
        /// Nobody reports: the coordinator itself is cut off.
        CoordinatorIsolated = "freeze_coordinator_isolated",
        /// Vantages report and none passes a control: it is us, or the controls.
        ControlsFailed = "freeze_controls_failed",
    }
}

impl FleetVerdict {
    /// Whether every record is frozen.
    #[must_use]
    pub fn frozen(self) -> bool {
        match self {
            Self::CoordinatorIsolated | Self::ControlsFailed => true,
            Self::Ok => false,
        }
    }
}
