//! `render` (contract B.3): a harness, a provider and a mode become what to launch. Deterministic and
//! without effects; what cannot be honoured is an error, never dropped (B5). The key's stand-in goes into
//! the environment only (B3, E5).

mod claude_code;
mod pi;

use crate::endpoint::{Endpoint, EndpointError};
use crate::nearest::nearest;
use handler_types::harness::{
    HarnessDescriptor, HarnessLaunch, PermissionMode, RenderInput, SessionDefaults, SlotKind,
    StateMount,
};
use handler_types::launch::LaunchFile;
use handler_types::provider::{Protocol, Provider, ProviderModel};
use std::collections::BTreeMap;

/// What stands for the key of a provider without one: the harnesses insist on some value.
const NO_KEY: &str = "none";

/// Output tokens kept free when the model does not say how many it can write.
const DEFAULT_RESERVE: u64 = 16_384;

/// Programs of the sandbox come first; the harness's own Node.js only where the sandbox has none.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

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
    /// Nobody wrote how this harness takes a provider.
    #[error("{product} has no provider rendering")]
    NoRendering {
        /// Product name.
        product: String,
    },
}

/// What the part for one harness is given: everything is checked.
struct Request<'a> {
    descriptor: &'a HarnessDescriptor,
    provider: &'a Provider,
    model: &'a ProviderModel,
    protocol: Protocol,
    endpoint: &'a Endpoint,
    key: &'a str,
    is_root: bool,
    prefix: &'a str,
}

impl Request<'_> {
    /// Output tokens to keep free in a window: the model's `maxOutput`, else 16384; at most half of it.
    fn reserve(&self, window: u64) -> u64 {
        self.model
            .max_output
            .unwrap_or(DEFAULT_RESERVE)
            .min(window / 2)
            .max(1)
    }
}

/// What the part for one harness answers.
#[derive(Default)]
struct Rendered {
    env: BTreeMap<String, String>,
    files: Vec<LaunchFile>,
}

/// Renders a launch.
///
/// # Errors
/// [`RenderError`] when the harness cannot honour the input.
pub fn render(
    descriptor: &HarnessDescriptor,
    input: &RenderInput,
) -> Result<HarnessLaunch, RenderError> {
    let mapping = descriptor
        .permissions
        .get(&input.permission_mode)
        .ok_or_else(|| RenderError::Permission {
            product: descriptor.product.clone(),
            mode: input.permission_mode,
            has: descriptor.permissions.keys().copied().collect(),
        })?;
    let model = find_model(input)?;
    let (protocol, endpoint) = find_endpoint(descriptor, input)?;
    let request = Request {
        descriptor,
        provider: &input.provider,
        model,
        protocol,
        endpoint: &endpoint,
        key: checked_key(input)?,
        is_root: input.is_root,
        prefix: checked_prefix(&input.prefix)?,
    };
    let rendered = match descriptor.name.as_str() {
        "claude-code" => claude_code::render(&request),
        "pi" => pi::render(&request),
        _ => {
            return Err(RenderError::NoRendering {
                product: descriptor.product.clone(),
            });
        }
    };
    let mut env = descriptor.env.clone();
    env.insert("PATH".to_owned(), path_value(request.prefix));
    env.extend(rendered.env);
    env.extend(mapping.env.clone());
    Ok(HarnessLaunch {
        argv: program_argv(request.prefix, &descriptor.acp_command),
        env,
        home: descriptor.home.clone(),
        files: rendered.files,
        state: state_mounts(descriptor),
        egress: vec![endpoint.allow.clone()],
        session_defaults: SessionDefaults {
            mode_ids: mapping.session_modes.clone(),
            // The model is in the configuration, never chosen over ACP.
            config_options: BTreeMap::new(),
        },
    })
}

