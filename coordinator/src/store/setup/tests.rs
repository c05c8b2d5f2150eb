//! Several first starts, a start that was killed, a program older than its database, and an upgrade with rows in it.

use sqlx::migrate::Migrator;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, Executor, PgConnection};

use super::{MIGRATIONS, check_schema, migrate, standing};
use crate::error::Exit;
use crate::testing;

/// The last migration of the state that the upgrade test begins with.
const BEFORE: i64 = 5;

async fn connect(options: &PgConnectOptions) -> PgConnection {
    PgConnection::connect_with(&crate::store::quiet(options.clone())).await.unwrap()
}

/// The migrations up to `last`, as a program of that time has them.
fn up_to(last: i64) -> Migrator {
    Migrator::with_migrations(MIGRATIONS.iter().filter(|one| one.version <= last).cloned().collect())
}

#[tokio::test]
async fn b89_first_starts_at_once_on_an_empty_database_all_come_up() {
    for _ in 0..6 {
        let options = testing::empty().await;
        let starts = (0..3).map(|_| {
            let options = options.clone();
            async move { migrate(&mut connect(&options).await).await }
        });
        for result in futures_util::future::join_all(starts).await {
            result.unwrap();
        }
        check_schema(&mut connect(&options).await).await.unwrap();
    }
}

#[tokio::test]
async fn b89_a_start_that_was_killed_in_a_migration_is_taken_up_by_the_next() {
    let options = testing::empty().await;
    let mut connection = connect(&options).await;
    up_to(1).run(&mut connection).await.unwrap();
    // Holds the second migration up in its middle: it makes references to this table.
    let mut holder = connect(&options).await;
    let mut transaction = holder.begin().await.unwrap();
    transaction.execute("lock table vantage in access exclusive mode").await.unwrap();
    let waiting = "select pg_terminate_backend(pid) from pg_stat_activity \
                   where datname = current_database() and wait_event_type = 'Lock' and wait_event = 'relation'";
    let kill = async {
        while sqlx::query_scalar::<_, bool>(waiting).fetch_optional(&mut connection).await.unwrap().is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let mut other = connect(&options).await;
    let (killed, ()) = tokio::join!(migrate(&mut other), kill);
    assert_eq!(killed.unwrap_err().exit, Exit::Failed);
    transaction.rollback().await.unwrap();
    let pending = standing(&mut connection).await.unwrap().pending;
    assert!(!pending.is_empty() && !pending.contains(&1), "{pending:?}");
    assert_eq!(migrate(&mut connection).await.unwrap(), pending);
    check_schema(&mut connection).await.unwrap();
    assert_eq!(migrate(&mut connection).await.unwrap(), Vec::<i64>::new());
}

#[tokio::test]
async fn b89_a_program_older_than_its_database_refuses_and_changes_nothing() {
    let options = testing::fresh().await;
    let mut connection = connect(&options).await;
    connection
        .execute(
            "insert into _sqlx_migrations (version, description, success, checksum, execution_time)
             values (9999, 'of a later version', true, '\\x00', 1)",
        )
        .await
        .unwrap();
    for refused in [migrate(&mut connection).await.map(|_| ()), check_schema(&mut connection).await] {
        let refused = refused.unwrap_err();
        let said = refused.to_string();
        assert_eq!(refused.exit, Exit::Refused);
        assert!(said.contains("newer than this program") && said.contains("9999") && said.contains("fix:"), "{said}");
    }
    assert_eq!(standing(&mut connection).await.unwrap().unknown, [9999]);
}

#[tokio::test]
async fn a_migration_in_another_form_is_refused() {
    let options = testing::fresh().await;
    let mut connection = connect(&options).await;
    connection.execute("update _sqlx_migrations set checksum = '\\x00' where version = 1").await.unwrap();
    let refused = migrate(&mut connection).await.unwrap_err();
    assert_eq!(refused.exit, Exit::Refused);
    assert!(refused.to_string().contains("another build"), "{refused}");
}

#[tokio::test]
async fn rows_of_the_state_before_are_right_after_the_upgrade() {
    let options = testing::empty().await;
    let mut connection = connect(&options).await;
    up_to(BEFORE).run(&mut connection).await.unwrap();
    crate::store::partition::ensure(&mut connection).await.unwrap();
    connection.execute(include_str!("before.sql")).await.unwrap();
    let tables = "select string_agg(format('%I', relname), ',' order by relname) from pg_class \
                  where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and relname !~ '^_|_[0-9]{8}$'";
    let tables: String = sqlx::query_scalar(tables).fetch_one(&mut connection).await.unwrap();
    let filled: Vec<&str> = tables.split(',').filter(|table| !table.is_empty()).collect();
    let mut before = Vec::new();
    for table in &filled {
        before.push(count(&mut connection, table).await);
    }
    assert!(before.iter().all(|count| *count > 0), "every table has rows before: {filled:?} {before:?}");
    let applied = migrate(&mut connection).await.unwrap();
    assert_eq!(applied, standing(&mut connection).await.unwrap().applied.split_off(filled_migrations()));
    for (table, before) in filled.iter().zip(before) {
        assert_eq!(count(&mut connection, table).await, before, "{table}");
    }
    // What people read, through the views that are the interface.
    for (question, answer) in [
        (
            "select vantage || ' ' || subject || ' ' || outcome from v_observation where id = 2",
            "branch-kazan cdnjs.cloudflare.com silent",
        ),
        (
            "select kind || ' ' || subject || ' ' || changes_made from v_incident where id = 1",
            "answer_unroutable_here canaries 1",
        ),
        ("select status || ' ' || epoch || ' ' || driver from v_plan where id = 1", "verified 3 pin"),
        ("select verdict from v_verdict where vantage = 'branch-kazan' and until is null", "unroutable_here"),
        (
            "select observations_missing || ' ' || observations_refused from v_vantage where vantage = 'branch-kazan'",
            "4 2",
        ),
        ("select epoch::text from lease", "3"),
        ("select last_sequence::text from agent_cursor where lane = 'urgent'", "12"),
        ("select version::text from assignment", "1764500000"),
        ("select generation::text from installation", "1"),
    ] {
        let found: String = sqlx::query_scalar(question).fetch_one(&mut connection).await.unwrap();
        assert_eq!(found, answer, "{question}");
    }
    // And it is written to as before: a person's freeze of the old state ends as it always did.
    assert!(crate::store::freeze::thaw(&mut connection, "anna", None).await.unwrap());
    crate::store::check_writable(&mut connection).await.unwrap();
}

fn filled_migrations() -> usize {
    up_to(BEFORE).iter().count()
}

async fn count(connection: &mut PgConnection, table: &str) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!("select count(*) from {table}")))
        .fetch_one(connection)
        .await
        .unwrap()
}
