//! Reads rows of table `sandboxes`: one, a page, or all of them, always along an index.

use super::{AllSandboxes, BrokenSandbox, SandboxFilter, SandboxRow};
use crate::db::{StoreError, page_limit};
use crate::rows::{Conditions, Lookup, MAX_CANDIDATES, PageRequest};
use crate::rows::{from_json, from_word, into_page, prefix_end, to_word};
use handler_types::api::Page;
use handler_types::{SandboxId, SessionId};
use rusqlite::types::Value as Sql;
use rusqlite::{Connection, OptionalExtension as _, Row, params_from_iter};

const TABLE: &str = "sandboxes";
const COLUMNS: &str = "s.id, s.name, s.backend, s.spec, s.state, s.intent, s.instance, s.warnings, \
                       s.error, s.session_id, s.created_ms, s.updated_ms, s.expires_ms, s.idled";

fn read(row: &Row<'_>) -> Result<SandboxRow, StoreError> {
    let key: String = row.get(0)?;
    let text = |column| row.get::<_, Option<String>>(column);
    let id = from_word(key.clone(), TABLE, &key, "id")?;
    let instance = text(6)?
        .map(|json| from_json(&json, TABLE, &key, "instance"))
        .transpose()?;
    let session_id = text(9)?
        .map(|word| from_word(word, TABLE, &key, "session_id"))
        .transpose()?;
    Ok(SandboxRow {
        id,
        name: row.get(1)?,
        backend: row.get(2)?,
        spec: from_json(row.get_ref(3)?.as_str().unwrap_or(""), TABLE, &key, "spec")?,
        state: from_word(row.get(4)?, TABLE, &key, "state")?,
        intent: from_word(row.get(5)?, TABLE, &key, "intent")?,
        instance,
        warnings: from_json(&row.get::<_, String>(7)?, TABLE, &key, "warnings")?,
        error: row.get(8)?,
        session_id,
        created_ms: row.get(10)?,
        updated_ms: row.get(11)?,
        expires_ms: row.get(12)?,
        idled: row.get(13)?,
    })
}

pub(super) fn one(
    db: &Connection,
    condition: &str,
    key: &str,
) -> Result<Option<SandboxRow>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM sandboxes s WHERE {condition}");
    db.prepare_cached(&sql)?
        .query_row([key], |row| Ok(read(row)))
        .optional()?
        .transpose()
}

fn many(db: &Connection, sql: &str, values: Vec<Sql>) -> Result<Vec<SandboxRow>, StoreError> {
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut out = Vec::new();
    while let Some(row) = rows.next()? {
        out.push(read(row)?);
    }
    Ok(out)
}

pub(super) fn of_session(db: &Connection, id: &SessionId) -> Result<Vec<SandboxRow>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM sandboxes s WHERE s.session_id = ? \
         ORDER BY s.created_ms DESC, s.id DESC"
    );
    many(db, &sql, vec![Sql::Text(id.to_string())])
}

pub(super) fn all(db: &Connection) -> Result<Vec<SandboxRow>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM sandboxes s ORDER BY s.created_ms, s.id");
    many(db, &sql, Vec::new())
}

pub(super) fn all_even_broken(db: &Connection) -> Result<AllSandboxes, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM sandboxes s ORDER BY s.created_ms, s.id");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query([])?;
    let mut all = AllSandboxes::default();
    while let Some(row) = rows.next()? {
        match read(row) {
            Ok(row) => all.rows.push(row),
            Err(error) => match broken(row, &error) {
                Some(row) => all.broken.push(row),
                None => tracing::error!(%error, "a row without a usable id is passed over"),
            },
        }
    }
    Ok(all)
}

/// What can be read of a row that cannot; nothing without its id.
fn broken(row: &Row<'_>, error: &StoreError) -> Option<BrokenSandbox> {
    let id: String = row.get(0).ok()?;
    Some(BrokenSandbox {
        id: id.parse().ok()?,
        backend: row.get(2).unwrap_or_default(),
        reason: error.to_string(),
        created_ms: row.get(10).unwrap_or_default(),
    })
}

/// The statement of a page. With a label the label's index leads, else the sandboxes' own.
fn page_statement(
    columns: &str,
    filter: &SandboxFilter,
    cursor: Option<&str>,
    limit: u32,
) -> Result<(String, Vec<Sql>), StoreError> {
    let mut conditions = Conditions::default();
    let mut labels = filter.labels.iter();
    let (from, time, id) = match labels.next() {
        None => ("sandboxes s", "s.created_ms", "s.id"),
        Some((key, value)) => {
            conditions.equals("l.key", Some(key));
            conditions.equals("l.value", Some(value));
            // CROSS JOIN keeps the label first, so that rows come in the order of the page.
            let from = "sandbox_labels l CROSS JOIN sandboxes s ON s.id = l.sandbox_id";
            (from, "l.created_ms", "l.sandbox_id")
        }
    };
    for (key, value) in labels {
        conditions.add(
            "EXISTS (SELECT 1 FROM sandbox_labels m WHERE m.key = ? AND m.value = ? \
             AND m.created_ms = s.created_ms AND m.sandbox_id = s.id)",
            [Sql::Text(key.clone()), Sql::Text(value.clone())],
        );
    }
    let state = filter.state.as_ref().map(to_word).transpose()?;
    conditions.equals("s.state", state.as_deref());
    conditions.equals("s.backend", filter.backend.as_deref());
    conditions.equals("s.name", filter.name.as_deref());
    if let Some(project) = &filter.project {
        conditions.add(
            "json_extract(s.spec, '$.project') = ?",
            [Sql::Text(project.clone())],
        );
    }
    if let Some(text) = &filter.search {
        // Rows are still walked in the page's order: the first page of a common text comes at once.
        conditions.add(
            "instr(lower(coalesce(s.name, '') || char(10) || s.id || char(10) \
             || coalesce(json_extract(s.spec, '$.scope'), '') || char(10) \
             || coalesce(json_extract(s.spec, '$.image.reference'), '')), lower(?)) > 0",
            [Sql::Text(text.clone())],
        );
    }
    conditions.after(time, id, cursor)?;
    let Conditions { sql, mut values } = conditions;
    values.push(Sql::Integer(i64::from(limit) + 1));
    let sql = format!("SELECT {columns} FROM {from}{sql} ORDER BY {time} DESC, {id} DESC LIMIT ?");
    Ok((sql, values))
}

