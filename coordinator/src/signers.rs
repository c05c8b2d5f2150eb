//! Whether the keys that sign orders here are those of this installation. Agents obey what a key signs that they know; a
//! coordinator with another one (a state directory that was lost or belongs to another installation, a copy that was
//! forgotten) would find them all deaf, and would tell new ones to obey nobody else.

use sqlx::PgConnection;

use crate::error::{Exit, Failure};
use crate::identity::signer::{Signers, fingerprint};
use crate::store::StoreError;
use crate::store::signer;

/// Looks, and notes what is new: everything in a new database, later a key that lies beside a known one.
///
/// # Errors
/// When the one that signs is not known here or was retired, or the database refuses.
pub async fn check(connection: &mut PgConnection, signers: &Signers) -> Result<(), Failure> {
    let failed = |error: StoreError| {
        Failure::from(
            anyhow::Error::new(error).context("the keys that sign orders cannot be compared with the database"),
        )
    };
    let known = signer::all(connection).await.map_err(failed)?;
    let ours = signers.signing();
    match known.iter().find(|one| one.public_key == ours.public()) {
        Some(row) if row.is_retired => {
            return Err(Failure::new(
                Exit::Refused,
                format!("the key {} that signs orders was retired", ours.fingerprint()),
            )
            .why("agents were told to obey it no more, and obey nothing that it signs")
            .fix("copy STATE/ca from the coordinator where it was retired, keeping modes, and start again"));
        }
        None if !known.is_empty() => {
            let in_use: Vec<String> =
                known.iter().filter(|one| !one.is_retired).map(|one| fingerprint(&one.public_key)).collect();
            return Err(Failure::new(Exit::Refused, "the key that signs orders is not the one of this installation")
                .why(format!(
                    "STATE/ca has {}, the database knows {}; agents obey that one and no other",
                    ours.fingerprint(),
                    in_use.join(", ")
                ))
                .fix("put STATE/ca back from a backup or from another coordinator of this installation, or give the right --state; where the key is lost for good: parallax authority reset-signer --reason …, and let every agent join again"));
        }
        Some(_) | None => {}
    }
    signer::note(connection, &signers.public()).await.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::identity::bundle::{Bundle, Making};
    use crate::identity::signer as files;
    use crate::testing;

    #[tokio::test]
    async fn a_coordinator_with_another_key_does_not_start_and_a_later_one_of_ours_is_noted() {
        let app = testing::app().await;
        let mut connection = app.pool.acquire().await.unwrap();
        let states = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let open = |state: &tempfile::TempDir| {
            Bundle::open(state.path(), Making::Allowed, clock::wall()).unwrap();
            Signers::open(&state.path().join("ca")).unwrap()
        };
        check(&mut connection, &open(&states[0])).await.unwrap();
        check(&mut connection, &open(&states[0])).await.unwrap();
        let refused = check(&mut connection, &open(&states[1])).await.unwrap_err();
        let text = refused.to_string();
        assert_eq!(refused.exit, Exit::Refused);
        assert!(text.contains(&open(&states[0]).signing().fingerprint()) && text.contains("backup"), "{text}");
        // One beside it, then it alone.
        let folder = states[0].path().join("ca");
        let first = open(&states[0]).signing().public().to_vec();
        files::rotate(&folder).unwrap();
        check(&mut connection, &open(&states[0])).await.unwrap();
        assert_eq!(signer::all(&mut connection).await.unwrap().len(), 2);
        let kept = Signers::open(&folder).unwrap();
        files::retire(&folder, &fingerprint(&first)).unwrap();
        signer::retire(&mut connection, &first).await.unwrap();
        check(&mut connection, &open(&states[0])).await.unwrap();
        let stale = check(&mut connection, &kept).await.unwrap_err().to_string();
        assert!(stale.contains("was retired") && stale.contains("copy STATE/ca"), "{stale}");
        // What is lost for good is reset on purpose.
        signer::reset(&mut connection, &open(&states[1]).public()).await.unwrap();
        check(&mut connection, &open(&states[1])).await.unwrap();
        assert!(check(&mut connection, &open(&states[0])).await.is_err());
    }
}
