//! Table `kv`: small JSON values the daemon keeps for itself under fixed keys.

use super::from_json;
use crate::db::{Store, StoreError};
use rusqlite::OptionalExtension as _;
use serde_json::Value;

/// The table.
#[derive(Debug, Clone)]
pub struct KeyValues(pub(crate) Store);

impl KeyValues {
    /// Reads a value.
    ///
    /// # Errors
    /// The database failed, or the value cannot be read.
    pub async fn get(&self, key: &str) -> Result<Option<Value>, StoreError> {
        let key = key.to_owned();
        self.0
            .read(move |db| {
                let text: Option<String> = db
                    .prepare_cached("SELECT value FROM kv WHERE key = ?1")?
                    .query_row([&key], |row| row.get(0))
                    .optional()?;
                text.map(|text| from_json(&text, "kv", &key, "value"))
                    .transpose()
            })
            .await
    }

    /// Writes a value over the one that is there.
    ///
    /// # Errors
    /// The database failed.
    pub async fn set(&self, key: &str, value: &Value) -> Result<(), StoreError> {
        let (key, text) = (key.to_owned(), serde_json::to_string(value)?);
        self.0
            .write(move |db| {
                db.prepare_cached(
                    "INSERT INTO kv (key, value) VALUES (?1, ?2) \
                     ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                )?
                .execute((key, text))?;
                Ok(())
            })
            .await
    }

    /// Removes a value; says whether it was there.
    ///
    /// # Errors
    /// The database failed.
    pub async fn remove(&self, key: &str) -> Result<bool, StoreError> {
        let key = key.to_owned();
        self.0
            .write(move |db| {
                let gone = db
                    .prepare_cached("DELETE FROM kv WHERE key = ?1")?
                    .execute([key])?;
                Ok(gone > 0)
            })
            .await
    }
}
