//! MCP servers for every session: of a kind the harness takes, without its secrets (B6), and in a file where it
//! reads them from one (B7).

use super::error::shown;
use super::{RenderError, expand, json_text};
use crate::endpoint::Endpoint;
use crate::mcp::{SANDBOX_ENV, sandbox_env_file, with_sandbox_env, without};
use handler_types::harness::{HarnessDescriptor, McpEnv, McpServer, McpTransport, NamedValue};
use handler_types::launch::LaunchFile;
use handler_types::network::AllowEntry;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Servers as sessions get them, and what they need.
#[derive(Default)]
pub(super) struct Servers {
    pub(super) servers: Vec<McpServer>,
    pub(super) files: Vec<LaunchFile>,
    pub(super) egress: Vec<AllowEntry>,
}

/// `secrets` are the variables that hold the harness's key or token.
pub(super) fn servers(
    descriptor: &HarnessDescriptor,
    wanted: &[McpServer],
    secrets: &[String],
) -> Result<Servers, RenderError> {
    let mut result = Servers::default();
    let mut names = BTreeSet::new();
    for server in wanted {
        check(descriptor, server)?;
        if !names.insert(server.name()) {
            return Err(refuse(
                server,
                "has the name of another; rename one of them",
            ));
        }
        let server = match server {
            McpServer::Remote { .. } => reachable(server, &mut result.egress)?,
            McpServer::Stdio { .. } if descriptor.mcp_env == McpEnv::Sandbox => {
                with_sandbox_env(server.clone(), secrets)
            }
            McpServer::Stdio { .. } => without(server.clone(), secrets),
        };
        result.servers.push(server);
    }
    if result.servers.iter().any(is_wrapped) {
        result.files.push(sandbox_env_file());
    }
    if let Some(path) = descriptor
        .mcp_config_file
        .as_ref()
        .filter(|_| !wanted.is_empty())
    {
        result.files.push(LaunchFile {
            target: expand(&descriptor.home, path),
            content: json_text(&config_file(&result.servers)),
            mode: 0o444,
            writable: false,
        });
    }
    Ok(result)
}

fn is_wrapped(server: &McpServer) -> bool {
    matches!(server, McpServer::Stdio { command, .. } if command == SANDBOX_ENV)
}

fn refuse(server: &McpServer, problem: impl Into<String>) -> RenderError {
    RenderError::McpServer {
        server: shown(server.name(), 64),
        problem: problem.into(),
    }
}

fn check(descriptor: &HarnessDescriptor, server: &McpServer) -> Result<(), RenderError> {
    if !descriptor.mcp_transports.contains(&server.transport()) {
        return Err(RenderError::McpTransport {
            product: descriptor.product.clone(),
            server: shown(server.name(), 64),
            accepts: descriptor.mcp_transports.clone(),
            wanted: server.transport(),
        });
    }
    if server.name().is_empty() || server.name().contains(char::is_control) {
        return Err(refuse(server, "needs a name without control characters"));
    }
    if let McpServer::Stdio { command, .. } = server
        && command.is_empty()
    {
        return Err(refuse(server, "needs a program"));
    }
    Ok(())
}

/// The address as it is inside, and its destination; a query stays as it is.
fn reachable(server: &McpServer, egress: &mut Vec<AllowEntry>) -> Result<McpServer, RenderError> {
    let mut reachable = server.clone();
    if let McpServer::Remote { url, .. } = &mut reachable {
        let at = url.find(['?', '#']).unwrap_or(url.len());
        let (base, rest) = url.split_at(at);
        let endpoint = Endpoint::parse(base)
            .map_err(|error| refuse(server, format!("has no usable address: {error}")))?;
        let slash = if base.ends_with('/') { "/" } else { "" };
        *url = format!("{}{slash}{rest}", endpoint.url);
        if !egress.contains(&endpoint.allow) {
            egress.push(endpoint.allow);
        }
    }
    Ok(reachable)
}

fn pairs(values: &[NamedValue]) -> Value {
    let pairs = values
        .iter()
        .map(|one| (one.name.clone(), json!(one.value)));
    Value::Object(pairs.collect())
}

/// The common `mcp.json`, with the tools of each server as tools of their own, and nothing that installs or runs
/// what the model wrote.
fn config_file(servers: &[McpServer]) -> Value {
    let entry = |server: &McpServer| match server {
        McpServer::Stdio {
            command, args, env, ..
        } => json!({"command": command, "args": args, "env": pairs(env), "directTools": true}),
        McpServer::Remote { url, headers, .. } => {
            json!({"url": url, "headers": pairs(headers), "directTools": true})
        }
    };
    let entries = servers
        .iter()
        .map(|one| (one.name().to_owned(), entry(one)));
    json!({
        "settings": {"allowInstall": false, "scriptMode": false},
        "mcpServers": Value::Object(entries.collect()),
    })
}

/// The file of MCP servers for a terminal program (B8).
pub(super) fn terminal_file(servers: &[McpServer]) -> Value {
    let entry = |server: &McpServer| match server {
        McpServer::Stdio {
            command, args, env, ..
        } => json!({"type": "stdio", "command": command, "args": args, "env": pairs(env)}),
        McpServer::Remote {
            transport,
            url,
            headers,
            ..
        } => json!({"type": transport, "url": url, "headers": pairs(headers)}),
    };
    let entries = servers
        .iter()
        .map(|one| (one.name().to_owned(), entry(one)));
    json!({"mcpServers": entries.collect::<Map<_, _>>()})
}

/// The list for a terminal program that takes it in a variable (B8).
///
/// # Errors
/// One that it cannot take.
pub(super) fn terminal_list(servers: &[McpServer]) -> Result<Value, &McpServer> {
    let entries: Result<Vec<_>, _> = servers.iter().map(list_entry).collect();
    entries.map(Value::Array)
}

fn list_entry(server: &McpServer) -> Result<Value, &McpServer> {
    match server {
        McpServer::Stdio {
            name,
            command,
            args,
            env,
        } => Ok(
            json!({"name": name, "transport": McpTransport::Stdio, "command": command,
            "args": args, "env": pairs(env)}),
        ),
        McpServer::Remote { .. } => Err(server),
    }
}
