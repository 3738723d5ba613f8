//! For tests: the schema in memory, and what SQLite says it would do for a statement.

use rusqlite::types::Value as Sql;
use rusqlite::{Connection, params_from_iter};

pub(super) fn schema() -> Connection {
    let db = Connection::open_in_memory().expect("memory database");
    db.execute_batch(include_str!("../../migrations/0001_base.sql"))
        .expect("schema");
    db.execute_batch(include_str!("../../migrations/0002_lifetime.sql"))
        .expect("schema");
    db.execute_batch(include_str!("../../migrations/0003_agents.sql"))
        .expect("schema");
    db.execute_batch(include_str!("../../migrations/0004_session_texts.sql"))
        .expect("schema");
    db
}

pub(super) fn plan(db: &Connection, sql: &str, values: &[Sql]) -> String {
    let mut statement = db
        .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
        .expect("statement");
    let lines: Result<Vec<String>, _> = statement
        .query_map(params_from_iter(values), |row| row.get::<_, String>(3))
        .expect("plan")
        .collect();
    lines.expect("lines").join("\n")
}
