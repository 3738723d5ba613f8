//! OpenCode: `opencode.json` (a copy it may rewrite), the key in the environment and named in the file.
//!
//! | model field | setting |
//! |---|---|
//! | `name`, `images`, `reasoning` | `name`, `attachment` and `modalities`, `reasoning` |
//! | `contextWindow`, `maxOutput` | `limit.context`, `limit.output`: it compacts at context − output |
//! | `temperature` | `temperature` of its agents |

use super::{KEY_VARIABLE, PROVIDER, Provided, Rendered, Request, json_text};
use handler_types::provider::Protocol;
use serde_json::{Value, json};

/// What it asks a model to write at most, unless told otherwise.
const ITS_MAX_OUTPUT: u64 = 32_000;

/// Files and environment.
pub(super) fn render(request: &Request<'_>) -> Rendered {
    let mut rendered = Rendered::default();
    let mut config = json!({"autoupdate": false, "share": "disabled"});
    if let Some(provided) = &request.provided {
        rendered.set(KEY_VARIABLE, provided.key);
        let model = json!(format!("{PROVIDER}/{}", provided.model.id));
        config["model"] = model.clone();
        // Titles and summaries.
        config["small_model"] = model;
        // It would look for other vendors' keys.
        config["enabled_providers"] = json!([PROVIDER]);
        config["provider"] = json!({ PROVIDER: provider(provided) });
        if let Some(temperature) = provided.model.temperature {
            let agent = json!({"temperature": temperature});
            config["agent"] = json!({"build": agent, "plan": agent});
        }
    }
    let config = json_text(&config);
    rendered
        .files
        .push(request.file("~/.config/opencode/opencode.json", config, true));
    rendered
}

/// The package for a protocol, all part of the program, and what it wants behind the endpoint.
fn package(protocol: Protocol) -> (&'static str, &'static str) {
    match protocol {
        Protocol::Anthropic => ("@ai-sdk/anthropic", "/v1"),
        Protocol::OpenaiChat => ("@ai-sdk/openai-compatible", ""),
        Protocol::Responses => ("@ai-sdk/openai", ""),
        Protocol::Gemini => ("@ai-sdk/google", "/v1beta"),
    }
}

fn provider(provided: &Provided<'_>) -> Value {
    let (package, version) = package(provided.protocol);
    json!({
        "npm": package,
        "name": provided.name,
        "options": {
            "baseURL": format!("{}{version}", provided.endpoint.url),
            "apiKey": format!("{{env:{KEY_VARIABLE}}}"),
        },
        "models": { provided.model.id.as_str(): model(provided) },
    })
}

fn model(provided: &Provided<'_>) -> Value {
    let inputs: &[&str] = if provided.takes_images() {
        &["text", "image"]
    } else {
        &["text"]
    };
    let mut model = json!({
        "name": provided.shown_name(),
        "tool_call": true,
        "reasoning": provided.is_reasoning(),
        "attachment": provided.takes_images(),
        "temperature": provided.model.temperature.is_some(),
        "modalities": {"input": inputs, "output": ["text"]},
    });
    let window = provided.model.context_window;
    let output = provided.output(ITS_MAX_OUTPUT);
    if window.is_some() || output.is_some() {
        // Both or neither; 0 is "not known".
        model["limit"] = json!({"context": window.unwrap_or(0), "output": output.unwrap_or(0)});
    }
    model
}
