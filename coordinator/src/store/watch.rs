//! When somebody judged. Between two such spans nobody knows how things stood, whatever was said
//! before and after.

use std::time::Duration;

use parallax_decide::time::Timestamp;
use sqlx::PgConnection;

use super::{StoreError, offset};

/// A pause longer than this is unknown time.
pub const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Says that the holder of this epoch judges now: its span goes on, or a new one begins. Part of a
/// fenced transaction.
///
/// # Errors
/// When the database refuses.
pub async fn keep(connection: &mut PgConnection, epoch: i64, now: Timestamp) -> Result<(), StoreError> {
    let went_on = sqlx::query!(
        "update watch set until = greatest(until, $2)
         where id = (select max(id) from watch) and epoch = $1 and until >= $3",
        epoch,
        offset(now),
        offset(now.minus(PAUSE_MAX))
    )
    .execute(&mut *connection)
    .await?;
    if went_on.rows_affected() == 0 {
        // Spans do not overlap: two coordinators, or a clock that stepped back, count no second twice.
        sqlx::query!(
            "insert into watch (epoch, began_at, until)
             select $1, b.at, b.at
             from (select greatest($2, coalesce((select until from watch order by id desc limit 1), '-infinity')) as at) as b",
            epoch,
            offset(now)
        )
        .execute(connection)
        .await?;
    }
    Ok(())
}
