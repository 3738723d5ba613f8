//! Codex: `config.toml` (a copy it may rewrite) and a catalogue with the one model (read-only), the key in the
//! environment and named in the file.
//!
//! | model field | setting |
//! |---|---|
//! | `name`, `images` | catalogue `display_name`, `input_modalities` |
//! | `contextWindow` | catalogue `context_window`, `max_context_window`; `auto_compact_token_limit` = window − reserve |
//! | `reasoning` | `model_reasoning_effort`, catalogue `supported_reasoning_levels` |
//! | `maxOutput` | it has no setting; only the reserve |
//! | `temperature` | it has no setting |
//!
//! The catalogue's fields are those of `codex debug models --bundled`. A model it knows by itself would come with
//! tools that only the vendor's servers offer; one of the catalogue has plain function tools.

use super::{KEY_VARIABLE, PROVIDER, Provided, Rendered, Request, expand, json_text};
use serde_json::{Value, json};
use toml::{Table, Value as Toml};

/// Its own window when the model does not say.
const ITS_WINDOW: u64 = 128_000;

/// The system prompt of a model it does not know; a provider's `instructions_md` takes its place.
const INSTRUCTIONS: &str = "You are a coding agent working in a person's project folder. Read before you change \
something, keep to the style you find, use the tools you are given, and say shortly what you did.";

/// Files and environment.
pub(super) fn render(request: &Request<'_>) -> Rendered {
    let mut rendered = Rendered::default();
    let mut config = base(request.scope);
    if let Some(provided) = &request.provided {
        rendered.set(KEY_VARIABLE, provided.key);
        let path = |name: &str| expand(&request.descriptor.home, &format!("~/.codex/{name}"));
        config.extend(provider(provided, &path("model-catalog.json")));
        if provided.files.contains_key("instructions_md") {
            let value = Toml::String(path("instructions.md"));
            config.insert("model_instructions_file".to_owned(), value);
        }
        let catalog = json_text(&catalog(provided));
        rendered
            .files
            .push(request.file("~/.codex/model-catalog.json", catalog, false));
    }
    rendered
        .files
        .push(request.file("~/.codex/config.toml", config.to_string(), true));
    rendered
}

fn table<const N: usize>(entries: [(&str, Toml); N]) -> Table {
    let entries = entries
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value));
    entries.collect()
}

fn nested<const N: usize>(entries: [(&str, Toml); N]) -> Toml {
    Toml::Table(table(entries))
}

/// What is the same for every model: nothing is reported to the vendor, and the project is trusted, since the
/// sandbox is the wall.
fn base(scope: &str) -> Table {
    let trusted = nested([("trust_level", "trusted".into())]);
    table([
        ("check_for_update_on_startup", false.into()),
        ("analytics", nested([("enabled", false.into())])),
        ("feedback", nested([("enabled", false.into())])),
        ("otel", nested([("metrics_exporter", "none".into())])),
        ("projects", nested([(scope, trusted)])),
    ])
}

fn provider(provided: &Provided<'_>, catalog: &str) -> Table {
    let server = nested([
        ("name", provided.name.into()),
        ("base_url", provided.endpoint.url.as_str().into()),
        ("wire_api", "responses".into()),
        ("env_key", KEY_VARIABLE.into()),
    ]);
    let mut config = table([
        ("model", provided.model.id.as_str().into()),
        ("model_provider", PROVIDER.into()),
        ("model_catalog_json", catalog.into()),
        // Searched by the vendor's own servers.
        ("web_search", "disabled".into()),
        ("model_providers", nested([(PROVIDER, server)])),
    ]);
    if provided.is_reasoning() {
        config.insert("model_reasoning_effort".to_owned(), "medium".into());
    }
    config
}

fn catalog(provided: &Provided<'_>) -> Value {
    let window = provided.model.context_window.unwrap_or(ITS_WINDOW);
    let level = |effort: &str| json!({"effort": effort, "description": effort});
    let levels: Vec<_> = ["low", "medium", "high"].map(level).into();
    let inputs: &[&str] = if provided.takes_images() {
        &["text", "image"]
    } else {
        &["text"]
    };
    let mut entry = json!({
        "slug": provided.model.id,
        "display_name": provided.shown_name(),
        "supported_reasoning_levels": if provided.is_reasoning() { levels } else { Vec::new() },
        "shell_type": "shell_command",
        "visibility": "list",
        "supported_in_api": true,
        "priority": 1,
        "base_instructions": INSTRUCTIONS,
        "supports_reasoning_summaries": provided.is_reasoning(),
        "support_verbosity": false,
        "truncation_policy": {"mode": "bytes", "limit": 20_000},
        "supports_parallel_tool_calls": false,
        "context_window": window,
        "max_context_window": window,
        "auto_compact_token_limit": window - provided.reserve(window),
        "experimental_supported_tools": [],
        "input_modalities": inputs,
    });
    if provided.is_reasoning() {
        entry["default_reasoning_level"] = json!("medium");
    }
    json!({"models": [entry]})
}
