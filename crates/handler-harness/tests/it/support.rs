//! Providers to render with, written as people write them.

use handler_harness::{descriptor, render};
use handler_types::harness::{HarnessLaunch, PermissionMode, RenderInput};
use handler_types::provider::Provider;

/// What stands for the key: must appear in the environment and nowhere else.
pub(crate) const PHANTOM: &str = "phantom-k7Q2wXz9LmP4vB8nR1tY6uHs";

/// Anthropic's own API with a key.
pub(crate) const VENDOR: &str = r#"
apiVersion = "handler.provider/v1"
apiKey = { secret = "providers/vendor/apiKey" }
[endpoints]
anthropic = "https://api.anthropic.com"
[[models]]
id = "claude-sonnet-5-5"
contextWindow = 1000000
maxOutput = 128000
reasoning = true
images = true
[[models]]
id = "claude-haiku-5-5"
"#;

/// A small model on this machine, without a key.
pub(crate) const LOOPBACK: &str = r#"
apiVersion = "handler.provider/v1"
[endpoints]
anthropic = "http://127.0.0.1:8080/"
openai-chat = "http://localhost:8080/v1"
[[models]]
id = "qwen3.8-27B"
name = "Qwen 27B"
contextWindow = 32768
reasoning = false
temperature = 0.2
"#;

/// A gateway on a port of its own, with a key and a model nobody knows.
pub(crate) const GATEWAY: &str = r#"
apiVersion = "handler.provider/v1"
apiKey = { env = "GATEWAY_KEY" }
[endpoints]
anthropic = "https://gateway.example.com:8443/llm"
responses = "https://gateway.example.com:8443/llm/v1"
[[models]]
id = "house/large"
maxOutput = 4096
reasoning = true
images = true
"#;

/// A plain model server in the local network.
pub(crate) const BARE: &str = r#"
apiVersion = "handler.provider/v1"
[endpoints]
anthropic = "http://192.168.1.20"
openai-chat = "http://192.168.1.20/v1"
[[models]]
id = "bare"
"#;

pub(crate) fn input(provider: &str, mode: PermissionMode) -> RenderInput {
    let provider: Provider = toml::from_str(provider).expect("a valid provider");
    RenderInput {
        provider_name: "mine".to_owned(),
        model: provider.models[0].id.clone(),
        key: provider.api_key.as_ref().map(|_| PHANTOM.to_owned()),
        provider,
        permission_mode: mode,
        is_root: false,
        prefix: "/opt/handler/harness/x".to_owned(),
    }
}

pub(crate) fn launch(harness: &str, input: &RenderInput) -> HarnessLaunch {
    render(descriptor(harness).expect("known"), input).expect("rendered")
}
