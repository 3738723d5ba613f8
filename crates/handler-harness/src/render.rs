//! `render` (contract B.3): a harness, what its model calls use, a mode and an agent's settings become what to
//! launch. Deterministic and without effects; what cannot be honoured is an error, never dropped (B5). A stand-in
//! for a key or token goes into the environment only (B3, E5).

mod access;
mod claude_code;
mod codex;
mod error;
mod gemini_cli;
mod mcp;
mod opencode;
mod pi;
mod places;
mod qwen_code;
mod terminal;
mod vibe;

pub use error::RenderError;

use crate::endpoint::Endpoint;
use handler_types::harness::{
    HarnessDescriptor, HarnessLaunch, PermissionMapping, RenderInput, SessionDefaults,
};
use handler_types::launch::LaunchFile;
use handler_types::provider::{Protocol, Provider, ProviderModel};
use std::collections::BTreeMap;

/// Output tokens kept free when the model does not say how many it can write.
const DEFAULT_RESERVE: u64 = 16_384;

/// Programs of the sandbox come first; the harness's own Node.js only where the sandbox has none.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The variable of the provider's key, for harnesses that let one choose its name. Not one of the names they look
/// for by themselves: with those they would offer models of vendors that the sandbox cannot reach.
const KEY_VARIABLE: &str = "HANDLER_MODEL_KEY";

/// The provider's id in their configuration.
const PROVIDER: &str = "handler";

/// What the part for one harness is given: everything is checked.
struct Request<'a> {
    descriptor: &'a HarnessDescriptor,
    /// None: an account.
    provided: Option<Provided<'a>>,
    is_root: bool,
    prefix: &'a str,
    scope: &'a str,
}

/// A provider, checked.
struct Provided<'a> {
    name: &'a str,
    provider: &'a Provider,
    model: &'a ProviderModel,
    protocol: Protocol,
    endpoint: Endpoint,
    key: &'a str,
    files: &'a BTreeMap<String, String>,
}

impl Provided<'_> {
    /// Output tokens to keep free in a window: the model's `maxOutput`, else 16384; at most half of it.
    fn reserve(&self, window: u64) -> u64 {
        self.model
            .max_output
            .unwrap_or(DEFAULT_RESERVE)
            .min(window / 2)
            .max(1)
    }

    /// The most tokens of one answer, for a harness that asks for `own` unless told otherwise: an answer must fit
    /// beside the conversation. None: nothing has to be said.
    fn output(&self, own: u64) -> Option<u64> {
        let said = self.model.max_output;
        match self.model.context_window {
            Some(window) if said.unwrap_or(own) > window / 2 => Some(self.reserve(window)),
            _ => said,
        }
    }

    fn is_reasoning(&self) -> bool {
        self.model.reasoning == Some(true)
    }

    fn takes_images(&self) -> bool {
        self.model.images == Some(true)
    }

    fn shown_name(&self) -> &str {
        self.model.name.as_deref().unwrap_or(&self.model.id)
    }
}

impl Request<'_> {
    /// A generated file at the place of a config file slot or another path of the home.
    fn file(&self, path: &str, content: String, is_writable: bool) -> LaunchFile {
        LaunchFile {
            target: expand(&self.descriptor.home, path),
            content,
            mode: if is_writable { 0o600 } else { 0o444 },
            writable: is_writable,
        }
    }
}

/// What the part for one harness answers.
#[derive(Default)]
struct Rendered {
    env: BTreeMap<String, String>,
    files: Vec<LaunchFile>,
}

impl Rendered {
    fn set(&mut self, name: &str, value: impl Into<String>) {
        self.env.insert(name.to_owned(), value.into());
    }
}

