//! Gemini CLI: `settings.json` (a copy it may rewrite), key, endpoint and model in the environment.
//!
//! | model field | setting |
//! |---|---|
//! | `contextWindow` | it takes every window for 1 048 576 tokens; `model.compressionThreshold` is the part of that at which it compacts: window − reserve |
//! | `maxOutput`, `temperature` | `modelConfigs.customOverrides`: `maxOutputTokens`, `temperature` |
//! | `reasoning = false` | `modelConfigs.customOverrides`: `thinkingConfig.thinkingBudget` 0 |
//! | `name`, `images` | it has no setting |

use super::{Provided, Rendered, Request, json_text};
use serde_json::{Value, json};

/// The window it assumes (its `DEFAULT_TOKEN_LIMIT`).
const ITS_WINDOW: f64 = 1_048_576.0;

/// What it asks for by these names, with models of the vendor (its `DEFAULT_MODEL_CONFIGS`); elsewhere they must
/// lead to a model the provider serves.
const HELPERS: [&str; 21] = [
    "agent-history-provider-summarizer",
    "chat-compression-2.5-flash",
    "chat-compression-2.5-flash-lite",
    "chat-compression-2.5-pro",
    "chat-compression-3-flash",
    "chat-compression-3-pro",
    "chat-compression-3.1-flash-lite",
    "chat-compression-default",
    "classifier",
    "context-snapshotter",
    "edit-corrector",
    "fast-ack-helper",
    "llm-edit-fixer",
    "loop-detection",
    "loop-detection-double-check",
    "next-speaker-checker",
    "prompt-completion",
    "summarizer-default",
    "summarizer-shell",
    "web-fetch",
    "web-fetch-fallback",
];

/// Files and environment.
pub(super) fn render(request: &Request<'_>) -> Rendered {
    let mut rendered = Rendered::default();
    let mut settings = json!({
        "general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false},
        "privacy": {"usageStatisticsEnabled": false},
        "telemetry": {"enabled": false},
        // The sandbox is the wall.
        "security": {"folderTrust": {"enabled": false}},
    });
    if let Some(provided) = &request.provided {
        rendered.set("GEMINI_API_KEY", provided.key);
        rendered.set("GOOGLE_GEMINI_BASE_URL", &provided.endpoint.url);
        rendered.set("GEMINI_MODEL", &provided.model.id);
        settings["security"]["auth"] = json!({"selectedType": "gemini-api-key"});
        settings["model"] = model(provided);
        settings["modelConfigs"] = json!({"customOverrides": overrides(provided)});
    }
    let settings = json_text(&settings);
    rendered
        .files
        .push(request.file("~/.gemini/settings.json", settings, true));
    rendered
}

fn model(provided: &Provided<'_>) -> Value {
    let mut model = json!({"name": provided.model.id});
    if let Some(window) = provided.model.context_window {
        let room = window - provided.reserve(window);
        // At most 100 000 000: exact.
        let part = f64::from(u32::try_from(room).unwrap_or(u32::MAX)) / ITS_WINDOW;
        model["compressionThreshold"] = json!(part);
    }
    model
}

fn overrides(provided: &Provided<'_>) -> Vec<Value> {
    let id = &provided.model.id;
    let mut config = json!({});
    if let Some(output) = provided.model.max_output {
        config["maxOutputTokens"] = json!(output);
    }
    if let Some(temperature) = provided.model.temperature {
        config["temperature"] = json!(temperature);
    }
    if provided.model.reasoning == Some(false) {
        config["thinkingConfig"] = json!({"thinkingBudget": 0, "includeThoughts": false});
    }
    let own = json!({"match": {"model": id}, "modelConfig": {"generateContentConfig": config}});
    let mut overrides = vec![own];
    if !provided.endpoint.is_of("googleapis.com") {
        let to_own = |name: &&str| json!({"match": {"model": name}, "modelConfig": {"model": id}});
        overrides.extend(HELPERS.iter().map(to_own));
    }
    overrides
}
