//! The story that every driver passes.

use parallax_decide::change::{Change, Standing};
use parallax_driver::{Applied, Driver, DriverError};

/// Runs the story of one change. `meddle` makes the name hold something else, as a stranger would;
/// `restore` puts back what the change expects.
pub(crate) async fn story(driver: &impl Driver, change: &Change, meddle: impl AsyncFn(), restore: impl AsyncFn()) {
    let undo = change.undo();
    let standing = async |change: &Change| driver.read(change.name()).await.unwrap().standing(change);

    assert_eq!(standing(change).await, Standing::AsExpected, "before: {change:?}");
    assert_eq!(driver.apply(change).await, Ok(Applied::Written));
    assert_eq!(standing(change).await, Standing::AlreadySet);
    assert_eq!(driver.apply(change).await, Ok(Applied::Already), "a repeated apply writes nothing");

    assert_eq!(driver.apply(&undo).await, Ok(Applied::Written));
    assert_eq!(standing(change).await, Standing::AsExpected, "undone");
    assert_eq!(driver.apply(&undo).await, Ok(Applied::Already), "a repeated undo writes nothing");

    meddle().await;
    let strangers = driver.read(change.name()).await.unwrap();
    assert_eq!(strangers.standing(change), Standing::Foreign);
    for change in [change, &undo] {
        assert_eq!(driver.apply(change).await, Err(DriverError::Conflict { found: strangers.clone() }));
        assert_eq!(driver.read(change.name()).await.as_ref(), Ok(&strangers), "a stranger's data stay as they are");
    }

    restore().await;
    assert_eq!(driver.apply(change).await, Ok(Applied::Written));
    assert_eq!(driver.apply(&undo).await, Ok(Applied::Written));
}
