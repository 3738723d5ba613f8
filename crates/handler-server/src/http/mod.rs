//! The HTTP face: routes, and what every request passes first. No rule lives here.

pub mod accounts;
pub mod agents;
pub mod archives;
pub mod audit;
pub mod auth;
pub mod builds;
pub mod caches;
pub mod contexts;
pub mod directories;
pub mod document;
pub mod events;
pub mod files;
pub mod git;
pub mod idempotency;
pub mod images;
pub mod knowledge;
pub mod lifetime;
mod linger;
pub mod logins;
pub mod network;
pub mod observe;
pub mod ports;
pub mod presets;
pub mod preview;
pub mod problem;
pub mod processes;
pub mod projects;
mod range;
pub mod sandboxes;
pub mod session_folder;
pub mod session_texts;
pub mod sessions;
pub mod settings;
mod spooled;
pub mod ssh;
pub mod stream;
pub mod terminal_socket;
pub mod terminals;
mod tunnel;
mod upload;
pub mod viewer;

use crate::state::App;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::header;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::{Router, routing};
use handler_types::ProblemCode;
use std::sync::Arc;
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Handler",
        description = "Control plane for sandboxes and the coding agents in them. Loopback only; bearer token.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    // Those that only parameters name are not found by themselves.
    components(schemas(
        handler_types::event::ServerEvent,
        handler_types::api::ArchiveFormat,
        handler_types::terminal::ScreenFormat,
        handler_types::terminal::ViewerMode,
        handler_types::session_text::SumBy,
        crate::app::sessions::Format,
        processes::AckBy,
    ))
)]
struct Doc;

fn session_routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(sessions::create, sessions::list))
        .routes(routes!(
            sessions::get,
            session_texts::change,
            sessions::delete
        ))
        .routes(routes!(session_texts::search))
        .routes(routes!(session_texts::usage))
        .routes(routes!(session_texts::export))
        .routes(routes!(session_folder::changes))
        .routes(routes!(session_folder::mounts))
        .routes(routes!(session_folder::folder))
        .routes(routes!(session_folder::find))
        .routes(routes!(session_folder::file))
        .routes(routes!(session_folder::diff))
        .routes(routes!(session_folder::revert))
        .routes(routes!(session_folder::reveal))
        .routes(routes!(sessions::stop))
        .routes(routes!(sessions::cancel))
        .routes(routes!(sessions::network))
        .routes(routes!(sessions::acp))
}

fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Doc::openapi())
        .routes(routes!(settings::health))
        .routes(routes!(settings::backends))
        .routes(routes!(lifetime::host))
        .routes(routes!(
            settings::list_folders,
            settings::set_folders,
            settings::add_folder,
            settings::remove_folder
        ))
        .routes(routes!(events::stream))
        .routes(routes!(sandboxes::create, sandboxes::list))
        .routes(routes!(sandboxes::get, sandboxes::delete, lifetime::update))
        .routes(routes!(lifetime::pause))
        .routes(routes!(lifetime::resume))
        .routes(routes!(sandboxes::start))
        .routes(routes!(sandboxes::stop))
        .routes(routes!(sandboxes::restart))
        .routes(routes!(sandboxes::network))
        .routes(routes!(sandboxes::egress_events))
        .routes(routes!(observe::agents))
        .routes(routes!(observe::activity))
        .routes(routes!(observe::metrics))
        .routes(routes!(observe::history))
        .routes(routes!(observe::logs))
        .routes(routes!(observe::host_stats))
        .routes(routes!(observe::prometheus))
        .routes(routes!(ports::list, ports::forward))
        .routes(routes!(ports::unforward))
        .routes(routes!(ports::open))
        .routes(routes!(ports::connect))
        .routes(routes!(ssh::ssh))
        .routes(routes!(ssh::ssh_host_key))
        .routes(routes!(processes::exec))
        .routes(routes!(processes::start, processes::list))
        .routes(routes!(processes::get, processes::forget))
        .routes(routes!(processes::signal))
        .routes(routes!(processes::stdin))
        .routes(routes!(processes::attach))
        .routes(routes!(terminals::create, terminals::list))
        .routes(routes!(terminals::get, terminals::update, terminals::close))
        .routes(routes!(terminals::screen))
        .routes(routes!(terminals::input))
        .routes(routes!(terminals::resize))
        .routes(routes!(terminals::tmux))
        .routes(routes!(files::read, files::write, files::remove))
        .routes(routes!(files::stat))
        .routes(routes!(files::list))
        .routes(routes!(files::mkdir))
        .routes(routes!(files::chmod))
        .routes(routes!(files::hash))
        .routes(routes!(archives::download, archives::upload))
        .routes(routes!(archives::watch))
        .routes(routes!(files::rename))
        .routes(routes!(presets::list))
        .routes(routes!(presets::get, presets::put, presets::remove))
        .routes(routes!(presets::list_files))
        .routes(routes!(
            presets::get_file,
            presets::put_file,
            presets::remove_file
        ))
        .routes(routes!(presets::copy_file))
        .routes(routes!(git::status))
        .routes(routes!(git::log))
        .routes(routes!(git::show))
        .routes(routes!(git::diff))
        .routes(routes!(git::create_fork, git::forks))
        .routes(routes!(git::get_fork, git::remove_fork))
        .routes(routes!(git::merge_fork))
        .routes(routes!(settings::list_providers, settings::add_provider))
        .routes(routes!(settings::put_provider, settings::delete_provider))
        .routes(routes!(settings::provider_templates))
        .routes(routes!(settings::list_secrets))
        .routes(routes!(logins::list))
        .routes(routes!(logins::put, logins::remove))
        .routes(routes!(settings::list_harnesses))
        .routes(routes!(settings::install_harness))
        .routes(routes!(images::list))
        .routes(routes!(images::pull))
        .routes(routes!(images::tag))
        .routes(routes!(images::import))
        .routes(routes!(images::updates, images::set_updates))
        .routes(routes!(images::run_updates))
        .routes(routes!(builds::create, builds::list))
        .routes(routes!(builds::get))
        .routes(routes!(builds::cancel))
        .routes(routes!(builds::log))
        .routes(routes!(builds::follow))
        .merge(session_routes())
        .merge(network_routes())
        .merge(project_routes())
        .merge(given_routes())
        .merge(account_routes())
}

