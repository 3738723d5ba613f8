//! What a message may do: the policy steps P1–P9 as pure functions.
//!
//! | step | direction | decides | file |
//! | --- | --- | --- | --- |
//! | P1 | client → agent | `initialize` never offers `fs` or `terminal` | `capabilities` |
//! | P2 | client → agent | `cwd` and `additionalDirectories` lie in the scope | `folders` |
//! | P3 | client → agent | MCP servers with a `url` are reachable under the network policy | `mcp` |
//! | P4 | agent → client | `fs/*` and `terminal/*` are answered with "not permitted" | `from_agent` |
//! | P5 | client → agent | `$/…` notifications are dropped | `from_client`, `plain` |
//! | P6 | both | `_…` extensions pass and are counted | `from_client`, `plain`, `from_agent` |
//! | P7 | own | the session's mode and options are set and verified | `defaults` |
//! | P8 | client → agent | the platform's MCP servers are added to what a client opens; before P2 and P3 | `servers` |
//! | P9 | client → agent | the agent's instructions stand before a conversation's first prompt | `instructions` |
//!
//! `from_client` decides for a client of a session, which the daemon holds; `plain` for a client that has the agent
//! process to itself. Besides, both directions have an allow-list of methods; an unknown request is answered with -32601.
//! A step sees a message and a context and answers with a verdict; it performs nothing.

pub mod capabilities;
pub mod defaults;
pub mod folders;
pub mod from_agent;
pub mod from_client;
pub mod instructions;
pub mod mcp;
pub mod plain;
pub mod servers;

pub use defaults::DefaultStep;
pub use from_agent::AgentVerdict;
pub use from_client::{ClientContext, ClientVerdict};

use serde::{Deserialize, Serialize};

/// A refusal, as the sender is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// JSON-RPC error code.
    pub code: i32,
    /// What was wrong; safe to show.
    pub message: String,
    /// The policy step, when one refused.
    pub policy: Option<String>,
}

impl Refusal {
    pub(crate) fn new(code: i32, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            policy: None,
        }
    }

    pub(crate) fn by(step: &str, code: i32, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            policy: Some(step.to_owned()),
        }
    }
}
