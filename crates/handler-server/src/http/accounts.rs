//! `/v1/accounts`: subscriptions that agent programs log in with. Logins go in and never come out.

use super::document::Document;
use super::problem::ApiResult;
use crate::app::accounts as rules;
use crate::state::App;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use handler_types::account::{AccountLoginRequest, AccountRequest, AccountView};
use std::sync::Arc;

type S = State<Arc<App>>;

/// Accounts, those with a wrong file included.
#[utoipa::path(get, path = "/v1/accounts", tag = "accounts", responses((status = 200, body = Vec<AccountView>)))]
pub async fn list(State(app): S) -> ApiResult<Json<Vec<AccountView>>> {
    Ok(Json(rules::list(&app).await?))
}

/// Makes an account; it is logged in by itself.
#[utoipa::path(post, path = "/v1/accounts", tag = "accounts", request_body = AccountRequest,
    responses((status = 201, body = AccountView),
    (status = 400, description = "`unknown context`", body = handler_types::Problem),
    (status = 409, description = "`cannot create the account`", body = handler_types::Problem)))]
pub async fn create(
    State(app): S,
    Document(request): Document<AccountRequest>,
) -> ApiResult<(StatusCode, Json<AccountView>)> {
    let made = rules::create(&app, request).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Says something else of an account, whole; its login stays.
#[utoipa::path(put, path = "/v1/accounts/{name}", tag = "accounts", params(("name" = String, Path)),
    request_body = AccountRequest, responses((status = 200, body = AccountView),
    (status = 404, description = "`account not found`", body = handler_types::Problem),
    (status = 409, description = "`cannot change the account`, `invalid account: fix its file`, `an account's harness cannot change`, `account in use: cannot rename it`", body = handler_types::Problem)))]
pub async fn put(
    State(app): S,
    Path(name): Path<String>,
    Document(request): Document<AccountRequest>,
) -> ApiResult<Json<AccountView>> {
    Ok(Json(rules::update(&app, &name, request).await?))
}

/// Removes an account with its login. Agents that list it cannot start.
#[utoipa::path(delete, path = "/v1/accounts/{name}", tag = "accounts", params(("name" = String, Path)),
    responses((status = 204)))]
pub async fn remove(State(app): S, Path(name): Path<String>) -> ApiResult<StatusCode> {
    rules::remove(&app, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Gives an account its login: exactly one of a token, where a token is kept, and a credential file.
#[utoipa::path(put, path = "/v1/accounts/{name}/login", tag = "accounts", params(("name" = String, Path)),
    request_body = AccountLoginRequest, responses((status = 200, body = AccountView),
    (status = 422, description = "`login refused`", body = handler_types::Problem)))]
pub async fn log_in(
    State(app): S,
    Path(name): Path<String>,
    Document(request): Document<AccountLoginRequest>,
) -> ApiResult<Json<AccountView>> {
    Ok(Json(rules::log_in(&app, &name, request).await?))
}

/// Takes an account's login away; the account stays.
#[utoipa::path(delete, path = "/v1/accounts/{name}/login", tag = "accounts", params(("name" = String, Path)),
    responses((status = 200, body = AccountView)))]
pub async fn log_out(State(app): S, Path(name): Path<String>) -> ApiResult<Json<AccountView>> {
    Ok(Json(rules::log_out(&app, &name).await?))
}
