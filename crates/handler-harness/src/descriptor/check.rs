//! What a descriptor's type cannot say, checked when it is read.

use handler_types::harness::{
    HarnessDescriptor, HarnessInstall, HarnessLogin, InstallManager, McpEnv, McpTransport,
    SlotKind, StateSlot, TerminalProgram,
};

/// The `apiVersion` of a descriptor.
const DESCRIPTOR_VERSION: &str = "handler.harness/v1";

/// What is wrong with it, in words that name the key; none: nothing.
pub(super) fn problem(name: &str, harness: &HarnessDescriptor) -> Option<String> {
    basics(name, harness)
        .or_else(|| install(&harness.install))
        .or_else(|| paths(harness))
        .or_else(|| slots(harness))
        .or_else(|| permissions(harness))
        .or_else(|| mcp(harness))
        .or_else(|| harness.login.as_ref().and_then(|l| login(harness, l)))
        .or_else(|| harness.terminal.as_ref().and_then(|t| terminal(harness, t)))
}

/// The first problem that is one.
fn first(problems: &[(bool, &str)]) -> Option<String> {
    let found = problems.iter().find(|(is_one, _)| *is_one);
    found.map(|(_, text)| (*text).to_owned())
}

fn basics(name: &str, harness: &HarnessDescriptor) -> Option<String> {
    let home = &harness.home;
    first(&[
        (
            harness.api_version != DESCRIPTOR_VERSION,
            "apiVersion is not handler.harness/v1",
        ),
        (harness.name != name, "name is not the folder's"),
        (harness.product.trim().is_empty(), "product is empty"),
        (
            harness.image != crate::recipes::image_repository(name),
            "image is not the repository of its name, without a tag",
        ),
        (harness.acp_command.is_empty(), "acpCommand needs a program"),
        (
            !home.starts_with('/') || home.ends_with('/'),
            "home is no absolute path",
        ),
        (
            harness.provider_protocols.is_empty() && harness.login.is_none(),
            "it needs providerProtocols or a login: nothing could run it",
        ),
    ])
}

fn install(install: &HarnessInstall) -> Option<String> {
    let (node, python) = (install.min_node.is_some(), install.min_python.is_some());
    first(&[
        (
            install.version_packages.is_empty() || install.check.is_empty(),
            "install needs versionPackages and a check",
        ),
        (
            install.manager == InstallManager::Npm && (!node || python),
            "install by npm needs minNode and no minPython",
        ),
        (
            install.manager == InstallManager::Pip && (node || !python),
            "install by pip needs minPython and no minNode",
        ),
    ])
}

/// Every path in the home stays there.
fn paths(harness: &HarnessDescriptor) -> Option<String> {
    let slots = harness
        .state_slots
        .iter()
        .map(|(name, s)| (name, &s.target));
    let files = harness
        .config_files
        .iter()
        .map(|(name, f)| (name, &f.target));
    let named = slots.chain(files);
    let named = named.map(|(name, path)| (format!("the target of `{name}`"), path));
    let single = [
        ("skillsDir", &harness.skills_dir),
        ("instructionsFile", &harness.instructions_file),
        ("mcpConfigFile", &harness.mcp_config_file),
    ];
    let single = single
        .into_iter()
        .filter_map(|(name, path)| Some((name.to_owned(), path.as_ref()?)));
    let writable = harness.writable_paths.iter();
    let writable = writable.map(|path| ("an entry of writablePaths".to_owned(), path));
    named
        .chain(single)
        .chain(writable)
        .find(|(_, path)| !is_in_home(path))
        .map(|(name, path)| format!("{name} is `{path}`: it starts with ~/ and has no `..`"))
}

pub(crate) fn is_in_home(path: &str) -> bool {
    path.strip_prefix("~/").is_some_and(|rest| {
        rest.split('/')
            .all(|part| !matches!(part, "" | "." | "..") && !part.contains(char::is_control))
    })
}

fn slots(harness: &HarnessDescriptor) -> Option<String> {
    let all = || harness.state_slots.values();
    let is_wrong_credential =
        |slot: &StateSlot| slot.credential && (slot.kind != SlotKind::File || slot.per_session);
    first(&[
        (
            all().filter(|slot| slot.per_session).count() > 1,
            "at most one state slot is perSession",
        ),
        (
            all().any(is_wrong_credential),
            "a credential slot is a file and not perSession",
        ),
        (
            all().any(|slot| slot.initial.is_some() && slot.kind == SlotKind::Dir),
            "only a file has an initial content",
        ),
    ])
}

fn permissions(harness: &HarnessDescriptor) -> Option<String> {
    let all = || harness.permissions.values();
    first(&[
        (all().count() == 0, "permissions needs a mode"),
        (
            all().any(|mapping| mapping.about.trim().is_empty()),
            "a mode of permissions needs its about",
        ),
        (
            all().any(|mapping| !mapping.session_modes.is_empty() && !mapping.env.is_empty()),
            "a mode of permissions has sessionModes or env, not both",
        ),
    ])
}

fn mcp(harness: &HarnessDescriptor) -> Option<String> {
    let takes_stdio = harness.mcp_transports.contains(&McpTransport::Stdio);
    first(&[
        (
            harness.mcp_config_file.is_some() && harness.mcp_transports.is_empty(),
            "mcpConfigFile needs mcpTransports",
        ),
        (
            harness.mcp_env == McpEnv::Sandbox && !takes_stdio,
            "mcpEnv = \"sandbox\" needs the transport stdio",
        ),
    ])
}

fn login(harness: &HarnessDescriptor, login: &HarnessLogin) -> Option<String> {
    let slot = login.file.as_ref().and_then(|f| harness.state_slots.get(f));
    let is_file_wrong = login.file.is_some() && !slot.is_some_and(|slot| slot.credential);
    let hands_dir = login.env.values().any(|value| value.contains("{dir}"));
    first(&[
        (
            !login.terms.starts_with("https://"),
            "login.terms is no https:// address",
        ),
        (
            login.checked.as_deref().is_some_and(|date| !is_date(date)),
            "login.checked is no date (YYYY-MM-DD)",
        ),
        (
            login.token.is_some() == login.file.is_some(),
            "login has exactly one of token and file",
        ),
        (
            login.token.is_some() && login.token_command.is_none(),
            "a token login needs its tokenCommand",
        ),
        (
            is_file_wrong,
            "login.file names a state slot that is a credential",
        ),
        (
            login.file.is_some() && (login.command.is_empty() || !hands_dir),
            "a file login needs a command, and {dir} in login.env",
        ),
        (login.hosts.is_empty(), "login.hosts is empty"),
        (
            login.plans.is_empty() != login.plan_env.is_none(),
            "login has plans and planEnv, or neither",
        ),
    ])
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 10
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

fn terminal(harness: &HarnessDescriptor, terminal: &TerminalProgram) -> Option<String> {
    first(&[
        (
            terminal.command.is_empty(),
            "terminal.command needs a program",
        ),
        (
            !terminal.permissions.keys().eq(harness.permissions.keys()),
            "terminal.permissions has exactly the modes of permissions",
        ),
        (
            terminal.model_flag.is_some() && terminal.model_env.is_some(),
            "terminal has modelFlag or modelEnv, not both",
        ),
        (
            terminal.mcp_config_flag.is_some() && terminal.mcp_servers_env.is_some(),
            "terminal has mcpConfigFlag or mcpServersEnv, not both",
        ),
    ])
}
