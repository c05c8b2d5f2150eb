//! How new an order is: the number by which an agent refuses one that was overtaken.

use sqlx::PgConnection;

use super::StoreError;

/// (generation << 32) | epoch of the lease, as it is now. The generation rises when the database is restored from a
/// backup, where the lease's epoch went back.
///
/// # Errors
/// When the database refuses.
pub async fn epoch(connection: &mut PgConnection) -> Result<u64, StoreError> {
    let row = sqlx::query!(
        r#"select i.generation, coalesce(l.epoch, 0) as "epoch!"
           from installation i left join lease l on l.name = 'tasks'"#
    )
    .fetch_one(connection)
    .await?;
    Ok(joined(row.generation, row.epoch))
}

/// What was [`joined`], apart again.
#[must_use]
pub fn apart(epoch: u64) -> (u32, u32) {
    // Each half fits by its making.
    (u32::try_from(epoch >> 32).unwrap_or(u32::MAX), u32::try_from(epoch & u64::from(u32::MAX)).unwrap_or(u32::MAX))
}

/// The two as one number.
#[must_use]
pub fn joined(generation: i32, epoch: i64) -> u64 {
    // An epoch rises by one with each take-over: 32 bits last for a century of one a second.
    // A generation is at least 1 by the table's own rule.
    u64::from(generation.unsigned_abs()) << 32
        | u64::from(u32::try_from(epoch).unwrap_or(if epoch < 0 { 0 } else { u32::MAX }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_generation_is_above_every_epoch_of_an_earlier_one() {
        assert_eq!(joined(0, 7), 7);
        assert_eq!(joined(1, 1), (1 << 32) + 1);
        assert!(joined(1, 0) > joined(0, i64::MAX));
        assert_eq!(joined(0, -1), 0);
        assert_eq!(apart(joined(7, 9)), (7, 9));
    }
}
