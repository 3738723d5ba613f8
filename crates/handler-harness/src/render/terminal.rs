//! Instructions, and the harness's own terminal program instead of ACP (contract B8).

use super::{RenderError, Request, expand, json_text, mcp};
use handler_types::harness::{
    AccountAccess, HarnessDescriptor, HarnessLaunch, ModelAccess, RenderInput, SessionDefaults,
    TerminalProgram,
};
use handler_types::launch::LaunchFile;

/// Where the MCP servers of a terminal program are.
const MCP_FILE: &str = "~/.handler/terminal-mcp.json";

/// Longest instructions, bytes.
const MAX_INSTRUCTIONS: usize = 256 << 10;

/// Puts the instructions where they are read, and the terminal program in the place of ACP when it is wanted.
pub(super) fn finish(
    descriptor: &HarnessDescriptor,
    input: &RenderInput,
    request: &Request<'_>,
    mut launch: HarnessLaunch,
) -> Result<HarnessLaunch, RenderError> {
    let instructions = checked(input.instructions.as_deref())?;
    let Some(arguments) = &input.terminal else {
        if let Some(text) = instructions {
            let path = descriptor.instructions_file.as_ref();
            let path = path.ok_or_else(|| lacks(descriptor, "has no file for instructions"))?;
            launch
                .files
                .push(request.file(path, text.to_owned(), false));
        }
        return Ok(launch);
    };
    let program = descriptor.terminal.as_ref();
    let program = program.ok_or_else(|| RenderError::Lacks {
        product: descriptor.product.clone(),
        lacks: "has no terminal program here".to_owned(),
        remedy: "run it as a session",
    })?;
    let mut argv = crate::install::program_argv(descriptor, request.prefix, &program.command);
    let flags = program.permissions.get(&input.permission_mode);
    argv.extend(flags.into_iter().flatten().cloned());
    model(descriptor, program, &input.access, &mut argv, &mut launch)?;
    servers(descriptor, program, &mut argv, &mut launch)?;
    if let Some(text) = instructions {
        match (&program.instructions_flag, &descriptor.instructions_file) {
            (Some(flag), _) => argv.extend([flag.clone(), text.to_owned()]),
            (None, Some(path)) => {
                launch
                    .files
                    .push(request.file(path, text.to_owned(), false));
            }
            (None, None) => return Err(lacks(descriptor, "takes no instructions in its terminal")),
        }
    }
    argv.extend(arguments.iter().cloned());
    launch.argv = argv;
    launch.session_defaults = SessionDefaults::default();
    Ok(launch)
}

fn lacks(descriptor: &HarnessDescriptor, what: &str) -> RenderError {
    RenderError::Lacks {
        product: descriptor.product.clone(),
        lacks: what.to_owned(),
        remedy: "remove them from the agent",
    }
}

fn checked(instructions: Option<&str>) -> Result<Option<&str>, RenderError> {
    match instructions.filter(|text| !text.trim().is_empty()) {
        Some(text) if text.len() > MAX_INSTRUCTIONS || text.contains('\0') => {
            Err(RenderError::Instructions)
        }
        other => Ok(other),
    }
}

/// The model of an account; a provider's is in the configuration.
fn model(
    descriptor: &HarnessDescriptor,
    program: &TerminalProgram,
    access: &ModelAccess,
    argv: &mut Vec<String>,
    launch: &mut HarnessLaunch,
) -> Result<(), RenderError> {
    let ModelAccess::Account(AccountAccess {
        model: Some(model), ..
    }) = access
    else {
        return Ok(());
    };
    match (&program.model_flag, &program.model_env) {
        (Some(flag), _) => argv.extend([flag.clone(), model.clone()]),
        (None, Some(variable)) => {
            launch.env.insert(variable.clone(), model.clone());
        }
        (None, None) => {
            return Err(RenderError::Lacks {
                product: descriptor.product.clone(),
                lacks: "takes no model in its terminal".to_owned(),
                remedy: "leave the model out",
            });
        }
    }
    Ok(())
}

fn servers(
    descriptor: &HarnessDescriptor,
    program: &TerminalProgram,
    argv: &mut Vec<String>,
    launch: &mut HarnessLaunch,
) -> Result<(), RenderError> {
    let servers = &launch.session_defaults.mcp_servers;
    if servers.is_empty() || descriptor.mcp_config_file.is_some() {
        return Ok(());
    }
    match (&program.mcp_config_flag, &program.mcp_servers_env) {
        (Some(flag), _) => {
            let target = expand(&descriptor.home, MCP_FILE);
            argv.extend([flag.clone(), target.clone()]);
            launch.files.push(LaunchFile {
                target,
                content: json_text(&mcp::terminal_file(servers)),
                mode: 0o444,
                writable: false,
            });
        }
        (None, Some(variable)) => {
            let list = mcp::terminal_list(servers).map_err(|server| RenderError::McpServer {
                server: server.name().to_owned(),
                problem: format!(
                    "cannot be reached from the terminal of {}, which only starts programs; remove it",
                    descriptor.product
                ),
            })?;
            launch.env.insert(variable.clone(), list.to_string());
        }
        (None, None) => {
            return Err(lacks(descriptor, "takes no MCP servers in its terminal"));
        }
    }
    Ok(())
}
