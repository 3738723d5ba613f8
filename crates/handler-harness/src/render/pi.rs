//! A provider for pi: `models.json` (read-only) and `settings.json` (a copy it may rewrite), the key in
//! the environment and named in the file.
//!
//! | model field | setting |
//! |---|---|
//! | `name`, `contextWindow`, `reasoning`, `images` | `name`, `contextWindow`, `reasoning`, `input` |
//! | `maxOutput` | `maxTokens`, `compaction.reserveTokens` |
//! | `temperature` | `samplingParams.temperature` (pi ignores it with the `anthropic` protocol) |

use super::{KEY_VARIABLE, PROVIDER, Provided, Rendered, Request, json_text};
use handler_types::provider::Protocol;
use serde_json::{Value, json};

/// Its own window when the model does not say.
const ITS_WINDOW: u64 = 128_000;

/// What it keeps of the newest conversation when it compacts.
const ITS_KEPT: u64 = 20_000;

/// Marks in the ids of the vendor's models that think by a token budget; newer ones refuse a budget and
/// decide themselves.
const BUDGET_THINKING: [&str; 5] = ["claude-3", "-4-0", "-4-1", "-4-2", "-4-5"];

/// Files and environment.
pub(super) fn render(request: &Request<'_>) -> Rendered {
    let mut rendered = Rendered::default();
    rendered.set("PI_ACP_PI_COMMAND", format!("{}/bin/pi", request.prefix));
    if let Some(provided) = &request.provided {
        rendered.set(KEY_VARIABLE, provided.key);
        let file = |name: &str, content: &Value, is_writable: bool| {
            request.file(
                &format!("~/.pi/agent/{name}"),
                json_text(content),
                is_writable,
            )
        };
        rendered.files = vec![
            file("models.json", &models(provided), false),
            file("settings.json", &settings(provided), true),
        ];
    }
    rendered
}

fn models(provided: &Provided<'_>) -> Value {
    let api = match provided.protocol {
        Protocol::Anthropic => "anthropic-messages",
        Protocol::Responses => "openai-responses",
        Protocol::Gemini => "google-generative-ai",
        Protocol::OpenaiChat => "openai-completions",
    };
    json!({ "providers": { PROVIDER: {
        "baseUrl": provided.endpoint.url,
        "api": api,
        "apiKey": format!("${KEY_VARIABLE}"),
        "models": [model(provided)],
    }}})
}

/// Whether pi has to be told that the model wants no thinking budget: it knows that of its own
/// catalogue's entries only.
fn thinks_by_itself(provided: &Provided<'_>) -> bool {
    provided.protocol == Protocol::Anthropic
        && provided.endpoint.is_of("anthropic.com")
        && provided.model.reasoning == Some(true)
        && !BUDGET_THINKING
            .iter()
            .any(|mark| provided.model.id.contains(mark))
}

fn model(provided: &Provided<'_>) -> Value {
    let model = provided.model;
    let mut entry = json!({
        "id": model.id,
        "name": model.name.as_deref().unwrap_or(&model.id),
        "reasoning": model.reasoning.unwrap_or(false),
        "input": if model.images == Some(true) { json!(["text", "image"]) } else { json!(["text"]) },
    });
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            entry[key] = value;
        }
    };
    set("contextWindow", model.context_window.map(Value::from));
    set("maxTokens", model.max_output.map(Value::from));
    set(
        "samplingParams",
        model.temperature.map(|t| json!({ "temperature": t })),
    );
    set(
        "compat",
        thinks_by_itself(provided).then(|| json!({ "forceAdaptiveThinking": true })),
    );
    entry
}

fn settings(provided: &Provided<'_>) -> Value {
    let window = provided.model.context_window.unwrap_or(ITS_WINDOW);
    let reserve = provided.reserve(window);
    let thinking = if provided.model.reasoning == Some(true) {
        "medium"
    } else {
        "off"
    };
    json!({
        "defaultProvider": PROVIDER,
        "defaultModel": provided.model.id,
        "defaultThinkingLevel": thinking,
        // Its banner would be the first message of every conversation.
        "quietStartup": true,
        "enableInstallTelemetry": false,
        "compaction": {
            "enabled": true,
            "reserveTokens": reserve,
            // What is kept must leave room to go on.
            "keepRecentTokens": ITS_KEPT.min((window - reserve) / 2),
        },
    })
}
