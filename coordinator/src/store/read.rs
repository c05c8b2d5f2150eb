//! What the page, the API and the operator's tool read. Mostly from the views people use as well,
//! so that nobody sees two truths. Every query has a limit.
//!
//! - [`now`]: how things stand. [`incident`]: what happened. [`path`]: which way packets take.
//!   [`plan`]: what was done.
//! - [`moment`]: how things stood at a moment. [`name`]: what one name looked like. [`span`]: what happened between two.
//! - [`counts`]: numbers for `/metrics`. [`replay`]: what really happened, beside the log.

pub mod counts;
pub mod incident;
pub mod moment;
pub mod name;
pub mod now;
pub mod path;
pub mod plan;
pub mod replay;
pub mod span;

#[cfg(test)]
mod tests {
    use crate::report::told::Teller;
    use crate::testing;

    /// `\d+` explains every column: the schema is documentation as much as interface. Days of the log
    /// are explained by the table they are parts of.
    #[tokio::test]
    async fn every_table_and_view_and_each_of_their_columns_is_explained() {
        let pool = testing::database().await;
        let missing: Vec<String> = sqlx::query_scalar(
            "select c.relname || '.' || coalesce(a.attname, '(itself)')
             from pg_class c left join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
             where c.relkind in ('r', 'p', 'v') and c.relnamespace = 'public'::regnamespace
               and not c.relispartition and c.relname <> '_sqlx_migrations'
               and (col_description(c.oid, a.attnum) is null or obj_description(c.oid) is null)",
        )
        .fetch_all(&pool)
        .await
        .unwrap();
        assert_eq!(missing, Vec::<String>::new());
    }

    /// Dashboards and people read with a role that can change nothing and sees no table.
    #[tokio::test]
    async fn the_reading_role_reads_the_views_and_nothing_else() {
        let app = testing::app().await;
        let mut teller = Teller::new(app).await;
        teller.all_well().await;
        let id = teller.branch_loses_the_pair().await.0;
        sqlx::query("set role parallax_ro").execute(teller.conn()).await.unwrap();
        let views: Vec<String> =
            sqlx::query_scalar("select viewname::text from pg_views where schemaname = 'public' order by 1")
                .fetch_all(teller.conn())
                .await
                .unwrap();
        assert!(views.len() > 20, "{views:?}");
        for view in &views {
            let statement = format!("select count(*) from {view}");
            let read = sqlx::query(sqlx::AssertSqlSafe(statement)).execute(teller.conn()).await;
            assert!(read.is_ok(), "{view}: {read:?}");
        }
        let tables: Vec<String> = sqlx::query_scalar(
            "select relname::text from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'S')
             and has_table_privilege('parallax_ro', oid, 'select, insert, update, delete, truncate, references, trigger')",
        )
        .fetch_all(teller.conn())
        .await
        .unwrap();
        assert_eq!(tables, Vec::<String>::new(), "no table and no sequence");
        let hashes: Vec<String> = sqlx::query_scalar(
            "select table_name || '.' || column_name from information_schema.columns
             where table_schema = 'public' and table_name like 'v\\_%' and column_name ~ '(secret|token|key)_?(sha256|hash)'",
        )
        .fetch_all(teller.conn())
        .await
        .unwrap();
        assert_eq!(hashes, Vec::<String>::new(), "no view shows what a secret could be known by");
        for view in
            ["v_vantage", "v_observation", "v_verdict", "v_incident", "v_plan", "v_proof", "v_timeline", "v_matrix"]
        {
            let statement = format!("select count(*) from {view}");
            let count: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(statement)).fetch_one(teller.conn()).await.unwrap();
            assert!(count > 0, "{view}");
        }
        let evidence: i64 = sqlx::query_scalar("select count(outcome) from v_evidence where incident_id = $1")
            .bind(id)
            .fetch_one(teller.conn())
            .await
            .unwrap();
        assert_eq!(evidence, 18);
        for forbidden in [
            "select * from observation",
            "delete from v_plan",
            "insert into write_freeze (by, reason) values ('x', 'x')",
        ] {
            let error = sqlx::query(forbidden).execute(teller.conn()).await.unwrap_err();
            assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("42501"), "{forbidden}");
        }
        sqlx::query("reset role").execute(teller.conn()).await.unwrap();
    }

    #[tokio::test]
    async fn a_verdict_holds_until_the_next_one_of_its_subject() {
        let app = testing::app().await;
        let mut teller = Teller::new(app).await;
        teller.all_well().await;
        teller.branch_loses_the_pair().await;
        let held: Vec<(String, bool)> = sqlx::query_as(
            "select verdict, until is null from v_verdict
             where subject_kind = 'answer' and subject = 'cdn.tailwindcss.com' and vantage = 'branch-kazan' order by id",
        )
        .fetch_all(teller.conn())
        .await
        .unwrap();
        assert_eq!(held, [("answer_ok".to_owned(), false), ("answer_unroutable_here".to_owned(), true)]);
    }
}
