//! Writes rows of table `sandboxes` together with their labels, each call in one transaction.

use super::query::one;
use super::{SandboxPatch, SandboxRow};
use crate::db::{StoreError, broken_unique};
use crate::rows::to_word;
use handler_types::{SandboxId, SessionId};
use rusqlite::types::Value as Sql;
use rusqlite::{Connection, Transaction, params_from_iter};

fn taken(error: rusqlite::Error, name: Option<&str>, id: &SandboxId) -> StoreError {
    match (broken_unique(&error), name) {
        (Some("sandboxes.name"), Some(name)) => StoreError::NameTaken {
            name: name.to_owned(),
        },
        (Some("sandboxes.id"), _) => StoreError::IdTaken { id: id.to_string() },
        _ => error.into(),
    }
}

pub(super) fn insert(db: &mut Connection, row: &SandboxRow) -> Result<(), StoreError> {
    let instance = row
        .instance
        .as_ref()
        .map(serde_json::to_string)
        .transpose()?;
    let tx = db.transaction()?;
    tx.prepare_cached(
        "INSERT INTO sandboxes (id, name, backend, spec, state, intent, instance, warnings, error, \
         session_id, created_ms, updated_ms, expires_ms, idled) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
    )?
    .execute(rusqlite::params![
        row.id.as_str(),
        &row.name,
        &row.backend,
        serde_json::to_string(&row.spec)?,
        to_word(&row.state)?,
        to_word(&row.intent)?,
        instance,
        serde_json::to_string(&row.warnings)?,
        &row.error,
        row.session_id.as_ref().map(SessionId::as_str),
        row.created_ms,
        row.updated_ms,
        row.expires_ms,
        row.idled,
    ])
    .map_err(|error| taken(error, row.name.as_deref(), &row.id))?;
    put_labels(&tx, row)?;
    tx.commit()?;
    Ok(())
}

fn put_labels(tx: &Transaction<'_>, row: &SandboxRow) -> Result<(), StoreError> {
    let mut add = tx.prepare_cached(
        "INSERT INTO sandbox_labels (key, value, created_ms, sandbox_id) VALUES (?1, ?2, ?3, ?4)",
    )?;
    for (key, value) in &row.spec.labels {
        add.execute((key, value, row.created_ms, row.id.as_str()))?;
    }
    Ok(())
}

pub(super) fn update(
    db: &mut Connection,
    id: &SandboxId,
    patch: &SandboxPatch,
) -> Result<SandboxRow, StoreError> {
    let (columns, mut values) = changes(patch)?;
    let tx = db.transaction()?;
    // The clock may be set back; a row never seems older than it was.
    let sql = format!("UPDATE sandboxes SET {columns}updated_ms = max(updated_ms, ?) WHERE id = ?");
    values.push(Sql::Integer(handler_base::clock::now_ms()));
    values.push(Sql::Text(id.to_string()));
    let name = patch.name.as_ref().and_then(Option::as_deref);
    let changed = tx
        .prepare_cached(&sql)?
        .execute(params_from_iter(values))
        .map_err(|error| taken(error, name, id))?;
    let row = match changed {
        0 => None,
        _ => one(&tx, "s.id = ?1", id.as_str())?,
    };
    let row = row.ok_or_else(|| StoreError::NotFound { id: id.to_string() })?;
    if patch.spec.is_some() {
        tx.prepare_cached("DELETE FROM sandbox_labels WHERE sandbox_id = ?1")?
            .execute([id.as_str()])?;
        put_labels(&tx, &row)?;
    }
    tx.commit()?;
    Ok(row)
}

/// The SET list of a patch (each item ends in a comma) and its values.
fn changes(patch: &SandboxPatch) -> Result<(String, Vec<Sql>), StoreError> {
    let optional = |value: Option<String>| value.map_or(Sql::Null, Sql::Text);
    let mut set = Vec::new();
    if let Some(name) = &patch.name {
        set.push(("name", optional(name.clone())));
    }
    if let Some(spec) = &patch.spec {
        set.push(("spec", Sql::Text(serde_json::to_string(spec)?)));
    }
    if let Some(state) = &patch.state {
        set.push(("state", Sql::Text(to_word(state)?)));
    }
    if let Some(intent) = &patch.intent {
        set.push(("intent", Sql::Text(to_word(intent)?)));
    }
    if let Some(instance) = &patch.instance {
        let json = instance.as_ref().map(serde_json::to_string).transpose()?;
        set.push(("instance", optional(json)));
    }
    if let Some(warnings) = &patch.warnings {
        set.push(("warnings", Sql::Text(serde_json::to_string(warnings)?)));
    }
    if let Some(error) = &patch.error {
        set.push(("error", optional(error.clone())));
    }
    if let Some(session) = &patch.session_id {
        let id = session.as_ref().map(SessionId::to_string);
        set.push(("session_id", optional(id)));
    }
    if let Some(expires) = patch.expires_ms {
        set.push(("expires_ms", expires.map_or(Sql::Null, Sql::Integer)));
    }
    if let Some(idled) = patch.idled {
        set.push(("idled", Sql::Integer(i64::from(idled))));
    }
    let columns = set
        .iter()
        .map(|(name, _)| format!("{name} = ?, "))
        .collect();
    Ok((columns, set.into_iter().map(|(_, value)| value).collect()))
}
