//! The schema changes while sessions are open.

use super::*;
use crate::store::{forget_statements, incident};

#[tokio::test]
async fn b80_columns_added_in_mid_load_cost_no_row_and_no_retry() {
    let (pool, vantage) = with_vantage().await;
    let writers: Vec<_> = (0..3_u128)
        .map(|n| {
            let pool = pool.clone();
            tokio::spawn(async move {
                for number in 1..=40 {
                    let batch = [delivery(vantage, Uuid::from_u128(n), monotonic(), &[number])];
                    commit(&mut pool.acquire().await.unwrap(), &batch).await.unwrap();
                }
            })
        })
        .collect();
    for statement in [
        "alter table observation add column note_a text",
        "alter table agent_cursor add column note_b integer not null default 7",
        "alter table vantage add column note_c jsonb",
        "alter table observation add column note_d bigint default 1",
    ] {
        // Between statements that hold their locks for a moment.
        let mut other = pool.acquire().await.unwrap();
        sqlx::query(statement).execute(&mut *other).await.unwrap();
        observations_after(&mut other, Position::since(testing::at(0)), 10).await.unwrap();
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let stored: i64 = sqlx::query_scalar("select count(*) from observation").fetch_one(&pool).await.unwrap();
    assert_eq!(stored, 120);
}

#[tokio::test]
async fn b80_a_statement_that_became_stale_is_known_as_such_and_works_when_it_is_made_anew() {
    let pool = testing::database().await;
    let mut connection = pool.acquire().await.unwrap();
    incident::all_open(&mut connection).await.unwrap();
    sqlx::query("alter table incident alter column about type json").execute(&mut *connection).await.unwrap();
    let error = incident::all_open(&mut connection).await.unwrap_err();
    assert!(error.is_stale_statement() && !error.is_about_the_data(), "{error}");
    // And again, for as long as the session is used as it is.
    assert!(incident::all_open(&mut connection).await.unwrap_err().is_stale_statement());
    drop(connection);
    forget_statements(&pool).await;
    for _ in 0..12 {
        incident::all_open(&mut pool.acquire().await.unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn b80_a_pooler_that_forgets_statements_is_survived() {
    let pool = testing::database().await;
    let mut connection = pool.acquire().await.unwrap();
    incident::all_open(&mut connection).await.unwrap();
    // As behind a pooler that gives every transaction another session.
    sqlx::raw_sql("deallocate all").execute(&mut *connection).await.unwrap();
    let error = incident::all_open(&mut connection).await.unwrap_err();
    assert!(error.is_stale_statement(), "{error}");
    drop(connection);
    forget_statements(&pool).await;
    incident::all_open(&mut pool.acquire().await.unwrap()).await.unwrap();
}
