//! A reader that follows the log in commit order misses nothing, whatever writers do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parallax_decide::observation::ObservationId;
use parallax_decide::time::Timestamp;

use super::*;

const WRITERS: usize = 6;
const BATCHES: i64 = 25;

/// Writers of two coordinators: each commits its own numbering, is slow, takes back, and is killed in
/// mid-transaction, and does it again until it is stored.
async fn write(pool: PgPool, vantage: VantageId, boot: Uuid, left: Arc<AtomicUsize>) {
    let mut chance = boot.as_u128();
    let mut next = move |bound: u128| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (chance >> 33) % bound
    };
    for n in 0..BATCHES {
        let numbers: Vec<i64> = (n * 3 + 1..=n * 3 + 3).collect();
        loop {
            let mut connection = pool.acquire().await.unwrap();
            let batch = [delivery(vantage, boot, monotonic(), &numbers)];
            match next(5) {
                // The whole is taken back after its numbers were drawn.
                0 => {
                    let mut outer = connection.begin().await.unwrap();
                    commit(&mut outer, &batch).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(u64::try_from(next(8)).unwrap())).await;
                    outer.rollback().await.unwrap();
                }
                // Its session is killed while the rows are there and not committed.
                1 => {
                    let pid: i32 =
                        sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut *connection).await.unwrap();
                    let mut outer = connection.begin().await.unwrap();
                    commit(&mut outer, &batch).await.unwrap();
                    sqlx::query("select pg_terminate_backend($1)").bind(pid).execute(&pool).await.unwrap();
                    outer.commit().await.unwrap_err();
                    drop(connection.detach());
                }
                // Slow to commit.
                2 => {
                    let mut outer = connection.begin().await.unwrap();
                    commit(&mut outer, &batch).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(u64::try_from(next(15)).unwrap())).await;
                    outer.commit().await.unwrap();
                    break;
                }
                _ => {
                    commit(&mut connection, &batch).await.unwrap();
                    break;
                }
            }
        }
    }
    left.fetch_sub(1, Ordering::SeqCst);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_misses_no_row_of_slow_broken_and_killed_writers_of_two_coordinators() {
    let options = testing::fresh().await;
    // Two coordinators: each its own pool.
    let pools = [super::super::pool(options.clone()), super::super::pool(options.clone())];
    let vantage =
        vantage::find_or_make(&mut pools[0].acquire().await.unwrap(), &"de-fra".parse().unwrap()).await.unwrap().id;
    let left = Arc::new(AtomicUsize::new(WRITERS));
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| {
            let boot = Uuid::from_u128(0x5eed_0000 + n as u128);
            tokio::spawn(write(pools[n % 2].clone(), vantage, boot, Arc::clone(&left)))
        })
        .collect();
    let mut reader = PgConnection::connect_with(&options).await.unwrap();
    let (mut position, mut read): (Position, Vec<ObservationId>) = (Position::since(testing::at(0)), Vec::new());
    loop {
        // Asked first: what is stored after that is read in the next turn.
        let over = left.load(Ordering::SeqCst) == 0;
        let page = observations_after(&mut reader, position, 7).await.unwrap();
        let Some(behind) = page.behind else {
            if over {
                break;
            }
            continue;
        };
        position = behind;
        read.extend(page.observations.iter().map(|one| one.id));
        // Now and then the reader is another process that knows the stored position alone.
        if read.len() % 5 == 0 {
            reader = PgConnection::connect_with(&options).await.unwrap();
            let stored: (i64, Timestamp) = (position.after.0, position.from);
            position = Position { after: ObservationId(stored.0), from: stored.1 };
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let stored: Vec<i64> =
        sqlx::query_scalar("select id from observation order by id").fetch_all(&pools[0]).await.unwrap();
    assert_eq!(read.iter().map(|id| id.0).collect::<Vec<_>>(), stored, "in order, each once, none missing");
    let expected = WRITERS * usize::try_from(BATCHES).unwrap() * 3;
    assert_eq!(stored.len(), expected);
    let highest = stored.last().copied().unwrap();
    assert!(highest > i64::try_from(expected).unwrap(), "numbers were drawn and taken back");
    let distinct: BTreeSet<_> = read.iter().collect();
    assert_eq!(distinct.len(), expected);
}