/// Renders a launch.
///
/// # Errors
/// [`RenderError`] when the harness cannot honour the input.
pub fn render(
    descriptor: &HarnessDescriptor,
    input: &RenderInput,
) -> Result<HarnessLaunch, RenderError> {
    let mapping = mapping(descriptor, input)?;
    let access = access::check(descriptor, &input.access)?;
    let request = Request {
        descriptor,
        provided: access.provided,
        is_root: input.is_root,
        prefix: places::checked_prefix(&input.prefix)?,
        scope: places::checked_scope(&input.scope)?,
    };
    let mut rendered = part(&request)?;
    rendered.files.extend(access::files(&request, &rendered)?);
    let mut env = descriptor.env.clone();
    env.insert(crate::mcp::AGENT_MARK.to_owned(), descriptor.name.clone());
    env.insert("PATH".to_owned(), path_value(descriptor, request.prefix));
    env.extend(rendered.env);
    env.extend(mapping.env.clone());
    env.extend(access.env);
    let secrets = access.secret.map(|s| holders(&env, s)).unwrap_or_default();
    let mut servers = mcp::servers(descriptor, &input.mcp_servers, &secrets)?;
    let mut launch = HarnessLaunch {
        argv: crate::install::program_argv(descriptor, request.prefix, &descriptor.acp_command),
        env,
        home: descriptor.home.clone(),
        files: rendered.files,
        state: places::state(descriptor),
        mounts: access.mounts,
        writable_paths: places::writable(descriptor),
        egress: access.egress,
        session_defaults: SessionDefaults {
            mode_ids: mapping.session_modes.clone(),
            // A provider's model is in the configuration, never chosen over ACP.
            config_options: access::model_choice(descriptor, &input.access)?,
            mcp_servers: Vec::new(),
        },
    };
    launch.files.append(&mut servers.files);
    add_hosts(&mut launch, servers.egress);
    launch.mounts.extend(places::skills(descriptor, input)?);
    launch.mounts.extend(places::caches(descriptor, input)?);
    launch.session_defaults.mcp_servers = servers.servers;
    terminal::finish(descriptor, input, &request, launch)
}

fn mapping<'d>(
    descriptor: &'d HarnessDescriptor,
    input: &RenderInput,
) -> Result<&'d PermissionMapping, RenderError> {
    let found = descriptor.permissions.get(&input.permission_mode);
    found.ok_or_else(|| RenderError::Permission {
        product: descriptor.product.clone(),
        mode: input.permission_mode,
        has: descriptor.permissions.keys().copied().collect(),
    })
}

/// How each harness takes its settings: what no template could say.
fn part(request: &Request<'_>) -> Result<Rendered, RenderError> {
    Ok(match request.descriptor.name.as_str() {
        "claude-code" => claude_code::render(request),
        "codex" => codex::render(request),
        "gemini-cli" => gemini_cli::render(request),
        "opencode" => opencode::render(request),
        "pi" => pi::render(request),
        "qwen-code" => qwen_code::render(request),
        "vibe" => vibe::render(request),
        _ => {
            return Err(RenderError::NoRendering {
                product: request.descriptor.product.clone(),
            });
        }
    })
}

/// Variables that hold the stand-in.
fn holders(env: &BTreeMap<String, String>, secret: &str) -> Vec<String> {
    let holding = env.iter().filter(|(_, value)| value.contains(secret));
    holding.map(|(name, _)| name.clone()).collect()
}

fn add_hosts(launch: &mut HarnessLaunch, hosts: Vec<handler_types::network::AllowEntry>) {
    for host in hosts {
        if !launch.egress.contains(&host) {
            launch.egress.push(host);
        }
    }
}

/// `~` stands for the home.
fn expand(home: &str, path: &str) -> String {
    match path.strip_prefix("~/") {
        Some(rest) => format!("{home}/{rest}"),
        None => path.to_owned(),
    }
}

fn path_value(descriptor: &HarnessDescriptor, prefix: &str) -> String {
    let mut path = SYSTEM_PATH.to_owned();
    if descriptor.install.min_node.is_some() {
        for package in crate::install::NODE_PACKAGES {
            path.push_str(&format!(":{prefix}/node_modules/{package}/bin"));
        }
    }
    path
}

/// JSON as people write it, with a line's end.
fn json_text(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}