/// A program of the prefix, run by the Node.js of the prefix.
pub(crate) fn program_argv(prefix: &str, command: &[String]) -> Vec<String> {
    let mut argv = vec![format!("{prefix}/{}", crate::install::NODE_BIN)];
    if let Some((program, rest)) = command.split_first() {
        argv.push(format!("{prefix}/{}/{program}", crate::install::BIN_DIR));
        argv.extend(rest.iter().cloned());
    }
    argv
}

/// `~` stands for the home.
fn expand(home: &str, path: &str) -> String {
    match path.strip_prefix("~/") {
        Some(rest) => format!("{home}/{rest}"),
        None => path.to_owned(),
    }
}

fn path_value(prefix: &str) -> String {
    let mut path = SYSTEM_PATH.to_owned();
    for package in crate::install::NODE_PACKAGES {
        path.push_str(&format!(":{prefix}/node_modules/{package}/bin"));
    }
    path
}

fn state_mounts(descriptor: &HarnessDescriptor) -> Vec<StateMount> {
    descriptor
        .state_slots
        .iter()
        .map(|(name, slot)| StateMount {
            slot: name.clone(),
            target: expand(&descriptor.home, &slot.target),
            kind: slot.kind,
            per_session: slot.per_session,
            initial: match (&slot.initial, slot.kind) {
                (Some(initial), _) => initial.clone(),
                (None, SlotKind::File) => "{}".to_owned(),
                (None, SlotKind::Dir) => String::new(),
            },
        })
        .collect()
}

fn find_model(input: &RenderInput) -> Result<&ProviderModel, RenderError> {
    let models = &input.provider.models;
    let model = models
        .iter()
        .find(|model| model.id == input.model && !model.id.contains(char::is_control))
        .ok_or_else(|| RenderError::Model {
            provider: input.provider_name.clone(),
            model: input.model.chars().take(128).collect(),
            nearest: nearest(&input.model, models.iter().map(|model| model.id.as_str()))
                .map(str::to_owned),
            has: models.iter().take(20).map(|m| m.id.clone()).collect(),
        })?;
    for (field, value) in [
        ("contextWindow", model.context_window),
        ("maxOutput", model.max_output),
    ] {
        if let Some(value) = value.filter(|value| !(1..=100_000_000).contains(value)) {
            return Err(RenderError::Limit {
                model: model.id.clone(),
                field,
                value,
            });
        }
    }
    Ok(model)
}

/// The first protocol of the harness that the provider has an endpoint for.
fn find_endpoint(
    descriptor: &HarnessDescriptor,
    input: &RenderInput,
) -> Result<(Protocol, Endpoint), RenderError> {
    let endpoints = &input.provider.endpoints;
    let (protocol, url) = descriptor
        .provider_protocols
        .iter()
        .find_map(|protocol| Some((*protocol, endpoints.get(protocol)?)))
        .ok_or_else(|| RenderError::Protocol {
            product: descriptor.product.clone(),
            provider: input.provider_name.clone(),
            accepts: descriptor.provider_protocols.clone(),
            offers: endpoints.keys().copied().collect(),
        })?;
    let endpoint = Endpoint::parse(url).map_err(|source| RenderError::Endpoint {
        provider: input.provider_name.clone(),
        protocol,
        source,
    })?;
    Ok((protocol, endpoint))
}

fn checked_key(input: &RenderInput) -> Result<&str, RenderError> {
    match &input.key {
        None => Ok(NO_KEY),
        Some(key) if !key.is_empty() && key.bytes().all(|b| b.is_ascii_graphic() || b == b' ') => {
            Ok(key)
        }
        Some(_) => Err(RenderError::Key {
            provider: input.provider_name.clone(),
        }),
    }
}

fn checked_prefix(prefix: &str) -> Result<&str, RenderError> {
    let bad = !prefix.starts_with('/')
        || prefix.ends_with('/')
        || prefix.contains(|c: char| c == ':' || c.is_control());
    if bad {
        return Err(RenderError::Prefix);
    }
    Ok(prefix)
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
