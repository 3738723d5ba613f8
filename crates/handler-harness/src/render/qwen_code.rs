//! Qwen Code: `settings.json` (a copy it may rewrite), the key in the environment and named in the file.
//!
//! | model field | setting |
//! |---|---|
//! | `name` | `name` |
//! | `contextWindow` | `generationConfig.contextWindowSize`: it compacts early enough for an answer |
//! | `maxOutput`, `temperature` | `generationConfig.samplingParams`: `max_tokens`, `temperature` |
//! | `reasoning = false` | `generationConfig.reasoning` |
//! | `images` | `generationConfig.modalities.image` |

use super::{KEY_VARIABLE, Provided, Rendered, Request, json_text};
use serde_json::{Value, json};

/// What it asks a model it does not know to write at most, unless told otherwise.
const ITS_MAX_OUTPUT: u64 = 32_000;

/// Files and environment.
pub(super) fn render(request: &Request<'_>) -> Rendered {
    let mut rendered = Rendered::default();
    let mut settings = json!({
        "general": {"enableAutoUpdate": false},
        "privacy": {"usageStatisticsEnabled": false},
        "telemetry": {"enabled": false},
        // A call of the model after each turn, for a suggestion nobody here sees.
        "ui": {"enableFollowupSuggestions": false},
        // The sandbox is the wall.
        "security": {"folderTrust": {"enabled": false}},
    });
    if let Some(provided) = &request.provided {
        rendered.set(KEY_VARIABLE, provided.key);
        settings["security"]["auth"] = json!({"selectedType": "openai"});
        settings["model"] = json!({"name": provided.model.id});
        settings["modelProviders"] = json!({"openai": [model(provided)]});
    }
    let settings = json_text(&settings);
    rendered
        .files
        .push(request.file("~/.qwen/settings.json", settings, true));
    rendered
}

fn model(provided: &Provided<'_>) -> Value {
    let mut sampling = json!({});
    if let Some(output) = provided.output(ITS_MAX_OUTPUT) {
        sampling["max_tokens"] = json!(output);
    }
    if let Some(temperature) = provided.model.temperature {
        sampling["temperature"] = json!(temperature);
    }
    let mut config = json!({"samplingParams": sampling});
    if let Some(window) = provided.model.context_window {
        config["contextWindowSize"] = json!(window);
    }
    if provided.model.reasoning == Some(false) {
        config["reasoning"] = json!(false);
    }
    if let Some(images) = provided.model.images {
        config["modalities"] = json!({"image": images});
    }
    json!({
        "id": provided.model.id,
        "name": provided.shown_name(),
        "envKey": KEY_VARIABLE,
        "baseUrl": provided.endpoint.url,
        "generationConfig": config,
    })
}