pub(super) fn list(
    db: &Connection,
    filter: &SandboxFilter,
    page: &PageRequest,
) -> Result<Page<SandboxRow>, StoreError> {
    let limit = page_limit(page.limit);
    let (sql, values) = page_statement(COLUMNS, filter, page.cursor.as_deref(), limit)?;
    let rows = many(db, &sql, values)?;
    Ok(into_page(rows, limit, |row| {
        (row.created_ms, row.id.as_str())
    }))
}

pub(super) fn list_ids(
    db: &Connection,
    filter: &SandboxFilter,
    page: &PageRequest,
) -> Result<Page<SandboxId>, StoreError> {
    let limit = page_limit(page.limit);
    let columns = "s.id, s.created_ms";
    let (sql, values) = page_statement(columns, filter, page.cursor.as_deref(), limit)?;
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut ids: Vec<(String, i64)> = Vec::new();
    while let Some(row) = rows.next()? {
        ids.push((row.get(0)?, row.get(1)?));
    }
    let page = into_page(ids, limit, |(id, created_ms)| (*created_ms, id.as_str()));
    let ids = page.items.iter().filter_map(|(id, _)| id.parse().ok());
    Ok(Page {
        items: ids.collect(),
        next_cursor: page.next_cursor,
    })
}

pub(super) fn find(db: &Connection, text: &str) -> Result<Lookup<SandboxRow>, StoreError> {
    if text.is_empty() {
        return Ok(Lookup::None);
    }
    for exact in ["s.id = ?1", "s.name = ?1"] {
        if let Some(row) = one(db, exact, text)? {
            return Ok(Lookup::Found(row));
        }
    }
    let sql = format!(
        "SELECT {COLUMNS} FROM sandboxes s WHERE s.id >= ? AND s.id < ? ORDER BY s.id LIMIT ?"
    );
    let most = i64::try_from(MAX_CANDIDATES).unwrap_or(i64::MAX);
    let values = vec![
        Sql::Text(text.to_owned()),
        Sql::Text(prefix_end(text)),
        Sql::Integer(most),
    ];
    let mut rows = many(db, &sql, values)?;
    Ok(match rows.len() {
        0 => Lookup::None,
        1 => Lookup::Found(rows.remove(0)),
        _ => Lookup::Ambiguous(rows.iter().map(|row| row.id.to_string()).collect()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests_plan::{plan, schema};
    use handler_types::sandbox::SandboxState;

    fn plan_of(filter: &SandboxFilter, cursor: Option<&str>) -> String {
        let (sql, values) = page_statement(COLUMNS, filter, cursor, 50).expect("statement");
        plan(&schema(), &sql, &values)
    }

    #[test]
    fn every_list_walks_an_index_and_sorts_nothing() {
        let label = |key: &str| (key.to_owned(), "v".to_owned());
        let cases = [
            (SandboxFilter::default(), "sandboxes_by_age"),
            (
                SandboxFilter {
                    state: Some(SandboxState::Running),
                    ..SandboxFilter::default()
                },
                "sandboxes_by_state",
            ),
            (
                SandboxFilter {
                    backend: Some("native".into()),
                    ..SandboxFilter::default()
                },
                "sandboxes_by_backend",
            ),
            (
                SandboxFilter {
                    name: Some("a".into()),
                    ..SandboxFilter::default()
                },
                "sqlite_autoindex_sandboxes_2",
            ),
            (
                SandboxFilter {
                    labels: vec![label("a")],
                    ..SandboxFilter::default()
                },
                "SEARCH l USING PRIMARY KEY",
            ),
            (
                SandboxFilter {
                    state: Some(SandboxState::Running),
                    labels: vec![label("a"), label("b")],
                    ..SandboxFilter::default()
                },
                "SEARCH l USING PRIMARY KEY",
            ),
        ];
        for (filter, index) in cases {
            for cursor in [None, Some("1.sb0102030405060708")] {
                let plan = plan_of(&filter, cursor);
                assert!(plan.contains(index), "{filter:?}: {plan}");
                assert!(!plan.contains("TEMP B-TREE"), "{filter:?}: {plan}");
            }
        }
    }

    #[test]
    fn look_ups_search_and_never_scan() {
        let db = schema();
        let id_range = "SELECT s.id FROM sandboxes s WHERE s.id >= ? AND s.id < ? ORDER BY s.id";
        let text = |t: &str| Sql::Text(t.to_owned());
        for (sql, values) in [
            (id_range, vec![text("sb01"), text("sb02")]),
            ("SELECT id FROM sandboxes WHERE name = ?", vec![text("a")]),
            (
                "SELECT id FROM sandboxes WHERE session_id = ?",
                vec![text("s")],
            ),
        ] {
            let plan = plan(&db, sql, &values);
            assert!(plan.contains("SEARCH") && !plan.contains("SCAN"), "{plan}");
        }
    }
}
