//! Mistral Vibe: `config.toml` (a copy it may rewrite), the key in the environment and named in the file.
//!
//! | model field | setting |
//! |---|---|
//! | `name`, `images`, `temperature` | `display_name`, `supports_images`, `temperature` (its own is 0.2) |
//! | `contextWindow` | `max_context_length`; `auto_compact_threshold` = window − reserve |
//! | `maxOutput` | `max_output_tokens` |
//! | `reasoning` | `thinking` |

use super::{KEY_VARIABLE, PROVIDER, Provided, Rendered, Request};
use toml::{Table, Value};

/// Files and environment.
pub(super) fn render(request: &Request<'_>) -> Rendered {
    let mut rendered = Rendered::default();
    let Some(provided) = &request.provided else {
        return rendered;
    };
    rendered.set(KEY_VARIABLE, provided.key);
    let mut config = Table::new();
    let mut set = |key: &str, value: Value| config.insert(key.to_owned(), value);
    set("active_model", provided.model.id.as_str().into());
    set("providers", Value::Array(vec![server(provided).into()]));
    set("models", Value::Array(vec![model(provided).into()]));
    rendered
        .files
        .push(request.file("~/.vibe/config.toml", config.to_string(), true));
    rendered
}

fn table<const N: usize>(entries: [(&str, Value); N]) -> Table {
    let entries = entries
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value));
    entries.collect()
}

fn server(provided: &Provided<'_>) -> Table {
    table([
        ("name", PROVIDER.into()),
        ("api_base", provided.endpoint.url.as_str().into()),
        ("api_key_env_var", KEY_VARIABLE.into()),
        ("api_style", "openai".into()),
        ("backend", "generic".into()),
        ("reasoning_field_name", "reasoning_content".into()),
    ])
}

/// At most 100 000 000.
fn tokens(count: u64) -> Value {
    Value::Integer(i64::try_from(count).unwrap_or(i64::MAX))
}

fn model(provided: &Provided<'_>) -> Table {
    let thinking = if provided.is_reasoning() {
        "medium"
    } else {
        "off"
    };
    let mut entry = table([
        ("name", provided.model.id.as_str().into()),
        ("alias", provided.model.id.as_str().into()),
        ("provider", PROVIDER.into()),
        ("display_name", provided.shown_name().into()),
        ("thinking", thinking.into()),
        ("supports_images", provided.takes_images().into()),
    ]);
    let mut set = |key: &str, value: Value| entry.insert(key.to_owned(), value);
    if let Some(temperature) = provided.model.temperature {
        set("temperature", temperature.into());
    }
    if let Some(window) = provided.model.context_window {
        set("max_context_length", tokens(window));
        let room = window - provided.reserve(window);
        set("auto_compact_threshold", tokens(room.max(1)));
    }
    if let Some(output) = provided.model.max_output {
        set("max_output_tokens", tokens(output));
    }
    entry
}
