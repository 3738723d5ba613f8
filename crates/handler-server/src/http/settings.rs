//! What a person sets up: providers, secrets, work folders, harnesses; and what the host can do.

use super::document::Document;
use super::problem::ApiResult;
use crate::app::{directories, harnesses, host, providers, secrets};
use crate::state::App;
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use handler_types::api::{
    BackendView, FolderRequest, HarnessView, Health, ProviderRequest, ProviderTemplate,
    ProviderView, SecretRequest, SecretView,
};
use handler_types::folder::{WorkFoldersInfo, WorkFoldersRequest};
use std::sync::Arc;

type S = State<Arc<App>>;

/// Whether the daemon is there. Needs no token.
#[utoipa::path(get, path = "/v1/health", tag = "host", responses((status = 200, body = Health)))]
pub async fn health() -> Json<Health> {
    Json(Health {
        status: "ok".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
    })
}

/// Backends of this host and what was checked.
#[utoipa::path(get, path = "/v1/backends", tag = "host", responses((status = 200, body = Vec<BackendView>)))]
pub async fn backends(State(app): S) -> Json<Vec<BackendView>> {
    Json(host::backends(&app).await)
}

/// Providers, broken ones included.
#[utoipa::path(get, path = "/v1/providers", tag = "providers", responses((status = 200, body = Vec<ProviderView>)))]
pub async fn list_providers(State(app): S) -> ApiResult<Json<Vec<ProviderView>>> {
    Ok(Json(providers::list(&app).await?))
}

/// Adds a provider; its key goes to the secret store.
#[utoipa::path(post, path = "/v1/providers", tag = "providers", request_body = ProviderRequest,
    responses((status = 201, body = ProviderView),
    (status = 409, description = "`cannot create the provider`", body = handler_types::Problem)))]
pub async fn add_provider(
    State(app): S,
    Document(request): Document<ProviderRequest>,
) -> ApiResult<(StatusCode, Json<ProviderView>)> {
    Ok((
        StatusCode::CREATED,
        Json(providers::add(&app, request).await?),
    ))
}

/// Says something else of a provider, whole. Its key stays where it is kept, unless `key` or `removeKey` is said.
#[utoipa::path(put, path = "/v1/providers/{name}", tag = "providers", params(("name" = String, Path)),
    request_body = ProviderRequest, responses((status = 200, body = ProviderView),
    (status = 404, description = "`provider not found`", body = handler_types::Problem),
    (status = 409, description = "`cannot rename the provider`, `provider in use: cannot rename it`", body = handler_types::Problem)))]
pub async fn put_provider(
    State(app): S,
    Path(name): Path<String>,
    Document(request): Document<ProviderRequest>,
) -> ApiResult<Json<ProviderView>> {
    Ok(Json(providers::update(&app, &name, request).await?))
}

/// Removes a provider and its stored key.
#[utoipa::path(delete, path = "/v1/providers/{name}", tag = "providers", params(("name" = String, Path)),
    responses((status = 204)))]
pub async fn delete_provider(State(app): S, Path(name): Path<String>) -> ApiResult<StatusCode> {
    providers::remove(&app, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Templates to start a provider from.
#[utoipa::path(get, path = "/v1/provider-templates", tag = "providers",
    responses((status = 200, body = Vec<ProviderTemplate>)))]
pub async fn provider_templates() -> Json<Vec<ProviderTemplate>> {
    Json(handler_harness::templates().to_vec())
}

/// Stored secrets, without their values.
#[utoipa::path(get, path = "/v1/secrets", tag = "secrets", responses((status = 200, body = Vec<SecretView>)))]
pub async fn list_secrets(State(app): S) -> ApiResult<Json<Vec<SecretView>>> {
    Ok(Json(secrets::list(&app).await?))
}

/// Stores a secret. No endpoint gives it back.
#[utoipa::path(put, path = "/v1/secrets/{path}", tag = "secrets", params(("path" = String, Path)),
    request_body = SecretRequest, responses((status = 200, body = SecretView)))]
pub async fn set_secret(
    State(app): S,
    Path(path): Path<String>,
    Document(request): Document<SecretRequest>,
) -> ApiResult<Json<SecretView>> {
    Ok(Json(secrets::set(&app, &path, request).await?))
}

/// Removes a secret.
#[utoipa::path(delete, path = "/v1/secrets/{path}", tag = "secrets", params(("path" = String, Path)),
    responses((status = 204)))]
pub async fn delete_secret(State(app): S, Path(path): Path<String>) -> ApiResult<StatusCode> {
    secrets::remove(&app, &path).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Harnesses and whether they are installed.
#[utoipa::path(get, path = "/v1/harnesses", tag = "harnesses", responses((status = 200, body = Vec<HarnessView>)))]
pub async fn list_harnesses(State(app): S) -> Json<Vec<HarnessView>> {
    Json(harnesses::list(&app).await)
}

/// Installs a harness (pinned versions, inside a sandbox) and checks it; answers when done.
#[utoipa::path(post, path = "/v1/harnesses/{name}/install", tag = "harnesses", params(("name" = String, Path)),
    responses((status = 200, body = HarnessView)))]
pub async fn install_harness(
    State(app): S,
    Path(name): Path<String>,
) -> ApiResult<Json<HarnessView>> {
    Ok(Json(harnesses::install(&app, &name).await?))
}

/// Work folders: the roots projects may lie in.
#[utoipa::path(get, path = "/v1/folders", tag = "host", responses((status = 200, body = WorkFoldersInfo)))]
pub async fn list_folders(State(app): S) -> ApiResult<Json<WorkFoldersInfo>> {
    Ok(Json(directories::folders(&app).await?))
}

/// Sets the whole list of them.
#[utoipa::path(put, path = "/v1/folders", tag = "host", request_body = WorkFoldersRequest,
    responses((status = 200, body = WorkFoldersInfo),
    (status = 403, description = "One may never be one", body = handler_types::Problem)))]
pub async fn set_folders(
    State(app): S,
    Document(request): Document<WorkFoldersRequest>,
) -> ApiResult<Json<WorkFoldersInfo>> {
    Ok(Json(directories::set_folders(&app, request).await?))
}

/// Lets agents work in a folder and below.
#[utoipa::path(post, path = "/v1/folders", tag = "host", request_body = FolderRequest,
    responses((status = 200, body = WorkFoldersInfo)))]
pub async fn add_folder(
    State(app): S,
    Document(request): Document<FolderRequest>,
) -> ApiResult<Json<WorkFoldersInfo>> {
    host::add_folder(&app, &request.path)?;
    Ok(Json(directories::folders(&app).await?))
}

/// Takes a folder off the list.
#[utoipa::path(delete, path = "/v1/folders", tag = "host", params(FolderQuery),
    responses((status = 200, body = WorkFoldersInfo)))]
pub async fn remove_folder(
    State(app): S,
    Query(query): Query<FolderQuery>,
) -> ApiResult<Json<WorkFoldersInfo>> {
    host::remove_folder(&app, &query.path)?;
    Ok(Json(directories::folders(&app).await?))
}

/// Which folder.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FolderQuery {
    /// As listed.
    pub path: String,
}
