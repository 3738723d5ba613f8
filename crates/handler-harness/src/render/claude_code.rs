//! A provider for Claude Code: environment only.
//!
//! | model field | setting |
//! |---|---|
//! | `contextWindow` | `CLAUDE_CODE_MAX_CONTEXT_TOKENS` (models it does not know), `CLAUDE_CODE_AUTO_COMPACT_WINDOW` (those it knows; from 100 000 to 1 000 000) |
//! | `maxOutput` | `CLAUDE_CODE_MAX_OUTPUT_TOKENS` |
//! | `reasoning = false` | `MAX_THINKING_TOKENS=0` |
//! | `name`, `images`, `temperature` | it has no setting |

use super::{Rendered, Request, expand};

/// What it asks a model it does not know to write at most, unless told otherwise.
const ITS_MAX_OUTPUT: u64 = 32_000;

/// The range of its compaction window.
const COMPACT_WINDOW: std::ops::RangeInclusive<u64> = 100_000..=1_000_000;

/// Model families it names by alias (sub-agents, titles), and the variables that say what they are.
const FAMILIES: [(&str, &str); 4] = [
    ("fable", "ANTHROPIC_DEFAULT_FABLE_MODEL"),
    ("haiku", "ANTHROPIC_DEFAULT_HAIKU_MODEL"),
    ("opus", "ANTHROPIC_DEFAULT_OPUS_MODEL"),
    ("sonnet", "ANTHROPIC_DEFAULT_SONNET_MODEL"),
];

/// The environment for a provider.
pub(super) fn render(request: &Request<'_>) -> Rendered {
    let mut rendered = Rendered::default();
    let mut set = |name: &str, value: String| {
        rendered.env.insert(name.to_owned(), value);
    };
    set("ANTHROPIC_BASE_URL", request.endpoint.url.clone());
    // The protocol's own header. With the variable set it neither asks to log in nor to approve a key.
    set("ANTHROPIC_API_KEY", request.key.to_owned());
    if !request.endpoint.is_of("anthropic.com") {
        // Gateways differ in the header they read, and this makes it send both. The vendor itself
        // refuses a key in the other one.
        set("ANTHROPIC_AUTH_TOKEN", request.key.to_owned());
    }
    set("ANTHROPIC_MODEL", request.model.id.clone());
    for (family, variable) in FAMILIES {
        set(variable, family_model(request, family));
    }
    set(
        "CLAUDE_CONFIG_DIR",
        expand(&request.descriptor.home, "~/.claude"),
    );
    if request.is_root {
        // Without it uid 0 has no bypass mode.
        set("IS_SANDBOX", "1".to_owned());
    }
    if request.model.reasoning == Some(false) {
        set("MAX_THINKING_TOKENS", "0".to_owned());
    }
    for (name, tokens) in limits(request) {
        set(name, tokens.to_string());
    }
    rendered
}

/// An alias must not lead to a model the provider does not serve: the provider's own of that family,
/// else the chosen one.
fn family_model(request: &Request<'_>, family: &str) -> String {
    let is_of = |id: &str| id.to_ascii_lowercase().contains(family);
    if is_of(&request.model.id) {
        return request.model.id.clone();
    }
    request
        .provider
        .models
        .iter()
        .find(|model| is_of(&model.id))
        .map_or_else(|| request.model.id.clone(), |model| model.id.clone())
}

fn limits(request: &Request<'_>) -> Vec<(&'static str, u64)> {
    let mut limits = Vec::new();
    let mut output = request.model.max_output;
    if let Some(window) = request.model.context_window {
        limits.push(("CLAUDE_CODE_MAX_CONTEXT_TOKENS", window));
        if COMPACT_WINDOW.contains(&window) {
            limits.push(("CLAUDE_CODE_AUTO_COMPACT_WINDOW", window));
        }
        // An answer must fit beside the conversation.
        if output.unwrap_or(ITS_MAX_OUTPUT) > window / 2 {
            output = Some(request.reserve(window));
        }
    }
    if let Some(output) = output {
        limits.push(("CLAUDE_CODE_MAX_OUTPUT_TOKENS", output));
    }
    limits
}
