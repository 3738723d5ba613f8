//! A provider for Claude Code: environment only.
//!
//! | model field | setting |
//! |---|---|
//! | `contextWindow` | `CLAUDE_CODE_MAX_CONTEXT_TOKENS` (models it does not know), `CLAUDE_CODE_AUTO_COMPACT_WINDOW` (those it knows; from 100 000 to 1 000 000) |
//! | `maxOutput` | `CLAUDE_CODE_MAX_OUTPUT_TOKENS` |
//! | `reasoning = false` | `MAX_THINKING_TOKENS=0` |
//! | `name`, `images`, `temperature` | it has no setting |

use super::{Provided, Rendered, Request, expand};

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

/// The environment.
pub(super) fn render(request: &Request<'_>) -> Rendered {
    let mut rendered = Rendered::default();
    rendered.set(
        "CLAUDE_CONFIG_DIR",
        expand(&request.descriptor.home, "~/.claude"),
    );
    if request.is_root {
        // Without it uid 0 has no bypass mode.
        rendered.set("IS_SANDBOX", "1");
    }
    if let Some(provided) = &request.provided {
        provider(provided, &mut rendered);
    }
    rendered
}

fn provider(provided: &Provided<'_>, rendered: &mut Rendered) {
    rendered.set("ANTHROPIC_BASE_URL", &provided.endpoint.url);
    // The protocol's own header. With the variable set it neither asks to log in nor to approve a key.
    rendered.set("ANTHROPIC_API_KEY", provided.key);
    if !provided.endpoint.is_of("anthropic.com") {
        // Gateways differ in the header they read, and this makes it send both. The vendor itself
        // refuses a key in the other one.
        rendered.set("ANTHROPIC_AUTH_TOKEN", provided.key);
    }
    rendered.set("ANTHROPIC_MODEL", &provided.model.id);
    for (family, variable) in FAMILIES {
        rendered.set(variable, family_model(provided, family));
    }
    if provided.model.reasoning == Some(false) {
        rendered.set("MAX_THINKING_TOKENS", "0");
    }
    for (name, tokens) in limits(provided) {
        rendered.set(name, tokens.to_string());
    }
}

/// An alias must not lead to a model the provider does not serve: the provider's own of that family,
/// else the chosen one.
fn family_model(provided: &Provided<'_>, family: &str) -> String {
    let is_of = |id: &str| id.to_ascii_lowercase().contains(family);
    if is_of(&provided.model.id) {
        return provided.model.id.clone();
    }
    provided
        .provider
        .models
        .iter()
        .find(|model| is_of(&model.id))
        .map_or_else(|| provided.model.id.clone(), |model| model.id.clone())
}

fn limits(provided: &Provided<'_>) -> Vec<(&'static str, u64)> {
    let mut limits = Vec::new();
    if let Some(window) = provided.model.context_window {
        limits.push(("CLAUDE_CODE_MAX_CONTEXT_TOKENS", window));
        if COMPACT_WINDOW.contains(&window) {
            limits.push(("CLAUDE_CODE_AUTO_COMPACT_WINDOW", window));
        }
    }
    if let Some(output) = provided.output(ITS_MAX_OUTPUT) {
        limits.push(("CLAUDE_CODE_MAX_OUTPUT_TOKENS", output));
    }
    limits
}
