//! MCP servers as ACP's `session/new` names them (its `McpServer`).

use serde::{Deserialize, Serialize};

/// How an MCP server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum McpTransport {
    /// A program on standard input and output.
    Stdio,
    /// Streamable HTTP.
    Http,
    /// Server-sent events.
    Sse,
}

/// A header or variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedValue {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum McpServer {
    /// Reached by an address.
    Remote {
        /// `http` or `sse`.
        #[serde(rename = "type")]
        transport: McpTransport,
        /// Unique in a session.
        name: String,
        /// Its address.
        url: String,
        /// Sent with each request.
        #[serde(default)]
        headers: Vec<NamedValue>,
    },
    /// Started in the sandbox.
    Stdio {
        /// Unique in a session.
        name: String,
        /// Program.
        command: String,
        /// Its arguments.
        #[serde(default)]
        args: Vec<String>,
        /// Its variables.
        #[serde(default)]
        env: Vec<NamedValue>,
    },
}

impl McpServer {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Remote { name, .. } | Self::Stdio { name, .. } => name,
        }
    }

    /// How it is reached.
    #[must_use]
    pub fn transport(&self) -> McpTransport {
        match self {
            Self::Remote { transport, .. } => *transport,
            Self::Stdio { .. } => McpTransport::Stdio,
        }
    }
}
