//! Why a stream ends, as its agent is told.

use parallax_decide::names::VantageName;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use crate::ingest::admission::{not_listed, refusal};
use crate::ingest::committer::NotStored;
use crate::ingest::in_hand::Full;
use crate::ingest::standing::Cut;

pub(super) fn ending() -> Status {
    Status::unavailable("the coordinator is ending")
}

pub(super) fn busy(Full { come_back_after }: Full) -> Status {
    let mut status = Status::unavailable("more waits for the database than the coordinator can hold; come back later");
    if let Ok(pushback) = come_back_after.as_millis().to_string().parse() {
        status.metadata_mut().insert("grpc-retry-pushback-ms", pushback);
    }
    status
}

pub(super) fn not_stored(why: NotStored, vantage: &VantageName) -> Status {
    match why {
        NotStored::Ending => ending(),
        NotStored::Unknown => cut_off(Cut::WentBack, vantage),
    }
}

/// What was done to the vantage of a stream, as its agent is told.
pub(super) fn cut_off(why: Cut, vantage: &VantageName) -> Status {
    match why {
        Cut::Revoked => {
            refusal(Code::PermissionDenied, "vantage_revoked", &format!("closed: vantage {vantage} was revoked"))
        }
        Cut::KeyRevoked => refusal(
            Code::PermissionDenied,
            "vantage_revoked",
            &format!("closed: this key of vantage {vantage} was revoked"),
        ),
        Cut::Removed => {
            refusal(Code::PermissionDenied, "vantage_unknown", &format!("closed: vantage {vantage} was removed"))
        }
        Cut::NotListed => not_listed(vantage.as_str(), "is no longer in the coordinator's configuration"),
        Cut::WentBack => {
            Status::unavailable("closed: the coordinator's database went back to an earlier state; connect again")
        }
        Cut::Renamed => Status::unavailable(format!("closed: vantage {vantage} has another name now; connect again")),
    }
}

/// Why a stream is ended for another one. An agent that is replaced again and again learns so that another machine uses
/// its identity.
pub(super) fn replaced() -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert("reason", MetadataValue::from_static("replaced"));
    Status::with_metadata(Code::Aborted, "closed: replaced by a newer stream of this vantage", metadata)
}
