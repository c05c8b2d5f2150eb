//! For tests of commands: a fresh database as a command reaches it.

use sqlx::PgConnection;

use super::database::Database;
use super::reading::connect;
use super::who::Who;
use super::{Global, StateDir};
use crate::testing;

/// A fresh database, and a connection to it.
pub(crate) async fn database() -> (Database, PgConnection) {
    let options = testing::fresh().await;
    let socket = options.get_socket().unwrap().display().to_string();
    let url = format!("postgres:///{}?host={socket}&user={}", options.get_database().unwrap(), options.get_username());
    let database = Database { database_url: Some(url), database_url_file: None, state: StateDir { given: None } };
    let connection = connect(&database).await.unwrap();
    (database, connection)
}

/// Somebody.
pub(crate) fn who(name: &str) -> Who {
    Who { given: Some(name.to_owned()) }
}

/// Quiet.
pub(crate) fn global() -> Global {
    Global { json: true, output: None, log: tracing::Level::ERROR }
}
