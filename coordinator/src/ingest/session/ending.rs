//! Why a stream ends, as its agent is told.

use parallax_decide::names::VantageName;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use crate::hub::Place;
use crate::ingest::admission::refusal;
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

/// What a person did to the vantage of a stream, as its agent is told.
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
        Cut::Renamed => Status::unavailable(format!("closed: vantage {vantage} has another name now; connect again")),
    }
}

/// Why a stream is ended from here. An agent that is replaced again and again learns so that another
/// machine uses its identity.
pub(super) fn closed(place: &Place<'_>) -> Status {
    if !place.replaced() {
        return Status::aborted("closed: this vantage was revoked");
    }
    let mut metadata = MetadataMap::new();
    metadata.insert("reason", MetadataValue::from_static("replaced"));
    Status::with_metadata(Code::Aborted, "closed: replaced by a newer stream of this vantage", metadata)
}
