//! Why a harness cannot be launched as it was asked for, in words that say what to do.

use crate::endpoint::EndpointError;
use handler_types::harness::{McpTransport, PermissionMode};
use handler_types::provider::Protocol;

/// Why a harness cannot be launched like this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The harness has no such mode.
    #[error("{product} cannot run in the mode `{}`; it has: {}", mode_name(*.mode), mode_list(.has))]
    Permission {
        /// Product name.
        product: String,
        /// The mode asked for.
        mode: PermissionMode,
        /// The modes it has.
        has: Vec<PermissionMode>,
    },
    /// The provider does not serve the model.
    #[error("the provider `{provider}` has no model `{model}`{}", model_hint(.nearest.as_deref(), .has))]
    Model {
        /// Provider name.
        provider: String,
        /// The model asked for, at most 128 characters.
        model: String,
        /// The id it is probably a slip of.
        nearest: Option<String>,
        /// The first ids it has.
        has: Vec<String>,
    },
    /// The provider speaks no protocol of the harness.
    #[error("{product} speaks {}, the provider `{provider}` speaks {}", protocol_list(.accepts), protocol_list(.offers))]
    Protocol {
        /// Product name.
        product: String,
        /// Provider name.
        provider: String,
        /// Protocols of the harness.
        accepts: Vec<Protocol>,
        /// Protocols of the provider.
        offers: Vec<Protocol>,
    },
    /// The provider's endpoint is no address the sandbox could be allowed.
    #[error("the {} endpoint of the provider `{provider}` is not usable", protocol_name(*.protocol))]
    Endpoint {
        /// Provider name.
        provider: String,
        /// The protocol it stands under.
        protocol: Protocol,
        /// What is wrong.
        #[source]
        source: EndpointError,
    },
    /// A limit that cannot be right.
    #[error("the model `{model}` has a {field} of {value}; it must be from 1 to 100000000")]
    Limit {
        /// Model id.
        model: String,
        /// `contextWindow` or `maxOutput`.
        field: &'static str,
        /// As written.
        value: u64,
    },
    /// The key cannot be given in an environment variable or a header.
    #[error("the key of the provider `{provider}` is empty or has characters no header can carry")]
    Key {
        /// Provider name.
        provider: String,
    },
    /// The prefix is not an absolute path that PATH can hold.
    #[error("the harness prefix must be an absolute path without a colon or a slash at its end")]
    Prefix,
    /// Nobody wrote how this harness takes its settings.
    #[error("{product} has no rendering of its settings")]
    NoRendering {
        /// Product name.
        product: String,
    },
    /// An account where the harness has none, or one that is logged in otherwise.
    #[error("{product} cannot run on the account `{account}`: {problem}")]
    Account {
        /// Product name.
        product: String,
        /// Account name.
        account: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A file of the provider that the harness does not read, or that is written from the provider.
    #[error("the provider `{provider}` cannot give {product} the file `{slot}`: {problem}")]
    ProviderFile {
        /// Product name.
        product: String,
        /// Provider name.
        provider: String,
        /// Config file slot.
        slot: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// The harness lacks what an input needs.
    #[error("{product} {lacks}; {remedy}")]
    Lacks {
        /// Product name.
        product: String,
        /// What it lacks.
        lacks: String,
        /// What to do.
        remedy: &'static str,
    },
    /// It does not take MCP servers of that kind.
    #[error("{product} cannot reach the MCP server `{server}`: it takes {}, not {}", transports(.accepts), transport_name(*.wanted))]
    McpTransport {
        /// Product name.
        product: String,
        /// Server name.
        server: String,
        /// What it takes.
        accepts: Vec<McpTransport>,
        /// What the server is.
        wanted: McpTransport,
    },
    /// A server that cannot be handed on.
    #[error("the MCP server `{server}` {problem}")]
    McpServer {
        /// Server name, at most 64 characters.
        server: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A skill's folder that cannot be mounted.
    #[error("the skill folder `{folder}` {problem}")]
    Skill {
        /// As given, at most 256 characters.
        folder: String,
        /// What is wrong and what to do.
        problem: &'static str,
    },
    /// A cache that cannot be mounted.
    #[error("the cache `{target}` must be a path below ~/ and come from an absolute folder")]
    Cache {
        /// As given, at most 256 characters.
        target: String,
    },
    /// Instructions that cannot be handed on.
    #[error("the instructions are longer than 256 KiB or hold a NUL character; shorten them")]
    Instructions,
    /// The project folder.
    #[error("the project folder must be an absolute path without control characters")]
    Scope,
}

/// The first characters of a text that came from outside.
pub(super) fn shown(text: &str, most: usize) -> String {
    let shown = text.chars().filter(|c| !c.is_control());
    shown.take(most).collect()
}

fn transport_name(transport: McpTransport) -> &'static str {
    match transport {
        McpTransport::Stdio => "stdio",
        McpTransport::Http => "http",
        McpTransport::Sse => "sse",
    }
}

fn transports(all: &[McpTransport]) -> String {
    if all.is_empty() {
        return "none at all".to_owned();
    }
    let names: Vec<_> = all.iter().map(|one| transport_name(*one)).collect();
    names.join(", ")
}

fn mode_name(mode: PermissionMode) -> &'static str {
    match mode {
        PermissionMode::Ask => "ask",
        PermissionMode::AcceptEdits => "accept-edits",
        PermissionMode::Bypass => "bypass",
    }
}

fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Anthropic => "anthropic",
        Protocol::OpenaiChat => "openai-chat",
        Protocol::Responses => "responses",
        Protocol::Gemini => "gemini",
    }
}

fn mode_list(modes: &[PermissionMode]) -> String {
    let names: Vec<_> = modes.iter().map(|mode| mode_name(*mode)).collect();
    names.join(", ")
}

fn protocol_list(protocols: &[Protocol]) -> String {
    if protocols.is_empty() {
        return "nothing".to_owned();
    }
    let names: Vec<_> = protocols.iter().map(|p| protocol_name(*p)).collect();
    names.join(", ")
}

fn model_hint(nearest: Option<&str>, has: &[String]) -> String {
    match nearest {
        Some(id) => format!("; did you mean `{id}`?"),
        None => format!("; it has: {}", has.join(", ")),
    }
}
