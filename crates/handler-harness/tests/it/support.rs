//! Providers to render with, written as people write them.

use handler_harness::{descriptor, render};
use handler_types::harness::{
    AccountAccess, AccountLogin, HarnessLaunch, McpServer, McpTransport, ModelAccess, NamedValue,
    PermissionMode, ProviderAccess, RenderInput,
};
use handler_types::provider::Provider;
use std::collections::BTreeMap;

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

/// A server of the Gemini protocol on this machine.
pub(crate) const GEMINI: &str = r#"
apiVersion = "handler.provider/v1"
apiKey = { secret = "providers/mine/apiKey" }
[endpoints]
gemini = "http://127.0.0.1:4100"
[[models]]
id = "scripted"
contextWindow = 200000
maxOutput = 8192
reasoning = false
temperature = 0.5
"#;

/// Every protocol, every field of a model.
pub(crate) const FULL: &str = r#"
apiVersion = "handler.provider/v1"
apiKey = { secret = "providers/mine/apiKey" }
[endpoints]
anthropic = "https://models.example.com"
openai-chat = "https://models.example.com/v1"
responses = "https://models.example.com/v1"
gemini = "https://models.example.com/google"
[[models]]
id = "house/full"
name = "The Full One"
contextWindow = 100000
maxOutput = 20000
reasoning = true
images = true
temperature = 0.3
"#;

/// All harnesses.
pub(crate) const ALL: [&str; 7] = [
    "claude-code",
    "codex",
    "gemini-cli",
    "opencode",
    "pi",
    "qwen-code",
    "vibe",
];

fn with(access: ModelAccess, mode: PermissionMode) -> RenderInput {
    RenderInput {
        access,
        permission_mode: mode,
        is_root: false,
        prefix: "/opt/handler/harness/x".to_owned(),
        scope: "/home/me/my project".to_owned(),
        skills: Vec::new(),
        mcp_servers: Vec::new(),
        instructions: None,
        terminal: None,
        caches: BTreeMap::new(),
    }
}

pub(crate) fn input(provider: &str, mode: PermissionMode) -> RenderInput {
    let provider: Provider = toml::from_str(provider).expect("a valid provider");
    let access = ProviderAccess {
        name: "mine".to_owned(),
        model: provider.models[0].id.clone(),
        key: provider.api_key.as_ref().map(|_| PHANTOM.to_owned()),
        provider,
        files: BTreeMap::new(),
    };
    with(ModelAccess::Provider(access), mode)
}

/// The provider of an input.
pub(crate) fn provided(input: &mut RenderInput) -> &mut ProviderAccess {
    match &mut input.access {
        ModelAccess::Provider(access) => access,
        ModelAccess::Account(_) => panic!("an account"),
    }
}

/// A token of Claude's form.
pub(crate) const TOKEN: &str = "sk-ant-oat01-k7Q2wXz9LmP4vB8nR1tY6uHs";

/// An account with a token.
pub(crate) fn token_account(mode: PermissionMode) -> RenderInput {
    account(AccountLogin::Token(TOKEN.to_owned()), mode)
}

pub(crate) fn account(login: AccountLogin, mode: PermissionMode) -> RenderInput {
    let access = AccountAccess {
        name: "me".to_owned(),
        login,
        plan: None,
        connectors: false,
        model: None,
    };
    with(ModelAccess::Account(access), mode)
}

/// The account of an input.
pub(crate) fn logged_in(input: &mut RenderInput) -> &mut AccountAccess {
    match &mut input.access {
        ModelAccess::Account(access) => access,
        ModelAccess::Provider(_) => panic!("a provider"),
    }
}

/// A program that is an MCP server.
pub(crate) fn stdio(name: &str) -> McpServer {
    McpServer::Stdio {
        name: name.to_owned(),
        command: "tools".to_owned(),
        args: vec!["--serve".to_owned()],
        env: vec![NamedValue {
            name: "DEPTH".to_owned(),
            value: "2".to_owned(),
        }],
    }
}

/// One that is reached by an address.
pub(crate) fn remote(name: &str, transport: McpTransport, url: &str) -> McpServer {
    McpServer::Remote {
        transport,
        name: name.to_owned(),
        url: url.to_owned(),
        headers: vec![NamedValue {
            name: "X-Team".to_owned(),
            value: "one".to_owned(),
        }],
    }
}

pub(crate) fn launch(harness: &str, input: &RenderInput) -> HarnessLaunch {
    render(descriptor(harness).expect("known"), input).expect("rendered")
}
