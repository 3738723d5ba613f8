//! What turns used, summed up.

use super::{SessionTexts, natural};
use crate::db::StoreError;
use crate::rows::Conditions;
use handler_types::SessionId;
use rusqlite::{Connection, params_from_iter};

/// Most sums of one answer.
const MOST: u32 = 1000;

/// What sums are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UsageBy {
    /// Each day.
    #[default]
    Day,
    /// Each session.
    Session,
    /// Each project folder.
    Scope,
    /// Each agent program.
    Harness,
    /// Each account; an empty key: sessions on providers.
    Account,
    /// Each provider; an empty key: sessions on accounts.
    Provider,
    /// Each model.
    Model,
    /// Each agent; an empty key: sessions without one.
    Agent,
}

impl UsageBy {
    fn column(self) -> &'static str {
        match self {
            Self::Day => "t.day",
            Self::Session => "t.session_id",
            Self::Scope => "s.scope",
            Self::Harness => "s.harness",
            Self::Account => "json_extract(s.document, '$.account')",
            Self::Provider => "s.provider",
            Self::Model => "json_extract(s.document, '$.model')",
            Self::Agent => "s.agent_id",
        }
    }
}

/// Which turns count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UsageFilter {
    /// From this day on, `YYYY-MM-DD` in UTC.
    pub from: Option<String>,
    /// Up to and with this day.
    pub to: Option<String>,
    /// Of this session.
    pub session: Option<SessionId>,
    /// Of this project folder.
    pub scope: Option<String>,
}

/// The sum of some turns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UsageSum {
    /// Of what: a day, a session's id …
    pub key: String,
    /// Of costs in this currency; empty: no cost was told.
    pub currency: String,
    /// Turns.
    pub turns: u64,
    /// Tokens sent.
    pub input: u64,
    /// Tokens made.
    pub output: u64,
    /// Tokens from caches.
    pub cached: u64,
    /// Millionths of `currency`.
    pub cost: u64,
}

impl SessionTexts {
    /// Sums, one for each key and currency, the last key first; at most 1000.
    ///
    /// # Errors
    /// The database failed.
    pub async fn usage(
        &self,
        by: UsageBy,
        filter: UsageFilter,
    ) -> Result<Vec<UsageSum>, StoreError> {
        self.0.read(move |db| sums(db, by, &filter)).await
    }
}

fn sums(db: &Connection, by: UsageBy, filter: &UsageFilter) -> Result<Vec<UsageSum>, StoreError> {
    let mut conditions = Conditions::default();
    for (condition, day) in [("t.day >= ?", &filter.from), ("t.day <= ?", &filter.to)] {
        if let Some(day) = day {
            conditions.add(condition, [day.clone().into()]);
        }
    }
    conditions.equals(
        "t.session_id",
        filter.session.as_ref().map(SessionId::as_str),
    );
    conditions.equals("s.scope", filter.scope.as_deref());
    let Conditions { sql, values } = conditions;
    let key = by.column();
    let sql = format!(
        "SELECT coalesce({key}, ''), t.currency, count(*), sum(t.input), sum(t.output), sum(t.cached), sum(t.cost) \
         FROM session_turns t JOIN sessions s ON s.id = t.session_id{sql} \
         GROUP BY 1, 2 ORDER BY 1 DESC, 2 LIMIT {MOST}"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), |row| {
        Ok(UsageSum {
            key: row.get(0)?,
            currency: row.get(1)?,
            turns: natural(row, 2)?,
            input: natural(row, 3)?,
            output: natural(row, 4)?,
            cached: natural(row, 5)?,
            cost: natural(row, 6)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
