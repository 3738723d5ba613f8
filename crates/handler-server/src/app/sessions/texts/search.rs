//! Sessions found by their words, and what their turns used.

use super::super::{find_row, store_error, view};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use handler_store::rows::{PageRequest, Role, SearchFilter, UsageBy, UsageFilter, UsageSum};
use handler_types::ProblemCode;
use handler_types::api::Page;
use handler_types::session_text::{Cost, MessageRole, SessionHit, SumBy, UsageSumView};

/// Longest search, characters.
const LONGEST: usize = 1000;
/// Millionths of a unit of a currency.
const MILLION: f64 = 1_000_000.0;

/// What to look for, and where.
#[derive(Debug, Default, serde::Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct SearchQuery {
    /// Words that one message must have, 1–1000 characters; the last one may go on, words in double quotes stand
    /// together. Case and accents do not matter.
    pub q: String,
    /// Only in sessions of this project folder.
    #[serde(default)]
    pub scope: String,
    /// Only in this session.
    #[serde(default)]
    pub session: String,
    /// In archived sessions too.
    #[serde(default)]
    pub archived: bool,
    /// From the page before.
    #[serde(default)]
    pub cursor: String,
    /// 1–500 (default 50).
    pub limit: Option<u32>,
}

/// Which turns count, and what sums are made for.
#[derive(Debug, Default, serde::Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct UsageQuery {
    /// `day` (default), `session`, `scope`, `harness`, `account`, `provider`, `model`, `agent`.
    #[serde(default)]
    pub by: SumBy,
    /// From this day on, `YYYY-MM-DD` in UTC.
    #[serde(default)]
    pub from: String,
    /// Up to and with this day.
    #[serde(default)]
    pub to: String,
    /// Only of this session.
    #[serde(default)]
    pub session: String,
    /// Only of sessions of this project folder.
    #[serde(default)]
    pub scope: String,
}

fn said(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// Messages with these words, the latest first.
///
/// # Errors
/// No words, a bad cursor, an unknown session.
pub async fn search(app: &App, query: SearchQuery) -> ApiResult<Page<SessionHit>> {
    if query.q.trim().is_empty() || query.q.chars().count() > LONGEST {
        let detail = "q: say what to look for, in 1 to 1000 characters";
        return Err(ApiError::new(ProblemCode::Invalid, detail));
    }
    let session = match said(query.session) {
        Some(text) => Some(find_row(app, &text).await?.id),
        None => None,
    };
    let filter = SearchFilter {
        text: query.q,
        scope: said(query.scope),
        session,
        with_archived: query.archived,
    };
    let page = PageRequest {
        cursor: said(query.cursor),
        limit: query.limit,
    };
    let found = app
        .store
        .session_texts()
        .search(filter, page)
        .await
        .map_err(store_error)?;
    let mut items = Vec::with_capacity(found.items.len());
    for hit in found.items {
        // One that was removed a moment ago is no find.
        let Some(row) = app
            .store
            .sessions()
            .get(&hit.session)
            .await
            .map_err(store_error)?
        else {
            continue;
        };
        items.push(SessionHit {
            session: view(app, &row).await?,
            seq: hit.seq,
            role: role(hit.role),
            snippet: hit.snippet,
        });
    }
    Ok(Page {
        items,
        next_cursor: found.next_cursor,
    })
}

fn role(role: Role) -> MessageRole {
    match role {
        Role::Title => MessageRole::Title,
        Role::User => MessageRole::User,
        Role::Agent => MessageRole::Agent,
    }
}

/// Sums of what turns used, the last day (or key) first; at most 1000.
///
/// # Errors
/// A day that is none, an unknown session.
pub async fn usage(app: &App, query: UsageQuery) -> ApiResult<Vec<UsageSumView>> {
    for (name, day) in [("from", &query.from), ("to", &query.to)] {
        if !day.is_empty() && !is_day(day) {
            let detail = format!("{name}: write a day as YYYY-MM-DD");
            return Err(ApiError::new(ProblemCode::Invalid, detail));
        }
    }
    let session = match said(query.session) {
        Some(text) => Some(find_row(app, &text).await?.id),
        None => None,
    };
    let filter = UsageFilter {
        from: said(query.from),
        to: said(query.to),
        session,
        scope: said(query.scope),
    };
    let by = match query.by {
        SumBy::Day => UsageBy::Day,
        SumBy::Session => UsageBy::Session,
        SumBy::Scope => UsageBy::Scope,
        SumBy::Harness => UsageBy::Harness,
        SumBy::Account => UsageBy::Account,
        SumBy::Provider => UsageBy::Provider,
        SumBy::Model => UsageBy::Model,
        SumBy::Agent => UsageBy::Agent,
    };
    let sums = app
        .store
        .session_texts()
        .usage(by, filter)
        .await
        .map_err(store_error)?;
    Ok(sums.into_iter().map(sum).collect())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "costs are far below 2^53 millionths"
)]
fn sum(sum: UsageSum) -> UsageSumView {
    let amount = sum.cost as f64 / MILLION;
    UsageSumView {
        key: sum.key,
        turns: sum.turns,
        input_tokens: sum.input,
        output_tokens: sum.output,
        cached_tokens: sum.cached,
        cost: said(sum.currency).map(|currency| Cost { amount, currency }),
    }
}

fn is_day(text: &str) -> bool {
    let shape = |(at, byte): (usize, u8)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    text.len() == 10 && text.bytes().enumerate().all(shape)
}
