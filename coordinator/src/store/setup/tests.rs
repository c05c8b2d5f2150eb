//! Several first starts, a start that was killed, a program older than its database, and an upgrade with rows in it.

use sqlx::migrate::Migrator;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, Executor, PgConnection};

use super::{MIGRATIONS, check_schema, check_version, migrate, standing, too_old};
use crate::error::Exit;
use crate::testing;

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

/// Brings an empty database to the state after this migration, with rows in every table from the moment it is there.
async fn grow(connection: &mut PgConnection, last: i64) {
    let sections: Vec<&str> = include_str!("before.sql").split("-- state ").skip(1).collect();
    for state in MIGRATIONS.iter().map(|one| one.version).filter(|version| *version <= last) {
        up_to(state).run(&mut *connection).await.unwrap();
        if state == 1 {
            crate::store::partition::ensure(&mut *connection).await.unwrap();
        }
        for section in &sections {
            let (number, statements) = section.split_once('\n').unwrap();
            if number.trim().parse::<i64>().unwrap() == state {
                sqlx::raw_sql(sqlx::AssertSqlSafe(statements)).execute(&mut *connection).await.unwrap();
            }
        }
    }
}

/// What people read, through the views that are the interface, with the state from which on it is there.
const QUESTIONS: [(i64, &str, &str); 13] = [
    (
        1,
        "select vantage || ' ' || subject || ' ' || outcome from v_observation where id = 2",
        "branch-kazan cdnjs.cloudflare.com silent",
    ),
    (
        1,
        "select observations_missing || ' ' || observations_refused from v_vantage where vantage = 'branch-kazan'",
        "4 2",
    ),
    (1, "select epoch::text from lease", "3"),
    (1, "select last_sequence::text from agent_cursor where lane = 'urgent'", "12"),
    (
        2,
        "select kind || ' ' || subject || ' ' || changes_made from v_incident where id = 1",
        "answer_unroutable_here canaries 1",
    ),
    (2, "select status || ' ' || epoch || ' ' || driver from v_plan where id = 1", "verified 3 pin"),
    (2, "select verdict from v_verdict where vantage = 'branch-kazan' and until is null", "unroutable_here"),
    (2, "select outcome from v_evidence where incident_id = 1", "silent"),
    (3, "select version::text from assignment", "1764500000"),
    (6, "select did || ' ' || by from v_audit where what like '%: for an agent to join'", "token created anna"),
    (6, "select encode(serial, 'hex') from agent_certificate where token_id = 1", "0102"),
    (8, "select resolutions::text from v_answer where name = 'cdnjs.cloudflare.com'", "1"),
    (1, "select generation::text from installation", "1"),
];

#[tokio::test]
async fn rows_of_every_earlier_state_are_right_after_the_upgrade() {
    let newest = MIGRATIONS.iter().map(|one| one.version).max().unwrap();
    for state in 1..newest {
        let options = testing::empty().await;
        let mut connection = connect(&options).await;
        grow(&mut connection, state).await;
        let tables = "select string_agg(format('%I', relname), ',' order by relname) from pg_class \
                      where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and relname !~ '^_|_[0-9]{8}$'";
        let tables: String = sqlx::query_scalar(tables).fetch_one(&mut connection).await.unwrap();
        let filled: Vec<&str> = tables.split(',').filter(|table| !table.is_empty()).collect();
        let mut before = Vec::new();
        for table in &filled {
            before.push(count(&mut connection, table).await);
        }
        assert!(before.iter().all(|count| *count > 0), "{state}: every table has rows: {filled:?} {before:?}");
        assert_eq!(migrate(&mut connection).await.unwrap(), (state + 1..=newest).collect::<Vec<_>>());
        for (table, before) in filled.iter().zip(before) {
            assert_eq!(count(&mut connection, table).await, before, "{state}: {table}");
        }
        for (_, question, answer) in QUESTIONS.iter().filter(|(since, ..)| *since <= state) {
            let found: String = sqlx::query_scalar(*question).fetch_one(&mut connection).await.unwrap();
            assert_eq!(found, *answer, "{state}: {question}");
        }
        // And it is written to as before: a person's freeze of the old state ends as it always did.
        assert_eq!(crate::store::freeze::thaw(&mut connection, "anna", None).await.unwrap(), state >= 2, "{state}");
        crate::store::check_writable(&mut connection).await.unwrap();
    }
}

async fn count(connection: &mut PgConnection, table: &str) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!("select count(*) from {table}")))
        .fetch_one(connection)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_server_older_than_what_the_schema_needs_is_refused_with_its_version() {
    for (number, said) in [(130_023, "PostgreSQL 13.23; 14"), (120_000, "12.0"), (90_624, "PostgreSQL 9.6.24;")] {
        let refused = too_old(number).unwrap();
        assert_eq!(refused.exit, Exit::Refused);
        assert!(refused.to_string().contains(said), "{refused}");
    }
    for number in [140_000, 150_018, 170_004, 180_000] {
        assert!(too_old(number).is_none(), "{number}");
    }
    let mut connection = PgConnection::connect_with(&testing::empty().await).await.unwrap();
    check_version(&mut connection).await.unwrap();
}