/// What of this machine agents are given besides their folder: work folders, caches, notes.
fn given_routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(directories::list, directories::make))
        .routes(routes!(caches::info, caches::declare))
        .routes(routes!(caches::sizes))
        .routes(routes!(caches::clear_all))
        .routes(routes!(caches::clear))
        .routes(routes!(caches::clear_project))
        .routes(routes!(caches::clear_one_of_project))
        .routes(routes!(knowledge::list))
        .routes(routes!(knowledge::set_root))
        .routes(routes!(knowledge::make))
        .routes(routes!(knowledge::browse))
        .routes(routes!(knowledge::note))
}

/// What people's agents run as, and where.
fn account_routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(accounts::list, accounts::create))
        .routes(routes!(accounts::put, accounts::remove))
        .routes(routes!(accounts::log_in, accounts::log_out))
        .routes(routes!(contexts::list, contexts::create))
        .routes(routes!(contexts::put, contexts::remove))
}

/// What people work on, and who works on it.
fn project_routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(projects::list, projects::create))
        .routes(routes!(projects::get, projects::put, projects::remove))
        .routes(routes!(agents::list, agents::create))
        .routes(routes!(
            agents::get,
            agents::put,
            agents::patch,
            agents::remove
        ))
        .routes(routes!(agents::egress_events))
        .routes(routes!(agents::allow))
        .routes(routes!(agents::block))
        .routes(routes!(agents::enforcement))
        .routes(routes!(agents::acp))
        .routes(routes!(agents::terminal))
}

/// What a person has to do with the network: watch it, widen and narrow it, look back.
fn network_routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(network::learn))
        .routes(routes!(network::allow))
        .routes(routes!(network::block))
        .routes(routes!(network::enforcement))
        .routes(routes!(network::learn_session))
        .routes(routes!(network::allow_session))
        .routes(routes!(network::block_session))
        .routes(routes!(network::enforcement_session))
        .routes(routes!(audit::list))
        .routes(routes!(audit::verify))
        .routes(routes!(audit::export))
}

/// The API's description, as committed under `openapi/`.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut doc = routes().into_openapi();
    // A secret's path has slashes, which a path template cannot say; its route is mounted by hand.
    let secrets = <SecretDoc as OpenApi>::openapi();
    doc.merge(secrets);
    doc
}

#[derive(OpenApi)]
#[openapi(paths(
    settings::set_secret,
    settings::delete_secret,
    images::get,
    images::remove
))]
struct SecretDoc;

/// The whole application.
pub fn router(app: Arc<App>) -> Router {
    // Serialised once; the router is shared by all connections.
    let description = Bytes::from(serde_json::to_vec(&openapi()).unwrap_or_default());
    let is_json = [(header::CONTENT_TYPE, "application/json")];
    let (api, _) = routes().split_for_parts();
    api.route(
        "/v1/secrets/{*path}",
        routing::put(settings::set_secret).delete(settings::delete_secret),
    )
    .route(
        "/v1/images/{*reference}",
        routing::get(images::get).delete(images::remove),
    )
    .route(
        "/openapi.json",
        routing::get(move || async move { (is_json, description) }),
    )
    .fallback(|| async {
        problem::ApiError::new(ProblemCode::NotFound, "no such address; see /openapi.json")
    })
    .method_not_allowed_fallback(|| async {
        problem::ApiError::new(
            ProblemCode::Invalid,
            "this address does not take that method",
        )
    })
    .layer(middleware::from_fn(problems))
    .layer(middleware::from_fn_with_state(
        app.clone(),
        idempotency::replay,
    ))
    .layer(middleware::from_fn_with_state(app.clone(), auth::check))
    .layer(DefaultBodyLimit::max(idempotency::MAX_JSON))
    .layer(middleware::from_fn(linger::drain_refused))
    .layer(middleware::from_fn_with_state(app.clone(), preview::divert))
    .with_state(app)
}

/// Gives refusals of the framework itself (a body that is no JSON, a bad query) our shape too.
async fn problems(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let is_plain_refusal = response.status().is_client_error()
        && response
            .headers()
            .get("content-type")
            .is_none_or(|t| !t.as_bytes().starts_with(b"application/problem+json"));
    if !is_plain_refusal {
        return response;
    }
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), 64 * 1024)
        .await
        .unwrap_or_default();
    let code = match status.as_u16() {
        404 => ProblemCode::NotFound,
        413 => ProblemCode::TooLarge,
        _ => ProblemCode::Invalid,
    };
    problem::ApiError::new(code, String::from_utf8_lossy(&body).into_owned()).into_response()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(to)) = map.get("$ref") {
                    found.push(to.clone());
                }
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn everything_the_description_refers_to_is_in_it() {
        let document = serde_json::to_value(super::openapi()).expect("a document");
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 100, "{}", found.len());
        found.retain(|to| {
            let pointer = to.strip_prefix('#').expect("in this document");
            document.pointer(pointer).is_none()
        });
        assert!(found.is_empty(), "{found:?}");
    }
}
