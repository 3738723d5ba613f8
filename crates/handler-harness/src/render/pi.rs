//! A provider for pi: `models.json` (read-only) and `settings.json` (a copy it may rewrite), the key in
//! the environment and named in the file.
//!
//! | model field | setting |
//! |---|---|
//! | `name`, `contextWindow`, `reasoning`, `images` | `name`, `contextWindow`, `reasoning`, `input` |
//! | `maxOutput` | `maxTokens`, `compaction.reserveTokens` |
//! | `temperature` | `samplingParams.temperature` (pi ignores it with the `anthropic` protocol) |

use super::{Rendered, Request, expand};
use handler_types::launch::LaunchFile;
use handler_types::provider::Protocol;
use serde_json::{Value, json};

/// Its own window when the model does not say.
const ITS_WINDOW: u64 = 128_000;

/// What it keeps of the newest conversation when it compacts.
const ITS_KEPT: u64 = 20_000;

/// The provider's id in pi's configuration.
const PROVIDER: &str = "handler";

/// Not one of the names pi looks for by itself: with those, its catalogue would offer models of vendors
/// that the sandbox cannot reach.
const KEY_VARIABLE: &str = "HANDLER_MODEL_KEY";

/// Marks in the ids of the vendor's models that think by a token budget; newer ones refuse a budget and
/// decide themselves.
const BUDGET_THINKING: [&str; 5] = ["claude-3", "-4-0", "-4-1", "-4-2", "-4-5"];

/// Files and environment for a provider.
pub(super) fn render(request: &Request<'_>) -> Rendered {
    let mut rendered = Rendered::default();
    rendered
        .env
        .insert(KEY_VARIABLE.to_owned(), request.key.to_owned());
    rendered.env.insert(
        "PI_ACP_PI_COMMAND".to_owned(),
        format!("{}/bin/pi", request.prefix),
    );
    let file = |name: &str, content: &Value, writable: bool| LaunchFile {
        target: expand(&request.descriptor.home, &format!("~/.pi/agent/{name}")),
        content: format!("{content:#}\n"),
        mode: if writable { 0o600 } else { 0o444 },
        writable,
    };
    rendered.files = vec![
        file("models.json", &models(request), false),
        file("settings.json", &settings(request), true),
    ];
    rendered
}

fn models(request: &Request<'_>) -> Value {
    let api = match request.protocol {
        Protocol::Anthropic => "anthropic-messages",
        Protocol::Responses => "openai-responses",
        Protocol::Gemini => "google-generative-ai",
        Protocol::OpenaiChat => "openai-completions",
    };
    json!({ "providers": { PROVIDER: {
        "baseUrl": request.endpoint.url,
        "api": api,
        "apiKey": format!("${KEY_VARIABLE}"),
        "models": [model(request)],
    }}})
}

/// Whether pi has to be told that the model wants no thinking budget: it knows that of its own
/// catalogue's entries only.
fn thinks_by_itself(request: &Request<'_>) -> bool {
    request.protocol == Protocol::Anthropic
        && request.endpoint.is_of("anthropic.com")
        && request.model.reasoning == Some(true)
        && !BUDGET_THINKING
            .iter()
            .any(|mark| request.model.id.contains(mark))
}

fn model(request: &Request<'_>) -> Value {
    let model = request.model;
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
        thinks_by_itself(request).then(|| json!({ "forceAdaptiveThinking": true })),
    );
    entry
}

fn settings(request: &Request<'_>) -> Value {
    let window = request.model.context_window.unwrap_or(ITS_WINDOW);
    let reserve = request.reserve(window);
    let thinking = if request.model.reasoning == Some(true) {
        "medium"
    } else {
        "off"
    };
    json!({
        "defaultProvider": PROVIDER,
        "defaultModel": request.model.id,
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
